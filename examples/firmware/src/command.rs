//! The commands built into this firmware. To add one: a variant of [`Command`], its line in
//! [`COMMANDS`] and [`NOT_FOUND`], and what it does in [`Command::step`] and, when it reads
//! standard input, in [`Command::stdin`].
//!
//! A command is called again and again and never waits: it writes what there is room for and
//! comes back to it. `cwd` and `env` mean nothing here.

use core::fmt::{self, Write};

use sha2::{Digest, Sha256};
use triwire::exec::frame::HEADER_SIZE;
use triwire::exec::request::ExecRequest;
use triwire::exec::session::OutputWriter;
use triwire::exec::socket::Reason;
use triwire::time::{Instant, UnixMillis};

use crate::tools::Board;

/// The names in order, and what `help` says of each.
pub const COMMANDS: [(&str, &str); 9] = [
    ("cat", "copies its input, each piece at once"),
    ("count", "N: writes the numbers from 1 to N, one a line"),
    ("echo", "WORDS: writes them"),
    ("fail", "[CODE]: fails with it, 1 unless given"),
    ("forever", "runs until its stream closes or its time is up"),
    ("help", "writes this"),
    ("sha256", "writes the checksum of its input"),
    ("stack", "writes how many bytes of stack were ever in use"),
    ("uptime", "writes the time since boot, and the time of day once known"),
];

/// What a command that is none of these is answered with.
pub const NOT_FOUND: &str = "command not found; this device knows \
    cat, count, echo, fail, forever, help, sha256, stack and uptime";

/// What a command or a tool may ask of its device.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// The time of this pass, since boot.
    pub now: Instant,
    /// The time of day, once a gateway has told it.
    pub wall: Option<UnixMillis>,
    /// What its board does.
    pub board: Board,
    /// Faults of its port.
    pub faults: u32,
    /// Packets of its line that were broken.
    pub broken: u32,
}

impl Host {
    /// Reads a register: seconds since boot, bytes of stack, faults, broken packets.
    #[must_use]
    pub fn register(&self, register: u64) -> u64 {
        match register {
            0 => self.now.as_micros() / 1_000_000,
            1 => (self.board.peak_stack)() as u64,
            2 => self.faults.into(),
            _ => self.broken.into(),
        }
    }
}

/// How a command ended of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a code of its own.
    Code(i32),
    /// It never began: there is none of that name.
    NotFound,
}

/// Where a command writes: what stands there is sent as credit allows.
#[derive(Debug)]
pub struct Out<'o> {
    writer: &'o mut OutputWriter,
    space: &'o mut [u8],
    len: usize,
}

impl<'o> Out<'o> {
    pub(crate) const fn new(writer: &'o mut OutputWriter, space: &'o mut [u8]) -> Self {
        Self { writer, space, len: 0 }
    }

    /// Returns how many bytes were framed.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns how many bytes of output fit now, as one piece.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.space.len().saturating_sub(self.len).saturating_sub(HEADER_SIZE)
    }

    /// Writes to standard output what fits, and returns how many bytes that were.
    pub fn stdout(&mut self, bytes: &[u8]) -> usize {
        let bytes = bytes.get(..self.room()).unwrap_or(bytes);
        let space = self.space.get_mut(self.len..).unwrap_or_default();
        let framed = self.writer.stdout(bytes).ok().and_then(|frames| frames.write(space).ok());
        self.len += framed.map_or(0, <[u8]>::len);
        bytes.len()
    }

    /// Writes to standard error what fits, and returns how many bytes that were.
    pub fn stderr(&mut self, bytes: &[u8]) -> usize {
        let bytes = bytes.get(..self.room()).unwrap_or(bytes);
        let space = self.space.get_mut(self.len..).unwrap_or_default();
        let framed = self.writer.stderr(bytes).ok().and_then(|frames| frames.write(space).ok());
        self.len += framed.map_or(0, <[u8]>::len);
        bytes.len()
    }

    /// Writes a short text whole or, for want of room, not at all.
    fn line(&mut self, words: fmt::Arguments<'_>) -> bool {
        let words = Reason::new(words);
        let fits = words.as_str().len() <= self.room();
        fits && self.stdout(words.as_str().as_bytes()) > 0
    }

    /// Goes on with a text of any length, of which `done` bytes are written; `true` at its end.
    fn text(&mut self, done: &mut usize, write: impl Fn(&mut Part) -> fmt::Result) -> bool {
        loop {
            let mut part = Part { skip: *done, room: self.room(), bytes: [0; PART], len: 0 };
            let ended = write(&mut part).is_ok();
            let bytes = part.bytes.get(..part.len).unwrap_or_default();
            *done += self.stdout(bytes);
            if ended || bytes.is_empty() {
                return ended;
            }
        }
    }
}

/// Bytes of a text that are put together at once.
const PART: usize = 64;

/// A part of a text that is written from its beginning each time; an error says that more follows.
struct Part {
    skip: usize,
    room: usize,
    bytes: [u8; PART],
    len: usize,
}

