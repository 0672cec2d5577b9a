//! Whole commands over loopback: rates beside a plain copy and beside a pipe, and the memory of
//! the processes.
//!
//! Every peer takes turns with ours, and medians are compared. The command-line tool is built
//! first, so that the run measures what stands in the tree.

use std::error::Error;
use std::future::{Future, pending};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use bytes::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use triwire_bench::{HEADINGS, row};
use triwire_std::client::{Client, Output as Received, Session, Transport};
use triwire_std::guest::{Guest, Lost, Output, Running, Starting, StdinGone};
use triwire_std::record::{ExecRequest, ExecResult};
use triwire_std::server::Server;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const GIB: usize = 1 << 30;
const CHUNK: usize = 64 << 10;
/// What the peer's receiving end reads into: as much as a chunk, and as much as ours. The faster
/// one is the peer.
const READS: [usize; 2] = [CHUNK, 256 << 10];
const ROUNDS: usize = 15;
const SESSIONS: usize = 1000;
const SANDBOX: &str = "local";

/// A sandbox whose commands cost nothing: `stream` writes a GiB, everything else writes a byte and
/// then waits for ever.
struct Synthetic;

enum Made {
    Stream { left: usize, chunk: Bytes },
    Idle { ready: bool },
}

impl Guest for Synthetic {
    fn start(&self, request: ExecRequest) -> Starting<'_> {
        let made = if request.cmd == ["stream"] {
            Made::Stream { left: GIB, chunk: vec![b'x'; CHUNK].into() }
        } else {
            Made::Idle { ready: false }
        };
        Box::pin(async { Ok(Box::new(made) as Box<dyn Running>) })
    }
}

impl Running for Made {
    fn poll_output(&mut self, _: &mut Context<'_>) -> Poll<Result<Output, Lost>> {
        match self {
            Self::Stream { left: 0, .. } => Poll::Ready(Ok(Output::Exit(ExecResult::default()))),
            Self::Stream { left, chunk } => {
                *left -= chunk.len();
                Poll::Ready(Ok(Output::Stdout(chunk.clone())))
            }
            Self::Idle { ready: true } => Poll::Pending,
            Self::Idle { ready } => {
                *ready = true;
                Poll::Ready(Ok(Output::Stdout(Bytes::from_static(b"."))))
            }
        }
    }

    fn poll_stdin(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<Result<usize, StdinGone>> {
        Poll::Pending
    }

    fn close_stdin(&mut self) {}
}

/// Runs a future on a runtime of this thread alone, as both ends of every download do.
fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Serves connections in a thread of its own; returns where.
fn in_a_thread<F>(serve: impl FnOnce(TcpListener) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()>,
{
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || run(async { serve(TcpListener::from_std(listener).unwrap()).await }));
    address
}

fn synthetic() -> Server {
    Server::builder().sandbox(SANDBOX, Arc::new(Synthetic)).open().build().unwrap()
}

fn request(cmd: &[&str]) -> ExecRequest {
    ExecRequest { cmd: cmd.iter().map(|&word| word.to_owned()).collect(), ..Default::default() }
}

/// The peer: accepted connections are sent the same bytes, chunk by chunk.
async fn send_plainly(listener: TcpListener) {
    let chunk = vec![b'x'; CHUNK];
    while let Ok((mut stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        for _ in 0..GIB / CHUNK {
            stream.write_all(&chunk).await.unwrap();
        }
    }
}

/// The peer's other end: reads to the end, and looks at nothing.
fn receive_plainly(address: SocketAddr, read: usize) -> Duration {
    run(async {
        let mut buffer = vec![0; read];
        let start = Instant::now();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut received = 0;
        loop {
            match stream.read(&mut buffer).await.unwrap() {
                0 => break,
                count => received += black_box(&buffer[..count]).len(),
            }
        }
        assert_eq!(received, GIB);
        start.elapsed()
    })
}

/// Ours: a request, then decoded output to the exit.
fn receive(client: &Client, transport: Transport) -> Duration {
    run(async {
        let start = Instant::now();
        let request = request(&["stream"]);
        let mut session =
            client.exec(SANDBOX, &request).transport(transport).start().await.unwrap();
        let mut received = 0;
        while let Some(output) = session.next().await.unwrap() {
            if let Received::Stdout(bytes) = output {
                received += black_box(bytes).len();
            }
        }
        assert_eq!(received, GIB);
        start.elapsed()
    })
}

fn downloads() {
    let plain = in_a_thread(send_plainly);
    let served = in_a_thread(|listener| async move {
        synthetic().serve(listener, pending()).await.unwrap();
    });
    let client = Client::builder(format!("http://{served}")).build().unwrap();
    let mut times = [const { Vec::new() }; 5];
    for _ in 0..ROUNDS {
        times[0].push(receive_plainly(plain, READS[0]));
        times[1].push(receive(&client, Transport::OneShot));
        times[2].push(receive_plainly(plain, READS[1]));
        times[3].push(receive(&client, Transport::WebSocket));
        times[4].push(receive(&client, Transport::Hijack));
    }
    let [plain_small, one_shot, plain_large, socket, hijack] = times.map(median);
    let plain = plain_small.min(plain_large);
    print_rate("1 GiB one-shot, beside a plain tokio TCP copy", one_shot, plain, Some(0.9));
    print_rate("1 GiB over WebSocket, beside the same copy", socket, plain, Some(0.5));
    print_rate("1 GiB over hijack, beside the same copy", hijack, plain, None);
}

/// A gateway of the command-line tool; killed when dropped.
struct Gateway {
    process: Child,
    url: String,
    state: PathBuf,
}

impl Gateway {
    fn start(tool: &Path) -> Outcome<Self> {
        let state = env::temp_dir().join(format!("triwire-bench-{}", std::process::id()));
        let mut command = Command::new(tool);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "error", "--state"]).arg(&state);
        let (process, address) = started(&mut command)?;
        Ok(Self { process, url: format!("http://{address}"), state })
    }

