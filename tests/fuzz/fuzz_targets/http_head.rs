#![no_main]
//! A head read as it grows is the head read whole; what is admitted is clean.

use libfuzzer_sys::fuzz_target;
use triwire::exec::head::{self, Access, HeadScan, Peer, Route, is_sandbox_id};

fuzz_target!(|case: (u8, &[u8])| {
    let (size, data) = case;
    request(usize::from(size).max(1), data);
    response(usize::from(size).max(1), data);
});

/// The windows that a reader of pieces of `size` bytes sees; the last one is full.
fn windows(size: usize, data: &[u8]) -> impl Iterator<Item = (&[u8], bool)> {
    (size..data.len()).step_by(size).map(|end| (&data[..end], false)).chain([(data, true)])
}

fn request(size: usize, data: &[u8]) {
    let summary = |parsed: &head::ParsedRequest<'_>| {
        format!("{} {} {:?} {}", parsed.method, parsed.target, parsed.framing, parsed.len)
    };
    let whole = head::request(data, true).map(|parsed| parsed.as_ref().map(summary));
    let mut scan = HeadScan::new();
    let grown = windows(size, data)
        .find_map(|(window, is_full)| scan.request(window, is_full).transpose())
        .transpose()
        .map(|parsed| parsed.as_ref().map(summary));
    assert_eq!(grown, whole);

    let Ok(Some(parsed)) = head::request(data, true) else { return };
    assert!(parsed.len <= data.len());
    let open = Peer { port: 80, loopback: true, hosts: &[] as &[&str], access: Access::Open };
    match parsed.admit(&open, |id| id != "absent") {
        Ok(Route::Health) => {}
        Ok(
            Route::OneShot { sandbox } | Route::Hijack { sandbox } | Route::Socket { sandbox, .. },
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

fn response(size: usize, data: &[u8]) {
    let summary = |parsed: &head::ResponseHead<'_>| {
        format!("{} {} {:?}", parsed.status, parsed.len, parsed.framing())
    };
    let whole = head::response(data, true).map(|parsed| parsed.as_ref().map(summary));
    let mut scan = HeadScan::new();
    let grown = windows(size, data)
        .find_map(|(window, is_full)| scan.response(window, is_full).transpose())
        .transpose()
        .map(|parsed| parsed.as_ref().map(summary));
    assert_eq!(grown, whole);
}
