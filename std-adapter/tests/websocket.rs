//! WebSocket framing at the wire: raw bytes on one side, a link on the other.
#![cfg(feature = "tokio")]
#![allow(missing_docs)]

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use triwire_std::Wake;
use triwire_std::tokio::socket::{
    Ending, Fault, Message, Received, Role, Rx, SendError, Sizes, Tx, accept_key, link, messages_of,
};

const MASK: [u8; 4] = [0x11, 0x22, 0x33, 0x44];
const LIMIT: usize = 1 << 20;

/// A frame with a first byte of `first`, masked as a client's or bare as a server's.
fn frame(from: Role, first: u8, payload: &[u8]) -> Vec<u8> {
    let bit = if from == Role::Client { 0x80 } else { 0 };
    let mut out = vec![first];
    match payload.len() {
        len @ 0..=125 => out.push(bit | len as u8),
        len @ 126..=65_535 => {
            out.push(bit | 126);
            out.extend((len as u16).to_be_bytes());
        }
        len => {
            out.push(bit | 127);
            out.extend((len as u64).to_be_bytes());
        }
    }
    if from == Role::Client {
        out.extend(MASK);
        out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    } else {
        out.extend(payload);
    }
    out
}

/// Both ends given the same frames of their peer, whole, byte by byte and cut everywhere.
fn both(frames: &[(u8, &[u8])]) -> Received {
    let mut all = Vec::new();
    for (role, peer) in [(Role::Server, Role::Client), (Role::Client, Role::Server)] {
        let wire: Vec<u8> =
            frames.iter().flat_map(|(first, body)| frame(peer, *first, body)).collect();
        all.push(messages_of(&[&wire[..]], role, LIMIT));
        all.push(messages_of(&wire.chunks(1).collect::<Vec<_>>(), role, LIMIT));
        for cut in 1..wire.len().min(300) {
            let (head, tail) = wire.split_at(cut);
            all.push(messages_of(&[head, tail], role, LIMIT));
        }
    }
    let first = all.swap_remove(0);
    assert!(all.iter().all(|other| *other == first), "{first:?} and {all:?}");
    first
}

fn end(role: Role, sizes: Sizes) -> (DuplexStream, Rx<DuplexStream>, Tx<DuplexStream>) {
    let (near, far) = duplex(1 << 16);
    let (rx, tx) = link(near, role, &[], sizes);
    (far, rx, tx)
}

fn text(text: &str) -> Message {
    Message::Text(text.into())
}

#[test]
fn a_ping_between_fragments_is_answered_once() {
    let received = both(&[(0x01, b"hello"), (0x89, b"now"), (0x80, b"world")]);
    assert_eq!(received.messages, [text("helloworld")]);
    assert_eq!(received.pongs, [&b"now"[..]]);
    assert_eq!(received.error, None);
}

#[test]
fn a_character_may_be_cut_by_fragments_but_not_by_the_end() {
    let euro = both(&[(0x01, b"\xe2"), (0x89, b""), (0x00, b"\x82"), (0x80, b"\xac")]);
    assert_eq!(euro.messages, [text("\u{20ac}")]);
    let cut = both(&[(0x81, b"ok"), (0x81, b"\xe2\x82")]);
    assert_eq!(
        (cut.messages, cut.error, cut.sent_close),
        (vec![text("ok")], Some(1007), Some(1007))
    );
}

#[test]
fn close_bodies() {
    let empty = both(&[(0x88, b"")]);
    assert_eq!((empty.close, empty.sent_close), (Some((None, String::new())), Some(0)));
    let done = both(&[(0x88, b"\x03\xe8done")]);
    assert_eq!((done.close, done.sent_close), (Some((Some(1000), "done".into())), Some(1000)));
    for (body, code) in [
        (&b"\x03"[..], 1002),
        (b"\x03\xe8\xff\xfe", 1007),
        (b"\x03\xed", 1002), // 1005 never travels
        (b"\x00\x00", 1002),
    ] {
        let bad = both(&[(0x88, body)]);
        assert_eq!(
            (bad.close, bad.error, bad.sent_close),
            (None, Some(code), Some(code)),
            "{body:?}"
        );
    }
}

#[test]
fn what_stands_before_a_fault_is_delivered() {
    let received = both(&[(0x82, b"good"), (0x89, b"p"), (0xc2, b"bad")]);
    assert_eq!(received.messages, [Message::Binary(b"good"[..].into())]);
    assert_eq!(received.pongs, [&b"p"[..]]);
    assert_eq!((received.error, received.sent_close), (Some(1002), Some(1002)));
}

