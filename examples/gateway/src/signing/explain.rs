//! Why a signature is refused: the signed lines are tried with what senders commonly sign
//! instead, until one fits.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use triwire::signed::Refusal;
use triwire::time::UnixMillis;
use url::Url;

/// What a header says, as text.
pub(super) struct Said {
    key_id: String,
    seconds: u64,
    nonce: String,
    signature: Vec<u8>,
}

impl Said {
    /// Reads a header that is well formed; the core's verdict is the one that counts.
    pub(super) fn parse(header: &str) -> Option<Self> {
        let mut parts = header.strip_prefix("v1 ")?.split(',');
        let mut next = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix('=');
        Some(Self {
            key_id: next("k")?.to_owned(),
            seconds: next("t")?.parse().ok()?,
            nonce: next("n")?.to_owned(),
            signature: Base64UrlUnpadded::decode_vec(next("s")?).ok()?,
        })
    }
}

/// The request that was received.
#[derive(Clone, Copy)]
pub(super) struct Request<'r> {
    pub(super) method: &'r str,
    /// As it was given.
    pub(super) url: &'r str,
    /// As it is signed.
    pub(super) host: &'r str,
    pub(super) path: &'r str,
    pub(super) body: &'r [u8],
}

impl Request<'_> {
    /// Writes the eight lines that a receiver compares with.
    pub(super) fn lines(&self, said: &Said) -> Vec<String> {
        let variant = Variant::new(4, self.method.to_ascii_uppercase(), "");
        lines(self, said, &[&variant])
    }
}

/// One line, written as some senders do.
struct Variant {
    /// Its place among the eight, from 0.
    line: usize,
    text: String,
    why: &'static str,
}

impl Variant {
    fn new(line: usize, text: impl Into<String>, why: &'static str) -> Self {
        Self { line, text: text.into(), why }
    }
}

fn lines(request: &Request<'_>, said: &Said, variants: &[&Variant]) -> Vec<String> {
    let mut lines = vec![
        "assistant-signature-v1".to_owned(),
        said.key_id.clone(),
        said.seconds.to_string(),
        said.nonce.clone(),
        request.method.to_ascii_uppercase(),
        request.host.to_owned(),
        request.path.to_owned(),
        hex(request.body),
    ];
    for variant in variants {
        if let Some(line) = lines.get_mut(variant.line) {
            line.clone_from(&variant.text);
        }
    }
    lines
}

fn hex(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Tells what is likely the matter.
pub(super) fn reasons(
    refusal: Refusal,
    said: Option<&Said>,
    request: &Request<'_>,
    secret: &Secrets<'_>,
    (now, window): (UnixMillis, u32),
) -> Vec<String> {
    match (refusal, said) {
        (Refusal::OutsideWindow, Some(said)) => {
            let now = now.get() / 1000;
            let (apart, side) = match now.checked_sub(said.seconds) {
                Some(behind) => (behind, "behind"),
                None => (said.seconds - now, "ahead of"),
            };
            // A thousand times the other, give or take half.
            let in_millis = |one: u64, other: u64| (other / 2..other * 2).contains(&(one / 1000));
            let units = if in_millis(said.seconds, now) {
                "; is it in milliseconds? It is to be in seconds"
            } else if in_millis(now, said.seconds) {
                "; is the clock in milliseconds? --now is in seconds"
            } else {
                ""
            };
            vec![format!(
                "line 3: the request's time {} is {apart} s {side} this clock {now}, at most \
                 {window} s are allowed{units}; compare both machines' clocks, and sign again \
                 instead of sending an old header",
                said.seconds
            )]
        }
        (Refusal::UnknownKey, Some(said)) => {
            vec![format!("line 2: the request names the key {}", said.key_id)]
        }
        (Refusal::WrongSignature, Some(said)) => wrong(said, request, secret),
        _ => Vec::new(),
    }
}

/// The forms in which a secret may have been used.
pub(super) struct Secrets<'s> {
    pub(super) trimmed: &'s [u8],
    pub(super) raw: &'s [u8],
}

