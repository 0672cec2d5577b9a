//! `exec.head`: what a client sends first.

use serde_json::{Value, json};
use triwire::exec::head::{HeadError, Mode, RequestHead};
use triwire_std::record::ExecRequest;

use super::input::{Bad, Input};

/// Room for any head that the cases ask for.
const ROOM: usize = 16 * 1024;

pub(super) fn head(input: Input<'_>) -> Result<Value, Bad> {
    // Of the WebSocket protocol's own example, unless the case brings one.
    let key = input.optional_text("key")?.unwrap_or("dGhlIHNhbXBsZSBub25jZQ==");
    let mode = match input.text("mode")? {
        "one_shot" => Mode::OneShot,
        "hijack" => Mode::Hijack,
        "websocket" => Mode::Socket { key },
        _ => return Err(Bad::new("in.mode: expected one_shot, hijack or websocket")),
    };
    let body = match mode {
        Mode::Socket { .. } => Vec::new(),
        Mode::OneShot | Mode::Hijack => request(&input)?.to_json(),
    };
    let head = RequestHead {
        mode,
        sandbox: input.text("sandbox")?,
        host: input.text("host")?,
        bearer: input.optional_text("bearer")?,
        content_length: Some(body.len()),
        path: input.optional_text("path")?.unwrap_or_default(),
    };
    let mut out = [0; ROOM];
    match head.write(&mut out) {
        Ok(head) => Ok(json!({ "text": String::from_utf8_lossy(&[head, &body].concat()) })),
        Err(HeadError::OutTooSmall { needed }) => {
            Err(Bad::new(format_args!("the head takes {needed} bytes, there is room for {ROOM}")))
        }
        Err(error) => Ok(json!({ "error": error.code() })),
    }
}

fn request(input: &Input<'_>) -> Result<ExecRequest, Bad> {
    let bad = |what: &str| Bad::new(format_args!("in.request{what}"));
    let text = |value: &Value, what| value.as_str().map(str::to_owned).ok_or_else(|| bad(what));
    let request = input.get("request")?.ok_or_else(|| bad(" is missing"))?;
    let cmd = request.get("cmd").and_then(Value::as_array).ok_or_else(|| bad(".cmd is no list"))?;
    let mut env = Vec::new();
    if let Some(variables) = request.get("env") {
        for (name, value) in variables.as_object().ok_or_else(|| bad(".env is no object"))? {
            env.push((name.clone(), text(value, ".env: expected strings")?));
        }
    }
    let timeout_s = match request.get("timeout_s") {
        None => 0,
        Some(seconds) => seconds
            .as_u64()
            .and_then(|seconds| u32::try_from(seconds).ok())
            .ok_or_else(|| bad(".timeout_s is no whole number"))?,
    };
    Ok(ExecRequest {
        cmd: cmd
            .iter()
            .map(|word| text(word, ".cmd: expected strings"))
            .collect::<Result<_, _>>()?,
        env,
        cwd: request.get("cwd").map_or(Ok(String::new()), |cwd| text(cwd, ".cwd is no string"))?,
        timeout_s,
    })
}
