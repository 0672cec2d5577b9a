//! How a stream is shown: for people, or as JSON lines.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use serde_json::json;
use triwire::exec::frame::{Direction, Kind};
use triwire::exec::result::ExecResult;

use super::{Frame, Summary};
use crate::terminal::{OneLine, Paint, Style};

/// Shows one stream.
pub(super) trait Render {
    fn begin(&mut self, direction: Direction, out: &mut impl Write) -> io::Result<()>;
    fn frame(&mut self, frame: &Frame<'_>, out: &mut impl Write) -> io::Result<()>;
    fn end(&mut self, summary: &Summary, out: &mut impl Write) -> io::Result<()>;
}

/// A table with one frame a line.
pub(super) struct People {
    paint: Paint,
    full: bool,
}

/// Most characters of a payload that are shown, unless all are wanted.
const PREVIEW: usize = 60;

impl People {
    pub(super) fn new(stream: &impl IsTerminal, full: bool) -> Self {
        Self { paint: Paint::for_stream(stream), full }
    }

    #[cfg(test)]
    pub(super) fn plain() -> Self {
        Self::new(&tempfile::tempfile().unwrap(), false)
    }

    fn payload(&self, payload: &[u8]) -> String {
        // Escapes only make it longer, so this many bytes are enough for a preview.
        let most = if self.full { payload.len() } else { payload.len().min(4 * PREVIEW) };
        let whole = match text(&payload[..most]) {
            Some(text) => OneLine(text).to_string(),
            None => {
                let most = if self.full { payload.len() } else { most.min(PREVIEW / 3 + 1) };
                hex(&payload[..most], " ")
            }
        };
        if self.full || (whole.chars().count() <= PREVIEW && most == payload.len()) {
            return whole;
        }
        whole.chars().take(PREVIEW).chain(['…']).collect()
    }
}

impl Render for People {
    fn begin(&mut self, direction: Direction, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "direction {}", direction.as_str())?;
        let head = format!("{:>12}  {:<11}  {:>6}  {}", "offset", "kind", "size", "payload");
        writeln!(out, "{}", self.paint.text(Style::Bold, head))
    }

    fn frame(&mut self, frame: &Frame<'_>, out: &mut impl Write) -> io::Result<()> {
        let style = match frame.kind {
            Kind::Stdout | Kind::Stdin => Style::Green,
            Kind::Stderr => Style::Yellow,
            Kind::Exit | Kind::StdinClose => Style::Cyan,
        };
        let kind = self.paint.text(style, format_args!("{:<11}", frame.kind.as_str()));
        write!(out, "{:>12}  {kind}  {:>6}  ", frame.at, frame.declared)?;
        match &frame.result {
            Some(result) => writeln!(out, "{}", describe(result))?,
            None => writeln!(out, "{}", self.payload(frame.payload))?,
        }
        if frame.declared > frame.payload.len() {
            let there =
                format!("only {} of {} bytes are there", frame.payload.len(), frame.declared);
            writeln!(out, "{:>12}  {}", "", self.paint.text(Style::Red, there))?;
        }
        let Some(usage) = frame.result.and_then(|result| result.usage) else { return Ok(()) };
        writeln!(
            out,
            "{:>12}  cpu {} ms user, {} ms system; peak memory {} bytes; major faults {}; \
             switches {}; read {} bytes, written {} bytes",
            "",
            usage.cpu_user_ms,
            usage.cpu_sys_ms,
            usage.peak_memory_bytes,
            usage.page_faults_major,
            usage.context_switches_involuntary,
            usage.io_read_bytes,
            usage.io_write_bytes,
        )
    }

    fn end(&mut self, summary: &Summary, out: &mut impl Write) -> io::Result<()> {
        let frames = if summary.frames == 1 { "frame" } else { "frames" };
        match summary.error {
            None => writeln!(
                out,
                "{}: {} {frames}, {} bytes",
                self.paint.text(Style::Green, "valid"),
                summary.frames,
                summary.bytes
            ),
            Some(error) => writeln!(
                out,
                "{}: {error} ({} whole {frames} before the end)",
                self.paint.text(Style::Red, "invalid"),
                summary.frames,
            ),
        }
    }
}

/// Says in a few words how a command ended.
fn describe(result: &ExecResult<'_>) -> String {
    let mut words = format!("exit code {}, {} ms", result.exit_code, result.duration_ms);
    if !result.signal.is_empty() {
        let _ = write!(words, ", signal {}", OneLine(&result.signal.to_string()));
    }
    if result.timed_out {
        words.push_str(", timed out");
    }
    if result.oom_killed {
        words.push_str(", out of memory");
    }
    if !result.error.is_empty() {
        let _ = write!(words, ", error: {}", OneLine(&result.error.to_string()));
    }
    words
}

/// One JSON object a line: the frames, then the summary.
pub(super) struct Json;

impl Render for Json {
    fn begin(&mut self, _: Direction, _: &mut impl Write) -> io::Result<()> {
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>, out: &mut impl Write) -> io::Result<()> {
        let mut record = json!({
            "offset": frame.at,
            "kind": frame.kind.as_str(),
            "size": frame.declared,
        });
        match (&frame.result, text(frame.payload)) {
            (Some(result), _) => record["result"] = json!(result),
            (None, Some(text)) if text.len() == frame.payload.len() => record["text"] = json!(text),
            (None, _) => record["hex"] = json!(hex(frame.payload, "")),
        }
        if frame.declared > frame.payload.len() {
            record["present"] = json!(frame.payload.len());
        }
        writeln!(out, "{record}")
    }

    fn end(&mut self, summary: &Summary, out: &mut impl Write) -> io::Result<()> {
        let error = summary.error.map(
            |error| json!({ "code": error.code(), "at": error.at, "message": error.to_string() }),
        );
        let record = json!({
            "direction": summary.direction.as_str(),
            "frames": summary.frames,
            "bytes": summary.bytes,
            "valid": summary.error.is_none(),
            "error": error,
        });
        writeln!(out, "{record}")
    }
}

/// Takes a payload as text, without a last character that a frame's end cut; none when it is not
/// UTF-8, or holds a NUL.
fn text(payload: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(payload) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
            std::str::from_utf8(&payload[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    (!text.contains('\0')).then_some(text)
}

fn hex(bytes: &[u8], between: &str) -> String {
    let mut hex = String::with_capacity(bytes.len() * (2 + between.len()));
    for (index, byte) in bytes.iter().enumerate() {
        let before = if index == 0 { "" } else { between };
        let _ = write!(hex, "{before}{byte:02x}");
    }
    hex
}
