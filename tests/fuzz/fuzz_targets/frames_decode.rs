#![no_main]
//! Any cut of a stream gives the same events and the same ending, and what was read can be written
//! and read again.

use libfuzzer_sys::fuzz_target;
use triwire::exec::ExecError;
use triwire::exec::frame::{Decoder, Direction, Kind};
use triwire::exec::session::{
    Exit, Input, InputReader, InputWriter, MAX_EXIT_FRAME, Output, OutputReader, OutputWriter,
};
use triwire_fuzz::same_in_every_cut;

type Frame = (Kind, Vec<u8>, bool);

fn frames(direction: Direction, pieces: &[&[u8]]) -> (Vec<Frame>, Result<(), ExecError>) {
    let mut decoder = Decoder::new(direction);
    let mut frames: Vec<Frame> = Vec::new();
    for mut input in pieces.iter().copied() {
        loop {
            match decoder.feed(&mut input) {
                Ok(None) => break assert!(input.is_empty()),
                Ok(Some(piece)) => {
                    if piece.first {
                        frames.push((piece.kind, Vec::new(), false));
                    }
                    let (kind, bytes, whole) = frames.last_mut().expect("a first piece came");
                    assert!(*kind == piece.kind && !*whole);
                    bytes.extend_from_slice(piece.payload);
                    *whole = piece.last;
                }
                Err(error) => {
                    assert_eq!(decoder.feed(&mut &b"\x01"[..]), Err(error), "errors stay");
                    assert_eq!(decoder.finish(), Err(error), "errors stay");
                    return (frames, Err(error));
                }
            }
        }
    }
    (frames, decoder.finish())
}

/// Adjacent output of one stream is one entry: cuts mean nothing.
#[derive(Debug, PartialEq)]
enum Event {
    Bytes(Kind, Vec<u8>),
    Exit(Exit),
    Close,
}

fn push(events: &mut Vec<Event>, kind: Kind, new: &[u8]) {
    assert!(!new.is_empty());
    match events.last_mut() {
        Some(Event::Bytes(last, bytes)) if *last == kind => bytes.extend_from_slice(new),
        _ => events.push(Event::Bytes(kind, new.to_vec())),
    }
}

fn output(pieces: &[&[u8]]) -> (Vec<Event>, Result<(), ExecError>) {
    let mut reader = OutputReader::new(vec![0; 4096]);
    let mut events = Vec::new();
    for mut input in pieces.iter().copied() {
        loop {
            match reader.feed(&mut input) {
                Ok(None) => break assert!(input.is_empty()),
                Ok(Some(Output::Stdout(bytes))) => push(&mut events, Kind::Stdout, bytes),
                Ok(Some(Output::Stderr(bytes))) => push(&mut events, Kind::Stderr, bytes),
                Ok(Some(Output::Exit(exit))) => {
                    assert_eq!(reader.result().expect("the exit was read").exit(), exit);
                    events.push(Event::Exit(exit));
                }
                Err(error) => {
                    assert_eq!(reader.finish(), Err(error), "errors stay");
                    return (events, Err(error));
                }
            }
        }
    }
    (events, reader.finish())
}

fn input(pieces: &[&[u8]]) -> (Vec<Event>, Result<(), ExecError>) {
    let mut reader = InputReader::new();
    let mut events = Vec::new();
    for mut input in pieces.iter().copied() {
        loop {
            match reader.feed(&mut input) {
                Ok(None) => break assert!(input.is_empty()),
                Ok(Some(Input::Stdin(bytes))) => push(&mut events, Kind::Stdin, bytes),
                Ok(Some(Input::Close)) => events.push(Event::Close),
                Err(error) => {
                    assert_eq!(reader.finish(), Err(error), "errors stay");
                    return (events, Err(error));
                }
            }
        }
    }
    (events, reader.finish())
}

/// Writes the events with the writers of the sending end.
fn written(events: &[Event], exit: &triwire::exec::result::ExecResult<'_>) -> Vec<u8> {
    let (mut output, mut input) = (OutputWriter::new(), InputWriter::new());
    let mut wire = Vec::new();
    for event in events {
        let frames = match event {
            Event::Bytes(Kind::Stdout, bytes) => output.stdout(bytes),
            Event::Bytes(Kind::Stderr, bytes) => output.stderr(bytes),
            Event::Bytes(_, bytes) => input.stdin(bytes),
            Event::Exit(_) => {
                let mut out = vec![0; MAX_EXIT_FRAME];
                wire.extend_from_slice(output.exit(exit, &mut out).expect("it was read"));
                continue;
            }
            Event::Close => {
                wire.extend_from_slice(&input.close().expect("it closes once"));
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

fuzz_target!(|case: (u8, &[u8])| {
    let (size, data) = case;
    for direction in [Direction::GuestToHost, Direction::HostToGuest] {
        same_in_every_cut(data, size, |pieces| frames(direction, pieces));
    }
    let (events, ending) = same_in_every_cut(data, size, output);
    if ending.is_ok() {
        let mut reader = OutputReader::new(vec![0; 4096]);
        let mut rest = data;
        while let Ok(Some(_)) = reader.feed(&mut rest) {}
        let wire = written(&events, &reader.result().expect("it ended well"));
        assert_eq!(output(&[&wire]), (events, ending));
    }
    let (events, ending) = same_in_every_cut(data, size, input);
    if ending.is_ok() {
        let wire = written(&events, &triwire::exec::result::ExecResult::default());
        assert_eq!(input(&[&wire]), (events, ending));
    }
});
