//! The client against a real server with real commands.
#![allow(missing_docs)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

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

fn client(address: SocketAddr, key: &str, seconds: &str, command: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_triwire-custom-loop"))
        .arg(format!("http://{address}/sandboxes/local"))
        .arg(seconds)
        .args(command)
        .env("TRIWIRE_KEY", key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn ended(client: Child) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = client.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_conversation_beside_a_one_shot() {
    let server = served();
    let script = "while read -r line; do echo \"heard $line\"; done; echo over >&2; exit 3";
    let mut client = client(server.address, "secret", "60", &["sh", "-c", script]);
    let mut stdin = client.stdin.take().unwrap();
    let mut stdout = BufReader::new(client.stdout.take().unwrap());
    let mut until = |start: &str| {
        let mut line = String::new();
        while !line.starts_with(start) {
            line.clear();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "no line that starts with {start}");
        }
        line
    };
    assert!(until("Linux").len() > "Linux \n".len());
    // Each answer comes while the input is open.
    for word in ["one", "two"] {
        writeln!(stdin, "{word}").unwrap();
        assert_eq!(until("heard"), format!("heard {word}\n"));
    }
    drop(stdin);
    let (status, _, stderr) = ended(client);
    assert_eq!((status, stderr.as_str()), (Some(3), "over\n"));
}

#[test]
fn more_than_any_buffer_both_ways() {
    const LEN: usize = 3_000_000;
    let server = served();
    let mut client = client(server.address, "secret", "120", &["cat"]);
    let mut stdin = client.stdin.take().unwrap();
    let mut stdout = client.stdout.take().unwrap();
    let sent: Vec<u8> = (0..LEN).map(|index| (index % 251) as u8).collect();
    let echo = sent.clone();
    let writing = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let mut came = Vec::new();
    stdout.read_to_end(&mut came).unwrap();
    writing.join().unwrap();
    // The line of the one-shot stands wherever it came.
    let at = came.windows(6).position(|six| six == b"Linux ").unwrap();
    let end = at + came[at..].iter().position(|byte| *byte == b'\n').unwrap();
    came.drain(at..=end);
    assert!(came == echo);
    assert_eq!(ended(client).0, Some(0));
}

#[test]
fn one_deadline_for_both() {
    let server = served();
    let start = Instant::now();
    let mut client = client(server.address, "secret", "1", &["sleep", "100"]);
    let stdin = client.stdin.take();
    let (status, stdout, stderr) = ended(client);
    drop(stdin);
    assert_eq!((status, stderr.as_str()), (Some(124), "the time is up\n"));
    assert!(stdout.starts_with("Linux "));
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[test]
fn failures_in_words() {
    let server = served();
    let (status, _, stderr) = ended(client(server.address, "wrong", "60", &[]));
    assert_eq!(status, Some(125));
    assert!(stderr.starts_with("refused with 401: ") && stderr.len() > 25, "{stderr}");

    let (status, _, stderr) = ended(client(server.address, "secret\r\nX: y", "60", &[]));
    assert_eq!(status, Some(125));
    assert!(stderr.contains("the key cannot be sent"), "{stderr}");

    // The port of a listener that is gone.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (status, _, stderr) = ended(client(nobody, "secret", "60", &[]));
    assert_eq!(status, Some(125));
    assert!(stderr.contains("refused"), "{stderr}");

    let (status, _, stderr) = ended(client(server.address, "secret", "soon", &[]));
    assert_eq!(status, Some(125));
    assert!(stderr.starts_with("Usage: "), "{stderr}");
}

#[test]
fn a_server_that_ends_without_an_exit_has_lost_the_command() {
    // rule: EXEC-4
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut peer, _) = listener.accept().unwrap();
            let _ = peer.read(&mut [0; 4096]).unwrap();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n";
            peer.write_all(head.as_bytes()).unwrap();
            peer.write_all(b"\x01\0\0\0\0\0\0\x02hi").unwrap();
        }
    });
    let (status, stdout, stderr) = ended(client(address, "secret", "60", &[]));
    assert_eq!(status, Some(125));
    assert!(stdout.starts_with("hi"), "{stdout}");
    assert!(stderr.contains("missing_exit"), "{stderr}");
}

#[test]
fn no_runtime_is_in_the_tree() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--package", env!("CARGO_PKG_NAME"), "--edges", "no-dev"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let tree = String::from_utf8(tree.stdout).unwrap();
    let packages: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(packages.contains(&"mio") && packages.contains(&"triwire"), "{tree}");
    for runtime in ["tokio", "smol", "async-std", "futures-util", "hyper", "triwire-std"] {
        assert!(!packages.contains(&runtime), "{tree}");
    }
}
