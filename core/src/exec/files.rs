//! File transfer: archives in, single files out, over plain HTTP.
//!
//! ```text
//! POST /sandboxes/{id}/files?path=/dir    a tar archive   → 200 {"files":2,"bytes":17}
//! GET  /sandboxes/{id}/files?path=/file                   → 200 the file's bytes
//! ```
//!
//! What an archive says is judged by [`tar`](crate::tar); here are the path that a request names
//! and the two records.
//!
//! ```
//! use triwire::exec::files::{FilesPutResult, path_of};
//!
//! let mut room = [0; 64];
//! assert_eq!(path_of("path=%2Fa+b/c", &mut room)?, b"/a b/c");
//! let result = FilesPutResult { files: 2, bytes: 17 };
//! assert_eq!(result.write(&mut room).unwrap(), br#"{"files":2,"bytes":17}"#);
//! # Ok::<(), triwire::exec::files::PathFault>(())
//! ```

use core::fmt;
use core::time::Duration;

use crate::OutTooSmall;
use crate::json::{self, Reader, Seen, Writer};
use crate::tar::NameFault;

/// The media type of an archive.
pub const TAR_TYPE: &str = "application/x-tar";
/// The most entries of one archive (our choice).
pub const MAX_ENTRIES: u64 = 1_000_000;
/// How long a transfer may go without a byte (our choice); as long as it moves it has no bound.
pub const SILENCE_BOUND: Duration = Duration::from_secs(60);

/// What a push stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct FilesPutResult {
    /// Regular files.
    pub files: u64,
    /// Bytes of their content.
    pub bytes: u64,
}

impl FilesPutResult {
    /// Writes the record into `out` and returns the part it takes.
    ///
    /// # Errors
    /// [`OutTooSmall`] with the bytes needed; 64 are enough.
    // rule: FILE-12
    pub fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], OutTooSmall> {
        let mut writer = Writer::new(out);
        writer.begin_object();
        writer.name("files");
        writer.unsigned(self.files);
        writer.name("bytes");
        writer.unsigned(self.bytes);
        writer.end_object();
        writer.finish()
    }

    /// Reads a record; later members of a peer are ignored.
    ///
    /// # Errors
    /// It is no JSON object, or one of the two is repeated or no whole number.
    pub fn parse(body: &[u8]) -> Result<Self, json::Error> {
        let mut reader = Reader::new(body)?;
        let mut result = Self::default();
        let mut seen = Seen::NONE;
        reader.begin_object()?;
        loop {
            let at = reader.at();
            let Some(name) = reader.name()? else { break };
            let index = name.index_in(&["files", "bytes"]);
            if index.is_none_or(|index| !seen.mark(index)) {
                if index.is_some() {
                    return Err(json::Error { at, fault: json::Fault::Repeated });
                }
                reader.value()?;
                continue;
            }
            let number = reader.number()?.as_u64();
            let number = number.ok_or(json::Error { at, fault: json::Fault::BadNumber })?;
            match index {
                Some(0) => result.files = number,
                _ => result.bytes = number,
            }
        }
        reader.end()?;
        Ok(result)
    }
}

/// What is wrong with the path that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum PathFault {
    /// There is no `path` in the query.
    Missing,
    /// A percent code that is none.
    Encoding,
    /// It does not begin with `/`.
    NotAbsolute,
    /// It is not clean.
    Name(NameFault),
    /// It does not fit the room.
    TooLong {
        /// Bytes of the room.
        room: usize,
    },
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the query names no path; add ?path=/folder"),
            Self::Encoding => f.write_str("the path's percent codes are malformed; encode it anew"),
            Self::NotAbsolute => f.write_str("the path is not absolute; begin it with /"),
            Self::Name(fault) => {
                f.write_str("the path ")?;
                fault.fmt(f)
            }
            Self::TooLong { room } => {
                crate::words::number(f, "the path is longer than ", *room as u64, " bytes")
            }
        }
    }
}

impl core::error::Error for PathFault {}

/// Decodes the first `path` of a query into `out`, and checks that it is absolute and clean.
///
/// # Errors
/// The first [`PathFault`].
// rule: FILE-10
pub fn path_of<'o>(query: &str, out: &'o mut [u8]) -> Result<&'o [u8], PathFault> {
    let mut pairs = query.as_bytes().split(|byte| *byte == b'&');
    let encoded = pairs.find_map(|pair| pair.strip_prefix(b"path=")).ok_or(PathFault::Missing)?;
    let too_long = PathFault::TooLong { room: out.len() };
    let mut places = out.iter_mut();
    let mut rest = encoded;
    let mut len = 0_usize;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        let byte = match byte {
            b'+' => b' ',
            b'%' => {
                let Some(([high, low], behind)) = rest.split_first_chunk() else {
                    return Err(PathFault::Encoding);
                };
                rest = behind;
                match (digit(*high), digit(*low)) {
                    (Some(high), Some(low)) => (high << 4) | low,
                    _ => return Err(PathFault::Encoding),
                }
            }
            byte => *byte,
        };
        *places.next().ok_or(too_long)? = byte;
        len = len.saturating_add(1);
    }
    let path = out.get(..len).ok_or(too_long)?;
    let inner = path.strip_prefix(b"/").ok_or(match path {
        [] => PathFault::Missing,
        _ => PathFault::NotAbsolute,
    })?;
    if inner.contains(&0) {
        return Err(PathFault::Name(NameFault::Nul));
    }
    if inner.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return Err(PathFault::Name(NameFault::Outside));
    }
    Ok(path)
}

fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter.wrapping_sub(b'0')),
        b'a'..=b'f' => Some(letter.wrapping_sub(b'a').wrapping_add(10)),
        b'A'..=b'F' => Some(letter.wrapping_sub(b'A').wrapping_add(10)),
        _ => None,
    }
}
