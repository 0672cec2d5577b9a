//! Executors of a channel over links that give and take in pieces.

use std::convert::Infallible;

use embedded_io::{ErrorType, Read, Write};
use triwire::OutTooSmall;
use triwire::channel::admission::{Admission, Table};
use triwire::channel::bounds::Bounds;
use triwire::channel::door::{AnswerError, Received};
use triwire::channel::envelope::{Answer, Call, Outcome};
use triwire::json::Text;
use triwire_embedded::blocking::{Rx, Tx};
use triwire_embedded::channel::{Executor, Ran, ServeError, observed, serve};

const BOUNDS: &str = r#"{"registers":[0,1],"maxRequests":3}"#;
const LIMIT: usize = 255;
const SCRATCH: usize = 64;

type Admitted = Table<'static, [Admission<'static>; 3]>;
type One = Executor<Admitted, 1>;

const ROOM: usize = One::room_for(SCRATCH);

fn admitted() -> Admitted {
    let bounds = Bounds::parse(BOUNDS).unwrap();
    Table::new(["read", "fail", "long"].map(|tool| Admission::new("board", tool, bounds)))
}

fn line(id: &str, tool: &str, bounds: &str) -> String {
    format!(
        "{{\"v\":1,\"callId\":\"{id}\",\"tool\":\"{tool}\",\"descriptorId\":\"board\",\"args\":{{}},\"boundsEcho\":{bounds}}}\n"
    )
}

/// The tools: one that reads, one that fails, one that has too much to tell.
fn run<'s>(call: &Call<'_>, scratch: &'s mut [u8]) -> Ran<'s> {
    match call.tool.as_str() {
        Some("read") => observed(scratch, |object| {
            object.name("value");
            object.unsigned(42);
        }),
        Some("fail") => Err("no answer from the \"bus\""),
        _ => observed(scratch, |object| {
            object.name("text");
            object.string("x".repeat(SCRATCH).as_str());
        }),
    }
}

