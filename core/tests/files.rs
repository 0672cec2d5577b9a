//! The paths and records of file transfer.
#![allow(clippy::unwrap_used)]

use triwire::OutTooSmall;
use triwire::exec::files::{FilesPutResult, PathFault, path_of};
use triwire::exec::head::{Access, Header, Peer, Route, Why, admit};
use triwire::tar::NameFault;

#[test]
fn a_path_is_decoded_absolute_and_clean() {
    // rule: FILE-10
    let mut room = [0; 16];
    for (query, path) in [
        ("path=/", "/"),
        ("path=/a", "/a"),
        ("a=1&path=%2fa%20b+c%2B", "/a b c+"),
        ("path=/a/./b//", "/a/./b//"),
        ("path=//a", "//a"),
        ("path=/a&path=/b", "/a"),
        ("path=/a..b/..c", "/a..b/..c"),
        ("path=/%C5%BC", "/ż"),
    ] {
        assert_eq!(path_of(query, &mut room), Ok(path.as_bytes()), "{query}");
    }
    for (query, fault) in [
        ("", PathFault::Missing),
        ("xpath=/a", PathFault::Missing),
        ("path", PathFault::Missing),
        ("path=", PathFault::Missing),
        ("path=a", PathFault::NotAbsolute),
        ("path=./a", PathFault::NotAbsolute),
        ("path=/%", PathFault::Encoding),
        ("path=/%2", PathFault::Encoding),
        ("path=/%zz", PathFault::Encoding),
        ("path=/%+2", PathFault::Encoding),
        ("path=/..", PathFault::Name(NameFault::Outside)),
        ("path=/a/%2e%2E/b", PathFault::Name(NameFault::Outside)),
        ("path=/a%00", PathFault::Name(NameFault::Nul)),
        ("path=/0123456789abcdef", PathFault::TooLong { room: 16 }),
    ] {
        assert_eq!(path_of(query, &mut room), Err(fault), "{query}");
    }
}

#[test]
fn the_record_is_what_a_push_stored() {
    // rule: FILE-12
    let result = FilesPutResult { files: 3, bytes: u64::MAX };
    let mut out = [0; 64];
    let text = result.write(&mut out).unwrap();
    assert_eq!(text, br#"{"files":3,"bytes":18446744073709551615}"#);
    assert_eq!(FilesPutResult::parse(text), Ok(result));
    assert_eq!(result.write(&mut [0; 8]), Err(OutTooSmall { needed: 40 }));
    let more = br#"{"later":[1],"bytes":5}"#;
    assert_eq!(FilesPutResult::parse(more), Ok(FilesPutResult { files: 0, bytes: 5 }));
    for other in [
        r#"{"files":1,"files":1}"#,
        r#"{"files":-1}"#,
        r#"{"files":"1"}"#,
        r#"{"bytes":1.5}"#,
        "[]",
        "",
        r#"{"files":1} x"#,
    ] {
        assert!(FilesPutResult::parse(other.as_bytes()).is_err(), "{other}");
    }
}

#[test]
fn transfers_have_a_route() {
    // rule: FILE-11, FILE-13
    let peer: Peer<'_> = Peer { port: 80, loopback: true, hosts: &[], access: Access::Open };
    let headers = [
        Header { name: "Host", value: b"localhost" },
        Header { name: "Content-Type", value: b"application/x-tar" },
    ];
    let ask = |method, target| {
        admit(method, target, headers.into_iter(), &peer, |sandbox| sandbox == "a")
    };
    let query = "path=/x";
    let push = ask("POST", "/sandboxes/a/files?path=/x");
    assert_eq!(push, Ok(Route::Push { sandbox: "a", query }));
    let pull = ask("GET", "/sandboxes/a/files?path=/x");
    assert_eq!(pull, Ok(Route::Pull { sandbox: "a", query }));
    for (method, target, status) in [
        ("PUT", "/sandboxes/a/files?path=/x", 405),
        ("GET", "/sandboxes/b/files", 404),
        ("GET", "/sandboxes/a/files/x", 404),
        ("GET", "/sandboxes/a/file", 404),
    ] {
        assert_eq!(ask(method, target).unwrap_err().status, status, "{method} {target}");
    }
    for (why, status, code) in [
        (Why::Path(PathFault::Missing), 400, "bad_path"),
        (Why::Archive, 400, "archive_refused"),
        (Why::TransferTooLarge, 413, "transfer_too_large"),
        (Why::UnknownFile, 404, "file_not_found"),
        (Why::NotAFile, 400, "not_a_file"),
        (Why::FilesUnavailable, 501, "files_unavailable"),
    ] {
        let refusal = triwire::exec::head::Refusal::from(why);
        assert_eq!((refusal.status, refusal.code), (status, code));
    }
}
