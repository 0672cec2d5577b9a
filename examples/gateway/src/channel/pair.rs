//! `triwire pair`: the bearer of a machine, printed once, or its end.

use std::io::{self, Write as _};

use serde_json::json;
use triwire_std::client::Secret;

use super::offered::HOST_TOKEN;
use crate::cli::PairArgs;
use crate::config;
use crate::failure::{Failure, Outcome};

pub(crate) fn run(args: &PairArgs) -> Outcome {
    let path = match &args.host_token_file {
        Some(path) => path.clone(),
        None => {
            let state = config::state(&args.state)?.value;
            config::channel::extensions_dir(state).join(HOST_TOKEN)
        }
    };
    let token = Secret::from_file(&path).map_err(|error| {
        Failure::new(format!(
            "the host token {} cannot be read: {error}; a gateway whose config has \
             [channel] keeps it in its state folder, or its extensions_dir: name it with \
             --host-token-file",
            path.display()
        ))
    })?;
    let caller = super::client(&args.server)?.build()?.caller();
    let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
    let name = &args.name;
    let (record, words) = super::block_on(async {
        if args.revoke {
            caller.unpair(name, &token).await.map_err(|error| failed(&error))?;
            return Ok((json!({ "name": name, "revoked": true }), String::new()));
        }
        let bearer = caller.pair(name, &token).await.map_err(|error| failed(&error))?;
        let words = format!("{}\n", bearer.as_str());
        Ok((json!({ "name": name, "bearer": bearer.as_str() }), words))
    })?;
    let words = if args.json { format!("{record}\n") } else { words };
    match io::stdout().write_all(words.as_bytes()) {
        Ok(()) => Ok(0),
        Err(error) => Failure::output(&error),
    }
}
