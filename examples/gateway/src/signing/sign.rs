//! `triwire sign`: the header for one request.

use std::io::{self, Write as _};

use serde_json::json;
use triwire::signed::{
    KeyId, MADE_NONCE_LENGTH, MAX_HEADER_LENGTH, Nonce, SIGNATURE_HEADER, Target, lines, sign,
};
use triwire::time::UnixMillis;
use triwire_std::clock::unix_now;
use triwire_std::entropy;
use triwire_std::signed::url;

use super::Input;
use crate::cli::SignArgs;
use crate::failure::{Failure, Outcome};

/// Room for the lines beside the method, the host and the path.
const FIXED_LINES: usize = 512;

pub(crate) fn run(args: &SignArgs) -> Outcome {
    let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
    let flags = &args.request;
    let Some(id) = &args.key_id else {
        return Err(Failure::new("there is no key id; name it with --key-id"));
    };
    let id = KeyId::parse(id).map_err(|error| failed(&error))?;
    let Input { secret, body } = Input::read(flags)?;
    let key = secret.key()?;
    let parts = url::parts(&flags.url).map_err(|error| failed(&error))?;
    let target =
        Target::new(&flags.method, &parts.host, &parts.path).map_err(|error| failed(&error))?;
    let now = args.time.map_or_else(unix_now, |s| UnixMillis::new(s.saturating_mul(1000)));
    let mut text = [0; MADE_NONCE_LENGTH];
    let nonce = match &args.nonce {
        Some(nonce) => Nonce::parse(nonce).map_err(|error| failed(&error))?,
        None => {
            let mut random = [0; 16];
            entropy::fill(&mut random).map_err(|error| failed(&error))?;
            Nonce::make(random, &mut text)
        }
    };
    let mut out = [0; MAX_HEADER_LENGTH];
    let header = sign(now, id, &key, target, nonce, &body, &mut out);
    let header = header.map_err(|error| failed(&error))?;
    let mut room = vec![0; FIXED_LINES + flags.method.len() + parts.host.len() + parts.path.len()];
    let lines = lines(now, id, target, nonce, &body, &mut room).map_err(|error| failed(&error))?;
    let shown = if flags.json {
        let lines = flags.explain.then(|| lines.split('\n').collect::<Vec<_>>());
        let mut record = json!({ "name": SIGNATURE_HEADER, "header": header });
        if let Some(lines) = lines {
            record["lines"] = lines.into();
        }
        writeln!(io::stdout(), "{record}")
    } else if flags.explain {
        let numbered: String =
            (1..).zip(lines.split('\n')).map(|(n, line)| format!("{n}  {line}\n")).collect();
        write!(io::stdout(), "{numbered}\n{SIGNATURE_HEADER}: {header}\n")
    } else {
        writeln!(io::stdout(), "{header}")
    };
    match shown {
        Err(error) => Failure::output(&error),
        Ok(()) => Ok(0),
    }
}
