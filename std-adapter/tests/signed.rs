//! Signed requests over real sockets: a receiver behind the layer, and senders of all kinds.
#![cfg(all(feature = "server", feature = "client"))]

use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use http::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use triwire::signed::{Claim, Claimed, Key, KeyId, Nonce, SIGNATURE_HEADER, Window};
use triwire::time::UnixMillis;
use triwire_std::nonces::{Memory, Nonces, Unavailable};
use triwire_std::signed::{KeyRing, Keys, LookupError, SignatureLayer, SignedBy, Signer};

const SECRET: &[u8] = b"a secret of at least 32 bytes, kept apart";
const ORIGIN: &str = "https://shop.example";
const PATH: &str = "/assistant/tools?v=1";
const LIMIT: usize = 4096;

fn id(text: &str) -> KeyId {
    KeyId::parse(text).unwrap()
}

fn key() -> Key {
    Key::new(SECRET).unwrap()
}

fn signer() -> Signer {
    Signer::new(id("shop.1"), key())
}

fn keys() -> HashMap<KeyId, Key> {
    HashMap::from([(id("shop.1"), key())])
}

fn nonces() -> Memory {
    Memory::with_capacity(1000)
}

fn layer() -> SignatureLayer<HashMap<KeyId, Key>, Memory> {
    SignatureLayer::new(keys(), nonces(), LIMIT).origin(ORIGIN).unwrap()
}

/// Answers who signed and what came.
async fn echo(by: SignedBy, body: Bytes) -> String {
    format!("{} {}", by.key_id(), body.escape_ascii())
}

fn app<K: Keys + 'static, N: Nonces + 'static>(layer: SignatureLayer<K, N>) -> Router {
    Router::new().route("/assistant/tools", post(echo).get(echo)).layer(layer)
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Sends bytes as they are and returns the status and the body of the answer.
async fn send(address: SocketAddr, wire: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(wire).await.unwrap();
    answer(stream).await
}

async fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut text = Vec::new();
    // A server that answered early may reset what it did not read.
    while let Ok(count) = stream.read_buf(&mut text).await
        && count > 0
    {}
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    (head[9..12].parse().unwrap(), body.to_owned())
}

fn wire(path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut wire = format!(
        "POST {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        wire += &format!("{name}: {value}\r\n");
    }
    format!("{wire}\r\n{body}").into_bytes()
}

fn sign(body: &str) -> String {
    signer().sign("POST", &format!("{ORIGIN}{PATH}"), body.as_bytes()).unwrap()
}

fn signed(body: &str) -> Vec<u8> {
    wire(PATH, &[(SIGNATURE_HEADER, &sign(body))], body)
}

fn refused() -> (u16, String) {
    (401, String::new())
}

#[tokio::test]
async fn a_genuine_request_reaches_the_handler_once_with_its_bytes() {
    let address = serve(app(layer())).await;
    let body = "{ \"b\": 1,  \"a\":\t\"\\u001B\", \"a\": 2 }";
    let request = signed(body);
    let accepted = (200, format!("shop.1 {}", body.as_bytes().escape_ascii()));
    assert_eq!(send(address, &request).await, accepted);
    // rule: SIGN-40
    assert_eq!(send(address, &request).await, refused());
}

#[tokio::test]
async fn every_refusal_is_the_same_401() {
    // rule: SIGN-22
    let address = serve(app(layer())).await;
    let header = sign("x");
    let good = header.as_str();
    let sig = |value: &str| vec![(SIGNATURE_HEADER.to_owned(), value.to_owned())];
    let other_key = Signer::new(id("shop.1"), Key::new(&[7; 32]).unwrap());
    let other_id = Signer::new(id("shop.2"), key());
    let url = format!("{ORIGIN}{PATH}");
    let old = signer()
        .sign_with("POST", &url, b"x", UnixMillis::new(1_000_000), Nonce::parse("n").unwrap())
        .unwrap();
    let another_host =
        signer().sign("POST", &format!("https://other.example{PATH}"), b"x").unwrap();
    let another_method = signer().sign("PUT", &url, b"x").unwrap();
    let cases = [
        vec![],
        sig(""),
        sig("v1"),
        sig(&good.replace("v1 ", "v2 ")),
        sig(&format!("{good},{good}")),
        [sig(good), sig(good)].concat(),
        sig(&old),
        sig(&other_id.sign("POST", &url, b"x").unwrap()),
        sig(&other_key.sign("POST", &url, b"x").unwrap()),
        sig(&sign("y")),
        sig(&another_host),
        sig(&another_method),
    ];
    for headers in cases {
        let headers: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(send(address, &wire(PATH, &headers, "x")).await, refused(), "{headers:?}");
    }
    // None of them used up the nonce of the good one.
    let request = wire(PATH, &[(SIGNATURE_HEADER, good)], "x");
    assert_eq!(send(address, &request).await.0, 200);
}

