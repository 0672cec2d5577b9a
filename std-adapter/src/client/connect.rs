//! From a request to a session: what is sent, the answer's head, and what an error says.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::time::timeout;
use triwire::exec::body::{Body, Framing};
use triwire::exec::head::{
    ErrorRecord, HeadError, HeadScan, MAX_ERROR_BODY, Mode, RequestHead, ResponseHead,
};
use triwire::exec::request::MAX_REQUEST_BODY;
use triwire::exec::socket::{ClientSocket, MAX_SOCKET_MESSAGE};
use triwire::json::Text;
use zeroize::Zeroizing;

use super::link::{HttpLink, INBOX, Link, OUTBOX, Rx, SocketLink, Tx, on_one_line};
use super::{Client, ClientError, Session, Transport};
use crate::tokio::socket;
use crate::{Wake, entropy};

/// The longest head of an answer.
const MAX_HEAD: usize = 64 * 1024;
/// Room for our own head: a key and a path of a few KiB.
const OWN_HEAD: usize = 16 * 1024;
/// The most that is read of an error's body.
const MAX_ERROR: usize = MAX_ERROR_BODY as usize;
/// How long an error's body may take: the status alone says much.
const ERROR_BOUND: Duration = Duration::from_secs(5);
/// The most characters of an error's body that is not the contract's JSON.
const MAX_WORDS: usize = 200;

/// What the head of the answer says.
struct Answer {
    /// Bytes of the head.
    len: usize,
    /// How the body is delimited; or why this is not the answer that was asked for.
    verdict: Result<Framing, HeadError>,
    /// How the body of an error is delimited.
    framing: Framing,
}

pub(super) async fn start(
    client: &Client,
    sandbox: &str,
    request: &[u8],
    transport: Transport,
    interactive: bool,
) -> Result<Session, ClientError> {
    // rule: EXEC-18
    if request.len() > MAX_REQUEST_BODY {
        return Err(ClientError::RequestTooLarge { len: request.len() });
    }
    let key = match transport {
        Transport::WebSocket => {
            entropy::websocket_key().map_err(|error| ClientError::Entropy(Arc::new(error)))?
        }
        Transport::OneShot | Transport::Hijack => String::new(),
    };
    let mode = match transport {
        Transport::OneShot => Mode::OneShot,
        Transport::Hijack => Mode::Hijack,
        Transport::WebSocket => Mode::Socket { key: &key },
    };
    // rule: EXEC-38
    let mut wire = head(client, sandbox, mode, request.len())?;
    if transport != Transport::WebSocket {
        wire.extend_from_slice(request);
    }

    let stream = dial(client).await?;
    let (reader, writer) = stream.into_split();
    let mut rx = Rx::new(reader, vec![0; INBOX].into_boxed_slice());
    // One-shot sends nothing behind its request.
    let more = if transport == Transport::Hijack { OUTBOX } else { 0 };
    let room = wire.len().max(more);
    let mut tx = Tx::new(writer, Zeroizing::new(vec![0; room]));
    // There is room: it was made for it.
    let _ = tx.send(&wire);
    drop(wire);

    let answer = exchange(&mut rx, &mut tx, mode).await?;
    rx.consume(answer.len);
    let framing = match answer.verdict {
        Ok(framing) => framing,
        Err(HeadError::Status { found }) => {
            return Err(refused(&mut rx, found, answer.framing).await);
        }
        Err(error) => return Err(error.into()),
    };
    let link = match transport {
        Transport::OneShot | Transport::Hijack => {
            Link::Http(Box::new(HttpLink { rx, tx, body: Body::new(framing), piece: 0 }))
        }
        Transport::WebSocket => Link::Socket(Box::new(upgraded(rx, tx, request).await?)),
    };
    let mut session = Session::new(link, transport);
    if !interactive {
        session.close_stdin();
    }
    Ok(session)
}

/// Writes our head; nothing is sent when it cannot be written.
fn head(
    client: &Client,
    sandbox: &str,
    mode: Mode<'_>,
    len: usize,
) -> Result<Zeroizing<Vec<u8>>, ClientError> {
    let path = client.path_of(sandbox);
    let head = RequestHead {
        mode,
        sandbox,
        host: &client.host,
        bearer: client.key.as_ref().map(super::Secret::as_str),
        content_length: Some(len),
        path: &path,
    };
    // The request goes behind it without moving the key to a larger buffer.
    let mut wire = Zeroizing::new(vec![0; OWN_HEAD + len]);
    let written = head.write(&mut wire)?.len();
    wire.truncate(written);
    Ok(wire)
}

async fn dial(client: &Client) -> Result<TcpStream, ClientError> {
    let after = client.connect_timeout;
    let connected = match timeout(after, TcpStream::connect(client.address())).await {
        Ok(connected) => connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream)),
        Err(_) => return Err(ClientError::ConnectTimeout { url: client.url(), after }),
    };
    connected.map_err(|error| ClientError::Connect { url: client.url(), source: Arc::new(error) })
}

/// Sends the request and reads the head of the answer, both at once: a server may refuse before
/// it has read the whole request.
async fn exchange(rx: &mut Rx, tx: &mut Tx, mode: Mode<'_>) -> Result<Answer, ClientError> {
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
            if let Some(head) = scan.response(window, window.len() >= MAX_HEAD)? {
                return Poll::Ready(Ok(judge(&head, mode)));
            }
            let source = match ready!(rx.poll_wait(cx)) {
                Ok(Wake::Bytes | Wake::Deadline) => continue,
                Ok(Wake::End) => unsent.take(),
                Err(error) => Some(error),
            };
            return Poll::Ready(Err(ClientError::NoAnswer { source: source.map(Arc::new) }));
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

/// Goes on in messages on the same connection; what came behind the head is the first of them.
async fn upgraded(rx: Rx, tx: Tx, request: &[u8]) -> Result<SocketLink, ClientError> {
    let unread = rx.unread().to_vec();
    // The halves are of one connection, so they always join.
    let stream = rx.into_reader().reunite(tx.into_writer()).map_err(|error| {
        ClientError::NoAnswer { source: Some(Arc::new(io::Error::other(error))) }
    })?;
    let sizes = socket::Sizes {
        send_buffer: OUTBOX.max(request.len() + 64),
        max_message: MAX_SOCKET_MESSAGE,
        ..socket::Sizes::bulk()
    };
    let (rx, mut tx) = socket::link(stream, socket::Role::Client, &unread, sizes);
    // rule: EXEC-24
    let text = String::from_utf8_lossy(request);
    // There is room: it was made for it.
    let _ = tx.send(socket::Message::Text(text.as_ref().into()));
    // When it cannot be sent, what the server says tells more.
    let _ = tx.flush().await;
    Ok(SocketLink { rx, tx, rules: ClientSocket::new(), message: Bytes::new() })
}

/// Reads what an error says, as far as it comes.
async fn refused(rx: &mut Rx, status: u16, framing: Framing) -> ClientError {
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
    text.truncate(MAX_ERROR);
    // rule: EXEC-35
    let (why, code) = ErrorRecord::parse(&text).map_or_else(
        |_| (words(&text), String::new()),
        |record| (said(record.error), said(record.code)),
    );
    ClientError::Refused { status, code, why }
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
