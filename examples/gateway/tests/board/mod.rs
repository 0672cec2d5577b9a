//! Boards in QEMU that run examples/firmware, and a gateway at their serial port.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::OptionalActions;
use serde_json::{Value, json};
use tempfile::TempDir;
use triwire::line::{Event, Line, Packet, Reset, Role, Slot};
use triwire::time::{Instant as Moment, UnixMillis};

use super::support::{Gateway, feed, triwire};

/// The two boards that QEMU knows: its machine, and what holds the path of the firmware's image.
pub(crate) const BOARDS: [(&str, &str); 2] =
    [("lm3s6965evb", "TRIWIRE_FIRMWARE"), ("microbit", "TRIWIRE_FIRMWARE_MICROBIT")];

/// The key of every gateway here.
const KEY: &str = "0123456789abcdef";

/// A tool of the firmware's: its extension, its name and the bounds that it is admitted with.
pub(crate) type Tool = (&'static str, &'static str, &'static str);

/// A board that runs.
pub(crate) struct Board {
    child: Child,
    monitor: PathBuf,
    /// What the serial port is for the host: a pty, or the socket it was told to be.
    pub(crate) port: PathBuf,
    _cable: Option<fs::File>,
    _folder: TempDir,
}

impl Board {
    /// Switches one on, with its serial port at a pty.
    pub(crate) fn start(machine: &str) -> Self {
        Self::with(machine, "pty", None)
    }

    /// Switches one on, with its serial port at a socket.
    pub(crate) fn at_socket(machine: &str, socket: &Path) -> Self {
        let serial = format!("unix:{},server=on,wait=off", socket.display());
        Self::with(machine, &serial, Some(socket))
    }

    fn with(machine: &str, serial: &str, socket: Option<&Path>) -> Self {
        let (_, variable) = BOARDS.iter().find(|(name, _)| *name == machine).unwrap();
        let image = std::env::var(variable)
            .unwrap_or_else(|_| panic!("{variable} names no image; see `tests/run device`"));
        let folder = tempfile::tempdir().unwrap();
        let monitor = folder.path().join("monitor");
        let mut child = Command::new("qemu-system-arm")
            .args([
                "-machine", machine, "-display", "none", "-serial", serial, "-monitor", "none",
                "-qmp",
            ])
            .arg(format!("unix:{},server=on,wait=off", monitor.display()))
            .args(["-kernel", &image])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("qemu-system-arm");
        let stdout = child.stdout.take().unwrap();
        let port = match socket {
            Some(socket) => {
                until(|| socket.exists() && monitor.exists());
                socket.to_owned()
            }
            None => {
                let mut said = String::new();
                BufReader::new(stdout).read_line(&mut said).unwrap();
                let words = said.split_whitespace();
                words.map(PathBuf::from).find(|word| word.starts_with("/dev")).expect("a pty")
            }
        };
        let cable = socket.is_none().then(|| plugged(&port));
        Self { child, monitor, port, _cable: cable, _folder: folder }
    }

    /// Resets the processor, as its button does.
    pub(crate) fn reset(&self) {
        self.order(&["system_reset"]);
    }

    /// Holds the processor still.
    pub(crate) fn pause(&self) {
        self.order(&["stop"]);
    }

    /// Lets it go on, from its reset.
    pub(crate) fn go_on_from_reset(&self) {
        self.order(&["system_reset", "cont"]);
    }

    fn order(&self, orders: &[&str]) {
        let mut monitor = UnixStream::connect(&self.monitor).unwrap();
        for order in [&["qmp_capabilities"], orders].concat() {
            write!(monitor, "{{\"execute\":\"{order}\"}}").unwrap();
        }
        monitor.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let lines = BufReader::new(monitor).lines().map(|line| line.expect("an answer"));
        let done = lines.filter(|line| line.contains(r#""return""#)).take(1 + orders.len());
        assert_eq!(done.count(), 1 + orders.len());
    }

    /// Pulls the plug.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Holds a pty open, and waits until the board hears what comes: QEMU looks only once a second
/// whether somebody has opened it.
fn plugged(pty: &Path) -> fs::File {
    let mut cable = fs::OpenOptions::new().read(true).write(true).open(pty).unwrap();
    let mut line = Line::new(Role::Gateway, 0, 1024, [Slot::EMPTY]);
    let mut out = [0; 256];
    let ask = line.write_due(Moment::ZERO, UnixMillis::default(), &mut out).unwrap().unwrap();
    cable.write_all(ask).unwrap();
    let (mut packet, mut room) = (Packet::new(), [0; 256]);
    loop {
        let count = cable.read(&mut room).unwrap();
        let mut input = &room[..count];
        while let Some(event) = line.feed(Moment::ZERO, &mut input, &mut packet) {
            if matches!(event, Event::Reset { kind: Reset::Answered, .. }) {
                return cable;
            }
            // It asked before it heard us: that ended our asking, not our wait.
            line.link_down();
        }
    }
}

/// Waits for something that takes a moment and has no other sign.
pub(crate) fn until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A gateway with one sandbox, `mcu`, at the device that `tty` stands for, which is the executor
/// `mcu` as well.
pub(crate) struct Desk {
    folder: TempDir,
    pub(crate) gateway: Gateway,
}

impl Desk {
    pub(crate) fn at(device: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("keys"), format!("{KEY}\n")).unwrap();
        let text = "listen = \"127.0.0.1:0\"\nkey_file = \"keys\"\n\
                    [sandboxes.mcu]\nkind = \"serial\"\ndevice = \"tty\"\n\
                    executor = \"mcu\"\n[channel]\nextensions_dir = \".\"\n";
        fs::write(folder.path().join("triwire.toml"), text).unwrap();
        symlink(device, folder.path().join("tty")).unwrap();
        let gateway = serve(folder.path());
        Self { folder, gateway }
    }

    /// The same, once the device is on the line.
    pub(crate) fn on_line(device: &Path) -> Self {
        let desk = Self::at(device);
        desk.wait();
        desk
    }

    /// Waits until the device answers.
    pub(crate) fn wait(&self) {
        until(|| self.exec(&["echo"]).status.success());
    }

    /// Plugs another device in.
    pub(crate) fn plug(&self, device: &Path) {
        let tty = self.folder.path().join("tty");
        fs::remove_file(&tty).unwrap();
        symlink(device, tty).unwrap();
    }

    /// Ends the gateway without a word, and starts another.
    pub(crate) fn restart(&mut self) {
        let fresh = self.gateway.address.clone();
        let text = fs::read_to_string(self.folder.path().join("triwire.toml")).unwrap();
        let text = text.replace("127.0.0.1:0", &fresh);
        fs::write(self.folder.path().join("triwire.toml"), text).unwrap();
        self.gateway.kill();
        self.gateway = serve(self.folder.path());
    }

    /// Begins `triwire exec … mcu -- WORDS`.
    pub(crate) fn command(&self, flags: &[&str], words: &[&str]) -> Command {
        let keys = self.folder.path().join("keys");
        let mut command = self.gateway.exec(&["--key-file", keys.to_str().unwrap()]);
        command.args(flags).args(["mcu", "--"]).args(words);
        command
    }

    pub(crate) fn exec(&self, words: &[&str]) -> Output {
        self.command(&[], words).output().unwrap()
    }

    pub(crate) fn exec_with(&self, words: &[&str], stdin: &[u8]) -> Output {
        feed(&mut self.command(&["-i"], words), stdin)
    }

    /// Makes a call to the executor `mcu`, and answers its outcome: what was observed, or the word
    /// of the refusal.
    pub(crate) fn call(&self, tool: Tool, args: &Value) -> Result<Value, String> {
        self.call_within(tool, args, 5_000)
    }

    /// The same, within so many ms.
    pub(crate) fn call_within(&self, tool: Tool, args: &Value, ms: u64) -> Result<Value, String> {
        let (extension, tool, bounds) = tool;
        let bounds: Value = serde_json::from_str(bounds).unwrap();
        let body = json!({
            "executor": "mcu", "tool": tool, "descriptorId": extension, "args": args,
            "boundsEcho": bounds, "timeoutMs": ms,
        })
        .to_string();
        let address = &self.gateway.address;
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST /channel/calls HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
        assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
        let mut answer: Value = serde_json::from_str(body).unwrap();
        assert_eq!(answer["v"], 1);
        if answer["ok"] == true {
            return Ok(answer["observed"].take());
        }
        assert_ne!(answer["why"], "");
        Err(answer["refused"].as_str().unwrap().to_owned())
    }

    /// Starts a command, and answers once its first line of output is there.
    pub(crate) fn running(&self, words: &[&str]) -> Running {
        let mut command = self.command(&["--transport", "hijack"], words);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "it ended");
        let rest = std::thread::spawn(move || {
            let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        });
        Running { child, rest }
    }
}

fn serve(folder: &Path) -> Gateway {
    Gateway::of(triwire().args(["serve", "--config"]).arg(folder.join("triwire.toml")))
}

/// A command that writes.
pub(crate) struct Running {
    child: Child,
    rest: JoinHandle<()>,
}

impl Running {
    /// Ends the client, not the command.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.end();
    }

    /// Waits for its end: the exit code and what it said.
    pub(crate) fn end(self) -> (Option<i32>, String) {
        let output = self.child.wait_with_output().unwrap();
        self.rest.join().unwrap();
        (output.status.code(), super::support::stderr(&output))
    }
}

/// A serial line of 115 200 baud between a pty and a board's socket.
pub(crate) struct Wire {
    pub(crate) pty: PathBuf,
    /// Bytes to the board and from it.
    pub(crate) carried: Arc<[AtomicU64; 2]>,
}

impl Wire {
    pub(crate) fn between(socket: &Path) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags).unwrap();
        rustix::pty::grantpt(&master).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
        let pty = PathBuf::from(name.into_string().unwrap());
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        // It stays open, so that the line outlives who opens it.
        let keep = rustix::fs::open(&pty, flags, Mode::empty()).unwrap();
        let mut settings = rustix::termios::tcgetattr(&keep).unwrap();
        settings.make_raw();
        rustix::termios::tcsetattr(&keep, OptionalActions::Now, &settings).unwrap();
        let board = UnixStream::connect(socket).unwrap();
        let carried = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let host = fs::File::from(master);
        let ways = [
            (
                host.try_clone().unwrap(),
                fs::File::from(std::os::fd::OwnedFd::from(board.try_clone().unwrap())),
            ),
            (fs::File::from(std::os::fd::OwnedFd::from(board)), host),
        ];
        for (at, (from, to)) in ways.into_iter().enumerate() {
            let carried = Arc::clone(&carried);
            std::thread::spawn(move || carry(from, to, &carried[at]));
        }
        std::mem::forget(keep);
        Self { pty, carried }
    }

    pub(crate) fn counts(&self) -> [u64; 2] {
        [0, 1].map(|at| self.carried[at].load(Ordering::Relaxed))
    }
}

/// Bytes that a line of 115 200 baud carries in a second.
pub(crate) const BYTES_PER_S: u64 = 11_520;

/// How far the line may be behind its own speed.
const SLACK: Duration = Duration::from_millis(5);

fn carry(mut from: impl Read, mut to: impl Write, carried: &AtomicU64) {
    let mut room = [0; 16];
    let mut free = Instant::now();
    while let Ok(count @ 1..) = from.read(&mut room) {
        let takes = Duration::from_micros(count as u64 * 1_000_000 / BYTES_PER_S);
        // What a sleep was too long by is made up for.
        free = free.max(Instant::now() - SLACK) + takes;
        std::thread::sleep(free.saturating_duration_since(Instant::now()));
        if to.write_all(&room[..count]).is_err() {
            return;
        }
        carried.fetch_add(count as u64, Ordering::Relaxed);
    }
}
