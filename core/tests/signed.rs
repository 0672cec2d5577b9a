//! Signing and verifying: the grammar of the header, the order of the outcomes, the edges of the
//! window, bodies in any pieces.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use base64ct::{Base64UrlUnpadded, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use triwire::signed::{
    self, Accepted, Claimed, Genuine, Key, KeyId, KeyIdError, MAX_HEADER_LENGTH, MAX_TIME,
    MIN_SECRET_BYTES, Nonce, NonceError, Part, Presented, Refusal, SIGNATURE_HEADER, Signing,
    Target, TargetError, Window,
};
use triwire::time::{ClockUnset, UnixMillis};

const SECRET: &[u8] = b"a test secret of at least 32 bytes";
const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);
const BODY: &[u8] = br#"{"query":"base"}"#;

fn key() -> Key {
    Key::new(SECRET).unwrap()
}

fn target() -> Target<'static> {
    Target::new("POST", "shop.example", "/tools?v=1").unwrap()
}

fn id(text: &str) -> KeyId {
    KeyId::parse(text).unwrap()
}

fn header_at(now: UnixMillis) -> String {
    let nonce = Nonce::parse("AAECAwQFBgcICQoLDA0ODw").unwrap();
    let mut out = [0; MAX_HEADER_LENGTH];
    signed::sign(now, id("shop.1"), &key(), target(), nonce, BODY, &mut out).unwrap().to_owned()
}

fn verify(header: &[u8], body: &[u8], now: UnixMillis) -> Result<Genuine, Refusal> {
    verify_of(header, target(), body, now, now, Window::default())
}

fn verify_of(
    header: &[u8],
    target: Target<'_>,
    body: &[u8],
    now: UnixMillis,
    finish: UnixMillis,
    window: Window,
) -> Result<Genuine, Refusal> {
    let timely = Presented::parse([header])?.check(now, window)?;
    assert_eq!(timely.key_id(), id("shop.1"));
    let mut verification = timely.with(target, &key());
    verification.feed(body);
    verification.finish(finish)
}

fn parsed(value: &[u8]) -> Result<(), Refusal> {
    Presented::parse([value]).map(|_| ())
}

// Computed with Python's hmac and hashlib.
// rule: SIGN-2
#[test]
fn signs_as_others_do() {
    assert_eq!(
        header_at(NOW),
        "v1 k=shop.1,t=1800000000,n=AAECAwQFBgcICQoLDA0ODw,s=LfwklDxxpV6YhtvpVUGr5kEInFLPNgP084ildSW607A"
    );
    let nonce = Nonce::parse("AAECAwQFBgcICQoLDA0ODw").unwrap();
    let mut out = [0; 300];
    let lines = signed::lines(NOW, id("shop.1"), target(), nonce, BODY, &mut out).unwrap();
    assert_eq!(
        lines,
        "assistant-signature-v1\nshop.1\n1800000000\nAAECAwQFBgcICQoLDA0ODw\nPOST\nshop.example\n/tools?v=1\n51e292571df0a008fceec090594be180b355a62ce11e7e463127d4eece4ee7e0"
    );
    assert_eq!(SIGNATURE_HEADER, "assistant-signature");
}

