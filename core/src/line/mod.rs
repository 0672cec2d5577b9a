//! Numbered streams over one serial line, which has no connections of its own: nothing on it
//! begins or ends, and a byte of noise must not cost more than one stream.
//!
//! A packet is the COBS coding of kind, stream, payload and CRC-16/IBM-3740 of all these, and one
//! zero byte; numbers are big-endian:
//!
//! ```text
//!        0      1        2                 n      n+2
//! +------+------+--------+-----------------+-------+------+
//! | code | kind | stream | payload …       | crc   | zero |
//! +------+------+--------+-----------------+-------+------+
//!   COBS   u8     u8       0 to 240 bytes    u16     0
//! ```
//!
//! | kind | name | payload | when |
//! | --- | --- | --- | --- |
//! | 0 | `reset` | version u8, answer u8, boot count u32, Unix ms u64 (0: unknown) | every 250 ms until one with answer 1 comes; answer 0 is answered with 1 |
//! | 1 | `open` | protocol u8, credit u16 | the gateway opens even streams, the device odd ones |
//! | 2 | `data` | sequence u8, at most 239 bytes | as far as credit allows; credit counts the bytes alone |
//! | 3 | `close` | nothing | ends both directions, after the data before it; answered with `close` |
//! | 4 | `credit` | bytes sent u32, bytes that may be sent u32 | every 250 ms for each open stream, after a broken packet, and when half of the credit is used; totals, so the next heals a lost one |
//!
//! What is lost heals or ends by name; nothing waits without an end:
//!
//! | what went wrong | what follows |
//! | --- | --- |
//! | a packet fails its check, or says nothing known | dropped and counted ([`Line::broken`]); every open stream sends its totals |
//! | data is missing | its stream ends: [`Disconnect::Skipped`] at the next data, [`Disconnect::Totals`] at the next `credit`; the others live on |
//! | nothing comes for a stream in 1 s | it ends, at both ends: [`Disconnect::Silence`] |
//! | `close` without word that all before it came | [`Disconnect::Unconfirmed`], never a clean end of a cut stream |
//! | the other end restarts | its `reset` ends all streams: [`Disconnect::Reset`] |
//! | a stream is known at one end only | the other end answers what comes for it with `close` |
//!
//! What the wire leaves open, and what this module does:
//!
//! - An open stream always has its end outstanding, so both ends send their totals for as long as
//!   it is open: a device that died is noticed while it was silent anyway.
//! - A `close` has no payload, so the totals go right before the first: only a `close` behind a `credit`
//!   that fits is [`Event::Closed`]. An end that gives a stream up sends totals that cannot fit.
//! - Numbers go round all 128 of a side, so what a stream left on the wire meets no later one.
//! - Who sends a reset has no streams; so a reset that asks ends our own asking too. Else it would
//!   end what the answer to it has just let begin.
//! - An answer to a reset that nobody waits for changes nothing: several resets may have been
//!   waiting for a device that was starting, and each is answered.
//! - A `close` of a stream that an end does not know is answered only by the end that did not open
//!   it; otherwise the two could answer each other for ever.
//!
//! A loss of exactly 256 packets of one stream in a row, or a broken packet whose check fits by
//! chance (1 in 65 536), is not seen at once; the totals show what is missing.
//!
//! # How to drive it
//!
//! Bytes go into [`Line::feed`] until it gives `None`; [`Line::poll`] tells what time ended, and
//! [`Line::write_due`] writes what the line itself has to say. Both are due at
//! [`Line::deadline`], and after each `feed`. Nothing is queued: a packet goes into `out` at once
//! or not at all, and packets go over the wire in the order in which they were written.
//!
//! ```
//! use triwire::line::{Event, Line, Packet, Protocol, Role, Slot};
//! use triwire::time::{Instant, UnixMillis};
//!
//! let now = Instant::ZERO;
//! let clock = UnixMillis::new(1_800_000_000_000); // the device has none: it learns this one
//! let mut gateway = Line::new(Role::Gateway, 0, 1_024, [Slot::EMPTY; 4]);
//! let mut device = Line::new(Role::Device, 17, 512, [Slot::EMPTY; 4]);
//! let (mut at_gateway, mut at_device) = (Packet::new(), Packet::new());
//! let mut out = [0; 256];
//!
//! // Whoever begins says so, and the other answers.
//! let wire = gateway.write_due(now, clock, &mut out)?.unwrap();
//! let event = device.feed(now, &mut &wire[..], &mut at_device);
//! assert!(matches!(event, Some(Event::Reset { wall, .. }) if wall == clock));
//! while let Some(wire) = device.write_due(now, UnixMillis::default(), &mut out)? {
//!     gateway.feed(now, &mut &wire[..], &mut at_gateway);
//! }
//! assert!(gateway.is_up() && device.is_up());
//!
//! // A stream is what a connection would be.
//! let (stream, wire) = gateway.open(now, Protocol::Http, &mut out)?;
//! let event = device.feed(now, &mut &wire[..], &mut at_device);
//! assert_eq!(event, Some(Event::Opened { stream, protocol: Protocol::Http, credit: 1_024 }));
//! let wire = device.data(now, stream, &mut &b"hello"[..], &mut out)?;
//! let event = gateway.feed(now, &mut &wire[..], &mut at_gateway);
//! assert_eq!(event, Some(Event::Data { stream, bytes: b"hello" }));
//! gateway.consumed(now, stream, 5);
//! device.close(now, stream);
//! let mut wire = device.write_due(now, clock, &mut out)?.unwrap(); // totals, and the close
//! let event = gateway.feed(now, &mut wire, &mut at_gateway);
//! assert_eq!(event, Some(Event::Credit { stream, credit: 512 }));
//! let event = gateway.feed(now, &mut wire, &mut at_gateway);
//! assert_eq!(event, Some(Event::Closed { stream }));
//! # Ok::<(), triwire::line::LineError>(())
//! ```
//!
//! # Sizes
//!
//! A [`Slot`] for each stream at once, at most 64 bytes; one [`Packet`]; an outbox of 256 bytes
//! or more, of which a full packet takes [`MAX_WIRE`]. Hold no more there than the line sends in
//! half a second: what waits longer comes late for the 1 s of [`ANSWER_BOUND`]. The window given
//! to [`Line::new`] is what each stream's receiver must be able to hold.
//!
//! A full packet carries 239 bytes in 246, so the line's own overhead is 3 %, and 14 bytes back
//! for each half of a window.