#[tokio::test]
async fn of_many_at_once_exactly_one_is_accepted() {
    let address = serve(app(layer())).await;
    let request = Arc::new(signed("once"));
    let tasks: Vec<_> = (0..32)
        .map(|_| {
            let request = Arc::clone(&request);
            tokio::spawn(async move { send(address, &request).await.0 })
        })
        .collect();
    let mut accepted = 0;
    for task in tasks {
        match task.await.unwrap() {
            200 => accepted += 1,
            status => assert_eq!(status, 401),
        }
    }
    assert_eq!(accepted, 1);
}

#[tokio::test]
async fn what_is_too_large_or_too_slow_has_its_own_answer() {
    // rule: SIGN-27
    let address = serve(app(layer().body_bound(Duration::from_millis(100)))).await;
    let fits = "a".repeat(LIMIT);
    assert_eq!(send(address, &signed(&fits)).await.0, 200);
    let body = "a".repeat(LIMIT + 1);
    assert_eq!(send(address, &signed(&body)).await.0, 413);
    // A length that is not declared is found out.
    let chunked = format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\
         {SIGNATURE_HEADER}: {}\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        sign(&body),
        body.len()
    );
    assert_eq!(send(address, chunked.as_bytes()).await.0, 413);
    let stalls = signed("0123456789");
    let (part, _) = stalls.split_at(stalls.len() - 3);
    assert_eq!(send(address, part).await.0, 408);
}

#[tokio::test]
async fn the_original_path_is_signed_beneath_a_nest() {
    // rule: SIGN-28
    let inner = Router::new().route("/tools", post(echo)).layer(layer());
    let address = serve(Router::new().nest("/assistant", inner)).await;
    assert_eq!(send(address, &signed("nested")).await.0, 200);
}

#[tokio::test]
async fn the_site_is_the_origin_or_what_the_request_names() {
    // rule: SIGN-28
    let by_host = SignatureLayer::new(keys(), nonces(), LIMIT);
    let address = serve(app(by_host)).await;
    let post = |host: &str, signed_for: &str| {
        let header = signer().sign("POST", &format!("{signed_for}{PATH}"), b"x").unwrap();
        let text = String::from_utf8(wire(PATH, &[(SIGNATURE_HEADER, &header)], "x")).unwrap();
        text.replace("Host: shop.example", &format!("Host: {host}"))
    };
    for (host, signed_for, status) in [
        ("shop.example", "https://Shop.Example:443", 200),
        ("SHOP.example:443", "https://shop.example", 200),
        ("shop.example:8443", "https://shop.example:8443", 200),
        ("[::1]:8443", "https://[::1]:8443", 200),
        ("shop.example", "https://shop.example:8443", 401),
        ("other.example", "https://shop.example", 401),
        ("me@shop.example", "https://shop.example", 401),
        ("", "https://shop.example", 401),
    ] {
        assert_eq!(send(address, post(host, signed_for).as_bytes()).await.0, status, "{host}");
    }
    // A fixed origin does not care what a proxy made of the host.
    let address = serve(app(layer())).await;
    assert_eq!(send(address, post("10.0.0.7:3000", ORIGIN).as_bytes()).await.0, 200);
    for wrong in ["shop.example", "https://shop.example/x", "https://me@shop.example", "ftp://a"] {
        assert!(SignatureLayer::new(keys(), nonces(), LIMIT).origin(wrong).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn the_clock_after_the_last_byte_decides() {
    // rule: SIGN-11
    static NOW: AtomicU64 = AtomicU64::new(1_800_000_000_000);
    let clock = || UnixMillis::new(NOW.load(Ordering::SeqCst));
    let address = serve(app(layer().clock(clock))).await;
    let header = signer()
        .sign_with(
            "POST",
            &format!("{ORIGIN}{PATH}"),
            b"slow",
            clock(),
            Nonce::parse("slow-1").unwrap(),
        )
        .unwrap();
    let request = wire(PATH, &[(SIGNATURE_HEADER, &header)], "slow");
    let (first, last) = request.split_at(request.len() - 1);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(first).await.unwrap();
    // Another request on another connection shows that this one's head was read before.
    assert_eq!(send(address, &wire(PATH, &[], "")).await, refused());
    NOW.fetch_add(400_000, Ordering::SeqCst);
    stream.write_all(last).await.unwrap();
    assert_eq!(answer(stream).await, refused());
}

/// Looks keys up and counts how often.
fn counting(
    count: Arc<AtomicUsize>,
) -> impl Fn(KeyId) -> std::future::Ready<Result<Option<Key>, LookupError>> + Send + Sync {
    move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Some(key())))
    }
}

