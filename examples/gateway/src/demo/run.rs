//! Runs one check's command over one transport.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use triwire_std::client::{Client, ClientError, Output, Transport};
use triwire_std::record::ExecRequest;

use super::SANDBOX;
use super::checks::{BULK, Check, Seen, Stdin, Summer, pattern};

/// Most bytes of output that are kept; more is only summed.
const KEPT: usize = 4096;

pub(super) async fn run(
    client: &Client,
    transport: Transport,
    check: &Check,
) -> Result<Seen, ClientError> {
    let request = ExecRequest {
        cmd: check.cmd.iter().map(|&word| word.to_owned()).collect(),
        timeout_s: check.timeout_s,
        ..ExecRequest::default()
    };
    let exec = client.exec(SANDBOX, &request).transport(transport);
    let mut session = match check.stdin {
        Stdin::None => exec.start().await?,
        Stdin::Text(text) => {
            let mut session = exec.interactive().start().await?;
            session.forward_stdin(text.as_bytes());
            session
        }
        Stdin::Bulk => {
            let mut session = exec.interactive().start().await?;
            session.forward_stdin(Pattern::new());
            session
        }
    };
    let (mut stdout, mut stderr, mut sum) = (Vec::new(), Vec::new(), Summer::new());
    while let Some(output) = session.next().await? {
        match output {
            Output::Stdout(bytes) => {
                sum.add(bytes);
                keep(&mut stdout, bytes);
            }
            Output::Stderr(bytes) => keep(&mut stderr, bytes),
            Output::Exit(_) => {}
        }
    }
    let result = session.result().unwrap_or_default();
    Ok(Seen { stdout, stdout_sum: sum.finish(), stderr, result })
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = KEPT.saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..room.min(bytes.len())]);
}

/// [`BULK`] bytes of the pattern, made as they are read.
struct Pattern {
    chunk: Vec<u8>,
    given: usize,
}

impl Pattern {
    fn new() -> Self {
        Self { chunk: pattern(), given: 0 }
    }
}

impl AsyncRead for Pattern {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let rest = &self.chunk[self.given % self.chunk.len()..];
        let take = rest.len().min(BULK - self.given).min(out.remaining());
        out.put_slice(&rest[..take]);
        self.given += take;
        Poll::Ready(Ok(()))
    }
}