#[test]
fn frames_of_the_wrong_direction_deliver_nothing() {
    for (role, wrong) in [(Role::Server, Role::Server), (Role::Client, Role::Client)] {
        for first in [0x81, 0x82, 0x89, 0x88] {
            let received = messages_of(&[frame(wrong, first, b"")], role, LIMIT);
            assert_eq!(received.messages, []);
            assert_eq!((received.error, received.sent_close), (Some(1002), Some(1002)));
            assert!(received.pongs.is_empty() && received.close.is_none());
        }
    }
}

#[test]
fn lengths_are_judged_by_the_head_alone() {
    // rule: EXEC-29
    for (length, code) in [([0xff; 8], 1002), ([0, 0, 0, 0, 0, 0x10, 0, 1], 1009)] {
        let mut head = vec![0x82, 0xff];
        head.extend(length);
        let received = messages_of(&[head], Role::Server, LIMIT);
        assert_eq!((received.error, received.sent_close), (Some(code), Some(code)));
    }
    let most = vec![7; LIMIT];
    let received = messages_of(&[frame(Role::Client, 0x82, &most)], Role::Server, LIMIT);
    assert_eq!(received.messages, [Message::Binary(most.into())]);
    let small = messages_of(&[frame(Role::Server, 0x82, b"123456")], Role::Client, 5);
    assert_eq!((small.messages, small.error), (vec![], Some(1009)));
}

#[test]
fn the_end_of_the_transport_is_no_close() {
    let received = both(&[(0x82, b"x")]);
    assert_eq!((received.close, received.error, received.sent_close), (None, None, None));
}

#[tokio::test]
async fn pongs_go_out_while_the_application_only_waits() {
    for (role, peer) in [(Role::Server, Role::Client), (Role::Client, Role::Server)] {
        let (mut far, mut rx, _tx) = end(role, Sizes::default());
        let waiting = tokio::spawn(async move { rx.wait(None).await.map(|wake| (wake, rx)) });
        far.write_all(&frame(peer, 0x89, b"are you there")).await.unwrap();
        let mut pong = vec![0; frame(role, 0x8a, b"are you there").len()];
        tokio::time::timeout(Duration::from_secs(5), far.read_exact(&mut pong))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(pong[0], 0x8a);
        drop(far);
        let (wake, rx) = waiting.await.unwrap().unwrap();
        assert_eq!((wake, rx.ending()), (Wake::End, Some(&Ending::Lost)));
    }
}

#[tokio::test]
async fn the_peer_that_pings_and_never_reads_costs_bounded_memory_and_still_gets_the_close() {
    let (near, mut far) = duplex(64);
    let (mut rx, mut tx) =
        link(near, Role::Server, &[], Sizes { send_buffer: 256, ..Sizes::default() });
    let pings = tokio::spawn(async move {
        for _ in 0..200 {
            far.write_all(&frame(Role::Client, 0x89, &[b'p'; 100])).await.unwrap();
        }
        far.write_all(&frame(Role::Client, 0x81, b"end")).await.unwrap();
        far
    });
    assert_eq!(rx.wait(None).await.unwrap(), Wake::Bytes);
    assert_eq!(rx.next(), Some(text("end")));
    let mut far = pings.await.unwrap();
    tx.close(1000, "");
    assert_eq!(tx.send(text("late")), Err(SendError::Closed));
    let flushed = tokio::spawn(async move { tx.shutdown().await });
    let mut wire = Vec::new();
    far.read_to_end(&mut wire).await.unwrap();
    flushed.await.unwrap().unwrap();
    assert!(wire.ends_with(&[0x88, 2, 0x03, 0xe8]));
    assert!(wire.len() < 4096, "{}", wire.len());
}

#[tokio::test]
async fn close_reasons_are_cut_on_a_character() {
    // rule: EXEC-28
    let letters = "x".repeat(122);
    for reason in [format!("{letters}\u{1f600}"), format!("{letters}\u{1f600}").repeat(100)] {
        let (mut far, mut rx, mut tx) = end(Role::Server, Sizes::default());
        tx.close(1008, &reason);
        tx.shutdown().await.unwrap();
        let mut wire = Vec::new();
        far.write_all(&frame(Role::Client, 0x88, b"\x03\xf0")).await.unwrap();
        far.read_to_end(&mut wire).await.unwrap();
        assert_eq!(wire, [&[0x88, 124, 0x03, 0xf0], letters.as_bytes()].concat());
        assert_eq!(rx.wait(None).await.unwrap(), Wake::End);
        assert_eq!(rx.ending(), Some(&Ending::Closed { code: Some(1008), reason: String::new() }));
    }
}

