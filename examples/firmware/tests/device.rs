//! The device against a gateway's end of the line, in memory.

#[allow(dead_code, reason = "each test file uses its own part")]
mod common;

use common::{Gone, WALL, World, ask};
use sha2::{Digest, Sha256};
use triwire::line::Disconnect;
use triwire_firmware::command::{COMMANDS, NOT_FOUND};
use triwire_firmware::device::Turn;

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n % 251) as u8).collect()
}

#[test]
fn each_command_does_what_help_says() {
    let mut world = World::new();
    let seen = world.exec(&["echo", "hello", "wörld \"x\""], b"not read");
    assert_eq!((seen.text().as_str(), seen.exit_code), ("hello wörld \"x\"\n", Some(0)));
    assert_eq!(world.exec(&["echo"], b"").text(), "\n");
    let long = "word ".repeat(60);
    assert_eq!(world.exec(&["echo", &long], b"").text(), format!("{long}\n"));

    let input = bytes(20_000);
    assert!(world.exec(&["cat"], &input).stdout == input);
    assert!(world.exec(&["cat"], b"").stdout.is_empty());

    let sum: String = Sha256::digest(&input).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(world.exec(&["sha256"], &input).text(), sum + "\n");

    let counted: String = (1..=3000).map(|n| format!("{n}\n")).collect();
    assert_eq!(world.exec(&["count", "3000"], b"").text(), counted);
    assert_eq!(world.exec(&["count", "0"], b"").text(), "");

    let seen = world.exec(&["fail"], b"");
    assert_eq!((seen.exit_code, seen.stderr), (Some(1), b"failing with 1, as asked\n".to_vec()));
    assert_eq!(world.exec(&["fail", "42"], b"").exit_code, Some(42));

    assert_eq!(world.exec(&["stack"], b"").text(), "1234 bytes of stack\n");
    let up = format!("up 0.020 s, {} ms since 1970\n", WALL.get());
    assert_eq!(world.exec(&["uptime"], b"").text(), up);

    let help = world.exec(&["help"], b"").text();
    assert_eq!(help.lines().count(), COMMANDS.len());
    for ((name, _), line) in COMMANDS.iter().zip(help.lines()) {
        assert!(line.starts_with(name) && NOT_FOUND.contains(name), "{line}");
    }
}

#[test]
fn what_is_no_command_is_named() {
    let mut world = World::new();
    let seen = world.exec(&["no-such"], b"");
    assert_eq!((seen.exit_code, seen.status), (Some(-1), Some(127)));
    assert_eq!(seen.error, NOT_FOUND);
    for cmd in [&["count", "x"][..], &["count", "4294967296"], &["fail", "256"]] {
        let seen = world.exec(cmd, b"");
        assert_eq!(seen.exit_code, Some(2), "{cmd:?}");
        assert!(seen.stderr.starts_with(cmd[0].as_bytes()));
    }
}

#[test]
fn cat_answers_each_piece_at_once() {
    let mut world = World::new();
    let at = world.start(&["cat"], 0);
    for piece in [&b"one"[..], b"two"] {
        world.clients[at].stdin(piece);
        world.run();
        assert!(world.clients[at].seen().stdout.ends_with(piece));
    }
    world.clients[at].close_stdin();
    world.run();
    assert_eq!(world.clients[at].seen().exit_code, Some(0));
}

// rule: LINE-5
#[test]
fn two_sessions_run_at_once_and_a_third_is_refused() {
    let mut world = World::new();
    let one = world.start(&["cat"], 0);
    let two = world.start(&["forever"], 0);
    world.run();
    let three = world.start(&["cat"], 0);
    world.run();
    assert_eq!(world.clients[three].gone, Some(Gone::Disconnected(Disconnect::Refused)));
    world.clients[one].stdin(&bytes(5000));
    world.clients[one].close_stdin();
    world.run();
    assert_eq!(world.clients[one].seen().stdout, bytes(5000));
    assert_eq!((world.clients[two].seen().exit_code, &world.clients[two].gone), (None, &None));
    // Its place is free again.
    assert_eq!(world.exec(&["echo", "x"], b"").text(), "x\n");
}

// rule: EXEC-22
#[test]
fn a_command_ends_with_its_stream() {
    let mut world = World::new();
    for _ in 0..5 {
        let one = world.start(&["forever"], 0);
        let two = world.start(&["count", "4000000000"], 0);
        for _ in 0..40 {
            world.turn();
        }
        world.close(one);
        world.close(two);
        world.run();
    }
    assert_eq!(world.exec(&["echo", "x"], b"").text(), "x\n");
}

#[test]
fn a_deadline_ends_what_runs_too_long() {
    let mut world = World::new();
    let at = world.start(&["forever"], 2);
    world.run();
    world.pass(1950);
    assert_eq!(world.clients[at].seen().exit_code, None);
    world.pass(50);
    let seen = world.clients[at].seen();
    assert_eq!((seen.exit_code, seen.timed_out, seen.duration_ms), (Some(-1), true, 2000));
    assert_eq!(seen.status, Some(124));
}

