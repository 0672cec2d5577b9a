//! Who may be an executor: a page of this machine's own browser, or an environment that says hello
//! with a bearer in time.
//!
//! ```text
//! enter ──▶ Page                                    by its Origin, and its session where that is on
//!       └─▶ Hello ──feed(now, message)──▶ Presented ──settle(standing)──▶ an environment
//!             └──────── time is up ──────────┴──────────────────────────▶ Refused: sent, close 1008
//! ```
//!
//! Browsers set `Origin` on every WebSocket and let no page change it: a page of another site is
//! never a page here, whatever its name looks like. It is not refused for that, but has to say hello
//! like anyone else. What is not admitted is never given anything to answer.
//!
//! ```
//! use triwire::channel::hello::{BearerDigest, Entry, HelloBound, Session, Standing, enter};
//! use triwire::exec::head::Header;
//! use triwire::time::Instant;
//!
//! let at = Instant::from_millis;
//! let page = [Header { name: "Origin", value: b"http://localhost:8080" }];
//! let entry = enter(at(0), page, 8080, Session::Off, HelloBound::default());
//! assert!(matches!(entry, Entry::Page));
//!
//! let entry = enter(at(0), [], 8080, Session::Off, HelloBound::default());
//! let Entry::Hello(hello) = entry else { panic!() };
//! assert_eq!(hello.deadline(), at(5_000));
//! let message = br#"{"type":"hello","role":"environment","bearer":"vbx_0123"}"#;
//! let presented = hello.feed(at(40), message)?;
//! // Looked up, however long it takes; nothing more is read meanwhile.
//! let known = presented.bearer().digest() == BearerDigest::of("vbx_0123");
//! let standing = if known { Standing::Known } else { Standing::Unknown };
//! presented.settle(standing)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use core::time::Duration;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::refusal::Refusal;
use crate::OutTooSmall;
use crate::exec::head::Header;
use crate::exec::socket::Close;
use crate::json::{self, Reader, Seen, Text, Type, Writer};
use crate::time::Instant;

/// How long a connection has to say hello by default, in ms.
pub const DEFAULT_HELLO_BOUND_MS: u32 = 5_000;

/// The longest time that it can be given, in ms.
pub const MAX_HELLO_BOUND_MS: u32 = 600_000;

/// The longest hello, in bytes (our choice; the contract is silent).
pub const MAX_HELLO: usize = 16 << 10;

/// The name of the session's cookie.
pub const SESSION_COOKIE: &str = "vb_session";

/// The close code of a refused connection.
pub const CLOSE_REFUSED: u16 = 1008;

/// Reports whether an `Origin` is that of a page that this machine serves itself on `port`: equal,
/// byte for byte, to one of three.
///
/// ```
/// use triwire::channel::hello::is_local_origin;
///
/// assert!(is_local_origin(b"http://[::1]:8080", 8080));
/// assert!(!is_local_origin(b"http://localhost.evil.example:8080", 8080));
/// ```
// rule: CHAN-41
#[must_use]
pub fn is_local_origin(origin: &[u8], port: u16) -> bool {
    const NAMES: [&[u8]; 3] = [b"http://127.0.0.1:", b"http://localhost:", b"http://[::1]:"];
    let mut digits = [0; 20];
    let port = json::decimal(u64::from(port), &mut digits);
    NAMES.into_iter().any(|name| origin.strip_prefix(name) == Some(port))
}

/// Whether local pages must show a session.
#[derive(Clone, Copy)]
pub enum Session<'s> {
    /// A local `Origin` is enough.
    Off,
    /// The session's cookie must have this value; an empty one is never shown.
    On(&'s str),
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "Off",
            Self::On(_) => "On(redacted)",
        })
    }
}

