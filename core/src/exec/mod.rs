//! The exec contract: a command's output, its end and its input as a stream of frames, and the
//! three transports that carry it.
//!
//! Every frame is one header of 8 bytes and its payload:
//!
//! ```text
//!  0      1           4                8
//! +------+-----------+----------------+------------------
//! | type | reserved  | payload length | payload …
//! +------+-----------+----------------+------------------
//!   u8     0 0 0       u32 big-endian   0 to 65 536 bytes
//! ```
//!
//! | type | kind | direction | payload |
//! | --- | --- | --- | --- |
//! | 1 | `stdout` | guest to host | a chunk of output |
//! | 2 | `stderr` | guest to host | a chunk of output |
//! | 3 | `exit` | guest to host | the [`ExecResult`](result::ExecResult) as JSON; the last frame, exactly once |
//! | 4 | `stdin` | host to guest | a chunk of input |
//! | 5 | `stdin_close` | host to guest | nothing; the end of input |
//!
//! - [`frame`]: headers, and the decoder that hands payload on as slices of its input.
//! - [`session`]: what a whole stream means, for both ends and directions.
//! - [`request`], [`result`]: the two JSON records.
//! - [`head`], [`body`]: HTTP/1.1 heads and bodies of all transports, both ends; every status.
//! - [`files`]: the paths and records of file transfer.
//! - [`socket`]: the rules of the WebSocket transport; every close code.
//! - [`linger`]: how a connection closes without losing what was sent last.

pub mod body;
pub mod files;
pub mod frame;
pub mod head;
pub mod linger;
pub mod request;
pub mod result;
pub mod session;
pub mod signal;
pub mod socket;

mod error;

pub use error::{ExecError, Fault};
