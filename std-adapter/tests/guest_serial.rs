//! Commands on a device at the other end of a serial line, over a pty.
#![cfg(all(feature = "guest", target_os = "linux"))]

mod serial_common;

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use serial_common::{Device, Order, Pty, Seen};
use triwire::line::Disconnect;
use triwire_std::guest::{Guest, Lost, Output, Running, SerialGuest, StdinGone};
use triwire_std::record::{ExecRequest, ExecResult};

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("in time")
}

fn command(words: &[&str]) -> ExecRequest {
    let cmd = words.iter().map(|word| (*word).to_owned()).collect();
    ExecRequest { cmd, ..ExecRequest::default() }
}

async fn start(guest: &SerialGuest, words: &[&str]) -> Box<dyn Running> {
    within(guest.start(command(words))).await.unwrap()
}

async fn refused(guest: &SerialGuest) -> String {
    match within(guest.start(command(&["cat"]))).await {
        Ok(_) => panic!("it started"),
        Err(unreachable) => unreachable.why,
    }
}

/// Feeds all input and its end, and reads to the exit, both at once.
async fn run(running: &mut dyn Running, mut input: &[u8]) -> Result<(Vec<u8>, ExecResult), Lost> {
    let mut stdout = Vec::new();
    let mut open = true;
    within(poll_fn(|cx| {
        while open {
            if input.is_empty() {
                running.close_stdin();
                open = false;
                break;
            }
            match running.poll_stdin(cx, input) {
                Poll::Ready(Ok(taken)) => input = &input[taken..],
                Poll::Ready(Err(StdinGone)) => open = false,
                Poll::Pending => break,
            }
        }
        loop {
            match running.poll_output(cx) {
                Poll::Ready(Ok(Output::Stdout(bytes))) => stdout.extend_from_slice(&bytes),
                Poll::Ready(Ok(Output::Stderr(_))) => {}
                Poll::Ready(Ok(Output::Exit(result))) => return Poll::Ready(Ok(result)),
                Poll::Ready(Err(lost)) => return Poll::Ready(Err(lost)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }))
    .await
    .map(|result| (stdout, result))
}

async fn next(running: &mut dyn Running) -> Result<Output, Lost> {
    within(poll_fn(|cx| running.poll_output(cx))).await
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n % 251) as u8).collect()
}

async fn echoes(guest: &SerialGuest, count: usize) {
    let mut running = start(guest, &["cat"]).await;
    let (stdout, result) = run(&mut *running, &bytes(count)).await.unwrap();
    assert!(stdout == bytes(count), "{} of {count} bytes came back", stdout.len());
    assert_eq!(result.exit_code, 0);
}

// rule: LINE-7
#[tokio::test]
async fn commands_run_on_the_device() {
    let pty = Pty::new();
    let mut device = Device::start(&pty, 4);
    let guest = SerialGuest::new(&pty.path);
    echoes(&guest, 100_000).await;
    echoes(&guest, 0).await;
    let (_, result) = run(&mut *start(&guest, &["fail"]).await, b"").await.unwrap();
    assert_eq!(result.exit_code, 9);
    // Our clock is told with the reset.
    let reset = device.wait_for(|seen| matches!(seen, Seen::Reset { .. })).await;
    let Seen::Reset { wall } = reset else { panic!() };
    assert!(wall.get() > 1_700_000_000_000);
}

// rule: LINE-5
#[tokio::test]
async fn two_sessions_run_at_once_and_a_third_is_refused() {
    let pty = Pty::new();
    let mut device = Device::start(&pty, 2);
    let guest = SerialGuest::new(&pty.path);
    let mut one = start(&guest, &["cat"]).await;
    let mut two = start(&guest, &["count", "2000"]).await;
    let why = refused(&guest).await;
    assert!(why.contains("takes no stream now; try again"), "{why}");
    let input = bytes(50_000);
    let (one, two) = tokio::join!(run(&mut *one, &input), run(&mut *two, b""));
    assert!(one.unwrap().0 == input);
    let (counted, result) = two.unwrap();
    assert_eq!(counted.iter().filter(|byte| **byte == b'\n').count(), 2000);
    assert_eq!(result.exit_code, 0);
    device.wait_for(|seen| matches!(seen, Seen::Started(_))).await;
    echoes(&guest, 10).await;
}

// rule: EXEC-22
#[tokio::test]
async fn dropping_the_command_closes_its_stream() {
    let pty = Pty::new();
    let mut device = Device::start(&pty, 4);
    let guest = SerialGuest::new(&pty.path);
    let running = start(&guest, &["hang"]).await;
    drop(running);
    device.wait_for(|seen| *seen == Seen::Closed).await;
    // The guest itself may be dropped while a command runs.
    let mut running = start(&guest, &["cat"]).await;
    drop(guest);
    let (stdout, _) = run(&mut *running, b"on its own").await.unwrap();
    assert_eq!(stdout, b"on its own");
}

// rule: EXEC-48
#[tokio::test]
async fn output_that_is_not_read_is_held_back_at_the_device() {
    let pty = Pty::new();
    let _device = Device::start(&pty, 4);
    let guest = SerialGuest::new(&pty.path);
    let mut slow = start(&guest, &["count", "20000"]).await;
    // A full window stands; the other session is not held up by it.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    echoes(&guest, 20_000).await;
    // What is there without waiting is a window's worth at most.
    let mut counted = Vec::new();
    poll_fn(|cx| {
        while let Poll::Ready(Ok(Output::Stdout(bytes))) = slow.poll_output(cx) {
            counted.extend_from_slice(&bytes);
        }
        Poll::Ready(())
    })
    .await;
    assert!((1..=32 * 1024).contains(&counted.len()), "{} bytes", counted.len());
    let (rest, result) = run(&mut *slow, b"").await.unwrap();
    counted.extend(rest);
    assert_eq!(counted.iter().filter(|byte| **byte == b'\n').count(), 20_000);
    assert_eq!(result.exit_code, 0);
}

// rule: LINE-2
#[tokio::test]
async fn noise_between_packets_costs_nothing() {
    let pty = Pty::new();
    let device = Device::start(&pty, 4);
    let guest = SerialGuest::new(&pty.path);
    let mut running = start(&guest, &["cat"]).await;
    let noise = async {
        for round in 0..50_u8 {
            // Each begins and ends on its own.
            let mut noise = vec![0];
            noise.extend((0..40).map(|n: u8| n.wrapping_mul(37).wrapping_add(round) | 1));
            noise.push(0);
            device.orders.send(Order::Noise(noise)).unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let input = bytes(60_000);
    let (ran, ()) = tokio::join!(run(&mut *running, &input), noise);
    assert!(ran.unwrap().0 == input);
}

// rule: LINE-6
#[tokio::test]
async fn noise_that_eats_a_packet_ends_its_stream_by_name_and_the_next_works() {
    let pty = Pty::new();
    let device = Device::start(&pty, 4);
    let guest = SerialGuest::new(&pty.path);
    let mut eaten = start(&guest, &["count", "4000000"]).await;
    assert!(matches!(next(&mut *eaten).await, Ok(Output::Stdout(_))));
    // It has no end of its own, so the packet behind it goes with it.
    device.orders.send(Order::Noise(vec![9; 7])).unwrap();
    let lost = run(&mut *eaten, b"").await.unwrap_err();
    let name = pty.path.display().to_string();
    assert!(lost.why.starts_with(&name) && lost.why.contains("lost on the line"), "{lost}");
    echoes(&guest, 1000).await;
}

// rule: LINE-4
#[tokio::test]
async fn a_device_that_reboots_ends_its_sessions_by_name_within_a_second() {
    let pty = Pty::new();
    let device = Device::start(&pty, 4);
    let guest = SerialGuest::new(&pty.path);
    let mut one = start(&guest, &["hang"]).await;
    let mut two = start(&guest, &["cat"]).await;
    device.orders.send(Order::Reboot).unwrap();
    let begun = Instant::now();
    let lost = (next(&mut *one).await.unwrap_err(), next(&mut *two).await.unwrap_err());
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(lost.0.why.contains("the other end of the line restarted"), "{}", lost.0);
    assert!(lost.1.why.contains("missing_exit"), "{}", lost.1);
    echoes(&guest, 1000).await;
}

// rule: LINE-8
#[tokio::test]
async fn a_device_that_dies_is_noticed_and_its_successor_found() {
    let pty = Pty::new();
    let device = Device::start(&pty, 4);
    let guest = SerialGuest::new(&pty.path);
    let mut running = start(&guest, &["hang"]).await;
    device.orders.send(Order::Hang).unwrap();
    let begun = Instant::now();
    let lost = next(&mut *running).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert!(lost.why.contains("silent for 1 s"), "{lost}");
    drop(running);

    let why = refused(&guest).await;
    assert!(why.contains("the device has not answered for 3 s; check"), "{why}");
    device.kill().await;

    // One that starts while the command waits for it.
    let (_, _device) = tokio::join!(echoes(&guest, 1000), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Device::start(&pty, 4)
    });
}

// rule: LINE-3
#[tokio::test]
async fn a_gateway_that_restarts_while_the_device_streams_begins_anew() {
    let pty = Pty::new();
    let mut device = Device::start(&pty, 2);
    let path = pty.path.clone();
    // Its own runtime, which ends as a process does: without a word on the line.
    let first = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let guest = SerialGuest::new(path);
            let mut running = start(&guest, &["count", "4000000"]).await;
            assert!(matches!(next(&mut *running).await, Ok(Output::Stdout(_))));
            std::mem::forget(running);
        });
        drop(runtime);
    });
    tokio::task::spawn_blocking(move || first.join().unwrap()).await.unwrap();
    let guest = SerialGuest::new(&pty.path);
    echoes(&guest, 1000).await;
    device.wait_for(|seen| matches!(seen, Seen::Disconnected(Disconnect::Reset))).await;
}

