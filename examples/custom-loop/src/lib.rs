//! An exec client without a runtime: the core's machines, and a loop that is yours.
//!
//! [`Link`] moves bytes, [`Session`] feeds them to the machines; `main.rs` is the loop, on mio.
//! The first two know nothing of mio: they take any transport that never blocks.

mod link;
mod session;

pub use link::{Came, Link};
pub use session::{Failure, Session};
