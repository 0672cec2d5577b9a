//! Streams of frames against the models: valid, mutated and cut short, in any chunking.

use proptest::collection::vec;
use proptest::prelude::*;
use triwire::exec::frame::{Direction, MAX_PAYLOAD_SIZE};
use triwire_model::cuts::{by, same_in_every_split};
use triwire_model::frames::{
    Event, Reading, expected_frames, expected_input, expected_output, frames, input, output,
};

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const EXIT: u8 = 3;
const STDIN: u8 = 4;
const CLOSE: u8 = 5;

const RECORDS: [&str; 12] = [
    r#"{"exit_code":0,"duration_ms":12}"#,
    r#"{"exit_code":-1,"duration_ms":2004,"signal":"SIGKILL","timed_out":true}"#,
    r#" { "error" : "no\u0020such \ud83d\ude00 \ud800", "oom_killed" : true , "exit_code" : 1.0 } "#,
    r#"{"usage":{"cpu_user_ms":1e2,"more":[]},"exit_code":2,"signal":null,"new":{"exit_code":3}}"#,
    r#"{"exit_code":2147483648}"#,
    r#"{"exit_code":1,"exit_code":1}"#,
    r#"{"exit_code":0.5}"#,
    r#"{"exit_code":"0"}"#,
    r#"{"exit_code":0"#,
    "{}",
    "null",
    "",
];

fn frame(kind: u8, reserved: [u8; 3], declared: u32, payload: &[u8]) -> Vec<u8> {
    let mut wire = vec![kind];
    wire.extend_from_slice(&reserved);
    wire.extend_from_slice(&declared.to_be_bytes());
    wire.extend_from_slice(payload);
    wire
}

fn whole(kind: u8, payload: &[u8]) -> Vec<u8> {
    frame(kind, [0; 3], payload.len() as u32, payload)
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => Just(Vec::new()),
        8 => vec(any::<u8>(), 1..40),
        1 => vec(any::<u8>(), 200..400),
    ]
}

fn kind(output: bool) -> impl Strategy<Value = u8> {
    let ours = if output { vec![STDOUT, STDERR] } else { vec![STDIN, STDIN, STDIN, CLOSE] };
    prop_oneof![
        60 => proptest::sample::select(ours),
        1 => 1..=5_u8,
        1 => proptest::sample::select(vec![0, 6, 255]),
    ]
}

/// A frame, or what is nearly one.
fn part(output: bool) -> impl Strategy<Value = Vec<u8>> {
    let reserved = prop_oneof![3 => Just([0; 3]), 1 => any::<[u8; 3]>()];
    let lies = proptest::sample::select(vec![0, 1, 65_535, 65_536, 65_537, 1 << 24, u32::MAX]);
    prop_oneof![
        40 => (kind(output), reserved, payload())
            .prop_map(|(kind, reserved, payload)| {
                frame(kind, reserved, payload.len() as u32, &payload)
            }),
        1 => (kind(output), lies, payload())
            .prop_map(|(kind, declared, payload)| frame(kind, [0; 3], declared, &payload)),
        1 => payload(),
        1 => (kind(output), 65_534_usize..=65_537, any::<u8>())
            .prop_map(|(kind, len, fill)| whole(kind, &vec![fill; len])),
    ]
}

fn exit() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::sample::select(RECORDS[..4].to_vec()),
        1 => proptest::sample::select(RECORDS.to_vec()),
    ]
    .prop_map(|record| whole(EXIT, record.as_bytes()))
}

/// A stream: parts, an exit where it is output, at times something behind it, at times cut short.
fn stream(output: bool) -> impl Strategy<Value = Vec<u8>> {
    let end = if output {
        prop_oneof![
            8 => exit(),
            1 => (exit(), part(true)).prop_map(|(exit, part)| [exit, part].concat()),
            1 => Just(Vec::new()),
        ]
        .boxed()
    } else {
        Just(Vec::new()).boxed()
    };
    let cut = prop_oneof![3 => Just(None), 1 => any::<proptest::sample::Index>().prop_map(Some)];
    (vec(part(output), 0..8), end, cut).prop_map(|(parts, end, cut)| {
        let mut stream = [parts.concat(), end].concat();
        if let Some(cut) = cut {
            stream.truncate(cut.index(stream.len() + 1));
        }
        stream
    })
}

