//! Links on tokio: over byte streams ([`stream`]) and over WebSocket messages ([`socket`]).
//!
//! A link is an `Rx` and a `Tx`. Waiting for bytes and flushing are the only awaits, both are
//! cancel safe, and one task may wait for both at once:
//!
//! ```
//! use triwire_std::Wake;
//! use triwire_std::tokio::stream::{Rx, Tx};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, mut far) = tokio::io::duplex(64);
//! let (reader, writer) = tokio::io::split(near);
//! let mut rx = Rx::new(reader, [0; 64]);
//! let mut tx = Tx::new(writer, [0; 64]);
//! # tokio::spawn(async move {
//! #     use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! #     let mut hello = [0; 5];
//! #     far.write_all(b"ping!").await.unwrap();
//! #     far.read_exact(&mut hello).await.unwrap();
//! # });
//! tx.send(b"hello")?;
//! let mut came = Vec::new();
//! loop {
//!     while let Some(mut window) = rx.next() {
//!         came.extend_from_slice(std::mem::take(&mut window.rest));
//!     }
//!     tokio::select! {
//!         wake = rx.wait(None) => if wake? == Wake::End { break },
//!         // Without the condition the loop would spin: nothing to flush is done at once.
//!         sent = tx.flush(), if !tx.is_flushed() => sent?,
//!     }
//! }
//! assert_eq!(came, b"ping!");
//! # Ok(())
//! # }
//! ```

#[cfg(any(feature = "client", feature = "server"))]
pub(crate) mod heard;
pub mod socket;
pub mod stream;
