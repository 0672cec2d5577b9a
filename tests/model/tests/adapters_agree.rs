//! One script drives the adapters over tokio, `std::io`, `embedded_io` and `embedded_io_async`, and
//! the example of a loop of one's own, to one transcript.
//!
//! The script cuts reads and writes as it likes, down to single bytes, interrupts them and lets
//! them wait. Every future is dropped at its first pending and made anew, every blocking call
//! that fails for the moment is made again: no byte may be lost or doubled.
#![allow(missing_docs)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use triwire::OutTooSmall;
use triwire::buffer::Window;
use triwire::exec::result::ExecResult;
use triwire::exec::session::{Input, InputReader, InputWriter, Output, OutputReader, OutputWriter};
use triwire::exec::{ExecError, Fault};
use triwire::json::Text;

/// What the transport does at one call.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Moves at most so many bytes.
    Move(usize),
    /// Is interrupted by a signal.
    Interrupted,
    /// Has nothing for the moment.
    NotYet,
}

/// Why a call of the transport moved nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nothing {
    Interrupted,
    NotYet,
}

/// A transport after a script. What is written shows on the wire once it is flushed.
#[derive(Clone)]
struct Wire(Rc<RefCell<State>>);

struct State {
    input: VecDeque<u8>,
    steps: Vec<Step>,
    at: usize,
    held: Vec<u8>,
    wire: Vec<u8>,
}

impl Wire {
    fn new(input: &[u8], steps: &[Step]) -> Self {
        let input = input.iter().copied().collect();
        let steps = steps.to_vec();
        Self(Rc::new(RefCell::new(State { input, steps, at: 0, held: vec![], wire: vec![] })))
    }

    fn wire(&self) -> Vec<u8> {
        self.0.borrow().wire.clone()
    }

    fn step(&self) -> Result<usize, Nothing> {
        let mut state = self.0.borrow_mut();
        let step = state.steps.get(state.at % state.steps.len().max(1)).copied();
        state.at += 1;
        match step.unwrap_or(Step::Move(usize::MAX)) {
            Step::Move(count) => Ok(count),
            Step::Interrupted => Err(Nothing::Interrupted),
            Step::NotYet => Err(Nothing::NotYet),
        }
    }

    fn pull(&self, out: &mut [u8]) -> Result<usize, Nothing> {
        assert!(!out.is_empty(), "a read of nothing looks like the end");
        let count = self.step()?.min(out.len());
        let mut state = self.0.borrow_mut();
        let count = count.min(state.input.len());
        for (to, byte) in out.iter_mut().zip(state.input.drain(..count)) {
            *to = byte;
        }
        Ok(count)
    }

    fn put(&self, bytes: &[u8]) -> Result<usize, Nothing> {
        let count = self.step()?.min(bytes.len());
        self.0.borrow_mut().held.extend(&bytes[..count]);
        Ok(count)
    }

    fn show(&self) -> Result<(), Nothing> {
        self.step()?;
        let mut state = self.0.borrow_mut();
        let held = std::mem::take(&mut state.held);
        state.wire.extend(held);
        Ok(())
    }
}

impl From<Nothing> for io::Error {
    fn from(nothing: Nothing) -> Self {
        match nothing {
            Nothing::Interrupted => io::ErrorKind::Interrupted.into(),
            Nothing::NotYet => io::ErrorKind::WouldBlock.into(),
        }
    }
}

impl io::Read for Wire {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(self.pull(out)?)
    }
}

impl io::Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.put(bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(self.show()?)
    }
}

impl std::fmt::Display for Nothing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Nothing {}

impl embedded_io::Error for Nothing {
    fn kind(&self) -> embedded_io::ErrorKind {
        match self {
            Self::Interrupted => embedded_io::ErrorKind::Interrupted,
            Self::NotYet => embedded_io::ErrorKind::TimedOut,
        }
    }
}

impl embedded_io::ErrorType for Wire {
    type Error = Nothing;
}

impl embedded_io::Read for Wire {
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Nothing> {
        self.pull(out)
    }
}

impl embedded_io::Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Nothing> {
        self.put(bytes)
    }

    fn flush(&mut self) -> Result<(), Nothing> {
        self.show()
    }
}

