//! Streams of frames: what a decoder, a client and a guest make of one, judged with all of its
//! bytes at hand.

use triwire::exec::ExecError;
use triwire::exec::frame::{Decoder, Direction, Kind};
use triwire::exec::session::{Exit, Input, InputReader, Output, OutputReader};

use crate::records;

/// A fault's stable word and the byte it is at.
pub type Verdict = Result<(), (&'static str, u64)>;

/// What a stream says. Adjacent bytes of one kind are one event: cuts mean nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes of `stdout`, `stderr` or `stdin`.
    Bytes(Kind, Vec<u8>),
    /// The exit.
    Exit(Exit),
    /// The end of input.
    Close,
}

/// A whole reading: the events, then the verdict on the stream and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The events, in order.
    pub events: Vec<Event>,
    /// How it ended.
    pub ending: Verdict,
}

/// A frame: its kind, what came of its payload, and whether that is all.
pub type Frame = (Kind, Vec<u8>, bool);

fn push(events: &mut Vec<Event>, kind: Kind, new: &[u8]) {
    match events.last_mut() {
        Some(Event::Bytes(last, bytes)) if *last == kind => bytes.extend_from_slice(new),
        _ => events.push(Event::Bytes(kind, new.to_vec())),
    }
}

// ---- The model ------------------------------------------------------------------------------

/// The header at the start of `rest`, which stands `at` bytes into the stream: the kind and the
/// declared length, or the verdict.
fn header(rest: &[u8], at: usize, output: bool) -> Result<(Kind, usize), (&'static str, u64)> {
    let kind = match rest[0] {
        1 => Kind::Stdout,
        2 => Kind::Stderr,
        3 => Kind::Exit,
        4 => Kind::Stdin,
        5 => Kind::StdinClose,
        _ => return Err(("unknown_type", at as u64)),
    };
    if output != (rest[0] <= 3) {
        return Err(("wrong_direction", at as u64));
    }
    if rest.len() < 8 {
        return Err(("truncated", (at + rest.len()) as u64));
    }
    let len = u32::from_be_bytes(rest[4..8].try_into().unwrap());
    if len > 65_536 {
        return Err(("oversize", at as u64 + 4));
    }
    Ok((kind, len as usize))
}

/// The frames of a stream, the last one perhaps in part.
pub fn expected_frames(direction: Direction, stream: &[u8]) -> (Vec<Frame>, Verdict) {
    let (mut frames, mut at) = (Vec::new(), 0);
    while at < stream.len() {
        let (kind, len) = match header(&stream[at..], at, direction == Direction::GuestToHost) {
            Ok(header) => header,
            Err(verdict) => return (frames, Err(verdict)),
        };
        let came = len.min(stream.len() - at - 8);
        if came > 0 || len == 0 {
            frames.push((kind, stream[at + 8..at + 8 + came].to_vec(), came == len));
        }
        at += 8 + came;
        if came < len {
            return (frames, Err(("truncated", at as u64)));
        }
    }
    (frames, Ok(()))
}

/// What a client makes of the guest's stream with `room` bytes for the exit record; `None` where
/// the model has no opinion on that record.
#[must_use]
pub fn expected_output(stream: &[u8], room: usize) -> Option<Reading> {
    let (mut events, mut at) = (Vec::new(), 0);
    let end = stream.len() as u64;
    let ending = loop {
        if at == stream.len() {
            break Err(("missing_exit", end));
        }
        let (kind, len) = match header(&stream[at..], at, true) {
            Ok(header) => header,
            Err(verdict) => break Err(verdict),
        };
        at += 8;
        let payload = &stream[at..stream.len().min(at + len)];
        if kind == Kind::Exit && payload.len() > room {
            break Err(("exit_too_large", at as u64));
        }
        if kind != Kind::Exit && !payload.is_empty() {
            push(&mut events, kind, payload);
        }
        if payload.len() < len {
            break Err(("truncated", end));
        }
        if kind == Kind::Exit {
            let Some(result) = records::expected_result(payload).ok()? else {
                break Err(("exit_unreadable", at as u64));
            };
            events.push(Event::Exit(Exit {
                exit_code: result.exit_code,
                duration_ms: result.duration_ms,
                timed_out: result.timed_out,
                oom_killed: result.oom_killed,
            }));
            at += len;
            break if at == stream.len() { Ok(()) } else { Err(("after_exit", at as u64)) };
        }
        at += len;
    };
    Some(Reading { events, ending })
}

/// What a guest makes of the client's stream.
#[must_use]
pub fn expected_input(stream: &[u8]) -> Reading {
    let (frames, mut ending) = expected_frames(Direction::HostToGuest, stream);
    let (mut events, mut closed, mut at) = (Vec::new(), false, 0);
    for (kind, payload, whole) in frames {
        if kind == Kind::Stdin && closed {
            ending = Err(("after_stdin_close", at));
            break;
        }
        if kind == Kind::Stdin && !payload.is_empty() {
            push(&mut events, kind, &payload);
        }
        if kind == Kind::StdinClose && whole && !closed {
            closed = true;
            events.push(Event::Close);
        }
        at += 8 + payload.len() as u64;
    }
    Reading { events, ending }
}

