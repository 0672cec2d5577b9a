#![doc = include_str!("../README.md")]
#![no_std]

pub mod channel;
pub mod command;
#[cfg(all(feature = "cortex-m", target_arch = "arm"))]
pub mod cortex;
pub mod device;
pub mod ring;
pub mod session;
pub mod ticks;
pub mod tools;
