//! The pairings: one file, which holds digests of the bearers that were issued, and no bearer.
//!
//! ```text
//! { "NAME": { "acceptDigest": "64 hex digits", "revoked": false, "issuedAt": 1700000000000, … } }
//! ```
//!
//! A file that holds `acceptBearer`, the bearer itself, is read as well, and holds digests after
//! its next change. Members that are not ours are kept.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::{error, fmt};

use triwire::channel::hello::{BearerDigest, Standing};
use triwire::json::{self, Reader, Seen, Text, Type, Writer};

use super::hex;
use super::session::{owned_file, random_hex};
use crate::clock::unix_now;
use crate::secret::Secret;

/// The longest file that is read, in bytes.
pub const MAX_PAIRINGS: u64 = 16 << 20;

/// What a bearer begins with.
const BEARER_PREFIX: &str = "vbx_";

/// Ours, of a pairing's members.
const MEMBERS: [&str; 5] = ["acceptBearer", "acceptDigest", "revoked", "revokedAt", "issuedAt"];

/// The pairings in a file, read anew at every question. Its calls block.
///
/// ```
/// use triwire::channel::hello::{BearerDigest, Standing};
/// use triwire_std::channel::Pairings;
///
/// # let folder = std::env::temp_dir().join(format!("pairings-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let pairings = Pairings::new(folder.join(".pairings.json"));
/// let bearer = pairings.issue("board")?;
/// let digest = BearerDigest::of(bearer.as_str());
/// assert_eq!(pairings.standing(&digest), (Standing::Known, Some("board".into())));
/// pairings.revoke("board")?;
/// assert_eq!(pairings.standing(&digest).0, Standing::Revoked);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pairings {
    path: PathBuf,
    /// Held while the file changes.
    changing: Mutex<()>,
}

struct Pairing {
    env_key: String,
    /// The members that are not ours, each with its value's text.
    others: Vec<(String, String)>,
    digest: Option<BearerDigest>,
    revoked: bool,
    revoked_at: Option<String>,
    issued_at: Option<String>,
}

impl Pairings {
    /// Names the file; it need not exist.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), changing: Mutex::new(()) }
    }

    /// Looks a bearer up: how it stands, and the pairing that it belongs to.
    // rule: CHAN-48, CHAN-62
    #[must_use]
    pub fn standing(&self, shown: &BearerDigest) -> (Standing, Option<String>) {
        let Ok(pairings) = self.read() else { return (Standing::Unreadable, None) };
        let mut found = (Standing::Unknown, None);
        for pairing in pairings {
            // All are compared, whichever it is.
            let is_it = pairing.digest.is_some_and(|digest| digest == *shown);
            if is_it && found.0 != Standing::Known {
                let standing = if pairing.revoked { Standing::Revoked } else { Standing::Known };
                found = (standing, Some(pairing.env_key));
            }
        }
        found
    }

    /// Issues a bearer to a pairing, new or not; one that it had before is no longer issued.
    ///
    /// # Errors
    /// The file cannot be read or written; it is as it was.
    pub fn issue(&self, env_key: &str) -> Result<Secret, PairingsError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pairings = self.read()?;
        let bearer = Secret::new(format!("{BEARER_PREFIX}{}", random_hex::<24>()?));
        let old = pairings.iter_mut().find(|pairing| pairing.env_key == env_key);
        let pairing = match old {
            Some(pairing) => pairing,
            None => {
                pairings.push(Pairing::named(env_key));
                let Some(new) = pairings.last_mut() else { return Err(PairingsError::Shape) };
                new
            }
        };
        pairing.digest = Some(BearerDigest::of(bearer.as_str()));
        pairing.revoked = false;
        pairing.revoked_at = None;
        pairing.issued_at = Some(unix_now().get().to_string());
        self.write(&pairings)?;
        Ok(bearer)
    }

    /// Revokes a pairing's bearer; once is enough.
    ///
    /// # Errors
    /// There is no pairing of that name; the file cannot be read or written, and is as it was.
    pub fn revoke(&self, env_key: &str) -> Result<(), PairingsError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pairings = self.read()?;
        let pairing = pairings.iter_mut().find(|pairing| pairing.env_key == env_key);
        let pairing = pairing.ok_or(PairingsError::NotPaired)?;
        if !pairing.revoked {
            pairing.revoked = true;
            pairing.revoked_at = Some(unix_now().get().to_string());
            self.write(&pairings)?;
        }
        Ok(())
    }

    fn read(&self) -> Result<Vec<Pairing>, PairingsError> {
        let text = match fs::metadata(&self.path) {
            Ok(meta) if meta.len() > MAX_PAIRINGS => return Err(PairingsError::Shape),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            _ => fs::read(&self.path)?,
        };
        parse(&text)
    }

    /// Replaces the file: at every moment it is whole, the old one or the new one.
    // rule: CHAN-63
    fn write(&self, pairings: &[Pairing]) -> Result<(), PairingsError> {
        let text = written(|writer| {
            writer.begin_object();
            for pairing in pairings {
                writer.name(&pairing.env_key);
                pairing.write(writer);
            }
            writer.end_object();
        });
        let mut temporary = self.path.clone().into_os_string();
        temporary.push(format!(".{}", random_hex::<8>()?));
        let temporary = PathBuf::from(temporary);
        let replaced = (|| {
            let mut file = owned_file().write(true).create_new(true).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&temporary, &self.path)
        })();
        if let Err(error) = replaced {
            let _ = fs::remove_file(&temporary);
            return Err(error.into());
        }
        // So that the rename lasts, too.
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
        }
        Ok(())
    }
}

