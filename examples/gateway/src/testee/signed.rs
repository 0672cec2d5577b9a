//! `signature.sign`, `signature.verify`, `url.parts` and `replay.script`.

use base64ct::{Base64UrlUnpadded, Encoding};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use triwire::signed::{
    self, Claimed, Entry, Genuine, Key, KeyId, MAX_HEADER_LENGTH, MAX_TIME, Nonce, Part, Presented,
    Refusal, ReplayWindow, SIGNATURE_HEADER, SIGNATURE_WINDOW_SECONDS, Target, TargetError, Window,
};
use triwire::time::UnixMillis;
use triwire_std::signed::url::{UrlError, parts};

use super::input::{Bad, Input};

/// More entries than any script needs.
const MOST_ENTRIES: usize = 1 << 20;

/// A mistake of the caller's, which is no outcome.
type Mistake = &'static str;

pub(super) fn url(input: Input<'_>) -> Result<Value, Bad> {
    Ok(match parts(input.text("url")?) {
        Ok(parts) => json!({ "host": parts.host, "path": parts.path }),
        Err(error) => json!({ "error": error.code() }),
    })
}

pub(super) fn sign(input: Input<'_>) -> Result<Value, Bad> {
    let (method, url) = (input.text("method")?, input.text("url")?);
    let (id, secret) = (input.text("key_id")?, input.text("secret")?);
    let (nonce, body) = (input.text("nonce")?, body(&input)?);
    let now = seconds(input.get("t")?, "t")?;
    let signed = || -> Result<Value, Mistake> {
        let url = parts(url).map_err(UrlError::code)?;
        let target = Target::new(method, &url.host, &url.path).map_err(part)?;
        let id = KeyId::parse(id).map_err(|_| "bad_key_id")?;
        let key = Key::new(secret.as_bytes()).map_err(|_| "secret_too_short")?;
        let nonce = Nonce::parse(nonce).map_err(|_| "bad_nonce")?;
        let mut header = [0; MAX_HEADER_LENGTH];
        let header = signed::sign(now, id, &key, target, nonce, &body, &mut header)
            .map_err(|_| "header_too_long")?;
        let mut lines = vec![0; method.len() + url.host.len() + url.path.len() + 512];
        let lines = signed::lines(now, id, target, nonce, &body, &mut lines)
            .map_err(|_| "lines_too_long")?;
        let lines: Vec<&str> = lines.split('\n').collect();
        Ok(json!({ "header": header, "lines": lines }))
    };
    Ok(signed().unwrap_or_else(|mistake| json!({ "error": mistake })))
}

const fn part(error: TargetError) -> Mistake {
    match error.part {
        Part::Method => "bad_method",
        Part::Host => "bad_host",
        Part::Path => "bad_path",
    }
}

/// One request as it is verified, maybe several times.
struct Received<'c> {
    method: &'c str,
    url: &'c str,
    headers: Vec<&'c str>,
    body: Vec<u8>,
    /// `None` when no key can be looked up.
    keys: Option<&'c serde_json::Map<String, Value>>,
    store: Store,
    window: Window,
}

enum Store {
    Ready(Box<ReplayWindow<[Entry; 64]>>),
    Failing,
}

pub(super) fn verify(input: Input<'_>) -> Result<Value, Bad> {
    let keys = input.get("keys")?.ok_or_else(|| Bad::new("in.keys is missing"))?;
    let keys = match keys {
        Value::Object(keys) => Some(keys),
        Value::String(word) if word == "unavailable" => None,
        _ => return Err(Bad::new("in.keys: expected secrets by id, or \"unavailable\"")),
    };
    let store = match input.optional_text("store")?.unwrap_or("ok") {
        "ok" => Store::Ready(Box::new(ReplayWindow::new([Entry::EMPTY; 64]))),
        "unavailable" | "full" => Store::Failing,
        _ => return Err(Bad::new("in.store: expected ok, unavailable or full")),
    };
    let mut received = Received {
        method: input.text("method")?,
        url: input.text("url")?,
        headers: headers(&input)?,
        body: body(&input)?,
        keys,
        store,
        window: window(&input)?,
    };
    let now = millis(input.get("now")?, "now")?;
    let finish = match input.get("finish_now")? {
        None => now,
        given => millis(given, "finish_now")?,
    };
    let mut out = match received.verify(now, finish) {
        Err(mistake) => return Ok(json!({ "error": mistake })),
        Ok(Err(refusal)) => json!({ "outcome": refusal.as_str() }),
        Ok(Ok((id, expires))) => {
            json!({ "outcome": "ok", "key_id": id.as_str(), "expires_at": expires.get() })
        }
    };
    if input.get("again_at")?.is_some() {
        let again = input.list("again_at")?.iter().map(|at| {
            let at = millis(Some(at), "again_at")?;
            Ok(match received.verify(at, at) {
                Err(mistake) => mistake,
                Ok(Err(refusal)) => refusal.as_str(),
                Ok(Ok(_)) => "ok",
            })
        });
        out["again"] = again.collect::<Result<Vec<_>, Bad>>()?.into();
    }
    Ok(out)
}