/// What comes, and what is answered to each: the id and the word of a refusal.
fn script() -> (String, Vec<(&'static str, &'static str)>) {
    let input = [
        line("a", "read", BOUNDS),
        "\n".to_owned(),
        "noise\n".to_owned(),
        line("b", "read", r#"{"maxRequests":3.0,"registers":[0,1]}"#),
        line("c", "read", r#"{"maxRequests":4,"registers":[0,1]}"#),
        line("d", "write", BOUNDS),
        line(&"x".repeat(LIMIT), "read", BOUNDS),
        line("e", "fail", BOUNDS),
        line("f", "long", BOUNDS),
        line("g", "read", BOUNDS),
        line("h", "read", BOUNDS),
        line("cut", "read", BOUNDS).trim_end().to_owned(),
    ];
    let answers = vec![
        ("a", ""),
        ("b", ""),
        ("c", "bounds-mismatch"),
        ("d", "unattributed-call"),
        ("e", "exec-threw"),
        ("f", "exec-threw"),
        ("g", ""),
        ("h", "budget-exhausted"),
    ];
    (input.concat(), answers)
}

/// Reads what went over the wire: an answer a line.
fn answers(wire: &[u8]) -> Vec<(String, String)> {
    let text = std::str::from_utf8(wire).unwrap();
    let word = |line: &str| {
        let answer = Answer::parse(line.as_bytes()).unwrap();
        let refused = match answer.outcome {
            Outcome::Observed(object) => {
                assert_eq!(object.as_str(), r#"{"value":42}"#);
                String::new()
            }
            Outcome::Refused { refused, why } => {
                assert!(!why.is_empty());
                refused.to_string()
            }
        };
        (answer.call_id.to_string(), refused)
    };
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(word).collect()
}

fn expected(answers: &[(&str, &str)]) -> Vec<(String, String)> {
    answers.iter().map(|(id, word)| ((*id).to_owned(), (*word).to_owned())).collect()
}

/// Gives and takes at most `step` bytes at once.
struct Pieces<'b> {
    input: &'b [u8],
    output: Vec<u8>,
    step: usize,
}

impl ErrorType for Pieces<'_> {
    type Error = Infallible;
}

impl Read for Pieces<'_> {
    fn read(&mut self, to: &mut [u8]) -> Result<usize, Infallible> {
        assert!(!to.is_empty());
        let count = self.input.len().min(self.step).min(to.len());
        let (now, later) = self.input.split_at(count);
        to[..count].copy_from_slice(now);
        self.input = later;
        Ok(count)
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        let count = bytes.len().min(self.step);
        self.output.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

fn pieces(input: &[u8], step: usize) -> Pieces<'_> {
    Pieces { input, output: Vec::new(), step }
}

// rule: CHAN-110, CHAN-112, CHAN-114
#[test]
fn every_call_is_answered_however_its_bytes_come() {
    let (input, answered) = script();
    for step in [1, 2, 7, 64, 4096] {
        let mut executor = One::new(admitted(), LIMIT);
        let mut rx = Rx::new(pieces(input.as_bytes(), step), [0; LIMIT + 1]);
        let mut tx = Tx::new(pieces(b"", step), [0; ROOM]);
        serve(&mut rx, &mut tx, &mut executor, &mut [0; SCRATCH], run).unwrap();
        let output = tx.into_writer().output;
        assert_eq!(answers(&output), expected(&answered), "{step}");
        // Noise, and a line that is too long.
        assert_eq!((executor.ignored(), executor.running()), (2, 0), "{step}");
        assert_eq!(executor.admissions().admissions()[0].used(), 3);
    }
}

// rule: CHAN-113
#[test]
fn no_call_is_taken_without_room_for_its_reply() {
    let input = line("a", "read", BOUNDS);
    let mut executor = One::new(admitted(), LIMIT);
    let mut rx = Rx::new(input.as_bytes(), [0; LIMIT + 1]);
    let mut tx = Tx::new(pieces(b"", 64), [0; ROOM - 1]);
    let error = serve(&mut rx, &mut tx, &mut executor, &mut [0; SCRATCH], run).unwrap_err();
    assert_eq!(error, ServeError::TxTooSmall(OutTooSmall { needed: ROOM }));
    assert_eq!(executor.admissions().admissions()[0].used(), 0);
    assert!(tx.into_writer().output.is_empty());

    let mut rest = input.as_bytes();
    let turn = executor.turn(&mut rest, &mut [0; SCRATCH], &mut [0; ROOM - 1], run);
    assert_eq!(turn, Err(OutTooSmall { needed: ROOM }));
    assert_eq!(rest, input.as_bytes());
}

// rule: CHAN-113
#[test]
fn the_room_holds_every_reply() {
    // An id of 64 characters that are all written as escapes.
    let id = "\\u0001".repeat(64);
    for (tool, bounds) in [("read", BOUNDS), ("fail", BOUNDS), ("long", BOUNDS), ("read", "{}")] {
        let mut executor = Executor::<_, 1>::new(admitted(), 1024);
        let call = line(&id, tool, bounds);
        let mut out = [0; ROOM];
        let replied = executor.turn(&mut call.as_bytes(), &mut [0; SCRATCH], &mut out, run);
        let len = replied.unwrap().unwrap();
        assert!(len > 6 * 64, "{tool}: {len}");
        Answer::parse(&out[..len]).unwrap();
    }
}

#[test]
fn calls_that_run_at_once_are_answered_in_any_order() {
    let mut executor = Executor::<_, 2>::new(admitted(), LIMIT);
    let input = ["a", "b", "a", "c"].map(|id| line(id, "read", BOUNDS)).concat();
    let (mut rest, mut out) = (input.as_bytes(), [0; ROOM]);
    let mut run = |executor: &mut Executor<Admitted, 2>| {
        let Some(Received::Run(ticket, _)) = executor.feed(&mut rest) else { panic!() };
        ticket
    };
    let (first, second) = (run(&mut executor), run(&mut executor));
    for word in ["duplicate-call", "too-many-calls"] {
        let Some(Received::Refuse(refused)) = executor.feed(&mut rest) else { panic!() };
        let reply = answers(executor.refuse(&refused, &mut out).unwrap());
        assert_eq!(reply[0].1, word);
    }
    let mut scratch = [0; SCRATCH];
    let read = |scratch| {
        observed(scratch, |object| {
            object.name("value");
            object.unsigned(42);
        })
    };
    let reply = executor.answer(second, read(&mut scratch), &mut out).unwrap();
    assert_eq!(answers(reply), expected(&[("b", "")]));
    let Err(AnswerError::OutTooSmall { ticket, needed }) =
        executor.answer(first, Err("late"), &mut out[..20])
    else {
        panic!()
    };
    let reply = executor.answer(ticket, Err("late"), &mut out[..needed]).unwrap();
    assert_eq!(answers(reply), expected(&[("a", "exec-threw")]));
}

#[test]
fn what_a_tool_refuses_goes_out_as_it_is() {
    let mut executor = One::new(admitted(), LIMIT);
    let call = line("a", "read", BOUNDS);
    let mut out = [0; ROOM];
    let mut scratch = [0; SCRATCH];
    let replied = executor.turn(&mut call.as_bytes(), &mut scratch, &mut out, |_, _| {
        Ok(Outcome::Refused { refused: Text::plain("out-of-range"), why: Text::plain("0 or 1") })
    });
    let len = replied.unwrap().unwrap();
    assert_eq!(answers(&out[..len]), expected(&[("a", "out-of-range")]));
}

#[test]
fn an_answer_behind_the_end_of_its_stream_is_none() {
    let mut executor = One::new(admitted(), LIMIT);
    let call = line("a", "read", BOUNDS);
    let Some(Received::Run(ticket, _)) = executor.feed(&mut call.as_bytes()) else { panic!() };
    let mut begun = &b"{\"v\":1,"[..];
    assert!(executor.feed(&mut begun).is_none());
    executor.link_down();
    assert_eq!(executor.answer(ticket, Err("late"), &mut [0; ROOM]), Ok(&b""[..]));
    // The next stream begins with a line of its own, and the budget is what it was.
    let Some(Received::Run(_, call)) = executor.feed(&mut call.as_bytes()) else { panic!() };
    assert_eq!(call.call_id, "a");
    assert_eq!(executor.admissions().admissions()[0].used(), 2);
}

#[cfg(feature = "async")]
mod with_async {
    use std::cell::Cell;
    use std::future::{pending, poll_fn};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use embassy_futures::block_on;
    use triwire_embedded::asynch::{Rx, Tx};
    use triwire_embedded::channel::serve_async;

    use super::*;

    /// The same pieces, pending before each.
    struct Slow<'b>(Pieces<'b>);

    async fn turn() {
        let mut was_pending = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut was_pending, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    impl ErrorType for Slow<'_> {
        type Error = Infallible;
    }

    impl embedded_io_async::Read for Slow<'_> {
        async fn read(&mut self, to: &mut [u8]) -> Result<usize, Infallible> {
            turn().await;
            self.0.read(to)
        }
    }

    impl embedded_io_async::Write for Slow<'_> {
        async fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
            turn().await;
            self.0.write(bytes)
        }

        async fn flush(&mut self) -> Result<(), Infallible> {
            turn().await;
            Ok(())
        }
    }

    fn serve_all<RB, WB>(
        rx: &mut Rx<Slow<'_>, RB>,
        tx: &mut Tx<Slow<'_>, WB>,
        executor: &mut One,
    ) -> Result<(), ServeError<Infallible, Infallible>>
    where
        RB: AsRef<[u8]> + AsMut<[u8]>,
        WB: AsRef<[u8]> + AsMut<[u8]>,
    {
        block_on(serve_async(rx, tx, executor, &mut [0; SCRATCH], async |call, scratch| {
            run(call, scratch)
        }))
    }

    // rule: CHAN-110, CHAN-112, CHAN-114
    #[test]
    fn it_answers_as_the_blocking_one_does() {
        let (input, answered) = script();
        for step in [1, 7, 64, 4096] {
            for spare in [0, 1000] {
                let mut executor = One::new(admitted(), LIMIT);
                let mut rx = Rx::new(Slow(pieces(input.as_bytes(), step)), [0; LIMIT + 1]);
                let mut tx = Tx::new(Slow(pieces(b"", step)), vec![0; ROOM + spare]);
                let mut scratch = [0; SCRATCH];
                let served = serve_async(
                    &mut rx,
                    &mut tx,
                    &mut executor,
                    &mut scratch,
                    async |call, scratch| {
                        turn().await;
                        run(call, scratch)
                    },
                );
                block_on(served).unwrap();
                let output = tx.into_writer().0.output;
                assert_eq!(answers(&output), expected(&answered), "{step}");
                assert_eq!((executor.ignored(), executor.running()), (2, 0), "{step}");
            }
        }
    }

    // rule: CHAN-115
    #[test]
    fn a_call_whose_tool_was_dropped_is_answered_and_the_next_one_works() {
        let input = line("a", "read", BOUNDS) + &line("b", "read", BOUNDS);
        let mut executor = One::new(admitted(), LIMIT);
        let mut rx = Rx::new(Slow(pieces(input.as_bytes(), 4096)), [0; 2 * LIMIT]);
        let mut tx = Tx::new(Slow(pieces(b"", 4096)), [0; 2 * ROOM]);
        let mut scratch = [0; SCRATCH];
        let began = Cell::new(false);
        {
            let mut served =
                pin!(serve_async(&mut rx, &mut tx, &mut executor, &mut scratch, async |_, _| {
                    began.set(true);
                    pending().await
                },));
            while !began.get() {
                let polled = served.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
            }
        }
        serve_all(&mut rx, &mut tx, &mut executor).unwrap();
        let output = tx.into_writer().0.output;
        assert_eq!(answers(&output), expected(&[("a", "exec-threw"), ("b", "")]));
    }

    #[test]
    fn a_buffer_that_holds_no_reply_is_named() {
        let mut executor = One::new(admitted(), LIMIT);
        let mut rx = Rx::new(Slow(pieces(b"", 1)), [0; LIMIT + 1]);
        let mut tx = Tx::new(Slow(pieces(b"", 1)), [0; ROOM - 1]);
        let served = serve_all(&mut rx, &mut tx, &mut executor);
        assert_eq!(served, Err(ServeError::TxTooSmall(OutTooSmall { needed: ROOM })));
    }
}
