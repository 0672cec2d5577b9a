//! The channel's routes over HTTP: who may ask for what, and the bodies that ask.
//!
//! | route | for | its caller shows |
//! | --- | --- | --- |
//! | `GET /channel` | an executor, over WebSocket | nothing yet: [`hello`](super::hello) judges |
//! | `POST /channel/calls` | a call | a key, or a local `Origin` and the session where that is on |
//! | `POST`, `DELETE /api/pair` | issuing and revoking a bearer | the host token |
//! | `GET /?bootstrap=…` | a session, where sessions are on | the ticket |
//! | `GET /` | the page | the session, where sessions are on |
//!
//! All of them answer only to the server's own names, and no page of another site posts to them.
//!
//! ```
//! use triwire::channel::hello::Session;
//! use triwire::channel::route::{Gate, Route, admit};
//! use triwire::exec::head::{Access, Header, Peer};
//!
//! let peer: Peer<'_> = Peer { port: 7878, loopback: true, hosts: &[], access: Access::Keys(&[]) };
//! let gate = Gate { peer, session: Session::Off, host_token: None };
//! let headers = [
//!     Header { name: "Host", value: b"localhost:7878" },
//!     Header { name: "Origin", value: b"http://localhost:7878" },
//!     Header { name: "Content-Type", value: b"application/json" },
//! ];
//! let judge = |method, target| admit(method, target, headers.into_iter(), &gate);
//! assert_eq!(judge("POST", "/channel/calls"), Some(Ok(Route::Calls)));
//! assert_eq!(judge("POST", "/api/pair").unwrap().unwrap_err().status(), 403);
//! assert_eq!(judge("POST", "/elsewhere"), None);
//! ```

use core::fmt;

use subtle::ConstantTimeEq;

use super::envelope::Object;
use super::hello::{Session, is_local_origin};
use super::refusal;
use crate::OutTooSmall;
use crate::exec::head::{
    self, Header, JSON_TYPE, KeyDigest, Peer, Why, check_caller, host_of, is_media_type, once,
    same_origin, target_parts, upgrade_key,
};
use crate::json::{self, Reader, Seen, Text, Type, Writer};

/// Where executors connect.
pub const CHANNEL_PATH: &str = "/channel";
/// Where calls are posted.
pub const CALLS_PATH: &str = "/channel/calls";
/// Where bearers are issued and revoked.
pub const PAIR_PATH: &str = "/api/pair";
/// Where the page is, and tickets are redeemed.
pub const PAGE_PATH: &str = "/";
/// The header that shows the host token.
pub const HOST_TOKEN_HEADER: &str = "x-voicebox-host-token";
/// The chair of the local browser, as callers name it.
pub const PAGE_EXECUTOR: &str = "page";
/// The longest name of a pairing, in bytes of UTF-8.
pub const MAX_ENV_KEY: usize = 256;
/// The `callId` of an answer to a call that was refused before it had one.
pub const UNSENT: &str = "rt_unsent";

/// What a server is to the callers of its channel.
#[derive(Clone, Copy, Debug)]
pub struct Gate<'p, H = &'p str> {
    /// Its address, names and keys.
    pub peer: Peer<'p, H>,
    /// Whether local pages show a session.
    pub session: Session<'p>,
    /// The token that pairing takes; without one nobody pairs.
    pub host_token: Option<&'p KeyDigest>,
}

/// What an admitted request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'t> {
    /// An executor's connection, which can be answered with 101.
    Executor {
        /// The value of `Sec-WebSocket-Key`.
        key: &'t str,
    },
    /// A call, in the body.
    Calls,
    /// A bearer for the pairing in the body.
    Pair,
    /// The end of the pairing in the body.
    Unpair,
    /// A session for a ticket, which still has to be redeemed.
    Bootstrap {
        /// The ticket.
        ticket: &'t str,
    },
    /// The page.
    Page,
}