// rule: SIGN-1
#[test]
fn refuses_every_other_grammar() {
    let good = header_at(NOW);
    let s = good.split(",s=").nth(1).unwrap();
    assert_eq!(parsed(good.as_bytes()), Ok(()));
    assert_eq!(Presented::parse([]).map(|_| ()), Err(Refusal::MissingSignature));
    let bad = [
        String::new(),
        "v1".into(),
        "v1 ".into(),
        "v1 k=".into(),
        format!("v1 k=a,t=1,n=x,s={s},"),
        format!("v1 k=a,t=1,n=x,s={s} "),
        format!(" v1 k=a,t=1,n=x,s={s}"),
        format!("v1  k=a,t=1,n=x,s={s}"),
        format!("v1\tk=a,t=1,n=x,s={s}"),
        format!("V1 k=a,t=1,n=x,s={s}"),
        format!("v1 K=a,t=1,n=x,s={s}"),
        format!("v1 k=a, t=1,n=x,s={s}"),
        format!("v1 t=1,k=a,n=x,s={s}"),
        format!("v1 k=a,n=x,t=1,s={s}"),
        format!("v1 k=a,t=1,t=2,n=x,s={s}"),
        format!("v1 k=a,k=b,t=1,n=x,s={s}"),
        format!("v1 k=a,t=1,n=x,n=y,s={s}"),
        format!("v1 k=a,t=1,n=x,s={s},s={s}"),
        format!("v1 k=a,t=1,n=x,s={s},e=1"),
        format!("v1 k=a,t=1,s={s}"),
        format!("v1 k=a,t=1,n=x,s={s}\n"),
        format!("v1 k=\"a\",t=1,n=x,s={s}"),
        "assistant-signature: v1".into(),
    ];
    for value in bad {
        assert_eq!(parsed(value.as_bytes()), Err(Refusal::MalformedSignature), "{value:?}");
    }
    let huge = [b"v1 k=a,t=1,n=".to_vec(), vec![b'x'; 1 << 20]].concat();
    assert_eq!(parsed(&huge), Err(Refusal::MalformedSignature));
    assert_eq!(parsed(&vec![b','; 1 << 20]), Err(Refusal::MalformedSignature));
    assert_eq!(
        parsed(&[b"v1 k=\xff,t=1,n=x,s=", s.as_bytes()].concat()),
        Err(Refusal::MalformedSignature)
    );
}

// rule: SIGN-3
#[test]
fn refuses_two_headers_and_lists() {
    let good = header_at(NOW);
    let both = Presented::parse([good.as_bytes(), good.as_bytes()]);
    assert_eq!(both.map(|_| ()), Err(Refusal::MalformedSignature));
    let other = Presented::parse([&b"v2 x"[..], good.as_bytes()]);
    assert_eq!(other.map(|_| ()), Err(Refusal::MalformedSignature));
    for list in [format!("{good}, {good}"), format!("{good},{good}")] {
        assert_eq!(parsed(list.as_bytes()), Err(Refusal::MalformedSignature));
    }
}

// rule: SIGN-4
#[test]
fn tells_other_versions_before_their_grammar() {
    for value in
        ["v2 ", "v2 k=a", "v0 x", "v01 k=a,t=1,n=x,s=y", "v10 \u{e9}", "v123456789012345678901 "]
    {
        assert_eq!(parsed(value.as_bytes()), Err(Refusal::UnsupportedVersion), "{value}");
    }
    for value in ["v2", "v", "v ", "v2k=a", "v-2 k=a", "v2.0 k=a", "w2 k=a", "v\u{661} k=a"] {
        assert_eq!(parsed(value.as_bytes()), Err(Refusal::MalformedSignature), "{value}");
    }
    let mut long = vec![b'9'; 1 << 20];
    long[0] = b'v';
    assert_eq!(parsed(&long), Err(Refusal::MalformedSignature));
    long.push(b' ');
    assert_eq!(parsed(&long), Err(Refusal::UnsupportedVersion));
}

// rule: SIGN-5
#[test]
fn times_have_one_spelling_and_never_wrap() {
    let good = header_at(NOW);
    let with = |t: &str| good.replace("t=1800000000", &format!("t={t}"));
    for t in [
        "",
        "abc",
        "12.5",
        "1e9",
        "-1",
        "+5",
        "00",
        "01",
        " 1",
        "1 ",
        "0x1",
        "9007199254740992",
        "18446744073709551616",
        "99999999999999999999",
        "\u{661}",
    ] {
        assert_eq!(parsed(with(t).as_bytes()), Err(Refusal::MalformedSignature), "{t}");
    }
    for t in ["0", "1", "9007199254740991"] {
        for now in [NOW, UnixMillis::new(u64::MAX)] {
            let presented = Presented::parse([with(t).as_bytes()])
                .map(|presented| presented.check(now, Window::default()).map(|_| ()));
            assert_eq!(presented, Ok(Err(Refusal::OutsideWindow)), "{t}");
        }
    }
    // Both ends of what can be told, by clocks that are there.
    for now in [UnixMillis::new(0), UnixMillis::new(MAX_TIME * 1_000)] {
        assert!(verify(header_at(now).as_bytes(), BODY, now).is_ok());
    }
    let last = header_at(UnixMillis::new(u64::MAX));
    assert!(last.contains(",t=9007199254740991,"), "{last}");
}

