//! Answers that refuse a request: the status, its words and its bytes.

use core::fmt::{self, Write as _};

use super::{GUEST_PATH, JSON_TYPE, MAX_HEADERS, MAX_SANDBOX_ID, Malformed, Out, SOCKET_VERSION};
use crate::exec::body::{BodyError, BodyFault};
use crate::exec::files::{FilesPutResult, PathFault};
use crate::exec::request::RequestError;
use crate::{OutTooSmall, json, words};

/// A request that is not answered with what it asked for.
///
/// Its [`Display`](fmt::Display) says why and what to do; [`write`](Self::write) is the whole
/// answer for own loops; a server that stands on an HTTP library takes [`status`](Self::status),
/// [`headers`](Self::headers) and [`body`](Self::body).
///
/// ```
/// use triwire::exec::head::Refusal;
///
/// let refusal = Refusal::unknown_sandbox();
/// let mut out = [0; 512];
/// let wire = refusal.write(&refusal.why, &mut out).unwrap();
/// assert!(wire.starts_with(b"HTTP/1.1 404 Not Found\r\n"));
/// assert!(wire.ends_with(b"\"code\":\"not_found\"}\n"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The stable word for programs; empty when the status says it all.
    pub code: &'static str,
    /// The reason, for people.
    pub why: Why,
}

/// Why a request is refused; its [`Display`](fmt::Display) says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Why {
    /// The head is not HTTP/1.1.
    Malformed(Malformed),
    /// The target is neither a path nor a URL of this host.
    Target,
    /// A header that may stand once stands twice.
    Repeated(
        /// The header's name.
        &'static str,
    ),
    /// `Content-Length` is not a number, or contradicts `Transfer-Encoding`.
    Length,
    /// The body's bytes are not what its head declared.
    Body(BodyFault),
    /// The body is not an exec request.
    Request(RequestError),
    /// `Host` is missing or not a host.
    HostMissing,
    /// The sandbox id has not the shape of one.
    SandboxId,
    /// `Sec-WebSocket-Key` is missing or not 16 bytes in base64.
    SocketKey,
    /// No bearer key was sent.
    KeyMissing,
    /// The bearer key is not one of ours.
    KeyWrong,
    /// `Host` is none of the names that this server answers to.
    HostRefused,
    /// The request comes from another site's page.
    OriginRefused,
    /// No such route.
    UnknownRoute,
    /// Not the path that a guest takes commands at.
    NotGuestPath,
    /// No such sandbox.
    UnknownSandbox,
    /// The route exists, with other methods.
    Method {
        /// The methods that the route takes.
        allow: Allow,
    },
    /// The body is larger than a request may be.
    TooLarge {
        /// Bytes that a request's body may have.
        limit: u64,
    },
    /// The body is not declared to be JSON.
    ContentType,
    /// A GET that does not upgrade to WebSocket.
    UpgradeMissing,
    /// An upgrade to another version of WebSocket.
    SocketVersion,
    /// The head does not fit the server's window.
    HeadTooLarge,
    /// The head has more than [`MAX_HEADERS`] lines.
    TooManyHeaders,
    /// Plain HTTP, where TLS is spoken.
    TlsMissing,
    /// The server failed.
    Internal,
    /// `Transfer-Encoding` names a coding other than `chunked`.
    TransferCoding,
    /// A command without `stdin=1`, which a guest takes only with it.
    NotHijack,
    /// The server cannot take over a connection.
    HijackUnavailable,
    /// The sandbox cannot be reached.
    Unreachable,
    /// The path of a transfer is no path of a sandbox.
    Path(PathFault),
    /// An archive is refused; the detail to write names the entry.
    Archive,
    /// A transfer past a limit; the detail names it.
    TransferTooLarge,
    /// There is no such file.
    UnknownFile,
    /// What is asked for is no regular file.
    NotAFile,
    /// The sandbox has no files to transfer.
    FilesUnavailable,
}