impl Session<'_> {
    /// Judges the `Cookie` headers of a request: the first pair of the session's name decides.
    ///
    /// # Cost
    /// Linear in the headers; the value is compared in constant time.
    // rule: CHAN-43
    pub fn is_shown<'h>(&self, headers: impl IntoIterator<Item = Header<'h>>) -> bool {
        let Self::On(expected) = self else { return true };
        let shown = headers
            .into_iter()
            .filter(|header| header.is("cookie"))
            .flat_map(|header| header.value.split(|byte| *byte == b';'))
            .find_map(|pair| {
                let value = pair.trim_ascii().strip_prefix(SESSION_COOKIE.as_bytes())?;
                value.strip_prefix(b"=")
            });
        !expected.is_empty() && shown.is_some_and(|shown| shown.ct_eq(expected.as_bytes()).into())
    }
}

/// How long a connection has to say hello: 1 to [`MAX_HELLO_BOUND_MS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct HelloBound(u32);

impl HelloBound {
    /// Makes a bound.
    ///
    /// # Errors
    /// It is out of range.
    pub const fn from_millis(millis: u32) -> Result<Self, HelloBoundError> {
        if millis == 0 || millis > MAX_HELLO_BOUND_MS {
            Err(HelloBoundError)
        } else {
            Ok(Self(millis))
        }
    }

    /// Reads a setting: decimal digits and nothing else.
    ///
    /// # Errors
    /// It is none, or out of range.
    // rule: CHAN-46
    pub fn parse(text: &str) -> Result<Self, HelloBoundError> {
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(HelloBoundError);
        }
        text.parse().map_err(|_| HelloBoundError).and_then(Self::from_millis)
    }

    /// Returns the bound.
    #[must_use]
    pub const fn get(self) -> Duration {
        Duration::from_millis(self.0 as u64)
    }
}

impl Default for HelloBound {
    /// [`DEFAULT_HELLO_BOUND_MS`].
    fn default() -> Self {
        Self(DEFAULT_HELLO_BOUND_MS)
    }
}

/// A setting that is no [`HelloBound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct HelloBoundError;

impl fmt::Display for HelloBoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected a whole number of ms from 1 to {MAX_HELLO_BOUND_MS} for the hello")
    }
}

impl core::error::Error for HelloBoundError {}

/// How a connection is let in.
#[derive(Debug)]
#[must_use]
pub enum Entry {
    /// A local page: its messages may be read.
    Page,
    /// Anyone else: the first message must be a hello.
    Hello(Hello),
}

/// Judges an upgrade request by its headers. `port` is the one that the connection came in on.
// rule: CHAN-42
pub fn enter<'h, H>(
    now: Instant,
    headers: H,
    port: u16,
    session: Session<'_>,
    bound: HelloBound,
) -> Entry
where
    H: IntoIterator<Item = Header<'h>>,
    H::IntoIter: Clone,
{
    let headers = headers.into_iter();
    let mut origins = headers.clone().filter(|header| header.is("origin"));
    let is_local = match (origins.next(), origins.next()) {
        (Some(origin), None) => is_local_origin(origin.value, port),
        _ => false,
    };
    if is_local && session.is_shown(headers) {
        return Entry::Page;
    }
    Entry::Hello(Hello { deadline: now.saturating_add(bound.get()) })
}

/// A connection that has to say hello. Used up by its first message, which decides: there is no
/// second try.
///
/// ```compile_fail,E0382
/// # use triwire::channel::hello::Hello;
/// # use triwire::time::Instant;
/// fn again(hello: Hello, now: Instant) {
///     if hello.feed(now, b"no hello").is_err() {
///         let _ = hello.feed(now, br#"{"type":"hello","bearer":"b"}"#);
///     }
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Hello {
    deadline: Instant,
}

impl Hello {
    /// Returns when its time is up.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Refuses the connection when its time is up.
    #[must_use]
    pub fn poll(&self, now: Instant) -> Option<Refused> {
        (now >= self.deadline).then_some(Refused(Refusal::ExecutorUnauthenticated))
    }

