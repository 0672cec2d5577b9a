//! `triwire exec`: one command on a gateway, as if it ran here.

mod output;

use std::io;
use std::thread;

use triwire_std::client::{Client, ClientError, DEFAULT_URL, Output, Session, Transport};
use triwire_std::record::{ExecRequest, ExecResult};
use triwire_std::tls::ClientTls;

use crate::cli::{ExecArgs, TransportName};
use crate::config;
use crate::failure::{Failure, Outcome};
use crate::keys::{self, Source};
use crate::terminal::Printable;
use output::{Descriptors, JsonLines, Sink, Stream};

/// The exit code of a tool that Ctrl-C ended: 128 + SIGINT.
const STATUS_INTERRUPTED: i32 = 130;

impl From<TransportName> for Transport {
    fn from(name: TransportName) -> Self {
        match name {
            TransportName::Ws => Self::WebSocket,
            TransportName::Hijack => Self::Hijack,
            TransportName::OneShot => Self::OneShot,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::new(error.to_string())
    }
}

pub(crate) fn run(args: &ExecArgs) -> Outcome {
    end_on_interrupt()?;
    let url = args.client.url.as_deref().unwrap_or(DEFAULT_URL);
    let mut builder = Client::builder(url);
    let state = || config::state(&args.state).map(|state| state.value);
    let (key, source) = keys::for_client(args.client.key_file.as_deref(), state, url)?;
    if let Some(key) = key {
        builder = builder.key(key.expose());
    }
    if let Some(ca) = &args.client.ca {
        let tls =
            ClientTls::from_file(ca).map_err(|error| Failure::new(format!("--ca: {error}")))?;
        builder = builder.tls(tls);
        if url.starts_with("http://") {
            eprintln!("triwire: --ca is not used: {url} is reached without TLS");
        }
    }
    let client = builder.build()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no runtime to connect with: {error}")))?;
    let ended = runtime.block_on(async {
        let session = start(&client, args).await.map_err(|failed| refused(failed, &source))?;
        if args.json {
            follow(session, JsonLines::new(io::stdout()), args).await
        } else {
            follow(session, Descriptors::open()?, args).await
        }
    });
    // A read of standard input may never return.
    runtime.shutdown_background();
    ended
}

/// Ends the process at Ctrl-C, from a thread that no blocked output can hold up. The connection
/// closes with the process, which ends the command.
fn end_on_interrupt() -> Result<(), Failure> {
    let failed = |error| Failure::new(format!("Ctrl-C cannot be waited for: {error}"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    thread::spawn(move || {
        runtime.block_on(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                std::process::exit(STATUS_INTERRUPTED);
            }
        });
    });
    Ok(())
}

/// Adds what this tool alone knows: where the key came from, and whom it was told to trust.
fn refused(failed: ClientError, source: &Source) -> Failure {
    Failure::new(match &failed {
        ClientError::Refused { status: 401, .. } => format!("{failed}; {source}"),
        ClientError::Tls { .. } if failed.code() == "tls_unknown_issuer" => {
            format!("{failed}; name the CA's certificate with --ca FILE")
        }
        _ => failed.to_string(),
    })
}

async fn start(client: &Client, args: &ExecArgs) -> Result<Session, ClientError> {
    let request = ExecRequest {
        cmd: args.cmd.clone(),
        env: args.env.clone(),
        cwd: args.cwd.clone(),
        timeout_s: args.client.timeout.unwrap_or(0),
    };
    let mut exec = client.exec(&args.sandbox, &request);
    if let Some(transport) = args.client.transport {
        exec = exec.transport(transport.into());
    }
    if args.interactive {
        exec = exec.interactive();
    }
    let mut session = exec.start().await?;
    if args.interactive {
        session.forward_stdin(tokio::io::stdin());
    }
    Ok(session)
}

/// Writes output where it belongs until the command has ended.
async fn follow(mut session: Session, mut sink: impl Sink, args: &ExecArgs) -> Outcome {
    while let Some(output) = session.next().await? {
        let (stream, bytes) = match output {
            Output::Stdout(bytes) => (Stream::Stdout, bytes),
            Output::Stderr(bytes) => (Stream::Stderr, bytes),
            Output::Exit(_) => continue,
        };
        if let Err(error) = sink.write(stream, bytes) {
            return Failure::output(&error);
        }
    }
    let result = session.result().unwrap_or_default();
    let status = result.as_core().status();
    if let Err(error) = sink.end(&result, status) {
        return Failure::output(&error);
    }
    if !args.json {
        explain(&result, args.client.timeout.unwrap_or(0));
    }
    Ok(status)
}

/// Says on standard error what an exit code alone does not tell.
fn explain(result: &ExecResult, timeout_s: u32) {
    if result.timed_out {
        eprintln!("triwire: the command was killed: it ran longer than {timeout_s} s");
    } else if result.oom_killed {
        eprintln!("triwire: the command was killed: it used more memory than there is");
    } else if !result.error.is_empty() {
        eprintln!("triwire: {}", Printable(&result.error));
    }
}
