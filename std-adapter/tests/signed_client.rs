//! The client of signed requests against real receivers, good and bad ones.
#![cfg(all(feature = "server", feature = "client"))]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use triwire::signed::{Key, KeyId};
use triwire_std::nonces::Memory;
use triwire_std::signed::{
    HttpError, SendError, SignError, SignatureLayer, SignedBy, SignedClient, Signer, UrlError,
};

const SECRET: &[u8] = b"a secret of at least 32 bytes, kept apart";

fn id() -> KeyId {
    KeyId::parse("shop.1").unwrap()
}

fn key() -> Key {
    Key::new(SECRET).unwrap()
}

fn client() -> SignedClient {
    SignedClient::builder(Signer::new(id(), key())).build()
}

/// A receiver that echoes what it verified, and counts the connections that it took.
async fn receiver() -> (u16, Arc<AtomicUsize>) {
    let keys = HashMap::from([(id(), key())]);
    let layer = SignatureLayer::new(keys, Memory::with_capacity(100), 4096);
    let layer = layer.host_of_request(triwire_std::signed::Scheme::Http);
    let echo = async |by: SignedBy, body: Bytes| format!("{} {}", by.key_id(), body.escape_ascii());
    let app = Router::new()
        .route("/tools", post(echo).get(echo))
        .layer(layer)
        .route("/long", get(async || vec![b' '; 5000]))
        .route("/moved", get(async || (StatusCode::FOUND, [("location", "/tools")])));
    let listener = TcpListener::bind("localhost:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            counted.fetch_add(1, Ordering::Relaxed);
            let service = hyper_util::service::TowerToHyperService::new(app.clone());
            let io = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
        }
    });
    (port, taken)
}

/// A receiver that reads a request and answers with the given bytes, then waits.
async fn raw(answer: &'static [u8], then_close: bool) -> SocketAddr {
    let listener = TcpListener::bind("localhost:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = [0; 4096];
        let _ = stream.read(&mut seen).await;
        stream.write_all(answer).await.unwrap();
        if !then_close {
            // Until the client gives up.
            while stream.read(&mut seen).await.is_ok_and(|count| count > 0) {}
        }
    });
    address
}

fn url(port: u16, path: &str) -> String {
    format!("http://localhost:{port}{path}")
}

#[tokio::test]
async fn signed_calls_share_a_connection() {
    let (port, taken) = receiver().await;
    let client = client();
    for count in 0..5 {
        let body = format!(r#"{{"query":"base {count}"}}"#);
        // The fragment is not sent, and the path is signed as it goes out.
        let to = url(port, "/a/../tools?q=a b&page=2#top");
        let answer = client.post(&to, body.clone()).await.unwrap();
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        assert_eq!(answer.body, format!("shop.1 {}", body.as_bytes().escape_ascii()));
    }
    let answer = client.get(&url(port, "/tools")).await.unwrap();
    assert_eq!((answer.status, &*answer.body), (StatusCode::OK, &b"shop.1 "[..]));
    assert_eq!(taken.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn another_key_is_a_status_and_no_error() {
    let (port, _) = receiver().await;
    let other = Key::new(b"another secret of at least 32 bytes").unwrap();
    let client = SignedClient::builder(Signer::new(id(), other)).build();
    let answer = client.post(&url(port, "/tools"), "{}").await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (StatusCode::UNAUTHORIZED, 0));
}

#[tokio::test]
async fn redirects_are_told_and_not_followed() {
    let (port, _) = receiver().await;
    let answer = client().get(&url(port, "/moved")).await.unwrap();
    assert_eq!(answer.status, StatusCode::FOUND);
}

// rule: SIGN-54
#[tokio::test]
async fn nothing_is_sent_in_the_open() {
    let (port, taken) = receiver().await;
    for plain in [
        format!("http://127.0.0.1:{port}/tools"),
        format!("http://localhost.:{port}/tools"),
        format!("ws://127.0.0.1:{port}/tools"),
        "http://shop.example/tools".to_owned(),
    ] {
        let error = client().post(&plain, "{}").await.unwrap_err();
        let SendError::Sign(SignError::Url(error)) = error else { panic!("{plain}: {error:?}") };
        assert_eq!(error, UrlError::Plain, "{plain}");
    }
    assert_eq!(taken.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_answer_is_limited_in_bytes() {
    let (port, _) = receiver().await;
    let of = |limit| SignedClient::builder(Signer::new(id(), key())).limit(limit).build();
    let answer = of(5000).get(&url(port, "/long")).await.unwrap();
    assert_eq!(answer.body.len(), 5000);
    let error = of(4999).get(&url(port, "/long")).await.unwrap_err();
    assert!(matches!(error, SendError::Http(HttpError::TooLarge { limit: 4999 })), "{error:?}");
    // Nor is what only claims to be longer waited for.
    let long = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", false).await;
    let quick = SignedClient::builder(Signer::new(id(), key())).limit(10).build();
    let asked = quick.get(&url(long.port(), "/")).await.unwrap_err();
    assert!(matches!(asked, SendError::Http(HttpError::TooLarge { limit: 10 })), "{asked:?}");
}

#[tokio::test]
async fn an_answer_is_limited_in_time() {
    for answer in [&b""[..], b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{"] {
        let silent = raw(answer, false).await;
        let client = SignedClient::builder(Signer::new(id(), key()));
        let client = client.timeout(Duration::from_millis(50)).build();
        let error = client.get(&url(silent.port(), "/")).await.unwrap_err();
        assert!(matches!(error, SendError::Http(HttpError::Late { .. })), "{error:?}");
    }
}

#[tokio::test]
async fn broken_answers_are_told_apart_from_no_connection() {
    for answer in [
        &b""[..],
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ] {
        let broken = raw(answer, true).await;
        let error = client().get(&url(broken.port(), "/")).await.unwrap_err();
        assert!(
            matches!(error, SendError::Http(HttpError::Broken { .. })),
            "{answer:?}: {error:?}"
        );
    }
    let nobody = TcpListener::bind("localhost:0").await.unwrap().local_addr().unwrap().port();
    let error = client().get(&url(nobody, "/")).await.unwrap_err();
    assert!(matches!(error, SendError::Http(HttpError::Connect { .. })), "{error:?}");
    assert!(error.to_string().contains("check the address"), "{error}");
}