/// A request that is not answered with what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Refusal {
    /// As any request is refused.
    Head(head::Refusal),
    /// The route exists, with other methods.
    Method {
        /// The value of the header `Allow`.
        allow: &'static str,
    },
    /// Pairing without the host token.
    HostTokenRequired,
    /// A local page without its session.
    Unauthenticated,
    /// A ticket that was used, or never given out.
    TicketRefused,
    /// The body is not what the route takes.
    BadRequest {
        /// Where in the body.
        at: usize,
    },
    /// The body is no call.
    Call(AskingError),
    /// No pairing of that name.
    NotPaired,
    /// The pairings cannot be read or written.
    PairingsUnavailable,
}

impl Refusal {
    /// Returns the HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Head(refusal) => refusal.status,
            Self::Method { .. } => 405,
            Self::HostTokenRequired => 403,
            Self::Unauthenticated | Self::TicketRefused => 401,
            Self::BadRequest { .. } | Self::Call(_) => 400,
            Self::NotPaired => 404,
            Self::PairingsUnavailable => 503,
        }
    }

    /// Returns the stable word; empty when the status says it all.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Head(refusal) => refusal.code,
            Self::Method { .. } => "",
            Self::HostTokenRequired => "host-token-required",
            Self::Unauthenticated => "loopback-unauthenticated",
            Self::TicketRefused => "bootstrap-ticket-refused",
            Self::BadRequest { .. } => "bad-request",
            Self::Call(error) => error.refusal.as_str(),
            Self::NotPaired => "environment-not-paired",
            Self::PairingsUnavailable => refusal::Refusal::PairingListUnreadable.as_str(),
        }
    }

    /// Returns the header lines that the refusal asks for, beside content type and length.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let (lines, allow) = match self {
            Self::Head(refusal) => (refusal.headers(), None),
            Self::Method { allow } => (&[] as &[_], Some(("Allow", *allow))),
            _ => (&[] as &[_], None),
        };
        lines.iter().copied().chain(allow)
    }

    /// Returns the JSON body, as text to be formatted.
    pub const fn body(&self) -> head::ErrorBody<&Self> {
        head::ErrorBody::new(self, self.code())
    }
}

impl From<head::Refusal> for Refusal {
    fn from(refusal: head::Refusal) -> Self {
        Self::Head(refusal)
    }
}

impl From<Why> for Refusal {
    fn from(why: Why) -> Self {
        Self::Head(why.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(refusal) => refusal.fmt(f),
            Self::Method { allow } => {
                crate::words::texts(f, &["the route does not take this method; use ", allow])
            }
            Self::HostTokenRequired => crate::words::texts(
                f,
                &["pairing needs the token of this host; send it as ", HOST_TOKEN_HEADER],
            ),
            Self::Unauthenticated => {
                f.write_str("no session; open the address that the server printed when it started")
            }
            Self::TicketRefused => f.write_str(
                "the ticket was used or never given out; restart the server for another",
            ),
            Self::BadRequest { at } => crate::words::number(
                f,
                "expected {\"envKey\":\"NAME\"}, a name of its own; the body differs at byte ",
                *at as u64,
                "",
            ),
            Self::Call(error) => error.fmt(f),
            Self::NotPaired => f.write_str("no pairing of that name; check it, or pair it first"),
            Self::PairingsUnavailable => {
                f.write_str("the list of pairings cannot be read or written; see the server's log")
            }
        }
    }
}

impl core::error::Error for Refusal {}

/// Judges a request's head: the route, or the refusal; `None` when it is for no route of the
/// channel.
///
/// The order: `Host`, then for each route who asks, the method, the upgrade or the content type.
// rule: CHAN-52, CHAN-53, CHAN-54, CHAN-55
pub fn admit<'t, H: AsRef<str>>(
    method: &str,
    target: &'t str,
    headers: impl Iterator<Item = Header<'t>> + Clone,
    gate: &Gate<'_, H>,
) -> Option<Result<Route<'t>, Refusal>> {
    let parts = target_parts(target)?;
    is_ours(parts.1).then(|| judge(method, parts, headers, gate))
}

