//! `triwire ask`: one call, and an exit code that tells what came of it.

use std::io::{self, Read as _, Write as _};

use serde_json::json;
use serde_json::value::RawValue;
use triwire::channel::broker::Request;
use triwire::channel::envelope::{MAX_MESSAGE, Object};
use triwire::channel::refusal::Peer;
use triwire_std::client::{CallerError, Outcome};

use crate::cli::AskArgs;
use crate::config;
use crate::failure::{Failure, Outcome as Ended};
use crate::keys;
use crate::terminal::Printable;

/// The exit code when the call was refused.
const STATUS_REFUSED: u8 = 1;
/// The exit code when no answer came in time, as of a command's deadline.
const STATUS_LATE: u8 = 124;

pub(crate) fn run(args: &AskArgs) -> Ended {
    let state = || config::state(&args.state).map(|state| state.value);
    let url = super::url(&args.server);
    let (key, source) = keys::for_client(args.key_file.as_deref(), state, url)?;
    let mut builder = super::client(&args.server)?;
    if let Some(key) = key {
        builder = builder.key(key.expose());
    }
    let caller = builder.build()?.caller();
    let given = match args.args.as_str() {
        "-" => {
            let mut text = String::new();
            let read = io::stdin().lock().take(MAX_MESSAGE as u64 + 1).read_to_string(&mut text);
            read.map_err(|error| Failure::new(format!("the arguments cannot be read: {error}")))?;
            text
        }
        text => text.to_owned(),
    };
    let object = |what: &str, text| {
        Object::parse(text).map_err(|error| {
            Failure::new(format!("{what}: expected a JSON object such as {{\"a\": 1}}: {error}"))
        })
    };
    let (extension, tool) = &args.tool;
    let call = Request {
        patience: args.timeout,
        ..Request::new(
            extension,
            tool,
            object("the arguments", &given)?,
            object("--bounds", &args.bounds)?,
        )
    };
    let outcome = super::block_on(async {
        caller.ask(&args.executor, call).await.map_err(|error| match &error {
            CallerError::Refused { status: 401, .. } => Failure::new(format!("{error}; {source}")),
            _ => Failure::new(error.to_string()),
        })
    })?;
    show(&outcome, args)
}

fn show(outcome: &Outcome, args: &AskArgs) -> Ended {
    let (line, status) = match outcome {
        Outcome::Observed(observed) if args.json => {
            // It was an object when it came.
            let raw: Option<&RawValue> = serde_json::from_str(observed.as_str()).ok();
            (json!({ "observed": raw, "status": 0 }).to_string(), 0)
        }
        Outcome::Observed(observed) => (observed.as_str().to_owned(), 0),
        Outcome::Refused { refused, why } => {
            let is_late =
                [Peer::Page, Peer::Machine].iter().any(|peer| refused == peer.timed_out().as_str());
            let status = if is_late { STATUS_LATE } else { STATUS_REFUSED };
            if !args.json {
                eprintln!("triwire: {}: {}", Printable(refused), Printable(why));
                return Ok(status);
            }
            (json!({ "refused": refused, "why": why, "status": status }).to_string(), status)
        }
    };
    match writeln!(io::stdout(), "{line}") {
        Ok(()) => Ok(status),
        Err(error) => Failure::output(&error),
    }
}
