//! What a whole stream of frames means, for both ends and both directions.
//!
//! | | reads | writes |
//! | --- | --- | --- |
//! | client | [`OutputReader`]: stdout, stderr, one exit | [`InputWriter`]: stdin, its end |
//! | guest | [`InputReader`] | [`OutputWriter`] |
//!
//! The readers hold the order of frames: nothing behind the exit, no stdin behind its end, and a
//! stream without an exit is a lost command, never a success. The writers cut what is longer than
//! a frame and write nothing for nothing.
//!
//! ```
//! use triwire::exec::result::ExecResult;
//! use triwire::exec::session::{Output, OutputReader, OutputWriter};
//!
//! // The guest's end.
//! let (mut chunk, mut last) = ([0; 64], [0; 128]);
//! let mut writer = OutputWriter::new();
//! let output = writer.stdout(b"hello\n")?.write(&mut chunk)?;
//! let result = ExecResult { exit_code: 3, duration_ms: 12, ..ExecResult::default() };
//! let exit = writer.exit(&result, &mut last)?;
//!
//! // The client's end, whatever the cuts.
//! let mut reader = OutputReader::new([0; 512]);
//! let stream = [output, exit].concat();
//! for mut input in stream.chunks(5) {
//!     while let Some(event) = reader.feed(&mut input)? {
//!         match event {
//!             Output::Stdout(bytes) => print!("{}", String::from_utf8_lossy(bytes)),
//!             Output::Stderr(bytes) => eprint!("{}", String::from_utf8_lossy(bytes)),
//!             Output::Exit(exit) => assert_eq!(exit.exit_code, 3),
//!         }
//!     }
//! }
//! reader.finish()?;
//! assert_eq!(reader.result().unwrap().duration_ms, 12);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;

use super::frame::{Decoder, Direction, HEADER_SIZE, Kind, MAX_PAYLOAD_SIZE, head};
use super::result::ExecResult;
use super::{ExecError, Fault};
use crate::OutTooSmall;

/// Most bytes that an exit frame takes on the wire, its header included.
pub const MAX_EXIT_FRAME: usize = 65_544;
const _: () = assert!(MAX_EXIT_FRAME == HEADER_SIZE.saturating_add(MAX_PAYLOAD_SIZE));

/// What the guest's stream says, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<'i> {
    /// The next bytes of standard output; never empty, and the cuts mean nothing.
    Stdout(&'i [u8]),
    /// The next bytes of standard error; never empty, and the cuts mean nothing.
    Stderr(&'i [u8]),
    /// The command's end; nothing follows. [`OutputReader::result`] has the whole record.
    Exit(Exit),
}

/// How the command ended, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Exit {
    /// The command's exit code; -1 when it has none (killed, timed out, never started).
    pub exit_code: i32,
    /// How long it ran, in ms.
    pub duration_ms: u64,
    /// Whether its deadline ended it.
    pub timed_out: bool,
    /// Whether the system ended it for want of memory.
    pub oom_killed: bool,
}

/// Reads the guest's stream: the client's end.
///
/// `S` holds the exit record while it arrives: [`MAX_PAYLOAD_SIZE`] bytes hold any, 512 hold what
/// guests write when nothing went wrong. All other payload is handed on as slices of the input.
#[derive(Clone, Debug)]
pub struct OutputReader<S> {
    decoder: Decoder,
    storage: S,
    /// Bytes of the exit record in `storage`.
    len: usize,
    /// Whether the record is whole and was answered; what follows it takes nothing of that back.
    exited: bool,
    ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Open,
    Exited,
    Failed(ExecError),
}

impl<S: AsRef<[u8]> + AsMut<[u8]>> OutputReader<S> {
    /// Makes a reader that assembles the exit record in `storage`.
    pub const fn new(storage: S) -> Self {
        let decoder = Decoder::new(Direction::GuestToHost);
        Self { decoder, storage, len: 0, exited: false, ending: Ending::Open }
    }

