//! The accept loop, and one connection from its first byte to its last.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
#[cfg(feature = "tls")]
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{Instrument, debug, info, warn};
use triwire::exec::head::MAX_HEADERS;
#[cfg(feature = "tls")]
use triwire::exec::head::Refusal;

#[cfg(feature = "tls")]
use super::metrics::Counters;
use super::service::{Own, Service, Taken, Takeover};
use super::stop::{Stop, Stopper};
use super::transport::Socket;
use super::{HEAD_BOUND, MAX_HEAD, SHUTDOWN_BOUND, Shared, hijack, is_loopback, websocket};
use crate::clock::Clock;
#[cfg(feature = "tls")]
use crate::tls::ServerTls;

/// How long to wait when the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bytes that one connection may have buffered in the HTTP library, each way.
const HTTP_BUFFER: usize = 256 * 1024;

pub(super) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    // rule: EXEC-70
    shared.exposure(address).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
    info!(%address, "listening");
    let stopper = Stopper::new();
    let clock = Clock::start();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < shared.max_connections => {
                match accepted {
                    Ok((stream, _)) => {
                        let shared = Arc::clone(&shared);
                        connections.spawn(connection(shared, stream, stopper.subscribe(), clock));
                    }
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        warn!(%error, "cannot accept");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
    }
    drop(listener);
    info!(sessions = connections.len(), "shutting down");
    stopper.stop();
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(SHUTDOWN_BOUND, ended).await.is_err() {
        warn!(left = connections.len(), "connections did not end in time: dropped");
    }
    connections.shutdown().await;
    Ok(())
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
    )
}

/// Serves one connection until it ends, as HTTP or as what it became.
async fn connection(shared: Arc<Shared>, stream: TcpStream, stop: Stop, clock: Clock) {
    let counters = Arc::clone(&shared.counters);
    let _counted = counters.connection();
    let Ok(local) = stream.local_addr() else { return };
    // Frames are written whole: waiting for more only delays them.
    let _ = stream.set_nodelay(true);
    let socket = Socket::new(stream);
    #[cfg(feature = "tls")]
    let socket = match &shared.tls {
        Some(tls) => match secure(socket, tls, &counters, &stop, clock).await {
            Some(socket) => socket,
            None => return,
        },
        None => socket,
    };
    let own = Own { socket, taken: Taken::default() };
    let (socket, taken) = (own.socket.clone(), own.taken.clone());
    let service = Service {
        shared,
        port: local.port(),
        loopback: is_loopback(local),
        clock,
        stop: stop.clone(),
        own: Some(own),
    };
    let (unread, takeover) = http(service, socket.clone(), &taken, &stop).await;
    match takeover {
        None => socket.linger(clock).await,
        Some(Takeover::Hijack(command)) => {
            let span = command.span();
            Box::pin(hijack::run(socket, unread, command, stop, clock)).instrument(span).await;
        }
        Some(Takeover::Executor(channel, entry)) => {
            Box::pin(channel.run(socket, unread, entry, stop)).await;
        }
        Some(Takeover::Socket(sandbox, span)) => {
            let watch = Some(socket.clone());
            let session = websocket::run(socket, unread, watch, sandbox, stop, clock);
            Box::pin(session).instrument(span).await;
        }
    }
}

/// Shakes hands, or tells a peer that speaks plain HTTP what is wrong; none when there is no
/// connection left.
#[cfg(feature = "tls")]
async fn secure(
    socket: Socket,
    tls: &ServerTls,
    counters: &Counters,
    stop: &Stop,
    clock: Clock,
) -> Option<Socket> {
    let securing = async {
        if socket.begins_tls().await? {
            return socket.secure(&tls.acceptor()).await.map(Some);
        }
        let refusal = Refusal::tls_missing();
        counters.refused(refusal.status, refusal.code);
        let mut room = [0; 1024];
        // The core says that it is enough.
        let answer = refusal.write(refusal.why, &mut room).unwrap_or_default();
        let mut plain = socket;
        plain.write_all(answer).await?;
        plain.linger(clock).await;
        Ok::<_, io::Error>(None)
    };
    // Who has not even shaken hands is not waited for.
    let mut stop = stop.event();
    let secured = tokio::select! {
        () = &mut stop => return None,
        secured = timeout(HEAD_BOUND, securing) => secured,
    };
    match secured {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => {
            debug!(%error, "no TLS");
            None
        }
        Err(_) => {
            debug!("no TLS within {} s", HEAD_BOUND.as_secs());
            None
        }
    }
}

/// Speaks HTTP until the connection ends or becomes something else; returns what was read behind
/// the last request.
async fn http(
    service: Service,
    socket: Socket,
    taken: &Taken,
    stop: &Stop,
) -> (Bytes, Option<Takeover>) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let answer = service.clone().answer(request);
        Box::pin(async move { Ok::<_, Infallible>(answer.await) })
    });
    let mut connection = Box::new(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_BOUND)
            .max_headers(MAX_HEADERS)
            .max_header_size(MAX_HEAD)
            .max_buf_size(HTTP_BUFFER)
            .serve_connection(TokioIo::new(socket), service),
    );
    let mut stop = Some(stop.event());
    let (ended, hijack) = poll_fn(|cx| {
        if let Some(event) = &mut stop
            && event.as_mut().poll(cx).is_ready()
        {
            stop = None;
            Pin::new(&mut *connection).graceful_shutdown();
        }
        let polled = connection.poll_without_shutdown(cx);
        match (polled, taken.take_hijack()) {
            (_, Some(hijack)) => Poll::Ready((Ok(()), Some(hijack))),
            (Poll::Ready(ended), None) => Poll::Ready((ended, None)),
            (Poll::Pending, None) => Poll::Pending,
        }
    })
    .await;
    if let Err(error) = &ended {
        debug!(%error, "connection ended");
    }
    let takeover = hijack.or_else(|| ended.is_ok().then(|| taken.take()).flatten());
    (connection.into_parts().read_buf, takeover)
}