use core::fmt;
use core::time::Duration;

use crate::OutTooSmall;
use crate::time::UnixMillis;

mod machine;
mod packet;

pub use machine::{Line, Slot};
pub use packet::Packet;

/// The version of the line that a reset names.
pub const VERSION: u8 = 1;

/// The longest payload of a packet, in bytes.
pub const MAX_PAYLOAD: usize = 240;

/// The most bytes of a stream in one packet: its sequence number is payload too.
pub const MAX_DATA: usize = MAX_PAYLOAD - 1;

/// The longest packet before it is coded, in bytes.
pub const MAX_PACKET: usize = MAX_PAYLOAD + 4;

/// The longest packet on the wire, in bytes.
pub const MAX_WIRE: usize = packet::wire_len(MAX_PAYLOAD + 2);

/// How often a reset is sent until it is answered.
pub const RESET_EVERY: Duration = Duration::from_millis(250);

/// How often an open stream's totals are sent, and a close until it is answered.
pub const CREDIT_EVERY: Duration = Duration::from_millis(250);

/// How long a stream may hear nothing, and a close be without its answer.
pub const ANSWER_BOUND: Duration = Duration::from_secs(1);

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
enum Kind {
    Reset = 0,
    Open = 1,
    Data = 2,
    Close = 3,
    Credit = 4,
}

impl Kind {
    const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Reset,
            1 => Self::Open,
            2 => Self::Data,
            3 => Self::Close,
            4 => Self::Credit,
            _ => return None,
        })
    }
}

/// Which end of the line this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Role {
    /// Opens even streams.
    Gateway = 0,
    /// Opens odd streams.
    Device = 1,
}

/// What a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Protocol {
    /// One HTTP/1.1 request and its answer: an exec, a file transfer, a tool call.
    Http = 0,
    /// The channel: JSON texts, one a line.
    Channel = 1,
}

impl Protocol {
    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Http),
            1 => Some(Self::Channel),
            _ => None,
        }
    }
}

/// A stream's number on the line.
///
/// It stands for this stream from [`Line::open`] or [`Event::Opened`] until [`Event::Closed`],
/// [`Event::Disconnected`] or the own [`Line::close`], then for none until it is opened anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Stream(u8);

impl Stream {
    /// Returns the number, even when the gateway opened the stream.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Whether a reset wants an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Reset {
    /// The other end has begun anew; once [`Line::write_due`] wrote the answer, the line is up.
    Asked,
    /// The other end answered ours: the line is up.
    Answered,
}

