//! Rules of the WebSocket transport, for both ends: what a message means and how it ends.
//!
//! ```text
//! client                                server
//!   | first message: the request, ≤ 1 MiB |   none within 30 s, or refused: 1008
//!   |------------------------------------>|   sandbox out of reach: 1011
//!   | binary messages, joined: frames     |   text: 1003 · frame fault: 1002
//!   |<----------------------------------->|   over 1 MiB: 1009 · not UTF-8: 1007
//!   |        exit frame, then close 1000  |
//!   |<------------------------------------|   without an exit frame the command was lost
//! ```
//!
//! Messages come from a WebSocket library, which answers pings and joins fragments.
//!
//! ```
//! use triwire::exec::socket::{Event, Message, ServerSocket};
//! use triwire::time::Instant;
//!
//! let now = Instant::ZERO;
//! let mut socket = ServerSocket::new(now);
//! let request = br#"{"cmd":["cat"]}"#;
//! assert_eq!(socket.feed(now, Message::Text(request)), Ok(Event::Request(request)));
//! assert_eq!(socket.feed(now, Message::Binary(b"\x04\0")), Ok(Event::Frames(b"\x04\0")));
//! let close = socket.feed(now, Message::Text(b"hello")).unwrap_err();
//! assert_eq!(close.code, 1003);
//! ```

use core::fmt::{self, Write as _};
use core::time::Duration;

use super::ExecError;
use crate::time::Instant;

/// Bytes of a message, at most, in both directions.
pub const MAX_SOCKET_MESSAGE: usize = 1 << 20;

/// How long after the upgrade the request may take to come.
pub const FIRST_MESSAGE_BOUND: Duration = Duration::from_secs(30);

/// How often the server writes a ping, which is how it notices that a silent client is gone.
pub const PING_EVERY: Duration = Duration::from_secs(20);

/// Bytes of a close reason, at most: a control frame has 125, two of them are the code.
pub const MAX_CLOSE_REASON: usize = 123;

/// A message, whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'m> {
    /// A text message's bytes.
    Text(&'m [u8]),
    /// A binary message's bytes.
    Binary(&'m [u8]),
}

impl<'m> Message<'m> {
    const fn payload(self) -> &'m [u8] {
        match self {
            Self::Text(payload) | Self::Binary(payload) => payload,
        }
    }
}

/// The words of a close frame, cut to [`MAX_CLOSE_REASON`] bytes on a character boundary.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    bytes: [u8; MAX_CLOSE_REASON],
    len: u8,
}

impl Reason {
    /// No words.
    pub const EMPTY: Self = Self { bytes: [0; MAX_CLOSE_REASON], len: 0 };

    /// Formats the words; what does not fit is left out.
    ///
    /// ```
    /// use triwire::exec::socket::Reason;
    ///
    /// let words = format!("{}😀", "a".repeat(122));
    /// assert_eq!(Reason::new(&words).as_str(), "a".repeat(122));
    /// ```
    #[must_use]
    pub fn new(words: impl fmt::Display) -> Self {
        // rule: EXEC-28
        let mut reason = Self::EMPTY;
        // It fails when the words are cut, which ends the formatting early.
        let _ = write!(reason, "{words}");
        reason
    }

    /// Returns the words.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl fmt::Write for Reason {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let start = usize::from(self.len);
        let kept = start_of(text, MAX_CLOSE_REASON.saturating_sub(start));
        let room = self.bytes.get_mut(start..).unwrap_or_default();
        if let Some(to) = room.get_mut(..kept.len()) {
            to.copy_from_slice(kept.as_bytes());
            let end = start.saturating_add(kept.len());
            self.len = u8::try_from(end).unwrap_or(self.len);
        }
        if kept.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the longest start of `text` that has at most `max` bytes and ends between characters.
fn start_of(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    while end > 0 && !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

/// A close frame: to be sent, or one that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// The status code.
    pub code: u16,
    /// The words.
    pub reason: Reason,
}

impl Close {
    /// Makes a close frame of any code, such as one that came.
    #[must_use]
    pub fn new(code: u16, reason: impl fmt::Display) -> Self {
        Self { code, reason: Reason::new(reason) }
    }

    /// 1000: the exit frame was delivered.
    #[must_use]
    pub const fn normal() -> Self {
        Self { code: 1000, reason: Reason::EMPTY }
    }

