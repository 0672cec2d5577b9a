//! The demo's device: the firmware of `examples/firmware` in QEMU, at its serial port.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use triwire_std::client::{Client, ClientError, Output, Transport};
use triwire_std::guest::SerialGuest;
use triwire_std::record::ExecRequest;

use super::Row;

pub(super) const SANDBOX: &str = "mcu";
const QEMU: &str = "qemu-system-arm";
const MACHINE: &str = "lm3s6965evb";
/// Where `tests/run device` builds the image, from the folder of this program's own folder.
const BUILT: &str = "bare/thumbv7m-none-eabi/release/lm3s6965evb";
/// How long the board may take to be on the line: QEMU looks once a second whether somebody has
/// opened its port.
const UP_BOUND: Duration = Duration::from_secs(10);
/// Bytes that are hashed on the device.
const FILE: usize = 16 * 1024;

/// A board that runs; it ends with the value.
pub(super) struct Board {
    child: Child,
    port: PathBuf,
    /// While somebody has the port open, QEMU hears what is written to it. A device that asks for
    /// the line and hears no answer begins anew each time.
    _open: Option<File>,
}

impl Board {
    /// Switches it on, or says why it is not shown and what to do.
    pub(super) fn start(image: Option<&Path>) -> Result<Self, String> {
        let image = match image {
            Some(image) => image.to_owned(),
            None => built().ok_or(
                "there is no image; `tests/run device` builds it, or name one with --firmware",
            )?,
        };
        if !image.exists() {
            return Err(format!(
                "there is no image {}; build it, or name another",
                image.display()
            ));
        }
        let mut child = Command::new(QEMU)
            .args(["-machine", MACHINE, "-display", "none", "-monitor", "none", "-serial", "pty"])
            .arg("-kernel")
            .arg(image)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{QEMU} does not start ({error}); install it"))?;
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            // What it does not say is judged below.
            let _ = BufReader::new(stdout).read_line(&mut said);
        }
        let port = said.split_whitespace().map(PathBuf::from).find(|word| word.starts_with("/dev"));
        let mut board = Self { child, port: PathBuf::new(), _open: None };
        board.port =
            port.ok_or_else(|| format!("{QEMU} named no serial port; try another version"))?;
        board._open = OpenOptions::new().read(true).write(true).open(&board.port).ok();
        Ok(board)
    }

    pub(super) fn guest(&self) -> SerialGuest {
        SerialGuest::new(&self.port)
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn built() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let image = program.parent()?.parent()?.join(BUILT);
    image.exists().then_some(image)
}

/// Runs commands on the device and checks each.
pub(super) async fn rows(client: &Client) -> Vec<Row> {
    let begun = Instant::now();
    while begun.elapsed() < UP_BOUND && run(client, &["echo"], b"").await.is_err() {}
    let file = b"triwire demo\n".repeat(FILE / 13);
    let sum: String = Sha256::digest(&file).iter().map(|byte| format!("{byte:02x}")).collect();
    /// What is checked, the command, its input, and what must come of it.
    type Checked<'c> = (&'static str, &'c [&'c str], &'c [u8], String, i32);
    let checks: [Checked<'_>; 3] = [
        ("a command on a Cortex-M3", &["echo", "hello"], b"", "hello\n".into(), 0),
        ("a file hashed there", &["sha256"], &file, sum + "\n", 0),
        ("its exit code", &["fail", "7"], b"", String::new(), 7),
    ];
    let mut rows = Vec::new();
    for (check, command, input, stdout, exit_code) in checks {
        let begun = Instant::now();
        let expected = (stdout, exit_code);
        let (got, wrong) = match run(client, command, input).await {
            Ok(got) if got == expected => (got.0.trim_end().to_owned(), None),
            Ok(got) => (format!("{got:?}"), Some(format!("expected {expected:?}"))),
            Err(error) => ("no result".to_owned(), Some(error.to_string())),
        };
        let took_ms = begun.elapsed().as_millis();
        rows.push(Row { transport: "serial", check, got, wrong, took_ms });
    }
    rows
}

async fn run(
    client: &Client,
    command: &[&str],
    input: &[u8],
) -> Result<(String, i32), ClientError> {
    let cmd = command.iter().map(|&word| word.to_owned()).collect();
    let request = ExecRequest { cmd, timeout_s: 20, ..ExecRequest::default() };
    let exec = client.exec(SANDBOX, &request).transport(Transport::Hijack).interactive();
    let mut session = exec.start().await?;
    session.forward_stdin(std::io::Cursor::new(input.to_vec()));
    let mut stdout = Vec::new();
    while let Some(output) = session.next().await? {
        if let Output::Stdout(bytes) = output {
            stdout.extend_from_slice(bytes);
        }
    }
    let exit_code = session.result().unwrap_or_default().exit_code;
    Ok((String::from_utf8_lossy(&stdout).into_owned(), exit_code))
}
