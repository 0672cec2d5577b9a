//! `triwire executor`: commands of this machine as tools of a gateway's channel.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use serde_json::json;
use tracing::info;
use tracing_subscriber::EnvFilter;
use triwire::channel::envelope::MAX_MESSAGE;
use triwire_std::client::{Observed, Outcome as CallOutcome, Ran, Secret, ToolCall};
use triwire_std::guest::{Guest, Output, ProcessGuest, Running};
use triwire_std::record::{ExecRequest, ExecResult};

use super::tools::{Tool, Tools};
use crate::cli::ExecutorArgs;
use crate::failure::{Failure, Outcome};
use crate::keys;
use crate::terminal::Paint;

const VARIABLE: &str = "TRIWIRE_BEARER";
/// The most of a command's standard error that is looked at, in bytes.
const MAX_ERRORS: usize = 4096;

pub(crate) fn run(args: &ExecutorArgs) -> Outcome {
    let tools = Arc::new(Tools::read(&args.tools)?);
    let bearer = bearer(args)?;
    let filter = EnvFilter::try_new(&args.log)
        .map_err(|error| Failure::new(format!("--log {:?}: {error}", args.log)))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(Paint::for_stream(&io::stderr()).is_on())
        .init();
    let root = tools.root().display();
    let guest = ProcessGuest::new(tools.root())
        .map_err(|error| Failure::new(format!("the root {root} cannot be used: {error}")))?;
    let guest = Arc::new(guest);
    let client = super::client(&args.server)?.build()?;
    let known = Arc::clone(&tools);
    let mut executor = client
        .executor(bearer, move |call| {
            let (guest, tools) = (Arc::clone(&guest), Arc::clone(&known));
            async move {
                // The door has checked that it is admitted.
                let tool = tools.find(&call.descriptor_id, &call.tool).ok_or("no such tool")?;
                carry_out(&guest, tool, call).await
            }
        })
        .concurrency(tools.concurrency);
    for (extension, of) in &tools.tools {
        for (name, tool) in of {
            executor = executor
                .admit(extension, name, tool.bounds())
                .map_err(|error| Failure::new(format!("{extension}/{name}: bounds: {error}")))?;
            info!(tool = format!("{extension}/{name}"), bounds = tool.bounds(), "admitted");
        }
    }
    super::block_on(async {
        let stop = crate::serve::stop()?;
        executor.run(stop).await.map_err(|error| Failure::new(error.to_string()))?;
        info!("stopped");
        Ok(0)
    })
}

fn bearer(args: &ExecutorArgs) -> Result<Secret, Failure> {
    if let Some(path) = &args.bearer_file {
        if keys::others_may_read(path) {
            let shown = path.display();
            eprintln!("triwire: others may read {shown}; close it with: chmod 600 {shown}");
        }
        return Secret::from_file(path).map_err(|error| {
            Failure::new(format!("the bearer {} cannot be read: {error}", path.display()))
        });
    }
    match std::env::var(VARIABLE) {
        Ok(bearer) => Ok(Secret::new(bearer.trim())),
        Err(_) => Err(Failure::new(format!(
            "there is no bearer; make one with triwire pair NAME, and name its file with \
             --bearer-file, or set {VARIABLE}"
        ))),
    }
}

/// Runs a tool's command: the arguments are its input, its output what was observed.
async fn carry_out(guest: &ProcessGuest, tool: &Tool, call: ToolCall) -> Ran {
    let request = ExecRequest {
        cmd: tool.command.clone(),
        env: tool.env.clone().into_iter().collect(),
        cwd: String::new(),
        timeout_s: tool.timeout,
    };
    let mut running = guest.start(request).await.map_err(|error| error.to_string())?;
    let Collected { output, errors, result } =
        collect(&mut *running, call.args.as_bytes(), MAX_MESSAGE).await?;
    let status = result.as_core().status();
    if status != 0 {
        let why = match (result.timed_out, result.error.as_str()) {
            (true, _) => format!("the command ran longer than {} s", tool.timeout),
            (false, "") => format!("the command ended with exit code {status}"),
            (false, error) => format!("the command ended with exit code {status}: {error}"),
        };
        let errors = String::from_utf8_lossy(&errors);
        return Err(match errors.trim_end().lines().last() {
            Some(line) if !line.is_empty() => format!("{why}: {line}"),
            _ => why,
        });
    }
    let text = String::from_utf8(output);
    let text = text.map_err(|_| "the command's output is not UTF-8 text".to_owned())?;
    let text = if tool.raw { json!({ "text": text }).to_string() } else { text.trim().to_owned() };
    let observed = Observed::parse(text)
        .map_err(|error| format!("the command's output is no JSON object: {error}"))?;
    Ok(CallOutcome::Observed(observed))
}

struct Collected {
    output: Vec<u8>,
    /// The end of standard error.
    errors: Vec<u8>,
    result: ExecResult,
}

/// Feeds a command and collects what it writes, at most `limit` bytes.
async fn collect(
    running: &mut dyn Running,
    mut input: &[u8],
    limit: usize,
) -> Result<Collected, String> {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let mut is_open = true;
    loop {
        let next = poll_fn(|cx| {
            while is_open {
                if input.is_empty() {
                    running.close_stdin();
                    is_open = false;
                    break;
                }
                match running.poll_stdin(cx, input) {
                    std::task::Poll::Ready(Ok(taken)) => input = &input[taken..],
                    // It reads no more.
                    std::task::Poll::Ready(Err(_)) => is_open = false,
                    std::task::Poll::Pending => break,
                }
            }
            running.poll_output(cx)
        });
        match next.await.map_err(|lost| lost.to_string())? {
            Output::Stdout(bytes) => {
                if output.len() + bytes.len() > limit {
                    return Err(format!("the command wrote more than {limit} bytes"));
                }
                output.extend_from_slice(&bytes);
            }
            Output::Stderr(bytes) => {
                errors.extend_from_slice(&bytes);
                errors.drain(..errors.len().saturating_sub(MAX_ERRORS));
            }
            Output::Exit(result) => return Ok(Collected { output, errors, result }),
        }
    }
}
