//! Where a command's output goes: the same descriptors as here, or JSON lines.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use base64ct::{Base64, Encoding as _};
use serde_json::{Value, json};
use triwire_std::record::ExecResult;

use crate::failure::Failure;

/// One of a command's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Takes output as it comes; every call writes it out before it returns.
pub(super) trait Sink {
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()>;
    fn end(&mut self, result: &ExecResult, status: u8) -> io::Result<()>;
}

/// The descriptors of this process, past the buffer of `std::io::stdout`: a payload is written
/// from where it was received.
///
/// Writing blocks the one thread that also receives: that a slow reader slows the command down is
/// what it is for.
// rule: EXEC-48
pub(super) struct Descriptors {
    stdout: File,
    stderr: File,
}

impl Descriptors {
    pub(super) fn open() -> Result<Self, Failure> {
        let dup = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned().map(File::from);
        let stdout = dup(&io::stdout()).map_err(closed("standard output"))?;
        let stderr = dup(&io::stderr()).map_err(closed("standard error"))?;
        Ok(Self { stdout, stderr })
    }
}

fn closed(name: &str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::new(format!("{name} cannot be used: {error}"))
}

impl Sink for Descriptors {
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        match stream {
            Stream::Stdout => self.stdout.write_all(bytes),
            Stream::Stderr => self.stderr.write_all(bytes),
        }
    }

    fn end(&mut self, _: &ExecResult, _: u8) -> io::Result<()> {
        Ok(())
    }
}

/// JSON lines on one writer.
pub(super) struct JsonLines<W> {
    out: W,
    /// The beginning of a character whose end is still to come, of stdout and stderr.
    cut: [Vec<u8>; 2],
}

impl<W: Write> JsonLines<W> {
    pub(super) const fn new(out: W) -> Self {
        Self { out, cut: [Vec::new(), Vec::new()] }
    }

    fn line(&mut self, record: &Value) -> io::Result<()> {
        writeln!(self.out, "{record}")?;
        self.out.flush()
    }

    fn emit(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let name = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        match std::str::from_utf8(bytes) {
            Ok("") => Ok(()),
            Ok(text) => self.line(&json!({ name: text })),
            Err(_) => {
                let text = Base64::encode_string(bytes);
                self.line(&json!({ name: text, "encoding": "base64" }))
            }
        }
    }
}

impl<W: Write> Sink for JsonLines<W> {
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let mut whole = std::mem::take(&mut self.cut[stream as usize]);
        whole.extend_from_slice(bytes);
        // The cuts of the wire mean nothing, so a character that one splits is kept together.
        if let Err(error) = std::str::from_utf8(&whole)
            && error.error_len().is_none()
        {
            self.cut[stream as usize] = whole.split_off(error.valid_up_to());
        }
        self.emit(stream, &whole)
    }

    fn end(&mut self, result: &ExecResult, status: u8) -> io::Result<()> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let cut = std::mem::take(&mut self.cut[stream as usize]);
            self.emit(stream, &cut)?;
        }
        self.line(&json!({ "result": result.as_core(), "status": status }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole_and_bytes_are_base64() {
        let mut lines = JsonLines::new(Vec::new());
        let euro = "€".as_bytes();
        lines.write(Stream::Stdout, &euro[..1]).unwrap();
        lines.write(Stream::Stderr, b"\xff").unwrap();
        lines.write(Stream::Stdout, &euro[1..]).unwrap();
        lines.write(Stream::Stdout, &euro[..2]).unwrap();
        lines.end(&ExecResult { exit_code: 3, ..ExecResult::default() }, 3).unwrap();
        let text = String::from_utf8(lines.out).unwrap();
        assert_eq!(
            text,
            "{\"stderr\":\"/w==\",\"encoding\":\"base64\"}\n{\"stdout\":\"€\"}\n\
             {\"stdout\":\"4oI=\",\"encoding\":\"base64\"}\n\
             {\"result\":{\"exit_code\":3,\"duration_ms\":0},\"status\":3}\n"
        );
    }
}
