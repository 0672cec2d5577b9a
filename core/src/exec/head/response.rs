//! The head of a response: parsed by the client, written by servers with a loop of their own.

use core::fmt;

use super::{
    Declared, Framing, HeadScan, Headers, JSON_TYPE, MAX_ERROR_BODY, MAX_HEADERS, Malformed, Out,
    STREAM_TYPE, Unparsed, declared, is_media_type, items, lines,
};
use crate::OutTooSmall;
use crate::exec::body::Body;

/// Tells a client that holds its body back to send it.
pub const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// The body of the health answer, of type [`JSON_TYPE`].
pub const HEALTH_BODY: &str = "{\"status\":\"ok\"}\n";

/// A part of a request's head that is given by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Part {
    /// The sandbox id.
    Sandbox,
    /// The host.
    Host,
    /// The bearer key.
    Bearer,
    /// The path.
    Path,
    /// The WebSocket key.
    SocketKey,
}

/// A head that a client cannot write, or cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum HeadError {
    /// Ours: a part of the head would break out of its place.
    Unclean(Part),
    /// Ours: the output buffer has less room than the head takes.
    OutTooSmall {
        /// Bytes that the head takes.
        needed: usize,
    },
    /// The response's head does not fit the window.
    TooLarge,
    /// The response's head has more than [`MAX_HEADERS`] lines.
    TooManyHeaders,
    /// The response's head is not HTTP/1.1.
    Malformed(Malformed),
    /// `Content-Length` is not a number, or stands more than once.
    Length,
    /// `Transfer-Encoding` names a coding other than `chunked`.
    TransferCoding,
    /// The server answered with another status than what was asked for; the body says why.
    Status {
        /// The status that came.
        found: u16,
    },
    /// The answer's body is not declared to be a frame stream.
    ContentType,
    /// The answer's body is compressed.
    ContentEncoding,
    /// The answer with status 101 does not upgrade to WebSocket.
    UpgradeMissing,
    /// `Sec-WebSocket-Accept` does not belong to the key that was sent.
    WrongAccept,
}

impl HeadError {
    /// Returns the stable word for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unclean(_) => "unclean_head",
            Self::OutTooSmall { .. } => "out_too_small",
            Self::TooLarge | Self::TooManyHeaders => "head_too_large",
            Self::Malformed(_) | Self::Length | Self::TransferCoding => "head_malformed",
            Self::Status { .. } => "status",
            Self::ContentType | Self::ContentEncoding => "content_type",
            Self::UpgradeMissing | Self::WrongAccept => "upgrade_refused",
        }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclean(Part::Sandbox) => {
                f.write_str("the sandbox id is malformed; it is 1 to 64 of A-Z a-z 0-9 _ -")
            }
            Self::Unclean(Part::Host) => {
                f.write_str("the host is malformed; it is a name or an address, then maybe :port")
            }
            Self::Unclean(Part::Bearer) => f.write_str(
                "the key cannot be sent; it has to be visible ASCII without spaces or line ends",
            ),
            Self::Unclean(Part::Path) => {
                f.write_str("the path is malformed; it starts with '/' and holds visible ASCII")
            }
            Self::Unclean(Part::SocketKey) => {
                f.write_str("the WebSocket key is malformed; it is 16 random bytes in base64")
            }
            Self::OutTooSmall { needed } => OutTooSmall { needed: *needed }.fmt(f),
            Self::TooLarge => f.write_str(
                "the response's head is too large for the window; \
                 check that the address is the server's, or give a larger buffer",
            ),
            Self::TooManyHeaders => write!(
                f,
                "the response has more than {MAX_HEADERS} headers; \
                 check that the address is the server's"
            ),
            Self::Malformed(what) => write!(
                f,
                "the response is not HTTP/1.1: {what}; check that the address is the server's"
            ),
            Self::Length => f.write_str(
                "the response's Content-Length is malformed or stands twice; \
                 the server or a proxy before it is at fault",
            ),
            Self::TransferCoding => f.write_str(
                "the response's Transfer-Encoding is not chunked; \
                 the server or a proxy before it is at fault",
            ),
            Self::Status { found } => {
                write!(f, "the server answered with status {found}; its body says why")
            }
            Self::ContentType => write!(
                f,
                "the response is not declared as {STREAM_TYPE}; \
                 check that the address is the server's"
            ),
            Self::ContentEncoding => f.write_str(
                "the response is compressed, which was not asked for; \
                 turn that off in the proxy before the server",
            ),
            Self::UpgradeMissing => f.write_str(
                "the server did not upgrade to WebSocket; \
                 check that the proxy before it passes upgrades",
            ),
            Self::WrongAccept => f.write_str(
                "the server's Sec-WebSocket-Accept does not belong to our key; \
                 check that the address is the server's",
            ),
        }
    }
}