fn polled<T, E: From<Nothing>>(done: Result<T, Nothing>) -> Poll<Result<T, E>> {
    match done {
        Err(Nothing::NotYet) => Poll::Pending,
        done => Poll::Ready(done.map_err(Into::into)),
    }
}

impl embedded_io_async::Read for Wire {
    async fn read(&mut self, out: &mut [u8]) -> Result<usize, Nothing> {
        poll_fn(|_| polled(self.pull(out))).await
    }
}

impl embedded_io_async::Write for Wire {
    async fn write(&mut self, bytes: &[u8]) -> Result<usize, Nothing> {
        poll_fn(|_| polled(self.put(bytes))).await
    }

    async fn flush(&mut self) -> Result<(), Nothing> {
        poll_fn(|_| polled(self.show())).await
    }
}

impl tokio::io::AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        out: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let taken = self.pull(out.initialize_unfilled());
        if let Ok(count) = taken {
            out.advance(count);
        }
        polled(taken.map(|_| ()))
    }
}

impl tokio::io::AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        polled(self.put(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        polled(self.show())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

/// Whether a wait ended with bytes; an error as text.
type Came = Result<bool, String>;

/// The receiving half of any adapter.
trait Receive {
    fn wait(&mut self) -> Came;
    fn lend(&mut self) -> Option<Window<'_>>;
}

/// The sending half of any adapter.
trait Transmit {
    fn send(&mut self, bytes: &[u8]) -> Result<(), OutTooSmall>;
    fn flush(&mut self) -> Result<(), String>;
}

mod on_std {
    use super::*;
    use triwire_std::Wake;
    use triwire_std::blocking::{Rx, Tx};

    fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> Result<T, String> {
        loop {
            match call() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done.map_err(|error| error.to_string()),
            }
        }
    }

    impl<B: AsRef<[u8]> + AsMut<[u8]>> Receive for Rx<Wire, B> {
        fn wait(&mut self) -> Came {
            again(|| Rx::wait(self)).map(|wake| wake == Wake::Bytes)
        }

        fn lend(&mut self) -> Option<Window<'_>> {
            self.next()
        }
    }

    impl<W: io::Write, B: AsRef<[u8]> + AsMut<[u8]>> Transmit for Tx<W, B> {
        fn send(&mut self, bytes: &[u8]) -> Result<(), OutTooSmall> {
            Tx::send(self, bytes)
        }

        fn flush(&mut self) -> Result<(), String> {
            again(|| Tx::flush(self))
        }
    }
}

mod on_embedded {
    use super::*;
    use triwire_embedded::blocking::{LinkError, Rx, Tx, Wake};

    fn again<T>(mut call: impl FnMut() -> Result<T, LinkError<Nothing>>) -> Result<T, String> {
        loop {
            match call() {
                Err(LinkError::Transport(Nothing::NotYet)) => {}
                done => return done.map_err(|error| error.to_string()),
            }
        }
    }

    impl<B: AsRef<[u8]> + AsMut<[u8]>> Receive for Rx<Wire, B> {
        fn wait(&mut self) -> Came {
            again(|| Rx::wait(self)).map(|wake| wake == Wake::Bytes)
        }

        fn lend(&mut self) -> Option<Window<'_>> {
            self.next()
        }
    }

    impl<W, B> Transmit for Tx<W, B>
    where
        W: embedded_io::Write<Error = Nothing>,
        B: AsRef<[u8]> + AsMut<[u8]>,
    {
        fn send(&mut self, bytes: &[u8]) -> Result<(), OutTooSmall> {
            Tx::send(self, bytes)
        }

        fn flush(&mut self) -> Result<(), String> {
            again(|| Tx::flush(self))
        }
    }
}

/// Polls one future after the other until one is ready: each that is pending is dropped, and the
/// next one goes on. No executor, no waker.
fn dropped_when_pending<L, T, E: std::fmt::Display>(
    link: &mut L,
    future: impl for<'f> Fn(&'f mut L) -> Pin<Box<dyn Future<Output = Result<T, E>> + 'f>>,
) -> Result<T, String> {
    loop {
        let once = future(link).as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(done) = once {
            return done.map_err(|error| error.to_string());
        }
    }
}

