#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod blocking;
#[cfg(feature = "server")]
pub mod channel;
#[cfg(feature = "client")]
pub mod client;
pub mod clock;
pub mod entropy;
#[cfg(any(feature = "client", all(feature = "guest", target_os = "linux")))]
mod exchange;
#[cfg(any(feature = "guest", feature = "server"))]
pub mod guest;
mod link;
#[cfg(feature = "tokio")]
pub mod nonces;
#[cfg(any(feature = "client", feature = "server"))]
mod outcome;
pub mod record;
#[cfg(any(feature = "client", feature = "server", all(feature = "guest", target_os = "linux")))]
mod secret;
#[cfg(feature = "server")]
pub mod server;
#[cfg(any(feature = "client", feature = "server"))]
pub mod signed;
#[cfg(all(feature = "tls", any(feature = "client", feature = "server")))]
pub mod tls;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use link::{Full, InboxFull, Wake};