// rule: SIGN-6
#[test]
fn signatures_have_one_spelling() {
    let good = header_at(NOW);
    let (start, s) = good.split_once(",s=").unwrap();
    let with = |s: &str| parsed(format!("{start},s={s}").as_bytes());
    assert_eq!(with(s), Ok(()));
    // The last letter has two unused bits.
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let last = s.chars().last().unwrap();
    for (at, letter) in alphabet.char_indices() {
        let spelled = format!("{}{letter}", &s[..42]);
        assert_eq!(with(&spelled).is_ok(), at % 4 == 0, "{letter}");
        assert!(letter != last || at % 4 == 0);
    }
    let standard = s.replace('-', "+").replace('_', "/");
    for s in [
        "AAAA",
        &s[..42],
        &format!("{s}="),
        &format!("{s}A"),
        &s.repeat(2),
        &format!("+{}", &s[1..]),
        &format!("/{}", &s[1..]),
        &format!("\u{e9}{}", &s[2..]),
        "",
    ] {
        assert_eq!(with(s), Err(Refusal::MalformedSignature), "{s}");
    }
    assert!(standard == s || with(&standard).is_err());
}

// rule: SIGN-7
#[test]
fn key_ids_are_short_and_plain() {
    for text in ["a", "shop.1", "A-Z_0.9", "__proto__", "constructor", &"k".repeat(64)] {
        assert_eq!(id(text).as_str(), text);
        assert_eq!(format!("{}|{:?}", id(text), id(text)), format!("{text}|KeyId({text})"));
    }
    assert_eq!(KeyId::parse(""), Err(KeyIdError::Length { found: 0 }));
    assert_eq!(KeyId::parse(&"k".repeat(65)), Err(KeyIdError::Length { found: 65 }));
    assert_eq!(KeyId::parse(&"k".repeat(10_000)), Err(KeyIdError::Length { found: 10_000 }));
    for text in ["a:b", "a\nb", "a,b", "a b", "a/b", "a\u{e9}", "a\0"] {
        assert_eq!(KeyId::parse(text), Err(KeyIdError::Letter { at: 1 }), "{text:?}");
        let good = header_at(NOW).replace("shop.1", text);
        assert_eq!(parsed(good.as_bytes()), Err(Refusal::MalformedSignature), "{text:?}");
    }
    let long = header_at(NOW).replace("shop.1", &"k".repeat(65));
    assert_eq!(parsed(long.as_bytes()), Err(Refusal::MalformedSignature));
    assert!(id("a") < id("ab") && id("ab") < id("b"));
}

// rule: SIGN-8
#[test]
fn nonces_are_short_and_plain() {
    let mut out = [0; signed::MADE_NONCE_LENGTH];
    assert_eq!(Nonce::make([0xfb; 16], &mut out).as_str(), "-_v7-_v7-_v7-_v7-_v7-w");
    assert_eq!(Nonce::parse(&"n".repeat(128)).unwrap().as_str().len(), 128);
    assert_eq!(Nonce::parse("").unwrap_err(), NonceError::Length { found: 0 });
    assert_eq!(Nonce::parse(&"n".repeat(129)).unwrap_err(), NonceError::Length { found: 129 });
    for text in ["a,b", "a\nb", "a b", "a:b", "a=b", "a.b", "a+b", "a/b", "a\u{e9}"] {
        assert_eq!(Nonce::parse(text).unwrap_err(), NonceError::Letter { at: 1 }, "{text:?}");
        let header = header_at(NOW).replace("AAECAwQFBgcICQoLDA0ODw", text);
        assert_eq!(parsed(header.as_bytes()), Err(Refusal::MalformedSignature), "{text:?}");
    }
    assert_eq!(format!("{:?}", Nonce::parse("secret").unwrap()), "Nonce(redacted)");
}

