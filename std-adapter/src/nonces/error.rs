use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use triwire::signed::STORE_CLOCK_SLACK_MS;

/// A store cannot say whether a nonce is fresh: the request is refused as `nonces_unavailable`.
///
/// A copy shares the inner error.
#[derive(Clone, Debug)]
pub struct Unavailable {
    cause: Cause,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Why a store cannot say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// No room without forgetting a live nonce.
    Full,
    /// No answer in time.
    Slow {
        /// How long was waited.
        after: Duration,
    },
    /// No connection to the server, or it broke before the answer.
    Lost,
    /// The server, the file or the disk refused.
    Refused,
    /// The server is set up to throw live entries away when its memory is full.
    Evicts,
    /// The server's clock and ours are further apart than a store may be.
    Clock {
        /// By how many ms the server's is ahead; negative when it is behind.
        ahead_ms: i64,
    },
    /// The store started anew and has forgotten; what may have been accepted before is refused.
    Booted,
    /// By our clock the entry would be forgotten at once, or lies beyond what the store can count.
    TooLate,
}

impl Unavailable {
    pub(super) const fn new(cause: Cause) -> Self {
        Self { cause, source: None }
    }

    #[cfg(any(feature = "sqlite", feature = "redis", feature = "postgres"))]
    pub(super) fn with(cause: Cause, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause, source: Some(Arc::from(source.into())) }
    }

    /// Wraps the failure of a store of one's own.
    pub fn other(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: Cause::Refused, source: Some(Arc::from(source.into())) }
    }

    /// Returns why the store cannot say.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        self.cause
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Full => f.write_str(
                "the nonce store is full of live nonces; raise its capacity or its memory, \
                 or find out who signs that much",
            ),
            Cause::Slow { after } => write!(
                f,
                "the nonce store did not answer within {} ms; look at its load and the network",
                after.as_millis()
            ),
            Cause::Lost => f.write_str("no connection to the nonce store; is its server running"),
            Cause::Refused => f.write_str("the nonce store refused"),
            Cause::Evicts => f.write_str(
                "the nonce store's server may evict live nonces; \
                 set its maxmemory-policy to noeviction",
            ),
            Cause::Clock { ahead_ms } => write!(
                f,
                "the nonce store's clock is {} ms {} ours, more than the {STORE_CLOCK_SLACK_MS} \
                 that are allowed; run NTP on both machines",
                ahead_ms.unsigned_abs(),
                if ahead_ms < 0 { "behind" } else { "ahead of" }
            ),
            Cause::Booted => f.write_str(
                "the nonce store has forgotten what was accepted before it started; \
                 sign the request anew once the window has passed",
            ),
            Cause::TooLate => f.write_str(
                "the request's window is over, or lies beyond what the nonce store can count; \
                 check the clocks",
            ),
        }?;
        match &self.source {
            Some(source) => write!(f, ": {}", Sources(&**source)),
            None => Ok(()),
        }
    }
}

impl Error for Unavailable {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

/// An error and what stands behind it: a database's own error often says only `db error`.
struct Sources<'e>(&'e (dyn Error + 'static));

impl fmt::Display for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.0.to_string();
        f.write_str(&first)?;
        let mut said = first;
        let mut next = self.0.source();
        while let Some(error) = next {
            let text = error.to_string();
            if !said.contains(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            next = error.source();
        }
        Ok(())
    }
}

/// Why a store could not be opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The text names no kind of store.
    Scheme {
        /// The text, without what may be a password.
        text: String,
    },
    /// The program was built without this kind of store.
    Feature {
        /// The feature of this crate that it takes.
        feature: &'static str,
    },
    /// The server's address cannot be used. The address itself is not shown: it may hold a
    /// password.
    Address {
        /// What is wrong with it.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The file cannot be opened or made, or is no database.
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// Users outside the file's group may read or change it.
    Permissions {
        /// Its path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is a database of another program, or of a later version of this one.
    Foreign {
        /// Its path.
        path: PathBuf,
    },
    /// The store is there and cannot serve.
    Unavailable(Unavailable),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme { text } => write!(
                f,
                "`{text}` names no nonce store; write memory:, sqlite:{path}, redis://HOST or \
                 postgres://USER@HOST/DATABASE",
                path = if text.contains('/') && !text.contains("://") { text } else { "PATH" }
            ),
            Self::Feature { feature } => write!(
                f,
                "this program was built without the `{feature}` nonce store; \
                 build it with the feature `{feature}` of triwire-std"
            ),
            Self::Address { source } => {
                write!(f, "the nonce store's address cannot be used: {}", Sources(&**source))
            }
            Self::File { path, source } => write!(
                f,
                "the nonce store {} cannot be opened: {}",
                path.display(),
                Sources(&**source)
            ),
            Self::Permissions { path, mode } => write!(
                f,
                "the nonce store {path} is open to every user (mode {mode:03o}); \
                 run `chmod o= {path}`",
                path = path.display()
            ),
            Self::Foreign { path } => write!(
                f,
                "{} is not a nonce store of this program's version; name another file",
                path.display()
            ),
            Self::Unavailable(unavailable) => unavailable.fmt(f),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Address { source } | Self::File { source, .. } => Some(&**source),
            Self::Unavailable(unavailable) => unavailable.source(),
            Self::Scheme { .. }
            | Self::Feature { .. }
            | Self::Permissions { .. }
            | Self::Foreign { .. } => None,
        }
    }
}

impl From<Unavailable> for OpenError {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable)
    }
}
