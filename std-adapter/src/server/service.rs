//! One request, from its head to its answer, whoever accepted the connection.

use std::fmt::Display;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tracing::{Instrument, Span, info, info_span};
use triwire::channel::hello::Entry;
use triwire::channel::route::is_ours;
use triwire::exec::body::BodyFault;
use triwire::exec::head::{
    Access, HEALTH_BODY, Header, JSON_TYPE, Peer, Refusal, Route, STREAM_TYPE, Why, admit,
    admit_page,
};
use triwire::exec::request::{self, MAX_REQUEST_BODY};
use triwire::exec::socket::FIRST_MESSAGE_BOUND;

use super::command::Command;
use super::metrics::{Counters, End, METRICS_PATH, Page, Session, Tally, Transport};
use super::oneshot::AnswerBody;
use super::stop::Stop;
use super::transport::Socket;
use super::{Shared, transfer, websocket};
use crate::channel::Channel;
use crate::clock::Clock;
use crate::guest::{Guest, Running, Unreachable};
use crate::record::ExecRequest;
use crate::tokio::socket::accept_key;

/// What a request is answered from.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) shared: Arc<Shared>,
    pub(super) port: u16,
    pub(super) loopback: bool,
    pub(super) clock: Clock,
    pub(super) stop: Stop,
    /// The connection, when it is ours.
    pub(super) own: Option<Own>,
}

/// A connection of our own accept loop.
#[derive(Clone)]
pub(super) struct Own {
    pub(super) socket: Socket,
    pub(super) taken: Taken,
}

/// The place where a request leaves the word that its connection stops being HTTP.
#[derive(Clone, Default)]
pub(super) struct Taken(Arc<Mutex<Option<Takeover>>>);

/// What a connection becomes.
pub(super) enum Takeover {
    /// Frames both ways, at once.
    Hijack(Command),
    /// Messages both ways, behind the 101.
    Socket(Sandbox, Span),
    /// An executor's messages both ways, behind the 101.
    Executor(Channel, Entry),
}

impl Taken {
    fn set(&self, takeover: Takeover) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(takeover);
    }

    pub(super) fn take(&self) -> Option<Takeover> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes the word only when the connection need not wait for an answer.
    pub(super) fn take_hijack(&self) -> Option<Takeover> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*taken, Some(Takeover::Hijack(_))) { taken.take() } else { None }
    }
}

/// Where a session's command runs, and where the session is counted.
pub(super) struct Sandbox {
    pub(super) guest: Arc<dyn Guest>,
    pub(super) tally: Arc<Tally>,
    pub(super) counters: Arc<Counters>,
}

