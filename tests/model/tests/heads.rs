//! Heads: what one end writes, the other reads, in any cut; nothing breaks out of its place.

use proptest::collection::vec;
use proptest::prelude::*;
use triwire::exec::body::Framing;
use triwire::exec::head::{
    self, Access, Answer, ErrorRecord, HeadError, Header, KeyDigest, Mode, Part, Peer, Refusal,
    RequestHead, Route,
};
use triwire_model::heads::{check_request, check_response};

const SOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

fn mode() -> impl Strategy<Value = Mode<'static>> {
    proptest::sample::select(vec![Mode::OneShot, Mode::Hijack, Mode::Socket { key: SOCKET_KEY }])
}

fn host() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just("127.0.0.1".to_owned()),
        Just("localhost".to_owned()),
        Just("[::1]".to_owned()),
        "[a-z]{1,9}(\\.[a-z0-9]{1,9}){0,3}",
    ];
    (name, proptest::option::of(1_u16..)).prop_map(|(name, port)| match port {
        Some(port) => format!("{name}:{port}"),
        None => name,
    })
}

/// Text that may hold what heads are delimited by.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9_:/?&=.-]{0,20}",
        "[a-z]{0,4}[\r\n\t :/@\\\\\0#]{1,3}[a-zA-Z: ]{0,8}",
        any::<String>(),
    ]
}

/// The lines of a head, without its first, as name and value.
fn lines(head: &[u8]) -> Vec<(String, String)> {
    let head = std::str::from_utf8(head).unwrap().strip_suffix("\r\n\r\n").unwrap();
    let lines = head.split("\r\n").skip(1);
    lines.map(|line| line.split_once(": ").unwrap()).map(|(n, v)| (n.into(), v.into())).collect()
}

fn owned<'h>(headers: impl Iterator<Item = Header<'h>>) -> Vec<(String, String)> {
    let value = |header: Header<'_>| String::from_utf8(header.value.to_vec()).unwrap();
    headers.map(|header| (header.name.to_owned(), value(header))).collect()
}