impl Write for Part {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let text = text.as_bytes();
        let Some(new) = text.get(self.skip..) else {
            self.skip -= text.len();
            return Ok(());
        };
        self.skip = 0;
        let end = self.room.min(PART);
        let space = self.bytes.get_mut(self.len..end).unwrap_or_default();
        for (to, from) in space.iter_mut().zip(new) {
            *to = *from;
        }
        let count = space.len().min(new.len());
        self.len += count;
        if count < new.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// A command that runs.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each is the command of its name")]
pub enum Command {
    Cat,
    Count {
        next: u32,
        last: u32,
    },
    Echo {
        done: usize,
    },
    Fail {
        code: i32,
    },
    Forever,
    Help {
        done: usize,
    },
    Sha256(Sha256),
    Stack,
    Uptime,
    /// Arguments that it cannot take; what it expects.
    Misused(&'static str),
    Unknown,
}

impl Command {
    /// Finds what a request asks for.
    #[must_use]
    pub fn of(request: &ExecRequest<'_>) -> Self {
        let mut words = request.cmd();
        let Some(name) = words.next() else { return Self::Unknown };
        let mut digits = [0; 11];
        let mut number = || match words.next() {
            Some(word) => word.decode(&mut digits).ok().and_then(|word| word.parse::<u32>().ok()),
            None => Some(1),
        };
        match name.index_in(&COMMANDS.map(|(name, _)| name)).map(|at| COMMANDS.get(at)) {
            Some(Some(("cat", _))) => Self::Cat,
            Some(Some(("count", _))) => match number() {
                Some(last) => Self::Count { next: 1, last },
                None => Self::Misused("count: expected how many lines, 0 to 4294967295\n"),
            },
            Some(Some(("echo", _))) => Self::Echo { done: 0 },
            Some(Some(("fail", _))) => match number() {
                Some(code @ 0..=255) => Self::Fail { code: code as i32 },
                _ => Self::Misused("fail: expected an exit code, 0 to 255\n"),
            },
            Some(Some(("forever", _))) => Self::Forever,
            Some(Some(("help", _))) => Self::Help { done: 0 },
            Some(Some(("sha256", _))) => Self::Sha256(Sha256::new()),
            Some(Some(("stack", _))) => Self::Stack,
            Some(Some(("uptime", _))) => Self::Uptime,
            _ => Self::Unknown,
        }
    }

    /// Returns how many bytes of standard input it takes now, given room for `room` of output.
    #[must_use]
    pub const fn appetite(&self, room: usize) -> usize {
        match self {
            Self::Cat => room,
            _ => usize::MAX,
        }
    }

    /// Takes a piece of standard input, no longer than its appetite. Who does not read it, drops
    /// it.
    pub fn stdin(&mut self, bytes: &[u8], out: &mut Out<'_>) {
        match self {
            Self::Cat => {
                out.stdout(bytes);
            }
            Self::Sha256(sum) => sum.update(bytes),
            _ => {}
        }
    }

    /// Does what there is room for; `is_closed` says that standard input has ended. Answers its
    /// end.
    pub fn step(
        &mut self,
        host: &Host,
        is_closed: bool,
        request: &ExecRequest<'_>,
        out: &mut Out<'_>,
    ) -> Option<End> {
        let done = match self {
            Self::Cat => is_closed,
            Self::Count { next, last } => {
                while *next <= *last && *next > 0 && out.line(format_args!("{next}\n")) {
                    *next = next.wrapping_add(1);
                }
                *next > *last || *next == 0
            }
            Self::Echo { done } => out.text(done, |out| {
                for (at, word) in request.cmd().skip(1).enumerate() {
                    write!(out, "{}{word}", if at > 0 { " " } else { "" })?;
                }
                out.write_str("\n")
            }),
            Self::Fail { code } => {
                let words = Reason::new(format_args!("failing with {code}, as asked\n"));
                if out.room() < words.as_str().len() {
                    return None;
                }
                out.stderr(words.as_str().as_bytes());
                return Some(End::Code(*code));
            }
            Self::Forever => false,
            Self::Help { done } => out.text(done, |out| {
                COMMANDS.iter().try_for_each(|(name, what)| writeln!(out, "{name} {what}"))
            }),
            Self::Sha256(sum) if is_closed && out.room() > 2 * Sha256::output_size() => {
                let sum = core::mem::take(sum).finalize();
                out.text(&mut 0, |out| {
                    sum.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
                    out.write_str("\n")
                })
            }
            Self::Sha256(_) => false,
            Self::Stack => out.line(format_args!("{} bytes of stack\n", (host.board.peak_stack)())),
            Self::Uptime => {
                let up = host.now.as_micros() / 1_000;
                let (s, ms) = (up / 1_000, up % 1_000);
                match host.wall {
                    Some(wall) => {
                        out.line(format_args!("up {s}.{ms:03} s, {} ms since 1970\n", wall.get()))
                    }
                    None => out.line(format_args!("up {s}.{ms:03} s, time of day unknown\n")),
                }
            }
            Self::Misused(expected) => {
                if out.room() < expected.len() {
                    return None;
                }
                out.stderr(expected.as_bytes());
                return Some(End::Code(2));
            }
            Self::Unknown => return Some(End::NotFound),
        };
        done.then_some(End::Code(0))
    }
}
