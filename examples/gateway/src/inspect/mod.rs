//! `triwire inspect`: a recorded stream as people read it.
//!
//! The stream is read once, in constant memory: at most one frame is held. Two machines of the core
//! see the same bytes: the decoder tells the frames, the session's reader judges their order.

mod render;

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use triwire::exec::frame::{Decoder, Direction, HEADER_SIZE, Kind, MAX_PAYLOAD_SIZE};
use triwire::exec::result::ExecResult;
use triwire::exec::session::{InputReader, OutputReader};
use triwire::exec::{ExecError, Fault};

use crate::cli::InspectArgs;
use crate::failure::{Failure, Outcome};
use render::{Json, People, Render};

/// The exit code for a stream that breaks the contract.
const STATUS_INVALID: u8 = 1;
const CHUNK: usize = 64 * 1024;

/// A frame, or what is there of one that was cut.
struct Frame<'f> {
    /// Where its header begins in the stream, in bytes.
    at: u64,
    kind: Kind,
    payload: &'f [u8],
    /// The declared length, where it is longer than what is there.
    declared: usize,
    result: Option<ExecResult<'f>>,
}

/// What the whole stream came to.
struct Summary {
    direction: Direction,
    frames: u64,
    bytes: u64,
    error: Option<ExecError>,
}

pub(crate) fn run(args: &InspectArgs) -> Outcome {
    let mut input: Box<dyn Read> = if args.file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let path = args.file.display();
        match File::open(&args.file) {
            Ok(file) => Box::new(file),
            Err(error) => return Err(Failure::new(format!("{path} cannot be opened: {error}"))),
        }
    };
    let stdout = io::stdout();
    let people = People::new(&stdout, args.full);
    let mut out = BufWriter::with_capacity(CHUNK, stdout.lock());
    let shown = if args.json {
        inspect(&mut input, args.direction.map(Into::into), &mut out, &mut Json)
    } else {
        inspect(&mut input, args.direction.map(Into::into), &mut out, &mut { people })
    };
    match shown.and_then(|valid| out.flush().map(|()| valid).map_err(Stop::Output)) {
        Ok(true) => Ok(0),
        Ok(false) => Ok(STATUS_INVALID),
        Err(Stop::Output(error)) => Failure::output(&error),
        Err(Stop::Input(error)) => {
            Err(Failure::new(format!("{} cannot be read: {error}", args.file.display())))
        }
    }
}

/// Why the stream was not read to its end.
enum Stop {
    Input(io::Error),
    Output(io::Error),
}

/// Shows the stream and answers whether it keeps the contract.
fn inspect(
    input: &mut impl Read,
    direction: Option<Direction>,
    out: &mut impl Write,
    render: &mut impl Render,
) -> Result<bool, Stop> {
    let mut chunk = vec![0; CHUNK].into_boxed_slice();
    let mut len = read(input, &mut chunk)?;
    let direction = direction.unwrap_or_else(|| match chunk[..len].first() {
        Some(byte) => Kind::from_byte(*byte).map_or(Direction::GuestToHost, Kind::direction),
        None => Direction::GuestToHost,
    });
    let mut reader = StreamReader::new(direction);
    render.begin(direction, out).map_err(Stop::Output)?;
    let mut error = None;
    while len > 0 && error.is_none() {
        let mut rest = &chunk[..len];
        while !rest.is_empty() && error.is_none() {
            error = reader.feed(&mut rest).err();
            // An exit that cannot be read is worth a look; any other fault is before its frame.
            if error.is_none_or(|error| matches!(error.fault, Fault::ExitUnreadable(_))) {
                if let Some(frame) = reader.frame(false) {
                    render.frame(&frame, out).map_err(Stop::Output)?;
                }
                reader.next_frame();
            }
        }
        if error.is_none() {
            len = read(input, &mut chunk)?;
        }
    }
    if error.is_none()
        && let Err(ending) = reader.finish()
    {
        error = Some(ending);
        if let Some(frame) = reader.frame(true) {
            render.frame(&frame, out).map_err(Stop::Output)?;
        }
    }
    let summary =
        Summary { direction, frames: reader.frames, bytes: reader.decoder.offset(), error };
    render.end(&summary, out).map_err(Stop::Output)?;
    Ok(error.is_none())
}

fn read(input: &mut impl Read, chunk: &mut [u8]) -> Result<usize, Stop> {
    loop {
        match input.read(chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map_err(Stop::Input),
        }
    }
}

/// Both machines, and the frame that stands at the reading point.
struct StreamReader {
    decoder: Decoder,
    order: Order,
    /// The last frame's beginning, kind and payload so far.
    at: u64,
    kind: Option<Kind>,
    payload: Vec<u8>,
    whole: bool,
    missing: usize,
    frames: u64,
}

enum Order {
    Output(Box<OutputReader<Box<[u8]>>>),
    Input(InputReader),
}

impl StreamReader {
    fn new(direction: Direction) -> Self {
        let order = match direction {
            Direction::GuestToHost => {
                let storage = vec![0; MAX_PAYLOAD_SIZE].into_boxed_slice();
                Order::Output(Box::new(OutputReader::new(storage)))
            }
            Direction::HostToGuest => Order::Input(InputReader::new()),
        };
        Self {
            decoder: Decoder::new(direction),
            order,
            at: 0,
            kind: None,
            payload: Vec::with_capacity(MAX_PAYLOAD_SIZE),
            whole: false,
            missing: 0,
            frames: 0,
        }
    }