impl core::error::Error for HeadError {}

impl From<OutTooSmall> for HeadError {
    fn from(error: OutTooSmall) -> Self {
        Self::OutTooSmall { needed: error.needed }
    }
}

/// A response's head as it stands in the window.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'w> {
    /// The status.
    pub status: u16,
    /// Bytes of the head in the window, interim responses before it included; what follows is
    /// body, frames or messages.
    pub len: usize,
    /// The header lines.
    pub headers: Headers<'w>,
}

impl<'w> ResponseHead<'w> {
    /// Returns how the body is delimited. A hijacked connection has no body: what it declares is
    /// not looked at.
    ///
    /// # Errors
    /// [`HeadError::Length`], [`HeadError::TransferCoding`].
    pub fn framing(&self) -> Result<Framing, HeadError> {
        // rule: EXEC-37
        if matches!(self.status, 100..=199 | 204 | 304) {
            return Ok(Framing::Length(0));
        }
        match declared(self.headers) {
            Declared::Nothing => Ok(Framing::ToEnd),
            Declared::Framing(framing) => Ok(framing),
            Declared::Both => Ok(Framing::Chunked),
            Declared::BadLength => Err(HeadError::Length),
            Declared::UnknownCoding => Err(HeadError::TransferCoding),
        }
    }

    /// Makes the reader of an error's body, held to [`MAX_ERROR_BODY`]; what it reads is for
    /// [`ErrorRecord::parse`](super::ErrorRecord::parse).
    ///
    /// # Errors
    /// Those of [`framing`](Self::framing).
    pub fn error_body(&self) -> Result<Body, HeadError> {
        Ok(Body::limited(self.framing()?, MAX_ERROR_BODY))
    }

    /// Returns the value of the first header of that name, case ignored.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'w [u8]> {
        let mut headers = self.headers;
        headers.find(|header| header.is(name)).map(|header| header.value)
    }

    /// Checks the answer to [`Mode::OneShot`](super::Mode::OneShot) and returns how its frame
    /// stream is delimited.
    ///
    /// # Errors
    /// [`HeadError::Status`] when the request was refused: the body, delimited by
    /// [`framing`](Self::framing), says why. [`HeadError::ContentType`],
    /// [`HeadError::ContentEncoding`] and those of [`framing`](Self::framing).
    pub fn expect_stream(&self) -> Result<Framing, HeadError> {
        // rule: EXEC-19
        self.expect_status(200)?;
        if !self.header("content-type").is_some_and(|value| is_media_type(value, STREAM_TYPE)) {
            return Err(HeadError::ContentType);
        }
        if !items(self.headers, "content-encoding")
            .all(|coding| coding.eq_ignore_ascii_case(b"identity"))
        {
            return Err(HeadError::ContentEncoding);
        }
        self.framing()
    }

    /// Checks the answer to [`Mode::Hijack`](super::Mode::Hijack): after it, frames follow both
    /// ways to the end of the connection, whatever lengths it declares.
    ///
    /// # Errors
    /// [`HeadError::Status`], as for [`expect_stream`](Self::expect_stream).
    pub fn expect_hijack(&self) -> Result<(), HeadError> {
        // rule: EXEC-21
        self.expect_status(200)
    }

    /// Checks the answer to [`Mode::Socket`](super::Mode::Socket) against `accept`, the base64 of
    /// the SHA-1 of the key and the protocol's GUID.
    ///
    /// # Errors
    /// [`HeadError::Status`], as for [`expect_stream`](Self::expect_stream);
    /// [`HeadError::UpgradeMissing`]; [`HeadError::WrongAccept`].
    pub fn expect_upgrade(&self, accept: &str) -> Result<(), HeadError> {
        // rule: EXEC-23
        self.expect_status(101)?;
        let has = |name, token: &[u8]| {
            items(self.headers, name).any(|item| item.eq_ignore_ascii_case(token))
        };
        if !has("connection", b"upgrade") || !has("upgrade", b"websocket") {
            return Err(HeadError::UpgradeMissing);
        }
        match self.headers.only("sec-websocket-accept") {
            Ok(Some(found)) if found == accept.as_bytes() => Ok(()),
            _ => Err(HeadError::WrongAccept),
        }
    }

    fn expect_status(&self, status: u16) -> Result<(), HeadError> {
        if self.status == status { Ok(()) } else { Err(HeadError::Status { found: self.status }) }
    }
}

