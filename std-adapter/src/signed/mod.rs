//! Signed requests on hosts: a layer that verifies, a signer, and where keys come from.
//!
//! The rules are those of [`triwire::signed`]; here are URLs, HTTP and the machine's clock.
//!
//! | who | uses |
//! | --- | --- |
//! | a server with tower or axum | [`SignatureLayer`], and [`SignedBy`] in its handlers |
//! | any other receiver | [`verify`], after [`read_body`] |
//! | a sender that has a client of HTTP | [`Signer`] |
//! | any other sender | [`SignedClient`] |
//!
//! A receiver keeps its keys in a map, a [`KeyRing`] that may change, or asks for them with an
//! async closure: [`Keys`]. The nonces of what it accepted are in a store of
//! [`nonces`](crate::nonces).

#[cfg(feature = "server")]
mod body;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "server")]
mod keys;
#[cfg(feature = "server")]
mod layer;
#[cfg(feature = "client")]
mod sign;
pub mod url;
#[cfg(feature = "server")]
mod verify;

#[cfg(feature = "server")]
pub use self::body::{BODY_BOUND, BodyError, read_body};
#[cfg(feature = "client")]
pub use self::client::{
    ANSWER_LIMIT, Answer, CALL_BOUND, HttpError, SendError, SignedClient, SignedClientBuilder,
};
#[cfg(feature = "server")]
pub use self::keys::{KeyRing, Keys, LookupError};
#[cfg(feature = "server")]
pub use self::layer::{Scheme, SignatureLayer, SignatureService, SignedBy};
#[cfg(feature = "client")]
pub use self::sign::{SignError, Signer};
pub use self::url::UrlError;
#[cfg(feature = "server")]
pub use self::verify::{Misuse, Received, Refused, verify, verify_by};