// rule: SIGN-9
#[test]
fn outcomes_come_in_one_order() {
    let good = header_at(NOW);
    let late = UnixMillis::new(NOW.get() + 300_001);
    // Wrong in every way: the first judge tells.
    assert_eq!(verify(b"v2 k=a", b"", late).unwrap_err(), Refusal::UnsupportedVersion);
    assert_eq!(verify(b"v1 k=a", b"", late).unwrap_err(), Refusal::MalformedSignature);
    assert_eq!(verify(good.as_bytes(), b"", late).unwrap_err(), Refusal::OutsideWindow);
    assert_eq!(verify(good.as_bytes(), b"", NOW).unwrap_err(), Refusal::WrongSignature);
    let genuine = verify(good.as_bytes(), BODY, NOW).unwrap();
    assert_eq!(genuine.accept(Claimed::Replayed), Err(Refusal::Replayed));
    let genuine = verify(good.as_bytes(), BODY, NOW).unwrap();
    let accepted: Accepted = genuine.accept(Claimed::Fresh).unwrap();
    assert_eq!(accepted.key_id, id("shop.1"));
}

// rule: SIGN-10 SIGN-26
#[test]
fn the_window_has_both_edges() {
    let good = header_at(NOW);
    let at = |millis: u64| verify(good.as_bytes(), BODY, UnixMillis::new(millis)).map(|_| ());
    for (now, outcome) in [
        (NOW.get() - 300_001, Err(Refusal::OutsideWindow)),
        (NOW.get() - 300_000, Ok(())),
        (NOW.get() + 300_000, Ok(())),
        (NOW.get() + 300_001, Err(Refusal::OutsideWindow)),
        (0, Err(Refusal::OutsideWindow)),
        (u64::MAX, Err(Refusal::OutsideWindow)),
    ] {
        assert_eq!(at(now), outcome, "{now}");
    }
    let none = Window::seconds(0).unwrap();
    let with = |now| verify_of(good.as_bytes(), target(), BODY, now, now, none).map(|_| ());
    assert_eq!(with(NOW), Ok(()));
    assert_eq!(with(UnixMillis::new(NOW.get() + 1)), Err(Refusal::OutsideWindow));
    assert_eq!(Window::seconds(86_400).unwrap().as_seconds(), 86_400);
    assert_eq!(Window::seconds(86_401).unwrap_err().seconds, 86_401);
    assert_eq!(Window::default().as_seconds(), 300);
}

// rule: SIGN-11
#[test]
fn the_clock_behind_the_body_decides() {
    let good = header_at(NOW);
    let finish = |millis| {
        let window = Window::default();
        verify_of(good.as_bytes(), target(), BODY, NOW, UnixMillis::new(millis), window).map(|_| ())
    };
    assert_eq!(finish(NOW.get() + 300_000), Ok(()));
    assert_eq!(finish(NOW.get() + 400_000), Err(Refusal::OutsideWindow));
    assert_eq!(finish(NOW.get() - 300_001), Err(Refusal::OutsideWindow));
}

// rule: SIGN-12 SIGN-13
#[test]
fn a_claim_says_what_and_how_long() {
    let genuine = verify(header_at(NOW).as_bytes(), BODY, NOW).unwrap();
    let claim = genuine.claim();
    assert_eq!(claim.to_string(), "shop.1:AAECAwQFBgcICQoLDA0ODw");
    assert_eq!(claim.write_name(&mut [0; 28]).unwrap_err().needed, 29);
    assert_eq!(claim.signed_at(), NOW);
    assert_eq!(claim.expires_at().get(), NOW.get() + 300_000);
    assert_eq!(genuine.expires_at(), claim.expires_at());
    assert_eq!(claim.forget_after().get(), NOW.get() + 360_000);
    // The first 12 bytes of sha256sum's answer for the name.
    let hex: String = claim.digest().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "2f323f89b707ff606cf955d4");
    for shown in [format!("{genuine:?}"), format!("{claim:?}")] {
        assert!(shown.contains("shop.1") && !shown.contains("AAEC"), "{shown}");
    }
}

