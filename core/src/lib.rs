#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod buffer;
pub mod channel;
pub mod exec;
pub mod json;
pub mod line;
pub mod signed;
pub mod tar;
pub mod time;
mod words;

pub use buffer::OutTooSmall;
