//! Heads of HTTP: what is read as the window grows is what is read whole, and what is admitted is
//! clean.

use triwire::exec::head::{self, Access, HeadScan, Peer, Route, is_sandbox_id};

/// The windows that a reader of pieces of `size` bytes sees; the last one is full.
fn windows(size: usize, wire: &[u8]) -> impl Iterator<Item = (&[u8], bool)> {
    (size..wire.len()).step_by(size).map(|end| (&wire[..end], false)).chain([(wire, true)])
}

/// Checks a request's head, given `size` bytes at a time.
pub fn check_request(size: usize, wire: &[u8]) {
    let summary = |parsed: &head::ParsedRequest<'_>| {
        format!("{} {} {:?} {}", parsed.method, parsed.target, parsed.framing, parsed.len)
    };
    let whole = head::request(wire, true).map(|parsed| parsed.as_ref().map(summary));
    let mut scan = HeadScan::new();
    let grown = windows(size, wire)
        .find_map(|(window, is_full)| scan.request(window, is_full).transpose())
        .transpose()
        .map(|parsed| parsed.as_ref().map(summary));
    assert_eq!(grown, whole);

    let Ok(Some(parsed)) = head::request(wire, true) else { return };
    assert!(parsed.len <= wire.len());
    let open = Peer { port: 80, loopback: true, hosts: &[] as &[&str], access: Access::Open };
    match parsed.admit(&open, |id| id != "absent") {
        Ok(Route::Health) => {}
        Ok(
            Route::OneShot { sandbox }
            | Route::Hijack { sandbox }
            | Route::Socket { sandbox, .. }
            | Route::Push { sandbox, .. }
            | Route::Pull { sandbox, .. },
        ) => {
            assert!(is_sandbox_id(sandbox) && sandbox != "absent");
        }
        Err(refusal) => {
            assert!((400..600).contains(&refusal.status));
            assert!(!refusal.why.to_string().contains('\n'));
        }
    }
    // rule: EXEC-32
    let nobody = Peer { access: Access::Keys(&[]), ..open };
    assert!(matches!(parsed.admit(&nobody, |_| true), Err(_) | Ok(Route::Health)));
}

/// Checks a response's head, given `size` bytes at a time.
pub fn check_response(size: usize, wire: &[u8]) {
    let summary = |parsed: &head::ResponseHead<'_>| {
        format!("{} {} {:?}", parsed.status, parsed.len, parsed.framing())
    };
    let whole = head::response(wire, true).map(|parsed| parsed.as_ref().map(summary));
    let mut scan = HeadScan::new();
    let grown = windows(size, wire)
        .find_map(|(window, is_full)| scan.response(window, is_full).transpose())
        .transpose()
        .map(|parsed| parsed.as_ref().map(summary));
    assert_eq!(grown, whole);
}
