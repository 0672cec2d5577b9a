//! The channel's server on real sockets, with executors and callers that do as a test says.
#![cfg(feature = "server")]
#![allow(missing_docs)]

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use triwire::channel::broker::Request;
use triwire::channel::envelope::{Answer, Call, Object, Outcome as CoreOutcome};
use triwire::channel::hello::HelloBound;
use triwire::exec::head::KeyDigest;
use triwire_std::Wake;
use triwire_std::channel::{
    Builder, Channel, Executor, HostToken, Limits, Outcome, Pairings, SessionGate,
};
use triwire_std::server::Keys;
use triwire_std::tokio::socket::{Ending, Message, Role, Rx, Sizes, Tx, link};

const KEY: &str = "secret";

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("in time")
}

struct Server {
    channel: Channel,
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Server {
    async fn start() -> Self {
        Self::of(Channel::builder()).await
    }

    async fn of(builder: Builder) -> Self {
        let channel = builder.keys(Keys::new([KeyDigest::of(KEY.as_bytes())])).build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = channel.router(address);
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { channel, address, serving }
    }

    fn origin(&self) -> String {
        format!("Origin: http://127.0.0.1:{}\r\n", self.address.port())
    }

    async fn upgrade(&self, headers: &str, behind: &[u8]) -> Peer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "GET /channel HTTP/1.1\r\nHost: {}\r\n{headers}Connection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.address
        );
        stream.write_all(&[head.as_bytes(), behind].concat()).await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"\r\n\r\n") {
            got.push(within(stream.read_u8()).await.unwrap());
        }
        assert!(got.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&got));
        let (rx, tx) = link(stream, Role::Client, &[], Sizes::default());
        Peer { rx, tx }
    }

    /// A page that has its chair.
    async fn page(&self) -> Peer {
        let before = self.channel.chairs().seated().len();
        let peer = self.upgrade(&self.origin(), b"").await;
        self.until(|chairs| chairs.seated().len() > before).await;
        peer
    }

    /// An environment that has its chair.
    async fn machine(&self, name: &str, bearer: &str) -> Peer {
        let mut peer = self.upgrade("", b"").await;
        peer.say(&hello(bearer)).await;
        let name = Executor::Machine(name.into());
        self.until(|chairs| chairs.seated().contains(&name)).await;
        peer
    }

    async fn until(&self, what: impl Fn(&triwire_std::channel::Chairs) -> bool) {
        within(async {
            while !what(self.channel.chairs()) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Sends a request whole, and gives the status, the head and the body.
    async fn request(&self, method: &str, target: &str, headers: &str, body: &str) -> Reply {
        let host = format!("Host: {}\r\n", self.address);
        self.request_to(&host, method, target, headers, body).await
    }

    async fn request_to(
        &self,
        host: &str,
        method: &str,
        target: &str,
        headers: &str,
        body: &str,
    ) -> Reply {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "{method} {target} HTTP/1.1\r\n{host}Connection: close\r\n{headers}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut got = String::new();
        within(stream.read_to_string(&mut got)).await.unwrap();
        let (head, body) = got.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    async fn post(&self, headers: &str, body: &str) -> Reply {
        let headers = format!("{headers}Content-Type: application/json\r\n");
        self.request("POST", "/channel/calls", &headers, body).await
    }
}

struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        body["code"].as_str().unwrap_or_default().to_owned()
    }

    fn member(&self, name: &str) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        body[name].as_str().unwrap_or_default().to_owned()
    }
}

/// An executor's end.
struct Peer {
    rx: Rx<TcpStream>,
    tx: Tx<TcpStream>,
}

impl Peer {
    async fn say(&mut self, text: &str) {
        self.tx.send(Message::Text(text.into())).unwrap();
        within(self.tx.flush()).await.unwrap();
    }

    /// The next text message; `None` at the end.
    async fn hear(&mut self) -> Option<String> {
        loop {
            if let Some(message) = self.rx.next() {
                return Some(String::from_utf8(message.as_bytes().to_vec()).unwrap());
            }
            if within(self.rx.wait(None)).await.unwrap() == Wake::End {
                return None;
            }
        }
    }

