//! The head of a request: written by the client, parsed for servers with a loop of their own.

use core::fmt::Write as _;

use super::{
    Access, Declared, Framing, HeadError, HeadScan, Headers, JSON_TYPE, Part, Peer, Refusal, Route,
    SOCKET_VERSION, STREAM_TYPE, Unparsed, Why, admit, admit_guest, declared, host, is_sandbox_id,
    items, lines, split_once, write_to,
};
use crate::exec::body::Body;
use crate::exec::request::MAX_REQUEST_BODY;

/// How a client runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode<'m> {
    /// `POST`: the answer's body is the frame stream.
    OneShot,
    /// `POST` with `stdin=1`: after the answer's head, frames both ways.
    Hijack,
    /// `GET` with an upgrade to WebSocket.
    Socket {
        /// 16 random bytes in base64, new for each connection.
        key: &'m str,
    },
}

/// The head of an exec request.
///
/// Its debug output leaves the key out.
#[derive(Clone, Copy)]
pub struct RequestHead<'r> {
    /// The transport.
    pub mode: Mode<'r>,
    /// The sandbox, 1 to 64 of `[A-Za-z0-9_-]`.
    pub sandbox: &'r str,
    /// Name and port of the server, as `Host` carries them.
    pub host: &'r str,
    /// The key, of visible ASCII; `None` sends no `Authorization`.
    pub bearer: Option<&'r str>,
    /// Bytes of the request's JSON, which follow the head; `None` declares a chunked body. Not
    /// used by [`Mode::Socket`], whose request is the first message.
    pub content_length: Option<usize>,
    /// The path of the exec route, `/sandboxes/{id}/exec` when empty: a server behind a gateway
    /// may stand beneath a longer one. [`Mode::Hijack`] adds `stdin=1` unless that is there.
    pub path: &'r str,
}

impl core::fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RequestHead")
            .field("mode", &self.mode)
            .field("sandbox", &self.sandbox)
            .field("host", &self.host)
            .field("bearer", &self.bearer.map(|_| "redacted"))
            .field("content_length", &self.content_length)
            .field("path", &self.path)
            .finish()
    }
}

impl RequestHead<'_> {
    /// Writes the head, its last blank line included.
    ///
    /// # Errors
    /// [`HeadError::Unclean`] when a part holds what would break out of its place, and
    /// [`HeadError::OutTooSmall`]; nothing is written then.
    pub fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], HeadError> {
        // rule: EXEC-38
        if !is_sandbox_id(self.sandbox) {
            return Err(HeadError::Unclean(Part::Sandbox));
        }
        if !host::is_host(self.host) {
            return Err(HeadError::Unclean(Part::Host));
        }
        if self.bearer.is_some_and(|key| key.is_empty() || !is_visible(key)) {
            return Err(HeadError::Unclean(Part::Bearer));
        }
        let is_path = |path: &str| {
            path.starts_with('/') && is_visible(path) && !path.bytes().any(|byte| byte == b'#')
        };
        if !self.path.is_empty() && !is_path(self.path) {
            return Err(HeadError::Unclean(Part::Path));
        }
        if matches!(self.mode, Mode::Socket { key } if !admit::is_socket_key(key.as_bytes())) {
            return Err(HeadError::Unclean(Part::SocketKey));
        }
        let written = write_to(out, |out| {
            let method = if matches!(self.mode, Mode::Socket { .. }) { "GET" } else { "POST" };
            write!(out, "{method} ")?;
            if self.path.is_empty() {
                write!(out, "/sandboxes/{}/exec", self.sandbox)?;
            } else {
                out.write_str(self.path)?;
            }
            let (_, query) = split_once(self.path, b'?').unwrap_or_default();
            if self.mode == Mode::Hijack && !admit::wants_stdin(query) {
                out.write_str(if self.path.bytes().any(|byte| byte == b'?') {
                    "&stdin=1"
                } else {
                    "?stdin=1"
                })?;
            }
            write!(out, " HTTP/1.1\r\nHost: {}\r\n", self.host)?;
            if let Some(key) = self.bearer {
                write!(out, "Authorization: Bearer {key}\r\n")?;
            }
            if let Mode::Socket { key } = self.mode {
                write!(
                    out,
                    "Connection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Version: {SOCKET_VERSION}\r\nSec-WebSocket-Key: {key}\r\n\r\n"
                )
            } else {
                write!(out, "Accept: {STREAM_TYPE}, {JSON_TYPE}\r\nContent-Type: {JSON_TYPE}\r\n")?;
                match self.content_length {
                    Some(length) => write!(out, "Content-Length: {length}\r\n\r\n"),
                    None => out.write_str("Transfer-Encoding: chunked\r\n\r\n"),
                }
            }
        })?;
        Ok(written)
    }
}

fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A request's head as it stands in the window.
#[derive(Clone, Copy, Debug)]
pub struct ParsedRequest<'w> {
    /// The method, such as `POST`.
    pub method: &'w str,
    /// The target, as it came.
    pub target: &'w str,
    /// How the body that follows is delimited.
    pub framing: Framing,
    /// Bytes of the head in the window; the body begins behind them.
    pub len: usize,
    /// The header lines.
    pub headers: Headers<'w>,
}

impl<'w> ParsedRequest<'w> {
    /// Judges the request: the same as [`admit`].
    ///
    /// # Errors
    /// The [`Refusal`] to answer with.
    pub fn admit<H: AsRef<str>>(
        &self,
        peer: &Peer<'_, H>,
        knows: impl Fn(&str) -> bool,
    ) -> Result<Route<'w>, Refusal> {
        admit(self.method, self.target, self.headers, peer, knows)
    }

    /// Judges a request to a guest: the same as [`admit_guest`].
    ///
    /// # Errors
    /// The [`Refusal`] to answer with.
    pub fn admit_guest(&self, access: Access<'_>) -> Result<(), Refusal> {
        admit_guest(self.method, self.target, self.headers, access)
    }

    /// Makes the reader of the body that follows, held to [`MAX_REQUEST_BODY`]: its error makes a
    /// [`Refusal`], 413 when the body is too large.
    #[must_use]
    pub const fn body(&self) -> Body {
        // rule: EXEC-18
        Body::limited(self.framing, MAX_REQUEST_BODY as u64)
    }

    /// Reports whether the client holds its body back until it reads [`CONTINUE`].
    ///
    /// [`CONTINUE`]: super::CONTINUE
    #[must_use]
    pub fn wants_continue(&self) -> bool {
        items(self.headers, "expect").any(|item| item.eq_ignore_ascii_case(b"100-continue"))
    }
}

/// Parses a request's head at the start of the unread bytes; `None` when more is needed.
///
/// `window_is_full` says that no more can come before some of it is used, so that a head which is
/// not whole never will be. When the bytes come in small pieces, [`HeadScan`] costs less.
///
/// # Errors
/// The [`Refusal`] to answer with: 400, 431, or 501 for a transfer coding.
pub fn request(window: &[u8], window_is_full: bool) -> Result<Option<ParsedRequest<'_>>, Refusal> {
    HeadScan::new().request(window, window_is_full)
}

impl HeadScan {
    /// Parses a request's head as [`request`] does, looking at new bytes only.
    ///
    /// # Errors
    /// Those of [`request`].
    pub fn request<'w>(
        &mut self,
        window: &'w [u8],
        window_is_full: bool,
    ) -> Result<Option<ParsedRequest<'w>>, Refusal> {
        // rule: EXEC-37
        if !self.is_due(window, window_is_full) {
            return Ok(None);
        }
        let bytes = window.get(self.start..).unwrap_or_default();
        let parsed = match lines::request(bytes) {
            Ok(parsed) => parsed,
            Err(Unparsed::Partial) if window_is_full => return Err(Why::HeadTooLarge.into()),
            Err(Unparsed::Partial) => return Ok(None),
            Err(Unparsed::TooManyHeaders) => return Err(Why::TooManyHeaders.into()),
            Err(Unparsed::Malformed(what)) => return Err(Why::Malformed(what).into()),
        };
        let headers = Headers::of_head(bytes.get(..parsed.len).unwrap_or_default());
        let framing = match declared(headers) {
            Declared::Nothing => Framing::Length(0),
            Declared::Framing(Framing::Chunked) if parsed.is_old => {
                return Err(Why::Length.into());
            }
            Declared::Framing(framing) => framing,
            // Two lengths are how a request is smuggled past a proxy.
            Declared::Both | Declared::BadLength => return Err(Why::Length.into()),
            Declared::UnknownCoding => return Err(Why::TransferCoding.into()),
        };
        Ok(Some(ParsedRequest {
            method: parsed.method,
            target: parsed.target,
            framing,
            len: self.start.saturating_add(parsed.len),
            headers,
        }))
    }
}
