//! The exec server.