    /// 1001: this end goes away before a command was started.
    #[must_use]
    pub fn going_away(why: impl fmt::Display) -> Self {
        Self::new(1001, why)
    }

    /// 1002: the peer broke the WebSocket protocol, or that of the frames; `fault` names the code
    /// and the byte.
    #[must_use]
    pub fn protocol(fault: impl fmt::Display) -> Self {
        Self::new(1002, fault)
    }

    /// 1003: a text message where only binary ones carry frames.
    #[must_use]
    pub fn text() -> Self {
        Self::new(1003, "text message after the request; send frames as binary messages")
    }

    /// 1007: a text message is not UTF-8.
    #[must_use]
    pub fn not_utf8() -> Self {
        Self::new(1007, "text message is not UTF-8; send it as UTF-8 or as a binary message")
    }

    /// 1008: the request is refused; `why` names the member.
    #[must_use]
    pub fn refused(why: impl fmt::Display) -> Self {
        Self::new(1008, why)
    }

    /// 1008: no request came in time.
    #[must_use]
    pub fn no_request() -> Self {
        Self::new(
            1008,
            format_args!(
                "no request within {} s of the upgrade; send it as the first message",
                FIRST_MESSAGE_BOUND.as_secs()
            ),
        )
    }

    /// 1009: a message is too large.
    #[must_use]
    pub fn too_large() -> Self {
        Self::new(
            1009,
            format_args!("message of more than {MAX_SOCKET_MESSAGE} bytes; send smaller ones"),
        )
    }

    /// 1011: the sandbox cannot be reached.
    #[must_use]
    pub fn unreachable(why: impl fmt::Display) -> Self {
        Self::new(1011, why)
    }
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "close {}", self.code)?;
        if !self.reason.as_str().is_empty() {
            write!(f, ": {}", self.reason)?;
        }
        Ok(())
    }
}

impl core::error::Error for Close {}

/// What a client's message means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'m> {
    /// The first message: the request's JSON. Refuse it with [`ServerSocket::refuse`].
    Request(&'m [u8]),
    /// The next bytes of the client's frame stream, whose messages carry no boundaries.
    Frames(&'m [u8]),
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No message yet.
    Waiting,
    Open,
    /// The close was decided.
    Closed(Close),
}

/// The server's end of an upgraded connection.
///
/// Every way to close is decided once: the first close is the one that [`feed`](Self::feed) and
/// later closing calls give again, and what the client still sends means nothing.
#[derive(Clone, Copy, Debug)]
pub struct ServerSocket {
    state: State,
    opened: Instant,
}

impl ServerSocket {
    /// Begins, `now` being the time of the upgrade.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { state: State::Waiting, opened: now }
    }

    /// Takes one message.
    ///
    /// # Errors
    /// The [`Close`] to send, again at every later call: 1008 when the first message comes too
    /// late, 1009, 1007, 1003.
    pub fn feed<'m>(&mut self, now: Instant, message: Message<'m>) -> Result<Event<'m>, Close> {
        self.settle(now);
        let payload = message.payload();
        match (self.state, message) {
            (State::Closed(close), _) => Err(close),
            // rule: EXEC-29
            _ if payload.len() > MAX_SOCKET_MESSAGE => Err(self.close(Close::too_large())),
            // rule: EXEC-24
            (State::Waiting, Message::Text(text)) if core::str::from_utf8(text).is_err() => {
                Err(self.close(Close::not_utf8()))
            }
            (State::Waiting, _) => {
                self.state = State::Open;
                Ok(Event::Request(payload))
            }
            // rule: EXEC-27
            (State::Open, Message::Text(_)) => Err(self.close(Close::text())),
            // rule: EXEC-25
            (State::Open, Message::Binary(_)) => Ok(Event::Frames(payload)),
        }
    }

    /// Tells whether time has closed the connection: the [`Close`] to send.
    pub fn poll(&mut self, now: Instant) -> Option<Close> {
        if matches!(self.state, State::Waiting) {
            self.settle(now);
            if let State::Closed(close) = self.state {
                return Some(close);
            }
        }
        None
    }

    /// Returns when to call [`poll`](Self::poll): while the request has not come.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Waiting => Some(self.opened.saturating_add(FIRST_MESSAGE_BOUND)),
            State::Open | State::Closed(_) => None,
        }
    }

    /// Refuses the request: 1008.
    pub fn refuse(&mut self, why: impl fmt::Display) -> Close {
        self.close(Close::refused(why))
    }

    /// Gives up on a sandbox that cannot be reached: 1011.
    pub fn unreachable(&mut self, why: impl fmt::Display) -> Close {
        // rule: EXEC-26
        self.close(Close::unreachable(why))
    }

    /// Ends over a fault in the client's frames: 1002, without an exit frame.
    pub fn frame_fault(&mut self, fault: impl fmt::Display) -> Close {
        // rule: EXEC-30
        self.close(Close::protocol(fault))
    }

    /// Ends behind the exit frame: 1000.
    pub fn finished(&mut self) -> Close {
        // rule: EXEC-26
        self.close(Close::normal())
    }

    /// Ends with `close`, unless another close came first; returns the one that counts. For what a
    /// WebSocket library finds wrong, and for a server that goes away.
    pub fn close(&mut self, close: Close) -> Close {
        if let State::Closed(first) = self.state {
            return first;
        }
        self.state = State::Closed(close);
        close
    }

    /// Lets time have its effect first: a message that comes at the bound is late.
    fn settle(&mut self, now: Instant) {
        // rule: EXEC-24
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.state = State::Closed(Close::no_request());
        }
    }
}