#[tokio::test]
async fn bytes_behind_the_upgrade_are_the_first_frames() {
    // rule: EXEC-21
    let (near, mut far) = duplex(64);
    let wire = frame(Role::Client, 0x82, b"first");
    let (mut rx, _tx) = link(near, Role::Server, &wire[..7], Sizes::default());
    far.write_all(&wire[7..]).await.unwrap();
    assert_eq!(rx.wait(None).await.unwrap(), Wake::Bytes);
    assert_eq!(rx.next(), Some(Message::Binary(b"first"[..].into())));

    let (near, _far) = duplex(64);
    let (mut rx, _tx) = link(near, Role::Server, &[0x82, 0x05], Sizes::default());
    assert_eq!(rx.wait(None).await.unwrap(), Wake::End);
    assert_eq!(rx.ending(), Some(&Ending::Fault(Fault::Protocol)));
}

#[tokio::test]
async fn a_full_queue_is_said_and_flushing_makes_room() {
    let sizes = Sizes { send_buffer: 1000, ..Sizes::default() };
    let (mut far, _rx, mut tx) = end(Role::Server, sizes);
    assert!(tx.has_room(986) && !tx.has_room(987) && tx.is_flushed());
    tx.send(Message::Binary(vec![1; 900].into())).unwrap();
    let more = Message::Binary(vec![2; 100].into());
    assert!(matches!(tx.send(more.clone()), Err(SendError::Full(_))));
    assert!(!tx.is_flushed());
    tx.flush().await.unwrap();
    assert!(tx.is_flushed());
    tx.send(more).unwrap();
    tx.flush().await.unwrap();
    drop((tx, _rx));
    let mut wire = Vec::new();
    far.read_to_end(&mut wire).await.unwrap();
    assert_eq!(
        wire,
        [frame(Role::Server, 0x82, &[1; 900]), frame(Role::Server, 0x82, &[2; 100])].concat()
    );
}

#[tokio::test]
async fn masks_are_never_constant() {
    let (mut far, _rx, mut tx) = end(Role::Client, Sizes::default());
    for _ in 0..4 {
        tx.send(Message::Binary(b""[..].into())).unwrap();
    }
    tx.flush().await.unwrap();
    let mut wire = [0; 24];
    far.read_exact(&mut wire).await.unwrap();
    let masks: std::collections::HashSet<&[u8]> = wire.chunks(6).map(|head| &head[2..]).collect();
    assert!(masks.len() > 1);
}

#[tokio::test]
async fn waits_and_flushes_may_be_dropped_anywhere() {
    let (near, far) = duplex(7);
    let (mut rx, mut tx) = link(near, Role::Client, &[], Sizes::default());
    let (mut peer_rx, mut peer_tx) = link(far, Role::Server, &[], Sizes::default());
    let message = |n: u8| Message::Binary(vec![n; 40 + usize::from(n)].into());
    for n in 0..20 {
        tx.send(message(n)).unwrap();
        peer_tx.send(message(n)).unwrap();
    }
    let (mut came, mut peer_came) = (Vec::new(), Vec::new());
    // Each pass polls every future once and drops it.
    while came.len() < 20 || peer_came.len() < 20 {
        tokio::select! { biased; wake = rx.wait(None) => { wake.unwrap(); } () = std::future::ready(()) => {} }
        came.extend(rx.next());
        tokio::select! { biased; done = tx.flush() => done.unwrap(), () = std::future::ready(()) => {} }
        tokio::select! { biased; wake = peer_rx.wait(None) => { wake.unwrap(); } () = std::future::ready(()) => {} }
        peer_came.extend(peer_rx.next());
        tokio::select! { biased; done = peer_tx.flush() => done.unwrap(), () = std::future::ready(()) => {} }
        tokio::task::yield_now().await;
    }
    let all: Vec<Message> = (0..20).map(message).collect();
    assert_eq!((came, peer_came), (all.clone(), all));
}

#[tokio::test]
async fn both_halves_in_two_tasks_move_a_megabyte_each_way() {
    let (near, far) = duplex(4096);
    let mut tasks = Vec::new();
    for (io, role) in [(near, Role::Client), (far, Role::Server)] {
        let (mut rx, mut tx) = link(io, role, &[], Sizes::default());
        tasks.push(tokio::spawn(async move {
            for n in 0..64u8 {
                let message = Message::Binary(vec![n; 16_384].into());
                while !tx.has_room(16_384) {
                    tx.flush().await.unwrap();
                }
                tx.send(message).unwrap();
            }
            tx.flush().await.unwrap();
        }));
        tasks.push(tokio::spawn(async move {
            for n in 0..64u8 {
                assert_eq!(rx.wait(None).await.unwrap(), Wake::Bytes);
                assert_eq!(rx.next().unwrap().as_bytes(), &vec![n; 16_384]);
            }
            // The other task still sends over the shared transport.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }));
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap();
    }
}

#[test]
fn the_accept_key_is_the_one_of_the_standard() {
    assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}
