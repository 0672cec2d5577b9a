use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use triwire::exec::body::BodyError;
use triwire::exec::head::HeadError;
use triwire::exec::request::MAX_REQUEST_BODY;
use triwire::exec::result::STATUS_FAILURE;
use triwire::exec::socket::{Close, Lost, LostCause};
use triwire::exec::{ExecError, Fault};

use crate::exchange::NoAnswer;
#[cfg(feature = "tls")]
use crate::tls::TlsError;
use crate::tokio::socket;

/// Why a command could not be asked for, or how its session failed.
///
/// What was handed out before stays good. A copy shares the inner error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The server's URL cannot be used.
    Url(UrlError),
    /// Live input was asked for over the one-shot transport, which carries none. Nothing was sent.
    InteractiveOneShot,
    /// The request's JSON is longer than any server takes. Nothing was sent.
    RequestTooLarge {
        /// Bytes of the JSON.
        len: usize,
    },
    /// The operating system gave no randomness for the WebSocket key.
    Entropy(Arc<io::Error>),
    /// Our head cannot be written (nothing was sent), or the server's cannot be taken.
    Head(HeadError),
    /// There is no connection to the server.
    Connect {
        /// The server's URL.
        url: String,
        /// Why.
        source: Arc<io::Error>,
    },
    /// The server did not take the connection in time.
    ConnectTimeout {
        /// The server's URL.
        url: String,
        /// How long was waited.
        after: Duration,
    },
    /// The server could not be trusted, or does not speak TLS.
    #[cfg(feature = "tls")]
    Tls {
        /// The server's URL.
        url: String,
        /// Why; [`rustls::Error`] is its inner error where TLS itself failed.
        source: Arc<io::Error>,
    },
    /// There is nobody to trust.
    #[cfg(feature = "tls")]
    Roots(TlsError),
    /// The connection ended before the answer's head was whole.
    NoAnswer {
        /// What ended it, unless the server closed it in order.
        source: Option<Arc<io::Error>>,
    },
    /// The server answered with an HTTP error; no command ran.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The stable word in the answer's body, empty when it had none.
        code: String,
        /// The answer's own words, on one line; empty when it had none.
        why: String,
    },
    /// The answer's body breaks HTTP, or ended before the exit frame.
    Body(BodyError),
    /// The stream of frames breaks the contract, or ended without an exit frame.
    Exec(ExecError),
    /// The connection failed before the exit frame: the command was lost.
    Connection {
        /// What is wrong with the stream of frames, ended there.
        fault: ExecError,
        /// What ended it.
        source: Arc<io::Error>,
    },
    /// The WebSocket was closed, or just ended, before the exit frame.
    Closed(Box<Lost>),
    /// The server sent a message that may not be; it was answered with this close.
    Message(Box<Close>),
    /// The server broke the rules of WebSocket.
    Socket(socket::Fault),
    /// The output is longer than the limit given to `collect`.
    TooMuchOutput {
        /// That limit, in bytes.
        limit: usize,
    },
    /// The source of standard input could not be read.
    Stdin(Arc<io::Error>),
}

/// Why a URL is not a server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UrlError {
    /// It is no URL.
    Malformed(url::ParseError),
    /// `https`, and TLS is not built in: that needs the feature `tls`.
    Tls,
    /// Neither `http` nor `https`.
    Scheme,
    /// It holds a user name or a password.
    Credentials,
    /// It holds a query or a fragment.
    Query,
}

