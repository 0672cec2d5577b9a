//! The writers: whatever is written reads back equal, in frames that the contract allows.

use proptest::collection::vec;
use proptest::prelude::*;
use triwire::OutTooSmall;
use triwire::exec::frame::{HEADER_SIZE, Kind, MAX_PAYLOAD_SIZE, head};
use triwire::exec::session::{
    Ended, Frames, InputWriter, MAX_EXIT_FRAME, OutputWriter, WriteError,
};
use triwire_model::frames::{Event, expected_frames, input, output};
use triwire_model::records::{ResultRecord, read_result};

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        2 => Just(0_usize),
        2 => Just(1),
        3 => 65_535_usize..=65_537,
        1 => Just(200_000),
        1 => 131_071_usize..=131_073,
        6 => 2_usize..3_000,
    ]
}

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

/// The frames as bytes, each way to write them compared with the others.
fn wire(kind: Kind, frames: Frames<'_>, data: &[u8]) -> Vec<u8> {
    let needed = frames.wire_len();
    let mut apart = Vec::new();
    let mut count = 0;
    for frame in frames.clone() {
        // rule: EXEC-3
        assert!((1..=MAX_PAYLOAD_SIZE).contains(&frame.payload.len()));
        assert_eq!(frame.head, head(kind, frame.payload.len()).unwrap());
        apart.extend_from_slice(&frame.head);
        apart.extend_from_slice(frame.payload);
        count += 1;
    }
    assert_eq!(count, data.len().div_ceil(MAX_PAYLOAD_SIZE));
    assert_eq!(apart.len(), needed);
    if needed > 0 {
        let mut short = vec![0xaa; needed - 1];
        assert_eq!(frames.clone().write(&mut short), Err(OutTooSmall { needed }));
        assert!(short.iter().all(|byte| *byte == 0xaa), "nothing was written");
    }
    let mut out = vec![0; needed + 3];
    assert_eq!(frames.write(&mut out).unwrap(), apart);
    apart
}

