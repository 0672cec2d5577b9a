use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::{Claim, Claimed, DEFAULT_CAPACITY, Memory, Nonces, OpenError, Unavailable};

/// A store whose kind is chosen while the program runs. Clones are the same store.
#[derive(Clone)]
pub struct AnyNonces(Arc<dyn Boxed>);

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Claimed, Unavailable>> + Send + 'a>>;

trait Boxed: Send + Sync {
    fn claim_boxed<'a>(&'a self, claim: Claim<'a>) -> Answer<'a>;
}

impl<N: Nonces> Boxed for N {
    fn claim_boxed<'a>(&'a self, claim: Claim<'a>) -> Answer<'a> {
        Box::pin(self.claim(claim))
    }
}

impl AnyNonces {
    /// Takes a store of any kind.
    ///
    /// # Cost
    /// One allocation a claim.
    pub fn new(store: impl Nonces + 'static) -> Self {
        Self(Arc::new(store))
    }
}

impl Nonces for AnyNonces {
    fn claim<'a>(
        &'a self,
        claim: Claim<'a>,
    ) -> impl Future<Output = Result<Claimed, Unavailable>> + Send + 'a {
        self.0.claim_boxed(claim)
    }
}

impl fmt::Debug for AnyNonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyNonces").finish_non_exhaustive()
    }
}

/// Opens the store that one line of a configuration names, with its defaults:
///
/// | text | store |
/// | --- | --- |
/// | `memory:` | [`Memory`] of [`DEFAULT_CAPACITY`] |
/// | `sqlite:PATH` | `Sqlite` in that file, made when it is not there |
/// | `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, `redis+unix://PATH` | `Redis` |
/// | `postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE` | `Postgres` |
///
/// # Errors
/// [`OpenError`]: the text names no store, one that is not built in, or one that cannot serve now.
pub async fn open(text: &str) -> Result<AnyNonces, OpenError> {
    match text.split_once(':') {
        Some(("memory", "")) => Ok(AnyNonces::new(Memory::with_capacity(DEFAULT_CAPACITY))),
        Some(("sqlite", path)) if !path.is_empty() => sqlite(path).await,
        Some(("redis" | "redis+unix", _)) => redis(text).await,
        Some(("postgres" | "postgresql", _)) => postgres(text).await,
        _ => Err(OpenError::Scheme { text: without_password(text) }),
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(path: &str) -> Result<AnyNonces, OpenError> {
    super::Sqlite::open(path).await.map(AnyNonces::new)
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_: &str) -> Result<AnyNonces, OpenError> {
    Err(OpenError::Feature { feature: "sqlite" })
}

#[cfg(feature = "redis")]
async fn redis(url: &str) -> Result<AnyNonces, OpenError> {
    super::Redis::open(url).await.map(AnyNonces::new)
}

#[cfg(not(feature = "redis"))]
async fn redis(_: &str) -> Result<AnyNonces, OpenError> {
    Err(OpenError::Feature { feature: "redis" })
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<AnyNonces, OpenError> {
    super::Postgres::open(url).await.map(AnyNonces::new)
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_: &str) -> Result<AnyNonces, OpenError> {
    Err(OpenError::Feature { feature: "postgres" })
}

/// What stands before an `@` may be a password.
fn without_password(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, rest)) => format!("…@{rest}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_text_that_names_no_store_is_refused_with_what_to_write() {
        for text in ["", "memory", "memory:x", "sqlite:", "/var/n", "mysql://u:secret@h/d"] {
            let error = open(text).await.unwrap_err().to_string();
            assert!(error.contains("memory:, sqlite:"), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        // A path by itself is most often a file of nonces.
        assert!(open("/var/n").await.unwrap_err().to_string().contains("sqlite:/var/n"));
    }

    #[cfg(not(feature = "redis"))]
    #[tokio::test]
    async fn a_store_that_is_not_built_in_is_refused_by_its_feature() {
        let error = open("redis://localhost").await.unwrap_err().to_string();
        assert!(error.contains("feature `redis`"), "{error}");
    }
}
