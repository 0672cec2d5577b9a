//! The keys that a server admits.

use std::sync::{Arc, PoisonError, RwLock};

use triwire::exec::head::KeyDigest;

/// A set of admitted keys, shared and replaceable while a server runs.
///
/// Holds digests only. An empty set admits nobody. Clones are the same set.
///
/// ```
/// use triwire::exec::head::KeyDigest;
/// use triwire_std::server::Keys;
///
/// let keys = Keys::new([KeyDigest::of(b"first")]);
/// let server_side = keys.clone();
/// keys.replace([]); // from now on the server admits nobody
/// assert!(server_side.is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Keys(Arc<RwLock<Arc<[KeyDigest]>>>);

impl Keys {
    /// Makes a set.
    pub fn new(keys: impl IntoIterator<Item = KeyDigest>) -> Self {
        Self(Arc::new(RwLock::new(keys.into_iter().collect())))
    }

    /// Replaces the whole set: requests that come from now on are judged by the new one; sessions
    /// that run go on.
    pub fn replace(&self, keys: impl IntoIterator<Item = KeyDigest>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys.into_iter().collect();
    }

    /// Reports whether nobody is admitted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.get().is_empty()
    }

    pub(crate) fn get(&self) -> Arc<[KeyDigest]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}