    /// Takes bytes and answers the next event, advancing `input` past what it used; `Ok(None)`
    /// when it used all and needs more.
    ///
    /// # Errors
    /// The stream breaks the contract; the reader stays failed. What it handed out before is good.
    ///
    /// # Cost
    /// A few ns for each frame; the exit record is parsed once.
    #[inline]
    pub fn feed<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Output<'i>>, ExecError> {
        if self.ending != Ending::Open {
            return self.ended(input);
        }
        loop {
            let piece = match self.decoder.feed(input) {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.fail(error)),
            };
            match piece.kind {
                // rule: EXEC-12
                Kind::Stdout | Kind::Stderr if piece.payload.is_empty() => {}
                Kind::Stdout => return Ok(Some(Output::Stdout(piece.payload))),
                Kind::Stderr => return Ok(Some(Output::Stderr(piece.payload))),
                // The decoder refuses these two in this direction.
                Kind::Stdin | Kind::StdinClose => {}
                Kind::Exit => {
                    self.assemble(piece.payload)?;
                    if piece.last {
                        return self.exit().map(Some);
                    }
                }
            }
        }
    }

    fn ended<'i>(&mut self, input: &[u8]) -> Result<Option<Output<'i>>, ExecError> {
        match self.ending {
            Ending::Failed(error) => Err(error),
            _ if input.is_empty() => Ok(None),
            // rule: EXEC-9
            _ => Err(self.fail(ExecError { at: self.decoder.offset(), fault: Fault::AfterExit })),
        }
    }

    fn assemble(&mut self, payload: &[u8]) -> Result<(), ExecError> {
        let end = self.len.saturating_add(payload.len());
        let storage = self.storage.as_mut();
        let room = storage.len();
        let behind = storage.get_mut(self.len..).unwrap_or_default();
        let Some(to) = behind.get_mut(..payload.len()) else {
            // Where the record begins, however it was cut.
            let at = self.decoder.offset().saturating_sub(end as u64);
            return Err(self.fail(ExecError { at, fault: Fault::ExitTooLarge { room } }));
        };
        to.copy_from_slice(payload);
        self.len = end;
        Ok(())
    }

    fn exit<'i>(&mut self) -> Result<Output<'i>, ExecError> {
        let record = self.storage.as_ref().get(..self.len).unwrap_or_default();
        match ExecResult::parse(record) {
            Ok(result) => {
                let exit = result.exit();
                self.exited = true;
                self.ending = Ending::Exited;
                Ok(Output::Exit(exit))
            }
            Err(error) => {
                let at = self.decoder.offset().saturating_sub(self.len as u64);
                Err(self.fail(ExecError { at, fault: Fault::ExitUnreadable(error) }))
            }
        }
    }

    fn fail(&mut self, error: ExecError) -> ExecError {
        self.ending = Ending::Failed(error);
        error
    }

    /// Judges the end of the stream: `Ok` only behind the exit frame.
    ///
    /// # Errors
    /// [`Fault::Truncated`] inside a frame, [`Fault::MissingExit`] between frames without an
    /// exit: the command was lost; the fault found before, once failed.
    // rule: EXEC-4
    pub fn finish(&mut self) -> Result<(), ExecError> {
        match self.ending {
            Ending::Exited => Ok(()),
            Ending::Failed(error) => Err(error),
            Ending::Open => {
                let at = self.decoder.offset();
                let error = self
                    .decoder
                    .finish()
                    .err()
                    .unwrap_or(ExecError { at, fault: Fault::MissingExit });
                Err(self.fail(error))
            }
        }
    }

    /// Reports whether the exit frame was read whole; nothing may follow it.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ending == Ending::Exited
    }

    /// Lends the whole result out of the storage, once [`Output::Exit`] was answered; also when
    /// the stream broke the contract behind it.
    ///
    /// # Cost
    /// Parses the record again.
    pub fn result(&self) -> Option<ExecResult<'_>> {
        if !self.exited {
            return None;
        }
        ExecResult::parse(self.storage.as_ref().get(..self.len)?).ok()
    }

    /// Returns how many bytes of the stream were used.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.decoder.offset()
    }
}

/// What the client's stream says, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'i> {
    /// The next bytes of standard input; never empty, and the cuts mean nothing.
    Stdin(&'i [u8]),
    /// The end of standard input, once. The connection stays open.
    Close,
}

/// Reads the client's stream: the guest's end.
#[derive(Clone, Debug)]
pub struct InputReader {
    decoder: Decoder,
    closed: bool,
    failed: Option<ExecError>,
}

impl Default for InputReader {
    fn default() -> Self {
        Self::new()
    }
}

