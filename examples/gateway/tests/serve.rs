//! `triwire serve`: first start, keys, config, addresses, the end.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use support::{Gateway, OURS, stderr, stdout, triwire};

#[test]
fn the_first_start_makes_a_key_and_shows_it_once() {
    let gateway = Gateway::start();
    let key = gateway.state().join("key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&key).unwrap();
    let secret = text.lines().last().unwrap();
    assert!(gateway.said.contains(secret));
    assert!(gateway.said.contains("triwire exec --url"));

    // The key by variable, without the state folder.
    let output = triwire()
        .args(["exec", "--url", &gateway.url(), "local", "--", "env"])
        .env("TRIWIRE_KEY", secret)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stdout(&output).contains(secret), "a key reached a command");

    let mut again = triwire();
    again.args(["serve", "--listen", "127.0.0.1:0", "--state"]).arg(gateway.state());
    let again = Gateway::of(&mut again);
    assert!(!again.said.contains(secret));
}

// rule: EXEC-32
#[test]
fn removing_the_last_key_admits_nobody() {
    let state = tempfile::tempdir().unwrap();
    let mut child = triwire()
        .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--state"])
        .arg(state.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = said
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned))
        .unwrap();
    let url = format!("http://{address}");
    let saved = state.path().join("saved");
    fs::copy(state.path().join("key"), &saved).unwrap();
    let exec = || {
        let mut command = triwire();
        command.args(["exec", "--url", &url, "--key-file"]).arg(&saved);
        command.args(["local", "--", "true"]).output().unwrap()
    };
    assert_eq!(exec().status.code(), Some(0));

    let mut wait_for =
        |word: &str| log.by_ref().map(Result::unwrap).find(|line| line.contains(word)).expect(word);
    fs::write(state.path().join("key"), "# none\n").unwrap();
    let line = wait_for("no key is left");
    assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok(), "{line}");
    let refused = exec();
    assert_eq!(refused.status.code(), OURS);
    let said = stderr(&refused);
    assert!(said.contains("401") && said.contains(&format!("{}", saved.display())), "{said}");
    let keyless = |key: Option<&str>| {
        let mut command = triwire();
        command.args(["exec", "--url", &url, "--state", "/no/such/folder", "local", "--", "true"]);
        stderr(&command.envs(key.map(|key| ("TRIWIRE_KEY", key))).output().unwrap())
    };
    assert!(keyless(None).contains("no key was sent: name its file with --key-file"));
    assert!(keyless(Some("0123456789abcdef")).contains("the key of TRIWIRE_KEY was sent"));
    assert!(keyless(Some("# x\n0123456789abcdef")).contains("holds more than a key"));

    fs::copy(&saved, state.path().join("key")).unwrap();
    wait_for("key files read again");
    assert_eq!(exec().status.code(), Some(0));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_config_names_sandboxes_and_keys() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("who"), name).unwrap();
    }
    fs::write(folder.path().join("keys"), "# laptop\n0123456789abcdef\n").unwrap();
    let config = folder.path().join("triwire.toml");
    let text = "listen = \"127.0.0.1:0\"\nkey_file = \"keys\"\n\
                [sandboxes.one]\nroot = \"one\"\n[sandboxes.two]\nroot = \"two\"\n";
    fs::write(&config, text).unwrap();
    let gateway = Gateway::of(triwire().args(["serve", "--config"]).arg(&config));
    for name in ["one", "two"] {
        let output = gateway
            .exec(&["--key-file", folder.path().join("keys").to_str().unwrap()])
            .args([name, "--", "cat", "who"])
            .output()
            .unwrap();
        assert_eq!(stdout(&output), name, "{}", stderr(&output));
    }
}