#[tokio::test]
async fn a_device_that_is_unplugged_is_named_and_found_again() {
    let pty = Pty::new();
    let link = std::env::temp_dir().join(format!("triwire-tty-{}", std::process::id()));
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&pty.path, &link).unwrap();
    let device = Device::start(&pty, 4);
    let guest = SerialGuest::new(&link);
    let mut running = start(&guest, &["hang"]).await;
    device.kill().await;
    drop(pty);
    let begun = Instant::now();
    let lost = next(&mut *running).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(lost.why.contains("was it unplugged or switched off?"), "{lost}");
    let why = refused(&guest).await;
    assert!(why.ends_with("there is no such device; plug it in, or correct `device`"), "{why}");

    let pty = Pty::new();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&pty.path, &link).unwrap();
    let _device = Device::start(&pty, 4);
    echoes(&guest, 1000).await;
    std::fs::remove_file(&link).unwrap();
}

#[tokio::test]
async fn a_device_that_cannot_be_used_is_named_with_what_to_do() {
    let why = refused(&SerialGuest::new("/dev/no-such-tty")).await;
    assert_eq!(why, "/dev/no-such-tty: there is no such device; plug it in, or correct `device`");
    let why = refused(&SerialGuest::new("/dev/null")).await;
    assert!(why.starts_with("/dev/null: it is no serial device"), "{why}");

    let pty = Pty::new();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let other = rustix::fs::open(&pty.path, flags, Mode::empty()).unwrap();
    rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    let guest = SerialGuest::new(&pty.path);
    let why = refused(&guest).await;
    assert!(why.contains("another program has it open; end that program"), "{why}");

    // Once it is free again, nothing else is needed.
    drop(other);
    let _device = Device::start(&pty, 4);
    echoes(&guest, 10).await;
}

