//! The exec client.
