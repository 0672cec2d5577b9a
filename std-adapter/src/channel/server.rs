//! Requests to the channel's routes, and their answers.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::Request as AxumRequest;
use axum::routing::any;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    LOCATION, REFERRER_POLICY, SEC_WEBSOCKET_ACCEPT, SET_COOKIE, UPGRADE, X_CONTENT_TYPE_OPTIONS,
};
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tracing::{info, warn};
use triwire::channel::broker;
use triwire::channel::envelope::Answer;
use triwire::channel::hello::{Entry, Session, enter};
use triwire::channel::refusal;
use triwire::channel::route::{
    Asking, CALLS_PATH, CHANNEL_PATH, Gate, MAX_ENV_KEY, PAGE_EXECUTOR, PAGE_PATH, PAIR_PATH,
    Refusal, Route, UNSENT, admit, env_key,
};
use triwire::exec::body::BodyFault;
use triwire::exec::head;
use triwire::exec::head::{Access, Header, JSON_TYPE, Peer, Why};
use triwire::exec::socket::FIRST_MESSAGE_BOUND;
use triwire::json::Text;

use super::chairs::Executor;
use super::pairing::{PairingsError, written};
use super::{Channel, Pairings, link};
use crate::outcome::owned;
use crate::server::stop::Stop;
use crate::tokio::socket::accept_key;

/// The longest body about a pairing: its name may be all escapes.
const MAX_PAIR_BODY: usize = 64 * MAX_ENV_KEY;

/// An answer, and what the connection becomes behind it.
pub(crate) struct Answered {
    pub(crate) response: Response<Bytes>,
    /// An executor enters behind the 101.
    pub(crate) entry: Option<Entry>,
}

impl From<Response<Bytes>> for Answered {
    fn from(response: Response<Bytes>) -> Self {
        Self { response, entry: None }
    }
}

impl Channel {
    /// Makes a router for a server that others run, such as `axum::serve`, at the address `local`.
    ///
    /// Connections and heads are for that server to bound. Executors' connections end by
    /// [`end_sessions`](Self::end_sessions).
    pub fn router(&self, local: SocketAddr) -> Router {
        let channel = self.clone();
        let answer = any(move |mut request: AxumRequest| {
            let channel = channel.clone();
            async move {
                let upgrade = hyper::upgrade::on(&mut request);
                let loopback = local.ip().to_canonical().is_loopback();
                let answered = channel.answer(local.port(), loopback, request).await;
                if let Some(entry) = answered.entry {
                    let shared = Arc::clone(&channel.shared);
                    tokio::spawn(async move {
                        let stop = shared.stopper.subscribe();
                        match upgrade.await {
                            Ok(io) => {
                                let io = TokioIo::new(io);
                                link::run(io, Bytes::new(), entry, shared, stop).await;
                            }
                            Err(error) => info!(%error, "the executor left before the upgrade"),
                        }
                    });
                }
                answered.response.map(AxumBody::from)
            }
        });
        Router::new()
            .route(CHANNEL_PATH, answer.clone())
            .route(CALLS_PATH, answer.clone())
            .route(PAIR_PATH, answer.clone())
            .route(PAGE_PATH, answer)
    }