    fn key(&self) -> Outcome<String> {
        let file = fs::read_to_string(self.state.join("key"))?;
        let key = file.lines().find(|line| !line.is_empty() && !line.starts_with('#'));
        Ok(key.ok_or("no key")?.to_owned())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        end(&mut self.process);
        let _ = fs::remove_dir_all(&self.state);
    }
}

fn end(process: &mut Child) {
    let _ = process.kill();
    let _ = process.wait();
}

/// Starts a process and waits for its line `listening on ADDRESS`.
fn started(command: &mut Command) -> Outcome<(Child, String)> {
    let mut process = command.stdout(Stdio::piped()).spawn()?;
    let stdout = process.stdout.take().ok_or("no output")?;
    for line in BufReader::new(stdout).lines() {
        if let Some(address) = line?.strip_prefix("listening on ") {
            return Ok((process, address.to_owned()));
        }
    }
    end(&mut process);
    Err("the gateway ended before it listened".into())
}

/// A line of `/proc/PID/status`, in KiB; `None` once the process ended.
fn status_kib(pid: u32, name: &str) -> Option<usize> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

fn tool() -> Outcome<PathBuf> {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", "triwire-gateway"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()?;
    // This very file stands in the folder `deps` beside it.
    let folder = env::current_exe()?.parent().and_then(Path::parent).map(Path::to_owned);
    let tool = folder.ok_or("no folder of programs")?.join("triwire");
    if built.success() { Ok(tool) } else { Err("the command-line tool does not build".into()) }
}

const GENERATOR: [&str; 4] = ["head", "-c", "1G", "/dev/zero"];

fn real_command(tool: &Path) -> Outcome {
    let gateway = Gateway::start(tool)?;
    let (mut ours, mut peer, mut client_peak) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let piped = Command::new("sh")
            .args(["-c", &format!("{} | cat > /dev/null", GENERATOR.join(" "))])
            .status()?;
        peer.push(start.elapsed());
        assert!(piped.success());

        let start = Instant::now();
        let mut exec = Command::new(tool)
            .args(["exec", "--url", &gateway.url, "--state"])
            .arg(&gateway.state)
            .args([SANDBOX, "--"])
            .args(GENERATOR)
            .stdout(Stdio::null())
            .spawn()?;
        let ended = loop {
            client_peak = client_peak.max(status_kib(exec.id(), "VmHWM").unwrap_or(0));
            if let Some(ended) = exec.try_wait()? {
                break ended;
            }
            thread::sleep(Duration::from_millis(2));
        };
        ours.push(start.elapsed());
        assert!(ended.success());
    }
    let what = "1 GiB of `head` through `triwire exec`, beside `head` through `cat`";
    print_rate(what, median(ours), median(peer), Some(0.5));
    let gateway_peak = status_kib(gateway.process.id(), "VmHWM").unwrap_or(0);
    print_memory("peak memory of the gateway meanwhile", gateway_peak, 64 << 10);
    print_memory("peak memory of `triwire exec` meanwhile", client_peak, 64 << 10);
    Ok(())
}