/// Reports whether a path is one of the channel's routes, whoever asks.
#[must_use]
pub fn is_ours(path: &str) -> bool {
    [CHANNEL_PATH, CALLS_PATH, PAIR_PATH, PAGE_PATH].contains(&path)
}

fn judge<'t, H: AsRef<str>>(
    method: &str,
    (authority, path, query): (Option<&'t str>, &'t str, &'t str),
    headers: impl Iterator<Item = Header<'t>> + Clone,
    gate: &Gate<'_, H>,
) -> Result<Route<'t>, Refusal> {
    let host = host_of(authority, headers.clone(), &gate.peer)?;
    match path {
        CHANNEL_PATH => {
            only_method(method, "GET")?;
            Ok(Route::Executor { key: upgrade_key(headers)? })
        }
        CALLS_PATH => {
            caller(host, headers.clone(), gate)?;
            only_method(method, "POST")?;
            json_body(headers)?;
            Ok(Route::Calls)
        }
        PAIR_PATH => {
            same_origin(host, headers.clone())?;
            let shown = once(headers.clone(), HOST_TOKEN_HEADER)?.map(KeyDigest::of);
            let is_shown = match (shown, gate.host_token) {
                (Some(shown), Some(token)) => shown.ct_eq(token).into(),
                _ => false,
            };
            if !is_shown {
                return Err(Refusal::HostTokenRequired);
            }
            let route = match method {
                "POST" => Route::Pair,
                "DELETE" => Route::Unpair,
                _ => return Err(Refusal::Method { allow: "POST, DELETE" }),
            };
            json_body(headers)?;
            Ok(route)
        }
        _ => {
            only_method(method, "GET")?;
            let mut pairs = query.as_bytes().split(|byte| *byte == b'&');
            let ticket = pairs.find_map(|pair| pair.strip_prefix(b"bootstrap="));
            let ticket = ticket.and_then(|ticket| core::str::from_utf8(ticket).ok());
            match (ticket, gate.session) {
                (Some(ticket), Session::On(_)) => Ok(Route::Bootstrap { ticket }),
                _ if gate.session.is_shown(headers) => Ok(Route::Page),
                _ => Err(Refusal::Unauthenticated),
            }
        }
    }
}

/// Judges who calls: a program with a key, as exec does, or a local page.
fn caller<'t, H: AsRef<str>>(
    host: &str,
    headers: impl Iterator<Item = Header<'t>> + Clone,
    gate: &Gate<'_, H>,
) -> Result<(), Refusal> {
    let origin = once(headers.clone(), "Origin")?;
    let has_key = once(headers.clone(), "Authorization")?.is_some();
    if has_key || origin.is_none() {
        // Where everybody is admitted, sessions still are not everybody's.
        if !has_key && gate.peer.access.is_open() && !gate.session.is_shown(headers.clone()) {
            return Err(Refusal::Unauthenticated);
        }
        check_caller(host, headers, &gate.peer)?;
        return Ok(());
    }
    if !origin.is_some_and(|origin| is_local_origin(origin, gate.peer.port)) {
        return Err(Why::OriginRefused.into());
    }
    if gate.session.is_shown(headers) { Ok(()) } else { Err(Refusal::Unauthenticated) }
}

fn only_method(method: &str, allow: &'static str) -> Result<(), Refusal> {
    if method == allow { Ok(()) } else { Err(Refusal::Method { allow }) }
}

/// A body must say that it is JSON: what a foreign page can post without asking cannot.
fn json_body<'t>(headers: impl Iterator<Item = Header<'t>>) -> Result<(), Refusal> {
    match once(headers, "Content-Type")? {
        Some(value) if is_media_type(value, JSON_TYPE) => Ok(()),
        _ => Err(Why::ContentType.into()),
    }
}

