use std::fmt;
use std::io;
use std::path::Path;

use zeroize::Zeroizing;

/// A bearer key: shown nowhere, and wiped from memory when the last copy drops.
///
/// ```
/// use triwire_std::client::Secret;
///
/// assert_eq!(format!("{:?}", Secret::new("k-123")), "Secret(redacted)");
/// ```
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a key as it is; whether it can be sent is judged when it is.
    pub fn new(key: impl Into<String>) -> Self {
        Self(Zeroizing::new(key.into()))
    }

    /// Reads a key from a file, without the white space around it.
    ///
    /// # Errors
    /// The file's; or [`InvalidData`](io::ErrorKind::InvalidData) when it is not UTF-8.
    pub fn from_file(path: impl AsRef<Path>) -> io::Result<Self> {
        let text = Zeroizing::new(std::fs::read_to_string(path)?);
        Ok(Self::new(text.trim()))
    }

    /// Lends the key itself, to be sent or shown to its owner.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

impl From<String> for Secret {
    fn from(key: String) -> Self {
        Self::new(key)
    }
}

impl From<&str> for Secret {
    fn from(key: &str) -> Self {
        Self::new(key)
    }
}