fn record() -> impl Strategy<Value = ResultRecord> {
    let text = prop_oneof![
        3 => Just(String::new()),
        3 => any::<String>(),
        // Around a frame's size once written, and far over it.
        1 => ("[a-z]", 65_300_usize..65_600).prop_map(|(c, n)| c.repeat(n)),
        1 => ("\\PC|\0|\"", 5_000_usize..70_000).prop_map(|(c, n)| c.repeat(n)),
    ];
    let usage = proptest::option::of(any::<[u64; 7]>()).prop_map(|values| {
        values.map(|[a, b, c, d, e, f, g]| triwire::exec::result::Usage {
            cpu_user_ms: a,
            cpu_sys_ms: b,
            peak_memory_bytes: c,
            page_faults_major: d,
            context_switches_involuntary: e,
            io_read_bytes: f,
            io_write_bytes: g,
        })
    });
    let signal = prop_oneof![Just(String::new()), Just("SIGKILL".into()), any::<String>()];
    (any::<(i32, u64, bool, bool)>(), signal, text, usage).prop_map(
        |((exit_code, duration_ms, timed_out, oom_killed), signal, error, usage)| ResultRecord {
            exit_code,
            duration_ms,
            signal,
            timed_out,
            oom_killed,
            error,
            usage,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 8))]

    /// The guest's writes come back, each stream's bytes in order, then the exit.
    #[test]
    fn output_comes_back(
        writes in vec((any::<bool>(), length()), 0..6),
        record in record(),
    ) {
        let mut writer = OutputWriter::new();
        let mut stream = Vec::new();
        let mut expected: Vec<Event> = Vec::new();
        for (seed, (is_stdout, len)) in writes.into_iter().enumerate() {
            let data = bytes(seed as u8, len);
            let kind = if is_stdout { Kind::Stdout } else { Kind::Stderr };
            let frames = if is_stdout { writer.stdout(&data) } else { writer.stderr(&data) };
            stream.extend(wire(kind, frames.unwrap(), &data));
            match expected.last_mut() {
                _ if data.is_empty() => {}
                Some(Event::Bytes(last, bytes)) if *last == kind => bytes.extend(data),
                _ => expected.push(Event::Bytes(kind, data)),
            }
        }

        let result = record.lend();
        prop_assert!(!writer.is_ended());
        let Err(WriteError::OutTooSmall(OutTooSmall { needed })) = writer.exit(&result, &mut [])
        else { panic!("an exit needs room") };
        let too_small = Err(WriteError::OutTooSmall(OutTooSmall { needed }));
        for room in [1, HEADER_SIZE, needed - 1] {
            let mut out = vec![0; room];
            prop_assert_eq!(writer.exit(&result, &mut out), too_small);
        }
        let mut out = vec![0; needed];
        let exit = writer.exit(&result, &mut out).unwrap();
        prop_assert_eq!(exit.len(), needed);
        // rule: EXEC-15
        prop_assert!(needed <= MAX_EXIT_FRAME);
        let sent = read_result(&exit[HEADER_SIZE..]).unwrap();
        prop_assert!(record.error.starts_with(&sent.error));
        if sent.error.len() < record.error.len() {
            // No character more would fit; the longest takes six bytes, and an empty text takes
            // its member along.
            let member = if sent.error.is_empty() { r#""error":"","#.len() } else { 0 };
            prop_assert!(needed > MAX_EXIT_FRAME - 6 - member);
        }
        prop_assert_eq!(&ResultRecord { error: record.error.clone(), ..sent }, &record);
        stream.extend_from_slice(exit);
        expected.push(Event::Exit(result.exit()));

        prop_assert!(writer.is_ended());
        prop_assert!(writer.stdout(b"x").is_err() && writer.stderr(b"").is_err());
        let mut again = vec![0; needed];
        prop_assert_eq!(writer.exit(&result, &mut again), Err(WriteError::Ended(Ended)));

        let read = output(&[&stream], MAX_PAYLOAD_SIZE);
        prop_assert_eq!(read.ending, Ok(()));
        prop_assert!(read.events == expected);
    }

    /// The client's writes come back, then the end of input.
    #[test]
    fn input_comes_back(lengths in vec(length(), 0..6), closes in any::<bool>()) {
        let mut writer = InputWriter::new();
        let (mut stream, mut joined) = (Vec::new(), Vec::new());
        for (seed, len) in lengths.into_iter().enumerate() {
            let data = bytes(seed as u8, len);
            stream.extend(wire(Kind::Stdin, writer.stdin(&data).unwrap(), &data));
            joined.extend(data);
        }
        let mut expected = Vec::new();
        if !joined.is_empty() {
            expected.push(Event::Bytes(Kind::Stdin, joined));
        }
        if closes {
            // rule: EXEC-11
            stream.extend(writer.close().unwrap());
            expected.push(Event::Close);
            prop_assert!(writer.is_ended() && writer.stdin(b"x").is_err());
            prop_assert_eq!(writer.close(), Err(Ended));
        }
        let read = input(&[&stream]);
        prop_assert_eq!(read.ending, Ok(()));
        prop_assert!(read.events == expected);
    }
}

/// A header is written for every length that a frame may have, and no other.
// rule: EXEC-1
#[test]
fn headers() {
    for kind in Kind::ALL {
        for len in [0, 1, 255, 256, 65_535, 65_536] {
            let header = head(kind, len).unwrap();
            assert_eq!(header[..4], [kind as u8, 0, 0, 0]);
            let stream = [&header[..], &vec![0; len]].concat();
            let (frames, ending) = expected_frames(kind.direction(), &stream);
            assert_eq!((frames.len(), ending), (1, Ok(())));
            assert_eq!((frames[0].0, frames[0].1.len()), (kind, len));
        }
        for len in [65_537, 1 << 24, usize::MAX] {
            let error = head(kind, len).unwrap_err();
            assert_eq!((error.code(), error.at), ("oversize", 4));
        }
    }
}
