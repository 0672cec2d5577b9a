#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod blocking;
pub mod clock;
pub mod entropy;
mod link;
pub mod record;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use link::{Full, InboxFull, Wake};
