#![doc = include_str!("../README.md")]
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "async")]
pub mod asynch;
pub mod blocking;
pub mod channel;
pub mod clock;
mod link;
pub mod signed;