    /// Runs the connection of an executor that enters, on a connection of our own accept loop.
    pub(crate) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        transport: S,
        unread: Bytes,
        entry: Entry,
        stop: Stop,
    ) {
        link::run(transport, unread, entry, self.shared, stop).await;
    }

    /// Answers a request to a server on `port`.
    pub(crate) async fn answer<B>(&self, port: u16, loopback: bool, request: Request<B>) -> Answered
    where
        B: Body<Error: Display> + Unpin,
    {
        let (parts, body) = request.into_parts();
        let keys = self.shared.keys.as_ref().map(crate::server::Keys::get);
        let session = self.shared.session.as_ref().map_or(Session::Off, |gate| gate.session());
        let gate = Gate {
            peer: Peer {
                port,
                loopback,
                hosts: &self.shared.hosts,
                access: keys.as_ref().map_or(Access::Open, |keys| Access::Keys(keys)),
            },
            session,
            host_token: self.shared.host_token.as_ref().map(|token| &token.0),
        };
        let target = parts.uri.to_string();
        let lines: Vec<Header<'_>> = (parts.headers.iter())
            .map(|(name, value)| Header { name: name.as_str(), value: value.as_bytes() })
            .collect();
        let route = admit(parts.method.as_str(), &target, lines.iter().copied(), &gate);
        let answer = match route.unwrap_or(Err(Why::UnknownRoute.into())) {
            Err(refusal) => Err(refusal),
            Ok(Route::Executor { key }) => {
                let now = self.shared.clock.now();
                let lines = lines.iter().copied();
                let entry = enter(now, lines, port, session, self.shared.bound);
                return Answered { response: switching(key), entry: Some(entry) };
            }
            Ok(Route::Calls) => self.call(body).await,
            Ok(Route::Pair) => self.pair(body, Pairing::Issue).await,
            Ok(Route::Unpair) => self.pair(body, Pairing::Revoke).await,
            Ok(Route::Bootstrap { ticket }) => self.bootstrap(ticket),
            Ok(Route::Page) => self.page(),
        };
        answer.unwrap_or_else(refuse).into()
    }

    async fn call<B>(&self, body: B) -> Result<Response<Bytes>, Refusal>
    where
        B: Body<Error: Display> + Unpin,
    {
        let chairs = &self.shared.chairs;
        let body = read(body, chairs.limits().message).await?;
        let ask = {
            let asking = Asking::parse(&body).map_err(Refusal::Call)?;
            let executor = asking.executor.map_or_else(|| PAGE_EXECUTOR.to_owned(), owned);
            let (tool, descriptor_id) = (owned(asking.tool), owned(asking.descriptor_id));
            let request = broker::Request {
                patience: asking.timeout_ms.map(Duration::from_millis),
                ..broker::Request::new(&descriptor_id, &tool, asking.args, asking.bounds_echo)
            };
            chairs.ask(&Executor::named(&executor), request)
        };
        let id = ask.call_id();
        // A caller that goes away drops this future, and with it the call.
        let outcome = ask.await;
        // rule: CHAN-64
        let call_id = Text::plain(id.as_ref().map_or(UNSENT, broker::CallId::as_str));
        let answer = Answer { call_id, outcome: outcome.as_core() };
        let mut room = vec![0; 1024];
        loop {
            match answer.write(&mut room) {
                Ok(text) => return Ok(json(Bytes::copy_from_slice(text))),
                Err(error) => room.resize(error.needed, 0),
            }
        }
    }

    async fn pair<B>(&self, body: B, what: Pairing) -> Result<Response<Bytes>, Refusal>
    where
        B: Body<Error: Display> + Unpin,
    {
        let body = read(body, MAX_PAIR_BODY).await?;
        let name = owned(env_key(&body)?);
        let (shared, env_key) = (Arc::clone(&self.shared), name.clone());
        // What was begun is finished, and its executors told, though the caller goes away.
        let changed = tokio::task::spawn_blocking(move || {
            let pairings = shared.pairings.as_ref().ok_or(PairingsError::NotPaired)?;
            let bearer = what.change(pairings, &env_key)?;
            // rule: CHAN-65
            let executor = Executor::Machine(env_key);
            shared.chairs.dismiss(&executor, refusal::Refusal::PairingRevoked);
            Ok(bearer)
        });
        let bearer = match changed.await {
            Ok(Ok(bearer)) => bearer,
            Ok(Err(PairingsError::NotPaired)) => return Err(Refusal::NotPaired),
            Ok(Err(error)) => {
                warn!(%error, "pairing");
                return Err(Refusal::PairingsUnavailable);
            }
            Err(_) => return Err(Refusal::PairingsUnavailable),
        };
        let text = written(|writer| {
            writer.begin_object();
            writer.name("ok");
            writer.boolean(true);
            writer.name("envKey");
            writer.string(name.as_str());
            if let Some(bearer) = &bearer {
                writer.name("bearer");
                writer.string(bearer.as_str());
            }
            writer.end_object();
        });
        let mut response = json(text.into());
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    fn bootstrap(&self, ticket: &str) -> Result<Response<Bytes>, Refusal> {
        let gate = self.shared.session.as_ref().ok_or(Refusal::TicketRefused)?;
        let cookie = gate.redeem(ticket).ok_or(Refusal::TicketRefused)?;
        let mut response = status(StatusCode::SEE_OTHER);
        let headers = response.headers_mut();
        headers.insert(LOCATION, HeaderValue::from_static(PAGE_PATH));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(mut cookie) = HeaderValue::try_from(cookie) {
            cookie.set_sensitive(true);
            headers.insert(SET_COOKIE, cookie);
        }
        Ok(response)
    }

    fn page(&self) -> Result<Response<Bytes>, Refusal> {
        let page = self.shared.page.clone().ok_or(Refusal::Head(Why::UnknownRoute.into()))?;
        let (html, policy) = page;
        let mut response = Response::new(html);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CONTENT_SECURITY_POLICY, policy);
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }
}

#[derive(Clone, Copy)]
enum Pairing {
    Issue,
    Revoke,
}

impl Pairing {
    fn change(
        self,
        pairings: &Pairings,
        env_key: &str,
    ) -> Result<Option<super::Secret>, PairingsError> {
        match self {
            Self::Issue => pairings.issue(env_key).map(Some),
            Self::Revoke => pairings.revoke(env_key).map(|()| None),
        }
    }
}

/// Reads a body of at most `limit` bytes, in the time that a first message has.
async fn read<B>(body: B, limit: usize) -> Result<Vec<u8>, Refusal>
where
    B: Body<Error: Display> + Unpin,
{
    let collected = timeout(FIRST_MESSAGE_BOUND, collect(body, limit)).await;
    collected.unwrap_or(Err(Why::Body(BodyFault::NoLastChunk).into()))
}

async fn collect<B>(mut body: B, limit: usize) -> Result<Vec<u8>, Refusal>
where
    B: Body<Error: Display> + Unpin,
{
    use bytes::Buf as _;
    let mut collected = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            info!(%error, "a body that could not be read");
            Refusal::from(Why::Body(BodyFault::NoLastChunk))
        })?;
        let Ok(mut data) = frame.into_data() else { continue };
        if data.remaining() > limit - collected.len() {
            return Err(head::Refusal::too_large(limit as u64).into());
        }
        while data.has_remaining() {
            let count = data.chunk().len();
            collected.extend_from_slice(data.chunk());
            data.advance(count);
        }
    }
    Ok(collected)
}

fn switching(key: &str) -> Response<Bytes> {
    let mut response = status(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::try_from(accept_key(key)) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

fn refuse(refusal: Refusal) -> Response<Bytes> {
    info!(status = refusal.status(), code = refusal.code(), "refused");
    let mut response = json(refusal.body().to_string().into());
    let code = StatusCode::from_u16(refusal.status());
    *response.status_mut() = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in refusal.headers() {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

fn json(text: Bytes) -> Response<Bytes> {
    let mut response = Response::new(text);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON_TYPE));
    response
}

fn status(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}