    /// Takes at most the rest of one frame.
    fn feed(&mut self, rest: &mut &[u8]) -> Result<(), ExecError> {
        // Nothing behind the exit is a frame any more.
        if let Order::Output(reader) = &mut self.order
            && reader.is_ended()
        {
            return reader.feed(rest).map(drop);
        }
        let before = *rest;
        let piece = self.decoder.feed(rest)?;
        if let Some(piece) = piece {
            let taken = piece.payload.len() as u64 + HEADER_SIZE as u64;
            if piece.first {
                self.at = self.decoder.offset() - taken;
            }
            self.kind = Some(piece.kind);
            self.payload.extend_from_slice(piece.payload);
            self.whole = piece.last;
        }
        let mut used = &before[..before.len() - rest.len()];
        match &mut self.order {
            Order::Output(reader) => while reader.feed(&mut used)?.is_some() {},
            Order::Input(reader) => while reader.feed(&mut used)?.is_some() {},
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), ExecError> {
        let ending = match &mut self.order {
            Order::Output(reader) => reader.finish(),
            Order::Input(reader) => reader.finish(),
        };
        if let Err(ExecError { fault: Fault::Truncated { missing }, .. }) = ending {
            self.missing = missing as usize;
        }
        ending
    }

    /// Lends the frame once it is whole, or what there is of it when nothing more will come.
    fn frame(&self, last: bool) -> Option<Frame<'_>> {
        let kind = self.kind.filter(|_| self.whole || last)?;
        let result = match &self.order {
            Order::Output(reader) if kind == Kind::Exit && self.whole => reader.result(),
            _ => None,
        };
        let declared = self.payload.len() + self.missing;
        Some(Frame { at: self.at, kind, payload: &self.payload, declared, result })
    }

    /// Lets go of a frame that was whole.
    fn next_frame(&mut self) {
        if self.whole {
            self.frames += 1;
            self.whole = false;
            self.kind = None;
            self.payload.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use triwire::exec::session::OutputWriter;

    use super::*;

    fn shown(stream: &[u8], json: bool) -> (bool, String) {
        /// Gives one byte at a time, as slow as a reader can be.
        struct Drip<'s>(&'s [u8]);
        impl Read for Drip<'_> {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                let len = self.0.len().min(1);
                out[..len].copy_from_slice(&self.0[..len]);
                self.0 = &self.0[len..];
                Ok(len)
            }
        }
        let mut outs = Vec::new();
        let mut valid = Vec::new();
        for drip in [false, true] {
            let mut out = Vec::new();
            let mut input: Box<dyn Read> =
                if drip { Box::new(Drip(stream)) } else { Box::new(stream) };
            let got = if json {
                inspect(&mut input, None, &mut out, &mut Json)
            } else {
                inspect(&mut input, None, &mut out, &mut People::plain())
            };
            valid.push(got.unwrap_or_else(|_| panic!("memory does not fail")));
            outs.push(String::from_utf8(out).unwrap());
        }
        assert_eq!(outs[0], outs[1], "the cuts of the reads show");
        assert_eq!(valid[0], valid[1]);
        (valid[0], outs.remove(0))
    }

    fn session() -> Vec<u8> {
        let mut writer = OutputWriter::new();
        let (mut a, mut b) = ([0; 64], [0; 128]);
        let mut stream = writer.stdout(b"\x1b[2Jhello\n").unwrap().write(&mut a).unwrap().to_vec();
        stream.extend_from_slice(writer.stderr(b"\xff\x00").unwrap().write(&mut a).unwrap());
        let result = ExecResult { exit_code: 3, duration_ms: 12, ..ExecResult::default() };
        stream.extend_from_slice(writer.exit(&result, &mut b).unwrap());
        stream
    }

    #[test]
    fn a_good_stream_is_shown_frame_by_frame() {
        let (valid, text) = shown(&session(), false);
        assert!(valid);
        assert!(text.contains("\\u{1b}[2Jhello\\n"), "{text}");
        assert!(text.contains("ff 00") && text.contains("exit code 3"), "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn a_cut_anywhere_is_told_at_its_byte() {
        let stream = session();
        for cut in 0..stream.len() {
            let (valid, text) = shown(&stream[..cut], false);
            assert!(!valid, "{cut}");
            assert!(text.contains(&format!("at byte {cut}")), "{cut}: {text}");
        }
    }

    #[test]
    fn a_byte_behind_the_exit_is_invalid() {
        let mut stream = session();
        let at = stream.len();
        stream.extend_from_slice(b"\x01\0\0\0\0\0\0\0");
        let (valid, text) = shown(&stream, false);
        assert!(!valid && text.contains(&format!("after_exit at byte {at}")), "{text}");
    }

    #[test]
    fn json_lines_hold_payload_and_summary() {
        let (valid, text) = shown(&session(), true);
        assert!(valid);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["text"], "\x1b[2Jhello\n");
        assert_eq!(lines[1]["hex"], "ff00");
        assert_eq!(lines[2]["result"]["exit_code"], 3);
        assert_eq!(lines[3]["frames"], 3);
        assert_eq!(lines[3]["error"], serde_json::Value::Null);
    }

    #[test]
    fn the_first_byte_tells_the_direction() {
        let stream = b"\x04\0\0\0\0\0\0\x02hi\x05\0\0\0\0\0\0\0";
        let (valid, text) = shown(stream, false);
        assert!(valid && text.contains("host_to_guest"), "{text}");
    }
}
