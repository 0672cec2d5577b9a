//! Real commands in the process guest.
#![cfg(all(feature = "guest", target_os = "linux"))]

use std::fs;
use std::future::poll_fn;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use triwire_std::guest::{Guest, Output, ProcessGuest, Running, StdinGone};
use triwire_std::record::{ExecRequest, ExecResult};

/// A guest with a fresh root folder, which goes with it.
struct Place {
    guest: ProcessGuest,
    root: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("triwire-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let root = root.canonicalize().unwrap();
        Self { guest: ProcessGuest::new(&root).unwrap(), root }
    }

    async fn start(&self, request: ExecRequest) -> Box<dyn Running> {
        self.guest.start(request).await.unwrap()
    }

    async fn run(&self, request: ExecRequest) -> Finished {
        let mut running = self.start(request).await;
        running.close_stdin();
        finish(&mut *running).await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[derive(Debug)]
struct Finished {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    result: ExecResult,
}

impl Finished {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

async fn finish(running: &mut dyn Running) -> Finished {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match poll_fn(|cx| running.poll_output(cx)).await.unwrap() {
            Output::Stdout(bytes) => {
                assert!((1..=65_536).contains(&bytes.len()));
                stdout.extend_from_slice(&bytes);
            }
            Output::Stderr(bytes) => stderr.extend_from_slice(&bytes),
            Output::Exit(result) => return Finished { stdout, stderr, result },
        }
    }
}

/// Reads standard output up to the first line's end.
async fn line(running: &mut dyn Running) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        match poll_fn(|cx| running.poll_output(cx)).await.unwrap() {
            Output::Stdout(bytes) => line.extend_from_slice(&bytes),
            other => panic!("instead of a line: {other:?}"),
        }
    }
    String::from_utf8(line).unwrap().trim().to_owned()
}

fn command(cmd: &[&str]) -> ExecRequest {
    ExecRequest { cmd: cmd.iter().map(|part| part.to_string()).collect(), ..Default::default() }
}

fn sh(script: &str) -> ExecRequest {
    command(&["sh", "-c", script])
}

/// Waits for a condition by asking, for at most 10 s.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("never so: {what}");
}