/// The methods that a route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Allow {
    /// Health.
    Get,
    /// Exec.
    GetPost,
    /// Exec at a guest.
    Post,
}

impl Allow {
    const GET: &'static str = "GET";
    const GET_POST: &'static str = "GET, POST";
    const POST: &'static str = "POST";

    /// Returns the value of the header `Allow`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => Self::GET,
            Self::GetPost => Self::GET_POST,
            Self::Post => Self::POST,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => {
                f.write_str("the request's head is malformed: ")?;
                what.fmt(f)?;
                f.write_str("; send HTTP/1.1")
            }
            Self::Target => f.write_str(
                "the request's target is malformed; send a path that starts with '/', \
                 or a URL whose host is the Host header's",
            ),
            Self::Repeated(name) => {
                words::texts(f, &["the header ", name, " stands more than once; send it once"])
            }
            Self::Length => f.write_str(
                "the body's length is malformed; send one Content-Length in decimal digits, \
                 or Transfer-Encoding: chunked, not both",
            ),
            Self::Body(fault) => {
                f.write_str("the body is malformed: ")?;
                fault.fmt(f)
            }
            Self::Request(error) => error.fmt(f),
            Self::HostMissing => f.write_str(
                "the Host header is missing or malformed; send one with the name and port \
                 that the connection was made to",
            ),
            Self::SandboxId => words::number(
                f,
                "the sandbox id is malformed; it is 1 to ",
                MAX_SANDBOX_ID as u64,
                " of A-Z a-z 0-9 _ -",
            ),
            Self::SocketKey => {
                f.write_str("Sec-WebSocket-Key is missing or malformed; send 16 bytes in base64")
            }
            Self::KeyMissing => {
                f.write_str("a key is needed; send it as Authorization: Bearer <key>")
            }
            Self::KeyWrong => f.write_str(
                "the key is not one that this server admits; check the key and the server's list",
            ),
            Self::HostRefused => f.write_str(
                "this server does not answer to that Host; use a loopback name with the server's \
                 port, or add the name to the server's hosts",
            ),
            Self::OriginRefused => f.write_str(
                "requests from pages of another origin are refused; \
                 call from a page of this host, or without Origin",
            ),
            Self::UnknownRoute => f.write_str(
                "no such route; there are GET /healthz, /sandboxes/{id}/exec and /sandboxes/{id}/files \
                 with POST or GET",
            ),
            Self::NotGuestPath => words::texts(
                f,
                &["no such route; this guest takes commands with POST ", GUEST_PATH],
            ),
            Self::UnknownSandbox => {
                f.write_str("no such sandbox; use an id from the server's configuration")
            }
            Self::Method { allow } => {
                words::texts(f, &["the route does not take this method; use ", allow.as_str()])
            }
            Self::TooLarge { limit } => {
                words::number(f, "the request's body is too large; send at most ", *limit, " bytes")
            }
            Self::ContentType => {
                words::texts(f, &["the body's content type is not JSON; send ", JSON_TYPE])
            }
            Self::UpgradeMissing => f.write_str(
                "GET runs commands over WebSocket only; upgrade to version 13, or send a POST",
            ),
            Self::SocketVersion => words::texts(
                f,
                &[
                    "that version of WebSocket is not spoken; send Sec-WebSocket-Version: ",
                    SOCKET_VERSION,
                ],
            ),
            Self::HeadTooLarge => {
                f.write_str("the request's head is too large; send fewer or shorter headers")
            }
            Self::TooManyHeaders => words::number(
                f,
                "the request has too many headers; send at most ",
                MAX_HEADERS as u64,
                "",
            ),
            Self::TlsMissing => f.write_str("TLS is spoken here; use https:// or wss://"),
            Self::Internal => f.write_str("the server failed; its log says more, then try again"),
            Self::TransferCoding => f.write_str(
                "the body's transfer coding is not supported; \
                 send Transfer-Encoding: chunked or Content-Length",
            ),
            Self::NotHijack => words::texts(
                f,
                &["this guest takes commands with stdin=1 only; POST to ", GUEST_PATH],
            ),
            Self::HijackUnavailable => f.write_str(
                "this server cannot hand over the connection; use WebSocket for stdin, \
                 or leave out stdin=1",
            ),
            Self::Unreachable => {
                f.write_str("the sandbox cannot be reached; check that it runs, then try again")
            }
            Self::Path(fault) => fault.fmt(f),
            Self::Archive => f.write_str("the archive is refused"),
            Self::TransferTooLarge => f.write_str("the transfer is larger than this server allows"),
            Self::UnknownFile => f.write_str("there is no such file"),
            Self::NotAFile => f.write_str(
                "that is no regular file; a folder is sent as an archive that a command makes",
            ),
            Self::FilesUnavailable => f.write_str(
                "this sandbox has no file transfer; send files over a command's stdin",
            ),
        }
    }
}