impl ClientError {
    /// Returns the stable word for programs: the codes of the frame stream (`missing_exit`,
    /// `truncated`, …), of heads and bodies, the server's own when it refused and gave one.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Url(_) => "bad_url",
            Self::InteractiveOneShot => "interactive_one_shot",
            Self::RequestTooLarge { .. } => "request_too_large",
            Self::Entropy(_) => "entropy",
            Self::Head(error) => error.code(),
            Self::Connect { .. } => "connect",
            Self::ConnectTimeout { .. } => "connect_timeout",
            #[cfg(feature = "tls")]
            Self::Tls { source, .. } if has_unknown_issuer(source) => "tls_unknown_issuer",
            #[cfg(feature = "tls")]
            Self::Tls { .. } => "tls",
            #[cfg(feature = "tls")]
            Self::Roots(_) => "tls_roots",
            Self::NoAnswer { .. } => "no_answer",
            Self::Refused { code, .. } if !code.is_empty() => code,
            Self::Refused { .. } => "refused",
            Self::Body(error) => error.code(),
            Self::Exec(error) | Self::Connection { fault: error, .. } => error.code(),
            Self::Closed(lost) => lost.fault.code(),
            Self::Message(_) | Self::Socket(_) => "websocket_protocol",
            Self::TooMuchOutput { .. } => "too_much_output",
            Self::Stdin(_) => "stdin",
        }
    }

    /// Returns the code with which a client's own process ends: always the one for failures that
    /// are not the command's.
    // rule: EXEC-46
    #[must_use]
    pub const fn status(&self) -> u8 {
        STATUS_FAILURE
    }

    /// Reports whether a command may have run whose outcome is now unknown.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let cut =
            |fault: &ExecError| matches!(fault.fault, Fault::MissingExit | Fault::Truncated { .. });
        match self {
            Self::Exec(fault) => cut(fault),
            Self::Body(error) => error.is_early_end(),
            Self::Connection { .. } => true,
            Self::Closed(lost) => Lost::cause(lost) == LostCause::CommandLost && cut(&lost.fault),
            _ => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::InteractiveOneShot => f.write_str(
                "the one-shot transport carries no live input; use WebSocket or the hijack",
            ),
            Self::RequestTooLarge { len } => write!(
                f,
                "the request takes {len} bytes, servers take at most {MAX_REQUEST_BODY}; \
                 send data over stdin instead of arguments"
            ),
            Self::Entropy(source) => {
                write!(f, "no randomness for the WebSocket key from the system: {source}")
            }
            Self::Head(error) => error.fmt(f),
            Self::Connect { url, source } if source.kind() == io::ErrorKind::ConnectionRefused => {
                write!(f, "nothing listens at {url}; is the gateway running there?")
            }
            Self::Connect { url, source } => {
                write!(f, "no connection to {url}: {source}; check the URL's host and port")
            }
            Self::ConnectTimeout { url, after } => write!(
                f,
                "no connection to {url} within {} ms; check the host, the port and the firewall",
                after.as_millis()
            ),
            #[cfg(feature = "tls")]
            Self::Tls { url, source } => untrusted(f, url, source),
            #[cfg(feature = "tls")]
            Self::Roots(error) => error.fmt(f),
            Self::NoAnswer { source: Some(source) } => {
                write!(f, "the connection failed before the server answered: {source}")
            }
            Self::NoAnswer { source: None } => f.write_str(
                "the server closed the connection without an answer; \
                 check that the URL is a gateway's and that http or https is right",
            ),
            // A gateway names what it does not know.
            Self::Refused { status: 404, code, .. } if code.is_empty() => f.write_str(
                "no gateway answers at this path; check the URL, and the proxy before it \
                 (status 404)",
            ),
            Self::Refused { status, why, .. } => {
                write!(f, "{}", advice(*status))?;
                if why.is_empty() {
                    write!(f, " (status {status})")
                } else {
                    write!(f, " (status {status}: {why})")
                }
            }
            Self::Body(error) if error.is_early_end() => {
                write!(f, "the command was lost, its outcome is unknown: {error}")
            }
            Self::Body(error) => error.fmt(f),
            Self::Exec(error) => error.fmt(f),
            Self::Connection { fault, source } => {
                write!(f, "the connection failed ({source}): {fault}")
            }
            Self::Closed(lost) => lost.fmt(f),
            Self::Message(close) => write!(f, "the server broke the contract: {}", close.reason),
            Self::Socket(fault) => write!(f, "the server sent {fault}"),
            Self::TooMuchOutput { limit } => write!(
                f,
                "the command wrote more than {limit} bytes; raise the limit, or read it as it comes"
            ),
            Self::Stdin(source) => write!(f, "standard input cannot be read: {source}"),
        }
    }
}

