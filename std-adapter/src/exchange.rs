//! One request and the head of its answer over any byte stream: what the client and the guests
//! behind a link have in common.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use triwire::exec::body::{Body, Framing};
use triwire::exec::head::{
    ErrorRecord, HeadError, HeadScan, MAX_ERROR_BODY, Mode, RequestHead, ResponseHead,
};
use triwire::json::Text;
use zeroize::Zeroizing;

use crate::Wake;
use crate::tokio::socket;
use crate::tokio::stream::{Rx, Tx};

/// The longest head of an answer.
pub(crate) const MAX_HEAD: usize = 64 * 1024;
/// Room for our own head: a key and a path of a few KiB.
const OWN_HEAD: usize = 16 * 1024;
/// The most that is read of an error's body.
const MAX_ERROR: usize = MAX_ERROR_BODY as usize;
/// How long an error's body may take: the status alone says much.
const ERROR_BOUND: Duration = Duration::from_secs(5);
/// The most characters of an error's body that is not the contract's JSON.
const MAX_WORDS: usize = 200;

/// What the head of the answer says.
pub(crate) struct Answer {
    /// Bytes of the head.
    pub(crate) len: usize,
    /// How the body is delimited; or why this is not the answer that was asked for.
    pub(crate) verdict: Result<Framing, HeadError>,
    /// How the body of an error is delimited.
    pub(crate) framing: Framing,
}

/// Why there is no head to judge.
pub(crate) enum NoAnswer {
    /// What came is no head.
    Head(HeadError),
    /// The connection ended first; what ended it, unless the peer closed it in order.
    Ended(Option<io::Error>),
}

/// What the body of an error says.
pub(crate) struct Refusal {
    /// The stable word; empty when it had none.
    pub(crate) code: String,
    /// Its own words, on one line; empty when it had none.
    pub(crate) why: String,
}

/// Writes a head with `behind` bytes of room behind it, so that the request goes there without
/// moving the key to a larger buffer.
///
/// # Errors
/// The head's; nothing is to be sent then.
pub(crate) fn write_head(
    head: &RequestHead<'_>,
    behind: usize,
) -> Result<Zeroizing<Vec<u8>>, HeadError> {
    let mut wire = Zeroizing::new(vec![0; OWN_HEAD.saturating_add(behind)]);
    let written = head.write(&mut wire)?.len();
    wire.truncate(written);
    Ok(wire)
}

/// Sends the request and reads the head of the answer, both at once: a server may refuse before
/// it has read the whole request.
pub(crate) async fn exchange<R, W, B, C>(
    rx: &mut Rx<R, B>,
    tx: &mut Tx<W, C>,
    mode: Mode<'_>,
) -> Result<Answer, NoAnswer>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    B: AsRef<[u8]> + AsMut<[u8]>,
    C: AsRef<[u8]> + AsMut<[u8]>,
{
    let mut scan = HeadScan::new();
    let mut unsent: Option<io::Error> = None;
    poll_fn(|cx| {
        // What the server says tells more than that it no longer listens.
        if unsent.is_none()
            && !tx.is_flushed()
            && let Poll::Ready(Err(error)) = tx.poll_flush(cx)
        {
            unsent = Some(error);
        }
        loop {
            let window = rx.unread();
            match scan.response(window, window.len() >= MAX_HEAD) {
                Ok(Some(head)) => return Poll::Ready(Ok(judge(&head, mode))),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(NoAnswer::Head(error))),
            }
            let source = match ready!(rx.poll_wait(cx)) {
                Ok(Wake::Bytes | Wake::Deadline) => continue,
                Ok(Wake::End) => unsent.take(),
                Err(error) => Some(error),
            };
            return Poll::Ready(Err(NoAnswer::Ended(source)));
        }
    })
    .await
}

fn judge(head: &ResponseHead<'_>, mode: Mode<'_>) -> Answer {
    let verdict = match mode {
        Mode::OneShot => head.expect_stream(),
        // rule: EXEC-21
        Mode::Hijack => head.expect_hijack().map(|()| Framing::ToEnd),
        Mode::Socket { key } => {
            head.expect_upgrade(&socket::accept_key(key)).map(|()| Framing::ToEnd)
        }
    };
    let framing = head.framing().unwrap_or(Framing::ToEnd);
    Answer { len: head.len, verdict, framing }
}

/// Reads what an error says, as far as it comes.
pub(crate) async fn refusal<R, B>(rx: &mut Rx<R, B>, framing: Framing) -> Refusal
where
    R: AsyncRead + Unpin,
    B: AsRef<[u8]> + AsMut<[u8]>,
{
    let mut body = Body::new(framing);
    let mut text = Vec::new();
    // Whatever ends it, what came is what there is to say.
    let _ = timeout(ERROR_BOUND, async {
        while text.len() < MAX_ERROR {
            while let Some(mut window) = rx.next() {
                while let Ok(Some(piece)) = body.feed(&mut window.rest) {
                    text.extend_from_slice(piece);
                }
            }
            // The server may keep the connection open behind a whole body.
            if body.is_complete() {
                break;
            }
            match rx.wait(None).await {
                Ok(Wake::Bytes) => {}
                Ok(Wake::End | Wake::Deadline) | Err(_) => break,
            }
        }
    })
    .await;
    refusal_of(&text)
}

/// Reads what the body of an error says.
pub(crate) fn refusal_of(text: &[u8]) -> Refusal {
    let text = text.get(..MAX_ERROR).unwrap_or(text);
    // rule: EXEC-35
    ErrorRecord::parse(text).map_or_else(
        |_| Refusal { code: String::new(), why: words(text) },
        |record| Refusal { code: said(record.code), why: said(record.error) },
    )
}

fn said(text: Text<'_>) -> String {
    on_one_line(text.to_string().chars())
}

/// The first words of a body that is not the contract's.
fn words(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    on_one_line(line.chars().take(MAX_WORDS))
}

/// Shows a peer's text on one line: what it holds must not steer a terminal.
pub(crate) fn on_one_line(text: impl Iterator<Item = char>) -> String {
    text.map(|c| if c.is_control() { ' ' } else { c }).collect()
}