impl From<Why> for Refusal {
    /// Gives a reason the status and the code that stand for it.
    fn from(why: Why) -> Self {
        // rule: EXEC-36
        let (status, code) = match why {
            Why::Malformed(_)
            | Why::Target
            | Why::Repeated(_)
            | Why::Length
            | Why::Body(_)
            | Why::Request(_)
            | Why::HostMissing
            | Why::SandboxId
            | Why::SocketKey => (400, ""),
            Why::KeyMissing | Why::KeyWrong => (401, ""),
            Why::HostRefused => (403, "host-refused"),
            Why::OriginRefused => (403, "origin-refused"),
            Why::UnknownRoute | Why::NotGuestPath | Why::UnknownSandbox => (404, "not_found"),
            Why::Method { .. } => (405, ""),
            Why::TooLarge { .. } => (413, ""),
            Why::TlsMissing => (400, "tls_required"),
            Why::ContentType => (415, ""),
            Why::UpgradeMissing | Why::SocketVersion => (426, ""),
            Why::HeadTooLarge | Why::TooManyHeaders => (431, ""),
            Why::Internal => (500, ""),
            Why::TransferCoding | Why::NotHijack => (501, ""),
            Why::HijackUnavailable => (501, "hijack_unavailable"),
            Why::Unreachable => (502, ""),
            // rule: FILE-13
            Why::Path(_) => (400, "bad_path"),
            Why::Archive => (400, "archive_refused"),
            Why::TransferTooLarge => (413, "transfer_too_large"),
            Why::UnknownFile => (404, "file_not_found"),
            Why::NotAFile => (400, "not_a_file"),
            Why::FilesUnavailable => (501, "files_unavailable"),
        };
        Self { status, code, why }
    }
}

impl From<BodyError> for Refusal {
    /// Refuses a request by what is wrong with its body: 413 when it is too large, else 400.
    fn from(error: BodyError) -> Self {
        Self::from(match error.fault {
            BodyFault::TooLarge { limit } => Why::TooLarge { limit },
            fault => Why::Body(fault),
        })
    }
}

impl From<RequestError> for Refusal {
    /// 400: the body is not an exec request.
    fn from(error: RequestError) -> Self {
        // rule: EXEC-17
        Why::Request(error).into()
    }
}

impl Refusal {
    /// 404 with code `not_found`: a sandbox that went between admission and its use.
    #[must_use]
    pub fn unknown_sandbox() -> Self {
        Why::UnknownSandbox.into()
    }

    /// 400 with code `tls_required`: the first byte of a connection is not that of TLS.
    #[must_use]
    pub fn tls_missing() -> Self {
        Why::TlsMissing.into()
    }

    /// 413: an HTTP library found the body to be larger than `limit` bytes.
    #[must_use]
    pub fn too_large(limit: u64) -> Self {
        Why::TooLarge { limit }.into()
    }

    /// 431: an HTTP library found the head to be too large.
    #[must_use]
    pub fn head_too_large() -> Self {
        Why::HeadTooLarge.into()
    }