#[tokio::test]
async fn a_line_that_carries_something_else_is_named() {
    let pty = Pty::new();
    let console = tokio::spawn({
        let master = pty.master.try_clone().unwrap();
        async move {
            let sender = tokio::net::unix::pipe::Sender::from_owned_fd_unchecked(master).unwrap();
            loop {
                let _ = sender.try_write(b"login: \0");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    let why = refused(&SerialGuest::new(&pty.path)).await;
    assert!(why.contains("makes no sense") && why.contains("check `speed`"), "{why}");
    console.abort();
}

/// Slow lines are paced: what waits in the system's buffer is late for the line's bounds.
#[tokio::test]
async fn a_slow_line_keeps_both_sessions_alive() {
    let pty = Pty::new();
    let _device = Device::start(&pty, 4);
    let guest = SerialGuest::new(&pty.path).speed(38_400);
    let mut one = start(&guest, &["cat"]).await;
    let mut two = start(&guest, &["cat"]).await;
    let input = bytes(4_000);
    let begun = Instant::now();
    let (one, two) = tokio::join!(run(&mut *one, &input), run(&mut *two, &input));
    assert!(one.unwrap().0 == input && two.unwrap().0 == input);
    // 8000 bytes at 3840 a second, but for the first quarter of a second.
    assert!(begun.elapsed() > Duration::from_millis(1500), "{:?}", begun.elapsed());
}