/// What an answer refuses its request with, for who counts it.
#[derive(Clone, Copy)]
struct Refused(u16, &'static str);

impl Service {
    /// Answers a request; for a hijack of our own connection it leaves word and never answers.
    pub(super) async fn answer<B>(self, request: Request<B>) -> Response<AnswerBody>
    where
        B: Body<Error: Display> + Unpin,
    {
        let counters = Arc::clone(&self.shared.counters);
        let response = self.judge(request).await;
        if let Some(Refused(status, code)) = response.extensions().get() {
            counters.refused(*status, code);
        }
        response
    }

    async fn judge<B>(self, mut request: Request<B>) -> Response<AnswerBody>
    where
        B: Body<Error: Display> + Unpin,
    {
        if let (Some(channel), Some(own)) = (&self.shared.channel, &self.own)
            && is_ours(request.uri().path())
        {
            let answered = channel.answer(self.port, self.loopback, request).await;
            if let Some(entry) = answered.entry {
                own.taken.set(Takeover::Executor(channel.clone(), entry));
            }
            return answered.response.map(AnswerBody::Text);
        }
        let access = self.shared.access();
        let peer = Peer {
            port: self.port,
            loopback: self.loopback,
            hosts: &self.shared.hosts,
            access: access.as_ref().map_or(Access::Open, |keys| Access::Keys(keys)),
        };
        let target = request.uri().to_string();
        if let Some(page) = &self.shared.page {
            let method = request.method().as_str();
            let lines = headers(request.headers());
            let peer = Peer { access: page.access(peer.access), ..peer };
            match admit_page(METRICS_PATH, method, &target, lines.iter().copied(), &peer) {
                Some(Ok(())) => return self.metrics(page),
                Some(Err(refusal)) => return refuse(&refusal, refusal.why),
                None => {}
            }
        }
        let guests = &self.shared.guests;
        let admitted = admit(
            request.method().as_str(),
            &target,
            headers(request.headers()).iter().copied(),
            &peer,
            |sandbox| guests.contains_key(sandbox),
        );
        let (transport, sandbox, key) = match admitted {
            Err(refusal) => return refuse(&refusal, refusal.why),
            Ok(Route::Health) => return text(StatusCode::OK, HEALTH_BODY.into()),
            Ok(Route::Push { sandbox, query }) => {
                let span = info_span!("push", sandbox);
                let files = guests.get(sandbox).and_then(|guest| guest.files());
                let (query, body) = (query.to_owned(), request.into_body());
                let pushed = transfer::push(files, &query, body, self.stop.event());
                return pushed.instrument(span).await;
            }
            Ok(Route::Pull { sandbox, query }) => {
                let span = info_span!("pull", sandbox);
                let files = guests.get(sandbox).and_then(|guest| guest.files());
                return transfer::pull(files, query).instrument(span).await;
            }
            Ok(Route::OneShot { sandbox }) => (Transport::OneShot, sandbox, None),
            Ok(Route::Hijack { sandbox }) => (Transport::Hijack, sandbox, None),
            Ok(Route::Socket { sandbox, key }) => {
                (Transport::WebSocket, sandbox, Some(accept_key(key)))
            }
        };
        let Some(guest) = guests.get(sandbox).cloned() else {
            let refusal = Refusal::unknown_sandbox();
            return refuse(&refusal, refusal.why);
        };
        let counters = &self.shared.counters;
        // rule: EXEC-77
        let span = info_span!(
            "exec",
            session = counters.number(),
            sandbox,
            transport = transport.as_str()
        );
        let tally = counters.of(sandbox, transport);
        let sandbox = Sandbox { guest, tally, counters: Arc::clone(counters) };
        let answering = async {
            match transport {
                Transport::OneShot => self.one_shot(sandbox, request.into_body()).await,
                Transport::Hijack => self.hijack(sandbox, request.into_body()).await,
                Transport::WebSocket => {
                    self.upgrade(sandbox, &mut request, key.unwrap_or_default())
                }
            }
        };
        answering.instrument(span).await
    }

    fn metrics(&self, page: &Page) -> Response<AnswerBody> {
        let text = (page.render)(&self.shared.metrics());
        answer(StatusCode::OK, page.content_type, AnswerBody::Text(text.into()))
    }

    async fn one_shot<B>(&self, sandbox: Sandbox, body: B) -> Response<AnswerBody>
    where
        B: Body<Error: Display> + Unpin,
    {
        let request = match read(body).await {
            Ok(request) => request,
            Err(refused) => return *refused,
        };
        let mut session = sandbox.tally.begin();
        let command = match self.start(&*sandbox.guest, request, &mut session).await {
            Ok(running) => Command::new(running, self.clock, Span::current(), session),
            // rule: EXEC-20
            Err(why) => Command::never_ran(why, self.clock, Span::current(), session),
        };
        let gone = self.own.as_ref().map(|own| own.socket.gone());
        let body = AnswerBody::stream(command, self.stop.event(), gone);
        answer(StatusCode::OK, STREAM_TYPE, body)
    }

    async fn hijack<B>(&self, sandbox: Sandbox, body: B) -> Response<AnswerBody>
    where
        B: Body<Error: Display> + Unpin,
    {
        let Some(own) = &self.own else {
            let refusal = Refusal::hijack_unavailable();
            return refuse(&refusal, refusal.why);
        };
        let request = match read(body).await {
            Ok(request) => request,
            Err(refused) => return *refused,
        };
        let mut session = sandbox.tally.begin();
        match self.start(&*sandbox.guest, request, &mut session).await {
            Ok(running) => {
                let command = Command::new(running, self.clock, Span::current(), session);
                own.taken.set(Takeover::Hijack(command));
                // The connection is taken from the library that waits for this answer.
                pending().await
            }
            Err(why) => refuse(&Refusal::unreachable(), why),
        }
    }

    fn upgrade<B>(
        &self,
        sandbox: Sandbox,
        request: &mut Request<B>,
        accept: String,
    ) -> Response<AnswerBody> {
        if let Some(own) = &self.own {
            own.taken.set(Takeover::Socket(sandbox, Span::current()));
        } else {
            let upgraded = hyper::upgrade::on(request);
            let (stop, clock) = (self.stop.clone(), self.clock);
            let session = async move {
                match upgraded.await {
                    Ok(io) => {
                        let io = TokioIo::new(io);
                        websocket::run(io, Bytes::new(), None, sandbox, stop, clock).await;
                    }
                    Err(error) => info!(%error, "the client left before the upgrade"),
                }
            };
            tokio::spawn(session.in_current_span());
        }
        let mut response = Response::new(AnswerBody::Text(Bytes::new()));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(http::header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(http::header::UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::try_from(accept) {
            headers.insert(http::header::SEC_WEBSOCKET_ACCEPT, accept);
        }
        response
    }

    /// Starts a command, unless the server goes down first.
    async fn start(
        &self,
        guest: &dyn Guest,
        request: ExecRequest,
        session: &mut Session,
    ) -> Result<Box<dyn Running>, Unreachable> {
        let mut stop = self.stop.event();
        tokio::select! {
            biased;
            () = &mut stop => {
                session.ends(End::Shutdown);
                Err(Unreachable { why: super::stop::SHUTTING_DOWN.to_owned() })
            }
            started = guest.start(request) => {
                if let Err(unreachable) = &started {
                    session.ends(End::Unreachable);
                    info!(%unreachable, "sandbox out of reach");
                }
                started
            }
        }
    }
}

fn headers(map: &HeaderMap) -> Vec<Header<'_>> {
    let lines = map.iter();
    lines.map(|(name, value)| Header { name: name.as_str(), value: value.as_bytes() }).collect()
}

/// Reads a body as a request, or makes the answer that refuses it.
async fn read<B>(body: B) -> Result<ExecRequest, Box<Response<AnswerBody>>>
where
    B: Body<Error: Display> + Unpin,
{
    // The same time as a request over WebSocket has.
    let collected = timeout(FIRST_MESSAGE_BOUND, collect(body)).await.unwrap_or_else(|_| {
        let bound = FIRST_MESSAGE_BOUND.as_secs();
        let why = format!("the request's body did not arrive within {bound} s; send it at once");
        Err(Box::new(refuse(&unreadable(), why)))
    })?;
    match request::ExecRequest::parse(&collected) {
        Ok(request) => Ok(ExecRequest::from(&request)),
        Err(error) => {
            let refusal = Refusal::from(error);
            Err(Box::new(refuse(&refusal, refusal.why)))
        }
    }
}

async fn collect<B>(mut body: B) -> Result<Vec<u8>, Box<Response<AnswerBody>>>
where
    B: Body<Error: Display> + Unpin,
{
    let mut collected = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| {
            let why = format!("the request's body could not be read: {error}");
            Box::new(refuse(&unreadable(), why))
        })?;
        let Ok(mut data) = frame.into_data() else { continue };
        // rule: EXEC-18
        if data.remaining() > MAX_REQUEST_BODY - collected.len() {
            let refusal = Refusal::too_large(MAX_REQUEST_BODY as u64);
            return Err(Box::new(refuse(&refusal, refusal.why)));
        }
        while data.has_remaining() {
            let chunk = data.chunk();
            collected.extend_from_slice(chunk);
            let count = chunk.len();
            data.advance(count);
        }
    }
    Ok(collected)
}

/// 400 for a body that did not come whole; what was wrong with it is the HTTP library's to say.
fn unreadable() -> Refusal {
    Why::Body(BodyFault::NoLastChunk).into()
}

pub(super) fn refuse(refusal: &Refusal, why: impl Display) -> Response<AnswerBody> {
    info!(status = refusal.status, code = refusal.code, "refused");
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    refused_with(refusal, status, refusal.body(why).to_string())
}

/// Answers a refusal with a body of its own.
pub(super) fn refused_with(
    refusal: &Refusal,
    status: StatusCode,
    body: String,
) -> Response<AnswerBody> {
    let mut response = text(status, body);
    response.extensions_mut().insert(Refused(refusal.status, refusal.code));
    for (name, value) in refusal.headers() {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

pub(super) fn text(status: StatusCode, text: String) -> Response<AnswerBody> {
    answer(status, JSON_TYPE, AnswerBody::Text(text.into()))
}

pub(super) fn answer(
    status: StatusCode,
    content_type: &'static str,
    body: AnswerBody,
) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
