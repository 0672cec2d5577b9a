//! What the process guest leaves behind: nothing. Alone in its program, since it counts what the
//! whole program holds.
#![cfg(all(feature = "guest", target_os = "linux"))]

use std::fs;
use std::future::poll_fn;
use std::time::Duration;

use triwire_std::guest::{Guest, Output, ProcessGuest, Running};
use triwire_std::record::{ExecRequest, ExecResult};

const COMMANDS: usize = 200;

fn sh(script: &str) -> ExecRequest {
    let cmd = ["sh", "-c", script].map(str::to_owned).to_vec();
    ExecRequest { cmd, ..Default::default() }
}

async fn finish(running: &mut dyn Running) -> (usize, ExecResult) {
    let mut read = 0;
    loop {
        match poll_fn(|cx| running.poll_output(cx)).await.unwrap() {
            Output::Stdout(bytes) => read += bytes.len(),
            Output::Stderr(_) => {}
            Output::Exit(result) => return (read, result),
        }
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Our children, zombies among them.
fn children() -> usize {
    let me = std::process::id().to_string();
    let is_ours = |stat: &str| {
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(&me))
    };
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter(|stat| is_ours(stat))
        .count()
}

/// The most memory that this program ever occupied, in KiB.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn settle(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never so: {what}");
}

#[tokio::test]
async fn commands_leave_nothing_behind() {
    let guest = ProcessGuest::new(std::env::temp_dir()).unwrap();
    finish(&mut *guest.start(sh("true")).await.unwrap()).await;
    let before = descriptors();

    for turn in 0..COMMANDS {
        match turn % 4 {
            0 => {
                let mut running = guest.start(sh("echo out; exit 3")).await.unwrap();
                assert_eq!(finish(&mut *running).await.1.exit_code, 3);
            }
            1 => drop(guest.start(sh("sleep 1000 & sleep 1000")).await.unwrap()),
            2 => {
                let cmd = vec!["/no/such/program".to_owned()];
                let request = ExecRequest { cmd, ..Default::default() };
                let mut running = guest.start(request).await.unwrap();
                assert!(!finish(&mut *running).await.1.error.is_empty());
            }
            // Given up while it starts.
            _ => {
                let mut start = guest.start(sh("sleep 1000"));
                poll_fn(|cx| std::task::Poll::Ready(start.as_mut().poll(cx).is_ready())).await;
            }
        }
    }
    settle("no child is left", || children() == 0).await;
    settle("no descriptor is left", || descriptors() <= before).await;

    output_costs_no_memory(&guest).await;
    memory_is_on_the_account_of_who_used_it(&guest).await;
}

// rule: EXEC-48
async fn output_costs_no_memory(guest: &ProcessGuest) {
    let before = peak();
    let mut running = guest.start(sh("head -c 67108864 /dev/zero")).await.unwrap();
    let (read, result) = finish(&mut *running).await;
    assert_eq!((read, result.exit_code), (64 << 20, 0));
    let grown = peak() - before;
    assert!(grown < 4_096, "{grown} KiB more for 64 MiB of output");
}

// rule: EXEC-45
async fn memory_is_on_the_account_of_who_used_it(guest: &ProcessGuest) {
    // What we once used ourselves is on nobody's.
    drop(vec![1_u8; 96 << 20]);
    let script = "dd if=/dev/zero of=/dev/null bs=64M count=2 2>/dev/null; echo done; cat";
    let mut big = guest.start(sh(script)).await.unwrap();
    let output = poll_fn(|cx| big.poll_output(cx)).await.unwrap();
    assert_eq!(output, Output::Stdout("done\n".into()));
    for program in ["true", "/bin/true"] {
        let request = ExecRequest { cmd: vec![program.to_owned()], ..Default::default() };
        let mut small = guest.start(request).await.unwrap();
        let usage = finish(&mut *small).await.1.usage.unwrap();
        assert!(usage.peak_memory_bytes < 32 << 20, "{program}: {usage:?}");
    }
    big.close_stdin();
    let usage = finish(&mut *big).await.1.usage.unwrap();
    assert!(usage.peak_memory_bytes >= 64 << 20, "{usage:?}");
}
