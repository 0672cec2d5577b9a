//! One command: the order in which the machines take the bytes.

use std::error::Error;
use std::io::{Read, Write};

use triwire::exec::body::{Body, Framing};
use triwire::exec::frame::MAX_PAYLOAD_SIZE;
use triwire::exec::head::{ErrorRecord, HeadError, HeadScan, Mode, RequestHead, ResponseHead};
use triwire::exec::session::{InputWriter, Output, OutputReader};

use crate::link::{Came, Link};

/// Why a session cannot go on; each of the core's errors says what to do.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Holds the longest head of an answer; frames flow through it in any pieces.
const INBOX: usize = 16 * 1024;
/// Holds our head, the request, and then input that the connection does not take yet.
const OUTBOX: usize = 64 * 1024;

/// A command on its way, over a transport that never blocks.
pub struct Session<T> {
    link: Link<T>,
    mode: Mode<'static>,
    scan: HeadScan,
    phase: Phase,
    output: OutputReader<Box<[u8]>>,
    input: InputWriter,
}

enum Phase {
    Head,
    Frames(Body),
    Refused { status: u16, body: Body, text: Vec<u8> },
}

impl<T: Read + Write> Session<T> {
    /// Queues a request, whose head gets the length of its JSON; [`turn`](Self::turn) sends it.
    ///
    /// # Errors
    /// A head that cannot be sent, or a request that does not fit the buffer.
    pub fn new(
        stream: T,
        mut head: RequestHead<'_>,
        mode: Mode<'static>,
        json: &[u8],
    ) -> Result<Self, Failure> {
        (head.mode, head.content_length) = (mode, Some(json.len()));
        let mut link = Link::new(stream, INBOX, OUTBOX);
        let written = head.write(link.outbox.space())?.len();
        link.outbox.filled(written);
        link.outbox.push(json)?;
        let output = OutputReader::new(vec![0; MAX_PAYLOAD_SIZE].into());
        let (scan, input) = (HeadScan::new(), InputWriter::new());
        Ok(Self { link, mode, scan, phase: Phase::Head, output, input })
    }

    /// Returns the transport, for the loop to register.
    pub fn stream(&mut self) -> &mut T {
        &mut self.link.stream
    }

    /// Moves bytes both ways until the transport is not ready, as edge-triggered loops must;
    /// `Some` is the status of a command that ended.
    ///
    /// # Errors
    /// Whatever ends the session without a result.
    pub fn turn(&mut self, mut sink: impl FnMut(Output<'_>)) -> Result<Option<u8>, Failure> {
        // A server that refuses may stop reading; what it says tells more than a failed write.
        let mut unsent = self.link.flush().err();
        loop {
            let came = match self.link.fill() {
                // rule: EXEC-49
                Err(_) if self.output.is_ended() => Came::End,
                came => came?,
            };
            self.take(&mut sink)?;
            if came == Came::End || self.is_complete() {
                return match (&self.phase, unsent.take()) {
                    (Phase::Head, Some(error)) => Err(error.into()),
                    _ => self.finish().map(Some),
                };
            }
            if came == Came::Nothing {
                return Ok(None);
            }
        }
    }

    /// Queues input, whole or not at all, no bytes being its end; `false`: not before a turn sent
    /// what waits.
    ///
    /// # Errors
    /// Input behind the end of input.
    pub fn stdin(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let outbox = &mut self.link.outbox;
        if bytes.is_empty() {
            return Ok(outbox.room() >= 8 && outbox.push(&self.input.close()?).is_ok());
        }
        match self.input.stdin(bytes)?.write(outbox.space()).map(<[u8]>::len) {
            Ok(written) => outbox.filled(written),
            Err(_) => return Ok(false),
        }
        Ok(true)
    }

    fn take(&mut self, sink: &mut impl FnMut(Output<'_>)) -> Result<(), Failure> {
        while let Some(mut window) = self.link.inbox.lend() {
            if let Phase::Head = self.phase {
                let is_full = window.rest.len() == INBOX;
                let Some(head) = self.scan.response(window.rest, is_full)? else { continue };
                self.phase = judge(&head, self.mode)?;
                window.rest = window.rest.get(head.len..).unwrap_or_default();
            }
            match &mut self.phase {
                Phase::Head => {}
                Phase::Frames(body) => {
                    while let Some(mut frames) = body.feed(&mut window.rest)? {
                        while let Some(output) = self.output.feed(&mut frames)? {
                            sink(output);
                        }
                    }
                }
                Phase::Refused { body, text, .. } => {
                    while let Some(piece) = body.feed(&mut window.rest)? {
                        text.extend_from_slice(piece);
                    }
                }
            }
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        match &self.phase {
            Phase::Head => false,
            Phase::Frames(body) | Phase::Refused { body, .. } => body.is_complete(),
        }
    }

    fn finish(&mut self) -> Result<u8, Failure> {
        match &self.phase {
            Phase::Head => Err("the connection ended before the answer".into()),
            Phase::Refused { status, text, .. } => {
                let record = ErrorRecord::parse(text);
                let why = record.map(|record| record.error.to_string()).unwrap_or_default();
                Err(format!("refused with {status}: {}", why.escape_debug()).into())
            }
            Phase::Frames(_) => {
                self.output.finish()?;
                Ok(self.output.result().map_or(0, |result| result.status()))
            }
        }
    }
}

/// The head of the answer says what its body is.
fn judge(head: &ResponseHead<'_>, mode: Mode<'_>) -> Result<Phase, HeadError> {
    let framing = match mode {
        Mode::Hijack => head.expect_hijack().map(|()| Framing::ToEnd),
        _ => head.expect_stream(),
    };
    match framing {
        Ok(framing) => Ok(Phase::Frames(Body::new(framing))),
        Err(HeadError::Status { found: status }) => {
            Ok(Phase::Refused { status, body: head.error_body()?, text: Vec::new() })
        }
        Err(error) => Err(error),
    }
}