    /// Takes the first message, text or binary.
    ///
    /// # Errors
    /// It came too late, or is no hello: `executor-unauthenticated`; its bearer is no text that
    /// could have been issued: `bearer-refused`.
    // rule: CHAN-44, CHAN-45, CHAN-47
    pub fn feed(self, now: Instant, message: &[u8]) -> Result<Presented<'_>, Refused> {
        if let Some(refused) = self.poll(now) {
            return Err(refused);
        }
        match read(message) {
            Ok(Some(Some(bearer))) => Ok(Presented { bearer: Bearer(bearer) }),
            Ok(Some(None)) => Err(Refused(Refusal::BearerRefused)),
            Ok(None) | Err(_) => Err(Refused(Refusal::ExecutorUnauthenticated)),
        }
    }
}

/// Reads a hello; its bearer, when that is a text that could have been issued.
fn read(message: &[u8]) -> Result<Option<Option<Text<'_>>>, json::Error> {
    const MEMBERS: [&str; 3] = ["type", "role", "bearer"];
    if message.len() > MAX_HELLO {
        return Ok(None);
    }
    let mut reader = Reader::new(message)?;
    let mut seen = Seen::NONE;
    let (mut is_hello, mut is_environment, mut bearer) = (false, true, None);
    reader.begin_object()?;
    while let Some(name) = reader.name()? {
        let known = name.index_in(&MEMBERS);
        if known.is_some_and(|index| !seen.mark(index)) {
            return Ok(None);
        }
        let text = match reader.peek()? {
            Type::String => Some(reader.string()?),
            _ => {
                reader.value()?;
                None
            }
        };
        match known {
            Some(0) => is_hello = text.is_some_and(|text| text == "hello"),
            Some(1) => is_environment = text.is_some_and(|text| text == "environment"),
            Some(_) => bearer = text,
            None => {}
        }
    }
    reader.end()?;
    let bearer = bearer.filter(|bearer| !bearer.is_empty() && bearer.is_well_formed());
    Ok((is_hello && is_environment).then_some(bearer))
}

/// Writes the hello of an environment, its first message, into `out` and returns the part it takes.
///
/// # Errors
/// [`OutTooSmall`] with the bytes needed: 49 and the bearer, as it is escaped.
// rule: CHAN-71
pub fn write_hello<'o>(bearer: &str, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall> {
    let mut writer = Writer::new(out);
    writer.begin_object();
    writer.name("type");
    writer.string("hello");
    writer.name("role");
    writer.string("environment");
    writer.name("bearer");
    writer.string(bearer);
    writer.end_object();
    writer.finish()
}

/// What a server tells an executor before it closes.
///
/// ```
/// use triwire::channel::hello::{Refused, Told};
/// use triwire::channel::refusal::Refusal;
///
/// let mut out = [0; 200];
/// let message = Refused(Refusal::Replaced).write(&mut out)?;
/// let told = Told::parse(message).ok_or("a call, or nothing of the contract's")?;
/// assert!(told.refused == "replaced" && told.is_final());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<'i> {
    /// The word, one of [`Refusal`]'s or a later one.
    pub refused: Text<'i>,
    /// For people.
    pub why: Text<'i>,
}

impl<'i> Told<'i> {
    /// Reads a message that is no call; `None` when it is no refusal either.
    // rule: CHAN-72
    #[must_use]
    pub fn parse(message: &'i [u8]) -> Option<Self> {
        let mut reader = Reader::new(message).ok()?;
        let (mut is_refused, mut refused, mut why) = (false, None, None);
        reader.begin_object().ok()?;
        while let Some(name) = reader.name().ok()? {
            let text = match reader.peek().ok()? {
                Type::String => Some(reader.string().ok()?),
                _ => {
                    reader.value().ok()?;
                    None
                }
            };
            if name == "type" {
                is_refused = text.is_some_and(|text| text == "refused");
            } else if name == "refused" {
                refused = text.filter(|text| !text.is_empty());
            } else if name == "why" {
                why = text;
            }
        }
        reader.end().ok()?;
        let refused = refused.filter(|_| is_refused)?;
        Some(Self { refused, why: why.unwrap_or(Text::plain("")) })
    }

    /// Reports whether the next try would be refused as well, or would take the chair from who
    /// holds it now.
    // rule: CHAN-72
    #[must_use]
    pub fn is_final(&self) -> bool {
        let last = [Refusal::BearerRefused, Refusal::PairingRevoked, Refusal::Replaced];
        last.iter().any(|refusal| self.refused == refusal.as_str())
    }
}

