//! A shared key is replaced without a gap: the receiver learns the new one, the signer changes to
//! it, the receiver forgets the old one. No request is refused on the way.
//!
//! ```text
//! cargo run -p triwire-examples --bin signed_rotation
//! ```

use std::error::Error;

use http::{HeaderMap, HeaderName, HeaderValue};
use triwire::signed::{Key, KeyId, SIGNATURE_HEADER, Window};
use triwire_std::entropy;
use triwire_std::nonces::Memory;
use triwire_std::signed::{KeyRing, Received, Signer, verify};

const URL: &str = "https://shop.example/assistant/tools";

/// The receiving end: its answer is the id of the key that signed, or the reason of a refusal.
async fn receive(ring: &KeyRing, nonces: &Memory, header: &str, body: &[u8]) -> String {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(header) {
        headers.insert(HeaderName::from_static(SIGNATURE_HEADER), value);
    }
    let received = Received { method: "POST", url: URL, headers: &headers, body };
    match verify(received, ring, nonces, Window::default()).await {
        Ok(Ok(accepted)) => format!("accepted from {}", accepted.key_id),
        Ok(Err(refused)) => format!("refused: {}", refused.reason.as_str()),
        Err(misuse) => format!("our own mistake: {misuse}"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (first, second) = (KeyId::parse("shop.1")?, KeyId::parse("shop.2")?);
    let (old, new) = (entropy::token()?, entropy::token()?);
    let signer =
        |id, secret: &str| Ok::<_, Box<dyn Error>>(Signer::new(id, Key::new(secret.as_bytes())?));
    let (ring, nonces, body) = (KeyRing::new(), Memory::with_capacity(1000), b"{}");
    let mut signing = signer(first, &old)?;
    ring.insert(first, Key::new(old.as_bytes())?);
    println!("before: {}", receive(&ring, &nonces, &signing.sign("POST", URL, body)?, body).await);

    ring.insert(second, Key::new(new.as_bytes())?);
    let under_way = signing.sign("POST", URL, body)?;
    signing = signer(second, &new)?;
    println!(
        "signer changed: {}",
        receive(&ring, &nonces, &signing.sign("POST", URL, body)?, body).await
    );
    println!("still under way: {}", receive(&ring, &nonces, &under_way, body).await);

    // Once nothing signed with the old key can be in its window any more.
    ring.remove(first);
    println!("after: {}", receive(&ring, &nonces, &signing.sign("POST", URL, body)?, body).await);
    let late = signer(first, &old)?.sign("POST", URL, body)?;
    println!("the old key: {}", receive(&ring, &nonces, &late, body).await);
    Ok(())
}
