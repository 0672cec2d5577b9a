//! Live input, over both transports that carry it.
#![cfg(feature = "client")]
#![allow(missing_docs)]

mod client_common;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use client_common::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use triwire::exec::session::{Input, InputReader};
use triwire_std::client::{Output, Session, Transport, Turn};

const BOTH: [Transport; 2] = [Transport::Hijack, Transport::WebSocket];

/// The server's end of the frames, over either transport.
struct Guest {
    peer: Peer,
    socket: bool,
    reader: InputReader,
}

impl Guest {
    async fn accept(mut peer: Peer, transport: Transport) -> Self {
        let socket = transport == Transport::WebSocket;
        if socket {
            peer.upgrade(b"").await;
        } else {
            peer.post().await;
            peer.send(OK).await;
        }
        Self { peer, socket, reader: InputReader::new() }
    }

    /// Reads the next input; `None` at the client's end. Holds frames to the contract's size.
    async fn read(&mut self) -> Option<(Vec<u8>, bool)> {
        let bytes = if self.socket {
            match self.peer.message().await? {
                (2, bytes) => bytes,
                _ => return None,
            }
        } else {
            let mut bytes = vec![0; 64 * 1024];
            let count = self.peer.stream.read(&mut bytes).await.ok().filter(|count| *count > 0)?;
            bytes.truncate(count);
            bytes
        };
        let (mut stdin, mut closed, mut rest) = (Vec::new(), false, &bytes[..]);
        while let Some(input) = self.reader.feed(&mut rest).unwrap() {
            match input {
                Input::Stdin(bytes) => stdin.extend_from_slice(bytes),
                Input::Close => closed = true,
            }
        }
        Some((stdin, closed))
    }

    async fn write(&mut self, frames: &[u8]) {
        if self.socket {
            self.peer.send(&binary(frames)).await;
        } else {
            self.peer.send(frames).await;
        }
    }

    async fn exit(&mut self) {
        self.write(&frame(3, EXIT)).await;
        if self.socket {
            self.peer.send(&close(1000, "")).await;
        }
        self.peer.stream.shutdown().await.unwrap();
    }
}

async fn interactive(url: &str, transport: Transport) -> Session {
    let request = request();
    let client = client(url);
    client.exec("local", &request).interactive().transport(transport).start().await.unwrap()
}

