//! `triwire verify`: what a receiver would say to a request, and why.

use std::io::{self, Write as _};

use serde_json::{Value, json};
use triwire::signed::{KeyId, Presented, Refusal, SIGNATURE_HEADER, Target, Window, WindowTooWide};
use triwire::time::UnixMillis;
use triwire_std::clock::unix_now;
use triwire_std::signed::url;

use super::Input;
use super::explain::{Request, Said, reasons};
use crate::cli::VerifyArgs;
use crate::failure::{Failure, Outcome};
use crate::terminal::OneLine;

/// The exit code for a request that is refused.
const STATUS_REFUSED: u8 = 1;

pub(crate) fn run(args: &VerifyArgs) -> Outcome {
    let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
    let flags = &args.request;
    let window = Window::seconds(args.window)
        .map_err(|error: WindowTooWide| Failure::new(error.to_string()))?;
    let own_id = match &args.key_id {
        Some(id) => Some(KeyId::parse(id).map_err(|error| failed(&error))?),
        None => None,
    };
    let Input { secret, body } = Input::read(flags)?;
    let key = secret.key()?;
    let parts = url::parts(&flags.url).map_err(|error| failed(&error))?;
    let target =
        Target::new(&flags.method, &parts.host, &parts.path).map_err(|error| failed(&error))?;
    let header = header_value(&args.header);
    let now = args.now.map_or_else(unix_now, |s| UnixMillis::new(s.saturating_mul(1000)));

    let judged = || -> Result<(KeyId, UnixMillis), Refusal> {
        let timely = Presented::parse([header.as_bytes()])?.check(now, window)?;
        if own_id.is_some_and(|id| id != timely.key_id()) {
            return Err(Refusal::UnknownKey);
        }
        let mut verification = timely.with(target, &key);
        verification.feed(&body);
        let genuine = verification.finish(now)?;
        Ok((genuine.key_id(), genuine.expires_at()))
    };
    let outcome = judged();

    let said = Said::parse(header);
    let request = Request {
        method: &flags.method,
        url: &flags.url,
        host: &parts.host,
        path: &parts.path,
        body: &body,
    };
    let mut lines = Vec::new();
    let mut why = Vec::new();
    if let Some(said) = said.as_ref().filter(|_| flags.explain) {
        lines = request.lines(said);
    }
    if let Err(refusal) = outcome {
        let at = (now, args.window);
        why = reasons(refusal, said.as_ref(), &request, &secret.forms(), at);
        // The lines that it names are not shown.
        if !flags.explain && refusal == Refusal::WrongSignature {
            why = vec!["say --explain to see what is signed, and what is likely the cause".into()];
        }
    }
    let shown = if flags.json {
        let mut record = match outcome {
            Ok((id, expires)) => {
                json!({ "outcome": "ok", "key_id": id.as_str(), "expires_at": expires.get() })
            }
            Err(refusal) => json!({ "outcome": refusal.as_str() }),
        };
        if flags.explain {
            record["lines"] = Value::from(lines);
            record["why"] = Value::from(why);
        }
        writeln!(io::stdout(), "{record}")
    } else {
        let mut text = String::new();
        for (number, line) in (1..).zip(&lines) {
            text += &format!("{number}  {}\n", OneLine(line));
        }
        if !lines.is_empty() {
            text.push('\n');
        }
        match outcome {
            Ok((id, expires)) => {
                text += &format!(
                    "ok: signed by {id}; a receiver accepts it once, its nonce until {} s\n",
                    expires.get() / 1000
                );
            }
            Err(refusal) => text += &format!("{refusal}\n"),
        }
        for reason in why {
            text += &format!("  {}\n", OneLine(&reason));
        }
        io::stdout().write_all(text.as_bytes())
    };
    match shown {
        Err(error) => Failure::output(&error),
        Ok(()) if outcome.is_ok() => Ok(0),
        Ok(()) => Ok(STATUS_REFUSED),
    }
}

/// Takes a header with its name, as it is copied from a log, or its value alone.
fn header_value(text: &str) -> &str {
    let value = match text.split_once(':') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case(SIGNATURE_HEADER) => value,
        _ => text,
    };
    value.trim_matches([' ', '\t'])
}
