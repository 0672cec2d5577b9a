//! Where commands run: the [`Guest`] a server starts them in, and the one that runs them as
//! processes of this machine.
//!
//! ```text
//!   server ── start(request) ──> Guest ──> Running ── poll_output ──> Stdout* Stderr* Exit
//!                                                  <─ poll_stdin ──  input
//!                                                  <─ drop ────────  client gone: kill
//! ```
//!
//! The guests of this crate (feature `guest`, Linux only):
//!
//! | guest | its commands run |
//! | --- | --- |
//! | `ProcessGuest` | as processes of this machine |
//! | `TcpGuest`, `UnixGuest` | behind a socket whose other end speaks the hijacked transport: an agent in a virtual machine, a container, another gateway |
//! | `SerialGuest` | on a device at a serial port, over the numbered streams of `triwire::line` |
//!
//! Anything else is a guest by implementing the two traits.
//!
//! ```
//! # #[cfg(not(feature = "guest"))]
//! # fn main() {}
//! # #[cfg(feature = "guest")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::future::poll_fn;
//! use triwire_std::guest::{Guest, Output, ProcessGuest};
//! use triwire_std::record::ExecRequest;
//!
//! let guest = ProcessGuest::new(std::env::temp_dir())?;
//! let cmd = vec!["echo".to_owned(), "hello".to_owned()];
//! let mut running = guest.start(ExecRequest { cmd, ..Default::default() }).await?;
//! running.close_stdin();
//! let mut said = Vec::new();
//! let result = loop {
//!     match poll_fn(|cx| running.poll_output(cx)).await? {
//!         Output::Stdout(bytes) => said.extend_from_slice(&bytes),
//!         Output::Stderr(_) => {}
//!         Output::Exit(result) => break result,
//!     }
//! };
//! assert_eq!((said.as_slice(), result.exit_code), (&b"hello\n"[..], 0));
//! # Ok(())
//! # }
//! ```

#[cfg(all(feature = "guest", not(target_os = "linux")))]
compile_error!(
    "the feature `guest` runs commands by pidfd, wait4 and /proc, which only Linux has: \
     build for Linux, or leave the feature out and serve a guest of your own"
);

#[cfg(all(feature = "guest", target_os = "linux"))]
mod asked;
#[cfg(all(feature = "guest", target_os = "linux"))]
mod child;
#[cfg(all(feature = "guest", target_os = "linux"))]
mod process;
#[cfg(all(feature = "guest", target_os = "linux"))]
mod running;
#[cfg(all(feature = "guest", target_os = "linux"))]
mod rusage;
#[cfg(all(feature = "guest", target_os = "linux"))]
mod serial;
#[cfg(all(feature = "guest", target_os = "linux"))]
mod signal;
#[cfg(all(feature = "guest", target_os = "linux"))]
mod socket;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

#[cfg(all(feature = "guest", target_os = "linux"))]
pub use asked::DEFAULT_PATH;
#[cfg(all(feature = "guest", target_os = "linux"))]
pub use process::ProcessGuest;
#[cfg(all(feature = "guest", target_os = "linux"))]
pub use serial::{DEFAULT_SPEED, SerialGuest};
#[cfg(all(feature = "guest", target_os = "linux"))]
pub use socket::{TcpGuest, UnixGuest};

use crate::files::Files;
use crate::record::{ExecRequest, ExecResult};
#[cfg(all(feature = "guest", target_os = "linux"))]
pub use crate::secret::Secret;

/// What [`Guest::start`] returns.
pub type Starting<'g> =
    Pin<Box<dyn Future<Output = Result<Box<dyn Running>, Unreachable>> + Send + 'g>>;

/// A place where commands run.
pub trait Guest: Send + Sync + 'static {
    /// Starts a command.
    ///
    /// A command that cannot start is no error here: it is a [`Running`] whose only output is the
    /// exit that says why.
    ///
    /// # Errors
    ///
    /// [`Unreachable`] when the guest itself cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends a command that it already started.
    fn start(&self, request: ExecRequest) -> Starting<'_>;

    /// Returns the files of the place, for transfers; a place has none unless it says so.
    fn files(&self) -> Option<Arc<dyn Files>> {
        None
    }
}

/// A command that runs. Dropping it before its exit ends the command.
pub trait Running: Send {
    /// Polls for the next output; the exit is the last, and nothing is polled after it.
    ///
    /// # Errors
    ///
    /// [`Lost`] when the command's end cannot be known any more; nothing follows it.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Result<Output, Lost>>;

    /// Offers input, and says how many of the bytes were taken: at least one, unless none were
    /// offered.
    ///
    /// # Errors
    ///
    /// [`StdinGone`] when the command reads no more: what is left is to be dropped.
    fn poll_stdin(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, StdinGone>>;

    /// Ends the command's input; more calls change nothing.
    fn close_stdin(&mut self);
}

/// What comes out of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A piece of standard output, 1 to 65536 bytes.
    Stdout(Bytes),
    /// A piece of standard error, 1 to 65536 bytes.
    Stderr(Bytes),
    /// How it ended; always the last.
    Exit(ExecResult),
}

/// The guest cannot be reached: nothing was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Why, as a sentence for people.
    pub why: String,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the guest cannot be reached: {}", self.why)
    }
}

impl std::error::Error for Unreachable {}

/// The command was lost: how it ended will never be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Why, as a sentence for people.
    pub why: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the command was lost: {}", self.why)
    }
}

impl std::error::Error for Lost {}

/// The command closed its standard input, or it was closed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StdinGone;

impl fmt::Display for StdinGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the command reads no more input: drop the rest")
    }
}

impl std::error::Error for StdinGone {}
