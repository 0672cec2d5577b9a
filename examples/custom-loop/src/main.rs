//! Runs two commands at once on an exec server: `uname -sr` in one shot, and one that takes our
//! standard input. One thread, one poll, one deadline for both.

use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use triwire::exec::head::{Mode, RequestHead};
use triwire::exec::request::{MAX_REQUEST_BODY, write_request};
use triwire::exec::session::Output;
use triwire_custom_loop::{Failure, Session};

const USAGE: &str = "\
Usage: triwire-custom-loop http://HOST:PORT/sandboxes/NAME SECONDS [COMMAND…]

COMMAND is `cat` unless given. After SECONDS both commands are given up, and killed by that.
The key is taken from TRIWIRE_KEY.";

/// The sessions have the tokens 0 and 1.
const STDIN: Token = Token(2);
/// The session that takes our standard input.
const INTERACTIVE: usize = 1;

fn main() -> ExitCode {
    match run() {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(125)
        }
    }
}

fn run() -> Result<u8, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, seconds, command @ ..] = &arguments[..] else { return Err(USAGE.into()) };
    let (host, sandbox) =
        url.strip_prefix("http://").and_then(|url| url.split_once("/sandboxes/")).ok_or(USAGE)?;
    let deadline = Instant::now()
        .checked_add(Duration::from_secs(seconds.parse().map_err(|_| USAGE)?))
        .ok_or(USAGE)?;
    let key = std::env::var("TRIWIRE_KEY").ok();
    let head = RequestHead {
        mode: Mode::OneShot,
        sandbox,
        host,
        bearer: key.as_deref(),
        content_length: None,
        path: "",
    };
    let address = host.to_socket_addrs()?.next().ok_or("the host has no address")?;
    let start = |mode, command: &[&str]| {
        let mut json = vec![0; MAX_REQUEST_BODY];
        let json = write_request(command, &[("", ""); 0], "", 0, &mut json)?;
        Session::new(TcpStream::connect(address)?, head, mode, json)
    };
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let command = if command.is_empty() { &["cat"][..] } else { &command };
    let sessions = [start(Mode::OneShot, &["uname", "-sr"])?, start(Mode::Hijack, command)?];
    drive(sessions, deadline)
}

fn drive(mut sessions: [Session<TcpStream>; 2], deadline: Instant) -> Result<u8, Failure> {
    let mut poll = Poll::new()?;
    for (token, session) in sessions.iter_mut().enumerate() {
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(session.stream(), Token(token), interest)?;
    }
    // Kept here too: a waker that is gone takes back what it has not told yet.
    let waker = Arc::new(Waker::new(poll.registry(), STDIN)?);
    let stdin = read_stdin(Arc::clone(&waker));
    let mut unsent: Option<Vec<u8>> = None;
    let mut statuses = [None; 2];
    let mut events = Events::with_capacity(8);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            eprintln!("the time is up");
            return Ok(124); // closing a connection kills its command
        }
        match poll.poll(&mut events, Some(left)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        // Both are asked whoever is ready: a turn of one that is not costs two calls.
        for (session, status) in sessions.iter_mut().zip(&mut statuses) {
            if status.is_none() {
                *status = session.turn(print)?;
            }
        }
        while statuses[INTERACTIVE].is_none() {
            let Some(bytes) = unsent.take().or_else(|| stdin.try_recv().ok()) else { break };
            let session = &mut sessions[INTERACTIVE];
            if !session.stdin(&bytes)? {
                unsent = Some(bytes); // until the connection is writable again
                break;
            }
            statuses[INTERACTIVE] = session.turn(print)?;
        }
        if let [Some(first), Some(second)] = statuses {
            return Ok(first.max(second));
        }
    }
}

/// A write that blocks holds up the loop, and so in the end the commands: that is what is wanted.
fn print(output: Output<'_>) {
    let done = match output {
        Output::Stdout(bytes) => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
        Output::Stderr(bytes) => io::stderr().write_all(bytes),
        Output::Exit(_) => Ok(()),
    };
    if done.is_err() {
        std::process::exit(125); // nobody reads any more
    }
}

/// Standard input cannot be polled everywhere, so a thread reads it; an empty piece is its end.
fn read_stdin(waker: Arc<Waker>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        loop {
            let mut bytes = vec![0; 4096];
            let count = io::stdin().read(&mut bytes).unwrap_or(0);
            bytes.truncate(count);
            if sender.send(bytes).is_err() || waker.wake().is_err() || count == 0 {
                break;
            }
        }
    });
    receiver
}
