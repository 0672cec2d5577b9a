//! The checks that take raw bytes, one for each fuzz target and of the same name.

use triwire::exec::body::Framing;
use triwire::exec::frame::{Direction, Kind};
use triwire::exec::request::write_request;
use triwire::exec::result::ExecResult;
use triwire::exec::session::{InputWriter, MAX_EXIT_FRAME, OutputWriter};

use crate::cuts::same_in_every_cut;
use crate::frames::{self, Event};
use crate::{body, heads, json, records};

/// A check: its target's name, and what it does with an input.
pub type Check = (&'static str, fn(&[u8]));

/// All checks.
pub const ALL: [Check; 7] = [
    ("exec_request", exec_request),
    ("exec_result", exec_result),
    ("frames_decode", frames_decode),
    ("http_body", http_body),
    ("http_head", http_head),
    ("json_reader", json::check),
    ("session", session),
];

/// Takes the first byte off, 0 when there is none.
fn byte(data: &mut &[u8]) -> u8 {
    let Some((first, rest)) = data.split_first() else { return 0 };
    *data = rest;
    *first
}

fn half(data: &mut &[u8]) -> u16 {
    u16::from_le_bytes([byte(data), byte(data)])
}

/// The decoder against the model, in both directions: the size of pieces, then the stream.
pub fn frames_decode(mut data: &[u8]) {
    let size = byte(&mut data);
    for direction in [Direction::GuestToHost, Direction::HostToGuest] {
        let read = same_in_every_cut(data, size, |pieces| frames::frames(direction, pieces));
        assert_eq!(read, frames::expected_frames(direction, data));
    }
}

/// Both readers against the models, and what was read written and read again: the size of pieces,
/// a fourth of the room for the exit record, then the stream.
pub fn session(mut data: &[u8]) {
    let size = byte(&mut data);
    let room = usize::from(byte(&mut data)) * 4;
    let output = same_in_every_cut(data, size, |pieces| frames::output(pieces, room));
    if let Some(expected) = frames::expected_output(data, room) {
        assert_eq!(output, expected);
    }
    let input = same_in_every_cut(data, size, frames::input);
    assert_eq!(input, frames::expected_input(data));
    if output.ending.is_ok() {
        let wire = written(&output.events);
        assert_eq!(frames::output(&[&wire], MAX_EXIT_FRAME), output);
    }
    if input.ending.is_ok() {
        let wire = written(&input.events);
        assert_eq!(frames::input(&[&wire]), input);
    }
}

/// Writes events with the writers of the sending ends.
fn written(events: &[Event]) -> Vec<u8> {
    let (mut output, mut input) = (OutputWriter::new(), InputWriter::new());
    let mut wire = Vec::new();
    for event in events {
        let frames = match event {
            Event::Bytes(Kind::Stdout, bytes) => output.stdout(bytes),
            Event::Bytes(Kind::Stderr, bytes) => output.stderr(bytes),
            Event::Bytes(_, bytes) => input.stdin(bytes),
            Event::Exit(exit) => {
                let result = ExecResult {
                    exit_code: exit.exit_code,
                    duration_ms: exit.duration_ms,
                    timed_out: exit.timed_out,
                    oom_killed: exit.oom_killed,
                    ..ExecResult::default()
                };
                let mut out = vec![0; MAX_EXIT_FRAME];
                wire.extend_from_slice(output.exit(&result, &mut out).expect("the first exit"));
                continue;
            }
            Event::Close => {
                wire.extend_from_slice(&input.close().expect("the first close"));
                continue;
            }
        };
        for frame in frames.expect("nothing follows the end") {
            wire.extend_from_slice(&frame.head);
            wire.extend_from_slice(frame.payload);
        }
    }
    wire
}

/// Bodies against the model: the size of pieces, a length, whether there is a limit, the limit if
/// so, then the wire.
pub fn http_body(mut data: &[u8]) {
    let size = byte(&mut data);
    let length = u64::from(half(&mut data));
    let limit = if byte(&mut data) & 1 == 1 { u64::from(half(&mut data)) } else { u64::MAX };
    for framing in [Framing::Chunked, Framing::ToEnd, Framing::Length(length)] {
        let read = same_in_every_cut(data, size, |pieces| body::read(framing, limit, pieces));
        assert_eq!(read, body::expected(framing, limit, data));
    }
}

/// Heads of requests and responses: the size of pieces, then the wire.
pub fn http_head(mut data: &[u8]) {
    let size = usize::from(byte(&mut data)).max(1);
    heads::check_request(size, data);
    heads::check_response(size, data);
}

/// A request against serde_json, and what was read written and read again.
pub fn exec_request(body: &[u8]) {
    let read = records::read_request(body);
    if let Ok(expected) = records::expected_request(body) {
        assert_eq!(read, expected);
    }
    if let Some(request) = read {
        let mut out = vec![0; body.len() * 6 + 64];
        let records::Request { cmd, env, cwd, timeout_s } = &request;
        let written = write_request(cmd, env, cwd, *timeout_s, &mut out).expect("room for it");
        assert_eq!(records::read_request(written), Some(request));
    }
}

/// A result against serde_json, and what was read written and read again, also shortened.
pub fn exec_result(record: &[u8]) {
    let read = records::read_result(record);
    if let Ok(expected) = records::expected_result(record) {
        assert_eq!(read, expected);
    }
    let Ok(result) = ExecResult::parse(record) else { return };
    let _ = result.status();
    let mut out = vec![0; record.len() * 6 + 1024];
    let written = result.write(&mut out).expect("room for it");
    assert_eq!(records::read_result(written), read);

    let limit = 640;
    let mut room = vec![0; limit];
    let short = result.shortened(limit).write(&mut room).expect("it fits");
    let short = records::read_result(short).expect("ours");
    assert!(result.error.to_string().starts_with(&short.error));
    assert!(result.signal.to_string().starts_with(&short.signal));
}
