//! Real firmware at the gateway's serial port: examples/firmware in QEMU. `tests/run device` builds
//! the images and runs these.

mod board;
mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use board::{BOARDS, BYTES_PER_S, Board, Desk, Tool, Wire, until};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use support::{OURS, stderr, stdout};

const LM3S: &str = "lm3s6965evb";
/// How soon a session must end when its device is gone: a stream may be silent for 1 s, and the
/// tool itself takes a moment.
const SOON: Duration = Duration::from_millis(1500);
const FILE: usize = 64 * 1024;
/// What the firmware's documentation says of its stack.
const STACK: usize = 3_584;

const BOARD_BOUNDS: &str = r#"{"registers":4,"maxRequests":100000}"#;
const REGISTERS: Tool = ("board", "read_registers", BOARD_BOUNDS);
const SENSOR: Tool = ("board", "read_sensor", BOARD_BOUNDS);
const OUTPUT: Tool = ("relay", "set_output", r#"{"maxRequests":32,"outputs":1}"#);

fn bytes(count: usize) -> Vec<u8> {
    (0..count as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn stack(desk: &Desk) -> usize {
    let said = stdout(&desk.exec(&["stack"]));
    said.split_whitespace().next().and_then(|word| word.parse().ok()).expect(&said)
}

#[test]
#[ignore = "needs firmware; run tests/run device"]
fn each_command_runs_on_each_board() {
    for (machine, _) in BOARDS {
        let board = Board::start(machine);
        let desk = Desk::on_line(&board.port);
        let output = desk.exec(&["echo", "hello", "firmware"]);
        assert_eq!(stdout(&output), "hello firmware\n", "{}", stderr(&output));
        let counted: String = (1..=2000).map(|n| format!("{n}\n")).collect();
        assert_eq!(stdout(&desk.exec(&["count", "2000"])), counted);
        assert_eq!(desk.exec(&["fail", "7"]).status.code(), Some(7));
        assert!(stdout(&desk.exec(&["help"])).contains("sha256"));
        let up = stdout(&desk.exec(&["uptime"]));
        assert!(up.starts_with("up ") && up.ends_with(" ms since 1970\n"), "{up}");
        let output = desk.exec(&["no-such"]);
        assert_eq!(output.status.code(), Some(127));
        assert!(stderr(&output).contains("this device knows cat, count"), "{}", stderr(&output));

        let file = bytes(FILE);
        let sum: String = Sha256::digest(&file).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(stdout(&desk.exec_with(&["sha256"], &file)), sum + "\n");
        let begun = Instant::now();
        let output = desk.exec_with(&["cat"], &file);
        assert!(output.stdout == file, "{} bytes: {}", output.stdout.len(), stderr(&output));
        println!("{machine}: 64 KiB there and back in {} ms", begun.elapsed().as_millis());

        let begun = Instant::now();
        let output = desk.command(&["--timeout", "1"], &["forever"]).output().unwrap();
        assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
        assert!(begun.elapsed() < Duration::from_secs(1) + SOON);

        let stack = stack(&desk);
        println!("{machine}: {stack} bytes of stack, the deepest of all these sessions");
        assert!(stack <= STACK, "{stack}");
    }
}

/// The line at its real speed: a file there and back must take little longer than the bytes alone.
#[test]
#[ignore = "needs firmware; run tests/run device"]
fn a_file_goes_round_at_the_speed_of_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("uart");
    let _board = Board::at_socket(LM3S, &socket);
    let wire = Wire::between(&socket);
    let desk = Desk::on_line(&wire.pty);
    let file = bytes(FILE);
    let before = wire.counts();
    let begun = Instant::now();
    let output = desk.exec_with(&["cat"], &file);
    let took = begun.elapsed().as_secs_f64();
    let carried = wire.counts();
    assert!(output.stdout == file, "{} bytes: {}", output.stdout.len(), stderr(&output));
    // Packets of 239 bytes in 246, and credit for each half of the device's 2048: 14 bytes.
    let least = FILE as f64 / 239.0 * 246.0 + FILE as f64 / 1024.0 * 14.0;
    let ideal = least / BYTES_PER_S as f64;
    let [there, back] = [0, 1].map(|way| carried[way] - before[way]);
    println!(
        "64 KiB there and back at 115200 baud: {took:.2} s, {:.3} times the {ideal:.2} s that the \
         line's overhead allows; {there} bytes there and {back} back for {FILE}, {:.3} and {:.3} \
         times as many",
        took / ideal,
        there as f64 / FILE as f64,
        back as f64 / FILE as f64,
    );
    assert!(took <= 1.2 * ideal, "{took:.2} s");
}

#[test]
#[ignore = "needs firmware; run tests/run device"]
fn two_sessions_run_at_once_and_a_third_is_told() {
    let board = Board::start(LM3S);
    let desk = Desk::on_line(&board.port);
    let file = bytes(FILE);
    std::thread::scope(|scope| {
        let two = [0, 1].map(|_| scope.spawn(|| desk.exec_with(&["cat"], &file)));
        for output in two {
            let output = output.join().unwrap();
            assert!(output.stdout == file, "{}", stderr(&output));
        }
    });
    let [one, other] = [0, 1].map(|_| desk.running(&["count", "4000000000"]));
    let output = desk.exec(&["echo", "room"]);
    assert_eq!(output.status.code(), OURS);
    let said = stderr(&output);
    assert!(said.contains("takes no stream now; try again when another has ended"), "{said}");
    // The client's going ends the command.
    other.kill();
    until(|| stdout(&desk.exec(&["echo", "room"])) == "room\n");
    drop(board);
    assert_eq!(one.end().0, OURS);
}

#[test]
#[ignore = "needs firmware; run tests/run device"]
fn a_board_that_dies_ends_its_session_by_name_and_the_next_one_works() {
    let mut board = Board::start(LM3S);
    let desk = Desk::on_line(&board.port);
    let running = desk.running(&["count", "4000000000"]);
    let begun = Instant::now();
    board.kill();
    let (code, said) = running.end();
    println!("killed: ended after {} ms", begun.elapsed().as_millis());
    assert!(begun.elapsed() < SOON, "{:?}: {said}", begun.elapsed());
    assert_eq!(code, OURS);
    assert!(said.contains("was it unplugged or switched off?"), "{said}");

    let board = Board::start(LM3S);
    desk.plug(&board.port);
    desk.wait();
    assert_eq!(stdout(&desk.exec(&["echo", "again"])), "again\n");
}

#[test]
#[ignore = "needs firmware; run tests/run device"]
fn a_board_that_is_reset_ends_its_sessions_by_name_and_the_next_one_works() {
    let board = Board::start(LM3S);
    let desk = Desk::on_line(&board.port);
    let running = desk.running(&["count", "4000000000"]);
    let begun = Instant::now();
    board.reset();
    let (code, said) = running.end();
    println!("reset: ended after {} ms", begun.elapsed().as_millis());
    assert!(begun.elapsed() < SOON, "{:?}: {said}", begun.elapsed());
    assert_eq!(code, OURS);
    assert!(said.contains("the other end of the line restarted"), "{said}");
    // A board that asks for the line a second time, before the answer to the first has come, ends
    // what was opened in between.
    until(|| stdout(&desk.exec(&["echo", "again"])) == "again\n");
}

#[test]
#[ignore = "needs firmware; run tests/run device"]
fn a_gateway_that_restarts_while_the_board_writes_goes_on() {
    let board = Board::start(LM3S);
    let mut desk = Desk::on_line(&board.port);
    let running = [desk.running(&["count", "4000000000"]), desk.running(&["count", "4000000000"])];
    desk.restart();
    for running in running {
        assert_eq!(running.end().0, OURS);
    }
    // Both of the board's places are free, whatever was on the line.
    let file = bytes(FILE);
    std::thread::scope(|scope| {
        let two = [0, 1].map(|_| scope.spawn(|| desk.exec_with(&["cat"], &file)));
        for output in two {
            let output = output.join().unwrap();
            assert!(output.stdout == file, "{}", stderr(&output));
        }
    });
}

#[test]
#[ignore = "needs firmware; run tests/run device"]
fn a_port_that_is_missing_or_in_use_says_what_to_do() {
    let desk = Desk::at(Path::new("/dev/no-such-tty"));
    let output = desk.exec(&["echo"]);
    assert_eq!(output.status.code(), OURS);
    let said = stderr(&output);
    assert!(said.contains("there is no such device; plug it in, or correct `device`"), "{said}");

    let board = Board::start(LM3S);
    let first = Desk::on_line(&board.port);
    assert_eq!(stdout(&first.exec(&["echo", "mine"])), "mine\n");
    let second = Desk::at(&board.port);
    let output = second.exec(&["echo"]);
    assert_eq!(output.status.code(), OURS);
    let said = stderr(&output);
    assert!(said.contains("another program has it open; end that program"), "{said}");
    drop(first);
    until(|| stdout(&second.exec(&["echo", "mine"])) == "mine\n");
}

/// Waits until the device holds its chair.
fn seated(desk: &Desk) {
    let args = json!({"first": 0, "count": 1});
    until(|| desk.call(REGISTERS, &args).is_ok());
}

// rule: CHAN-117
#[test]
#[ignore = "needs firmware; run tests/run device"]
fn each_tool_answers_calls_on_each_board_beside_its_commands() {
    for (machine, _) in BOARDS {
        let board = Board::start(machine);
        let desk = Desk::on_line(&board.port);
        seated(&desk);
        // Both sessions of the device are commands'.
        let running = [0, 1].map(|_| desk.running(&["count", "4000000000"]));
        let observed = desk.call(REGISTERS, &json!({"first": 1, "count": 3})).unwrap();
        let values = observed["values"].as_array().unwrap();
        assert!(values[0].as_u64().unwrap() > 500 && values.len() == 3, "{observed}");
        for on in [true, false] {
            let args = json!({"output": 0, "on": on});
            assert_eq!(desk.call(OUTPUT, &args), Ok(args), "{machine}");
        }
        let measured = desk.call(SENSOR, &json!({}));
        if machine == LM3S {
            let measured = measured.unwrap()["millidegrees"].as_i64().unwrap();
            assert!((20_000..50_000).contains(&measured), "{measured}");
        } else {
            // QEMU knows no such sensor on this board.
            assert_eq!(measured, Err("exec-threw".to_owned()));
        }
        let beyond = desk.call(REGISTERS, &json!({"first": 4, "count": 1}));
        assert_eq!(beyond, Err("out-of-bounds".to_owned()));
        let (extension, tool, _) = REGISTERS;
        let other = desk.call((extension, tool, r#"{"registers":5}"#), &json!({}));
        assert_eq!(other, Err("bounds-mismatch".to_owned()));
        let other = desk.call(("relay", tool, "{}"), &json!({}));
        assert_eq!(other, Err("unattributed-call".to_owned()));
        running.into_iter().for_each(board::Running::kill);

        let begun = Instant::now();
        let count = 200;
        for _ in 0..count {
            desk.call(REGISTERS, &json!({"first": 0, "count": 4})).unwrap();
        }
        let each = begun.elapsed() / count;
        let stack = stack(&desk);
        println!("{machine}: {each:?} a call, {stack} bytes of stack with calls and commands");
        assert!(stack <= STACK, "{stack}");
    }
}

// rule: CHAN-38
#[test]
#[ignore = "needs firmware; run tests/run device"]
fn a_tool_whose_budget_is_used_up_refuses_by_name_until_the_device_restarts() {
    let board = Board::start(LM3S);
    let desk = Desk::on_line(&board.port);
    seated(&desk);
    let args = json!({"output": 0, "on": true});
    let done = (0..).take_while(|_| desk.call(OUTPUT, &args).is_ok()).count();
    assert_eq!(done, 32);
    assert_eq!(desk.call(OUTPUT, &args), Err("budget-exhausted".to_owned()));
    seated(&desk);
    board.reset();
    until(|| desk.call(OUTPUT, &args).is_ok());
}

// rule: CHAN-118
#[test]
#[ignore = "needs firmware; run tests/run device"]
fn a_board_that_is_reset_or_dies_closes_the_calls_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("uart");
    let mut board = Board::at_socket(LM3S, &socket);
    let wire = Wire::between(&socket);
    let desk = Desk::on_line(&wire.pty);
    seated(&desk);
    let args = json!({"first": 0, "count": 1});
    // A call that the board has on its wire while it stands still, and what ends it.
    let in_flight = |end: &mut dyn FnMut()| {
        let before = wire.counts()[0];
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| desk.call(REGISTERS, &args));
            // A call is longer than all credit that is due meanwhile.
            until(|| wire.counts()[0] > before + 120);
            let begun = Instant::now();
            end();
            let outcome = asked.join().unwrap();
            assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
            outcome
        })
    };
    board.pause();
    let reset = in_flight(&mut || board.go_on_from_reset());
    assert_eq!(reset, Err("machine-closed".to_owned()));
    seated(&desk);

    board.pause();
    assert_eq!(desk.call_within(REGISTERS, &args, 100), Err("machine-timeout".to_owned()));
    board.go_on_from_reset();
    seated(&desk);

    board.pause();
    let killed = in_flight(&mut || board.kill());
    assert_eq!(killed, Err("machine-closed".to_owned()));
    assert_eq!(desk.call(REGISTERS, &args), Err("machine-unreachable".to_owned()));
}

#[test]
#[ignore = "needs firmware; run tests/run device"]
fn the_demo_shows_the_firmware() {
    let image = std::env::var("TRIWIRE_FIRMWARE").unwrap();
    let output =
        support::triwire().args(["demo", "--json", "--firmware", &image]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert!(stdout(&output).contains("\"firmware\":\"shown\""));
    assert_eq!(stdout(&output).matches("\"transport\":\"serial\"").count(), 3);
}