/// The state letter of a process; `None` when it is gone.
fn state(pid: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// A process that was killed may wait for whoever adopted it to reap it.
fn is_dead(pid: &str) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

/// The process id that a command wrote into a file of its folder.
fn written_pid(place: &Place) -> String {
    let file = place.root.join("pid");
    wait_until("the pid is written", || {
        fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'))
    });
    fs::read_to_string(&file).unwrap().trim().to_owned()
}

fn kill(pid: &str) {
    assert!(Command::new("kill").args(["-9", pid]).status().unwrap().success());
}

#[tokio::test]
async fn both_streams_and_the_exit_code() {
    let place = Place::new("streams");
    let done = place.run(sh("echo out; echo err >&2; exit 7")).await;
    assert_eq!((done.text(), done.stderr.as_slice()), ("out\n", &b"err\n"[..]));
    assert_eq!((done.result.exit_code, done.result.signal.as_str()), (7, ""));
    assert!(!done.result.timed_out && done.result.error.is_empty());
    assert!(done.result.usage.is_some());
}

#[tokio::test]
async fn both_streams_are_served_when_both_flood() {
    let place = Place::new("fair");
    let mut running = place.start(sh("yes out & yes err >&2")).await;
    let (mut out, mut err) = (0, 0);
    while out < 100 || err < 100 {
        match poll_fn(|cx| running.poll_output(cx)).await.unwrap() {
            Output::Stdout(_) => out += 1,
            Output::Stderr(_) => err += 1,
            Output::Exit(result) => panic!("{result:?}"),
        }
        assert!(out + err < 100_000, "one stream starves: {out} and {err} pieces");
    }
}

/// A stream whose period shares nothing with any buffer's size: pieces that change places show.
struct Pattern(Vec<u8>);

impl Pattern {
    const PERIOD: usize = 65_521;

    fn new() -> Self {
        let one = (0..Self::PERIOD).map(|at| (at.wrapping_mul(at) >> 3) as u8);
        Self(one.clone().chain(one).collect())
    }

    /// A piece of at most `PERIOD` bytes.
    fn piece(&self, at: usize, len: usize) -> &[u8] {
        let start = at % Self::PERIOD;
        &self.0[start..start + len.min(Self::PERIOD)]
    }
}

#[tokio::test]
async fn sixty_four_mib_through_cat_come_back_equal() {
    const TOTAL: usize = 64 << 20;
    let place = Place::new("cat");
    let mut running = place.start(command(&["cat"])).await;
    let (mut sent, mut received) = (0, 0);
    let pattern = Pattern::new();
    let result = poll_fn(|cx| {
        loop {
            let mut moved = false;
            if sent < TOTAL {
                let piece = pattern.piece(sent, TOTAL - sent);
                if let Poll::Ready(taken) = running.poll_stdin(cx, piece) {
                    sent += taken.unwrap();
                    moved = true;
                    if sent == TOTAL {
                        running.close_stdin();
                    }
                }
            }
            match running.poll_output(cx) {
                Poll::Ready(Ok(Output::Stdout(bytes))) => {
                    assert!(bytes.len() <= 65_536);
                    for part in bytes.chunks(Pattern::PERIOD) {
                        assert!(part == pattern.piece(received, part.len()), "at {received}");
                        received += part.len();
                    }
                    moved = true;
                }
                Poll::Ready(Ok(Output::Exit(result))) => return Poll::Ready(result),
                Poll::Ready(other) => panic!("{other:?}"),
                Poll::Pending => {}
            }
            if !moved {
                return Poll::Pending;
            }
        }
    })
    .await;
    assert_eq!((sent, received, result.exit_code), (TOTAL, TOTAL, 0));
}

// rule: EXEC-39
#[tokio::test]
async fn what_stands_in_the_pipes_comes_before_the_exit_however_late() {
    let place = Place::new("late");
    let script = "echo $$ > pid; head -c 50000 /dev/zero; head -c 40000 /dev/zero >&2; exit 9";
    let mut running = place.start(sh(script)).await;
    let pid = written_pid(&place);
    wait_until("the command has ended", || state(&pid) == Some('Z'));
    let done = finish(&mut *running).await;
    assert_eq!((done.stdout.len(), done.stderr.len()), (50_000, 40_000));
    assert_eq!(done.result.exit_code, 9);
}

// rule: EXEC-48
#[tokio::test]
async fn a_reader_that_does_not_read_stops_the_command() {
    let place = Place::new("backpressure");
    let mut running = place.start(sh("echo $$ > pid; exec head -c 8000000 /dev/zero")).await;
    let pid = written_pid(&place);
    let written = || {
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        let wchar = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
        wchar.parse::<u64>().unwrap()
    };
    wait_until("the pipe is full", || {
        fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("pipe"))
            || (state(&pid) == Some('S') && written() >= 65_536)
    });
    assert!(written() < 1_000_000);
    let done = finish(&mut *running).await;
    assert_eq!((done.stdout.len(), done.result.exit_code), (8_000_000, 0));
}

// rule: EXEC-41
#[tokio::test]
async fn the_deadline_kills_the_group() {
    let place = Place::new("deadline");
    let request = ExecRequest { timeout_s: 1, ..sh("sleep 1000 & echo $!; wait") };
    let began = Instant::now();
    let mut running = place.start(request).await;
    let background = line(&mut *running).await;
    let result = finish(&mut *running).await.result;
    let took = began.elapsed();
    assert_eq!((result.exit_code, result.signal.as_str()), (-1, "SIGKILL"));
    assert!(result.timed_out && result.usage.is_some() && result.error.is_empty());
    assert!((1_000..2_900).contains(&result.duration_ms), "{}", result.duration_ms);
    assert!(took < Duration::from_millis(2_900), "not the time of a background child: {took:?}");
    wait_until("the group is dead", || is_dead(&background));
}

// rule: EXEC-41
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_deadline_holds_while_nobody_polls() {
    let place = Place::new("unpolled");
    let request = ExecRequest { timeout_s: 1, ..sh("echo $$ > pid; exec sleep 1000") };
    let mut running = place.start(request).await;
    let pid = written_pid(&place);
    wait_until("the command is killed", || state(&pid) == Some('Z'));
    let result = finish(&mut *running).await.result;
    assert!(result.timed_out && result.duration_ms >= 1_000, "{result:?}");
}

// rule: EXEC-41
#[tokio::test]
async fn one_that_ended_in_time_is_not_timed_out_however_late_we_look() {
    let place = Place::new("in-time");
    let request = ExecRequest { timeout_s: 1, ..sh("exit 3") };
    let mut running = place.start(request).await;
    // The runtime's only thread: the end and the deadline are both past when it looks again.
    thread::sleep(Duration::from_millis(1_200));
    let result = finish(&mut *running).await.result;
    assert_eq!((result.exit_code, result.timed_out, result.signal.as_str()), (3, false, ""));
}