    /// 500: the server failed.
    #[must_use]
    pub fn internal() -> Self {
        Why::Internal.into()
    }

    /// 501 with code `hijack_unavailable`: the server cannot take over a connection.
    #[must_use]
    pub fn hijack_unavailable() -> Self {
        Why::HijackUnavailable.into()
    }

    /// 502: the sandbox cannot be reached; the detail to write says how that showed.
    #[must_use]
    pub fn unreachable() -> Self {
        Why::Unreachable.into()
    }

    /// Returns the header lines that this status asks for, beside content type and length.
    #[must_use]
    pub const fn headers(&self) -> &'static [(&'static str, &'static str)] {
        match self.why {
            Why::KeyMissing | Why::KeyWrong => &[("WWW-Authenticate", "Bearer")],
            Why::UpgradeMissing | Why::SocketVersion => &[
                ("Sec-WebSocket-Version", SOCKET_VERSION),
                ("Upgrade", "websocket"),
                ("Connection", "Upgrade"),
            ],
            Why::Method { allow: Allow::Get } => &[("Allow", Allow::GET)],
            Why::Method { allow: Allow::GetPost } => &[("Allow", Allow::GET_POST)],
            Why::Method { allow: Allow::Post } => &[("Allow", Allow::POST)],
            _ => &[],
        }
    }

    /// Returns the JSON body, as text to be formatted. The detail is [`why`](Self::why), or an
    /// error that says more.
    pub const fn body<D: fmt::Display>(&self, detail: D) -> ErrorBody<D> {
        ErrorBody { detail, code: self.code }
    }

    /// Writes the whole answer: head and JSON body. The connection ends with it.
    ///
    /// # Errors
    /// [`OutTooSmall`] when `out` has less room; 1024 bytes hold every answer whose detail is
    /// [`why`](Self::why).
    pub fn write<'o>(
        &self,
        detail: impl fmt::Display,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], OutTooSmall> {
        self.write_body(&self.body(&detail), out)
    }

    fn write_body<'o>(
        &self,
        body: &dyn fmt::Display,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], OutTooSmall> {
        // `Out` never fails; a `Display` that does has written what it could.
        let mut length = Out::new(&mut []);
        let _ = write!(length, "{body}");
        let mut to = Out::new(out);
        to.texts(&["HTTP/1.1 "]);
        to.number(u64::from(self.status));
        to.texts(&[" ", reason(self.status), "\r\nContent-Type: ", JSON_TYPE, "\r\n"]);
        for (name, value) in self.headers() {
            to.texts(&[name, ": ", value, "\r\n"]);
        }
        to.texts(&["Content-Length: "]);
        to.number(length.len as u64);
        to.texts(&["\r\nConnection: close\r\n\r\n"]);
        let _ = write!(to, "{body}");
        to.finish()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.why, f)
    }
}

impl core::error::Error for Refusal {}

/// Returns the words beside a status that this module answers with.
const fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        426 => "Upgrade Required",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        _ => "Internal Server Error",
    }
}

/// The JSON body of an error, `{"error":…,"code":…}` and a newline, without an empty code.
///
/// ```
/// use triwire::exec::head::Refusal;
///
/// let body = Refusal::unreachable().body("guest \"a\" is down");
/// assert_eq!(body.to_string(), "{\"error\":\"guest \\\"a\\\" is down\"}\n");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ErrorBody<D> {
    detail: D,
    code: &'static str,
}

impl<D> ErrorBody<D> {
    pub(crate) const fn new(detail: D, code: &'static str) -> Self {
        Self { detail, code }
    }
}

impl<D: fmt::Display> fmt::Display for ErrorBody<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // rule: EXEC-35
        f.write_str("{\"error\":\"")?;
        write!(Escape(f), "{}", self.detail)?;
        f.write_str("\"")?;
        if !self.code.is_empty() {
            f.write_str(",\"code\":\"")?;
            f.write_str(self.code)?;
            f.write_str("\"")?;
        }
        f.write_str("}\n")
    }
}