impl InputReader {
    /// Makes a reader at the start of a stream.
    #[must_use]
    pub const fn new() -> Self {
        Self { decoder: Decoder::new(Direction::HostToGuest), closed: false, failed: None }
    }

    /// Takes bytes and answers the next event, advancing `input` past what it used; `Ok(None)`
    /// when it used all and needs more.
    ///
    /// # Errors
    /// The stream breaks the contract; the reader stays failed. End the command and tell the
    /// client by name.
    pub fn feed<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Input<'i>>, ExecError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        loop {
            let piece = match self.decoder.feed(input) {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.fail(error)),
            };
            match piece.kind {
                // rule: EXEC-10
                Kind::Stdin if self.closed => {
                    let used = (piece.payload.len() as u64).saturating_add(HEADER_SIZE as u64);
                    let at = self.decoder.offset().saturating_sub(used);
                    return Err(self.fail(ExecError { at, fault: Fault::AfterStdinClose }));
                }
                Kind::Stdin if piece.payload.is_empty() => {}
                Kind::Stdin => return Ok(Some(Input::Stdin(piece.payload))),
                // rule: EXEC-11
                Kind::StdinClose if piece.last && !self.closed => {
                    self.closed = true;
                    return Ok(Some(Input::Close));
                }
                // The rest of a close, a second close, and what the decoder refuses here.
                _ => {}
            }
        }
    }

    fn fail(&mut self, error: ExecError) -> ExecError {
        self.failed = Some(error);
        error
    }

    /// Judges the end of the stream, which is the client's going away whatever it says.
    ///
    /// # Errors
    /// [`Fault::Truncated`] inside a frame; the fault found before, once failed.
    pub fn finish(&mut self) -> Result<(), ExecError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.decoder.finish().map_err(|error| self.fail(error))
    }

    /// Reports whether the next bytes go on with a frame of which a piece was answered; when not,
    /// the next [`Input::Stdin`] begins a frame.
    #[must_use]
    pub const fn is_in_payload(&self) -> bool {
        self.decoder.is_in_payload()
    }

    /// Reports whether the end of input was read.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns how many bytes of the stream were used.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.decoder.offset()
    }
}

/// A writer was asked for a frame that may not follow what it wrote: behind the exit, or behind
/// the end of input. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stream has ended: nothing may follow exit or stdin_close; drop the bytes")
    }
}

impl core::error::Error for Ended {}

/// Why an exit frame was not written; the writer is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum WriteError {
    /// An exit frame was written before.
    Ended(Ended),
    /// The output has less room than the frame needs.
    OutTooSmall(OutTooSmall),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(error) => error.fmt(f),
            Self::OutTooSmall(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for WriteError {}

/// Writes the guest's stream: output as it comes, then one exit.
#[derive(Clone, Debug, Default)]
pub struct OutputWriter {
    exited: bool,
}

impl OutputWriter {
    /// Makes a writer at the start of a stream.
    #[must_use]
    pub const fn new() -> Self {
        Self { exited: false }
    }

    /// Frames bytes of standard output, of any length; none for none.
    ///
    /// # Errors
    /// [`Ended`] behind the exit.
    // rule: EXEC-3
    pub const fn stdout<'d>(&mut self, data: &'d [u8]) -> Result<Frames<'d>, Ended> {
        self.frames(Kind::Stdout, data)
    }

    /// Frames bytes of standard error, of any length; none for none.
    ///
    /// # Errors
    /// [`Ended`] behind the exit.
    pub const fn stderr<'d>(&mut self, data: &'d [u8]) -> Result<Frames<'d>, Ended> {
        self.frames(Kind::Stderr, data)
    }

    const fn frames<'d>(&mut self, kind: Kind, data: &'d [u8]) -> Result<Frames<'d>, Ended> {
        if self.exited { Err(Ended) } else { Ok(Frames { kind, data }) }
    }

    /// Writes the exit frame, the last of the stream, and returns the part of `out` it takes: at
    /// most [`MAX_EXIT_FRAME`] bytes. A result larger than a frame gets its `error` shortened on a
    /// character boundary.
    ///
    /// # Errors
    /// [`WriteError::Ended`] when an exit was written before; [`WriteError::OutTooSmall`] with the
    /// bytes needed, and nothing has changed.
    // rule: EXEC-15
    pub fn exit<'o>(
        &mut self,
        result: &ExecResult<'_>,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], WriteError> {
        if self.exited {
            return Err(WriteError::Ended(Ended));
        }
        let too_small = |needed: usize| {
            WriteError::OutTooSmall(OutTooSmall { needed: needed.saturating_add(HEADER_SIZE) })
        };
        let shortened = result.shortened(MAX_PAYLOAD_SIZE);
        let Some((header, body)) = out.split_first_chunk_mut::<HEADER_SIZE>() else {
            let needed = shortened.write(&mut []).map_or_else(|error| error.needed, <[u8]>::len);
            return Err(too_small(needed));
        };
        let len = shortened.write(body).map_err(|error| too_small(error.needed))?.len();
        // `shortened` made it fit.
        *header = head(Kind::Exit, len).unwrap_or([0; HEADER_SIZE]);
        self.exited = true;
        Ok(out.get(..len.saturating_add(HEADER_SIZE)).unwrap_or_default())
    }

    /// Reports whether the exit frame was written.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        self.exited
    }
}

