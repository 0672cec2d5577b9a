//! Where a receiver's keys come from.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::hash::BuildHasher;
use std::sync::{Arc, PoisonError, RwLock};

use triwire::signed::{Key, KeyId, SecretTooShort};

/// A receiver's keys by their ids: a map, a [`KeyRing`], or an async closure.
///
/// A look-up runs only for a request whose time is in the window, and before its body is read, so
/// what it costs is paid for every request that looks right, genuine or not.
///
/// ```
/// use triwire::signed::{Key, KeyId};
/// use triwire_std::signed::{Keys, LookupError};
///
/// fn of_a_database() -> impl Keys {
///     async |id: KeyId| -> Result<Option<Key>, LookupError> {
///         let secret = match id.as_str() {
///             "shop.1" => "a secret of at least 32 bytes, kept apart",
///             _ => return Ok(None),
///         };
///         Ok(Some(Key::new(secret.as_bytes())?))
///     }
/// }
/// # let _ = of_a_database();
/// ```
pub trait Keys: Send + Sync {
    /// Finds the key with this id; `None` when the receiver has none.
    ///
    /// # Errors
    /// The place that holds the keys could not be asked: the request is answered with 503. Or what
    /// it holds is no key: the receiver's own mistake, answered with 500.
    fn find(&self, id: KeyId) -> impl Future<Output = Result<Option<Key>, LookupError>> + Send;
}

impl<F, Looking> Keys for F
where
    F: Fn(KeyId) -> Looking + Send + Sync,
    Looking: Future<Output = Result<Option<Key>, LookupError>> + Send,
{
    fn find(&self, id: KeyId) -> impl Future<Output = Result<Option<Key>, LookupError>> + Send {
        self(id)
    }
}

impl<H: BuildHasher + Send + Sync> Keys for HashMap<KeyId, Key, H> {
    async fn find(&self, id: KeyId) -> Result<Option<Key>, LookupError> {
        Ok(self.get(&id).cloned())
    }
}

impl Keys for BTreeMap<KeyId, Key> {
    async fn find(&self, id: KeyId) -> Result<Option<Key>, LookupError> {
        Ok(self.get(&id).cloned())
    }
}

impl<K: Keys> Keys for Arc<K> {
    fn find(&self, id: KeyId) -> impl Future<Output = Result<Option<Key>, LookupError>> + Send {
        (**self).find(id)
    }
}

/// A set of keys that may change while it is in use; clones are the same set.
///
/// Rotation without a gap: [`insert`](Self::insert) the new key at the receiver, let the signer
/// sign with it, then [`remove`](Self::remove) the old one.
///
/// ```
/// use triwire::signed::{Key, KeyId};
/// use triwire_std::signed::KeyRing;
///
/// let old = KeyId::parse("shop.1")?;
/// let ring = KeyRing::new();
/// ring.insert(old, Key::new(b"a secret of at least 32 bytes, the first")?);
///
/// ring.insert(KeyId::parse("shop.2")?, Key::new(b"a secret of at least 32 bytes, the second")?);
/// // From here on the signer may use shop.2.
/// assert!(ring.remove(old));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct KeyRing(Arc<RwLock<HashMap<KeyId, Key>>>);

impl KeyRing {
    /// Makes an empty set, which knows nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key, or replaces the one that has this id.
    pub fn insert(&self, id: KeyId, key: Key) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(id, key);
    }

    /// Removes the key with this id; `false` when there is none.
    pub fn remove(&self, id: KeyId) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&id).is_some()
    }

    /// Replaces all keys at once, for files that were read again.
    pub fn replace(&self, keys: impl IntoIterator<Item = (KeyId, Key)>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys.into_iter().collect();
    }
}

impl Keys for KeyRing {
    async fn find(&self, id: KeyId) -> Result<Option<Key>, LookupError> {
        Ok(self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned())
    }
}

/// Why a look-up gave no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum LookupError {
    /// The place that holds the keys could not be asked.
    Unavailable(Box<dyn Error + Send + Sync>),
    /// What it holds under this id is too short for a key.
    TooShort(SecretTooShort),
}

impl LookupError {
    /// Makes the error of a place that could not be asked.
    pub fn unavailable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(error.into())
    }
}

impl From<SecretTooShort> for LookupError {
    fn from(error: SecretTooShort) -> Self {
        Self::TooShort(error)
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(_) => f.write_str(
                "the keys could not be asked for; check the place that holds them, then retry",
            ),
            Self::TooShort(error) => error.fmt(f),
        }
    }
}

impl Error for LookupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unavailable(error) => Some(&**error),
            Self::TooShort(_) => None,
        }
    }
}
