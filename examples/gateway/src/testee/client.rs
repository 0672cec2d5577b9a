//! `exec.http_client` and `exec.ws_client`: the client's end of each transport, on recorded input.

use serde_json::{Map, Value, json};
use triwire::exec::body::Body;
use triwire::exec::frame::Direction;
use triwire::exec::head::{self, HeadError, ResponseHead};
use triwire::exec::socket::{ClientSocket, Close, Message};

use super::frames::Recorder;
use super::input::{Bad, Input, unhex};

/// Bytes of the window in which a head must stand whole.
const WINDOW: usize = 16 * 1024;

pub(super) fn http(input: Input<'_>) -> Result<Value, Bad> {
    let hijack = match input.text("mode")? {
        "one_shot" => false,
        "hijack" => true,
        _ => return Err(Bad::new("in.mode: expected one_shot or hijack")),
    };
    let chunks = input.chunks()?;
    let mut client = HttpClient {
        hijack,
        stage: Stage::Head(Vec::new()),
        recorder: Recorder::new(Direction::GuestToHost),
        refused: None,
    };
    for chunk in &chunks {
        client.feed(chunk);
    }
    if input.flag("end", true)? {
        client.finish();
    }
    let mut out = client.recorder.decoded().to_json();
    if let Some((status, body)) = client.refused {
        out.insert("status".into(), status.into());
        out.insert("body".into(), String::from_utf8_lossy(&body).into());
    }
    Ok(out.into())
}

struct HttpClient {
    hijack: bool,
    stage: Stage,
    recorder: Recorder,
    /// Status and body of an error.
    refused: Option<(u16, Vec<u8>)>,
}

enum Stage {
    /// The head does not stand whole in the window.
    Head(Vec<u8>),
    /// Frames follow, in a body or, after a hijack, bare.
    Frames(Option<Body>),
    /// An error's body follows.
    Error(Body),
    Over,
}

impl HttpClient {
    fn feed(&mut self, chunk: &[u8]) {
        let mut input = chunk;
        match &mut self.stage {
            Stage::Head(window) => {
                window.extend(chunk);
                let window = std::mem::take(window);
                match head::response(&window, window.len() >= WINDOW) {
                    Ok(None) => self.stage = Stage::Head(window),
                    Ok(Some(head)) => {
                        self.stage = self.behind(&head).unwrap_or_else(|error| {
                            self.recorder.fail(error.code());
                            Stage::Over
                        });
                        self.feed(&window[head.len..]);
                    }
                    Err(error) => self.fail(error.code()),
                }
            }
            Stage::Frames(None) => self.recorder.feed(chunk),
            Stage::Frames(Some(body)) => loop {
                match body.feed(&mut input) {
                    Ok(Some(payload)) => self.recorder.feed(payload),
                    Ok(None) => break,
                    Err(error) => return self.fail(error.code()),
                }
            },
            Stage::Error(body) => {
                let (_, text) = self.refused.get_or_insert_default();
                while let Ok(Some(payload)) = body.feed(&mut input) {
                    text.extend(payload);
                }
            }
            Stage::Over => {}
        }
        if matches!(&self.stage, Stage::Frames(Some(body)) if body.is_complete()) {
            self.finish();
        }
    }

    /// What follows the head.
    fn behind(&mut self, head: &ResponseHead<'_>) -> Result<Stage, HeadError> {
        let expected = if self.hijack {
            head.expect_hijack().map(|()| None)
        } else {
            head.expect_stream().map(|framing| Some(Body::new(framing)))
        };
        match expected {
            Ok(body) => Ok(Stage::Frames(body)),
            Err(error @ HeadError::Status { .. }) => {
                self.recorder.fail(error.code());
                self.refused = Some((head.status, Vec::new()));
                Ok(Stage::Error(head.error_body()?))
            }
            Err(error) => Err(error),
        }
    }

    /// The connection ended, or the body did.
    fn finish(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Head(_) => self.recorder.fail("truncated"),
            Stage::Frames(body) => {
                let ended = self.recorder.is_ended();
                match body.map_or(Ok(()), |body| body.finish()) {
                    Err(error) if !(ended && error.is_early_end()) => {
                        self.recorder.fail(error.code());
                    }
                    // The recorder has noted it.
                    _ => drop(self.recorder.finish()),
                }
            }
            Stage::Error(_) | Stage::Over => {}
        }
    }

    fn fail(&mut self, code: &'static str) {
        self.recorder.fail(code);
        self.stage = Stage::Over;
    }
}

pub(super) fn websocket(input: Input<'_>) -> Result<Value, Bad> {
    let mut socket = ClientSocket::new();
    let mut recorder = Recorder::new(Direction::GuestToHost);
    let mut close = None;
    for event in input.list("events")? {
        let Some(event) = event.as_object() else {
            return Err(Bad::new("in.events: expected objects"));
        };
        let binary;
        let message = if let Some(text) = event.get("text").and_then(Value::as_str) {
            Message::Text(text.as_bytes())
        } else if let Some(bytes) = event.get("binary").and_then(Value::as_str).and_then(unhex) {
            binary = bytes;
            Message::Binary(&binary)
        } else if let Some(Value::Object(frame)) = event.get("close") {
            let received = received(frame)?;
            socket.closed(received);
            close = close.or(Some(received));
            let _ = socket.finish(recorder.finish());
            continue;
        } else if event.contains_key("eof") {
            let _ = socket.finish(recorder.finish());
            continue;
        } else {
            return Err(Bad::new("in.events: expected binary, text, close or eof"));
        };
        match socket.feed(message) {
            Ok(bytes) => recorder.feed(bytes),
            Err(ours) => {
                recorder.fail("websocket_protocol");
                close = close.or(Some(ours));
            }
        }
    }
    let mut out = recorder.decoded().to_json();
    let close = close.map(|close| json!({ "code": close.code, "reason": close.reason.as_str() }));
    out.insert("close".into(), close.into());
    Ok(out.into())
}

/// A close frame that came.
fn received(frame: &Map<String, Value>) -> Result<Close, Bad> {
    // What the protocol calls a frame without a code.
    const NO_CODE: u64 = 1005;
    let code = match frame.get("code") {
        None | Some(Value::Null) => Some(NO_CODE),
        Some(code) => code.as_u64(),
    };
    let code = code
        .and_then(|code| u16::try_from(code).ok())
        .ok_or_else(|| Bad::new("in.events.close.code: expected a number of 16 bits"))?;
    let reason = frame.get("reason").and_then(Value::as_str).unwrap_or_default();
    Ok(Close::new(code, reason))
}