/// The client's end of an upgraded connection.
///
/// ```
/// use triwire::exec::session::{Output, OutputReader};
/// use triwire::exec::socket::{ClientSocket, Close, LostCause, Message};
///
/// let mut socket = ClientSocket::new();
/// let mut output = OutputReader::new([0; 256]);
/// let mut bytes = socket.feed(Message::Binary(b"\x01\0\0\0\0\0\0\x02ok")).unwrap();
/// assert_eq!(output.feed(&mut bytes).unwrap(), Some(Output::Stdout(b"ok")));
/// socket.closed(Close::new(1011, "guest did not answer"));
/// let lost = socket.finish(output.finish()).unwrap_err();
/// assert_eq!(lost.fault.code(), "missing_exit");
/// assert_eq!(lost.cause(), LostCause::Unreachable);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientSocket {
    /// What we close with.
    ours: Option<Close>,
    /// What the server closed with.
    theirs: Option<Close>,
}

impl ClientSocket {
    /// Begins after the upgrade; the request is the first message to send.
    #[must_use]
    pub const fn new() -> Self {
        Self { ours: None, theirs: None }
    }

    /// Takes one message and returns the next bytes of the server's frame stream.
    ///
    /// # Errors
    /// The [`Close`] to send, again at every later call: 1003 for a text message, 1009.
    pub fn feed<'m>(&mut self, message: Message<'m>) -> Result<&'m [u8], Close> {
        let close = match (self.ours, message) {
            (Some(close), _) => close,
            // rule: EXEC-29
            _ if message.payload().len() > MAX_SOCKET_MESSAGE => Close::too_large(),
            // rule: EXEC-27
            (None, Message::Text(_)) => {
                Close::new(1003, "text message from the server; frames are binary")
            }
            // rule: EXEC-25
            (None, Message::Binary(payload)) => return Ok(payload),
        };
        self.ours = Some(close);
        Err(close)
    }

    /// Notes the close frame that came; the first counts.
    pub fn closed(&mut self, close: Close) {
        self.theirs = self.theirs.or(Some(close));
    }

    /// Judges the end of the connection by that of the frame stream: only an exit frame is
    /// success, and no close code is, not even 1000.
    ///
    /// # Errors
    /// [`Lost`], with the stream's own error, when that did not end with an exit frame.
    #[expect(
        clippy::result_large_err,
        reason = "once a connection, and there is no heap to box on"
    )]
    pub fn finish(&self, stream: Result<(), ExecError>) -> Result<(), Lost> {
        // rule: EXEC-26
        stream.map_err(|fault| Lost { fault, close: self.theirs })
    }
}

/// A WebSocket connection that ended without an exit frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// What is wrong with the frame stream.
    pub fault: ExecError,
    /// The close frame that came, if one did.
    pub close: Option<Close>,
}

