//! Key files: one key a line, in clear, readable by their owner alone.
//!
//! ```text
//! # laptop
//! 3vXyY0mZ0mFz8sZk4uJm0pQ7aB1cD2eF3gH4iJ5kL6m
//! ```
//!
//! A key is 16 or more visible ASCII characters. Empty lines and lines that begin with `#` are
//! skipped. Keys are never shown, but for the one line at the first start that hands it over.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Fewest characters of a key: 16 random ones cannot be guessed.
pub(crate) const MIN_KEY_LENGTH: usize = 16;
/// Largest key file: one that is larger is no key file.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// A key in clear; its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// Takes a key that a person or a file gave.
    pub(crate) fn parse(text: &str) -> Result<Self, BadKey> {
        if text.len() < MIN_KEY_LENGTH {
            return Err(BadKey::TooShort);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadKey::NotVisibleAscii);
        }
        Ok(Self(text.to_owned()))
    }

    /// Lends the key itself, for a header or a digest.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadKey {
    TooShort,
    NotVisibleAscii,
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => write!(f, "a key has at least {MIN_KEY_LENGTH} characters"),
            Self::NotVisibleAscii => f.write_str("a key is visible ASCII characters, no spaces"),
        }
    }
}

/// What a key file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyFile {
    pub(crate) keys: Vec<Key>,
    /// Lines that are no keys, counted from 1.
    pub(crate) bad: Vec<(usize, BadKey)>,
    /// Others than the owner may read it.
    pub(crate) exposed: bool,
}

impl KeyFile {
    fn parse(text: &str) -> Self {
        let mut file = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match Key::parse(line) {
                Ok(key) => file.keys.push(key),
                Err(why) => file.bad.push((number, why)),
            }
        }
        file
    }

    /// Reads a key file, lines that are no keys among it.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        if metadata.len() > MAX_FILE_SIZE {
            return Err(io::Error::other("it is larger than 1 MiB: this is no key file"));
        }
        let mut file = Self::parse(&fs::read_to_string(path)?);
        file.exposed = is_exposed(&metadata);
        Ok(file)
    }

    /// Reads a key file whose every line must be right.
    pub(crate) fn read_strictly(path: &Path) -> Result<Self, Failure> {
        let file = Self::read(path).map_err(|error| {
            let path = path.display();
            Failure::new(match error.kind() {
                io::ErrorKind::NotFound => {
                    format!("there is no key file {path}; make it, or name another")
                }
                io::ErrorKind::InvalidData => format!("the key file {path} is not UTF-8 text"),
                _ => format!("the key file {path} cannot be read: {error}"),
            })
        })?;
        match file.bad.first() {
            Some((line, why)) => Err(Failure::new(format!(
                "{}:{line}: this line is no key: {why}; put # before a comment",
                path.display()
            ))),
            None => Ok(file),
        }
    }
}

/// Reports whether others than its owner may read or change a file.
pub(crate) fn others_may_read(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| is_exposed(&metadata))
}

#[cfg(unix)]
fn is_exposed(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    metadata.mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn is_exposed(_: &fs::Metadata) -> bool {
    false
}

/// Returns where the state folder's key stands.
pub(crate) fn default_file(state: &Path) -> PathBuf {
    state.join("key")
}

/// Where a client's key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    File(PathBuf),
    Variable,
    /// There is none.
    Nowhere,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the key of {} was sent", path.display()),
            Self::Variable => write!(f, "the key of {VARIABLE} was sent"),
            Self::Nowhere => {
                write!(f, "no key was sent: name its file with --key-file, or set {VARIABLE}")
            }
        }
    }
}

/// The variable that holds a client's key.
const VARIABLE: &str = "TRIWIRE_KEY";

/// Finds the key that a client shows: of the file it names, of `TRIWIRE_KEY`, or of the state
/// folder, which is for a gateway on this machine only.
///
/// A key of another gateway may be shorter than ours are; whether it can be sent is the client's
/// to judge.
pub(crate) fn for_client(
    file: Option<&Path>,
    state: impl FnOnce() -> Result<PathBuf, Failure>,
    url: &str,
) -> Result<(Option<Key>, Source), Failure> {
    let from = |path: &Path| Ok((Some(first(path)?), Source::File(path.to_owned())));
    if let Some(path) = file {
        return from(path);
    }
    match std::env::var(VARIABLE) {
        Ok(key) => return variable(&key).map(|key| (Some(key), Source::Variable)),
        Err(std::env::VarError::NotPresent) => {}
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(Failure::new(format!("{VARIABLE} is not text; give the key in a file")));
        }
    }
    if !is_loopback(url) {
        return Ok((None, Source::Nowhere));
    }
    // Without a place for state there is no key in it, and that is no failure.
    match state().map(|state| default_file(&state)) {
        Ok(path) if path.exists() => from(&path),
        _ => Ok((None, Source::Nowhere)),
    }
}