/// Opens sessions and waits until the command of each said something.
async fn open(client: &Client, transport: Transport, cmd: &[&str]) -> Outcome<Vec<Session>> {
    let request = request(cmd);
    let mut sessions = Vec::with_capacity(SESSIONS);
    for _ in 0..SESSIONS {
        let exec = client.exec(SANDBOX, &request).transport(transport).interactive();
        let mut session = exec.start().await?;
        match session.next().await? {
            Some(Received::Stdout(_)) => sessions.push(session),
            other => return Err(format!("the command did not start: {other:?}").into()),
        }
    }
    Ok(sessions)
}

/// Measures by how much the process grows with each session that stands open and idle, in bytes.
async fn growth(pid: u32, client: &Client, transport: Transport, cmd: &[&str]) -> Outcome<usize> {
    let before = status_kib(pid, "VmRSS").ok_or("the gateway is gone")?;
    let sessions = open(client, transport, cmd).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = status_kib(pid, "VmRSS").ok_or("the gateway is gone")?;
    drop(sessions);
    Ok((after.saturating_sub(before) << 10) / SESSIONS)
}

/// Each measurement has a gateway of its own: memory that one left behind would be the next one's.
fn idle_sessions(tool: &Path) -> Outcome {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    for (transport, name) in [(Transport::Hijack, "hijack"), (Transport::WebSocket, "WebSocket")] {
        let (mut process, address) = started(Command::new(env::current_exe()?).arg(SERVE))?;
        let client = Client::builder(format!("http://{address}")).build()?;
        let grown = run(growth(process.id(), &client, transport, &["idle"]));
        end(&mut process);
        let what = format!("each of {SESSIONS} idle sessions, {name}, guest apart");
        print_memory(&what, grown?.div_ceil(1 << 10), 64);

        let gateway = Gateway::start(tool)?;
        let client = Client::builder(&gateway.url).key(gateway.key()?).build()?;
        let cmd = ["sh", "-c", "echo ready; exec cat"];
        let grown = run(growth(gateway.process.id(), &client, transport, &cmd))?;
        let what = format!("each of {SESSIONS} idle sessions, {name}, `cat` processes");
        print_memory(&what, grown.div_ceil(1 << 10), 64);
    }
    Ok(())
}

/// The argument that makes this program the gateway of idle sessions.
const SERVE: &str = "serve-synthetic";

fn serve() -> Outcome {
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on {}", listener.local_addr()?);
        Ok(synthetic().serve(listener, pending()).await?)
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn print_rate(what: &str, ours: Duration, peer: Duration, goal: Option<f64>) {
    let rate = |time: Duration| format!("{:.0} MiB/s", 1024.0 / time.as_secs_f64());
    let ratio = peer.as_secs_f64() / ours.as_secs_f64();
    let (goal, held) = match goal {
        Some(goal) => (format!("{goal} x"), Some(ratio >= goal)),
        None => (String::new(), None),
    };
    print(&row(what, &rate(ours), &rate(peer), &format!("{ratio:.2} x the rate"), &goal, held));
}

fn print_memory(what: &str, kib: usize, most: usize) {
    let words = |kib: usize| match kib {
        kib if kib < 1024 => format!("{kib} KiB"),
        kib => format!("{:.1} MiB", kib as f64 / 1024.0),
    };
    let goal = format!("at most {}", words(most));
    print(&row(what, &words(kib), "", "", &goal, Some(kib <= most)));
}

fn print(line: &str) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}

fn main() -> Outcome {
    if env::args().any(|argument| argument == SERVE) {
        return serve();
    }
    let tool = tool()?;
    println!("{HEADINGS}");
    downloads();
    real_command(&tool)?;
    idle_sessions(&tool)
}
