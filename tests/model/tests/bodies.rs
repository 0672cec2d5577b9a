//! Bodies against the model: by length, in chunks, to the end of the connection.

use proptest::collection::vec;
use proptest::prelude::*;
use triwire::exec::body::{BodyFault, CHUNK_END, ChunkHead, Framing, LAST_CHUNK, MAX_SKIPPED};
use triwire_model::body::{expected, read};
use triwire_model::cuts::{by, same_in_every_split};

/// A chunk, or what is nearly one.
fn chunk() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![
        6 => Just(None),
        1 => "[0-9a-fA-F]{0,18}".prop_map(Some),
        1 => prop::sample::select(vec!["ffffffffffffffff", "0000000000000003", "-1", "0x3", "+3"])
            .prop_map(|size| Some(size.to_owned())),
    ];
    let extension = prop_oneof![
        6 => Just(String::new()),
        2 => "[ \t]{0,3}(;[a-z=\" ]{0,9}){0,2}",
        1 => "[ ;\r\n\tx]{1,4}",
    ];
    let end = prop_oneof![12 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r"), 1 => Just("")];
    (size, any::<bool>(), extension, end.clone(), vec(any::<u8>(), 0..20), end).prop_map(
        |(size, upper, extension, line_end, payload, end)| {
            let size = size.unwrap_or_else(|| match upper {
                true => format!("{:X}", payload.len()),
                false => format!("{:03x}", payload.len()),
            });
            [size.as_bytes(), extension.as_bytes(), line_end.as_bytes(), &payload, end.as_bytes()]
                .concat()
        },
    )
}

fn wire() -> impl Strategy<Value = Vec<u8>> {
    let end = prop_oneof![
        5 => Just(b"0\r\n\r\n".to_vec()),
        2 => "0[; x]{0,4}\r\n([A-Z]: [a-z]{0,5}\r\n){0,3}\r\n".prop_map(String::into_bytes),
        1 => "[0\r\nx]{0,9}".prop_map(String::into_bytes),
    ];
    (vec(chunk(), 0..5), end, vec(any::<u8>(), 0..6), any::<prop::sample::Index>(), any::<bool>())
        .prop_map(|(chunks, end, rest, cut, is_cut)| {
            let mut wire = [chunks.concat(), end, rest].concat();
            if is_cut {
                wire.truncate(cut.index(wire.len() + 1));
            }
            wire
        })
}

fn framing() -> impl Strategy<Value = Framing> {
    prop_oneof![
        4 => Just(Framing::Chunked),
        1 => Just(Framing::ToEnd),
        1 => (0_u64..80).prop_map(Framing::Length),
        1 => Just(Framing::Length(u64::MAX)),
    ]
}

proptest! {
    /// Any body, in any chunking, under any limit, reads as the model says.
    // rule: EXEC-37
    #[test]
    fn bodies_agree(
        framing in framing(),
        wire in wire(),
        limit in prop_oneof![2 => Just(u64::MAX), 1 => 0_u64..60],
        chunks in prop_oneof![Just(vec![1]), vec(0_usize..9, 1..8)],
    ) {
        let expected = expected(framing, limit, &wire);
        prop_assert_eq!(read(framing, limit, &by(&wire, &chunks)), expected.clone());
        prop_assert_eq!(read(framing, limit, &[&wire]), expected);
    }

    /// What is written in chunks reads back, in every split.
    #[test]
    fn chunks_come_back(chunks in vec(vec(any::<u8>(), 0..40), 0..5)) {
        let mut wire = Vec::new();
        for chunk in &chunks {
            match ChunkHead::new(chunk.len()) {
                Some(head) => wire.extend([head.as_bytes(), chunk, CHUNK_END].concat()),
                None => assert!(chunk.is_empty()),
            }
        }
        wire.extend_from_slice(LAST_CHUNK);
        let read = same_in_every_split(&wire, |pieces| read(Framing::Chunked, u64::MAX, pieces));
        prop_assert_eq!(read.ending, Ok(()));
        prop_assert_eq!(read.payload, chunks.concat());
    }
}

/// Every split and every prefix of bodies made by hand.
#[test]
fn splits_and_prefixes() {
    for (framing, wire) in [
        (Framing::Chunked, &b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nA: b\r\n\r\nrest"[..]),
        (Framing::Chunked, b"00A \t;x\r\n0123456789\r\n0\r\n\r\n"),
        (Framing::Chunked, b"3\nabc"),
        (Framing::Chunked, b"3\r\nabcd\r\n"),
        (Framing::Chunked, b"10000000000000000\r\n"),
        (Framing::Length(5), b"hello and more"),
        (Framing::Length(0), b"more"),
        (Framing::ToEnd, b"hello"),
    ] {
        for limit in [0, 4, 5, 10, 11, u64::MAX] {
            let read_in = |pieces: &[&[u8]]| read(framing, limit, pieces);
            assert_eq!(same_in_every_split(wire, read_in), expected(framing, limit, wire));
            for end in 0..wire.len() {
                let prefix = &wire[..end];
                assert_eq!(read(framing, limit, &[prefix]), expected(framing, limit, prefix));
            }
        }
    }
}

/// What is skipped is bounded, wherever it stands, exactly.
#[test]
fn skipped_bytes_are_bounded() {
    let most = MAX_SKIPPED as usize;
    for (start, end) in [("1;", "\r\n!\r\n0\r\n\r\n"), ("1", "\r\n"), ("0\r\n", "\r\n\r\n")] {
        let counted = usize::from(start.ends_with(';'));
        for (over, filler) in [(0, ";"), (1, ";")] {
            let wire = format!("{start}{}{end}", filler.repeat(most - counted + over));
            let wire = wire.as_bytes();
            let read = read(Framing::Chunked, u64::MAX, &[wire]);
            assert_eq!(read, expected(Framing::Chunked, u64::MAX, wire));
            let is_over = read.ending.is_err_and(|e| e.fault == BodyFault::SkippedTooLong);
            assert_eq!(is_over, over == 1);
        }
    }
}
