//! `triwire demo`: the main job in one command. A gateway on a free port of this machine, real
//! commands over all three transports, and on firmware in QEMU where that is there, and calls to an
//! executor that connects to its channel, each result checked.

mod channel;
mod checks;
mod firmware;
mod run;

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use tokio::net::TcpListener;
use triwire::exec::head::KeyDigest;
use triwire_std::client::{Client, Transport};
use triwire_std::guest::ProcessGuest;
use triwire_std::server::{Keys, Server};

use crate::cli::DemoArgs;
use crate::failure::{Failure, Outcome};
use crate::terminal::{Paint, Progress, Style, columns};
use checks::{Check, Checksum};
use firmware::Board;

/// The exit code when a check did not hold.
const STATUS_FAILED: u8 = 1;
const SANDBOX: &str = "demo";
const TRANSPORTS: [Transport; 3] = [Transport::OneShot, Transport::Hijack, Transport::WebSocket];

/// A check that was made.
struct Row {
    transport: &'static str,
    check: &'static str,
    got: String,
    wrong: Option<String>,
    took_ms: u128,
}

pub(crate) fn run(args: &DemoArgs) -> Outcome {
    let failed = |error| Failure::new(format!("the demo cannot start: {error}"));
    let (root, state) =
        (tempfile::tempdir().map_err(failed)?, tempfile::tempdir().map_err(failed)?);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)?;
    let board = Board::start(args.firmware.as_deref());
    let rows = runtime.block_on(demo(root.path(), state.path(), board.as_ref().ok()))?;
    let absent = board.as_ref().err();
    let shown = if args.json { show_json(&rows, absent) } else { show_table(&rows, absent) };
    if let Err(error) = shown {
        return Failure::output(&error);
    }
    Ok(if rows.iter().all(|row| row.wrong.is_none()) { 0 } else { STATUS_FAILED })
}

async fn demo(root: &Path, state: &Path, board: Option<&Board>) -> Result<Vec<Row>, Failure> {
    let failed = |error: io::Error| Failure::new(format!("the demo cannot start: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let url = format!("http://{}", listener.local_addr().map_err(failed)?);
    let key = triwire_std::entropy::token().map_err(failed)?;
    let keys = Keys::new([KeyDigest::of(key.as_bytes())]);
    let mut builder = Server::builder()
        .sandbox(SANDBOX, Arc::new(ProcessGuest::new(root).map_err(failed)?))
        .keys(keys.clone());
    if let Some(board) = board {
        builder = builder.sandbox(firmware::SANDBOX, Arc::new(board.guest()));
    }
    let (channel, bearer) = channel::of(state, keys).map_err(failed)?;
    let server =
        builder.channel(channel).build().map_err(|error| Failure::new(error.to_string()))?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving =
        tokio::spawn(async move { server.serve(listener, async { drop(stopped.await) }).await });
    let client = Client::builder(url).key(key).build()?;

    let progress = Progress::start();
    progress.say("preparing");
    let checks = checks::all(Checksum::of_pattern());
    let total: usize = TRANSPORTS
        .iter()
        .map(|transport| checks.iter().filter(|c| c.runs_on(*transport)).count())
        .sum();
    let mut rows = Vec::new();
    for transport in TRANSPORTS {
        for check in checks.iter().filter(|check| check.runs_on(transport)) {
            progress.say(format_args!(
                "{}/{total}  {}  {}",
                rows.len() + 1,
                name(transport),
                check.name
            ));
            rows.push(row(&client, transport, check).await);
        }
    }
    if board.is_some() {
        progress.say("firmware in QEMU");
        rows.extend(firmware::rows(&client).await);
    }
    progress.say("a call to an executor");
    rows.extend(channel::rows(&client, bearer).await);
    drop(progress);
    let _ = stop.send(());
    match serving.await {
        Ok(Ok(())) => Ok(rows),
        Ok(Err(error)) => Err(Failure::new(format!("the gateway failed: {error}"))),
        Err(error) => Err(Failure::new(format!("the gateway failed: {error}"))),
    }
}

async fn row(client: &Client, transport: Transport, check: &Check) -> Row {
    let begun = Instant::now();
    let (got, wrong) = match run::run(client, transport, check).await {
        Ok(seen) => (seen.to_string(), check.wrong(&seen)),
        Err(error) => ("no result".to_owned(), Some(error.to_string())),
    };
    let took_ms = begun.elapsed().as_millis();
    Row { transport: name(transport), check: check.name, got, wrong, took_ms }
}

const fn name(transport: Transport) -> &'static str {
    match transport {
        Transport::OneShot => "one-shot",
        Transport::Hijack => "hijack",
        Transport::WebSocket => "ws",
    }
}

fn show_table(rows: &[Row], absent: Option<&String>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let paint = Paint::for_stream(&stdout);
    let head = ["transport", "check", "ms", "", "got"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let mark = if row.wrong.is_none() { "ok" } else { "FAILED" };
        [row.transport, row.check, &row.took_ms.to_string(), mark, &row.got].map(str::to_owned)
    });
    let table = columns(&std::iter::once(head).chain(cells).collect::<Vec<_>>());
    for (line, row) in table.lines().zip(std::iter::once(None).chain(rows.iter().map(Some))) {
        let style = match row {
            None => Style::Bold,
            Some(row) if row.wrong.is_none() => Style::Green,
            Some(_) => Style::Red,
        };
        writeln!(stdout, "{}", paint.text(style, line))?;
        if let Some(wrong) = row.and_then(|row| row.wrong.as_ref()) {
            writeln!(stdout, "    {wrong}")?;
        }
    }
    if let Some(why) = absent {
        writeln!(stdout, "firmware is not shown: {why}")?;
    }
    let held = rows.iter().filter(|row| row.wrong.is_none()).count();
    writeln!(stdout, "{held} of {} checks held", rows.len())
}

fn show_json(rows: &[Row], absent: Option<&String>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    for row in rows {
        let record = json!({
            "transport": row.transport,
            "check": row.check,
            "ok": row.wrong.is_none(),
            "got": row.got,
            "wrong": row.wrong,
            "ms": u64::try_from(row.took_ms).unwrap_or(u64::MAX),
        });
        writeln!(stdout, "{record}")?;
    }
    let held = rows.iter().filter(|row| row.wrong.is_none()).count();
    let summary = json!({
        "checks": rows.len(),
        "held": held,
        "ok": held == rows.len(),
        "firmware": absent.map_or("shown", |why| why.as_str()),
    });
    writeln!(stdout, "{summary}")
}
