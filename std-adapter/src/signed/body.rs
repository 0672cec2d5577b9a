//! A body within its limit.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::StatusCode;
use http_body::Body;
use tokio::time::timeout;

/// How long a signed body may take to arrive whole, unless told otherwise. Our choice: such bodies
/// are small.
pub const BODY_BOUND: Duration = Duration::from_secs(30);

/// Reads a body of at most `max` bytes, before anything parses it.
///
/// # Errors
/// It is longer, it took longer than `bound`, or it did not come whole:
/// [`status`](BodyError::status) says what to answer.
///
/// # Cancel safety
/// None: what was read is dropped with the future.
pub async fn read_body<B>(body: B, max: usize, bound: Duration) -> Result<Bytes, BodyError>
where
    B: Body<Error: fmt::Display>,
{
    if body.size_hint().lower() > max as u64 {
        return Err(BodyError::TooLarge { max });
    }
    let reading = async {
        let mut body = pin!(body);
        let mut whole = BytesMut::new();
        while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let frame = frame.map_err(|error| BodyError::Broken { why: error.to_string() })?;
            let Ok(mut data) = frame.into_data() else { continue };
            if data.remaining() > max - whole.len() {
                return Err(BodyError::TooLarge { max });
            }
            while data.has_remaining() {
                let count = data.chunk().len();
                whole.extend_from_slice(data.chunk());
                data.advance(count);
            }
        }
        Ok(whole.freeze())
    };
    timeout(bound, reading).await.unwrap_or(Err(BodyError::Slow { bound }))
}

/// Why a body could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// It is longer than this many bytes.
    TooLarge {
        /// The limit in bytes.
        max: usize,
    },
    /// It did not arrive whole in time.
    Slow {
        /// The time it had.
        bound: Duration,
    },
    /// The connection failed, or the HTTP library refused what came.
    Broken {
        /// In its words.
        why: String,
    },
}

impl BodyError {
    /// Returns the status to answer with: 413, 408 or 400.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::Broken { .. } => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { max } => {
                write!(f, "the body is longer than {max} bytes; send less, or raise the limit")
            }
            Self::Slow { bound } => {
                write!(f, "the body did not arrive within {} s; send it at once", bound.as_secs())
            }
            Self::Broken { why } => write!(f, "the body could not be read: {why}"),
        }
    }
}

impl std::error::Error for BodyError {}
