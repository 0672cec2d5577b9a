//! Each example against a real server with real commands.
#![allow(missing_docs)]

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use triwire::exec::head::KeyDigest;
use triwire_std::guest::ProcessGuest;
use triwire_std::server::{Keys, Server};

/// A server of commands; it ends with the value.
struct Served {
    address: SocketAddr,
    _runtime: Runtime,
    _root: TempDir,
}

fn served() -> Served {
    let root = tempfile::tempdir().unwrap();
    let guest = Arc::new(ProcessGuest::new(root.path()).unwrap());
    let keys = Keys::new([KeyDigest::of(b"secret")]);
    let server = Server::builder().sandbox("local", guest).keys(keys).build().unwrap();
    let runtime = Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { server.serve(listener, std::future::pending()).await });
    Served { address, _runtime: runtime, _root: root }
}

impl Served {
    /// Runs an example: its status, output and errors.
    fn run(&self, example: &str, key: &str, command: &[&str]) -> (i32, String, String) {
        let output = Command::new(example)
            .args([&self.address.to_string(), "local"])
            .args(command)
            .env("TRIWIRE_KEY", key)
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// What every example must do, whatever its transport.
    fn checks(&self, example: &str) {
        let script = "cat >/dev/null; echo out; echo err >&2; exit 7";
        let ended = self.run(example, "secret", &["sh", "-c", script]);
        assert_eq!(ended, (7, "out\n".into(), "err\n".into()));

        let (status, output, _) = self.run(example, "secret", &["seq", "300000"]);
        assert_eq!((status, output.lines().count()), (0, 300_000));
        assert!(output.ends_with("\n300000\n"));

        assert_eq!(self.run(example, "secret", &["no-such-program"]).0, 127);

        let (status, output, error) = self.run(example, "wrong", &["true"]);
        assert_eq!((status, output.as_str()), (1, ""));
        assert!(error.contains("401"), "{error}");
    }
}

#[test]
fn exec_client_blocking() {
    served().checks(env!("CARGO_BIN_EXE_exec_client_blocking"));
}

#[test]
fn exec_client_async_embedded() {
    let example = env!("CARGO_BIN_EXE_exec_client_async_embedded");
    let server = served();
    server.checks(example);
    // All readings arrive, and come back as they were sent.
    let (status, output, _) = server.run(example, "secret", &["cat"]);
    let sent: String = (0..10_000).map(|number| format!("reading {number}\n")).collect();
    assert_eq!(status, 0);
    assert!(output == sent);
}

#[test]
fn websocket_own_loop() {
    served().checks(env!("CARGO_BIN_EXE_websocket_own_loop"));
}

#[test]
fn each_is_short() {
    for (name, text) in [
        ("exec_client_blocking", include_str!("../exec_client_blocking.rs")),
        ("exec_client_async_embedded", include_str!("../exec_client_async_embedded.rs")),
        ("websocket_own_loop", include_str!("../websocket_own_loop.rs")),
    ] {
        let lines = text.lines().count();
        assert!(lines <= 80, "{name} has {lines} lines");
    }
}

#[test]
fn a_key_is_replaced_without_a_gap() {
    let output = Command::new(env!("CARGO_BIN_EXE_signed_rotation")).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "before: accepted from shop.1",
            "signer changed: accepted from shop.2",
            "still under way: accepted from shop.1",
            "after: accepted from shop.2",
            "the old key: refused: unknown_key",
        ]
    );
}

#[test]
fn two_sites_have_one_receiver() {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpStream;

    let secrets = ["a".repeat(32), "b".repeat(32)];
    let mut receiver = Command::new(env!("CARGO_BIN_EXE_signed_sites"))
        .env("SITE_A_KEY", &secrets[0])
        .env("SITE_B_KEY", &secrets[1])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(receiver.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim_end().strip_prefix("listening on ").unwrap();
    let send = |id: &str, secret: &str| {
        let key = triwire::signed::Key::new(secret.as_bytes()).unwrap();
        let id = triwire::signed::KeyId::parse(id).unwrap();
        let header = triwire_std::signed::Signer::new(id, key)
            .sign("POST", &format!("http://{address}/tools"), b"site b, says the body")
            .unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST /tools HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Content-Length: 21\r\nassistant-signature: {header}\r\n\r\nsite b, says the body"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let (of_a, of_b) = (send("a.1", &secrets[0]), send("b.1", &secrets[1]));
    let forged = send("b.1", &secrets[0]);
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    assert!(of_a.ends_with("\r\n\r\n21 bytes for site a\n"), "{of_a}");
    assert!(of_b.ends_with("\r\n\r\n21 bytes for site b\n"), "{of_b}");
    assert!(forged.starts_with("HTTP/1.1 401 ") && forged.ends_with("\r\n\r\n"), "{forged}");
}