/// Echoes every byte of input, one piece at a time, and exits at the end of input.
async fn echo(peer: Peer, transport: Transport) {
    let mut guest = Guest::accept(peer, transport).await;
    while let Some((bytes, closed)) = guest.read().await {
        for chunk in bytes.chunks(65_536) {
            guest.write(&frame(1, chunk)).await;
        }
        if closed {
            guest.exit().await;
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

#[tokio::test]
async fn an_echo_of_more_than_all_buffers_hold_comes_back() {
    // rule: EXEC-3
    // rule: EXEC-48
    for transport in BOTH {
        let (url, served) = serve(move |peer| echo(peer, transport)).await;
        // Far more than the buffers of both ends and of the system between them.
        let input = pattern(16 << 20);
        let mut session = interactive(&url, transport).await;
        let (mut rest, mut output) = (&input[..], Vec::new());
        loop {
            rest = &rest[session.stdin(rest)..];
            if rest.is_empty() && session.is_stdin_open() {
                session.close_stdin();
            }
            match session.next().await.unwrap() {
                Some(Output::Stdout(bytes)) => output.extend_from_slice(bytes),
                Some(Output::Exit(_)) => {}
                Some(other) => panic!("{other:?}"),
                None => break,
            }
        }
        assert!(output == input, "{} bytes", output.len());
        drop(session);
        served.await.unwrap();
    }
}

#[tokio::test]
async fn a_source_is_forwarded_to_its_end() {
    for transport in BOTH {
        let (url, _served) = serve(move |peer| echo(peer, transport)).await;
        let input = pattern(1 << 20);
        let mut output = Vec::new();
        let mut session = interactive(&url, transport).await;
        let source = std::io::Cursor::new(input.clone());
        let result = session
            .run(source, |event| {
                if let Output::Stdout(bytes) = event {
                    output.extend_from_slice(bytes);
                }
            })
            .await
            .unwrap();
        assert_eq!(result.exit_code, 3);
        assert!(output == input);
    }
}

#[tokio::test]
async fn output_behind_the_end_of_input_arrives() {
    // rule: EXEC-11
    for transport in BOTH {
        let (url, served) = serve(move |peer| async move {
            let mut guest = Guest::accept(peer, transport).await;
            let mut stdin = Vec::new();
            loop {
                let (bytes, closed) = guest.read().await.unwrap();
                stdin.extend_from_slice(&bytes);
                if closed {
                    break;
                }
            }
            for chunk in pattern(200_000).chunks(65_536) {
                guest.write(&frame(1, chunk)).await;
            }
            guest.exit().await;
            // The client's sending side is open until it has read all.
            let after = guest.read().await;
            (stdin, after)
        })
        .await;
        let mut session = interactive(&url, transport).await;
        assert_eq!(session.stdin(b"abc"), 3);
        session.close_stdin();
        // What comes too late is dropped, and no loop waits for it.
        assert_eq!(session.stdin(b"late"), 4);
        let outcome = drain(session).await;
        assert_eq!(outcome.exit_code(), Some(3));
        assert!(outcome.stdout == pattern(200_000));
        drop(outcome);
        assert_eq!(served.await.unwrap(), (b"abc".to_vec(), None));
    }
}

/// Never gives anything, and tells when it was dropped.
struct Stuck(Arc<AtomicBool>);

impl AsyncRead for Stuck {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Pending
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn the_exit_ends_a_blocked_source_at_once() {
    // rule: EXEC-39
    for transport in BOTH {
        let (url, _served) = serve(move |peer| async move {
            let mut guest = Guest::accept(peer, transport).await;
            // The connection stays open: only the exit tells.
            guest.write(&frame(3, EXIT)).await;
            while guest.read().await.is_some() {}
        })
        .await;
        let dropped = Arc::new(AtomicBool::new(false));
        let mut session = interactive(&url, transport).await;
        session.forward_stdin(Stuck(Arc::clone(&dropped)));
        assert!(!dropped.load(Ordering::SeqCst));
        assert!(matches!(session.next().await.unwrap(), Some(Output::Exit(_))));
        assert!(dropped.load(Ordering::SeqCst));
        assert!(!session.is_stdin_open());
        assert_eq!(session.stdin(b"more"), 4);
        assert_eq!(session.result().unwrap().exit_code, 3);
    }
}

#[tokio::test]
async fn an_exit_over_unread_input_still_arrives() {
    // rule: EXEC-40
    for transport in BOTH {
        let (url, _served) = serve(move |peer| async move {
            let mut guest = Guest::accept(peer, transport).await;
            for chunk in pattern(1 << 20).chunks(65_536) {
                guest.write(&frame(1, chunk)).await;
            }
            guest.exit().await;
            guest.peer.end().await
        })
        .await;
        let mut session = interactive(&url, transport).await;
        // Nobody will ever read this.
        session.forward_stdin(tokio::io::repeat(b'x'));
        let outcome = drain(session).await;
        assert!(outcome.stdout == pattern(1 << 20));
        assert_eq!(outcome.exit_code(), Some(3));
        assert!(outcome.end.is_ok(), "{:?}", outcome.end);
    }
}

#[tokio::test]
async fn a_source_that_never_waits_does_not_starve_the_output() {
    for transport in BOTH {
        let (url, _served) = serve(move |peer| async move {
            let mut guest = Guest::accept(peer, transport).await;
            let mut taken = 0;
            while taken < 8 << 20 {
                taken += guest.read().await.unwrap().0.len();
            }
            guest.exit().await;
            while guest.read().await.is_some() {}
        })
        .await;
        let mut session = interactive(&url, transport).await;
        session.forward_stdin(tokio::io::repeat(b'x'));
        assert!(matches!(session.next().await.unwrap(), Some(Output::Exit(_))));
    }
}

#[tokio::test]
async fn input_of_the_caller_s_own_goes_out_while_the_command_is_silent() {
    for transport in BOTH {
        let (url, _served) = serve(move |peer| async move {
            let mut guest = Guest::accept(peer, transport).await;
            let (mut taken, mut ended) = (0, false);
            while !ended {
                let (bytes, closed) = guest.read().await.unwrap();
                taken += bytes.len();
                ended = closed;
            }
            guest.write(&frame(1, taken.to_string().as_bytes())).await;
            guest.exit().await;
            while guest.read().await.is_some() {}
        })
        .await;
        let input = pattern(8 << 20);
        let (mut rest, mut output) = (&input[..], Vec::new());
        let mut session = interactive(&url, transport).await;
        loop {
            rest = &rest[session.stdin(rest)..];
            if rest.is_empty() {
                session.close_stdin();
            }
            match session.turn().await.unwrap() {
                Turn::Output(Output::Stdout(bytes)) => output.extend_from_slice(bytes),
                Turn::Output(_) | Turn::Input => {}
                Turn::End => break,
            }
        }
        assert_eq!(output, input.len().to_string().as_bytes());
    }
}

#[tokio::test]
async fn a_dropped_wait_loses_nothing() {
    for transport in BOTH {
        let (url, _served) = serve(move |mut peer| async move {
            let socket = transport == Transport::WebSocket;
            let wire = if socket {
                let head = peer.head().await;
                let ones = [binary(&frames()), close(1000, "")].concat();
                [switching(&head).into_bytes(), ones].concat()
            } else {
                peer.post().await;
                [OK, &frames()].concat()
            };
            peer.trickle(&wire).await;
            peer.end().await
        })
        .await;
        let mut session = interactive(&url, transport).await;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            {
                // Polled once, then dropped.
                let mut once = pin!(session.next());
                let polled = std::future::poll_fn(|cx| Poll::Ready(once.as_mut().poll(cx))).await;
                match polled {
                    Poll::Pending => {}
                    Poll::Ready(output) => match output.unwrap() {
                        Some(Output::Stdout(bytes)) => stdout.extend_from_slice(bytes),
                        Some(Output::Stderr(bytes)) => stderr.extend_from_slice(bytes),
                        Some(Output::Exit(_)) => {}
                        None => break,
                    },
                }
            }
            tokio::task::yield_now().await;
        }
        assert_eq!((&stdout[..], &stderr[..]), (&b"hello"[..], &b"oops"[..]));
        assert_eq!(session.result().unwrap().exit_code, 3);
    }
}

#[tokio::test]
async fn a_dropped_session_closes_the_connection() {
    // rule: EXEC-22
    for transport in BOTH {
        let (url, served) = serve(move |peer| async move {
            let mut guest = Guest::accept(peer, transport).await;
            while guest.read().await.is_some() {}
        })
        .await;
        drop(interactive(&url, transport).await);
        served.await.unwrap();
    }
}

#[tokio::test]
async fn collecting_stops_at_its_limit() {
    for (limit, whole) in [(9, true), (8, false)] {
        let (url, _served) = serve(|mut peer| async move {
            peer.post().await;
            peer.send(&[OK, &frames()].concat()).await;
            peer.end().await
        })
        .await;
        let session = client(&url).exec("local", &request()).start().await.unwrap();
        match session.collect(limit).await {
            Ok(all) => {
                assert!(whole);
                assert_eq!((&all.stdout[..], &all.stderr[..]), (&b"hello"[..], &b"oops"[..]));
                assert_eq!(all.result.exit_code, 3);
            }
            Err(error) => {
                assert!(!whole);
                assert_eq!(error.code(), "too_much_output");
            }
        }
    }
}
