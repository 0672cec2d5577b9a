#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod buffer;
pub mod exec;
pub mod json;
pub mod line;
pub mod tar;
pub mod time;

pub use buffer::OutTooSmall;
