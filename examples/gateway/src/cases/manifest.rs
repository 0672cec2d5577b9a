//! Cases out of a manifest: what it says of each stream is held against the stream's own bytes,
//! then asked of the testee.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{Case, Expected, Read};
use crate::testee::{hex, is_code};

/// Streams up to this many bytes are asked for a second time, byte by byte.
const SMALL: usize = 512;

#[derive(Deserialize)]
struct Manifest {
    header: Header,
    frame_types: Map<String, Value>,
    max_payload_size: usize,
    fixtures: Vec<Fixture>,
}

#[derive(Deserialize)]
struct Header {
    size: usize,
    type_offset: usize,
    reserved_offset: usize,
    reserved_len: usize,
    len_offset: usize,
    len_encoding: String,
}

#[derive(Deserialize)]
struct Fixture {
    file: String,
    #[serde(default)]
    description: String,
    direction: String,
    #[serde(default)]
    frames: Vec<Frame>,
    #[serde(default)]
    invalid: bool,
    #[serde(default)]
    expect: Option<String>,
}

#[derive(Deserialize)]
struct Frame {
    #[serde(rename = "type")]
    kind: String,
    type_byte: u8,
    payload_len: usize,
    payload_sha256: String,
    #[serde(default)]
    payload_utf8: Option<String>,
    #[serde(default)]
    exec_result: Option<Value>,
}

/// Makes the cases of the manifest at `path`.
pub(super) fn cases(path: &str, bytes: &[u8], read: Read<'_>) -> Result<Vec<Case>, String> {
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let folder = path.strip_suffix("manifest.json").unwrap_or_default();
    let Header { size, type_offset, reserved_offset, reserved_len, len_offset, len_encoding } =
        &manifest.header;
    let constants = Map::from_iter([
        (
            "header".into(),
            json!({
                "size": size,
                "type_offset": type_offset,
                "reserved_offset": reserved_offset,
                "reserved_len": reserved_len,
                "len_offset": len_offset,
                "len_encoding": len_encoding,
            }),
        ),
        ("frame_types".into(), manifest.frame_types.clone().into()),
        ("max_payload_size".into(), manifest.max_payload_size.into()),
    ]);
    let id = format!("frames.constants/{path}");
    let mut cases = vec![Case::new(id, "frames.constants", &json!({}), constants)];
    for fixture in &manifest.fixtures {
        let file = &fixture.file;
        if file.contains(['/', '\\']) {
            return Err(format!("{file}: a fixture lies beside its manifest"));
        }
        let stream =
            read(&format!("{folder}{file}")).map_err(|error| format!("{file}: {error}"))?;
        let fail = |error| format!("{file}: {error}");
        decode(&manifest, folder, fixture, &stream, &mut cases).map_err(fail)?;
    }
    Ok(cases)
}

/// One frame's payload with what the manifest says of it.
struct Payload<'m> {
    frame: &'m Frame,
    bytes: &'m [u8],
}

fn decode(
    manifest: &Manifest,
    folder: &str,
    fixture: &Fixture,
    stream: &[u8],
    cases: &mut Vec<Case>,
) -> Result<(), String> {
    let id = format!("frames.decode/{folder}{}", fixture.file);
    let expected = if fixture.invalid {
        match &fixture.expect {
            Some(code) if is_code(code) => {
                Expected::Members(Map::from_iter([("error".into(), code.as_str().into())]))
            }
            _ => Expected::AnyError,
        }
    } else {
        let payloads = cut(manifest, fixture, stream)?;
        if fixture.direction == "host_to_guest" {
            encode(manifest, folder, fixture, &payloads, stream, cases);
        }
        Expected::Members(decoded(&payloads))
    };
    let mut ask = |id: String, chunks: Vec<String>| {
        let input = json!({ "direction": fixture.direction, "chunks": chunks });
        let mut case = Case::new(id, "frames.decode", &input, Map::new());
        case.expected = expected.clone();
        case.note.clone_from(&fixture.description);
        cases.push(case);
    };
    ask(id.clone(), vec![hex(stream)]);
    if (2..=SMALL).contains(&stream.len()) {
        ask(format!("{id}/bytes"), stream.iter().map(|byte| hex(&[*byte])).collect());
    }
    Ok(())
}

