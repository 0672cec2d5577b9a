//! `triwire sign` and `triwire verify`: the signature header, made and judged by hand.

mod explain;
mod sign;
mod verify;

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use triwire::signed::{Key, SecretTooShort};
use zeroize::Zeroizing;

use crate::cli::SignedFlags;
use crate::failure::Failure;
use crate::keys;

pub(crate) use sign::run as sign;
pub(crate) use verify::run as verify;

/// The variable that holds the secret when no file is named.
const VARIABLE: &str = "TRIWIRE_SIGNING_KEY";

/// A secret as it was given, and without the white space around it, which is what is used.
struct Secret {
    raw: Zeroizing<Vec<u8>>,
}

impl Secret {
    /// Reads it from the file that is named, from standard input, or from the variable.
    fn read(file: Option<&Path>) -> Result<Self, Failure> {
        let raw = match file {
            Some(path) if path == Path::new("-") => read_all(path, "the secret")?,
            Some(path) => {
                if keys::others_may_read(path) {
                    eprintln!(
                        "triwire: others may read {}; close it with: chmod 600 {0}",
                        path.display()
                    );
                }
                read_all(path, "the secret")?
            }
            None => std::env::var(VARIABLE).map(String::into_bytes).map_err(|_| {
                Failure::new(format!(
                    "there is no secret; name its file with --key-file, - for standard input, \
                     or set {VARIABLE}"
                ))
            })?,
        };
        Ok(Self { raw: Zeroizing::new(raw) })
    }

    fn bytes(&self) -> &[u8] {
        self.raw.trim_ascii()
    }

    fn forms(&self) -> explain::Secrets<'_> {
        explain::Secrets { trimmed: self.bytes(), raw: &self.raw }
    }

    fn key(&self) -> Result<Key, Failure> {
        Key::new(self.bytes()).map_err(|error: SecretTooShort| Failure::new(error.to_string()))
    }
}

/// What both commands are told, read.
struct Input {
    secret: Secret,
    body: Vec<u8>,
}

impl Input {
    fn read(flags: &SignedFlags) -> Result<Self, Failure> {
        let is_stdin = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
        if is_stdin(&flags.key_file) && is_stdin(&flags.body) {
            return Err(Failure::new(
                "standard input cannot be both the secret and the body; give one in a file",
            ));
        }
        let secret = Secret::read(flags.key_file.as_deref())?;
        let body = match &flags.body {
            Some(path) => read_all(path, "the body")?,
            None => Vec::new(),
        };
        Ok(Self { secret, body })
    }
}

fn read_all(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    let read = if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(path)
    };
    read.map_err(|error| {
        Failure::new(format!("{what} cannot be read from {}: {error}", path.display()))
    })
}
