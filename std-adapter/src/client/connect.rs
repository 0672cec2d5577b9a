//! From a request to a session.

use std::sync::Arc;

use bytes::Bytes;
use triwire::exec::body::Body;
use triwire::exec::head::{HeadError, Mode, RequestHead};
use triwire::exec::request::MAX_REQUEST_BODY;
use triwire::exec::socket::{ClientSocket, MAX_SOCKET_MESSAGE};
use zeroize::Zeroizing;

use super::link::{HttpLink, INBOX, Link, OUTBOX, Rx, SocketLink, Tx};
use super::stream::{DialError, Stream};
use super::{Client, ClientError, Session, Transport};
use crate::entropy;
use crate::exchange::{self, Refusal};
use crate::tokio::socket;

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
    let (reader, writer) = tokio::io::split(stream);
    let mut rx = Rx::new(reader, vec![0; INBOX].into_boxed_slice());
    // One-shot sends nothing behind its request.
    let more = if transport == Transport::Hijack { OUTBOX } else { 0 };
    let room = wire.len().max(more);
    let mut tx = Tx::new(writer, Zeroizing::new(vec![0; room]));
    // There is room: it was made for it.
    let _ = tx.send(&wire);
    drop(wire);

    let answer = exchange::exchange(&mut rx, &mut tx, mode).await?;
    rx.consume(answer.len);
    let framing = match answer.verdict {
        Ok(framing) => framing,
        Err(HeadError::Status { found }) => {
            let Refusal { code, why } = exchange::refusal(&mut rx, answer.framing).await;
            return Err(ClientError::Refused { status: found, code, why });
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
    Ok(exchange::write_head(&head, len)?)
}

/// Connects, in TLS where the URL says so: both within the client's bound.
pub(super) async fn dial(client: &Client) -> Result<Stream, ClientError> {
    let (host, port) = client.address();
    let after = client.connect_timeout;
    #[cfg(feature = "tls")]
    let trust = client.tls.as_ref();
    #[cfg(not(feature = "tls"))]
    let trust = None;
    let url = || client.url();
    Stream::dial((&host, port), trust, after).await.map_err(|error| match error {
        DialError::Connect(source) => ClientError::Connect { url: url(), source: Arc::new(source) },
        #[cfg(feature = "tls")]
        DialError::Tls(source) => ClientError::Tls { url: url(), source: Arc::new(source) },
        DialError::Late => ClientError::ConnectTimeout { url: url(), after },
    })
}

/// Goes on in messages on the same connection; what came behind the head is the first of them.
async fn upgraded(rx: Rx, tx: Tx, request: &[u8]) -> Result<SocketLink, ClientError> {
    let unread = rx.unread().to_vec();
    let stream = rx.into_reader().unsplit(tx.into_writer());
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
