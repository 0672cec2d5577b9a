//! Signed requests that other implementations made.

/// One request of `fixtures/cases`, and the header that Node.js and Python give it.
#[derive(Clone, Copy, Debug)]
pub struct Vector {
    /// The case.
    pub id: &'static str,
    /// The key's id.
    pub key_id: &'static str,
    /// Its secret.
    pub secret: &'static str,
    /// The request's time in Unix seconds.
    pub seconds: u64,
    /// Its nonce.
    pub nonce: &'static str,
    /// The method as it is signed.
    pub method: &'static str,
    /// The host as it is signed.
    pub host: &'static str,
    /// The path with its query as it is signed.
    pub path: &'static str,
    /// The body's bytes.
    pub body: &'static [u8],
    /// The header's value.
    pub header: &'static str,
}

/// Every such request.
pub const VECTORS: &[Vector] = include!(concat!(env!("OUT_DIR"), "/vectors.rs"));