impl Secrets<'_> {
    fn others(&self) -> Vec<(Vec<u8>, &'static str)> {
        let mut others = vec![
            (self.raw.to_vec(), "with the white space around it, such as a file's last newline"),
            ([self.trimmed, b"\n"].concat(), "with a newline behind it"),
        ];
        if let Ok(text) = std::str::from_utf8(self.trimmed) {
            if let Ok(bytes) = Base64UrlUnpadded::decode_vec(text) {
                others.push((bytes, "decoded from base64url; its letters are the key"));
            }
            if let Ok(bytes) = base64ct::Base64::decode_vec(text) {
                others.push((bytes, "decoded from base64; its letters are the key"));
            }
            let pairs = text.as_bytes().chunks(2).map(|pair| {
                std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
            });
            if let Some(bytes) = pairs.collect::<Option<Vec<u8>>>() {
                others.push((bytes, "decoded from hex; its letters are the key"));
            }
        }
        others
    }
}

fn wrong(said: &Said, request: &Request<'_>, secret: &Secrets<'_>) -> Vec<String> {
    let fits = |secret: &[u8], variants: &[&Variant]| {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return false };
        mac.update(lines(request, said, variants).join("\n").as_bytes());
        mac.verify_slice(&said.signature).is_ok()
    };
    let tell = |variant: &Variant| {
        format!("line {}: the sender signed `{}`: {}", variant.line + 1, variant.text, variant.why)
    };
    for (other, how) in secret.others() {
        if fits(&other, &[]) {
            return vec![format!("the sender used the secret {how}")];
        }
    }
    let variants = variants(request);
    if let Some(variant) = variants.iter().find(|variant| fits(secret.trimmed, &[variant])) {
        return vec![tell(variant)];
    }
    for (at, one) in variants.iter().enumerate() {
        let others = variants.iter().skip(at + 1).filter(|other| other.line != one.line);
        for other in others {
            if fits(secret.trimmed, &[one, other]) {
                return vec![tell(one), tell(other)];
            }
        }
    }
    if request.body.is_empty() {
        return vec![
            "line 8: no body was given; if the request has one, give the file that holds it"
                .to_owned(),
        ];
    }
    vec![
        "no common mistake explains it: compare these lines with what the sender signs \
         (triwire sign --explain), and check that both have the same secret"
            .to_owned(),
    ]
}

/// What senders commonly write instead.
fn variants(request: &Request<'_>) -> Vec<Variant> {
    let mut variants = Vec::new();
    methods(request, &mut variants);
    hosts(request, &mut variants);
    paths(request, &mut variants);
    bodies(request, &mut variants);
    variants
}

fn methods(request: &Request<'_>, variants: &mut Vec<Variant>) {
    let upper = request.method.to_ascii_uppercase();
    let lower = upper.to_ascii_lowercase();
    variants.push(Variant::new(4, lower, "the method is signed in upper case"));
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"] {
        if method != upper {
            variants.push(Variant::new(4, method, "the request came with another method"));
        }
    }
}

fn hosts(request: &Request<'_>, variants: &mut Vec<Variant>) {
    let mut add = |text: String, why| variants.push(Variant::new(5, text, why));
    let url = Url::parse(request.url).ok();
    let name = url.as_ref().and_then(Url::host_str).unwrap_or(request.host);
    let own_port = url.as_ref().and_then(Url::port_or_known_default);
    if request.host != name {
        add(name.to_owned(), "a port that is not the scheme's own is signed");
    }
    if let Some(port) = own_port {
        add(format!("{name}:{port}"), "the scheme's own port is not signed");
    }
    for port in [80, 443, 3000, 8000, 8080, 8443] {
        if own_port != Some(port) {
            add(format!("{name}:{port}"), "it asked for another port; is there a proxy between?");
        }
    }
    if let Some(bare) = name.strip_prefix("www.") {
        add(bare.to_owned(), "it asked for another host");
    } else {
        add(format!("www.{name}"), "it asked for another host");
    }
    add(format!("{name}."), "the host is signed without a dot behind it");
    for other in ["localhost", "127.0.0.1", "[::1]"] {
        if other != name {
            add(other.to_owned(), "it asked for another host; is there a proxy between?");
        }
    }
    let (_, rest) = request.url.split_once("://").unwrap_or_default();
    let typed = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if !typed.is_empty() && typed != request.host {
        add(typed.to_owned(), "the host is signed in lower case, as the URL parser writes it");
    }
    if let Some(url) = &url {
        let origin = url.origin().ascii_serialization();
        add(origin, "the host is signed without the scheme");
    }
}