#[test]
fn guests_behind_links_are_sandboxes() {
    let far = Gateway::start();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("keys"), "0123456789abcdef\n").unwrap();
    fs::copy(far.state().join("key"), folder.path().join("far-key")).unwrap();
    let config = folder.path().join("triwire.toml");
    let address = &far.address;
    let text = format!(
        "listen = \"127.0.0.1:0\"\nkey_file = \"keys\"\n\
         [sandboxes.far]\nkind = \"tcp\"\naddress = \"{address}\"\n\
         path = \"/sandboxes/local/exec\"\nkey_file = \"far-key\"\n\
         [sandboxes.wrong]\nkind = \"tcp\"\naddress = \"{address}\"\n\
         [sandboxes.agent]\nkind = \"unix\"\nsocket = \"no.sock\"\n\
         [sandboxes.mcu]\nkind = \"serial\"\ndevice = \"/dev/no-such-tty\"\n"
    );
    fs::write(&config, text).unwrap();
    let near = Gateway::of(triwire().args(["serve", "--config"]).arg(&config));
    assert!(near.said.contains(&format!("sandbox far: tcp {address}")), "{}", near.said);
    assert!(!near.said.contains("not a jail"), "{}", near.said);
    let keys = folder.path().join("keys");
    let exec = |flags: &[&str], words: &[&str]| {
        let mut command = near.exec(&["--key-file", keys.to_str().unwrap()]);
        command.args(flags).args(words);
        support::feed(&mut command, b"through both")
    };
    let output = exec(&["-i"], &["far", "--", "sh", "-c", "cat; exit 3"]);
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("through both", Some(3)));

    let cases = [
        ("wrong", "check `key_file` (status 401"),
        ("agent", "no.sock: there is no such socket"),
        ("mcu", "/dev/no-such-tty: there is no such device; plug it in"),
    ];
    for (name, expected) in cases {
        for transport in support::TRANSPORTS {
            let output = exec(&["--transport", transport], &[name, "--", "true"]);
            assert_eq!(output.status.code(), OURS, "{name} {transport}");
            let said = stderr(&output);
            // A WebSocket's reason is cut, but not before it says who.
            let expected = if transport == "ws" { "the guest cannot be reached" } else { expected };
            assert!(said.contains(expected), "{name} {transport}: {said}");
        }
    }
}

#[test]
fn a_wrong_config_names_line_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("t.toml");
    let keys = folder.path().join("keys");
    fs::write(&keys, "0123456789abcdef\nshort\n").unwrap();
    let cases = [
        ("listen = 5\n", "t.toml:1:10: listen"),
        ("listen = \"nowhere\"\n", "t.toml:1:10: listen"),
        ("\nlisen = \"127.0.0.1:0\"\n", "t.toml:2:1: unknown field `lisen`"),
        ("[sandboxes.a]\nroot = \"/no/such\"\n", "t.toml:2:8: sandboxes.a.root"),
        ("listen = \"127.0.0.1:0\"\nkey_file = \"keys\"\n", "keys:2: this line is no key"),
        ("listen = \"127.0.0.1:0\"\nkey_file = \"none\"\n", "none"),
    ];
    for (text, expected) in cases {
        fs::write(&config, text).unwrap();
        let output = triwire()
            .args(["serve", "--config"])
            .arg(&config)
            .arg("--state")
            .arg(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), OURS, "{text:?}");
        assert!(stderr(&output).contains(expected), "{text:?}: {}", stderr(&output));
    }
}

#[test]
fn addresses_that_cannot_be_are_told_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let state = tempfile::tempdir().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["--listen", &taken], "in use"),
        (&["--listen", "nowhere"], "expected one such as"),
        (&["--listen", "0.0.0.0:0"], "config file"),
    ];
    for (flags, word) in cases {
        let mut command = triwire();
        let output = command.arg("serve").args(*flags).arg("--state").arg(state.path()).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), OURS, "{flags:?}");
        assert!(stderr(&output).contains(word), "{flags:?}: {}", stderr(&output));
    }
    assert!(!state.path().join("key").exists(), "a failed start must not spend the one showing");
    let config = state.path().join("t.toml");
    fs::write(&config, "listen = \"0.0.0.0:0\"\n").unwrap();
    let output =
        triwire().args(["serve", "--insecure-no-auth", "--config"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), OURS);
    assert!(stderr(&output).contains("--insecure-no-auth"), "{}", stderr(&output));
}

