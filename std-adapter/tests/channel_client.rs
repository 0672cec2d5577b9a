//! An executor that connects out, and callers over HTTP, against the server on real sockets.
#![cfg(all(feature = "server", feature = "client"))]
#![allow(missing_docs)]

use std::future::{Future, pending, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use triwire::channel::broker::Request;
use triwire::channel::envelope::Object;
use triwire::channel::refusal::Refusal;
use triwire::exec::head::KeyDigest;
use triwire_std::channel::{Channel, Executor as Chair, HostToken, Pairings};
use triwire_std::client::{
    Caller, CallerError, Client, ClientError, Executor, ExecutorError, HttpError, Observed,
    Outcome, Ran, Secret, ToolCall,
};
use triwire_std::server::Keys;

const KEY: &str = "a key of the gateway";
const BOUNDS: &str = r#"{"maxRequests":1000}"#;

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("in time")
}

struct Server {
    channel: Channel,
    address: SocketAddr,
    host_token: Secret,
    serving: JoinHandle<()>,
    folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Server {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, folder).await
    }

    async fn on(listener: TcpListener, folder: tempfile::TempDir) -> Self {
        let token = HostToken::from_file(folder.path().join(".host-token")).unwrap();
        let host_token = Secret::from_file(folder.path().join(".host-token")).unwrap();
        let channel = Channel::builder()
            .keys(Keys::new([KeyDigest::of(KEY.as_bytes())]))
            .pairings(Pairings::new(folder.path().join(".pairings.json")))
            .host_token(token)
            .build();
        let address = listener.local_addr().unwrap();
        let router = channel.router(address);
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { channel, address, host_token, serving, folder }
    }

    fn client(&self) -> Client {
        Client::builder(format!("http://{}", self.address)).key(KEY).build().unwrap()
    }

    fn caller(&self) -> Caller {
        self.client().caller()
    }

    async fn pair(&self, name: &str) -> Secret {
        self.caller().pair(name, &self.host_token).await.unwrap()
    }

    async fn until(&self, what: impl Fn(&triwire_std::channel::Chairs) -> bool) {
        within(async {
            while !what(self.channel.chairs()) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Runs an executor in the background until it has its chair.
    async fn seat(&self, name: &str, executor: Executor) -> JoinHandle<Result<(), ExecutorError>> {
        let running = tokio::spawn(async move { executor.run(pending()).await });
        self.until(|chairs| chairs.seated().contains(&machine(name))).await;
        running
    }
}

fn machine(name: &str) -> Chair {
    Chair::Machine(name.into())
}

fn request(tool: &str) -> Request<'_> {
    Request::new("desk", tool, Object::EMPTY, Object::parse(BOUNDS).unwrap())
}

fn object(text: &str) -> Ran {
    Ok(Outcome::Observed(Observed::parse(text).unwrap()))
}

fn refused(outcome: Outcome) -> String {
    match outcome {
        Outcome::Refused { refused, .. } => refused,
        Outcome::Observed(observed) => panic!("observed {}", observed.as_str()),
    }
}

/// Tools of every temper.
async fn tools(call: ToolCall) -> Ran {
    match call.tool.as_str() {
        "echo" => object(&call.args),
        "fail" => Err("out of paper".into()),
        "panic" => panic!("at the disco"),
        "refuse" => Ok(Outcome::Refused { refused: "over-budget".into(), why: "too dear".into() }),
        "long" => object(&format!(r#"{{"text":"{}"}}"#, "x".repeat(3000))),
        "never" => pending().await,
        other => panic!("{other} is not admitted"),
    }
}

fn executor(server: &Server, bearer: &Secret) -> Executor {
    let executor = server.client().executor(bearer.clone(), tools);
    ["echo", "fail", "panic", "refuse", "long", "never"]
        .into_iter()
        .fold(executor, |executor, tool| executor.admit("desk", tool, BOUNDS).unwrap())
}

// rule: CHAN-75
#[tokio::test]
async fn every_call_comes_back_and_tools_are_contained() {
    let server = Server::start().await;
    let bearer = server.pair("desk-1").await;
    let running = server.seat("desk-1", executor(&server, &bearer).message_limit(2000)).await;
    let caller = server.caller();
    let ask = |tool| {
        let caller = caller.clone();
        async move { within(caller.ask("desk-1", request(tool))).await.unwrap() }
    };
    let args = Object::parse(r#"{"a":[1,"\ud800"]}"#).unwrap();
    let echo = Request { args, ..request("echo") };
    let Outcome::Observed(observed) = caller.ask("desk-1", echo).await.unwrap() else { panic!() };
    assert_eq!(observed.as_str(), args.as_str());
    for (tool, word) in [("fail", "exec-threw"), ("panic", "exec-threw"), ("long", "exec-threw")] {
        assert_eq!(refused(ask(tool).await), word, "{tool}");
    }
    let Outcome::Refused { refused: rule, why } = ask("refuse").await else { panic!() };
    assert_eq!((rule.as_str(), why.as_str()), ("over-budget", "too dear"));
    let Outcome::Refused { why, .. } = ask("fail").await else { panic!() };
    assert_eq!(why, "out of paper");
    let Outcome::Refused { why, .. } = ask("long").await else { panic!() };
    assert!(why.contains("2000 bytes"), "{why}");
    assert_eq!(refused(ask("other").await), "unattributed-call");
    let changed = Request { bounds_echo: Object::EMPTY, ..request("echo") };
    assert_eq!(refused(caller.ask("desk-1", changed).await.unwrap()), "bounds-mismatch");
    let brief = Request { patience: Some(Duration::from_millis(20)), ..request("never") };
    assert_eq!(refused(caller.ask("desk-1", brief).await.unwrap()), "machine-timeout");
    assert_eq!(
        refused(caller.ask("desk-2", request("echo")).await.unwrap()),
        "machine-unreachable"
    );
    assert!(!running.is_finished());
    running.abort();
}

// rule: CHAN-75
#[tokio::test]
async fn tools_run_side_by_side_up_to_the_limit() {
    let server = Server::start().await;
    let bearer = server.pair("desk-1").await;
    let gate = Arc::new(Semaphore::new(0));
    let (entered, begun) = (Arc::clone(&gate), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&begun);
    let executor = server
        .client()
        .executor(bearer, move |_| {
            let (gate, count) = (Arc::clone(&entered), Arc::clone(&count));
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                let _pass = gate.acquire().await;
                object("{}")
            }
        })
        .admit("desk", "wait", BOUNDS)
        .unwrap()
        .concurrency(3);
    let running = server.seat("desk-1", executor).await;
    let calls: Vec<_> =
        (0..3).map(|_| server.channel.chairs().ask(&machine("desk-1"), request("wait"))).collect();
    within(async {
        while begun.load(Ordering::SeqCst) < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let fourth = server.channel.chairs().ask(&machine("desk-1"), request("wait"));
    assert_eq!(refused(within(fourth).await), "too-many-calls");
    gate.add_permits(1);
    for call in calls {
        assert!(matches!(within(call).await, Outcome::Observed(_)));
    }
    running.abort();
}

// rule: CHAN-76
#[tokio::test]
async fn budgets_outlive_a_connection_and_dropped_tools_do_not() {
    let server = Server::start().await;
    let bearer = server.pair("desk-1").await;
    let dropped = Arc::new(Notify::new());
    struct Tells(Arc<Notify>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let begun = Arc::new(Notify::new());
    let (tell, begins) = (Arc::clone(&dropped), Arc::clone(&begun));
    let executor = server
        .client()
        .executor(bearer.clone(), move |call| {
            let (tell, begins) = (Arc::clone(&tell), Arc::clone(&begins));
            async move {
                if call.tool == "never" {
                    let _tells = Tells(tell);
                    begins.notify_one();
                    pending::<()>().await;
                }
                object("{}")
            }
        })
        .admit("desk", "never", BOUNDS)
        .unwrap()
        .admit("desk", "scarce", r#"{"maxRequests":1}"#)
        .unwrap();
    let running = server.seat("desk-1", executor).await;
    let chairs = server.channel.chairs();
    let scarce = Request {
        bounds_echo: Object::parse(r#"{"maxRequests":1}"#).unwrap(),
        ..request("scarce")
    };
    assert!(matches!(within(chairs.ask(&machine("desk-1"), scarce)).await, Outcome::Observed(_)));
    let never = chairs.ask(&machine("desk-1"), request("never"));
    within(begun.notified()).await;
    // A word that is not final: the executor comes again, with what it has used.
    chairs.dismiss(&machine("desk-1"), Refusal::PairingListUnreadable);
    assert_eq!(refused(within(never).await), "machine-closed");
    within(dropped.notified()).await;
    server.until(|chairs| chairs.seated().contains(&machine("desk-1"))).await;
    let again = within(chairs.ask(&machine("desk-1"), scarce)).await;
    assert_eq!(refused(again), "budget-exhausted");
    running.abort();
}

// rule: CHAN-72
#[tokio::test]
async fn what_cannot_succeed_is_not_tried_again() {
    let server = Server::start().await;
    let word = |ended: Result<(), ExecutorError>| match ended {
        Err(ExecutorError::Refused { refused, .. }) => refused,
        other => panic!("{other:?}"),
    };
    let unknown = executor(&server, &Secret::new("vbx_unknown"));
    assert_eq!(word(within(unknown.run(pending())).await), "bearer-refused");

    let bearer = server.pair("desk-1").await;
    let first = server.seat("desk-1", executor(&server, &bearer)).await;
    let second = executor(&server, &bearer);
    let second = tokio::spawn(async move { second.run(pending()).await });
    assert_eq!(word(within(first).await.unwrap()), "replaced");

    server.caller().unpair("desk-1", &server.host_token).await.unwrap();
    assert_eq!(word(within(second).await.unwrap()), "pairing-revoked");
    let again = server.caller().unpair("no-one", &server.host_token).await.unwrap_err();
    assert!(
        matches!(&again, CallerError::Refused { status: 404, code, .. }
        if code == "environment-not-paired"),
        "{again:?}"
    );

    // Nor is a server without a channel.
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", other.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(other, axum::Router::new()).await });
    let executor = Client::builder(url).build().unwrap().executor("vbx_1", tools);
    let ended = within(executor.run(pending())).await.unwrap_err();
    let ExecutorError::Client(ClientError::Refused { status: 404, .. }) = ended else {
        panic!("{ended:?}")
    };
}

#[tokio::test]
async fn a_stop_closes_in_order_and_at_any_time() {
    let server = Server::start().await;
    let bearer = server.pair("desk-1").await;
    within(executor(&server, &bearer).run(ready(()))).await.unwrap();
    let stop = Arc::new(Notify::new());
    let (stopping, desk) = (Arc::clone(&stop), executor(&server, &bearer));
    let running = tokio::spawn(async move { desk.run(stopping.notified()).await });
    server.until(|chairs| chairs.seated().contains(&machine("desk-1"))).await;
    let never = server.channel.chairs().ask(&machine("desk-1"), request("never"));
    stop.notify_one();
    within(running).await.unwrap().unwrap();
    assert_eq!(refused(within(never).await), "machine-closed");
    assert!(server.channel.chairs().seated().is_empty());
    // While nobody listens it is stopped between two tries, or in the middle of one.
    let (stopping, desk) = (Arc::clone(&stop), executor(&server, &bearer));
    server.serving.abort();
    let running = tokio::spawn(async move { desk.run(stopping.notified()).await });
    stop.notify_one();
    within(running).await.unwrap().unwrap();
}

// rule: CHAN-70
#[tokio::test]
async fn an_executor_comes_back_to_a_server_that_restarts() {
    let mut server = Server::start().await;
    let bearer = server.pair("desk-1").await;
    let running = server.seat("desk-1", executor(&server, &bearer)).await;
    let (address, folder) =
        (server.address, std::mem::replace(&mut server.folder, tempfile::tempdir().unwrap()));
    server.channel.end_sessions();
    server.serving.abort();
    drop(server);
    let listener = within(async {
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    let server = Server::on(listener, folder).await;
    server.until(|chairs| chairs.seated().contains(&machine("desk-1"))).await;
    let outcome = within(server.caller().ask("desk-1", request("echo"))).await.unwrap();
    assert!(matches!(outcome, Outcome::Observed(_)));
    running.abort();
}

// rule: CHAN-77
#[tokio::test]
async fn a_call_that_is_given_up_frees_its_slot() {
    let server = Server::start().await;
    let bearer = server.pair("desk-1").await;
    let running = server.seat("desk-1", executor(&server, &bearer)).await;
    let (caller, chair) = (server.caller(), machine("desk-1"));
    let asked = tokio::spawn(async move { caller.ask("desk-1", request("never")).await });
    server.until(|chairs| chairs.in_flight(&chair) == 1).await;
    asked.abort();
    server.until(|chairs| chairs.in_flight(&chair) == 0).await;
    running.abort();
}

#[tokio::test]
async fn callers_hear_what_to_do() {
    let server = Server::start().await;
    let url = format!("http://{}", server.address);
    let stranger = Client::builder(&url).build().unwrap().caller();
    let error = stranger.ask("page", request("echo")).await.unwrap_err();
    assert!(error.to_string().contains("check the key file (status 401"), "{error}");
    let outcome = server.caller().ask("page", request("echo")).await.unwrap();
    assert_eq!(refused(outcome), "no-page");
    let wrong = server.caller().pair("a", &Secret::new("0".repeat(64))).await.unwrap_err();
    assert!(wrong.to_string().contains(".host-token in its state folder"), "{wrong}");
    let unclean = Client::builder(&url).key("a\nb").build().unwrap().caller();
    let error = unclean.ask("page", request("echo")).await.unwrap_err();
    assert!(matches!(error, CallerError::Secret), "{error:?}");
    let nobody = Client::builder("http://127.0.0.1:1").build().unwrap().caller();
    let error = nobody.ask("page", request("echo")).await.unwrap_err();
    assert!(matches!(error, CallerError::Http(HttpError::Connect { .. })), "{error:?}");
    let shown = format!("{:?}", (unclean, executor(&server, &Secret::new("vbx_hidden"))));
    assert!(!shown.contains("a\\nb") && !shown.contains("vbx_hidden"), "{shown}");
}