#[tokio::test]
async fn no_key_is_looked_up_for_what_is_outside_the_window() {
    // rule: SIGN-9
    let count = Arc::new(AtomicUsize::new(0));
    let layer = SignatureLayer::new(counting(Arc::clone(&count)), nonces(), LIMIT);
    let layer = layer.origin(ORIGIN).unwrap().window(Window::seconds(10).unwrap());
    let address = serve(app(layer)).await;
    let url = format!("{ORIGIN}{PATH}");
    let now = triwire_std::clock::unix_now().get();
    for (at, looked_up) in [(now - 12_000, 0), (now + 13_000, 0), (now, 1)] {
        let nonce = Nonce::parse("n").unwrap();
        let header = signer().sign_with("POST", &url, b"x", UnixMillis::new(at), nonce).unwrap();
        let _ = send(address, &wire(PATH, &[(SIGNATURE_HEADER, &header)], "x")).await;
        assert_eq!(count.load(Ordering::SeqCst), looked_up);
    }
}

/// A store that is out of reach.
struct Down;

impl Nonces for Down {
    #[expect(clippy::manual_async_fn, reason = "the trait's own form")]
    fn claim<'a>(
        &'a self,
        _: Claim<'a>,
    ) -> impl Future<Output = Result<Claimed, Unavailable>> + Send + 'a {
        async { Err(Unavailable::other("the store is down")) }
    }
}

#[tokio::test]
async fn what_the_receiver_cannot_ask_is_503_and_its_own_mistake_500() {
    let down = |_| std::future::ready(Err(LookupError::unavailable("no database")));
    let address = serve(app(SignatureLayer::new(down, nonces(), LIMIT).origin(ORIGIN).unwrap()));
    assert_eq!(send(address.await, &signed("x")).await, (503, String::new()));

    let address = serve(app(SignatureLayer::new(keys(), Down, LIMIT).origin(ORIGIN).unwrap()));
    assert_eq!(send(address.await, &signed("x")).await, (503, String::new()));

    let short = async |_| -> Result<Option<Key>, LookupError> { Ok(Some(Key::new(b"short")?)) };
    let address = serve(app(SignatureLayer::new(short, nonces(), LIMIT).origin(ORIGIN).unwrap()));
    assert_eq!(send(address.await, &signed("x")).await, (500, String::new()));

    // A handler that relies on the layer is closed without it.
    let address = serve(Router::new().route("/assistant/tools", post(echo))).await;
    assert_eq!(send(address, &signed("x")).await.0, 500);
}