/// Parses a response's head at the start of the unread bytes; `None` when more is needed.
///
/// Interim responses (1xx but 101) before it are skipped. `window_is_full` says that no more can
/// come before some of it is used. When the bytes come in small pieces, [`HeadScan`] costs less.
///
/// ```
/// use triwire::exec::body::Framing;
/// use triwire::exec::head;
///
/// let wire = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n\x01\0\0\0";
/// let head = head::response(wire, false).unwrap().unwrap();
/// assert_eq!(head.expect_stream(), Ok(Framing::ToEnd));
/// assert_eq!(&wire[head.len..], b"\x01\0\0\0"); // the first frame came in the same read
/// ```
///
/// # Errors
/// [`HeadError::TooLarge`], [`HeadError::TooManyHeaders`], [`HeadError::Malformed`].
pub fn response(
    window: &[u8],
    window_is_full: bool,
) -> Result<Option<ResponseHead<'_>>, HeadError> {
    HeadScan::new().response(window, window_is_full)
}

impl HeadScan {
    /// Parses a response's head as [`response`] does, looking at new bytes only.
    ///
    /// # Errors
    /// Those of [`response`].
    pub fn response<'w>(
        &mut self,
        window: &'w [u8],
        window_is_full: bool,
    ) -> Result<Option<ResponseHead<'w>>, HeadError> {
        while self.is_due(window, window_is_full) {
            let bytes = window.get(self.start..).unwrap_or_default();
            let (status, len) = match lines::response(bytes) {
                Ok(parsed) => parsed,
                Err(Unparsed::Partial) if window_is_full => return Err(HeadError::TooLarge),
                Err(Unparsed::Partial) => return Ok(None),
                Err(Unparsed::TooManyHeaders) => return Err(HeadError::TooManyHeaders),
                Err(Unparsed::Malformed(what)) => return Err(HeadError::Malformed(what)),
            };
            let end = self.start.saturating_add(len);
            if matches!(status, 100..=199) && status != 101 {
                self.pass(end);
                continue;
            }
            let headers = Headers::of_head(bytes.get(..len).unwrap_or_default());
            return Ok(Some(ResponseHead { status, len: end, headers }));
        }
        Ok(None)
    }
}

/// A response's head that accepts a request, for servers with a loop of their own.
///
/// ```
/// use triwire::exec::head::Answer;
///
/// let mut out = [0; 128];
/// assert!(Answer::Hijack.write(&mut out).unwrap().starts_with(b"HTTP/1.1 200 OK\r\n"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// To `GET /healthz`, its body included.
    Health,
    /// To a one-shot: the frame stream follows, to the end of the connection.
    Stream,
    /// To a one-shot: the frame stream follows in chunks.
    Chunked,
    /// To a hijack: frames follow both ways.
    Hijack,
    /// To an upgrade: messages follow both ways.
    Socket {
        /// The base64 of the SHA-1 of the client's key and the protocol's GUID.
        accept: &'a str,
    },
}

impl Answer<'_> {
    /// Writes the head, its last blank line included.
    ///
    /// # Errors
    /// [`OutTooSmall`]; 256 bytes hold every answer.
    pub fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall> {
        const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: ";
        const CLOSE: &str = "Connection: close\r\n\r\n";
        let mut to = Out::new(out);
        match self {
            Self::Health => {
                to.texts(&[OK, JSON_TYPE, "\r\nContent-Length: "]);
                to.number(HEALTH_BODY.len() as u64);
                to.texts(&["\r\n", CLOSE, HEALTH_BODY]);
            }
            Self::Stream => to.texts(&[OK, STREAM_TYPE, "\r\n", CLOSE]),
            Self::Chunked => {
                to.texts(&[OK, STREAM_TYPE, "\r\nTransfer-Encoding: chunked\r\n", CLOSE]);
            }
            // rule: EXEC-21
            Self::Hijack => to.texts(&[OK, STREAM_TYPE, "\r\n\r\n"]),
            Self::Socket { accept } => to.texts(&[
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                 Upgrade: websocket\r\nSec-WebSocket-Accept: ",
                accept,
                "\r\n\r\n",
            ]),
        }
        to.finish()
    }
}