    async fn call_id(&mut self) -> String {
        let call = self.hear().await.unwrap();
        Call::parse(call.as_bytes(), 64).unwrap().call_id.as_str().unwrap().to_owned()
    }

    async fn answer(&mut self, call_id: &str, observed: &str) {
        self.say(&answer(call_id, observed)).await;
    }

    /// What a connection that is not wanted hears: the word, and the close.
    async fn refused(&mut self) -> String {
        // rule: CHAN-49
        let told: serde_json::Value =
            serde_json::from_str(&self.hear().await.expect("a word")).unwrap();
        assert_eq!(told["type"], "refused");
        assert!(!told["why"].as_str().unwrap().is_empty());
        let word = told["refused"].as_str().unwrap().to_owned();
        assert_eq!(self.hear().await, None);
        let closed = Ending::Closed { code: Some(1008), reason: word.clone() };
        assert_eq!(self.rx.ending(), Some(&closed));
        word
    }
}

fn hello(bearer: &str) -> String {
    format!(r#"{{"type":"hello","role":"environment","bearer":"{bearer}"}}"#)
}

fn answer(call_id: &str, observed: &str) -> String {
    let outcome = CoreOutcome::Observed(Object::parse(observed).unwrap());
    let mut room = [0; 1024];
    let text = Answer { call_id: call_id.into(), outcome }.write(&mut room).unwrap();
    String::from_utf8(text.to_vec()).unwrap()
}

fn request() -> Request<'static> {
    Request::new("notes", "read", Object::EMPTY, Object::EMPTY)
}

fn word(outcome: Outcome) -> String {
    match outcome {
        Outcome::Observed(observed) => observed.as_str().to_owned(),
        Outcome::Refused { refused, .. } => refused,
    }
}

fn pairings(folder: &tempfile::TempDir) -> Pairings {
    Pairings::new(folder.path().join(".pairings.json"))
}