#[tokio::test]
async fn keys_rotate_without_a_gap() {
    let ring = KeyRing::new();
    ring.insert(id("shop.1"), key());
    let layer = SignatureLayer::new(ring.clone(), nonces(), LIMIT).origin(ORIGIN).unwrap();
    let address = serve(app(layer)).await;
    let next = Signer::new(id("shop.2"), Key::new(&[2; 32]).unwrap());
    let post = |signer: &Signer| {
        let header = signer.sign("POST", &format!("{ORIGIN}{PATH}"), b"x").unwrap();
        wire(PATH, &[(SIGNATURE_HEADER, &header)], "x")
    };
    assert_eq!(send(address, &post(&signer())).await.0, 200);
    assert_eq!(send(address, &post(&next)).await.0, 401);
    ring.insert(id("shop.2"), Key::new(&[2; 32]).unwrap());
    assert_eq!(send(address, &post(&signer())).await.0, 200);
    assert_eq!(send(address, &post(&next)).await, (200, "shop.2 x".into()));
    assert!(ring.remove(id("shop.1")));
    assert_eq!(send(address, &post(&signer())).await.0, 401);
    assert_eq!(send(address, &post(&next)).await.0, 200);
}

#[tokio::test]
async fn the_site_is_the_key_that_signed_whatever_path_and_body_say() {
    // rule: SIGN-29
    let sites = HashMap::from([
        (id("shop-a.1"), Key::new(&[1; 32]).unwrap()),
        (id("shop-b.1"), Key::new(&[2; 32]).unwrap()),
    ]);
    let layer = SignatureLayer::new(sites, nonces(), LIMIT).origin(ORIGIN).unwrap();
    let app = Router::new().route("/sites/{site}", post(echo)).layer(layer);
    let address = serve(app).await;
    let b = Signer::new(id("shop-b.1"), Key::new(&[2; 32]).unwrap());
    let header = b.sign("POST", &format!("{ORIGIN}/sites/shop-a"), b"shop-a").unwrap();
    let request = wire("/sites/shop-a", &[(SIGNATURE_HEADER, &header)], "shop-a");
    assert_eq!(send(address, &request).await, (200, "shop-b.1 shop-a".into()));
    // Nor does the secret of one sign under the id of the other.
    let forged = Signer::new(id("shop-a.1"), Key::new(&[2; 32]).unwrap());
    let header = forged.sign("POST", &format!("{ORIGIN}/sites/shop-a"), b"").unwrap();
    let request = wire("/sites/shop-a", &[(SIGNATURE_HEADER, &header)], "");
    assert_eq!(send(address, &request).await, refused());
}

#[tokio::test]
async fn whatever_sends_it_a_request_is_signed_as_it_is() -> Result<(), Box<dyn Error>> {
    let address = serve(app(layer())).await;
    let mut request = Request::post(format!("{ORIGIN}{PATH}")).body("as sent")?;
    signer().sign_request(&mut request)?;
    let first = request.headers()[SIGNATURE_HEADER].clone();
    // Once more is a new request, with one header.
    signer().sign_request(&mut request)?;
    assert_eq!(request.headers().get_all(SIGNATURE_HEADER).iter().count(), 1);
    assert_ne!(first, request.headers()[SIGNATURE_HEADER]);
    let header = request.headers()[SIGNATURE_HEADER].to_str()?;
    let wire = wire(PATH, &[(SIGNATURE_HEADER, header)], request.body());
    assert_eq!(send(address, &wire).await, (200, "shop.1 as sent".into()));
    let mut relative = Request::post("/tools").body("")?;
    assert!(signer().sign_request(&mut relative).is_err());
    Ok(())
}

#[tokio::test]
async fn a_request_without_a_body_is_signed_as_an_empty_one() {
    let address = serve(app(layer())).await;
    let header = signer().sign("get", &format!("{ORIGIN}{PATH}"), b"").unwrap();
    let request = format!(
        "GET {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{SIGNATURE_HEADER}: {header}\r\n\r\n"
    );
    assert_eq!(send(address, request.as_bytes()).await, (200, "shop.1 ".into()));
}

#[tokio::test]
async fn a_path_is_signed_as_it_is_written() {
    let anything = Router::new().fallback(get(echo).post(echo)).layer(layer());
    let address = serve(anything).await;
    for path in ["/%2f?%2F", "/%7e", "/?x=+%20", "/a?", "/", "/a//b", "/a;b?c=d&c=e"] {
        let header = signer().sign("POST", &format!("{ORIGIN}{path}"), b"").unwrap();
        let request = wire(path, &[(SIGNATURE_HEADER, &header)], "");
        assert_eq!(send(address, &request).await.0, 200, "{path}");
    }
}