/// The JSON body of a push that failed: that of an error, and what was stored before.
///
/// ```
/// use triwire::exec::files::FilesPutResult;
/// use triwire::exec::head::{PushErrorBody, Refusal, Why};
///
/// let stored = FilesPutResult { files: 1, bytes: 5 };
/// let body = PushErrorBody::new(&Refusal::from(Why::Archive), "b: leads outside", stored);
/// let text = r#"{"error":"b: leads outside","code":"archive_refused","files":1,"bytes":5}"#;
/// assert_eq!(body.to_string().trim_end(), text);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PushErrorBody<D> {
    detail: D,
    code: &'static str,
    stored: FilesPutResult,
}

impl<D> PushErrorBody<D> {
    /// Makes the body of `refusal`, with a detail that says more.
    pub const fn new(refusal: &Refusal, detail: D, stored: FilesPutResult) -> Self {
        Self { detail, code: refusal.code, stored }
    }
}

impl<D: fmt::Display> fmt::Display for PushErrorBody<D> {
    // rule: FILE-14
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{\"error\":\"")?;
        write!(Escape(f), "{}", self.detail)?;
        words::texts(f, &["\",\"code\":\"", self.code, "\""])?;
        words::number(f, ",\"files\":", self.stored.files, "")?;
        words::number(f, ",\"bytes\":", self.stored.bytes, "}\n")
    }
}

/// Escapes what is formatted through it, for a JSON string.
struct Escape<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((plain, from)) = rest.split_at_checked(json::special(rest.as_bytes())) {
            self.0.write_str(plain)?;
            let Some((special, behind)) = from.split_at_checked(1) else { break };
            // Room for the longest escape and its quotes.
            let mut out = [0; 8];
            let mut writer = json::Writer::new(&mut out);
            writer.string(special);
            let Ok([b'"', escaped @ .., b'"']) = writer.finish() else { break };
            self.0.write_str(core::str::from_utf8(escaped).unwrap_or_default())?;
            rest = behind;
        }
        Ok(())
    }
}

/// An error's body as a client reads it; other members of a peer are ignored.
///
/// ```
/// use triwire::exec::head::ErrorRecord;
///
/// let body = b"{\"error\":\"no such sandbox\",\"code\":\"not_found\"}\n";
/// let record = ErrorRecord::parse(body).unwrap();
/// assert_eq!(record.error, "no such sandbox");
/// assert_eq!(record.code, "not_found");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRecord<'i> {
    /// The reason, for people; empty when absent.
    pub error: json::Text<'i>,
    /// The stable word for programs; empty when absent.
    pub code: json::Text<'i>,
}

impl<'i> ErrorRecord<'i> {
    /// Reads a body, whole. A body of at most [`MAX_ERROR_BODY`](super::MAX_ERROR_BODY) bytes is
    /// worth reading.
    ///
    /// # Errors
    /// [`json::Error`] when the body is not a JSON object, a member comes twice, or `error` or
    /// `code` is neither a string nor null: then a proxy has answered, and the status is all there
    /// is.
    pub fn parse(body: &'i [u8]) -> Result<Self, json::Error> {
        let mut record = Self { error: json::Text::plain(""), code: json::Text::plain("") };
        let mut seen = json::Seen::default();
        let mut reader = json::Reader::new(body)?;
        reader.begin_object()?;
        loop {
            let at = reader.at();
            let Some(name) = reader.name()? else { break };
            let Some(index) = name.index_in(&["error", "code"]) else {
                reader.value()?;
                continue;
            };
            if !seen.mark(index) {
                return Err(json::Error { at, fault: json::Fault::Repeated });
            }
            if reader.peek()? == json::Type::Null {
                reader.null()?;
                continue;
            }
            let text = reader.string()?;
            if index == 0 {
                record.error = text;
            } else {
                record.code = text;
            }
        }
        reader.end()?;
        Ok(record)
    }
}
