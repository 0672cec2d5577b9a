//! One receiver of signed requests for two sites: which site a request is of, its key tells, never
//! its path or body.
//!
//! ```text
//! cargo run -p triwire-examples --bin signed_sites 127.0.0.1:8080
//! curl -H "assistant-signature: $(triwire sign --key-id a.1 --key-file a.key \
//!   http://127.0.0.1:8080/tools body.json)" --data-binary @body.json http://127.0.0.1:8080/tools
//! ```
//!
//! The secrets come from the variables `SITE_A_KEY` and `SITE_B_KEY`.

use std::collections::HashMap;
use std::error::Error;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use tokio::net::TcpListener;
use triwire::signed::{Key, KeyId};
use triwire_std::nonces::Memory;
use triwire_std::signed::{Scheme, SignatureLayer, SignedBy};

/// The sites by the ids of their keys; a site may have several while one is replaced.
type Sites = HashMap<KeyId, &'static str>;

async fn tools(State(sites): State<Sites>, by: SignedBy, body: Bytes) -> String {
    let site = sites.get(&by.key_id()).copied().unwrap_or("nobody");
    format!("{} bytes for {site}\n", body.len())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let mut keys = HashMap::new();
    let mut sites = Sites::new();
    for (variable, id, site) in [("SITE_A_KEY", "a.1", "site a"), ("SITE_B_KEY", "b.1", "site b")] {
        let id = KeyId::parse(id)?;
        keys.insert(id, Key::new(std::env::var(variable)?.as_bytes())?);
        sites.insert(id, site);
    }
    // On one machine without TLS; a public site is served over https, which is the default.
    let signed = SignatureLayer::new(keys, Memory::with_capacity(100_000), 4096)
        .host_of_request(Scheme::Http);
    let app = Router::new().route("/tools", post(tools)).layer(signed).with_state(sites);
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
