//! `triwire cp` against a gateway.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use support::{Gateway, OURS, feed, stderr, stdout, triwire};

fn command(gateway: &Gateway, from: &str, to: &str) -> Command {
    let mut command = triwire();
    command.args(["cp", "--url", &gateway.url(), "--state"]).arg(gateway.state());
    command.args([from, to]);
    command
}

fn cp(gateway: &Gateway, from: &str, to: &str) -> Output {
    command(gateway, from, to).output().unwrap()
}

fn good(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    assert_eq!((stdout(output), stderr(output)), (String::new(), String::new()));
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn files_and_folders_go_in_and_files_come_out() {
    let (gateway, here) = (Gateway::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| here.path().join(name);
    let root = gateway.state().join("sandboxes/local");
    let big: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    fs::write(at("big"), &big).unwrap();
    fs::create_dir_all(at("src/deep")).unwrap();
    fs::write(at("src/deep/tool"), "#!").unwrap();
    fs::set_permissions(at("src/deep/tool"), fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::symlink("deep/tool", at("src/link")).unwrap();

    good(&cp(&gateway, &text(&at("big")), "local:/in/"));
    assert!(fs::read(root.join("in/big")).unwrap() == big);
    good(&cp(&gateway, &text(&at("big")), "local:/in/other"));
    assert!(fs::read(root.join("in/other")).unwrap() == big);
    good(&cp(&gateway, &text(&at("src")), "local:/"));
    let tool = fs::metadata(root.join("src/deep/tool")).unwrap();
    assert_eq!(tool.permissions().mode() & 0o7777, 0o750);
    assert_eq!(fs::read_link(root.join("src/link")).unwrap(), Path::new("deep/tool"));

    good(&cp(&gateway, "local:/in/big", &text(&at("back"))));
    assert!(fs::read(at("back")).unwrap() == big);
    good(&cp(&gateway, "local:/src/link", &text(here.path())));
    assert_eq!(fs::read_to_string(at("link")).unwrap(), "#!");

    good(&feed(&mut command(&gateway, "-", "local:/in/date"), b"today"));
    let output = cp(&gateway, "local:/in/date", "-");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "today"));
}

#[test]
fn what_is_not_copied_is_named() {
    let (gateway, here) = (Gateway::start(), tempfile::tempdir().unwrap());
    let at = |name: &str| text(&here.path().join(name));
    fs::write(at("file"), "x").unwrap();
    fs::create_dir(at("links")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", at("links/out")).unwrap();
    fs::create_dir(gateway.state().join("sandboxes/local/folder")).unwrap();
    for (from, to, word) in [
        (at("none"), "local:/".to_owned(), "none cannot be read"),
        (at("file"), "other:/".to_owned(), "there is no such sandbox"),
        (at("file"), at("copy"), "one end is in a sandbox"),
        ("local:/a".to_owned(), "local:/b".to_owned(), "one end is in a sandbox"),
        ("local:/none".to_owned(), at("copy"), "there is no such file"),
        ("local:/folder".to_owned(), at("copy"), "that is a folder"),
        ("local:/../x".to_owned(), at("copy"), "leads outside"),
        (at("links"), "local:/".to_owned(), "links/out: "),
        (at("file"), "local:/folder".to_owned(), "folder: "),
        ("/dev/null".to_owned(), "local:/".to_owned(), "neither a file nor a folder"),
        (at("file"), "local:/../x".to_owned(), "leads outside"),
    ] {
        let output = cp(&gateway, &from, &to);
        assert_eq!(output.status.code(), OURS, "{from} {to}");
        assert!(stderr(&output).contains(word), "{from} {to}: {}", stderr(&output));
    }
    let output = feed(&mut command(&gateway, "-", "local:/folder/"), b"x");
    assert!(stderr(&output).contains("name the file"), "{}", stderr(&output));
    // What could not be had leaves nothing here, and what was here as it was.
    assert!(!here.path().join("copy").exists());
    let output = cp(&gateway, "local:/none", &at("file"));
    assert_eq!(output.status.code(), OURS);
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "x");
}
