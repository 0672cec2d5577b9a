//! What the tests on the device share: the streams, transports that give them in pieces, a line,
//! and what happens when a test fails.

#![no_std]

pub mod asynch;
pub mod line;
pub mod signed;

use core::panic::PanicInfo;

use cortex_m as _;
use cortex_m_semihosting::debug::{self, EXIT_FAILURE};
use defmt_semihosting as _;
use embedded_io::{ErrorKind, ErrorType, Read};
use triwire::exec::ExecError;
use triwire::exec::session::{Input, InputReader, Output, OutputReader};

/// One stream of `fixtures/exec`.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The fixture's file.
    pub name: &'static str,
    /// The file's bytes.
    pub bytes: &'static [u8],
    /// Whether it is a guest's stream; else a client's.
    pub from_guest: bool,
    /// Bytes of stdout, stderr and stdin, or the code of the error.
    pub ending: Result<(u64, u64, u64), &'static str>,
    /// The command's exit code, when the stream has one.
    pub exit_code: Option<i32>,
}

/// Every stream of `fixtures/exec`, as its manifest describes it.
pub const STREAMS: &[Stream] = include!(concat!(env!("OUT_DIR"), "/streams.rs"));

/// The reader of either direction, and what it has seen.
#[derive(Debug)]
pub struct Witness {
    machine: Machine,
    seen: (u64, u64, u64),
    exit_code: Option<i32>,
}

// One on the stack of a test; nothing to box on.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Machine {
    Output(OutputReader<[u8; 512]>),
    Input(InputReader),
}

impl Witness {
    /// Makes a reader for a stream's direction.
    pub fn new(stream: &Stream) -> Self {
        let machine = if stream.from_guest {
            Machine::Output(OutputReader::new([0; 512]))
        } else {
            Machine::Input(InputReader::new())
        };
        Self { machine, seen: (0, 0, 0), exit_code: None }
    }

    /// Takes bytes until none is left to take.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<(), ExecError> {
        match &mut self.machine {
            Machine::Output(reader) => {
                while let Some(event) = reader.feed(input)? {
                    match event {
                        Output::Stdout(bytes) => self.seen.0 += bytes.len() as u64,
                        Output::Stderr(bytes) => self.seen.1 += bytes.len() as u64,
                        Output::Exit(exit) => self.exit_code = Some(exit.exit_code),
                    }
                }
            }
            Machine::Input(reader) => {
                while let Some(event) = reader.feed(input)? {
                    if let Input::Stdin(bytes) = event {
                        self.seen.2 += bytes.len() as u64;
                    }
                }
            }
        }
        Ok(())
    }

    /// Judges the end, which feeding may have found before.
    pub fn judge(&mut self, stream: &Stream, fed: Result<(), ExecError>) {
        let ended = fed.and_then(|()| match &mut self.machine {
            Machine::Output(reader) => reader.finish(),
            Machine::Input(reader) => reader.finish(),
        });
        let ending = ended.map(|()| self.seen).map_err(|error| error.code());
        assert!(ending == stream.ending, "{}: {ending:?}", stream.name);
        if stream.ending.is_ok() {
            assert!(self.exit_code == stream.exit_code, "{}: exit code", stream.name);
        }
    }
}

/// A transport that gives at most `step` bytes at once and is interrupted between any two reads.
#[derive(Debug)]
pub struct Pieces<'b> {
    bytes: &'b [u8],
    step: usize,
    is_interrupted: bool,
}

impl<'b> Pieces<'b> {
    /// Begins at the first byte.
    pub fn new(bytes: &'b [u8], step: usize) -> Self {
        Self { bytes, step, is_interrupted: false }
    }
}

impl ErrorType for Pieces<'_> {
    type Error = ErrorKind;
}

impl Read for Pieces<'_> {
    fn read(&mut self, to: &mut [u8]) -> Result<usize, ErrorKind> {
        self.is_interrupted = !self.is_interrupted;
        if self.is_interrupted {
            return Err(ErrorKind::Interrupted);
        }
        let count = self.bytes.len().min(self.step).min(to.len());
        let (now, later) = self.bytes.split_at(count);
        to[..count].copy_from_slice(now);
        self.bytes = later;
        Ok(count)
    }
}

// Own, as QEMU's board never comes back from the break point that panic-probe stops at.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    defmt::error!("{}", defmt::Display2Format(info));
    debug::exit(EXIT_FAILURE);
    loop {}
}