#[test]
fn without_keys_everybody_of_this_machine_is_admitted() {
    let state = tempfile::tempdir().unwrap();
    let mut command = triwire();
    command.args(["serve", "--insecure-no-auth", "--listen", "127.0.0.1:0", "--state"]);
    let gateway = Gateway::of(command.arg(state.path()));
    let mut exec = triwire();
    exec.args(["exec", "--url", &gateway.url(), "--state", "/no/such", "local", "--", "true"]);
    assert_eq!(exec.status().unwrap().code(), Some(0));
    assert!(!state.path().join("key").exists());
}

#[test]
fn signals_stop_it_gracefully() {
    for signal in ["-INT", "-TERM"] {
        let gateway = Gateway::start();
        let mut child = gateway
            .exec(&["local", "--", "sh", "-c", "echo ready; sleep 600"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(gateway.stop(signal), Some(0));
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), OURS);
        assert!(stderr(&output).contains("shutting down"), "{}", stderr(&output));
    }
}

/// Sends one request, and gives the answer as it comes.
fn request(gateway: &Gateway, method: &str, target: &str, lines: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\nHost: {}\r\n{lines}Content-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        gateway.address,
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

// rule: CHAN-94
#[test]
fn without_the_table_there_is_no_channel() {
    let gateway = Gateway::start();
    for target in ["/", "/channel", "/channel/calls", "/api/pair"] {
        let answer = request(&gateway, "GET", target, "", "");
        assert!(!answer.starts_with("HTTP/1.1 2"), "{target}: {answer}");
    }
    assert!(!gateway.said.contains("page"), "{}", gateway.said);
    assert!(!gateway.state().join(".host-token").exists());
}

#[test]
fn the_channel_has_a_page_and_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = channel(folder.path(), &[]);
    assert!(gateway.said.contains(&format!("page: {}/\n", gateway.url())), "{}", gateway.said);
    let answer = request(&gateway, "GET", "/", "", "");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("default-src 'none'"));

    let token = fs::read_to_string(folder.path().join("ext/.host-token")).unwrap();
    let lines = format!("x-voicebox-host-token: {token}\r\nContent-Type: application/json\r\n");
    let pair = || request(&gateway, "POST", "/api/pair", &lines, r#"{"envKey":"board"}"#);
    assert!(pair().contains("\"bearer\":\"vbx_"));
    assert!(folder.path().join("ext/.pairings.json").exists());
    fs::write(folder.path().join("ext/.host-token"), "short").unwrap();
    let mut again = serve_channel(folder.path());
    let output = again.output().unwrap();
    assert_eq!(output.status.code(), OURS);
    assert!(stderr(&output).contains("the host token"), "{}", stderr(&output));
}

// rule: CHAN-93
#[test]
fn the_address_that_gives_a_session_is_shown_and_works_once() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = channel(folder.path(), &[("VOICEBOX_LOOPBACK_AUTH", "1")]);
    let shown = gateway.said.lines().find_map(|line| line.trim().split_once("/?bootstrap="));
    let (url, ticket) = shown.expect(&gateway.said);
    assert_eq!((url, ticket.len()), (gateway.url().as_str(), 64));
    assert!(request(&gateway, "GET", "/", "", "").starts_with("HTTP/1.1 401 "));
    let target = format!("/?bootstrap={ticket}");
    assert!(request(&gateway, "GET", &target, "", "").starts_with("HTTP/1.1 303 "));
    assert!(request(&gateway, "GET", &target, "", "").starts_with("HTTP/1.1 401 "));
}

fn serve_channel(folder: &std::path::Path) -> std::process::Command {
    let path = folder.join("triwire.toml");
    let text = "listen = \"127.0.0.1:0\"\n[channel]\nextensions_dir = \"ext\"\n";
    fs::write(&path, text).unwrap();
    let mut command = triwire();
    command.args(["serve", "--config"]).arg(&path).arg("--state").arg(folder.join("state"));
    command
}

fn channel(folder: &std::path::Path, variables: &[(&str, &str)]) -> Gateway {
    Gateway::of(serve_channel(folder).envs(variables.iter().copied()))
}
