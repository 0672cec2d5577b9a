//! Both ends of an exec session, as a device has them.

use core::fmt;
use core::hint::black_box;

use triwire::OutTooSmall;
use triwire::exec::ExecError;
use triwire::exec::body::Body;
use triwire::exec::head::{self, Access, Answer, Mode, Refusal, RequestHead};
use triwire::exec::request::{ExecRequest, RequestError, write_request};
use triwire::exec::result::ExecResult;
use triwire::exec::session::{Input, InputReader, InputWriter, OutputReader, OutputWriter};
use triwire::exec::socket::Reason;
use triwire::json::Text;

/// How a guest says what went wrong.
pub(crate) trait Words {
    fn refuse<'o>(&self, refusal: Refusal, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall>;

    fn fault<'r>(&self, fault: ExecError, room: &'r mut Reason) -> &'r str;
}

/// By status and code.
pub(crate) struct Codes;

impl Words for Codes {
    fn refuse<'o>(&self, refusal: Refusal, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall> {
        refusal.write(Short, out)
    }

    fn fault<'r>(&self, fault: ExecError, _room: &'r mut Reason) -> &'r str {
        fault.code()
    }
}

struct Short;

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

/// In sentences that say what to do.
pub(crate) struct Sentences;

impl Words for Sentences {
    fn refuse<'o>(&self, refusal: Refusal, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall> {
        refusal.write(refusal.why, out)
    }

    fn fault<'r>(&self, fault: ExecError, room: &'r mut Reason) -> &'r str {
        *room = Reason::new(fault);
        room.as_str()
    }
}

pub(crate) struct Guest {
    pub(crate) reader: InputReader,
    pub(crate) writer: OutputWriter,
}

impl Guest {
    pub(crate) const fn new() -> Self {
        Self { reader: InputReader::new(), writer: OutputWriter::new() }
    }

    /// A session from the request's first byte to the exit frame, or a refusal.
    pub(crate) fn serve(
        &mut self,
        window: &[u8],
        out: &mut [u8],
        access: Access<'_>,
        words: &impl Words,
    ) -> bool {
        match self.try_serve(window, out, access, words) {
            Ok(done) => done,
            Err(refusal) => {
                black_box(words.refuse(refusal, out).is_ok());
                false
            }
        }
    }

    fn try_serve(
        &mut self,
        window: &[u8],
        out: &mut [u8],
        access: Access<'_>,
        words: &impl Words,
    ) -> Result<bool, Refusal> {
        let Some(parsed) = head::request(window, false)? else { return Ok(false) };
        parsed.admit_guest(access)?;
        let mut input = window.get(parsed.len..).unwrap_or_default();
        let mut body: Body = parsed.body();
        let Some(record) = body.feed(&mut input)? else { return Ok(false) };
        black_box(Answer::Hijack.write(out).is_ok());
        Ok(self.session(record, input, out, words)?)
    }

    /// A session behind the head, or on a stream that has none.
    pub(crate) fn session(
        &mut self,
        record: &[u8],
        mut input: &[u8],
        out: &mut [u8],
        words: &impl Words,
    ) -> Result<bool, RequestError> {
        let request = ExecRequest::parse(record)?;
        for word in request.cmd() {
            black_box(word == "echo");
        }
        black_box((request.cwd(), request.timeout_s()));

        let mut result = ExecResult { exit_code: 0, duration_ms: 20, ..ExecResult::default() };
        let fault = loop {
            match self.reader.feed(&mut input) {
                Ok(Some(Input::Stdin(bytes))) => {
                    let frames = self.writer.stdout(bytes);
                    black_box(frames.is_ok_and(|frames| frames.write(out).is_ok()));
                }
                Ok(Some(Input::Close) | None) => break self.reader.finish().err(),
                Err(error) => break Some(error),
            }
        };
        let mut room = Reason::EMPTY;
        if let Some(fault) = fault {
            result.exit_code = -1;
            result.error = Text::plain(words.fault(fault, &mut room));
        }
        Ok(black_box(self.writer.exit(&result, out).is_ok()) && fault.is_none())
    }
}

pub(crate) struct Client<const N: usize> {
    pub(crate) reader: OutputReader<[u8; N]>,
    pub(crate) writer: InputWriter,
}

impl<const N: usize> Client<N> {
    pub(crate) const fn new() -> Self {
        Self { reader: OutputReader::new([0; N]), writer: InputWriter::new() }
    }

    /// A session from the request's first byte to the result.
    pub(crate) fn run(&mut self, window: &[u8], out: &mut [u8]) -> bool {
        let body = write_request(&["sha256", "-"], &[("LANG", "C")], "/data", 10, out);
        let head = RequestHead {
            mode: Mode::Hijack,
            sandbox: "mcu",
            host: "gateway:80",
            bearer: black_box(None),
            content_length: body.ok().map(<[u8]>::len),
            path: "",
        };
        black_box(head.write(out).is_ok());
        let frames = self.writer.stdin(black_box(b"hello"));
        black_box(frames.is_ok_and(|frames| frames.write(out).is_ok()));
        black_box(self.writer.close().is_ok());

        let Ok(Some(answer)) = head::response(window, false) else { return false };
        if answer.expect_hijack().is_err() {
            return false;
        }
        let mut input = window.get(answer.len..).unwrap_or_default();
        while let Ok(Some(output)) = self.reader.feed(&mut input) {
            black_box(output);
        }
        self.reader.finish().is_ok() && self.reader.result().is_some_and(|r| r.status() == 125)
    }
}