// rule: SIGN-15
#[test]
fn methods_are_signed_in_upper_case() {
    let good = header_at(NOW);
    for method in ["post", "Post", "POST"] {
        let target = Target::new(method, "shop.example", "/tools?v=1").unwrap();
        let outcome = verify_of(good.as_bytes(), target, BODY, NOW, NOW, Window::default());
        assert!(outcome.is_ok(), "{method}");
    }
    let long = "x".repeat(40);
    let mut out = [0; 300];
    let target = Target::new(&long, "a", "/").unwrap();
    let nonce = Nonce::parse("n").unwrap();
    let lines = signed::lines(NOW, id("a"), target, nonce, b"", &mut out).unwrap();
    assert_eq!(lines.lines().nth(4), Some(&*long.to_uppercase()));
}

// rule: SIGN-18
#[test]
fn no_text_forges_a_line() {
    let fault = |method: &str, host: &str, path: &str| Target::new(method, host, path).unwrap_err();
    for (method, at) in
        [("", 0), ("PO ST", 2), ("POST\n", 4), ("P\u{d3}", 1), ("a:b", 1), ("\0", 0)]
    {
        assert_eq!(fault(method, "a", "/"), TargetError { part: Part::Method, at }, "{method:?}");
    }
    let hosts = [
        ("", 0),
        ("Shop.example", 0),
        ("shop.exampl\u{e9}", 11),
        ("a b", 1),
        ("a\n", 1),
        ("a\r", 1),
        ("a/b", 1),
        ("a@b", 1),
        ("a?b", 1),
        ("a#b", 1),
        ("a%62", 1),
        ("a:", 1),
        ("a:b", 1),
        ("a:080", 1),
        ("a:65536", 1),
        ("a:99999999999", 1),
        ("a:1:2", 1),
        ("[::1", 4),
        ("[]", 1),
        ("[::G]", 3),
        ("[::A]", 3),
        ("::1", 0),
        ("[::1]x", 5),
        ("[::1]:", 5),
        ("]", 0),
        (":80", 0),
    ];
    for (host, at) in hosts {
        assert_eq!(fault("GET", host, "/"), TargetError { part: Part::Host, at }, "{host:?}");
    }
    let paths = [
        ("", 0),
        ("x", 0),
        ("?x", 0),
        ("https://a/", 0),
        ("/a b", 2),
        ("/a\nb", 2),
        ("/a\tb", 2),
        ("/\u{e9}", 1),
        ("/a#b", 2),
        ("/a\u{7f}", 2),
        ("/a?", 2),
        ("/a?b c", 4),
        ("/.", 1),
        ("/..", 1),
        ("/a/./b", 3),
        ("/a/%2E%2e", 3),
        ("/a/.%2e?x", 3),
        ("/a\\b", 2),
        ("/a\"", 2),
        ("/<", 1),
        ("/a?>", 3),
        ("/\0", 1),
    ];
    for (path, at) in paths {
        assert_eq!(fault("GET", "a", path), TargetError { part: Part::Path, at }, "{path:?}");
    }
    for host in [
        "a",
        "a:0",
        "shop.example:8443",
        "127.0.0.1:65535",
        "[::1]",
        "[2001:db8::1]:8443",
        "xn--bcher-kva.example",
        "a_b",
    ] {
        assert_eq!(Target::new("M-SEARCH", host, "/").unwrap().host(), host);
    }
    for path in [
        "/",
        "//",
        "/a//b/",
        "/%2f?%2F",
        "/...",
        "/.a",
        "/a.",
        "/a?/../x?",
        "/a?b=\\",
        "/%7e?x=+%20",
        "/a;b=(c)'!*|[]{}^`",
    ] {
        assert_eq!(Target::new("GET", "a", path).unwrap().path(), path);
    }
}

// rule: SIGN-20
#[test]
fn secrets_are_long_and_never_shown() {
    for found in [0, 1, 31] {
        assert_eq!(Key::new(&SECRET[..found]).unwrap_err().found, found);
    }
    assert!(Key::new(&SECRET[..MIN_SECRET_BYTES]).is_ok());
    // Longer than a block: HMAC hashes it first.
    assert!(Key::new(&[7; 1_000]).is_ok());
    assert_eq!(format!("{:?}", key()), "Key(redacted)");
    let nonce = Nonce::parse("n-o-n-c-e").unwrap();
    let signing = Signing::new(NOW, id("a"), &key(), target(), nonce);
    assert_eq!(
        format!("{signing:?} {:?}", Signing::new(NOW, id("a"), &key(), target(), nonce).finish()),
        "Signing(redacted) Signature(redacted)"
    );
}