/// Takes the key that the variable holds, which is no key file's content.
fn variable(text: &str) -> Result<Key, Failure> {
    let key = text.trim();
    if key.starts_with('#') || key.contains(char::is_whitespace) {
        return Err(Failure::new(format!(
            "{VARIABLE} holds more than a key, as a key file does; name that file with --key-file"
        )));
    }
    Ok(Key(key.to_owned()))
}

/// Reads the first key of a file, whatever its length.
pub(crate) fn first(path: &Path) -> Result<Key, Failure> {
    let failed =
        |why: &dyn fmt::Display| Failure::new(format!("the key file {} {why}", path.display()));
    let text = fs::read_to_string(path)
        .map_err(|error| failed(&format_args!("cannot be read: {error}")))?;
    let mut lines = text.lines().map(str::trim);
    match lines.find(|line| !line.is_empty() && !line.starts_with('#')) {
        Some(line) => Ok(Key(line.to_owned())),
        None => Err(failed(&"holds no key; put one on a line of its own")),
    }
}

fn is_loopback(url: &str) -> bool {
    match url::Url::parse(url).ok().as_ref().and_then(url::Url::host) {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Makes the state folder's key unless it is there; answers it only when it was made just now.
pub(crate) fn make_once(state: &Path) -> Result<Option<Key>, Failure> {
    let path = default_file(state);
    if path.exists() {
        return Ok(None);
    }
    let failed = |error: &dyn fmt::Display| {
        Failure::new(format!(
            "a key cannot be written to {}: {error}; choose another folder with --state",
            state.display()
        ))
    };
    make_folder(state).map_err(|error| failed(&error))?;
    let token = triwire_std::entropy::token().map_err(|error| failed(&error))?;
    // Made whole under another name first, 0600: a second start at the same time sees all or none.
    let mut file = tempfile::NamedTempFile::new_in(state).map_err(|error| failed(&error))?;
    writeln!(file, "# Made by triwire serve; one key a line.\n{token}")
        .and_then(|()| file.as_file().sync_all())
        .map_err(|error| failed(&error))?;
    match file.persist_noclobber(&path) {
        Ok(_) => Key::parse(&token).map(Some).map_err(|error| failed(&error)),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(failed(&error.error)),
    }
}

/// Makes a folder for its owner alone, and what is above it.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_keys_comments_and_bad_lines() {
        let file =
            KeyFile::parse("# one\n0123456789abcdef\n\n  short \nhas a space 0123456789\r\n");
        assert_eq!(file.keys, [Key("0123456789abcdef".into())]);
        assert_eq!(file.bad, [(4, BadKey::TooShort), (5, BadKey::NotVisibleAscii)]);
        assert_eq!(format!("{:?}", file.keys), "[Key(..)]");
    }

    #[test]
    fn the_state_folder_s_key_stays_on_this_machine() {
        for url in ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"] {
            assert!(is_loopback(url), "{url}");
        }
        for url in ["http://10.0.0.5", "http://localhost.example", "http://127.0.0.1.example", ""] {
            assert!(!is_loopback(url), "{url}");
        }
    }

    #[test]
    fn the_variable_holds_one_key_and_no_file() {
        assert_eq!(variable(" short \n"), Ok(Key("short".into())));
        for file in ["# laptop\n0123456789abcdef", "0123456789abcdef\n# x", "a b", "#a"] {
            let refused = variable(file).unwrap_err().to_string();
            assert!(refused.contains("--key-file"), "{refused}");
            assert!(!refused.contains("0123456789abcdef"), "{refused}");
        }
    }

    #[test]
    fn the_first_start_makes_a_key_once() {
        let state = tempfile::tempdir().unwrap();
        let made = make_once(state.path()).unwrap().unwrap();
        assert_eq!(make_once(state.path()), Ok(None));
        let file = KeyFile::read_strictly(&default_file(state.path())).unwrap();
        assert_eq!((file.keys, file.exposed), (vec![made], false));
    }
}
