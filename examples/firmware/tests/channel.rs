//! The device as an executor: calls on the channel's stream of its line, beside commands.

#[allow(dead_code, reason = "each test file uses its own part")]
mod common;

use common::{BUFFER, Gone, MEASURED, OUTPUT, SENSOR, World};
use triwire::channel::bounds::Bounds;
use triwire::channel::envelope::{Answer, Outcome};
use triwire::line::{Disconnect, Protocol};
use triwire_firmware::tools::{ADMITTED, BOARD, OUTPUTS, REGISTERS, RELAY};

fn call(id: &str, tool: &str, args: &str) -> String {
    let (extension, _, bounds) = ADMITTED.iter().find(|(_, name, _)| *name == tool).unwrap();
    call_with(id, extension, tool, args, bounds)
}

fn call_with(id: &str, extension: &str, tool: &str, args: &str, bounds: &str) -> String {
    format!(
        r#"{{"v":1,"callId":"{id}","tool":"{tool}","descriptorId":"{extension}","args":{args},"boundsEcho":{bounds}}}"#
    ) + "\n"
}

/// A device whose channel is open, and the stream.
fn opened() -> (World, usize) {
    let mut world = World::new();
    let at = world.open_for(Protocol::Channel, Vec::new());
    world.run();
    assert_eq!(world.clients[at].gone, None);
    (world, at)
}

/// Sends calls, and takes what was answered since: the id, and the observed text or the word.
fn ask(world: &mut World, at: usize, calls: &str) -> Vec<(String, String)> {
    world.clients[at].raw(calls.as_bytes());
    world.run();
    answered(world, at)
}

fn answered(world: &mut World, at: usize) -> Vec<(String, String)> {
    let came = std::mem::take(&mut world.clients[at].came);
    let text = String::from_utf8(came).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    let read = |line: &str| {
        let answer = Answer::parse(line.as_bytes()).unwrap();
        let said = match answer.outcome {
            Outcome::Observed(object) => object.as_str().to_owned(),
            Outcome::Refused { refused, .. } => refused.to_string(),
        };
        (answer.call_id.to_string(), said)
    };
    text.lines().map(read).collect()
}

fn only(world: &mut World, at: usize, tool: &str, args: &str) -> String {
    let [(id, said)] = &ask(world, at, &call("x", tool, args))[..] else { panic!("{tool} {args}") };
    assert_eq!(id, "x");
    said.clone()
}

#[test]
fn the_bounds_are_what_the_tools_keep_to() {
    for (text, name, count) in [(BOARD, "registers", REGISTERS), (RELAY, "outputs", OUTPUTS)] {
        Bounds::parse(text).unwrap();
        assert!(text.contains(&format!("\"{name}\":{count},")), "{text}");
    }
}