/// Cuts the stream at the lengths that the manifest gives, and checks all else that it says.
fn cut<'m>(
    manifest: &Manifest,
    fixture: &'m Fixture,
    stream: &'m [u8],
) -> Result<Vec<Payload<'m>>, String> {
    let header = &manifest.header;
    let mut rest = stream;
    let mut payloads = Vec::new();
    for (index, frame) in fixture.frames.iter().enumerate() {
        let fail = |what: &str| Err(format!("frame {}: {what}", index + 1));
        let Some((head, behind)) = rest.split_at_checked(header.size) else {
            return fail("the stream has no such frame");
        };
        let Some((bytes, behind)) = behind.split_at_checked(frame.payload_len) else {
            return fail("the stream is shorter than payload_len");
        };
        rest = behind;
        let length = head.get(header.len_offset..).and_then(<[u8]>::first_chunk);
        let declared = length.map(|length| u32::from_be_bytes(*length) as usize);
        if head.get(header.type_offset) != Some(&frame.type_byte) {
            return fail("type_byte is another than the stream's");
        }
        if manifest.frame_types.get(&frame.kind) != Some(&frame.type_byte.into()) {
            return fail("type_byte is another than that of frame_types");
        }
        if declared != Some(frame.payload_len) {
            return fail("payload_len is another than the stream's");
        }
        if hex(&Sha256::digest(bytes)) != frame.payload_sha256 {
            return fail("payload_sha256 is another than the stream's");
        }
        if frame.payload_utf8.as_ref().is_some_and(|text| text.as_bytes() != bytes) {
            return fail("payload_utf8 is another than the stream's");
        }
        payloads.push(Payload { frame, bytes });
    }
    if !rest.is_empty() {
        return Err(format!("the stream has {} bytes behind the last frame", rest.len()));
    }
    Ok(payloads)
}

fn decoded(payloads: &[Payload<'_>]) -> Map<String, Value> {
    let joined = |kind: &str| -> Value {
        let of_kind = payloads.iter().filter(|payload| payload.frame.kind == kind);
        hex(&of_kind.flat_map(|payload| payload.bytes).copied().collect::<Vec<u8>>()).into()
    };
    let frames = payloads.iter();
    let frames: Vec<Value> = frames
        .map(|payload| json!({ "kind": payload.frame.kind, "hex": hex(payload.bytes) }))
        .collect();
    let closed = payloads.iter().any(|payload| payload.frame.kind == "stdin_close");
    let exit = payloads.iter().find_map(|payload| payload.frame.exec_result.clone());
    Map::from_iter([
        ("frames".into(), frames.into()),
        ("stdout".into(), joined("stdout")),
        ("stderr".into(), joined("stderr")),
        ("stdin".into(), joined("stdin")),
        ("eof".into(), u64::from(closed).into()),
        ("exit".into(), exit.into()),
        ("error".into(), Value::Null),
    ])
}

/// Asks for the stream's writes, where it is one that a writer makes: no empty frame but a single
/// stdin_close, reserved bytes zero. Frames that are full belong to the write of the next.
fn encode(
    manifest: &Manifest,
    folder: &str,
    fixture: &Fixture,
    payloads: &[Payload<'_>],
    stream: &[u8],
    cases: &mut Vec<Case>,
) {
    let size = manifest.header.size;
    let mut writes: Vec<(&str, Vec<u8>, Vec<usize>)> = Vec::new();
    for Payload { frame, bytes } in payloads {
        match writes.last_mut() {
            Some((kind, data, lengths))
                if *kind == frame.kind && lengths.last() == Some(&manifest.max_payload_size) =>
            {
                data.extend(*bytes);
                lengths.push(bytes.len());
            }
            _ => writes.push((&frame.kind, bytes.to_vec(), vec![bytes.len()])),
        }
    }
    let closes = writes.iter().filter(|(kind, ..)| *kind == "stdin_close").count();
    let empty = |(kind, data, _): &(&str, Vec<u8>, _)| (*kind == "stdin_close") != data.is_empty();
    if closes > 1 || writes.iter().any(empty) {
        return;
    }
    let mut at = 0;
    for (index, (kind, data, lengths)) in writes.iter().enumerate() {
        let len = data.len() + lengths.len() * size;
        // `cut` has followed these lengths through the stream.
        let wire = stream.get(at..at + len).unwrap_or_default();
        at += len;
        let out = Map::from_iter([
            ("hex".into(), hex(wire).into()),
            ("lengths".into(), lengths.clone().into()),
        ]);
        let id = format!("frames.encode/{folder}{}/{}", fixture.file, index + 1);
        let input = json!({ "kind": kind, "hex": hex(data) });
        cases.push(Case::new(id, "frames.encode", &input, out));
    }
}