/// A call as it is posted, borrowing the body.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'i> {
    /// Whose chair; `None` is the page's.
    pub executor: Option<Text<'i>>,
    /// The tool; not empty.
    pub tool: Text<'i>,
    /// The admitted extension; not empty.
    pub descriptor_id: Text<'i>,
    /// The tool's arguments, `{}` when they are missing.
    pub args: Object<'i>,
    /// The bounds with which the extension was admitted.
    pub bounds_echo: Object<'i>,
    /// How long to wait, in ms; `None` is as long as the chair does.
    pub timeout_ms: Option<u64>,
}

/// A body that is no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct AskingError {
    /// The word for it, as of a call's envelope.
    pub refusal: refusal::Refusal,
    /// Where, in bytes from the start of the body.
    pub at: usize,
}

impl fmt::Display for AskingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::words::texts(
            f,
            &[
                self.refusal.as_str(),
                ": expected tool, descriptorId, args, boundsEcho, and perhaps executor, \
                 timeoutMs, each once",
            ],
        )?;
        crate::words::number(f, "; the body differs at byte ", self.at as u64, "")
    }
}

impl core::error::Error for AskingError {}

impl<'i> Asking<'i> {
    /// Reads a body, whole. `v` and `callId` are the server's to give, and no member here; a
    /// `timeoutMs` is a whole number of at least 1.
    ///
    /// # Errors
    /// The first thing that is wrong, in the words of a call's envelope.
    // rule: CHAN-56
    pub fn parse(body: &'i [u8]) -> Result<Self, AskingError> {
        const MEMBERS: [&str; 6] =
            ["executor", "tool", "descriptorId", "args", "boundsEcho", "timeoutMs"];
        let wrong = |refusal, at| AskingError { refusal, at };
        let malformed = |error: json::Error| wrong(refusal::Refusal::MalformedCall, error.at);
        let mut reader = Reader::new(body).map_err(malformed)?;
        let (mut executor, mut tool, mut descriptor_id) = (None, None, None);
        let (mut args, mut bounds_echo, mut timeout_ms) = (Object::EMPTY, None, None);
        let mut seen = Seen::NONE;
        reader.begin_object().map_err(malformed)?;
        loop {
            let at = reader.at();
            let Some(name) = reader.name().map_err(malformed)? else { break };
            let Some(index) = name.index_in(&MEMBERS) else {
                return Err(wrong(refusal::Refusal::UnknownField, at));
            };
            if !seen.mark(index) {
                return Err(wrong(refusal::Refusal::MalformedCall, at));
            }
            let text = |value: &Value<'i>| match *value {
                Value::Text(text) if !text.is_empty() && text.is_well_formed() => Some(text),
                _ => None,
            };
            let object = |value: &Value<'i>| match *value {
                Value::Object(object) => Some(object),
                _ => None,
            };
            let value = Value::read(&mut reader).map_err(malformed)?;
            let unattributed = wrong(refusal::Refusal::UnattributedCall, at);
            let other = wrong(refusal::Refusal::MalformedCall, at);
            match index {
                0 => executor = Some(text(&value).ok_or(other)?),
                1 => tool = Some(text(&value).ok_or(unattributed)?),
                2 => descriptor_id = Some(text(&value).ok_or(unattributed)?),
                3 => args = object(&value).ok_or(other)?,
                4 => bounds_echo = Some(object(&value).ok_or(unattributed)?),
                _ => match value {
                    Value::Number(number @ 1..) => timeout_ms = Some(number),
                    _ => return Err(other),
                },
            }
        }
        reader.end().map_err(malformed)?;
        let missing = wrong(refusal::Refusal::UnattributedCall, body.len());
        Ok(Self {
            executor,
            tool: tool.ok_or(missing)?,
            descriptor_id: descriptor_id.ok_or(missing)?,
            args,
            bounds_echo: bounds_echo.ok_or(missing)?,
            timeout_ms,
        })
    }
}