impl Pairing {
    fn named(env_key: &str) -> Self {
        Self {
            env_key: env_key.to_owned(),
            others: Vec::new(),
            digest: None,
            revoked: false,
            revoked_at: None,
            issued_at: None,
        }
    }

    fn read(env_key: String, reader: &mut Reader<'_>) -> Result<Self, PairingsError> {
        let mut pairing = Self::named(&env_key);
        let mut seen = Seen::default();
        let mut of_bearer = None;
        reader.begin_object()?;
        while let Some(name) = reader.name()? {
            let Some(index) = name.index_in(&MEMBERS) else {
                let value = reader.value()?.as_str().to_owned();
                pairing.others.push((exact(name)?, value));
                continue;
            };
            if !seen.mark(index) {
                return Err(PairingsError::Shape);
            }
            let is_null = reader.peek()? == Type::Null;
            match index {
                0 | 1 if is_null => reader.null()?,
                0 => {
                    let bearer = Secret::new(exact(reader.string()?)?);
                    of_bearer =
                        (!bearer.as_str().is_empty()).then(|| BearerDigest::of(bearer.as_str()));
                }
                1 => {
                    let digest = digest_of(&exact(reader.string()?)?);
                    pairing.digest = Some(digest.ok_or(PairingsError::Shape)?);
                }
                2 => pairing.revoked = reader.boolean()?,
                3 => pairing.revoked_at = Some(reader.value()?.as_str().to_owned()),
                _ => pairing.issued_at = Some(reader.value()?.as_str().to_owned()),
            }
        }
        pairing.digest = pairing.digest.or(of_bearer);
        Ok(pairing)
    }

    fn write(&self, writer: &mut Writer<'_>) {
        let [_, accept_digest, revoked, revoked_at, issued_at] = MEMBERS;
        writer.begin_object();
        if let Some(digest) = &self.digest {
            writer.name(accept_digest);
            writer.string(hex(digest.as_bytes()).as_str());
        }
        writer.name(revoked);
        writer.boolean(self.revoked);
        for (name, value) in [(revoked_at, &self.revoked_at), (issued_at, &self.issued_at)] {
            if let Some(value) = value {
                writer.name(name);
                writer.raw(value);
            }
        }
        for (name, value) in &self.others {
            writer.name(name);
            writer.raw(value);
        }
        writer.end_object();
    }
}

fn parse(text: &[u8]) -> Result<Vec<Pairing>, PairingsError> {
    let mut reader = Reader::new(text)?;
    let mut pairings: Vec<Pairing> = Vec::new();
    let mut names = std::collections::HashSet::new();
    reader.begin_object()?;
    while let Some(name) = reader.name()? {
        let env_key = exact(name)?;
        if !names.insert(env_key.clone()) {
            return Err(PairingsError::Shape);
        }
        pairings.push(Pairing::read(env_key, &mut reader)?);
    }
    reader.end()?;
    Ok(pairings)
}

fn exact(text: Text<'_>) -> Result<String, PairingsError> {
    let chars = text.chars().collect::<Result<String, _>>();
    chars.map_err(|_| PairingsError::Shape)
}

fn digest_of(hex: &str) -> Option<BearerDigest> {
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let bytes: Vec<u8> = digits?
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8))
        .collect();
    let bytes = <[u8; 32]>::try_from(bytes).ok().filter(|_| hex.len() == 64)?;
    Some(BearerDigest::from_bytes(bytes))
}

/// Writes JSON into a text that is as long as it needs to be.
pub(super) fn written(write: impl Fn(&mut Writer<'_>)) -> String {
    let mut room = vec![0; 256];
    loop {
        let mut writer = Writer::new(&mut room);
        write(&mut writer);
        match writer.finish() {
            Ok(text) => return String::from_utf8_lossy(text).into_owned(),
            Err(error) => room.resize(error.needed, 0),
        }
    }
}

/// Why the pairings cannot be told or changed.
#[derive(Debug)]
pub enum PairingsError {
    /// The file cannot be read or written.
    Io(io::Error),
    /// The file is no JSON.
    Json(json::Error),
    /// The file is JSON of another shape.
    Shape,
    /// There is no pairing of that name.
    NotPaired,
}

impl fmt::Display for PairingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the pairings cannot be read or written: {error}"),
            Self::Json(error) => write!(f, "the pairings cannot be read: {error}"),
            Self::Shape => f.write_str(
                "the pairings cannot be read: expected an object of pairings, each an object \
                 with acceptDigest and revoked; mend the file, it is not overwritten",
            ),
            Self::NotPaired => f.write_str("there is no pairing of that name"),
        }
    }
}

impl error::Error for PairingsError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Json(error) => Some(error),
            Self::Shape | Self::NotPaired => None,
        }
    }
}

impl From<io::Error> for PairingsError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<json::Error> for PairingsError {
    fn from(error: json::Error) -> Self {
        Self::Json(error)
    }
}