impl Received<'_> {
    fn verify(
        &mut self,
        now: UnixMillis,
        finish: UnixMillis,
    ) -> Result<Result<(KeyId, UnixMillis), Refusal>, Mistake> {
        let url = parts(self.url).map_err(UrlError::code)?;
        let target = Target::new(self.method, &url.host, &url.path).map_err(part)?;
        let presented = Presented::parse(self.headers.iter().map(|value| value.as_bytes()));
        let timely = match presented.and_then(|presented| presented.check(now, self.window)) {
            Ok(timely) => timely,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(keys) = self.keys else { return Ok(Err(Refusal::KeysUnavailable)) };
        let Some(secret) = keys.get(timely.key_id().as_str()).and_then(Value::as_str) else {
            return Ok(Err(Refusal::UnknownKey));
        };
        let key = Key::new(secret.as_bytes()).map_err(|_| "secret_too_short")?;
        let mut verification = timely.with(target, &key);
        for piece in self.body.chunks(7) {
            verification.feed(piece);
        }
        Ok(verification.finish(finish).and_then(|genuine| {
            let expires = genuine.expires_at();
            let claimed = match &mut self.store {
                Store::Ready(window) => window.claim(finish, genuine.claim())?,
                Store::Failing => return Err(Refusal::NoncesUnavailable),
            };
            genuine.accept(claimed).map(|accepted| (accepted.key_id, expires))
        }))
    }
}

pub(super) fn replay(input: Input<'_>) -> Result<Value, Bad> {
    let capacity = input.count("capacity", 0)?;
    if capacity > MOST_ENTRIES {
        return Err(Bad::new(format_args!("in.capacity: expected at most {MOST_ENTRIES}")));
    }
    let window = window(&input)?;
    let mut seen = ReplayWindow::new(vec![Entry::EMPTY; capacity]);
    if let boot @ Some(_) = input.get("boot")? {
        seen.after_boot(millis(boot, "boot")?, window);
    }
    let claim = |step: &Value| {
        let now = millis(step.get("now"), "steps.now")?;
        let name = step.get("claim").and_then(Value::as_str);
        let name = name.ok_or_else(|| Bad::new("in.steps.claim: expected a name"))?;
        let genuine = genuine(name, seconds(step.get("t"), "steps.t")?, window)
            .ok_or_else(|| Bad::new("in.steps: no such claim can be made"))?;
        Ok(match seen.claim(now, genuine.claim()) {
            Ok(Claimed::Fresh) => "ok",
            Ok(Claimed::Replayed) => "replayed",
            Err(_) => "full",
        })
    };
    let outcomes = input.list("steps")?.iter().map(claim).collect::<Result<Vec<_>, Bad>>()?;
    Ok(json!({ "outcomes": outcomes }))
}

/// Signs and verifies a request whose claim has this name: nothing else makes one. What no header
/// can carry stands for its hash.
fn genuine(name: &str, at: UnixMillis, window: Window) -> Option<Genuine> {
    let hash = Base64UrlUnpadded::encode_string(&Sha256::digest(name));
    let pair = name.split_once(':');
    let pair =
        pair.and_then(|(id, nonce)| Some((KeyId::parse(id).ok()?, Nonce::parse(nonce).ok()?)));
    let (id, nonce) = match pair {
        Some(pair) => pair,
        None => (KeyId::parse("name").ok()?, Nonce::parse(&hash).ok()?),
    };
    let key = Key::new(&[0; signed::MIN_SECRET_BYTES]).ok()?;
    let target = Target::new("GET", "localhost", "/").ok()?;
    let mut header = [0; MAX_HEADER_LENGTH];
    let header = signed::sign(at, id, &key, target, nonce, b"", &mut header).ok()?;
    let timely = Presented::parse([header.as_bytes()]).ok()?.check(at, window).ok()?;
    timely.with(target, &key).finish(at).ok()
}

/// The values of the signature's headers, as HTTP hands them on: without the white space around.
fn headers<'c>(input: &'c Input<'_>) -> Result<Vec<&'c str>, Bad> {
    let http = |value: &'c str| value.trim_matches([' ', '\t']);
    if input.get("headers")?.is_none() {
        return Ok(input.optional_text("header")?.map(http).into_iter().collect());
    }
    let mut values = Vec::new();
    for header in input.list("headers")? {
        let pair = header.as_array().map(Vec::as_slice).unwrap_or_default();
        let [Value::String(name), Value::String(value)] = pair else {
            return Err(Bad::new("in.headers: expected pairs of name and value"));
        };
        if name.eq_ignore_ascii_case(SIGNATURE_HEADER) {
            values.push(http(value));
        }
    }
    Ok(values)
}

/// The body, empty when there is none.
fn body(input: &Input<'_>) -> Result<Vec<u8>, Bad> {
    if input.get("hex")?.is_some() { input.bytes("hex") } else { Ok(Vec::new()) }
}

fn window(input: &Input<'_>) -> Result<Window, Bad> {
    let seconds = input.count("window", SIGNATURE_WINDOW_SECONDS as usize)?;
    let window = u32::try_from(seconds).ok().map(Window::seconds);
    match window {
        Some(Ok(window)) => Ok(window),
        Some(Err(error)) => Err(Bad::new(format_args!("in.window: {error}"))),
        None => Err(Bad::new("in.window: expected fewer seconds")),
    }
}

fn millis(value: Option<&Value>, name: &str) -> Result<UnixMillis, Bad> {
    let millis = value.and_then(whole);
    millis
        .map(UnixMillis::new)
        .ok_or_else(|| Bad::new(format_args!("in.{name}: expected a whole number of ms")))
}

fn seconds(value: Option<&Value>, name: &str) -> Result<UnixMillis, Bad> {
    match value.and_then(whole) {
        Some(seconds @ ..=MAX_TIME) => Ok(UnixMillis::new(seconds * 1_000)),
        _ => Err(Bad::new(format_args!("in.{name}: expected seconds, at most 2^53 - 1"))),
    }
}

/// A whole number that JSON may also write with a fraction of zero or an exponent.
fn whole(value: &Value) -> Option<u64> {
    let whole = |float: f64| {
        (float.fract() == 0.0 && (0.0..1.8e19).contains(&float)).then_some(float as u64)
    };
    value.as_u64().or_else(|| value.as_f64().and_then(whole))
}
