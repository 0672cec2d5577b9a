//! `exec::head`: both ends.

use triwire::exec::head::{
    self, Access, Answer, ErrorRecord, HeadScan, Header, KeyDigest, Mode, ParsedRequest, Peer,
    Refusal, RequestHead, ResponseHead,
};
use triwire::exec::request::ExecRequest;

use crate::json::words;
use crate::{any, bytes, done, judged, shown, text};

pub(crate) fn run() {
    client();
    server();
    done(head::is_sandbox_id(text()));
}

fn client() {
    for mode in [Mode::OneShot, Mode::Hijack, Mode::Socket { key: text() }] {
        let head = RequestHead {
            mode,
            sandbox: text(),
            host: text(),
            bearer: any(Some(text())),
            content_length: any(Some(1)),
            path: text(),
        };
        if let Err(error) = head.write(any(&mut [0; 64])) {
            done(error.code());
            shown(error);
        }
    }
    judged(head::response(bytes(), any(false))).flatten().map(answered);
    let mut scan = HeadScan::new();
    while let Some(None) = judged(scan.response(bytes(), any(false))) {}
    if let Some(record) = judged(ErrorRecord::parse(bytes())) {
        words(record.error);
        words(record.code);
    }
}

fn answered(head: ResponseHead<'_>) {
    done((head.status, head.len, head.header(text())));
    done(judged(head.framing()));
    done(judged(head.error_body()));
    done(judged(head.expect_stream()));
    done(judged(head.expect_hijack()));
    done(judged(head.expect_upgrade(text())));
    for header in head.headers {
        done((header.is(text()), header.value));
    }
}

fn server() {
    request(head::request(bytes(), any(false)));
    let mut scan = HeadScan::new();
    while let Ok(None) = scan.request(bytes(), any(false)) {}

    let keys = [KeyDigest::of(bytes())];
    let peer = peer(&keys);
    let headers = any(&[Header { name: "", value: b"" }][..]).iter().copied();
    if let Err(refusal) = head::admit(text(), text(), headers, &peer, |_| any(true)) {
        refused(refusal);
    }
    let headers = any(&[Header { name: "", value: b"" }][..]).iter().copied();
    if let Err(refusal) = head::admit_guest(text(), text(), headers, peer.access) {
        refused(refusal);
    }
    let headers = any(&[Header { name: "", value: b"" }][..]).iter().copied();
    if let Some(Err(refusal)) = head::admit_page(text(), text(), text(), headers, &peer) {
        refused(refusal);
    }
    for refusal in [
        Refusal::unknown_sandbox(),
        Refusal::too_large(any(1)),
        Refusal::head_too_large(),
        Refusal::tls_missing(),
        Refusal::internal(),
        Refusal::hijack_unavailable(),
        Refusal::unreachable(),
    ] {
        refused(refusal);
    }
    for answer in [
        Answer::Health,
        Answer::Stream,
        Answer::Chunked,
        Answer::Hijack,
        Answer::Socket { accept: text() },
    ] {
        done(judged(answer.write(any(&mut [0; 64]))));
    }
}

fn peer<'p>(keys: &'p [KeyDigest]) -> Peer<'p> {
    Peer {
        port: any(1),
        loopback: any(false),
        hosts: any(&["", ""]),
        access: any(Access::Keys(keys)),
    }
}

fn request(parsed: Result<Option<ParsedRequest<'_>>, Refusal>) {
    let parsed = match parsed {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return,
        Err(refusal) => return refused(refusal),
    };
    done((parsed.method, parsed.target, parsed.len, parsed.wants_continue()));
    let keys = [KeyDigest::of(bytes())];
    match parsed.admit(&peer(&keys), |_| any(true)) {
        Ok(route) => done(route),
        Err(refusal) => refused(refusal),
    }
    let mut input = bytes();
    match parsed.body().feed(&mut input) {
        Ok(part) => done(part),
        Err(error) => refused(error.into()),
    }
    if let Err(error) = ExecRequest::parse(bytes()) {
        refused(error.into());
    }
}

fn refused(refusal: Refusal) {
    done((refusal.status, refusal.code, refusal.headers()));
    done(judged(refusal.write(refusal.why, any(&mut [0; 64]))));
    shown(refusal.body(text()));
    shown(refusal);
}