#[tokio::test]
async fn a_call_is_answered_and_one_to_an_empty_chair_refused() {
    // rule: CHAN-20
    let server = Server::start().await;
    let chairs = server.channel.chairs().clone();
    assert_eq!(word(chairs.ask(&Executor::Page, request()).await), "no-page");
    let nobody = Executor::Machine("nobody".into());
    assert_eq!(word(chairs.ask(&nobody, request()).await), "machine-unreachable");

    let mut page = server.page().await;
    let ask = chairs.ask(&Executor::Page, request());
    let id = page.call_id().await;
    assert_eq!(ask.call_id().unwrap().as_str(), id);
    page.answer("rt_other", "{}").await; // rule: CHAN-25
    page.say(r#"{"type":"task"}"#).await;
    page.answer(&id, r#"{"lines":3}"#).await;
    assert_eq!(word(within(ask).await), r#"{"lines":3}"#);
    page.answer(&id, r#"{"lines":4}"#).await;
    server.until(|chairs| chairs.ignored(&Executor::Page) == 3).await;
    assert_eq!(chairs.in_flight(&Executor::Page), 0);
}

#[tokio::test]
async fn a_server_of_sandboxes_serves_a_channel_too() {
    let channel = Channel::builder().keys(Keys::new([KeyDigest::of(KEY.as_bytes())])).build();
    let exec = triwire_std::server::Server::builder().channel(channel.clone()).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served =
        tokio::spawn(async move { exec.serve(listener, async { drop(stopped.await) }).await });
    let server = Server { channel, address, serving: tokio::spawn(async {}) };
    assert_eq!(server.request("GET", "/healthz", "", "").await.status, 200);
    assert_eq!(server.request("POST", "/api/pair", "", "").await.code(), "host-token-required");
    let mut page = server.page().await;
    let call = r#"{"tool":"read","descriptorId":"notes","boundsEcho":{}}"#;
    let origin = server.origin();
    let (reply, ()) = tokio::join!(server.post(&origin, call), async {
        let id = page.call_id().await;
        page.answer(&id, r#"{"n":1}"#).await;
    });
    assert!(reply.body.ends_with(r#""ok":true,"observed":{"n":1}}"#), "{}", reply.body);
    let ask = server.channel.chairs().ask(&Executor::Page, request());
    page.call_id().await;
    drop(stop);
    assert_eq!(page.hear().await, None);
    assert!(matches!(page.rx.ending(), Some(Ending::Closed { code: Some(1001), .. })));
    assert_eq!(word(within(ask).await), "page-closed");
    drop(page);
    within(served).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_link_that_drops_settles_its_calls_by_name() {
    // rule: CHAN-24
    let folder = tempfile::tempdir().unwrap();
    let pairings = pairings(&folder);
    let bearer = pairings.issue("board").unwrap();
    let server = Server::of(Channel::builder().pairings(pairings)).await;
    let chairs = server.channel.chairs();
    let board = Executor::Machine("board".into());
    let (mut page, machine) = (server.page().await, server.machine("board", bearer.as_str()).await);
    let asks = [Executor::Page, board].map(|executor| chairs.ask(&executor, request()));
    page.call_id().await;
    drop((page, machine));
    let [of_page, of_board] = asks;
    assert_eq!(word(within(of_page).await), "page-closed");
    assert_eq!(word(within(of_board).await), "machine-closed");
    server.until(|chairs| chairs.seated().is_empty()).await;
}

#[tokio::test]
async fn a_later_executor_replaces_the_one_before() {
    // rule: CHAN-58, CHAN-23
    let server = Server::start().await;
    let chairs = server.channel.chairs();
    let mut first = server.page().await;
    let ask = chairs.ask(&Executor::Page, request());
    let old = first.call_id().await;
    let mut second = server.upgrade(&server.origin(), b"").await;
    assert_eq!(first.refused().await, "replaced");
    assert_eq!(word(within(ask).await), "page-closed");
    // Its answer over the new link is nobody's.
    second.answer(&old, "{}").await;
    let ask = chairs.ask(&Executor::Page, request());
    let id = second.call_id().await;
    second.answer(&id, r#"{"a":1}"#).await;
    assert_eq!(word(within(ask).await), r#"{"a":1}"#);
    assert_eq!(chairs.ignored(&Executor::Page), 1);
}

#[tokio::test]
async fn a_call_out_of_time_is_refused_and_its_answer_ignored() {
    // rule: CHAN-22, CHAN-25
    let server = Server::start().await;
    let chairs = server.channel.chairs();
    let mut page = server.page().await;
    let patience = Some(Duration::from_millis(20));
    let ask = chairs.ask(&Executor::Page, Request { patience, ..request() });
    let late = page.call_id().await;
    assert_eq!(word(within(ask).await), "page-timeout");
    page.answer(&late, "{}").await;
    server.until(|chairs| chairs.ignored(&Executor::Page) == 1).await;
}

#[tokio::test]
async fn a_thousand_tasks_ask_at_once() {
    let limits = Limits { patience: Duration::from_secs(60), ..Limits::default() };
    let server = Server::of(Channel::builder().limits(limits)).await;
    let mut page = server.page().await;
    let mut asks = JoinSet::new();
    for number in 0..1000 {
        let chairs = server.channel.chairs().clone();
        asks.spawn(async move {
            let args = format!(r#"{{"number":{number}}}"#);
            let args = Object::parse(&args).unwrap();
            let ask = chairs.ask(&Executor::Page, Request { args, ..request() });
            assert_eq!(word(ask.await), args.as_str());
        });
    }
    let mut calls = Vec::new();
    for _ in 0..1000 {
        calls.push(page.hear().await.unwrap());
    }
    // In another order than they came.
    for call in calls.iter().rev() {
        let call = Call::parse(call.as_bytes(), 64).unwrap();
        page.answer(call.call_id.as_str().unwrap(), call.args.as_str()).await;
    }
    while let Some(asked) = within(asks.join_next()).await {
        asked.unwrap();
    }
    assert_eq!(server.channel.chairs().in_flight(&Executor::Page), 0);
}

#[tokio::test]
async fn full_is_an_answer_and_a_dropped_ask_frees_its_slot() {
    // rule: CHAN-21, CHAN-28
    let limits = Limits { calls: 2, ..Limits::default() };
    let server = Server::of(Channel::builder().limits(limits)).await;
    let chairs = server.channel.chairs();
    let mut page = server.page().await;
    let first = chairs.ask(&Executor::Page, request());
    let second = chairs.ask(&Executor::Page, request());
    assert_eq!(word(chairs.ask(&Executor::Page, request()).await), "too-many-calls");
    drop(first);
    assert_eq!(chairs.in_flight(&Executor::Page), 1);
    let third = chairs.ask(&Executor::Page, request());
    let ids = [second.call_id().unwrap(), third.call_id().unwrap()];
    // The first was given up, perhaps before it was sent.
    let mut heard = page.call_id().await;
    if !ids.iter().any(|id| id.as_str() == heard) {
        page.answer(&heard, "{}").await;
        heard = page.call_id().await;
    }
    assert_eq!(heard, ids[0].as_str());
    page.answer(ids[1].as_str(), r#"{"third":1}"#).await;
    assert_eq!(word(within(third).await), r#"{"third":1}"#);
}

#[tokio::test]
async fn a_peer_that_stops_reading_costs_bounded_memory() {
    // rule: CHAN-59
    let limits = Limits {
        calls: 10_000,
        outbox: 4096,
        message: 64 * 1024,
        patience: Duration::from_secs(60),
    };
    let server = Server::of(Channel::builder().limits(limits)).await;
    let chairs = server.channel.chairs();
    let page = server.page().await;
    let args = format!(r#"{{"text":"{}"}}"#, "a".repeat(60_000));
    let args = Object::parse(&args).unwrap();
    let mut asks = Vec::new();
    loop {
        let mut ask = chairs.ask(&Executor::Page, Request { args, ..request() });
        if ask.call_id().is_some() {
            asks.push(ask);
            tokio::task::yield_now().await;
            assert!(asks.len() < 5000);
            continue;
        }
        assert_eq!(word((&mut ask).await), "too-many-calls");
        break;
    }
    drop(page);
    for ask in asks {
        assert_eq!(word(within(ask).await), "page-closed");
    }
}

#[tokio::test]
async fn what_was_given_up_before_it_was_sent_is_not_sent() {
    // rule: CHAN-60, CHAN-61
    let limits = Limits { message: 1000, ..Limits::default() };
    let chairs = triwire_std::channel::Chairs::new(limits);
    let mut seat = chairs.sit(Executor::Page).unwrap();
    drop(chairs.ask(&Executor::Page, request()));
    let patience = Some(Duration::ZERO);
    let over = chairs.ask(&Executor::Page, Request { patience, ..request() });
    assert_eq!(seat.next(), None);
    assert_eq!(word(over.await), "page-timeout");
    let args = format!(r#"{{"text":"{}"}}"#, "a".repeat(1000));
    let args = Object::parse(&args).unwrap();
    let ask = chairs.ask(&Executor::Page, Request { args, ..request() });
    assert_eq!(word(ask.await), "malformed-call");
    assert_eq!(seat.next(), None);
}

#[tokio::test]
async fn who_is_not_a_local_page_has_to_say_hello() {
    // rule: CHAN-41, CHAN-42, CHAN-44, CHAN-45, CHAN-47, CHAN-48
    let folder = tempfile::tempdir().unwrap();
    let pairings = pairings(&folder);
    let bearer = pairings.issue("board").unwrap();
    let bearer = bearer.as_str();
    let bound = HelloBound::from_millis(100).unwrap();
    let hasty = Server::of(Channel::builder().hello_bound(bound)).await;
    let server = Server::of(Channel::builder().pairings(pairings)).await;
    let port = hasty.address.port();

    for origin in ["http://127.0.0.1.evil.example:PORT", "http://evil.example", "null"] {
        let origin = format!("Origin: {}\r\n", origin.replace("PORT", &port.to_string()));
        let mut peer = hasty.upgrade(&origin, b"").await;
        assert_eq!(peer.refused().await, "executor-unauthenticated", "{origin}");
    }
    let (shorter, longer) = (&bearer[..bearer.len() - 1], format!("{bearer}0"));
    let spaced = format!(" {bearer}");
    for (first, expected) in [
        (hello("vbx_0"), "bearer-refused"),
        (hello(shorter), "bearer-refused"),
        (hello(&longer), "bearer-refused"),
        (hello(&spaced), "bearer-refused"),
        (hello(""), "bearer-refused"),
        (answer("rt_1", "{}"), "executor-unauthenticated"),
        (hello(bearer).replace("environment", "page"), "executor-unauthenticated"),
        ("[".repeat(100_000), "executor-unauthenticated"),
    ] {
        let mut peer = server.upgrade("", b"").await;
        peer.say(&first).await;
        assert_eq!(peer.refused().await, expected, "{first:.60}");
    }
    // Begun, and never whole.
    let mut peer = hasty.upgrade("", b"").await;
    peer.tx.with_transport(|stream| stream.try_write(&[0x81, 0xbf, 0, 0, 0, 0, b'{'])).unwrap();
    assert_eq!(peer.refused().await, "executor-unauthenticated");
    assert!(server.channel.chairs().seated().is_empty());
    assert!(hasty.channel.chairs().seated().is_empty());
}

#[tokio::test]
async fn a_hello_in_the_same_read_as_the_upgrade_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let pairings = pairings(&folder);
    let bearer = pairings.issue("board").unwrap();
    let server = Server::of(Channel::builder().pairings(pairings)).await;
    let hello = hello(bearer.as_str());
    let mut frame = vec![0x81, 0x80 | u8::try_from(hello.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(hello.as_bytes());
    let mut peer = server.upgrade("", &frame).await;
    let board = Executor::Machine("board".into());
    server.until(|chairs| chairs.seated().contains(&board)).await;
    let ask = server.channel.chairs().ask(&board, request());
    let id = peer.call_id().await;
    peer.answer(&id, r#"{"a":1}"#).await;
    assert_eq!(word(within(ask).await), r#"{"a":1}"#);
}

#[tokio::test]
async fn a_session_is_redeemed_once_and_asked_of_pages() {
    // rule: CHAN-43, CHAN-55
    let (gate, ticket) = SessionGate::new().unwrap();
    let bound = HelloBound::from_millis(100).unwrap();
    let page = "<!doctype html>";
    let builder = Channel::builder().session(gate).hello_bound(bound);
    let builder = builder.page(page, "default-src 'none'");
    let server = Server::of(builder).await;
    let reply = server.request("GET", "/", "", "").await;
    assert_eq!((reply.status, reply.code().as_str()), (401, "loopback-unauthenticated"));
    let wrong = server.request("GET", "/?bootstrap=00", "", "").await;
    assert_eq!((wrong.status, wrong.code().as_str()), (401, "bootstrap-ticket-refused"));
    let target = format!("/?bootstrap={ticket}");
    let redeemed = server.request("GET", &target, "", "").await;
    assert_eq!(redeemed.status, 303);
    let cookie = redeemed.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let (pair, rest) = cookie.split_once(';').unwrap();
    assert_eq!(rest, " HttpOnly; SameSite=Strict; Path=/");
    assert!(pair.starts_with("vb_session=") && pair.len() == 11 + 64);
    assert_eq!(server.request("GET", &target, "", "").await.status, 401);

    let cookie = format!("Cookie: {pair}\r\n");
    let shown = server.request("GET", "/", &cookie, "").await;
    assert_eq!(shown.body, page);
    // rule: CHAN-92
    for line in ["content-security-policy: default-src 'none'", "cache-control: no-store"] {
        assert!(shown.head.lines().any(|own| own == line), "{}", shown.head);
    }
    let mut without = server.upgrade(&server.origin(), b"").await;
    assert_eq!(without.refused().await, "executor-unauthenticated");
    let call = r#"{"tool":"read","descriptorId":"notes","boundsEcho":{}}"#;
    let reply = server.post(&server.origin(), call).await;
    assert_eq!((reply.status, reply.code().as_str()), (401, "loopback-unauthenticated"));
    let both = format!("{}{cookie}", server.origin());
    let _page = server.upgrade(&both, b"").await;
    server.until(|chairs| chairs.seated() == [Executor::Page]).await;
}

#[tokio::test]
async fn calls_are_posted_by_who_may() {
    // rule: CHAN-52, CHAN-53, CHAN-56, CHAN-64
    let server = Server::start().await;
    let key = format!("Authorization: Bearer {KEY}\r\n");
    let call = r#"{"tool":"read","descriptorId":"notes","boundsEcho":{},"timeoutMs":30000}"#;
    let refused = server.post(&key, call).await;
    assert_eq!(refused.status, 200);
    let answer = Answer::parse(refused.body.as_bytes()).unwrap();
    assert_eq!(answer.call_id, "rt_unsent");
    assert_eq!(refused.member("refused"), "no-page");

    let mut page = server.page().await;
    for headers in [key.clone(), server.origin()] {
        let (reply, id) = tokio::join!(server.post(&headers, call), async {
            let id = page.call_id().await;
            page.answer(&id, r#"{"n":1.50}"#).await;
            id
        });
        assert_eq!(reply.status, 200);
        let answer = Answer::parse(reply.body.as_bytes()).unwrap();
        assert_eq!(answer.call_id, &*id);
        assert_eq!(answer.outcome, CoreOutcome::Observed(Object::parse(r#"{"n":1.50}"#).unwrap()));
    }

    assert_eq!(server.post("", call).await.status, 401);
    assert_eq!(server.post("Authorization: Bearer other\r\n", call).await.status, 401);
    let foreign = server.post("Origin: http://evil.example\r\n", call).await;
    assert_eq!((foreign.status, foreign.code().as_str()), (403, "origin-refused"));
    let posted = server.request("POST", "/channel/calls", &server.origin(), call).await;
    assert_eq!(posted.status, 415);
    let plain = format!("{}Content-Type: text/plain\r\n", server.origin());
    assert_eq!(server.request("POST", "/channel/calls", &plain, call).await.status, 415);
    assert_eq!(server.request("GET", "/channel/calls", &key, "").await.status, 405);
    let rebound = "Host: evil.example\r\n";
    for (method, target) in
        [("GET", "/channel"), ("POST", "/channel/calls"), ("POST", "/api/pair"), ("GET", "/")]
    {
        let reply = server.request_to(rebound, method, target, &key, "").await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "host-refused"), "{target}");
    }
    assert_eq!(server.request("GET", "/channel", "", "").await.status, 426);
    for (body, word) in [
        ("{", "malformed-call"),
        (r#"{"tool":"a","tool":"b"}"#, "malformed-call"),
        (r#"{"tool":"a","grant":"everything"}"#, "unknown-field"),
        (r#"{"tool":"a","boundsEcho":{}}"#, "unattributed-call"),
        (r#"{"tool":"a","descriptorId":"b","boundsEcho":[]}"#, "unattributed-call"),
        (r#"{"tool":"a","descriptorId":"b","boundsEcho":{},"args":[]}"#, "malformed-call"),
        (r#"{"tool":"a","descriptorId":"b","boundsEcho":{},"timeoutMs":0}"#, "malformed-call"),
    ] {
        let reply = server.post(&key, body).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, word), "{body}");
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_gives_its_call_up() {
    // rule: CHAN-28
    let server = Server::start().await;
    let mut page = server.page().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let call = r#"{"tool":"read","descriptorId":"notes","boundsEcho":{}}"#;
    let request = format!(
        "POST /channel/calls HTTP/1.1\r\nHost: {}\r\n{}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{call}",
        server.address,
        server.origin(),
        call.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    page.call_id().await;
    assert_eq!(server.channel.chairs().in_flight(&Executor::Page), 1);
    drop(stream);
    server.until(|chairs| chairs.in_flight(&Executor::Page) == 0).await;
}

#[tokio::test]
async fn pairing_takes_the_token_and_revoking_closes_the_chair() {
    // rule: CHAN-54, CHAN-57, CHAN-65
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join(".host-token");
    let token = HostToken::from_file(&token_file).unwrap();
    HostToken::from_file(&token_file).unwrap();
    let builder = Channel::builder().pairings(pairings(&folder)).host_token(token);
    let server = Server::of(builder).await;
    let json = "Content-Type: application/json\r\n";
    let token = std::fs::read_to_string(&token_file).unwrap();
    let token = format!("{json}x-voicebox-host-token: {token}\r\n");
    let body = r#"{"envKey":"__proto__"}"#;

    for headers in [json.to_owned(), format!("{json}x-voicebox-host-token: 00\r\n")] {
        for method in ["POST", "DELETE"] {
            let reply = server.request(method, "/api/pair", &headers, body).await;
            assert_eq!((reply.status, reply.code().as_str()), (403, "host-token-required"));
        }
    }
    for wrong in ["{}", "[]", r#"{"envKey":""}"#, r#"{"envKey":"page"}"#, r#"{"envKey":1}"#] {
        let reply = server.request("POST", "/api/pair", &token, wrong).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "bad-request"), "{wrong}");
    }
    let reply = server.request("DELETE", "/api/pair", &token, body).await;
    assert_eq!((reply.status, reply.code().as_str()), (404, "environment-not-paired"));

    let first = server.request("POST", "/api/pair", &token, body).await;
    let bearer = first.member("bearer");
    assert_eq!((first.status, first.member("envKey").as_str()), (200, "__proto__"));
    assert!(bearer.starts_with("vbx_") && bearer.len() == 4 + 48);
    let mut machine = server.machine("__proto__", &bearer).await;
    let executor = Executor::Machine("__proto__".into());
    let ask = server.channel.chairs().ask(&executor, request());
    assert_eq!(server.request("DELETE", "/api/pair", &token, body).await.status, 200);
    machine.hear().await.unwrap();
    assert_eq!(machine.refused().await, "pairing-revoked");
    assert_eq!(word(within(ask).await), "machine-closed");
    let mut again = server.upgrade("", b"").await;
    again.say(&hello(&bearer)).await;
    assert_eq!(again.refused().await, "pairing-revoked");

    // Paired anew, the bearer from before is none.
    let second = server.request("POST", "/api/pair", &token, body).await.member("bearer");
    let mut machine = server.machine("__proto__", &second).await;
    server.request("POST", "/api/pair", &token, body).await;
    assert_eq!(machine.refused().await, "pairing-revoked");
    let mut again = server.upgrade("", b"").await;
    again.say(&hello(&second)).await;
    assert_eq!(again.refused().await, "bearer-refused");
}

#[tokio::test]
async fn a_pairings_file_is_kept_whole() {
    // rule: CHAN-62, CHAN-63
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".pairings.json");
    let server = Server::of(Channel::builder().pairings(Pairings::new(&path))).await;
    let theirs = r#"{"laptop":{"acceptBearer":"vbx_old","label":{"x":[1.0,"\ud800"]}}}"#;
    std::fs::write(&path, theirs).unwrap();
    let _laptop = server.machine("laptop", "vbx_old").await;
    let ours = Pairings::new(&path);
    ours.issue("board").unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("vbx_") && text.contains(r#""label":{"x":[1.0,"\ud800"]}"#), "{text}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let _laptop = server.machine("laptop", "vbx_old").await;

    for broken in ["", "[]", r#"{"a":1}"#, r#"{"a":{},"a":{}}"#, r#"{"a":{"revoked":"no"}}"#] {
        std::fs::write(&path, broken).unwrap();
        let mut peer = server.upgrade("", b"").await;
        peer.say(&hello("vbx_old")).await;
        assert_eq!(peer.refused().await, "pairing-list-unreadable", "{broken}");
        assert!(ours.issue("board").is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
    }
}
