//! The built-in suite in process: every case as it stands, and every stream in every cut.

use serde_json::Value;
use triwire::exec::frame::Direction;
use triwire_gateway::cases::{self, Case, Verdict};
use triwire_gateway::testee::frames::{Decoded, decoded, direction};
use triwire_gateway::testee::{answer, unhex};

/// Longest stream whose every proper prefix is ended.
const SHORT: usize = 8192;

fn built_in() -> Vec<Case> {
    cases::built_in().unwrap()
}

#[test]
fn every_case_passes() {
    let cases = built_in();
    let mut failed = Vec::new();
    for case in &cases {
        let answer = answer(case.request().as_bytes());
        match case.judge(&answer) {
            Verdict::Passed => {}
            other => failed.push(format!("{}: {other:?}", case.id)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let ops = [
        "frames.decode",
        "frames.encode",
        "frames.constants",
        "exec.request",
        "exec.result",
        "exec.http_client",
        "exec.head",
        "exec.ws_client",
        "websocket.server",
        "websocket.client",
        "signature.sign",
        "signature.verify",
        "url.parts",
        "replay.script",
        "text.trim",
        "text.length",
    ];
    for op in ops {
        assert!(cases.iter().any(|case| case.op == op), "no case asks for {op}");
    }
}

/// A stream of the suite, its chunks joined.
struct Stream {
    id: String,
    direction: Direction,
    bytes: Vec<u8>,
    end: bool,
}

fn streams() -> Vec<Stream> {
    let decode = built_in().into_iter().filter(|case| case.op == "frames.decode");
    let streams: Vec<Stream> = decode
        .map(|case| {
            let input = case.input().unwrap();
            let chunks = input["chunks"].as_array().unwrap().iter();
            Stream {
                id: case.id,
                direction: direction(input["direction"].as_str().unwrap()).unwrap(),
                bytes: chunks.flat_map(|chunk| unhex(chunk.as_str().unwrap()).unwrap()).collect(),
                end: input.get("end").and_then(Value::as_bool).unwrap_or(true),
            }
        })
        .collect();
    assert!(streams.len() > 100);
    streams
}

impl Stream {
    fn decoded(&self) -> Decoded {
        decoded(self.direction, [&self.bytes[..]], self.end)
    }
}

#[test]
fn every_stream_in_every_two_parts() {
    // rule: EXEC-3
    for stream in streams() {
        let whole = stream.decoded();
        for cut in 0..=stream.bytes.len() {
            let (a, b) = stream.bytes.split_at(cut);
            let split = decoded(stream.direction, [a, b], stream.end);
            assert!(split == whole, "{} cut at {cut}: {split:?}", stream.id);
        }
    }
}

#[test]
fn every_stream_byte_by_byte() {
    // rule: EXEC-3
    for stream in streams() {
        let split = decoded(stream.direction, stream.bytes.chunks(1), stream.end);
        assert!(split == stream.decoded(), "{}: {split:?}", stream.id);
    }
}

#[test]
fn every_proper_prefix_ends_as_the_contract_says() {
    // rule: EXEC-4, EXEC-6, EXEC-31
    let mut tried = 0;
    for stream in streams() {
        let whole = stream.decoded();
        if whole.error.is_some() || !stream.end || stream.bytes.len() > SHORT {
            continue;
        }
        tried += 1;
        // Where frames end, from the frames themselves.
        let mut edges = vec![0];
        for (_, payload) in &whole.frames {
            edges.push(edges.last().unwrap() + 8 + payload.len());
        }
        for end in 0..stream.bytes.len() {
            let prefix = decoded(stream.direction, [&stream.bytes[..end]], true);
            let expected = match (stream.direction, edges.contains(&end)) {
                (_, false) => Some("truncated"),
                (Direction::GuestToHost, true) => Some("missing_exit"),
                (Direction::HostToGuest, true) => None,
            };
            assert_eq!(prefix.error, expected, "{} ended at {end}", stream.id);
            assert!(whole.stdout.starts_with(&prefix.stdout), "{} ended at {end}", stream.id);
            assert!(whole.stderr.starts_with(&prefix.stderr), "{} ended at {end}", stream.id);
            assert!(whole.stdin.starts_with(&prefix.stdin), "{} ended at {end}", stream.id);
            assert_eq!(prefix.exit, None, "{} ended at {end}", stream.id);
        }
    }
    assert!(tried > 20);
}

#[test]
fn a_fault_stays_whatever_follows() {
    // rule: EXEC-7
    let more = [1, 0, 0, 0, 0, 0, 0, 1, b'x'];
    for stream in streams() {
        let failed = decoded(stream.direction, [&stream.bytes[..]], false);
        if failed.error.is_some() {
            let later = decoded(stream.direction, [&stream.bytes[..], &more, &more], true);
            assert!(later == failed, "{}: {later:?}", stream.id);
        }
    }
}

#[test]
fn the_manifest_names_what_the_contract_names() {
    let manifest = triwire_fixtures::FILES.iter().find(|(path, _)| *path == "exec/manifest.json");
    let manifest: Value = serde_json::from_slice(manifest.unwrap().1).unwrap();
    let fixtures = manifest["fixtures"].as_array().unwrap();
    for file in [
        "exec_basic.bin",
        "exec_interleaved_usage.bin",
        "exec_exit_only.bin",
        "exec_agent_error.bin",
        "exec_timeout.bin",
        "exec_chunked.bin",
        "stdin_session.bin",
        "invalid_truncated_header.bin",
        "invalid_truncated_payload.bin",
        "invalid_oversize_frame.bin",
    ] {
        assert!(fixtures.iter().any(|fixture| fixture["file"] == file), "{file} is missing");
    }
}
