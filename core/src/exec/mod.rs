//! Framed command streams.

pub mod body;
pub mod frame;
pub mod head;
pub mod linger;
pub mod request;
pub mod result;
pub mod session;
pub mod socket;
