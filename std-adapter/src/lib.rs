#![doc = include_str!("../README.md")]

#[cfg(feature = "guest")]
pub mod guest;
pub mod record;