// ---- The machines ---------------------------------------------------------------------------

fn verdict(result: Result<(), ExecError>) -> Verdict {
    result.map_err(|error| {
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("{} at byte {}: ", error.code(), error.at)));
        (error.code(), error.at)
    })
}

/// Decodes pieces, and asserts what holds for every decoder: all input is used, errors stay, and a
/// copy goes on like the original.
pub fn frames(direction: Direction, pieces: &[&[u8]]) -> (Vec<Frame>, Verdict) {
    let mut decoder = Decoder::new(direction);
    let mut frames: Vec<Frame> = Vec::new();
    for mut input in pieces.iter().copied() {
        decoder = decoder.clone();
        loop {
            match decoder.feed(&mut input) {
                Ok(None) => break assert!(input.is_empty()),
                Ok(Some(piece)) => {
                    if piece.first {
                        frames.push((piece.kind, Vec::new(), false));
                    }
                    let (kind, bytes, whole) = frames.last_mut().expect("a first piece came");
                    assert!(*kind == piece.kind && !*whole);
                    assert!(!piece.payload.is_empty() || (piece.first && piece.last));
                    bytes.extend_from_slice(piece.payload);
                    *whole = piece.last;
                }
                Err(error) => {
                    assert_eq!(decoder.feed(&mut &b"\x01\0\0\0\0\0\0\0"[..]), Err(error));
                    assert_eq!(decoder.feed(&mut &b""[..]), Err(error));
                    assert_eq!(decoder.finish(), Err(error));
                    return (frames, verdict(Err(error)));
                }
            }
        }
    }
    let ending = decoder.finish();
    assert_eq!(decoder.finish(), ending);
    if ending.is_err() {
        assert_eq!(decoder.feed(&mut &b"\0"[..]), ending.map(|()| None));
    }
    (frames, verdict(ending))
}

/// Reads the guest's stream in pieces, and asserts what holds for every reader.
#[must_use]
pub fn output(pieces: &[&[u8]], room: usize) -> Reading {
    let mut reader = OutputReader::new(vec![0; room]);
    let mut events = Vec::new();
    for mut input in pieces.iter().copied() {
        reader = reader.clone();
        loop {
            assert_eq!(reader.is_ended(), reader.result().is_some());
            match reader.feed(&mut input) {
                Ok(None) => break assert!(input.is_empty()),
                Ok(Some(Output::Stdout(bytes))) => {
                    assert!(!bytes.is_empty());
                    push(&mut events, Kind::Stdout, bytes);
                }
                Ok(Some(Output::Stderr(bytes))) => {
                    assert!(!bytes.is_empty());
                    push(&mut events, Kind::Stderr, bytes);
                }
                Ok(Some(Output::Exit(exit))) => {
                    assert_eq!(reader.result().expect("the exit was read").exit(), exit);
                    events.push(Event::Exit(exit));
                }
                Err(error) => {
                    assert_eq!(reader.feed(&mut &b"\x01\0\0\0\0\0\0\x01x"[..]), Err(error));
                    assert_eq!(reader.feed(&mut &b""[..]), Err(error));
                    assert_eq!(reader.finish(), Err(error));
                    return Reading { events, ending: verdict(Err(error)) };
                }
            }
        }
    }
    let ending = reader.finish();
    assert_eq!(reader.finish(), ending);
    if ending.is_err() {
        assert_eq!(reader.feed(&mut &b"\0"[..]), ending.map(|()| None));
    }
    Reading { events, ending: verdict(ending) }
}

/// Reads the client's stream in pieces, and asserts what holds for every reader.
#[must_use]
pub fn input(pieces: &[&[u8]]) -> Reading {
    let mut reader = InputReader::new();
    let mut events = Vec::new();
    for mut input in pieces.iter().copied() {
        reader = reader.clone();
        loop {
            match reader.feed(&mut input) {
                Ok(None) => break assert!(input.is_empty()),
                Ok(Some(Input::Stdin(bytes))) => {
                    assert!(!bytes.is_empty());
                    push(&mut events, Kind::Stdin, bytes);
                }
                Ok(Some(Input::Close)) => {
                    assert!(reader.is_closed());
                    events.push(Event::Close);
                }
                Err(error) => {
                    assert_eq!(reader.feed(&mut &b"\x04\0\0\0\0\0\0\x01x"[..]), Err(error));
                    assert_eq!(reader.feed(&mut &b""[..]), Err(error));
                    assert_eq!(reader.finish(), Err(error));
                    return Reading { events, ending: verdict(Err(error)) };
                }
            }
        }
    }
    let ending = reader.finish();
    assert_eq!(reader.finish(), ending);
    if ending.is_err() {
        assert_eq!(reader.feed(&mut &b"\0"[..]), ending.map(|()| None));
    }
    Reading { events, ending: verdict(ending) }
}