fn chunks() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        Just(vec![1]),
        Just(vec![1460]),
        Just(vec![7, 1]),
        vec(0_usize..12, 1..12),
        vec(0_usize..3000, 1..6),
    ]
}

fn room() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(512_usize), 1 => 0_usize..80]
}

proptest! {
    /// The decoder cuts a stream of either direction as the model does.
    #[test]
    fn decoder_agrees(stream in any::<bool>().prop_flat_map(stream), chunks in chunks()) {
        for direction in [Direction::GuestToHost, Direction::HostToGuest] {
            let read = frames(direction, &by(&stream, &chunks));
            prop_assert_eq!(read, expected_frames(direction, &stream));
        }
    }

    /// A client makes of the guest's stream what the model does.
    // rule: EXEC-4, EXEC-9
    #[test]
    fn client_agrees(stream in stream(true), chunks in chunks(), room in room()) {
        let expected = expected_output(&stream, room).expect("records of the list");
        prop_assert_eq!(output(&by(&stream, &chunks), room), expected);
    }

    /// A guest makes of the client's stream what the model does.
    // rule: EXEC-10, EXEC-11
    #[test]
    fn guest_agrees(stream in stream(false), chunks in chunks()) {
        prop_assert_eq!(input(&by(&stream, &chunks)), expected_input(&stream));
    }

    /// Bytes that are no stream at all end as the model says.
    #[test]
    fn noise_agrees(stream in vec(prop_oneof![0_u8..7, any::<u8>()], 0..64), chunks in chunks()) {
        prop_assert_eq!(input(&by(&stream, &chunks)), expected_input(&stream));
        if let Some(expected) = expected_output(&stream, 64) {
            prop_assert_eq!(output(&by(&stream, &chunks), 64), expected);
        }
    }
}

/// Streams made by hand, with the word they end with; a valid one ends with "".
fn output_streams() -> Vec<(Vec<Vec<u8>>, &'static str)> {
    let exit = || whole(EXIT, RECORDS[0].as_bytes());
    let out = || whole(STDOUT, b"ok\n");
    vec![
        (
            vec![
                out(),
                whole(STDERR, b"warn"),
                whole(STDOUT, b""),
                whole(STDOUT, &[7; 300]),
                exit(),
            ],
            "",
        ),
        (vec![whole(STDOUT, b""), whole(STDERR, b"x"), exit()], ""),
        (vec![exit()], ""),
        (
            vec![
                frame(STDOUT, [1, 2, 255], 2, b"ok"),
                frame(EXIT, [9; 3], 15, br#"{"exit_code":3}"#),
            ],
            "",
        ),
        (vec![], "missing_exit"),
        (vec![out()], "missing_exit"),
        (vec![out(), exit(), exit()], "after_exit"),
        (vec![out(), exit(), vec![0]], "after_exit"),
        (vec![out(), frame(0, [0; 3], 0, b"")], "unknown_type"),
        (vec![out(), frame(6, [0; 3], 1 << 20, b"")], "unknown_type"),
        (vec![out(), frame(255, [0; 3], 0, b"abc")], "unknown_type"),
        (vec![out(), frame(STDIN, [0; 3], u32::MAX, b"")], "wrong_direction"),
        (vec![out(), whole(CLOSE, b"")], "wrong_direction"),
        (vec![out(), frame(STDERR, [0; 3], 65_537, b"more")], "oversize"),
        (vec![frame(EXIT, [0; 3], u32::MAX, b"{}")], "oversize"),
        (vec![out(), frame(STDERR, [0; 3], 65_536, b"")], "truncated"),
        (vec![out(), frame(EXIT, [0; 3], 32, &RECORDS[0].as_bytes()[..31])], "truncated"),
        (vec![out(), vec![STDOUT, 0, 0, 0, 0, 0, 0]], "truncated"),
        (vec![out(), whole(EXIT, b"{}")], "exit_unreadable"),
        (vec![out(), whole(EXIT, b"")], "exit_unreadable"),
        (vec![out(), whole(EXIT, &[b' '; 200])], "exit_too_large"),
    ]
}

fn input_streams() -> Vec<(Vec<Vec<u8>>, &'static str)> {
    let stdin = || whole(STDIN, b"abc");
    let close = || whole(CLOSE, b"");
    vec![
        (vec![], ""),
        (vec![stdin(), whole(STDIN, b""), stdin(), close()], ""),
        (vec![stdin(), close(), close()], ""),
        (vec![close(), frame(CLOSE, [3; 3], 5, b"extra")], ""),
        (vec![frame(CLOSE, [0; 3], 300, &[1; 300])], ""),
        (vec![stdin(), close(), stdin()], "after_stdin_close"),
        (vec![close(), close(), whole(STDIN, b"")], "after_stdin_close"),
        (vec![stdin(), close(), frame(STDIN, [0; 3], 65_537, b"")], "oversize"),
        (vec![stdin(), whole(STDOUT, b"x")], "wrong_direction"),
        (vec![stdin(), whole(EXIT, b"{}")], "wrong_direction"),
        (vec![stdin(), frame(6, [0; 3], 0, b"")], "unknown_type"),
        (vec![stdin(), frame(STDIN, [0; 3], 9, b"")], "truncated"),
        (vec![stdin(), frame(CLOSE, [0; 3], 2, b"1")], "truncated"),
    ]
}

fn word(reading: &Reading) -> &'static str {
    reading.ending.err().map_or("", |(code, _)| code)
}

