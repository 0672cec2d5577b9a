use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;

use super::{ClientError, Session};
use crate::record::ExecResult;

/// An output that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedOutput {
    /// The next bytes of standard output.
    Stdout(Bytes),
    /// The next bytes of standard error.
    Stderr(Bytes),
    /// How the command ended; the last.
    Exit(ExecResult),
}

/// All that a command wrote, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// How it ended.
    pub result: ExecResult,
}

/// A session's output as a [`Stream`]. It ends behind the exit, or behind an error.
///
/// # Cost
/// Copies the payload over HTTP; over WebSocket it shares the received messages.
#[derive(Debug)]
pub struct OutputStream {
    session: Session,
    failed: bool,
}

impl OutputStream {
    pub(super) fn new(session: Session) -> Self {
        Self { session, failed: false }
    }

    /// Returns the session, to queue input; the stream sends it while it is polled.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl Stream for OutputStream {
    type Item = Result<OwnedOutput, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.failed {
            return Poll::Ready(None);
        }
        self.session.poll_owned(cx).map(|output| {
            self.failed = output.is_err();
            output.transpose()
        })
    }
}