/// What came over the line, or followed from time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Event<'p> {
    /// The other end is there and has no streams; those that were, have been told as ended.
    Reset {
        /// Whether it asks or answers.
        kind: Reset,
        /// How often it has started, by its own count.
        boot: u32,
        /// Its wall-clock time; 0 when it knows none.
        wall: UnixMillis,
    },
    /// The other end speaks another version of the line; nothing more will come of it.
    OtherVersion {
        /// The version it named; this is [`VERSION`].
        found: u8,
    },
    /// The other end opened a stream.
    Opened {
        /// Its number.
        stream: Stream,
        /// What it is to carry.
        protocol: Protocol,
        /// Bytes that may be sent on it at once.
        credit: u16,
    },
    /// Bytes of a stream, at least one; give the room back with [`Line::consumed`].
    Data {
        /// The stream.
        stream: Stream,
        /// The bytes, in the caller's [`Packet`].
        bytes: &'p [u8],
    },
    /// The other end closed the stream, and everything that it sent has come.
    Closed {
        /// The stream.
        stream: Stream,
    },
    /// More may be sent on a stream than before.
    Credit {
        /// The stream.
        stream: Stream,
        /// Bytes that may be sent now.
        credit: u32,
    },
    /// A stream ended as a broken connection does: what was sent may not have come.
    Disconnected {
        /// The stream.
        stream: Stream,
        /// What ended it.
        why: Disconnect,
    },
}

/// What ended a stream before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Disconnect {
    /// The other end restarted.
    // From 2 on, so that an empty slot is all zeros: a static of them takes no flash.
    Reset = 2,
    /// Data is missing: a packet's sequence number was not the next.
    Skipped,
    /// The totals of both ends differ, or the other end gave the stream up.
    Totals,
    /// The other end sent more than it had credit for.
    Overrun,
    /// Nothing came for [`ANSWER_BOUND`].
    Silence,
    /// The other end opened a stream of the same number.
    Replaced,
    /// The other end closed it before it sent anything: it has no free stream, or does not know
    /// this one.
    Refused,
    /// The other end closed it, but whether all that it sent came is not known.
    Unconfirmed,
    /// The line itself is gone.
    LinkDown,
}

impl Disconnect {
    /// Returns the stable word for it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Skipped => "skipped",
            Self::Totals => "totals",
            Self::Overrun => "overrun",
            Self::Silence => "silence",
            Self::Replaced => "replaced",
            Self::Refused => "refused",
            Self::Unconfirmed => "unconfirmed",
            Self::LinkDown => "link_down",
        }
    }
}

impl fmt::Display for Disconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "the other end of the line restarted",
            Self::Skipped => "a data packet was lost on the line; check its speed and flow control",
            Self::Totals => {
                "bytes were lost on the line, or its other end gave the stream up; check its speed and flow control"
            }
            Self::Overrun => "the other end of the line sent more bytes than it had credit for",
            Self::Silence => {
                "the other end of the line was silent for 1 s; is it connected and running?"
            }
            Self::Replaced => "the other end of the line opened the stream anew",
            Self::Refused => {
                "the other end of the line takes no stream now; try again when another has ended"
            }
            Self::Unconfirmed => {
                "the stream was closed while packets were lost; whether all of it came is not known"
            }
            Self::LinkDown => "the line is gone",
        })
    }
}

impl core::error::Error for Disconnect {}

/// A command that the line cannot carry out now; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum LineError {
    /// The packet does not fit into `out`.
    OutTooSmall(OutTooSmall),
    /// The other end has not answered the reset yet, or this end not the other's.
    Down,
    /// Every slot of this end is in use, if only for a close that is not answered yet.
    TooManyStreams,
    /// There is no such stream, or it has ended.
    Ended,
}

impl LineError {
    /// Returns the stable word for it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::OutTooSmall(_) => "out_too_small",
            Self::Down => "line_down",
            Self::TooManyStreams => "too_many_streams",
            Self::Ended => "stream_ended",
        }
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutTooSmall(error) => error.fmt(f),
            Self::Down => f.write_str(
                "the other end of the line has not answered; is it connected, running and at the same speed?",
            ),
            Self::TooManyStreams => {
                f.write_str("all streams of the line are in use; try again when one has ended")
            }
            Self::Ended => f.write_str("the stream has ended; open another"),
        }
    }
}

impl core::error::Error for LineError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::OutTooSmall(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OutTooSmall> for LineError {
    fn from(error: OutTooSmall) -> Self {
        Self::OutTooSmall(error)
    }
}

// The length of a packet being put together is one byte, and its largest value says "too long".
const _: () = assert!(MAX_PACKET < u8::MAX as usize && MAX_WIRE <= 256);