/// What the server's close code says about a command that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum LostCause {
    /// 1008: the request was refused, no command ran.
    Refused,
    /// 1011: the sandbox cannot be reached.
    Unreachable,
    /// 1002, 1003, 1007 or 1009: the server found a fault in what we sent.
    OurFault,
    /// Anything else, or no close frame.
    CommandLost,
}

impl Lost {
    /// Returns what the server's close code says.
    #[must_use]
    pub fn cause(&self) -> LostCause {
        match self.close.map(|close| close.code) {
            Some(1008) => LostCause::Refused,
            Some(1011) => LostCause::Unreachable,
            Some(1002 | 1003 | 1007 | 1009) => LostCause::OurFault,
            _ => LostCause::CommandLost,
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause() {
            LostCause::Refused => f.write_str("the server refused the request")?,
            LostCause::Unreachable => f.write_str("the sandbox cannot be reached")?,
            LostCause::OurFault => f.write_str("the server found a fault in what was sent")?,
            LostCause::CommandLost => f.write_str("the command was lost")?,
        }
        match self.close {
            Some(close) => write!(f, " ({close}): {}", self.fault),
            None => write!(f, " (no close frame came): {}", self.fault),
        }
    }
}

impl core::error::Error for Lost {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.fault)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::arithmetic_side_effects)]

    extern crate std;

    use std::string::{String, ToString};
    use std::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::exec::session::OutputReader;

    const REQUEST: &[u8] = b"{\"cmd\":[\"cat\"]}";

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn the_request_comes_first_and_in_time() {
        // rule: EXEC-24
        for message in [Message::Text(REQUEST), Message::Binary(REQUEST)] {
            let mut socket = ServerSocket::new(at(5));
            assert_eq!(socket.deadline(), Some(at(30_005)));
            assert_eq!(socket.poll(at(30_004)), None);
            assert_eq!(socket.feed(at(30_004), message), Ok(Event::Request(REQUEST)));
            assert_eq!(socket.deadline(), None);
            assert_eq!(socket.poll(at(1_000_000)), None);
        }
        let mut polled = ServerSocket::new(at(0));
        let close = polled.poll(at(30_000)).unwrap();
        assert_eq!((close.code, close), (1008, Close::no_request()));
        assert_eq!(polled.poll(at(30_000)), None);
        // Whether or not it was polled, what comes at the bound is late.
        let mut fed = ServerSocket::new(at(0));
        assert_eq!(fed.feed(at(30_000), Message::Text(REQUEST)), Err(close));
        assert_eq!(polled.feed(at(30_000), Message::Text(REQUEST)), Err(close));
        assert_eq!(fed.feed(at(30_001), Message::Binary(b"")), Err(close));
    }

    #[test]
    fn messages_after_the_request_are_frames() {
        // rule: EXEC-25
        let mut socket = ServerSocket::new(at(0));
        socket.feed(at(0), Message::Text(REQUEST)).unwrap();
        for part in [&b"\x04\0\0"[..], b"", b"\0\0\0\0\x01x\x05"] {
            assert_eq!(socket.feed(at(1), Message::Binary(part)), Ok(Event::Frames(part)));
        }
        // rule: EXEC-27
        let close = socket.feed(at(1), Message::Text(b"x")).unwrap_err();
        assert_eq!(close.code, 1003);
        assert_eq!(socket.feed(at(1), Message::Binary(b"x")), Err(close));
        assert_eq!(socket.finished(), close);
    }

    #[test]
    fn large_and_broken_messages() {
        // rule: EXEC-29
        let large = vec![b' '; MAX_SOCKET_MESSAGE + 1];
        let mut socket = ServerSocket::new(at(0));
        assert_eq!(socket.feed(at(0), Message::Text(&large)).unwrap_err().code, 1009);
        let mut socket = ServerSocket::new(at(0));
        let fits = Message::Binary(large.get(1..).unwrap());
        assert!(matches!(socket.feed(at(0), fits), Ok(Event::Request(_))));
        assert_eq!(socket.feed(at(0), Message::Binary(&large)).unwrap_err().code, 1009);
        let mut client = ClientSocket::new();
        assert_eq!(client.feed(Message::Binary(&large)).unwrap_err().code, 1009);
        // rule: EXEC-24
        let mut socket = ServerSocket::new(at(0));
        assert_eq!(socket.feed(at(0), Message::Text(b"{\"\xff\"")).unwrap_err().code, 1007);
    }

    #[test]
    fn closes_have_their_codes_and_the_first_counts() {
        let open = || {
            let mut socket = ServerSocket::new(at(0));
            socket.feed(at(0), Message::Text(REQUEST)).unwrap();
            socket
        };
        // rule: EXEC-17
        assert_eq!(
            open().refuse("cmd: expected a list").to_string(),
            "close 1008: cmd: expected a list"
        );
        // rule: EXEC-26
        assert_eq!(open().unreachable("no guest").code, 1011);
        assert_eq!(open().finished(), Close::normal());
        // rule: EXEC-30
        let mut input = crate::exec::session::InputReader::new();
        let fault = input.feed(&mut &b"\x09\0\0\0\0\0\0\0"[..]).unwrap_err();
        let close = open().frame_fault(fault);
        assert_eq!(close.code, 1002);
        assert!(close.reason.as_str().starts_with("unknown_type at byte 0"), "{close}");
        let mut socket = open();
        let first = socket.unreachable("no guest");
        assert_eq!(socket.finished(), first);
        assert_eq!(socket.close(Close::going_away("bye")), first);
        // rule: EXEC-61
        assert_eq!(open().close(Close::going_away("bye")).code, 1001);
    }

    #[test]
    fn only_an_exit_frame_is_success() {
        // rule: EXEC-26
        let mut client = ClientSocket::new();
        client.closed(Close::normal());
        let mut output = OutputReader::new([0; 64]);
        let lost = client.finish(output.finish()).unwrap_err();
        assert_eq!(lost.cause(), LostCause::CommandLost);
        assert_eq!(lost.fault.code(), "missing_exit");
        assert!(lost.to_string().contains("close 1000"), "{lost}");
        assert_eq!(client.finish(Ok(())), Ok(()));
        for (code, cause) in [
            (1008, LostCause::Refused),
            (1011, LostCause::Unreachable),
            (1002, LostCause::OurFault),
            (1006, LostCause::CommandLost),
        ] {
            let mut client = ClientSocket::new();
            client.closed(Close::new(code, "why"));
            client.closed(Close::normal());
            let mut output = OutputReader::new([0; 64]);
            let lost = client.finish(output.finish()).unwrap_err();
            assert_eq!(lost.cause(), cause);
            assert!(lost.to_string().contains("why"));
        }
    }

    #[test]
    fn text_from_the_server_is_a_protocol_error() {
        // rule: EXEC-27
        let mut client = ClientSocket::new();
        assert_eq!(client.feed(Message::Binary(b"ab")), Ok(&b"ab"[..]));
        let close = client.feed(Message::Text(b"ab")).unwrap_err();
        assert_eq!(close.code, 1003);
        assert_eq!(client.feed(Message::Binary(b"ab")), Err(close));
    }

    #[test]
    fn reasons_are_cut_between_characters() {
        // rule: EXEC-28
        let long = "é".repeat(5_000);
        assert_eq!(Reason::new(&long).as_str(), "é".repeat(61));
        let words = "a".repeat(122) + "😀";
        assert_eq!(Reason::new(&words).as_str(), "a".repeat(122));
        // Nothing is taken after the cut, even if it would fit.
        assert_eq!(Reason::new(format_args!("{words}b")).as_str(), "a".repeat(122));
        for close in [Close::text(), Close::not_utf8(), Close::no_request(), Close::too_large()] {
            assert!(close.reason.as_str().len() < MAX_CLOSE_REASON, "{close}");
        }
    }

    proptest! {
        #[test]
        fn a_reason_is_the_start_of_its_words(parts in proptest::collection::vec(".{0,40}", 0..8)) {
            // rule: EXEC-28
            let words: String = parts.concat();
            let reason = Reason::new(&words);
            prop_assert!(words.starts_with(reason.as_str()));
            prop_assert!(reason.as_str().len() <= MAX_CLOSE_REASON);
            let next = words.chars().nth(reason.as_str().chars().count());
            let fits = |c: char| reason.as_str().len() + c.len_utf8() <= MAX_CLOSE_REASON;
            prop_assert!(!next.is_some_and(fits));
        }
    }
}