#[tokio::test]
async fn another_s_sigkill_is_no_timeout() {
    let place = Place::new("sigkill");
    let result = place.run(ExecRequest { timeout_s: 100, ..sh("kill -KILL $$") }).await.result;
    assert_eq!(
        (result.exit_code, result.signal.as_str(), result.timed_out),
        (-1, "SIGKILL", false)
    );
}

// rule: EXEC-39
#[tokio::test]
async fn a_background_child_that_holds_the_pipes_gets_two_seconds_and_lives() {
    let place = Place::new("background");
    let mut running = place.start(sh("sleep 1000 & echo $!; exit 4")).await;
    let background = line(&mut *running).await;
    let emptied = Instant::now();
    let result = finish(&mut *running).await.result;
    let took = emptied.elapsed();
    drop(running);
    let alive = !is_dead(&background);
    kill(&background);
    assert!(alive);
    assert_eq!((result.exit_code, result.timed_out, result.signal.as_str()), (4, false, ""));
    assert!(result.duration_ms < 1_500, "the child's time is not the command's");
    assert!((Duration::from_millis(1_900)..Duration::from_secs(8)).contains(&took), "{took:?}");
}

// rule: EXEC-39
#[tokio::test]
async fn a_background_child_that_never_stops_writing_cannot_put_the_exit_off() {
    let place = Place::new("flood");
    let script = "echo first; { while :; do echo more; done; } & echo $! > pid; exit 5";
    let began = Instant::now();
    let done = place.run(sh(script)).await;
    kill(&written_pid(&place));
    assert_eq!(done.result.exit_code, 5);
    assert!(done.stdout.starts_with(b"first\nmore\n"));
    let took = began.elapsed();
    assert!((Duration::from_millis(1_900)..Duration::from_secs(8)).contains(&took), "{took:?}");
}

// rule: EXEC-39
#[tokio::test]
async fn a_background_child_s_output_within_the_time_is_delivered() {
    let place = Place::new("afterwards");
    let began = Instant::now();
    let done = place.run(sh("{ sleep 0.3; echo late; } & exit 6")).await;
    assert_eq!((done.text(), done.result.exit_code), ("late\n", 6));
    assert!(
        began.elapsed() < Duration::from_millis(1_800),
        "the pipes' end is waited for, no more"
    );
}

// rule: EXEC-39
#[tokio::test]
async fn a_background_child_without_our_pipes_delays_nothing() {
    let place = Place::new("detached");
    let began = Instant::now();
    let mut running = place.start(sh("sleep 1000 >/dev/null 2>&1 & echo $!")).await;
    let background = line(&mut *running).await;
    let result = finish(&mut *running).await.result;
    assert!(began.elapsed() < Duration::from_millis(1_500));
    drop(running);
    let alive = !is_dead(&background);
    kill(&background);
    assert!(alive && result.exit_code == 0);
}

