//! `frames.decode`, `frames.encode`, `frames.constants`: the codec and the session's readers.

use serde_json::{Map, Value, json};
use triwire::exec::frame::{
    Decoder, Direction, HEADER_SIZE, Kind, LENGTH_OFFSET, MAX_PAYLOAD_SIZE, RESERVED_OFFSET,
    RESERVED_SIZE, TYPE_OFFSET, head,
};
use triwire::exec::session::{
    Ended, Frames, Input as In, InputReader, InputWriter, Output, OutputReader, OutputWriter,
};
use triwire::exec::{ExecError, Fault};
use triwire_std::record::ExecResult;

use super::input::{Bad, Input, hex};

/// What a stream of frames came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The whole frames, in order; one that a reader refuses is not among them.
    pub frames: Vec<(Kind, Vec<u8>)>,
    /// Standard output, joined.
    pub stdout: Vec<u8>,
    /// Standard error, joined.
    pub stderr: Vec<u8>,
    /// Standard input, joined.
    pub stdin: Vec<u8>,
    /// How often the input ended.
    pub eof: u64,
    /// The result, once its frame was read.
    pub exit: Option<ExecResult>,
    /// The code of the fault.
    pub error: Option<&'static str>,
}

impl Decoded {
    /// Renders it as an `out`.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        let frames = self.frames.iter();
        let frames: Vec<Value> = frames
            .map(|(kind, payload)| json!({ "kind": kind.as_str(), "hex": hex(payload) }))
            .collect();
        let exit = self.exit.as_ref().map_or(Value::Null, |result| {
            serde_json::from_slice(&result.to_json()).unwrap_or_default()
        });
        let mut out = Map::new();
        out.insert("frames".into(), frames.into());
        out.insert("stdout".into(), hex(&self.stdout).into());
        out.insert("stderr".into(), hex(&self.stderr).into());
        out.insert("stdin".into(), hex(&self.stdin).into());
        out.insert("eof".into(), self.eof.into());
        out.insert("exit".into(), exit);
        out.insert("error".into(), self.error.into());
        out
    }
}

/// A session's reader, and beside it the bare decoder, which tells the frames.
pub(super) struct Recorder {
    reader: Reader,
    decoder: Decoder,
    /// Of the frame that is not whole yet.
    payload: Vec<u8>,
    offset: u64,
    decoded: Decoded,
}

enum Reader {
    Output(OutputReader<Vec<u8>>),
    Input(InputReader),
}

impl Recorder {
    pub(super) fn new(direction: Direction) -> Self {
        let reader = match direction {
            Direction::GuestToHost => Reader::Output(OutputReader::new(vec![0; MAX_PAYLOAD_SIZE])),
            Direction::HostToGuest => Reader::Input(InputReader::new()),
        };
        let decoder = Decoder::new(direction);
        Self { reader, decoder, payload: Vec::new(), offset: 0, decoded: Decoded::default() }
    }