/// A hello whose bearer has to be looked up. Used up by what is found, once.
///
/// ```compile_fail,E0382
/// # use triwire::channel::hello::{Presented, Standing};
/// fn again(presented: Presented<'_>) {
///     if presented.settle(Standing::Revoked).is_err() {
///         let _ = presented.settle(Standing::Known);
///     }
/// }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Presented<'i> {
    bearer: Bearer<'i>,
}

impl<'i> Presented<'i> {
    /// Returns the bearer, as it was sent: nothing is trimmed.
    pub const fn bearer(&self) -> Bearer<'i> {
        self.bearer
    }

    /// Ends the hello with what the pairings say.
    ///
    /// # Errors
    /// The connection is not let in.
    // rule: CHAN-48
    pub const fn settle(self, standing: Standing) -> Result<(), Refused> {
        match standing {
            Standing::Known => Ok(()),
            Standing::Unknown => Err(Refused(Refusal::BearerRefused)),
            Standing::Revoked => Err(Refused(Refusal::PairingRevoked)),
            Standing::Unreadable => Err(Refused(Refusal::PairingListUnreadable)),
        }
    }
}

/// What the pairings say about a bearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Standing {
    /// It was issued, and holds.
    Known,
    /// It was never issued.
    Unknown,
    /// It was issued and revoked.
    Revoked,
    /// The pairings cannot be read.
    Unreadable,
}

/// A bearer that was presented: not empty, and secret.
#[derive(Clone, Copy)]
#[must_use]
pub struct Bearer<'i>(Text<'i>);

impl Bearer<'_> {
    /// Digests the bearer, for the comparison with those that were issued.
    pub fn digest(&self) -> BearerDigest {
        let mut hash = Sha256::new();
        match self.0.as_str() {
            Some(plain) => hash.update(plain),
            None => {
                for c in self.0.chars().flatten() {
                    hash.update(c.encode_utf8(&mut [0; 4]));
                }
            }
        }
        BearerDigest(hash.finalize().into())
    }
}

impl fmt::Debug for Bearer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(redacted)")
    }
}

/// SHA-256 of a bearer. Two are compared in constant time.
#[derive(Clone, Copy)]
pub struct BearerDigest([u8; 32]);

impl BearerDigest {
    /// Digests a bearer that was issued.
    #[must_use]
    pub fn of(bearer: &str) -> Self {
        Self(Sha256::digest(bearer).into())
    }

    /// Takes a digest that was kept.
    #[must_use]
    pub const fn from_bytes(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// Returns the digest, to be kept.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl ConstantTimeEq for BearerDigest {
    fn ct_eq(&self, other: &Self) -> Choice {
        self.0.as_slice().ct_eq(other.0.as_slice())
    }
}

impl PartialEq for BearerDigest {
    fn eq(&self, other: &Self) -> bool {
        self.ct_eq(other).into()
    }
}

impl Eq for BearerDigest {}

impl fmt::Debug for BearerDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerDigest(redacted)")
    }
}

/// A connection that is not, or no longer, an executor: it is told, then closed.
///
/// Also for one that was: `Refused(Refusal::Replaced)`, `Refused(Refusal::PairingRevoked)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub struct Refused(pub Refusal);

impl Refused {
    /// Writes the text message into `out` and returns the part it takes, at most 200 bytes.
    ///
    /// # Errors
    /// [`OutTooSmall`] with the bytes needed.
    // rule: CHAN-49
    pub fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall> {
        let mut writer = Writer::new(out);
        writer.begin_object();
        writer.name("type");
        writer.string("refused");
        writer.name("refused");
        writer.string(self.0.as_str());
        writer.name("why");
        writer.string(self.0.why());
        writer.end_object();
        writer.finish()
    }

    /// Returns the close that follows: [`CLOSE_REFUSED`] with the word as its reason.
    #[must_use]
    pub fn close(&self) -> Close {
        Close::new(CLOSE_REFUSED, self.0.as_str())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl core::error::Error for Refused {}