/// Each split of each stream made by hand reads the same, and each proper prefix ends as the
/// contract says.
#[test]
fn splits_and_prefixes() {
    for (parts, ending) in output_streams() {
        let stream = parts.concat();
        let read = same_in_every_split(&stream, |pieces| output(pieces, 128));
        assert_eq!(word(&read), ending, "{stream:?}");
        assert_eq!(output(&by(&stream, &[1]), 128), read);
        for end in 0..stream.len() {
            let prefix = output(&[&stream[..end]], 128);
            assert_eq!(Some(&prefix), expected_output(&stream[..end], 128).as_ref());
            // rule: EXEC-6
            let wanted = if is_boundary(&parts, end) { "missing_exit" } else { "truncated" };
            assert!(!ending.is_empty() || word(&prefix) == wanted, "{end} of {stream:?}");
        }
    }
    for (parts, ending) in input_streams() {
        let stream = parts.concat();
        let read = same_in_every_split(&stream, input);
        assert_eq!(word(&read), ending, "{stream:?}");
        assert_eq!(input(&by(&stream, &[1])), read);
        for end in 0..stream.len() {
            let prefix = input(&[&stream[..end]]);
            assert_eq!(prefix, expected_input(&stream[..end]));
            // rule: EXEC-31
            let wanted = if is_boundary(&parts, end) { "" } else { "truncated" };
            assert!(!ending.is_empty() || word(&prefix) == wanted, "{end} of {stream:?}");
        }
    }
}

fn is_boundary(parts: &[Vec<u8>], at: usize) -> bool {
    (0..=parts.len()).any(|count| parts[..count].iter().map(Vec::len).sum::<usize>() == at)
}

/// A fault is known as early as its bytes are there: nothing waits for a payload.
// rule: EXEC-5, EXEC-7, EXEC-8
#[test]
fn headers_are_judged_at_once() {
    for (header, used, code, at) in [
        (frame(9, [0; 3], 0, b""), 1, "unknown_type", 0),
        (frame(STDIN, [0; 3], 0, b""), 1, "wrong_direction", 0),
        (frame(STDOUT, [0; 3], u32::MAX, b""), 8, "oversize", 4),
        (frame(9, [0; 3], u32::MAX, b""), 8, "unknown_type", 0),
        (frame(STDIN, [0; 3], u32::MAX, b""), 8, "wrong_direction", 0),
    ] {
        let mut decoder = triwire::exec::frame::Decoder::new(Direction::GuestToHost);
        let error = decoder.feed(&mut &header[..used]).unwrap_err();
        assert_eq!((error.code(), error.at), (code, at));
    }
}

/// The largest frame of each kind passes, in any of a few cuts.
// rule: EXEC-3
#[test]
fn largest_frames() {
    let big = vec![b' '; MAX_PAYLOAD_SIZE - RECORDS[0].len()];
    let record = [RECORDS[0].as_bytes(), &big].concat();
    let stream = [whole(STDOUT, &vec![1; MAX_PAYLOAD_SIZE]), whole(EXIT, &record)].concat();
    for size in [1460, 65_536, usize::MAX] {
        let read = output(&by(&stream, &[size]), MAX_PAYLOAD_SIZE);
        assert_eq!(read.ending, Ok(()));
        assert!(matches!(&read.events[..], [Event::Bytes(_, bytes), Event::Exit(_)]
            if bytes.len() == MAX_PAYLOAD_SIZE));
    }
}