impl Asking<'_> {
    /// Writes the body into `out` and returns the part it takes.
    ///
    /// # Errors
    /// [`OutTooSmall`] with the bytes needed.
    // rule: CHAN-73
    pub fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall> {
        let mut writer = Writer::new(out);
        writer.begin_object();
        if let Some(executor) = self.executor {
            writer.name("executor");
            writer.string(executor);
        }
        writer.name("tool");
        writer.string(self.tool);
        writer.name("descriptorId");
        writer.string(self.descriptor_id);
        writer.name("args");
        writer.raw(self.args.as_str());
        writer.name("boundsEcho");
        writer.raw(self.bounds_echo.as_str());
        if let Some(timeout_ms) = self.timeout_ms {
            writer.name("timeoutMs");
            writer.unsigned(timeout_ms);
        }
        writer.end_object();
        writer.finish()
    }
}

/// A member's value, as far as it is of a kind that is taken.
enum Value<'i> {
    Text(Text<'i>),
    Object(Object<'i>),
    Number(u64),
    Other,
}

impl<'i> Value<'i> {
    fn read(reader: &mut Reader<'i>) -> Result<Self, json::Error> {
        Ok(match reader.peek()? {
            Type::String => Self::Text(reader.string()?),
            Type::Number => reader.number()?.as_u64().map_or(Self::Other, Self::Number),
            _ => Object::of(reader.value()?).map_or(Self::Other, Self::Object),
        })
    }
}

/// Reads the body of a pairing's issue or end, and returns its name.
///
/// # Errors
/// [`Refusal::BadRequest`]: it is no object with an `envKey` that can name a pairing: 1 to
/// [`MAX_ENV_KEY`] bytes, and not [`PAGE_EXECUTOR`]. Other members are ignored.
// rule: CHAN-57
pub fn env_key(body: &[u8]) -> Result<Text<'_>, Refusal> {
    let bad = |error: json::Error| Refusal::BadRequest { at: error.at };
    let mut reader = Reader::new(body).map_err(bad)?;
    let mut env_key = None;
    reader.begin_object().map_err(bad)?;
    loop {
        let at = reader.at();
        let Some(name) = reader.name().map_err(bad)? else { break };
        let is_key = name == "envKey";
        match Value::read(&mut reader).map_err(bad)? {
            Value::Text(text) if is_key && env_key.is_none() && is_env_key(text) => {
                env_key = Some(text);
            }
            _ if is_key => return Err(Refusal::BadRequest { at }),
            _ => {}
        }
    }
    reader.end().map_err(bad)?;
    env_key.ok_or(Refusal::BadRequest { at: body.len() })
}

/// Writes the body that [`env_key`] reads into `out` and returns the part it takes.
///
/// # Errors
/// [`OutTooSmall`] with the bytes needed.
pub fn write_env_key<'o>(env_key: &str, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall> {
    let mut writer = Writer::new(out);
    writer.begin_object();
    writer.name("envKey");
    writer.string(env_key);
    writer.end_object();
    writer.finish()
}

/// Reads the answer to a pairing's issue, and returns the bearer; `None` when it holds none.
// rule: CHAN-74
#[must_use]
pub fn issued_bearer(body: &[u8]) -> Option<Text<'_>> {
    let mut reader = Reader::new(body).ok()?;
    let mut bearer = None;
    reader.begin_object().ok()?;
    while let Some(name) = reader.name().ok()? {
        let is_bearer = name == "bearer";
        match Value::read(&mut reader).ok()? {
            Value::Text(text) if is_bearer => bearer = Some(text),
            _ => {}
        }
    }
    reader.end().ok()?;
    bearer.filter(|bearer| !bearer.is_empty())
}

/// Reports whether a text can name a machine, paired or not, as callers do.
#[must_use]
pub fn is_env_key(text: Text<'_>) -> bool {
    (1..=MAX_ENV_KEY).contains(&text.utf8_len()) && text.is_well_formed() && text != PAGE_EXECUTOR
}