proptest! {
    /// A clean head reads back as it was meant, and is admitted to its route.
    // rule: EXEC-37
    #[test]
    fn requests_come_back(
        mode in mode(),
        sandbox in "[A-Za-z0-9_-]{1,64}",
        host in host(),
        bearer in proptest::option::of("[!-~]{1,40}"),
        content_length in proptest::option::of(0_usize..1 << 20),
        path in prop_oneof![Just(String::new()), "/[a-z]{1,6}/sandboxes/x/exec(\\?[a-z]=[0-9])?"],
        rest in vec(any::<u8>(), 0..20),
        size in 1_usize..40,
    ) {
        let head = RequestHead {
            mode,
            sandbox: &sandbox,
            host: &host,
            bearer: bearer.as_deref(),
            content_length,
            path: &path,
        };
        let mut out = vec![0; 4096];
        let wire = head.write(&mut out).unwrap().to_vec();
        let mut exact = vec![0; wire.len()];
        assert_eq!(head.write(&mut exact[1..]), Err(HeadError::OutTooSmall { needed: wire.len() }));
        assert_eq!(head.write(&mut exact), Ok(&wire[..]));

        let window = [&wire[..], &rest].concat();
        check_request(size, &window);
        let parsed = head::request(&window, false).unwrap().unwrap();
        assert_eq!(parsed.len, wire.len());
        let is_socket = matches!(mode, Mode::Socket { .. });
        assert_eq!(parsed.method, if is_socket { "GET" } else { "POST" });
        let framing = match content_length {
            _ if is_socket => Framing::Length(0),
            Some(length) => Framing::Length(length as u64),
            None => Framing::Chunked,
        };
        assert_eq!(parsed.framing, framing);
        assert_eq!(owned(parsed.headers), lines(&wire));

        let base = match path.as_str() {
            "" => format!("/sandboxes/{sandbox}/exec"),
            path => path.to_owned(),
        };
        let target = match (mode, base.contains('?')) {
            (Mode::Hijack, true) => format!("{base}&stdin=1"),
            (Mode::Hijack, false) => format!("{base}?stdin=1"),
            _ => base,
        };
        assert_eq!(parsed.target, target);
        if path.is_empty() {
            let key = bearer.as_deref().unwrap_or("x");
            let keys = [KeyDigest::of(b"other"), KeyDigest::of(key.as_bytes())];
            let access = if bearer.is_some() { Access::Keys(&keys) } else { Access::Open };
            let peer = Peer { port: 1, loopback: false, hosts: &[] as &[&str], access };
            let route = parsed.admit(&peer, |id| id == sandbox).unwrap();
            assert_eq!(route, match mode {
                Mode::OneShot => Route::OneShot { sandbox: &sandbox },
                Mode::Hijack => Route::Hijack { sandbox: &sandbox },
                Mode::Socket { key } => Route::Socket { sandbox: &sandbox, key },
            });
            // rule: EXEC-32
            let wrong = Peer { access: Access::Keys(&keys[..1]), ..peer };
            assert_eq!(parsed.admit(&wrong, |_| true).unwrap_err().status, 401);
        }
    }

    /// A part that would break out is refused before a byte is written; any other stands in its
    /// place, whole, and adds no line.
    // rule: EXEC-38
    #[test]
    fn nothing_breaks_out(
        mode in mode(),
        which in 0..5,
        text in hostile(),
    ) {
        let mut head = RequestHead {
            mode,
            sandbox: "local",
            host: "h:1",
            bearer: Some("key"),
            content_length: Some(2),
            path: "",
        };
        let clean = head.write(&mut vec![0; 1024]).unwrap().to_vec();
        let part = match which {
            0 => { head.sandbox = &text; Part::Sandbox }
            1 => { head.host = &text; Part::Host }
            2 => { head.bearer = Some(&text); Part::Bearer }
            3 => { head.path = &text; Part::Path }
            _ => { head.mode = Mode::Socket { key: &text }; Part::SocketKey }
        };
        let mut out = vec![0xaa; 8192];
        match head.write(&mut out) {
            Err(error) => {
                assert_eq!(error, HeadError::Unclean(part));
                assert!(out.iter().all(|byte| *byte == 0xaa));
            }
            Ok(wire) => {
                let wire = wire.to_vec();
                let parsed = head::request(&wire, false).unwrap().unwrap();
                assert_eq!(parsed.len, wire.len());
                if which != 4 {
                    assert_eq!(lines(&wire).len(), lines(&clean).len());
                }
                let value = |wanted: &str| {
                    lines(&wire).into_iter().find(|(name, _)| name == wanted).unwrap().1
                };
                match part {
                    Part::Sandbox => {
                        assert!(parsed.target.starts_with(&format!("/sandboxes/{text}/exec")));
                    }
                    Part::Host => assert_eq!(value("Host"), text),
                    Part::Bearer => assert_eq!(value("Authorization"), format!("Bearer {text}")),
                    Part::Path => assert!(parsed.target.starts_with(&text)),
                    Part::SocketKey => assert_eq!(value("Sec-WebSocket-Key"), text),
                }
            }
        }
    }

    /// A response reads back, behind interim ones, in any cut.
    #[test]
    fn responses_come_back(
        interim in 0_usize..3,
        status in 200_u16..600,
        headers in vec(("[A-Za-z][A-Za-z0-9-]{0,12}", "[!-~]([ -~]{0,20}[!-~])?"), 0..8),
        rest in vec(any::<u8>(), 0..20),
        size in 1_usize..40,
    ) {
        let mut wire = head::CONTINUE.repeat(interim);
        wire.push_str(&format!("HTTP/1.1 {status} Words\r\n"));
        for (name, value) in &headers {
            wire.push_str(&format!("{name}: {value}\r\n"));
        }
        wire.push_str("\r\n");
        let window = [wire.as_bytes(), &rest].concat();
        check_response(size, &window);
        let parsed = head::response(&window, false).unwrap().unwrap();
        assert_eq!((parsed.status, parsed.len), (status, wire.len()));
        assert_eq!(owned(parsed.headers), headers);
        for end in 0..wire.len() {
            assert!(head::response(&window[..end], false).unwrap().is_none());
        }
    }

    /// An error's words come back from its body, whatever they are.
    // rule: EXEC-35
    #[test]
    fn refusals_come_back(detail in any::<String>(), which in 0..4, size in 1_usize..40) {
        let refusal = match which {
            0 => Refusal::unknown_sandbox(),
            1 => Refusal::too_large(7),
            2 => Refusal::unreachable(),
            _ => Refusal::internal(),
        };
        let mut out = vec![0; 2048 + detail.len() * 6];
        let wire = refusal.write(&detail, &mut out).unwrap().to_vec();
        check_response(size, &wire);
        let parsed = head::response(&wire, false).unwrap().unwrap();
        assert_eq!(parsed.status, refusal.status);
        let body = &wire[parsed.len..];
        assert_eq!(parsed.framing(), Ok(Framing::Length(body.len() as u64)));
        assert!(body.ends_with(b"}\n"));
        let record = ErrorRecord::parse(body).unwrap();
        assert_eq!(record.error.to_string(), detail);
        assert_eq!(record.code, refusal.code);
    }
}

/// Each answer is what its client expects, cut anywhere.
#[test]
fn answers_are_expected() {
    let answers = [
        Answer::Health,
        Answer::Stream,
        Answer::Chunked,
        Answer::Hijack,
        Answer::Socket { accept: "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" },
    ];
    for answer in answers {
        let mut out = [0; 256];
        let wire = answer.write(&mut out).unwrap().to_vec();
        for size in 1..wire.len() {
            check_response(size, &wire);
        }
        let parsed = head::response(&wire, false).unwrap().unwrap();
        match answer {
            Answer::Health => assert_eq!(&wire[parsed.len..], head::HEALTH_BODY.as_bytes()),
            Answer::Stream => assert_eq!(parsed.expect_stream(), Ok(Framing::ToEnd)),
            Answer::Chunked => assert_eq!(parsed.expect_stream(), Ok(Framing::Chunked)),
            Answer::Hijack => assert_eq!(parsed.expect_hijack(), Ok(())),
            Answer::Socket { accept } => {
                assert_eq!(parsed.expect_upgrade(accept), Ok(()));
                assert_eq!(parsed.expect_upgrade("other"), Err(HeadError::WrongAccept));
            }
        }
        assert_eq!(answer.write(&mut [0; 10]).unwrap_err().needed, wire.len());
    }
}