// rule: SIGN-21
#[test]
fn every_byte_of_the_signature_is_looked_at() {
    let good = header_at(NOW);
    let (start, s) = good.split_once(",s=").unwrap();
    let signature = Base64UrlUnpadded::decode_vec(s).unwrap();
    assert_eq!(signature.len(), 32);
    for bit in 0..256 {
        let mut other = signature.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        let header = format!("{start},s={}", Base64UrlUnpadded::encode_string(&other));
        assert_eq!(
            verify(header.as_bytes(), BODY, NOW).unwrap_err(),
            Refusal::WrongSignature,
            "bit {bit}"
        );
    }
}

// rule: SIGN-22
#[test]
fn refusals_have_the_contracts_words() {
    let all = [
        (Refusal::MissingSignature, "missing_signature", 401),
        (Refusal::MalformedSignature, "malformed_signature", 401),
        (Refusal::UnsupportedVersion, "unsupported_version", 401),
        (Refusal::OutsideWindow, "outside_window", 401),
        (Refusal::UnknownKey, "unknown_key", 401),
        (Refusal::WrongSignature, "wrong_signature", 401),
        (Refusal::Replayed, "replayed", 401),
        (Refusal::KeysUnavailable, "keys_unavailable", 503),
        (Refusal::NoncesUnavailable, "nonces_unavailable", 503),
    ];
    for (refusal, word, status) in all {
        assert_eq!((refusal.as_str(), refusal.status()), (word, status));
        assert!(refusal.to_string().starts_with(word));
    }
}

// rule: SIGN-25
#[test]
fn nonces_without_a_random_source() {
    let (mut one, mut other) = ([0; signed::MADE_NONCE_LENGTH], [0; signed::MADE_NONCE_LENGTH]);
    let nonce = Nonce::counted(&key(), 7, NOW, 3, &mut one).unwrap();
    // Computed with Python's hmac.
    assert_eq!(nonce.as_str(), "5bcCui4sjxldg40baV8SEg");
    for (boot, reset, count) in [(8, NOW, 3), (7, UnixMillis::new(NOW.get() + 1), 3), (7, NOW, 4)] {
        let next = Nonce::counted(&key(), boot, reset, count, &mut other).unwrap();
        assert_ne!(next.as_str(), nonce.as_str());
    }
    let unset = Nonce::counted(&key(), 7, UnixMillis::new(0), 3, &mut other);
    assert_eq!(unset.unwrap_err(), ClockUnset);
}

#[test]
fn a_small_buffer_says_what_is_needed() {
    let good = header_at(NOW);
    let nonce = Nonce::parse("AAECAwQFBgcICQoLDA0ODw").unwrap();
    let signing = || Signing::new(NOW, id("shop.1"), &key(), target(), nonce);
    let mut signing = signing();
    signing.feed(BODY);
    let signature = signing.finish();
    let mut out = [0xee; MAX_HEADER_LENGTH];
    for room in 0..good.len() {
        let error = signature.write(&mut out[..room]).unwrap_err();
        assert_eq!(error.needed, good.len());
    }
    assert_eq!(out, [0xee; MAX_HEADER_LENGTH]);
    assert_eq!(signature.write(&mut out[..good.len()]).unwrap(), good);
    // The largest header of all fits the constant, and nothing smaller.
    let (id, nonce) = (id(&"k".repeat(64)), "n".repeat(128));
    let nonce = Nonce::parse(&nonce).unwrap();
    let last = UnixMillis::new(u64::MAX);
    let longest = signed::sign(last, id, &key(), target(), nonce, b"", &mut out).unwrap();
    assert_eq!(longest.len(), MAX_HEADER_LENGTH);
    assert_eq!(parsed(longest.as_bytes()), Ok(()));
    let needed = signed::lines(NOW, id, target(), nonce, b"", &mut [0; 9]).unwrap_err().needed;
    assert_eq!(signed::lines(NOW, id, target(), nonce, b"", &mut [0; 400]).unwrap().len(), needed);
}

