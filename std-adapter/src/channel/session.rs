//! Sessions of local pages, and the token of this host.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use triwire::channel::hello::{SESSION_COOKIE, Session};
use triwire::exec::head::KeyDigest;

use super::hex;
use crate::entropy;
use crate::secret::Secret;

/// The session that local pages show, and the ticket that gives it away once.
pub struct SessionGate {
    cookie: Secret,
    ticket: Mutex<Option<KeyDigest>>,
}

impl SessionGate {
    /// Makes a session and its ticket, 64 hex digits, which is to be printed once: whoever opens
    /// `/?bootstrap=TICKET` first has the session.
    ///
    /// # Errors
    /// The operating system gave no randomness.
    pub fn new() -> io::Result<(Self, String)> {
        let ticket = random_hex::<32>()?;
        let digest = KeyDigest::of(ticket.as_bytes());
        let cookie = Secret::new(random_hex::<32>()?);
        Ok((Self { cookie, ticket: Mutex::new(Some(digest)) }, ticket))
    }

    pub(super) fn session(&self) -> Session<'_> {
        Session::On(self.cookie.as_str())
    }

    /// Returns the `Set-Cookie` for a ticket that was not used; it is used now.
    pub(super) fn redeem(&self, ticket: &str) -> Option<String> {
        let shown = KeyDigest::of(ticket.as_bytes());
        let mut ticket = self.ticket.lock().unwrap_or_else(PoisonError::into_inner);
        ticket.take_if(|ticket| *ticket == shown)?;
        let cookie = self.cookie.as_str();
        Some(format!("{SESSION_COOKIE}={cookie}; HttpOnly; SameSite=Strict; Path=/"))
    }
}

impl fmt::Debug for SessionGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionGate(redacted)")
    }
}

/// The token that shows that a caller may read this host's files: who has it may pair.
#[derive(Clone, Copy, Debug)]
pub struct HostToken(pub(super) KeyDigest);

impl HostToken {
    /// Reads the token of a file, or makes one there that only its owner may read: 64 hex digits.
    ///
    /// # Errors
    /// The file's; [`InvalidData`](ErrorKind::InvalidData) when it holds something else.
    pub fn from_file(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let token = match Secret::from_file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let token = Secret::new(random_hex::<32>()?);
                let mut file = owned_file().write(true).create_new(true).open(path)?;
                file.write_all(token.as_str().as_bytes())?;
                token
            }
            token => token?,
        };
        let text = token.as_str().as_bytes();
        if text.len() != 64 || !text.iter().all(u8::is_ascii_hexdigit) {
            let why = "the host token is not 64 hex digits; remove the file to have another made";
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        Ok(Self(KeyDigest::of(text)))
    }
}

/// Options of files that only their owner may read.
pub(super) fn owned_file() -> OpenOptions {
    #[allow(unused_mut)]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

pub(super) fn random_hex<const N: usize>() -> io::Result<String> {
    let mut bytes = [0; N];
    entropy::fill(&mut bytes)?;
    Ok(hex(&bytes))
}