mod on_embedded_async {
    use super::*;
    use triwire_embedded::asynch::{Rx, Tx, Wake};

    impl<B: AsRef<[u8]> + AsMut<[u8]>> Receive for Rx<Wire, B> {
        fn wait(&mut self) -> Came {
            dropped_when_pending(self, |rx| Box::pin(Rx::wait(rx))).map(|wake| wake == Wake::Bytes)
        }

        fn lend(&mut self) -> Option<Window<'_>> {
            self.next()
        }
    }

    impl<W, B> Transmit for Tx<W, B>
    where
        W: embedded_io_async::Write<Error = Nothing>,
        B: AsRef<[u8]> + AsMut<[u8]>,
    {
        fn send(&mut self, bytes: &[u8]) -> Result<(), OutTooSmall> {
            Tx::send(self, bytes)
        }

        fn flush(&mut self) -> Result<(), String> {
            let done = dropped_when_pending(self, |tx| Box::pin(Tx::flush(tx)));
            assert_eq!(self.is_flushed(), done.is_ok());
            done
        }
    }
}

mod on_an_own_loop {
    use super::*;
    use triwire_custom_loop::{Came, Link};

    /// A half that only receives, made as the adapters are.
    pub(super) struct Rx(Link<Wire>);

    /// A half that only sends.
    pub(super) struct Tx(Link<Wire>);

    impl Rx {
        pub(super) fn new<const N: usize>(wire: Wire, _: [u8; N]) -> Self {
            Self(Link::new(wire, N, 0))
        }
    }

    impl Tx {
        pub(super) fn new<const N: usize>(wire: Wire, _: [u8; N]) -> Self {
            Self(Link::new(wire, 0, N))
        }
    }

    impl Receive for Rx {
        fn wait(&mut self) -> super::Came {
            loop {
                match self.0.fill() {
                    Ok(Came::Nothing) => {}
                    done => {
                        return done
                            .map(|came| came == Came::Bytes)
                            .map_err(|error| error.to_string());
                    }
                }
            }
        }

        fn lend(&mut self) -> Option<Window<'_>> {
            self.0.inbox.lend()
        }
    }

    impl Transmit for Tx {
        fn send(&mut self, bytes: &[u8]) -> Result<(), OutTooSmall> {
            self.0.outbox.push(bytes)
        }

        fn flush(&mut self) -> Result<(), String> {
            loop {
                match self.0.flush() {
                    Ok(false) => {}
                    done => return done.map(|_| ()).map_err(|error| error.to_string()),
                }
            }
        }
    }
}

mod on_tokio {
    use super::*;
    use triwire_std::Wake;
    use triwire_std::tokio::stream::{Rx, Tx};

    impl<B: AsRef<[u8]> + AsMut<[u8]>> Receive for Rx<Wire, B> {
        fn wait(&mut self) -> Came {
            let woken = dropped_when_pending(self, |rx| Box::pin(Rx::wait(rx, None)));
            woken.map(|wake| wake == Wake::Bytes)
        }