/// Whatever the lines are longer than, the MAC sees all of them.
#[test]
fn long_paths_are_signed_whole() {
    for len in [1, 100, 150, 151, 152, 255, 256, 257, 300, 8_000] {
        let path = format!("/{}", "p".repeat(len));
        let sign = |path: &str| {
            let target = Target::new("GET", "a", path).unwrap();
            let mut out = [0; MAX_HEADER_LENGTH];
            let nonce = Nonce::parse("n").unwrap();
            signed::sign(NOW, id("a"), &key(), target, nonce, b"", &mut out).unwrap().to_owned()
        };
        let lines = {
            let target = Target::new("GET", "a", &path).unwrap();
            let mut out = vec![0; 9_000];
            let nonce = Nonce::parse("n").unwrap();
            signed::lines(NOW, id("a"), target, nonce, b"", &mut out).unwrap().to_owned()
        };
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(SECRET).unwrap();
        mac.update(lines.as_bytes());
        let s = Base64UrlUnpadded::encode_string(&mac.finalize().into_bytes());
        assert_eq!(sign(&path).split(",s=").nth(1), Some(&*s), "{len}");
        let other = format!("{}q", &path[..len]);
        assert_ne!(sign(&path), sign(&other));
    }
}

proptest! {
    // rule: SIGN-1
    #[test]
    fn one_changed_byte_is_never_accepted(at in any::<prop::sample::Index>(), byte: u8, cut: bool) {
        let good = header_at(NOW);
        let mut bytes = good.clone().into_bytes();
        let at = at.index(bytes.len());
        if cut {
            bytes.remove(at);
        } else {
            bytes[at] = byte;
        }
        let outcome = Presented::parse([&bytes[..]])
            .and_then(|presented| presented.check(NOW, Window::default()))
            .and_then(|timely| {
                let mut verification = timely.with(target(), &key());
                verification.feed(BODY);
                verification.finish(NOW)
            });
        prop_assert_eq!(outcome.is_ok(), bytes == good.as_bytes());
    }

    #[test]
    fn any_bytes_are_judged(bytes: Vec<u8>, tail in "v[0-9]{0,3} ?(k=[a-z]{0,3},t=[0-9]{0,20},n=[a-z]{0,3},s=[A-Za-z0-9_-]{40,44})?") {
        let _ = parsed(&bytes);
        let _ = parsed(tail.as_bytes());
    }

    // rule: SIGN-19
    #[test]
    fn any_cut_of_the_body_is_the_same_request(
        body in prop::collection::vec(any::<u8>(), 0..600),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        flip in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let nonce = Nonce::parse("n").unwrap();
        let mut out = [0; MAX_HEADER_LENGTH];
        let header = signed::sign(NOW, id("shop.1"), &key(), target(), nonce, &body, &mut out).unwrap();
        let mut received = body.clone();
        let flipped = flip.filter(|_| !body.is_empty());
        if let Some(at) = flipped {
            received[at.index(body.len())] ^= 1;
        }
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        ends.push(body.len());
        ends.sort_unstable();
        let timely = Presented::parse([header.as_bytes()]).unwrap().check(NOW, Window::default()).unwrap();
        let mut verification = timely.with(target(), &key());
        let mut start = 0;
        for end in ends {
            verification.feed(&received[start..end]);
            start = end;
        }
        prop_assert_eq!(verification.finish(NOW).is_ok(), flipped.is_none());
    }

    #[test]
    fn no_other_line_verifies(line in 0_usize..4, other in "[a-z0-9]{1,8}") {
        let good = header_at(NOW);
        let (method, host, path) = ("POST", "shop.example", "/tools?v=1");
        let path_other = format!("/{other}");
        let target = match line {
            0 => Target::new(&other, host, path),
            1 => Target::new(method, &other, path),
            2 => Target::new(method, host, &path_other),
            _ => Target::new(method, host, path),
        }.unwrap();
        let same = target == self::target();
        let outcome = verify_of(good.as_bytes(), target, BODY, NOW, NOW, Window::default());
        prop_assert_eq!(outcome.is_ok(), same);
    }
}