// rule: EXEC-64
#[test]
fn requests_are_judged_by_the_core() {
    let mut world = World::new();
    let json = r#"{"cmd":["echo"]}"#;
    let post = |target: &str, body: &str| {
        let length = body.len();
        format!("POST {target} HTTP/1.1\r\nHost: mcu\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let chunked = "POST /exec?stdin=1 HTTP/1.1\r\nHost: m\r\nTransfer-Encoding: chunked\r\n\r\n";
    let cases = [
        (post("/exec?stdin=1", json), 200),
        (format!("{chunked}10\r\n{json}\r\n0\r\n\r\n"), 200),
        (post("/exec", json), 501),
        (post("/sandboxes/mcu/exec?stdin=1", json), 404),
        (post("/exec?stdin=1", "{}"), 400),
        (post("/exec?stdin=1", &format!(r#"{{"cmd":["{}"]}}"#, "x".repeat(600))), 413),
        ("GET /exec?stdin=1 HTTP/1.1\r\nHost: mcu\r\n\r\n".into(), 405),
        (format!("GET / HTTP/1.1\r\nHost: {}", "h".repeat(2000)), 431),
        ("\u{0}\u{1} not HTTP at all \r\n\r\n".into(), 400),
    ];
    for (request, status) in cases {
        let at = world.open(request.clone().into_bytes());
        world.run();
        let client = &world.clients[at];
        let came = String::from_utf8_lossy(&client.came);
        assert!(came.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {came}");
        if status == 200 {
            assert_eq!(client.seen().text(), "\n");
        } else {
            assert!(came.ends_with("}\n"), "{came}");
        }
        assert_eq!(client.gone, Some(Gone::Closed), "{request}");
    }
}

#[test]
fn a_client_that_waits_to_send_its_body_is_told_to_go_on() {
    let mut world = World::new();
    let body = r#"{"cmd":["echo","x"]}"#;
    let head = "POST /exec?stdin=1 HTTP/1.1\r\nHost: m\r\nExpect: 100-continue\r\n\
        Content-Length: 20\r\n\r\n";
    let at = world.open(head.into());
    world.run();
    assert!(world.clients[at].came.starts_with(b"HTTP/1.1 100 Continue\r\n\r\n"));
    world.clients[at].raw(body.as_bytes());
    world.run();
    assert_eq!(world.clients[at].seen().text(), "x\n");
}

// rule: EXEC-10
#[test]
fn input_that_breaks_the_contract_is_named() {
    let mut world = World::new();
    let at = world.start(&["cat"], 0);
    world.clients[at].raw(&[9; 8]);
    world.run();
    let seen = world.clients[at].seen();
    assert_eq!(seen.exit_code, Some(-1));
    assert!(seen.error.contains("unknown_type"), "{}", seen.error);
}

// rule: LINE-2
#[test]
fn noise_costs_no_more_than_what_it_hits() {
    let mut world = World::new();
    let at = world.start(&["cat"], 0);
    for round in 0..50_u8 {
        let noise = (0..40).map(|n: u8| n.wrapping_mul(37).wrapping_add(round) | 1);
        world.port.to_device.push_back(0);
        world.port.to_device.extend(noise);
        world.port.to_device.push_back(0);
        world.clients[at].stdin(&[round; 100]);
        world.run();
    }
    world.clients[at].close_stdin();
    world.run();
    assert_eq!(world.clients[at].seen().stdout.len(), 5000);
}

// rule: LINE-4
#[test]
fn a_device_that_restarts_ends_its_sessions_and_serves_the_next() {
    let mut world = World::new();
    let at = world.start(&["forever"], 0);
    world.run();
    world.reboot();
    world.run();
    assert_eq!(world.clients[at].gone, Some(Gone::Disconnected(Disconnect::Reset)));
    assert_eq!(world.exec(&["echo", "x"], b"").text(), "x\n");
}

// rule: LINE-8
#[test]
fn sessions_end_when_the_gateway_falls_silent() {
    let mut world = World::new();
    world.start(&["count", "4000000000"], 0);
    world.start(&["forever"], 0);
    // The gateway neither reads nor writes, for longer than a stream may be silent.
    for _ in 0..60 {
        world.now = world.now.saturating_add(core::time::Duration::from_millis(50));
        while world.turn() == Turn::Again {}
    }
    // Both places are free, and no reset freed them.
    assert_eq!(world.exec(&["echo", "x"], b"").text(), "x\n");
}

/// However its bytes are cut, a session comes out the same.
#[test]
fn any_cut_of_a_session_gives_the_same() {
    for step in [1, 7, 64] {
        let mut world = World::new();
        let at = world.open(Vec::new());
        let mut session = ask(&["cat"], 0);
        session.extend_from_slice(&[4, 0, 0, 0, 0, 0, 0, 3]);
        session.extend_from_slice(b"abc");
        session.extend_from_slice(&[5, 0, 0, 0, 0, 0, 0, 0]);
        for piece in session.chunks(step) {
            world.clients[at].raw(piece);
            world.run();
        }
        let seen = world.clients[at].seen();
        assert_eq!((seen.text().as_str(), seen.exit_code), ("abc", Some(0)), "{step}");
    }
}