        fn lend(&mut self) -> Option<Window<'_>> {
            self.next()
        }
    }

    impl<W: tokio::io::AsyncWrite + Unpin, B: AsRef<[u8]> + AsMut<[u8]>> Transmit for Tx<W, B> {
        fn send(&mut self, bytes: &[u8]) -> Result<(), OutTooSmall> {
            Tx::send(self, bytes)
        }

        fn flush(&mut self) -> Result<(), String> {
            dropped_when_pending(self, |tx| Box::pin(Tx::flush(tx)))
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Bytes,
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Exit(i32, String),
    Broken(ExecError),
    Ended(Result<(), ExecError>),
    Link(String),
}

/// An exec client that sends every piece of output back as input.
fn session(rx: &mut impl Receive, tx: &mut impl Transmit) -> Vec<Seen> {
    let mut machine = OutputReader::new([0; 512]);
    let mut writer = InputWriter::new();
    let mut seen = Vec::new();
    let mut frames = [0; 128];
    loop {
        match rx.wait() {
            Ok(true) => seen.push(Seen::Bytes),
            Ok(false) => {
                seen.push(Seen::Ended(machine.finish()));
                return seen;
            }
            Err(error) => {
                seen.push(Seen::Link(error));
                return seen;
            }
        }
        while let Some(mut window) = rx.lend() {
            loop {
                let data = match machine.feed(&mut window.rest) {
                    Ok(Some(Output::Stdout(data))) => {
                        seen.push(Seen::Stdout(data.to_vec()));
                        data
                    }
                    Ok(Some(Output::Stderr(data))) => {
                        seen.push(Seen::Stderr(data.to_vec()));
                        continue;
                    }
                    Ok(Some(Output::Exit(exit))) => {
                        let error = machine.result().map(|result| result.error.to_string());
                        seen.push(Seen::Exit(exit.exit_code, error.unwrap_or_default()));
                        continue;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        seen.push(Seen::Broken(error));
                        return seen;
                    }
                };
                let bytes = writer.stdin(data).unwrap().write(&mut frames).unwrap();
                if let Err(full) = tx.send(bytes) {
                    assert_eq!(full.needed, bytes.len());
                    tx.flush().unwrap();
                    tx.send(bytes).unwrap();
                }
            }
        }
        tx.flush().unwrap();
    }
}

const RX: usize = 24;
const TX: usize = 40;

/// Runs one script on every adapter; they must agree on what they saw and what they sent.
fn agreed(input: &[u8], steps: &[Step]) -> (Vec<Seen>, Vec<u8>) {
    macro_rules! run {
        ($($link:ident)::+) => {{
            let (come, go) = (Wire::new(input, steps), Wire::new(&[], steps));
            let mut rx = $($link)::+::Rx::new(come, [0; RX]);
            let mut tx = $($link)::+::Tx::new(go.clone(), [0; TX]);
            (session(&mut rx, &mut tx), go.wire())
        }};
    }
    let on_std = run!(triwire_std::blocking);
    let on_embedded = run!(triwire_embedded::blocking);
    let on_embedded_async = run!(triwire_embedded::asynch);
    let on_tokio = run!(triwire_std::tokio::stream);
    let on_an_own_loop = run!(on_an_own_loop);
    assert_eq!(on_std, on_embedded);
    assert_eq!(on_std, on_embedded_async);
    assert_eq!(on_std, on_tokio);
    assert_eq!(on_std, on_an_own_loop);
    on_std
}

/// What a guest sends, and the standard output in it.
fn guest() -> (Vec<u8>, Vec<u8>) {
    let mut writer = OutputWriter::new();
    let mut out = [0; 1024];
    let mut stream = Vec::new();
    let mut stdout = Vec::new();
    for piece in [&b"one"[..], &[7; 100], b"x", &[9; 33]] {
        stream.extend_from_slice(writer.stdout(piece).unwrap().write(&mut out).unwrap());
        stream.extend_from_slice(writer.stderr(b"!").unwrap().write(&mut out).unwrap());
        stdout.extend_from_slice(piece);
    }
    let error = Text::plain("not found: \u{20ac}");
    let result = ExecResult { exit_code: 127, error, ..ExecResult::default() };
    stream.extend_from_slice(writer.exit(&result, &mut out).unwrap());
    (stream, stdout)
}

fn echoed(wire: &[u8]) -> Vec<u8> {
    let mut machine = InputReader::new();
    let mut rest = wire;
    let mut stdin = Vec::new();
    while let Some(Input::Stdin(data)) = machine.feed(&mut rest).unwrap() {
        stdin.extend_from_slice(data);
    }
    machine.finish().unwrap();
    stdin
}

fn stdout(seen: &[Seen]) -> Vec<u8> {
    let piece = |seen: &Seen| match seen {
        Seen::Stdout(data) => data.clone(),
        _ => vec![],
    };
    seen.iter().flat_map(piece).collect()
}

fn complete(steps: &[Step]) {
    let (stream, output) = guest();
    let (seen, wire) = agreed(&stream, steps);
    assert_eq!(stdout(&seen), output);
    assert_eq!(seen.iter().filter(|seen| matches!(seen, Seen::Stderr(_))).count(), 4);
    assert!(seen.contains(&Seen::Exit(127, "not found: \u{20ac}".into())));
    assert_eq!(seen.last(), Some(&Seen::Ended(Ok(()))));
    assert_eq!(echoed(&wire), output);
}

#[test]
fn single_bytes_interrupts_and_waits() {
    use Step::{Interrupted, Move, NotYet};
    complete(&[]);
    complete(&[Move(1)]);
    complete(&[NotYet, Move(1)]);
    complete(&[Interrupted, NotYet, Interrupted, Move(1)]);
    complete(&[Move(1), NotYet, Move(7), Interrupted, NotYet, Move(1000)]);
}

proptest! {
    #[test]
    fn any_script(
        steps in prop::collection::vec(
            prop_oneof![
                6 => (1_usize..40).prop_map(Step::Move),
                1 => Just(Step::Interrupted),
                2 => Just(Step::NotYet),
            ],
            0..40,
        ),
    ) {
        // A script without a step that moves would never end.
        let moves = steps.iter().any(|step| matches!(step, Step::Move(_)));
        let steps = if moves { steps } else { vec![] };
        complete(&steps);
    }
}

#[test]
fn the_end_is_judged_where_it_stands() {
    // rule: EXEC-4, EXEC-6
    let (stream, _) = guest();
    for cut in 0..stream.len() {
        let (seen, _) = agreed(&stream[..cut], &[Step::Move(5), Step::NotYet]);
        let Some(Seen::Ended(Err(error))) = seen.last() else { panic!("{cut}: {seen:?}") };
        let edges = [0, 11, 20, 128, 137, 146, 155, 196, 205];
        let lost = edges.contains(&cut);
        assert_eq!(error.fault == Fault::MissingExit, lost, "{cut}: {error}");
        assert!(lost || matches!(error.fault, Fault::Truncated { .. }), "{cut}: {error}");
    }
}

#[test]
fn what_does_not_fit_is_an_error_and_never_an_empty_read() {
    /// Takes nothing until all of 25 bytes are there, one more than fit.
    fn starve(rx: &mut impl Receive) -> Came {
        loop {
            match rx.wait() {
                Ok(true) => while rx.lend().is_some() {},
                done => return done,
            }
        }
    }
    let input = [1; 100];
    let wire = || Wire::new(&input, &[Step::Move(5)]);
    let errors = [
        starve(&mut triwire_std::blocking::Rx::new(wire(), [0; RX])).unwrap_err(),
        starve(&mut triwire_embedded::blocking::Rx::new(wire(), [0; RX])).unwrap_err(),
        starve(&mut triwire_embedded::asynch::Rx::new(wire(), [0; RX])).unwrap_err(),
        starve(&mut triwire_std::tokio::stream::Rx::new(wire(), [0; RX])).unwrap_err(),
    ];
    assert!(errors[0].contains("does not fit"));
    assert!(errors.iter().all(|error| *error == errors[0]));
    let own = starve(&mut on_an_own_loop::Rx::new(wire(), [0; RX])).unwrap_err();
    assert!(own.contains("does not fit"));
}

#[test]
fn a_write_that_takes_nothing_is_an_error() {
    let wire = || Wire::new(&[], &[Step::Move(0)]);
    let stuck = |tx: &mut dyn Transmit| {
        tx.send(b"abc").unwrap();
        tx.flush().unwrap_err()
    };
    let errors = [
        stuck(&mut triwire_std::blocking::Tx::new(wire(), [0; TX])),
        stuck(&mut triwire_embedded::blocking::Tx::new(wire(), [0; TX])),
        stuck(&mut triwire_embedded::asynch::Tx::new(wire(), [0; TX])),
        stuck(&mut on_an_own_loop::Tx::new(wire(), [0; TX])),
        stuck(&mut triwire_std::tokio::stream::Tx::new(wire(), [0; TX])),
    ];
    assert!(errors.iter().all(|error| error.contains("took none")), "{errors:?}");
}

#[test]
fn a_message_one_byte_too_long_leaves_nothing_behind() {
    fn refused(wire: &Wire, tx: &mut impl Transmit) {
        tx.send(&[1; TX - 1]).unwrap();
        assert_eq!(tx.send(&[2; 2]), Err(OutTooSmall { needed: 2 }));
        tx.send(&[3]).unwrap();
        tx.flush().unwrap();
        assert_eq!(wire.wire(), [&[1; TX - 1][..], &[3]].concat());
        assert_eq!(tx.send(&[4; TX + 1]), Err(OutTooSmall { needed: TX + 1 }));
    }
    let wire = || Wire::new(&[], &[Step::Move(7), Step::NotYet]);
    let (a, b, c, d) = (wire(), wire(), wire(), wire());
    refused(&a, &mut triwire_std::blocking::Tx::new(a.clone(), [0; TX]));
    refused(&b, &mut triwire_embedded::blocking::Tx::new(b.clone(), [0; TX]));
    refused(&c, &mut triwire_embedded::asynch::Tx::new(c.clone(), [0; TX]));
    refused(&d, &mut triwire_std::tokio::stream::Tx::new(d.clone(), [0; TX]));
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_is_ready_loses_no_byte() {
    use tokio::io::AsyncWriteExt;
    use tokio::time::{Duration, Instant, sleep};
    use triwire_std::Wake;
    use triwire_std::tokio::stream::Rx;

    let (mut far, near) = tokio::io::duplex(1);
    let (stream, output) = guest();
    tokio::spawn(async move {
        for byte in stream {
            sleep(Duration::from_millis(3)).await;
            far.write_all(&[byte]).await.unwrap();
        }
    });
    let mut rx = Rx::new(near, [0; RX]);
    let mut machine = OutputReader::new([0; 512]);
    let mut came = Vec::new();
    let mut late = 0;
    loop {
        // Half of the waits meet a timer that is ready, the others a deadline of the link.
        let wake = tokio::select! {
            biased;
            wake = rx.wait(Some(Instant::now() + Duration::from_millis(1))) => wake.unwrap(),
            () = sleep(Duration::ZERO), if late % 2 == 0 => Wake::Deadline,
        };
        match wake {
            Wake::Deadline => late += 1,
            Wake::End => break,
            Wake::Bytes => {}
        }
        while let Some(mut window) = rx.next() {
            while let Some(output) = machine.feed(&mut window.rest).unwrap() {
                if let Output::Stdout(data) = output {
                    came.extend_from_slice(data);
                }
            }
        }
    }
    machine.finish().unwrap();
    assert_eq!(came, output);
    assert!(late > 100);
}

#[test]
fn a_wait_of_a_caller_that_takes_nothing_reads_nothing() {
    use triwire_embedded::asynch::{Rx, Wake};

    let wire = Wire::new(&[1; 100], &[]);
    let mut rx = Rx::new(wire.clone(), [0; RX]);
    let poll =
        |rx: &mut Rx<Wire, [u8; RX]>| pin!(rx.wait()).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(poll(&mut rx), Poll::Ready(Ok(Wake::Bytes)));
    assert_eq!(poll(&mut rx), Poll::Pending);
    assert_eq!(wire.0.borrow().input.len(), 100 - RX);
    rx.next().unwrap().rest = &[];
    assert_eq!(poll(&mut rx), Poll::Ready(Ok(Wake::Bytes)));
    assert_eq!(rx.unread(), [1; RX]);
}

#[tokio::test]
async fn a_caller_without_room_waits_without_spinning() {
    use tokio::io::AsyncWriteExt;
    use triwire_std::Wake;
    use triwire_std::tokio::stream::Rx;

    let (mut far, near) = tokio::io::duplex(64);
    let mut rx = Rx::with_unread(near, [0; 8], b"ab").unwrap();
    // Bytes that came with the head are told of once.
    assert_eq!(rx.wait(None).await.unwrap(), Wake::Bytes);
    far.write_all(b"cdefgh").await.unwrap();
    assert_eq!(rx.wait(None).await.unwrap(), Wake::Bytes);
    let soon = tokio::time::Instant::now() + std::time::Duration::from_millis(5);
    // Full, and nothing taken: only the deadline ends the wait, and it is no error.
    assert_eq!(rx.wait(Some(soon)).await.unwrap(), Wake::Deadline);
    assert_eq!(std::mem::take(&mut rx.next().unwrap().rest), b"abcdefgh");
    drop(far);
    assert_eq!(rx.wait(None).await.unwrap(), Wake::End);
    assert!(Rx::with_unread(&b""[..], [0; 1], b"ab").is_err());
}