/// Writes the client's stream: input as it comes, then its end.
#[derive(Clone, Debug, Default)]
pub struct InputWriter {
    closed: bool,
}

impl InputWriter {
    /// Makes a writer at the start of a stream.
    #[must_use]
    pub const fn new() -> Self {
        Self { closed: false }
    }

    /// Frames bytes of standard input, of any length; none for none.
    ///
    /// # Errors
    /// [`Ended`] behind the end of input.
    pub const fn stdin<'d>(&mut self, data: &'d [u8]) -> Result<Frames<'d>, Ended> {
        if self.closed { Err(Ended) } else { Ok(Frames { kind: Kind::Stdin, data }) }
    }

    /// Makes the frame that ends standard input. The connection must stay open: closing it kills
    /// the command.
    ///
    /// # Errors
    /// [`Ended`] when it was made before.
    pub const fn close(&mut self) -> Result<[u8; HEADER_SIZE], Ended> {
        if self.closed {
            return Err(Ended);
        }
        self.closed = true;
        Ok([Kind::StdinClose as u8, 0, 0, 0, 0, 0, 0, 0])
    }

    /// Reports whether the end of input was made.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        self.closed
    }
}

/// One frame: its header apart from its payload, for a vectored write without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'d> {
    /// The header.
    pub head: [u8; HEADER_SIZE],
    /// The payload, at most [`MAX_PAYLOAD_SIZE`] bytes.
    pub payload: &'d [u8],
}

/// The frames of one logical write, cut at [`MAX_PAYLOAD_SIZE`]; an iterator, or
/// [`write`](Self::write) copies them all.
#[derive(Clone, Debug)]
pub struct Frames<'d> {
    kind: Kind,
    data: &'d [u8],
}

impl<'d> Frames<'d> {
    /// Returns the bytes that all frames take on the wire.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        let frames = self.data.len().div_ceil(MAX_PAYLOAD_SIZE);
        self.data.len().saturating_add(frames.saturating_mul(HEADER_SIZE))
    }

    /// Copies all frames into `out` and returns the part they take.
    ///
    /// # Errors
    /// [`OutTooSmall`] with the bytes needed; nothing was written.
    pub fn write(self, out: &mut [u8]) -> Result<&[u8], OutTooSmall> {
        let needed = self.wire_len();
        let whole = out.get_mut(..needed).ok_or(OutTooSmall { needed })?;
        let mut rest = &mut *whole;
        for frame in self {
            let Some((header, behind)) = rest.split_first_chunk_mut::<HEADER_SIZE>() else {
                break;
            };
            let Some((payload, behind)) = behind.split_at_mut_checked(frame.payload.len()) else {
                break;
            };
            *header = frame.head;
            payload.copy_from_slice(frame.payload);
            rest = behind;
        }
        Ok(whole)
    }
}

impl<'d> Iterator for Frames<'d> {
    type Item = Frame<'d>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'d>> {
        if self.data.is_empty() {
            return None;
        }
        let len = self.data.len().min(MAX_PAYLOAD_SIZE);
        let (payload, rest) = self.data.split_at_checked(len)?;
        self.data = rest;
        Some(Frame { head: head(self.kind, len).ok()?, payload })
    }
}