#[test]
fn each_tool_does_what_its_table_says() {
    let (mut world, at) = opened();
    let registers = only(&mut world, at, "read_registers", r#"{"first":0,"count":4}"#);
    assert_eq!(registers, r#"{"first":0,"values":[0,1234,0,0]}"#);
    let registers = only(&mut world, at, "read_registers", r#"{"count":1,"first":1}"#);
    assert_eq!(registers, r#"{"first":1,"values":[1234]}"#);
    for on in [true, false] {
        let args = format!(r#"{{"output":0,"on":{on}}}"#);
        assert_eq!(only(&mut world, at, "set_output", &args), args);
        assert_eq!(OUTPUT.get(), on);
    }
    SENSOR.set(Some(-12_345));
    assert_eq!(only(&mut world, at, "read_sensor", "{}"), r#"{"millidegrees":-12345}"#);
    assert_eq!(MEASURED.get(), 1);
}

#[test]
fn arguments_that_are_wrong_or_beyond_the_bounds_are_refused_by_name() {
    let (mut world, at) = opened();
    let cases = [
        ("read_registers", "{}", "malformed-args"),
        ("read_registers", r#"{"first":0}"#, "malformed-args"),
        ("read_registers", r#"{"first":0,"count":"1"}"#, "malformed-args"),
        ("read_registers", r#"{"first":0,"count":1.5}"#, "malformed-args"),
        ("read_registers", r#"{"first":-1,"count":1}"#, "malformed-args"),
        ("read_registers", r#"{"first":0,"count":1,"count":2}"#, "malformed-args"),
        ("read_registers", r#"{"first":0,"count":1,"all":true}"#, "malformed-args"),
        ("read_registers", r#"{"first":0,"count":0}"#, "out-of-bounds"),
        ("read_registers", r#"{"first":3,"count":2}"#, "out-of-bounds"),
        ("read_registers", r#"{"first":18446744073709551615,"count":2}"#, "out-of-bounds"),
        ("set_output", r#"{"output":0}"#, "malformed-args"),
        ("set_output", r#"{"output":0,"on":1}"#, "malformed-args"),
        ("set_output", r#"{"output":1,"on":true}"#, "out-of-bounds"),
        ("read_sensor", r#"{"celsius":true}"#, "malformed-args"),
    ];
    for (tool, args, word) in cases {
        assert_eq!(only(&mut world, at, tool, args), word, "{tool} {args}");
    }
    assert_eq!((OUTPUT.get(), MEASURED.get()), (false, 0));
}

#[test]
fn calls_outside_of_their_admission_do_not_run() {
    let (mut world, at) = opened();
    let on = r#"{"output":0,"on":true}"#;
    let calls = [
        call_with("a", "board", "set_output", on, BOARD),
        call_with("b", "relay", "format_disk", on, RELAY),
        call_with("c", "relay", "set_output", on, r#"{"outputs":1,"maxRequests":1000}"#),
        call("d", "set_output", on).replace("\"v\":1", "\"v\":1,\"grant\":\"everything\""),
        "no call\n".to_owned(),
        // In another order, and of the same value.
        call_with("e", "relay", "set_output", on, r#"{"maxRequests":3.2e1,"outputs":1}"#),
    ];
    let said = ask(&mut world, at, &calls.concat());
    let expected = [
        ("a", "unattributed-call"),
        ("b", "unattributed-call"),
        ("c", "bounds-mismatch"),
        ("d", "unknown-field"),
        ("e", on),
    ];
    assert_eq!(said, expected.map(|(id, word)| (id.to_owned(), word.to_owned())));
}

// rule: CHAN-38
#[test]
fn a_budget_that_is_used_up_is_refused_by_name_and_outlives_the_stream() {
    let (mut world, mut at) = opened();
    for _ in 0..32 {
        let args = r#"{"output":0,"on":true}"#;
        assert_eq!(only(&mut world, at, "set_output", args), args);
    }
    let args = r#"{"output":0,"on":false}"#;
    assert_eq!(only(&mut world, at, "set_output", args), "budget-exhausted");
    world.close(at);
    world.run();
    at = world.open_for(Protocol::Channel, Vec::new());
    assert_eq!(only(&mut world, at, "set_output", args), "budget-exhausted");
    assert!(OUTPUT.get());
    // Each tool has its own.
    let args = r#"{"first":2,"count":1}"#;
    assert_eq!(only(&mut world, at, "read_registers", args), r#"{"first":2,"values":[0]}"#);
}

#[test]
fn others_go_on_while_the_sensor_measures() {
    let (mut world, at) = opened();
    let read = r#"{"first":2,"count":1}"#;
    let calls = [
        call("a", "read_sensor", "{}"),
        call("b", "read_registers", read),
        call("a", "read_registers", read),
        call("c", "read_sensor", "{}"),
        call("d", "read_registers", read),
    ];
    let said = ask(&mut world, at, &calls.concat());
    let expected =
        [("b", r#"{"first":2,"values":[0]}"#), ("a", "duplicate-call"), ("d", "too-many-calls")];
    assert_eq!(said, expected.map(|(id, word)| (id.to_owned(), word.to_owned())));
    SENSOR.set(Some(20_000));
    world.pass(50);
    let said = answered(&mut world, at);
    let expected = ["a", "c"].map(|id| (id.to_owned(), r#"{"millidegrees":20000}"#.to_owned()));
    assert_eq!(said, expected);
    assert_eq!(MEASURED.get(), 1);
    // The next one measures anew.
    SENSOR.set(Some(21_000));
    assert_eq!(only(&mut world, at, "read_sensor", "{}"), r#"{"millidegrees":21000}"#);
    assert_eq!(MEASURED.get(), 2);
}

#[test]
fn a_sensor_that_gives_nothing_is_a_failure_and_the_next_call_works() {
    let (mut world, at) = opened();
    assert_eq!(ask(&mut world, at, &call("a", "read_sensor", "{}")), []);
    world.pass(50);
    assert_eq!(answered(&mut world, at), []);
    world.pass(50);
    assert_eq!(answered(&mut world, at), [("a".to_owned(), "exec-threw".to_owned())]);
    SENSOR.set(Some(1));
    assert_eq!(only(&mut world, at, "read_sensor", "{}"), r#"{"millidegrees":1}"#);
}

#[test]
fn calls_and_commands_share_the_line() {
    let (mut world, at) = opened();
    let cat = world.start(&["cat"], 0);
    let other = world.start(&["forever"], 0);
    world.run();
    // Both places are taken: what is not the channel's is refused as before.
    let third = world.start(&["cat"], 0);
    world.run();
    assert_eq!(world.clients[third].gone, Some(Gone::Disconnected(Disconnect::Refused)));
    let input = vec![7; 5000];
    world.clients[cat].stdin(&input);
    world.clients[cat].close_stdin();
    let args = r#"{"first":0,"count":1}"#;
    let calls: String = (0..50).map(|n| call(&n.to_string(), "read_registers", args)).collect();
    let said = ask(&mut world, at, &calls);
    assert_eq!(said.len(), 50);
    for (n, (id, _)) in said.iter().enumerate() {
        assert_eq!(*id, n.to_string());
    }
    assert_eq!(world.clients[cat].seen().stdout, input);
    assert_eq!(world.clients[other].gone, None);
}

// rule: CHAN-112
#[test]
fn a_call_that_is_too_long_costs_no_other() {
    let (mut world, at) = opened();
    let args = format!(r#"{{"first":0,"count":1,"x":"{}"}}"#, "x".repeat(5 * BUFFER));
    let calls = call("long", "read_registers", &args) + &call("a", "read_registers", "{}");
    assert_eq!(ask(&mut world, at, &calls), [("a".to_owned(), "malformed-args".to_owned())]);
}

#[test]
fn a_second_stream_takes_the_place_of_the_first() {
    let (mut world, first) = opened();
    ask(&mut world, first, &call("a", "read_sensor", "{}"));
    let second = world.open_for(Protocol::Channel, Vec::new());
    world.run();
    assert_eq!(world.clients[first].gone, Some(Gone::Closed));
    // What the first waited for is not answered on the second.
    SENSOR.set(Some(1));
    world.pass(200);
    assert_eq!(answered(&mut world, second), []);
    let args = r#"{"first":2,"count":1}"#;
    assert_eq!(only(&mut world, second, "read_registers", args), r#"{"first":2,"values":[0]}"#);
}

#[test]
fn a_device_that_restarts_ends_the_channel_and_serves_the_next() {
    let (mut world, at) = opened();
    world.reboot();
    world.run();
    assert_eq!(world.clients[at].gone, Some(Gone::Disconnected(Disconnect::Reset)));
    let at = world.open_for(Protocol::Channel, Vec::new());
    let args = r#"{"first":2,"count":1}"#;
    assert_eq!(only(&mut world, at, "read_registers", args), r#"{"first":2,"values":[0]}"#);
}
