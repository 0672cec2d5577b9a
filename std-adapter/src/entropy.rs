//! The one place that draws randomness: from the operating system, never from a seed.
//!
//! ```
//! use triwire_std::entropy;
//!
//! let secret = entropy::token()?;
//! assert_eq!(secret.len(), 43); // 32 bytes as base64url
//! assert_ne!(secret, entropy::token()?);
//! assert_eq!(entropy::websocket_key()?.len(), 24);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;

use base64ct::{Base64, Base64UrlUnpadded, Encoding};

/// Fills `bytes` with randomness fit for keys.
///
/// # Errors
/// The operating system gave none.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::from)
}

/// Makes a secret of 32 random bytes, as 43 letters that are safe in a header or a URL.
///
/// # Errors
/// The operating system gave no randomness.
pub fn token() -> io::Result<String> {
    let mut bytes = [0; 32];
    fill(&mut bytes)?;
    Ok(Base64UrlUnpadded::encode_string(&bytes))
}

/// Makes the value of a `Sec-WebSocket-Key` header: 16 random bytes in 24 letters.
///
/// # Errors
/// The operating system gave no randomness.
pub fn websocket_key() -> io::Result<String> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    Ok(Base64::encode_string(&bytes))
}