// rule: EXEC-22
#[tokio::test]
async fn dropping_kills_the_group_and_the_session_children() {
    let place = Place::new("drop");
    let script = "sleep 1000 & a=$!; setsid sh -c 'sleep 1000 & echo $! > inner; wait' & b=$!; \
                  until [ -s inner ]; do :; done; echo $$ $a $b $(cat inner); wait";
    let mut running = place.start(sh(script)).await;
    let pids = line(&mut *running).await;
    let pids: Vec<&str> = pids.split(' ').collect();
    assert_eq!(pids.len(), 4);
    assert!(pids.iter().all(|pid| !is_dead(pid)));
    drop(running);
    for pid in &pids {
        wait_until("all are dead", || is_dead(pid));
    }
    // The command itself is ours to reap.
    for _ in 0..2_000 {
        if state(pids[0]).is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("a zombie is left");
}

// rule: EXEC-22
#[tokio::test]
async fn dropping_after_the_end_but_before_the_exit_kills_what_is_left_of_the_group() {
    let place = Place::new("drop-late");
    let mut running = place.start(sh("sleep 1000 & echo $!; echo $$ > pid")).await;
    let background = line(&mut *running).await;
    let pid = written_pid(&place);
    wait_until("the command has ended", || state(&pid) == Some('Z'));
    drop(running);
    wait_until("the background child is dead", || is_dead(&background));
}

#[test]
fn dropping_after_the_runtime_kills_and_reaps() {
    let place = Place::new("no-runtime");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut running = runtime.block_on(place.start(sh("echo $$ > pid; exec sleep 1000")));
    let pid = written_pid(&place);
    drop(runtime);
    let waker = std::task::Waker::noop();
    let output = running.poll_output(&mut std::task::Context::from_waker(waker));
    assert!(matches!(output, Poll::Ready(Err(_))), "{output:?}");
    drop(running);
    wait_until("it is reaped", || state(&pid).is_none());
}

// rule: EXEC-43
#[tokio::test]
async fn the_environment_is_exact() {
    let place = Place::new("env");
    let root = place.root.display();
    let path = std::env::var("PATH").unwrap();
    fs::create_dir(place.root.join("sub")).unwrap();
    let request = ExecRequest {
        env: vec![("A".into(), "1=2".into()), ("B".into(), String::new())],
        cwd: "/sub".into(),
        ..command(&["env"])
    };
    let done = place.run(request).await;
    let mut lines: Vec<&str> = done.text().lines().collect();
    lines.sort_unstable();
    let expected = [
        "A=1=2".to_owned(),
        "B=".to_owned(),
        format!("HOME={root}"),
        format!("PATH={path}"),
        format!("PWD={root}/sub"),
        format!("TRIWIRE_ROOT={root}"),
    ];
    assert_eq!(lines, expected);

    let own = ExecRequest {
        env: vec![("HOME".into(), "/h".into()), ("PATH".into(), "/bin:/usr/bin".into())],
        ..command(&["sh", "-c", "echo $HOME $PATH $PWD"])
    };
    assert_eq!(place.run(own).await.text(), format!("/h /bin:/usr/bin {root}\n"));

    let inheriting = place.guest.clone().inherit_env(true);
    let mut running = inheriting.start(command(&["env"])).await.unwrap();
    let done = finish(&mut *running).await;
    let has = |name: &str| done.text().lines().any(|line| line.split('=').next() == Some(name));
    assert!(std::env::vars().all(|(name, _)| has(&name)));
    assert!(done.text().contains(&format!("HOME={root}\n")));
}

// rule: EXEC-44
#[tokio::test]
async fn the_working_directory_stays_beneath_the_root() {
    let place = Place::new("cwd");
    let root = place.root.display().to_string();
    fs::create_dir_all(place.root.join("a/b")).unwrap();
    fs::write(place.root.join("file"), "").unwrap();
    symlink("a/b", place.root.join("inside")).unwrap();
    symlink("/", place.root.join("outside")).unwrap();
    symlink("../..", place.root.join("above")).unwrap();
    let cases = [
        ("", Ok("")),
        ("/", Ok("")),
        ("/a/b", Ok("/a/b")),
        ("a", Ok("/a")),
        ("/a/b/..", Ok("/a")),
        ("/inside", Ok("/a/b")),
        ("/outside", Err("cwd /outside: leads out of the sandbox's folder")),
        ("/outside/etc", Err("cwd /outside/etc: leads out of the sandbox's folder")),
        ("/above", Err("cwd /above: leads out of the sandbox's folder")),
        ("..", Err("cwd ..: leads out of the sandbox's folder")),
        ("/a/../..", Err("cwd /a/../..: leads out of the sandbox's folder")),
        ("/none", Err("cwd /none: no such directory")),
        ("/file", Err("cwd /file: not a directory")),
    ];
    for (cwd, expected) in cases {
        let request = ExecRequest { cwd: cwd.into(), ..sh("echo $PWD; pwd -P") };
        let done = place.run(request).await;
        match expected {
            Ok(below) => {
                assert_eq!(done.text(), format!("{root}{below}\n{root}{below}\n"), "{cwd}")
            }
            Err(why) => {
                assert_eq!(done.result.error, why);
                assert_eq!((done.result.exit_code, done.result.usage), (-1, None));
                assert_eq!(done.result.as_core().status(), 125);
            }
        }
    }
}

// rule: EXEC-42
#[tokio::test]
async fn a_command_that_cannot_start_says_why() {
    let place = Place::new("start");
    fs::write(place.root.join("plain"), "echo").unwrap();
    let script = place.root.join("script");
    fs::write(&script, "#!/bin/sh\npwd\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(place.root.join("dir")).unwrap();
    let cases = [
        ("no-such-program", "no-such-program: not found", 127),
        ("./no-such-program", "./no-such-program: not found", 127),
        ("./plain", "./plain: permission denied", 126),
        ("./dir", "./dir: permission denied", 126),
        ("./plain/program", "./plain/program: Not a directory (os error 20)", 125),
    ];
    for (program, why, status) in cases {
        let mut running = place.start(command(&[program])).await;
        assert_eq!(poll_fn(|cx| running.poll_stdin(cx, b"x")).await, Err(StdinGone));
        let result = finish(&mut *running).await.result;
        assert_eq!((result.exit_code, result.error.as_str()), (-1, why));
        assert_eq!(result.as_core().status(), status);
        assert_eq!((result.usage, result.duration_ms, result.timed_out), (None, 0, false));
    }
    // Programs are looked up as the command would: by its own PATH, and from its own folder.
    let by_path = ExecRequest { env: vec![("PATH".into(), "/nowhere".into())], ..command(&["ls"]) };
    assert_eq!(place.run(by_path).await.result.error, "ls: not found");
    let named = |path: &str| ExecRequest {
        env: vec![("PATH".into(), format!("/nowhere:{path}:/plain"))],
        ..command(&["plain"])
    };
    let here = place.root.display().to_string();
    assert_eq!(place.run(named(&here)).await.result.error, "plain: permission denied");
    assert_eq!(place.run(named(".")).await.result.error, "plain: permission denied");
    assert_eq!(place.run(named("dir")).await.result.error, "plain: not found");
    let relative = ExecRequest { cwd: "/dir".into(), ..command(&["../script"]) };
    assert_eq!(place.run(relative).await.text(), format!("{}/dir\n", place.root.display()));
}

#[tokio::test]
async fn a_signal_is_told_by_name() {
    let place = Place::new("signal");
    for name in ["TERM", "SEGV", "HUP", "XCPU", "SYS", "RTMIN+3"] {
        // A core dump is no part of the test.
        let script = format!("ulimit -c 0; kill -{name} $$");
        let result = place.run(command(&["bash", "-c", &script])).await.result;
        assert_eq!((result.exit_code, result.signal), (-1, format!("SIG{name}")));
        assert!(!result.timed_out && result.usage.is_some());
    }
}

#[tokio::test]
async fn stdin_is_gone_when_the_command_closed_it() {
    let place = Place::new("stdin");
    let mut running = place.start(sh("exec 0<&-; echo closed; exec sleep 1000")).await;
    assert_eq!(line(&mut *running).await, "closed");
    assert_eq!(poll_fn(|cx| running.poll_stdin(cx, b"x")).await, Err(StdinGone));
    assert_eq!(poll_fn(|cx| running.poll_stdin(cx, b"x")).await, Err(StdinGone));
    running.close_stdin();
}

// rule: EXEC-47
#[tokio::test]
async fn closing_stdin_is_its_end() {
    let place = Place::new("eof");
    let mut running = place.start(command(&["cat"])).await;
    assert_eq!(poll_fn(|cx| running.poll_stdin(cx, b"")).await, Ok(0));
    assert_eq!(poll_fn(|cx| running.poll_stdin(cx, b"abc")).await, Ok(3));
    running.close_stdin();
    running.close_stdin();
    let done = finish(&mut *running).await;
    assert_eq!((done.text(), done.result.exit_code), ("abc", 0));
}

// rule: EXEC-39
#[tokio::test]
async fn the_exit_comes_whatever_the_state_of_stdin() {
    let place = Place::new("open-stdin");
    let mut running = place.start(sh("exit 2")).await;
    assert_eq!(finish(&mut *running).await.result.exit_code, 2);
}

// rule: EXEC-45
#[tokio::test]
async fn usage_is_plausible() {
    let place = Place::new("usage");
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let busy = place.run(sh(busy)).await.result;
    let used = busy.usage.unwrap();
    assert!(used.cpu_user_ms > 20, "{busy:?}");
    assert!(used.cpu_user_ms + used.cpu_sys_ms <= busy.duration_ms + 50, "{busy:?}");
    assert!(used.peak_memory_bytes > 100_000, "{busy:?}");
}

#[test]
fn a_root_that_is_not_there_is_refused() {
    let missing = Path::new("/no/such/folder");
    assert_eq!(ProcessGuest::new(missing).unwrap_err().kind(), std::io::ErrorKind::NotFound);
}