/// Reports whether nobody whom this end trusts signed the server's certificate.
#[cfg(feature = "tls")]
fn has_unknown_issuer(source: &io::Error) -> bool {
    use rustls::{CertificateError, Error as TlsFault};

    let inner = source.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(TlsFault::InvalidCertificate(CertificateError::UnknownIssuer)))
}

/// What a failed handshake means, and what to do about it.
#[cfg(feature = "tls")]
fn untrusted(f: &mut fmt::Formatter<'_>, url: &str, source: &io::Error) -> fmt::Result {
    use rustls::{CertificateError, Error as TlsFault};

    let inner = source.get_ref().and_then(|inner| inner.downcast_ref());
    let advice = match inner {
        Some(TlsFault::InvalidCertificate(fault)) => match fault {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "nobody whom this end trusts signed its certificate; give the CA that did"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name; use a name that stands in it"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired; renew it, or correct this machine's clock"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet; correct this machine's clock"
            }
            _ => "its certificate is not acceptable; check it",
        },
        Some(TlsFault::InvalidMessage(_)) => {
            "what answers there speaks no TLS; if it is plain HTTP, use http://"
        }
        _ => "the TLS handshake failed; check that TLS is spoken there",
    };
    write!(f, "{url} cannot be trusted: {advice} ({source})")
}

/// What an HTTP error means to the one who asked, and what to do about it.
const fn advice(status: u16) -> &'static str {
    match status {
        400 => "the server refused the request as malformed",
        401 => "the server does not know the key; check the key file",
        403 => {
            "the server does not answer to this host name; use its own address, or add the name to its `hosts`"
        }
        404 => "there is no such sandbox; check its name",
        405 | 501 => "the server does not do this; try another transport",
        413 => "the request is too large for the server; send data over stdin",
        415 => "the server does not take JSON here; check that the URL is a gateway's",
        426 => {
            "the server wants a WebSocket upgrade that did not reach it; check the proxy before it, or use another transport"
        }
        431 => "the request's head is too large for the server; check the key",
        502 => "the server cannot reach the sandbox; check that it runs",
        503 => "the server is going away or has no room; try again later",
        500..=599 => "the server failed; see its log",
        300..=399 => "the server points elsewhere; give its final URL",
        _ => "the server's answer is not one of the contract's; check that the URL is a gateway's",
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Url(error) => Some(error),
            Self::Head(error) => Some(error),
            Self::Body(error) => Some(error),
            Self::Exec(error) => Some(error),
            Self::Closed(lost) => Some(&**lost),
            Self::Message(close) => Some(&**close),
            Self::Socket(fault) => Some(fault),
            #[cfg(feature = "tls")]
            Self::Tls { source, .. } => Some(&**source),
            #[cfg(feature = "tls")]
            Self::Roots(error) => Some(error),
            Self::Entropy(source)
            | Self::Connect { source, .. }
            | Self::NoAnswer { source: Some(source) }
            | Self::Connection { source, .. }
            | Self::Stdin(source) => Some(&**source),
            _ => None,
        }
    }
}

impl From<HeadError> for ClientError {
    fn from(error: HeadError) -> Self {
        Self::Head(error)
    }
}

impl From<NoAnswer> for ClientError {
    fn from(error: NoAnswer) -> Self {
        match error {
            NoAnswer::Head(error) => Self::Head(error),
            NoAnswer::Ended(source) => Self::NoAnswer { source: source.map(Arc::new) },
        }
    }
}

impl From<BodyError> for ClientError {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl From<ExecError> for ClientError {
    fn from(error: ExecError) -> Self {
        Self::Exec(error)
    }
}

impl From<UrlError> for ClientError {
    fn from(error: UrlError) -> Self {
        Self::Url(error)
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(
                f,
                "the server's URL is malformed ({error}); it looks like http://127.0.0.1:7878"
            ),
            Self::Tls => {
                f.write_str("https is not built in; build with the feature `tls` of triwire-std")
            }
            Self::Scheme => f.write_str("the server's URL must begin with http:// or https://"),
            Self::Credentials => {
                f.write_str("the server's URL holds a user name or a password; give the key apart")
            }
            Self::Query => f.write_str("the server's URL must not hold a query or a fragment"),
        }
    }
}

impl Error for UrlError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Malformed(error) => Some(error),
            _ => None,
        }
    }
}
