//! An executor at the other end of a stream of bytes, its messages one a line: a device on a serial
//! line, a program at a pipe or a socket.

use std::io;
use std::pin::pin;

use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::time::timeout;
use triwire::channel::hello::Refused;
use triwire::channel::lines::{self, LINE_EXTRA, Lines};
use triwire::channel::refusal::Refusal;

use super::Seat;
use super::link::CLOSE_BOUND;
use crate::Wake;
use crate::tokio::stream::{Rx, Tx};

/// Bytes of calls that are taken from the seat before they are sent: what is given up later is
/// sent all the same.
const AHEAD: usize = 4096;

impl Seat {
    /// Holds the chair for whoever is at the other end of `stream`, until its end or until the
    /// chair is taken away: then the executor is told why, and the answer is that word.
    ///
    /// Nobody is asked for a hello: who has the stream, has the chair. A line that is longer than
    /// the chairs' longest message is dropped.
    ///
    /// ```
    /// use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    /// use triwire::channel::broker::Request;
    /// use triwire::channel::envelope::{Call, Object};
    /// use triwire_std::channel::{Chairs, Executor, Limits, Outcome};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let chairs = Chairs::new(Limits::default());
    /// let board = Executor::Machine("board".into());
    /// let (ours, mut theirs) = tokio::io::duplex(1024);
    /// tokio::spawn(chairs.sit(board.clone())?.serve_lines(ours));
    ///
    /// let asked = chairs.ask(&board, Request::new("board", "read", Object::EMPTY, Object::EMPTY));
    /// let mut call = String::new();
    /// BufReader::new(&mut theirs).read_line(&mut call).await?;
    /// let id = Call::parse(call.as_bytes(), 64)?.call_id;
    /// let answer = format!("{{\"v\":1,\"callId\":\"{id}\",\"ok\":true,\"observed\":{{}}}}\n");
    /// theirs.write_all(answer.as_bytes()).await?;
    /// assert!(matches!(asked.await, Outcome::Observed(_)));
    ///
    /// let asked = chairs.ask(&board, Request::new("board", "read", Object::EMPTY, Object::EMPTY));
    /// drop(theirs);
    /// let Outcome::Refused { refused, .. } = asked.await else { panic!() };
    /// assert_eq!(refused, "machine-closed");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The stream's own.
    ///
    /// # Cancel safety
    /// Dropping it gives up the chair, and closes its calls.
    pub async fn serve_lines<S>(mut self, stream: S) -> io::Result<Option<Refusal>>
    where
        S: AsyncRead + AsyncWrite,
    {
        let limit = self.limits().message;
        let mut found = Lines::new(limit);
        let stream = pin!(stream);
        let (reader, writer) = split(stream);
        let mut rx = Rx::new(reader, vec![0; limit.saturating_add(LINE_EXTRA)]);
        let mut tx = Tx::new(writer, vec![0; limit.saturating_add(AHEAD)]);
        let clock = self.clock();
        loop {
            if let Some(refusal) = self.end() {
                let mut room = [0; 256];
                // The core says that it is enough.
                let len = Refused(refusal).write(lines::room(&mut room)).map_or(0, <[u8]>::len);
                if let Ok(line) = lines::end(&mut room, len) {
                    // Without room the end alone says it.
                    let _ = tx.send(line);
                }
                // Who does not read it is left all the same.
                let _ = timeout(CLOSE_BOUND, tx.shutdown()).await;
                return Ok(Some(refusal));
            }
            while tx.unsent().len() < AHEAD
                && let Some(message) = self.next()
            {
                let mut line = message.into_bytes();
                let len = line.len();
                line.resize(len + LINE_EXTRA, 0);
                if let Ok(line) = lines::end(&mut line, len) {
                    // No call is longer than the longest message.
                    let _ = tx.send(line);
                }
            }
            let deadline = self.deadline().map(|at| clock.to_tokio(at));
            tokio::select! {
                woken = rx.wait(deadline) => match woken? {
                    Wake::End => return Ok(None),
                    Wake::Deadline => self.poll(),
                    Wake::Bytes => {}
                },
                sent = tx.flush(), if !tx.is_flushed() => sent?,
                () = self.changed() => {}
            }
            while let Some(mut window) = rx.next() {
                if let Some(message) = found.feed(&mut window.rest) {
                    self.feed(message);
                }
            }
        }
    }
}
