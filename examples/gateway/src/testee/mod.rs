//! The thing under test as a process: one JSON request a line, one JSON answer a line.
//!
//! | request | answer |
//! | --- | --- |
//! | `{"id", "op", "in"}` | `{"id", "out"}` |
//! | an `op` that is not here | `{"id", "unsupported": true}` |
//! | anything else | `{"id", "error": "…"}`, `id` null when it cannot be told |
//!
//! Nothing is decided here: an operation hands the case's bytes to a machine and notes what that
//! answers.

mod channel;
mod client;
pub mod frames;
mod head;
mod input;
mod records;
mod signed;
mod text;
mod websocket;

use std::borrow::Cow;
use std::io::{self, BufRead, Write};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use self::input::{Bad, Input};
pub use self::input::{hex, unhex};

/// The codes of a stream's faults, which a manifest may name.
const CODES: [&str; 9] = [
    "unknown_type",
    "wrong_direction",
    "oversize",
    "truncated",
    "missing_exit",
    "after_exit",
    "after_stdin_close",
    "exit_unreadable",
    "exit_too_large",
];

/// Reports whether `word` is the code of a stream's fault.
#[must_use]
pub fn is_code(word: &str) -> bool {
    CODES.contains(&word)
}

/// A request as it came.
#[derive(Deserialize)]
struct Request<'r> {
    #[serde(borrow)]
    id: &'r RawValue,
    #[serde(borrow)]
    op: Cow<'r, str>,
    #[serde(borrow, rename = "in", default)]
    input: Option<&'r RawValue>,
}

/// Answers requests until the input ends.
///
/// # Errors
/// The input cannot be read, or the output cannot be written.
pub fn serve(mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        writeln!(output, "{}", answer(&line))?;
        // Who asks may wait for the answer before the next question.
        output.flush()?;
    }
}

/// Answers one request, whatever it is, as one line without its end.
#[must_use]
pub fn answer(line: &[u8]) -> String {
    let request: Request<'_> = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => {
            let whole: Option<Value> = serde_json::from_slice(line).ok();
            let id = whole.as_ref().and_then(|whole| whole.get("id")).unwrap_or(&Value::Null);
            let error = format!("expected one object with id, op and in: {error}");
            return json!({ "id": id, "error": error }).to_string();
        }
    };
    let id = request.id.get();
    let input = Input::new(request.input.map_or("{}", RawValue::get));
    match run(&request.op, input) {
        None => format!(r#"{{"id":{id},"unsupported":true}}"#),
        Some(Ok(out)) => format!(r#"{{"id":{id},"out":{out}}}"#),
        Some(Err(Bad(error))) => format!(r#"{{"id":{id},"error":{}}}"#, Value::from(error)),
    }
}

/// Runs an operation; `None` when there is none of that name.
fn run(op: &str, input: Input<'_>) -> Option<Result<Value, Bad>> {
    let run: fn(Input<'_>) -> Result<Value, Bad> = match op {
        "frames.decode" => frames::decode,
        "frames.encode" => frames::encode,
        "frames.constants" => frames::constants,
        "exec.request" => records::request,
        "exec.result" => records::result,
        "exec.head" => head::head,
        "exec.http_client" => client::http,
        "exec.ws_client" => client::websocket,
        "websocket.server" => websocket::server,
        "websocket.client" => websocket::client,
        "bounds.equal" => channel::bounds,
        "call.parse" => channel::call,
        "answer.parse" => channel::answer,
        "door.receive" => channel::receive,
        "door.script" => channel::door,
        "broker.script" => channel::broker,
        "origin.local" => channel::origin,
        "hello.script" => channel::hello,
        "signature.sign" => signed::sign,
        "signature.verify" => signed::verify,
        "url.parts" => signed::url,
        "replay.script" => signed::replay,
        "text.trim" => text::trim,
        "text.length" => text::length,
        _ => return None,
    };
    Some(run(input))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_ends_it() {
        let deep = format!(r#"{{"id":4,"op":"exec.request","in":{}1"#, "[".repeat(100_000));
        let lines: [(&[u8], &str); 9] = [
            (b"no json", r#"{"id":null,"error""#),
            (b"\xff\xfe", r#"{"id":null,"error""#),
            (b"[]", r#"{"id":null,"error""#),
            (br#"{"id":"a"}"#, r#"{"id":"a","error""#),
            (br#"{"id":7,"op":"frames.decode"}"#, r#"{"id":7,"error""#),
            (br#"{"id":8,"op":"frames.decode","in":3}"#, r#"{"id":8,"error""#),
            (
                br#"{"id":9,"op":"frames.decode","in":{"direction":"guest_to_host","chunks":["0"]}}"#,
                r#"{"id":9,"error""#,
            ),
            (br#"{"id":[1,2],"op":"money","in":{}}"#, r#"{"id":[1,2],"unsupported":true}"#),
            (deep.as_bytes(), r#"{"id":null,"error""#),
        ];
        let input: Vec<u8> =
            lines.iter().flat_map(|(line, _)| [line, &b"\n"[..]].concat()).collect();
        let mut output = Vec::new();
        serve(&input[..], &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        let answers: Vec<&str> = output.lines().collect();
        assert_eq!(answers.len(), lines.len());
        for (answer, (_, start)) in answers.iter().zip(lines) {
            assert!(answer.starts_with(start), "{answer}");
        }
    }
}