    /// Takes bytes; after a fault they mean nothing.
    pub(super) fn feed(&mut self, chunk: &[u8]) {
        if self.decoded.error.is_some() {
            return;
        }
        let mut rest = chunk;
        let fed = loop {
            match self.step(&mut rest) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let mut used = chunk.len() - rest.len();
        if let Err(error) = fed {
            self.decoded.error = Some(error.code());
            // The frame that may not stand there is none of the stream's.
            if error.fault == Fault::AfterStdinClose {
                used = usize::try_from(error.at.saturating_sub(self.offset)).unwrap_or(0).min(used);
            }
        }
        self.tell_frames(&chunk[..used]);
        self.offset += used as u64;
    }

    /// Notes one event; `false` when there is none left.
    fn step(&mut self, rest: &mut &[u8]) -> Result<bool, ExecError> {
        let decoded = &mut self.decoded;
        match &mut self.reader {
            Reader::Output(reader) => match reader.feed(rest)? {
                Some(Output::Stdout(bytes)) => decoded.stdout.extend(bytes),
                Some(Output::Stderr(bytes)) => decoded.stderr.extend(bytes),
                Some(Output::Exit(_)) => {
                    decoded.exit = reader.result().map(|result| ExecResult::from(&result));
                }
                None => return Ok(false),
            },
            Reader::Input(reader) => match reader.feed(rest)? {
                Some(In::Stdin(bytes)) => decoded.stdin.extend(bytes),
                Some(In::Close) => decoded.eof += 1,
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    fn tell_frames(&mut self, mut bytes: &[u8]) {
        while let Ok(Some(piece)) = self.decoder.feed(&mut bytes) {
            self.payload.extend(piece.payload);
            if piece.last {
                self.decoded.frames.push((piece.kind, std::mem::take(&mut self.payload)));
            }
        }
    }

    /// Reports whether the exit was read.
    pub(super) fn is_ended(&self) -> bool {
        matches!(&self.reader, Reader::Output(reader) if reader.is_ended())
    }

    /// Judges the end of the stream.
    pub(super) fn finish(&mut self) -> Result<(), ExecError> {
        let end = match &mut self.reader {
            Reader::Output(reader) => reader.finish(),
            Reader::Input(reader) => reader.finish(),
        };
        if let Err(error) = end {
            self.fail(error.code());
        }
        end
    }

    /// Notes a fault that was found elsewhere; the first counts.
    pub(super) fn fail(&mut self, code: &'static str) {
        self.decoded.error.get_or_insert(code);
    }

    pub(super) fn decoded(self) -> Decoded {
        self.decoded
    }
}

/// Decodes `chunks`, one feed each, and the end of the stream when `end` says so.
pub fn decoded<'c>(
    direction: Direction,
    chunks: impl IntoIterator<Item = &'c [u8]>,
    end: bool,
) -> Decoded {
    let mut recorder = Recorder::new(direction);
    for chunk in chunks {
        recorder.feed(chunk);
    }
    if end {
        // The recorder has noted it.
        let _ = recorder.finish();
    }
    recorder.decoded()
}

/// Returns the direction that a fixture's word names.
#[must_use]
pub fn direction(word: &str) -> Option<Direction> {
    [Direction::GuestToHost, Direction::HostToGuest].into_iter().find(|way| way.as_str() == word)
}

pub(super) fn decode(input: Input<'_>) -> Result<Value, Bad> {
    let direction = direction(input.text("direction")?)
        .ok_or_else(|| Bad::new("in.direction: expected guest_to_host or host_to_guest"))?;
    let chunks = input.chunks()?;
    let end = input.flag("end", true)?;
    let decoded = decoded(direction, chunks.iter().map(Vec::as_slice), end);
    Ok(decoded.to_json().into())
}

pub(super) fn encode(input: Input<'_>) -> Result<Value, Bad> {
    let kind = Kind::from_word(input.text("kind")?)
        .ok_or_else(|| Bad::new("in.kind: expected stdout, stderr, exit, stdin or stdin_close"))?;
    let data = input.bytes("hex")?;
    let refused = |code: &str| Ok(json!({ "error": code }));
    let frames = match kind {
        Kind::Stdout => OutputWriter::new().stdout(&data),
        Kind::Stderr => OutputWriter::new().stderr(&data),
        Kind::Stdin => InputWriter::new().stdin(&data),
        Kind::StdinClose if data.is_empty() => {
            return match InputWriter::new().close() {
                Ok(header) => Ok(written(&header, &[0])),
                Err(Ended) => refused("after_stdin_close"),
            };
        }
        Kind::StdinClose => return refused("stdin_close_payload"),
        Kind::Exit if data.is_empty() => return Ok(written(&[], &[])),
        Kind::Exit => {
            return match head(kind, data.len()) {
                Ok(header) => Ok(written(&[&header[..], &data].concat(), &[data.len()])),
                Err(error) => refused(error.code()),
            };
        }
    };
    // A new writer refuses nothing.
    frames.map(joined).or_else(|Ended| refused("after_exit"))
}

fn joined(frames: Frames<'_>) -> Value {
    let lengths: Vec<usize> = frames.clone().map(|frame| frame.payload.len()).collect();
    let wire: Vec<u8> =
        frames.flat_map(|frame| [&frame.head[..], frame.payload].concat()).collect();
    written(&wire, &lengths)
}

fn written(wire: &[u8], lengths: &[usize]) -> Value {
    json!({ "hex": hex(wire), "lengths": lengths })
}

pub(super) fn constants(_: Input<'_>) -> Result<Value, Bad> {
    let types: Map<String, Value> =
        Kind::ALL.into_iter().map(|kind| (kind.as_str().into(), (kind as u8).into())).collect();
    Ok(json!({
        "header": {
            "size": HEADER_SIZE,
            "type_offset": TYPE_OFFSET,
            "reserved_offset": RESERVED_OFFSET,
            "reserved_len": RESERVED_SIZE,
            "len_offset": LENGTH_OFFSET,
            "len_encoding": "uint32_be",
        },
        "frame_types": types,
        "max_payload_size": MAX_PAYLOAD_SIZE,
    }))
}
