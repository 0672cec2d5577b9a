//! The demo's executor: a paired machine that connects to the gateway and answers calls.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use triwire::channel::broker::Request;
use triwire::channel::envelope::Object;
use triwire_std::channel::{Channel, Pairings};
use triwire_std::client::{Client, Observed, Outcome, Secret};
use triwire_std::server::Keys;

use super::Row;

const EXECUTOR: &str = "demo";
const EXTENSION: &str = "texts";
const TOOL: &str = "measure";
const BOUNDS: &str = r#"{"maxRequests":100}"#;
/// How long the executor may take to have its chair.
const UP_BOUND: Duration = Duration::from_secs(10);

/// Makes a channel that the executor is paired with, and its bearer.
pub(super) fn of(state: &Path, keys: Keys) -> io::Result<(Channel, Secret)> {
    let pairings = Pairings::new(state.join("pairings.json"));
    let bearer = pairings.issue(EXECUTOR).map_err(io::Error::other)?;
    Ok((Channel::builder().keys(keys).pairings(pairings).build(), bearer))
}

/// Runs the executor, makes calls to it and checks each.
pub(super) async fn rows(client: &Client, bearer: Secret) -> Vec<Row> {
    let executor = client
        .executor(bearer, async |call| {
            let observed = json!({ "bytes": call.args.len() }).to_string();
            Ok(Outcome::Observed(Observed::parse(observed).map_err(|error| error.to_string())?))
        })
        .admit(EXTENSION, TOOL, BOUNDS);
    let executor = match executor {
        Ok(executor) => executor,
        Err(error) => return vec![failed("an executor", error.to_string())],
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(async move { executor.run(async { drop(stopped.await) }).await });
    let begun = Instant::now();
    while begun.elapsed() < UP_BOUND
        && ask(client, EXECUTOR, "{}").await.is_ok_and(|got| got == "machine-unreachable")
    {}
    let checks = [
        ("a call asked and answered", EXECUTOR, BOUNDS, r#"{"bytes":16}"#),
        ("other bounds than admitted", EXECUTOR, r#"{"maxRequests":101}"#, "bounds-mismatch"),
        ("nobody in the page's chair", "page", BOUNDS, "no-page"),
    ];
    let mut rows = Vec::new();
    for (check, executor, bounds, expected) in checks {
        let begun = Instant::now();
        let mut row = match ask(client, executor, bounds).await {
            Ok(got) => {
                let wrong = (got != expected).then(|| format!("expected {expected}"));
                Row { transport: "channel", check, got, wrong, took_ms: 0 }
            }
            Err(error) => failed(check, error),
        };
        row.took_ms = begun.elapsed().as_millis();
        rows.push(row);
    }
    let _ = stop.send(());
    match running.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => rows.push(failed("the executor", error.to_string())),
        Err(error) => rows.push(failed("the executor", error.to_string())),
    }
    rows
}

fn failed(check: &'static str, why: String) -> Row {
    Row { transport: "channel", check, got: "no result".into(), wrong: Some(why), took_ms: 0 }
}

/// Answers what was observed, or the word of the refusal.
async fn ask(client: &Client, executor: &str, bounds: &str) -> Result<String, String> {
    let object = |text| Object::parse(text).map_err(|error| format!("{text}: {error}"));
    let request = Request::new(EXTENSION, TOOL, object(r#"{"text":"hello"}"#)?, object(bounds)?);
    match client.caller().ask(executor, request).await.map_err(|error| error.to_string())? {
        Outcome::Observed(observed) => Ok(observed.as_str().to_owned()),
        Outcome::Refused { refused, .. } => Ok(refused),
    }
}