fn paths(request: &Request<'_>, variants: &mut Vec<Variant>) {
    let mut add = |text: String, why| {
        if text != request.path {
            variants.push(Variant::new(6, text, why));
        }
    };
    let (path, query) = match request.path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (request.path, None),
    };
    let with = |path: &str| match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    add(path.to_owned(), "the query is signed");
    add(format!("{path}?"), "an empty query adds nothing");
    if let Some(query) = query {
        let mut pairs: Vec<_> = query.split('&').collect();
        pairs.sort_unstable();
        add(format!("{path}?{}", pairs.join("&")), "the query is signed in the order it is sent");
        pairs.reverse();
        add(format!("{path}?{}", pairs.join("&")), "the query is signed in the order it is sent");
        add(with(path).replace("%20", "+"), "percent codes are signed as they are sent");
        add(with(path).replace('+', "%20"), "percent codes are signed as they are sent");
    }
    let slash = match path.strip_suffix('/') {
        Some(path) => with(path),
        None => with(&format!("{path}/")),
    };
    add(slash, "it asked for a path that differs by its last slash; does something redirect?");
    add(request.path.to_ascii_lowercase(), "the path is signed in the case that is sent");
    let changed = |upper: bool| percent_codes(request.path, upper);
    add(changed(true), "percent codes are signed as they are sent");
    add(changed(false), "percent codes are signed as they are sent");
    add(decoded(request.path), "percent codes are signed as they are sent, not decoded");
    // A router that strips its prefix, and one that was to.
    let mut rest = path;
    while let Some((_, inner)) = rest.strip_prefix('/').and_then(|rest| rest.split_once('/')) {
        rest = rest.get(rest.len() - inner.len() - 1..).unwrap_or_default();
        add(with(rest), "it asked for a path without this prefix; the original one is signed");
    }
    let (_, typed) = request.url.split_once("://").unwrap_or_default();
    let start = typed.find(['/', '?', '#']).unwrap_or(typed.len());
    let typed = typed.get(start..).unwrap_or_default();
    add(typed.to_owned(), "the path is signed as the URL parser writes it");
    let (typed, _) = typed.split_once('#').unwrap_or((typed, ""));
    add(typed.to_owned(), "the path is signed as the URL parser writes it");
    add(request.url.to_owned(), "only path and query are signed, not the whole URL");
}

/// Writes the digits of percent codes in one case.
fn percent_codes(path: &str, upper: bool) -> String {
    let mut codes = path.split('%');
    let mut text = codes.next().unwrap_or_default().to_owned();
    for code in codes {
        let (digits, rest) = code.split_at_checked(2).unwrap_or((code, ""));
        text.push('%');
        text += &if upper { digits.to_ascii_uppercase() } else { digits.to_ascii_lowercase() };
        text += rest;
    }
    text
}

/// Decodes percent codes.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn bodies(request: &Request<'_>, variants: &mut Vec<Variant>) {
    let body = request.body;
    let mut add = |bytes: &[u8], why| {
        if bytes != body {
            variants.push(Variant::new(7, hex(bytes), why));
        }
    };
    add(b"", "that is an empty body; the one that is sent is signed");
    for end in ["\n", "\r\n"] {
        add(&[body, end.as_bytes()].concat(), "that is the body with a newline behind it");
    }
    add(body.trim_ascii(), "that is the body without the white space around it");
    if let Some(rest) = body.strip_prefix(b"\xef\xbb\xbf") {
        add(rest, "that is the body without its byte order mark");
    }
    if let Ok(text) = std::str::from_utf8(body) {
        add(text.replace("\r\n", "\n").as_bytes(), "that is the body with other line ends");
    }
    const ENCODED: &str = "that is the same JSON written anew; sign the bytes that are sent, and let nothing \
         between re-encode them";
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) {
        add(value.to_string().as_bytes(), ENCODED);
        let spaced = spaced(&value);
        add(spaced.as_bytes(), ENCODED);
        add(escaped(&spaced).as_bytes(), ENCODED);
        add(escaped(&value.to_string()).as_bytes(), ENCODED);
        add(format!("{value:#}").as_bytes(), ENCODED);
        let mut sorted = value;
        sorted.sort_all_objects();
        add(sorted.to_string().as_bytes(), ENCODED);
    }
}

/// Writes JSON with a space behind each comma and colon, as Python does by default.
fn spaced(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<_> = members
                .iter()
                .map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), spaced(value)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}

/// Writes all but ASCII as escapes.
fn escaped(json: &str) -> String {
    let mut text = String::new();
    for letter in json.chars() {
        if letter.is_ascii() {
            text.push(letter);
        } else {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                text += &format!("\\u{unit:04x}");
            }
        }
    }
    text
}
