//! An executor of a channel on a Cortex-M3, blocking and async.

#![no_std]
#![no_main]

use cortex_m_rt as _;
use triwire::channel::admission::{Admission, Table};
use triwire::channel::bounds::Bounds;
use triwire::channel::envelope::{Answer, Call, Outcome};
use triwire_embedded::channel::{Executor, Ran, observed};
use triwire_firmware_tests as _;

const BOUNDS: &str = r#"{"registers":[0,1],"maxRequests":2}"#;
const LIMIT: usize = 255;
const SCRATCH: usize = 64;
const ROOM: usize = One::room_for(SCRATCH);

type Admitted = Table<'static, [Admission<'static>; 2]>;
type One = Executor<Admitted, 1>;

fn executor() -> One {
    let bounds = Bounds::parse(BOUNDS).unwrap();
    One::new(Table::new(["read", "fail"].map(|tool| Admission::new("board", tool, bounds))), LIMIT)
}

/// Calls and what is none, each on its line.
const INPUT: &str = concat!(
    r#"{"v":1,"callId":"a","tool":"read","descriptorId":"board","args":{},"boundsEcho":{"maxRequests":2,"registers":[0,1]}}"#,
    "\nnoise\n\n",
    r#"{"v":1,"callId":"b","tool":"read","descriptorId":"board","boundsEcho":{"maxRequests":3,"registers":[0,1]}}"#,
    "\n",
    r#"{"v":1,"callId":"too long","tool":"read","descriptorId":"board","args":{"x":"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"},"boundsEcho":{}}"#,
    "\n",
    r#"{"v":1,"callId":"c","tool":"fail","descriptorId":"board","boundsEcho":{"maxRequests":2,"registers":[0,1]}}"#,
    "\n",
    r#"{"v":1,"callId":"d","tool":"read","descriptorId":"board","boundsEcho":{"maxRequests":2.0,"registers":[0,1]}}"#,
    "\n",
    r#"{"v":1,"callId":"e","tool":"read","descriptorId":"board","boundsEcho":{"maxRequests":2,"registers":[0,1]}}"#,
    "\n",
);

/// What is answered: the id, and the word of a refusal.
const ANSWERS: [(&str, &str); 5] = [
    ("a", ""),
    ("b", "bounds-mismatch"),
    ("c", "exec-threw"),
    ("d", ""),
    ("e", "budget-exhausted"),
];

fn run<'s>(call: &Call<'_>, scratch: &'s mut [u8]) -> Ran<'s> {
    if call.tool != "read" {
        return Err("the bus does not answer");
    }
    observed(scratch, |object| {
        object.name("value");
        object.unsigned(42);
    })
}

/// Checks what went over the wire, up to the first byte that was never written.
fn check(wire: &[u8], executor: &One) {
    let mut lines = wire.split(|byte| *byte == b'\n');
    for ((id, word), line) in ANSWERS.iter().zip(&mut lines) {
        let Ok(answer) = Answer::parse(line) else { defmt::panic!("{}: no answer", id) };
        defmt::assert!(answer.call_id == *id, "{}", id);
        match answer.outcome {
            Outcome::Observed(object) => {
                defmt::assert!(word.is_empty() && object.as_str() == r#"{"value":42}"#, "{}", id);
            }
            Outcome::Refused { refused, .. } => defmt::assert!(refused == *word, "{}", id),
        }
    }
    defmt::assert!(lines.next().is_some_and(|rest| rest.iter().all(|byte| *byte == 0)));
    // Noise, and a call that is too long.
    defmt::assert!(executor.ignored() == 2 && executor.running() == 0);
}

#[defmt_test::tests]
mod tests {
    use core::future::pending;

    use triwire::OutTooSmall;
    use triwire_embedded::channel::{ServeError, serve, serve_async};
    use triwire_embedded::{asynch, blocking};
    use triwire_firmware_tests::Pieces;
    use triwire_firmware_tests::asynch::{Slow, block_on};

    use super::{INPUT, LIMIT, ROOM, SCRATCH, check, executor, run};

    // rule: CHAN-110
    // rule: CHAN-112
    #[test]
    fn blocking_calls_are_answered() {
        for step in [1, 7, 64] {
            let mut executor = executor();
            let mut wire = [0; 1024];
            let mut rx = blocking::Rx::new(Pieces::new(INPUT.as_bytes(), step), [0; LIMIT + 1]);
            let mut tx = blocking::Tx::new(&mut wire[..], [0; ROOM]);
            let served = serve(&mut rx, &mut tx, &mut executor, &mut [0; SCRATCH], run);
            defmt::assert!(served.is_ok());
            drop(tx);
            check(&wire, &executor);
        }
    }

    #[test]
    fn async_calls_are_answered() {
        for step in [1, 7, 64] {
            let mut executor = executor();
            let mut wire = [0; 1024];
            let from = Slow::new(INPUT.as_bytes(), &mut [], step);
            let mut rx = asynch::Rx::new(from, [0; LIMIT + 1]);
            let mut tx = asynch::Tx::new(Slow::new(&[], &mut wire, step), [0; ROOM]);
            let mut scratch = [0; SCRATCH];
            let served = serve_async(
                &mut rx,
                &mut tx,
                &mut executor,
                &mut scratch,
                async |call, scratch| run(call, scratch),
            );
            defmt::assert!(block_on(served).is_ok());
            defmt::assert!(tx.into_writer().pending > 0);
            check(&wire, &executor);
        }
    }

    // rule: CHAN-115
    #[test]
    fn a_dropped_tool_is_answered() {
        use core::pin::pin;
        use core::task::{Context, Waker};

        let mut executor = executor();
        let mut wire = [0; 1024];
        let mut rx = asynch::Rx::new(Slow::new(INPUT.as_bytes(), &mut [], 1024), [0; LIMIT + 1]);
        let mut tx = asynch::Tx::new(Slow::new(&[], &mut wire, 64), [0; ROOM]);
        let mut scratch = [0; SCRATCH];
        {
            let served =
                serve_async(&mut rx, &mut tx, &mut executor, &mut scratch, async |_, _| {
                    pending().await
                });
            let mut served = pin!(served);
            for _ in 0..10 {
                let polled = served.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                defmt::assert!(polled.is_pending());
            }
        }
        let served =
            serve_async(&mut rx, &mut tx, &mut executor, &mut scratch, async |call, scratch| {
                run(call, scratch)
            });
        defmt::assert!(block_on(served).is_ok());
        drop(tx);
        let lost = br#"{"v":1,"callId":"a","ok":false,"refused":"exec-threw""#;
        defmt::assert!(wire.starts_with(lost));
        defmt::assert!(executor.running() == 0);
    }

    // rule: CHAN-113
    #[test]
    fn a_buffer_that_holds_no_reply_is_named() {
        let mut executor = executor();
        let mut wire = [0; 64];
        let mut rx = blocking::Rx::new(INPUT.as_bytes(), [0; LIMIT + 1]);
        let mut tx = blocking::Tx::new(&mut wire[..], [0; ROOM - 1]);
        let served = serve(&mut rx, &mut tx, &mut executor, &mut [0; SCRATCH], run);
        let too_small = ServeError::TxTooSmall(OutTooSmall { needed: ROOM });
        defmt::assert!(served == Err(too_small));
    }
}
