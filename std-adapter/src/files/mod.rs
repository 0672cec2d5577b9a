//! Folders that archives are unpacked into and files are read from, never outside.
//!
//! Whether an archive's entries may be unpacked is judged by [`triwire::tar`]; here the folder is
//! asked. Each step is taken from an open directory, beneath which the kernel resolves the rest:
//! the check and the act are one, whatever others do to the folder meanwhile.
//!
//! | entry | what happens |
//! | --- | --- |
//! | file | written beside its place, then renamed there: what stood there is replaced, never written through |
//! | directory | made, or its permissions set when it is there |
//! | symbolic link | made beside its place, renamed there, and taken back when it leads outside |
//! | hard link | a second name for a file of the folder |
//! | anything whose way leads outside | refused, and with it the archive |
//!
//! ```
//! use std::io::Read as _;
//! use triwire_std::files::{Files as _, Folder};
//!
//! # let temporary = tempfile::tempdir()?;
//! # let archive = [0u8; 1024];
//! let folder = Folder::open(temporary.path())?;
//! let mut push = folder.push(b"/in/here")?;
//! for piece in archive.chunks(512) {
//!     push.feed(piece)?;
//! }
//! let stored = push.finish()?;
//! assert_eq!((stored.files, stored.bytes), (0, 0)); // nothing but the end marker
//!
//! std::fs::write(temporary.path().join("notes"), "hello")?;
//! let mut pulled = folder.pull(b"/notes")?;
//! let mut text = String::new();
//! pulled.content.read_to_string(&mut text)?;
//! assert_eq!((text.as_str(), pulled.len), ("hello", 5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(all(feature = "guest", target_os = "linux"))]
mod extract;
#[cfg(all(feature = "guest", target_os = "linux"))]
mod folder;

use std::error::Error;
use std::fmt;
use std::io::Read;

pub use triwire::exec::files::FilesPutResult;
use triwire::exec::head::{Refusal, Why};

#[cfg(all(feature = "guest", target_os = "linux"))]
pub use self::folder::{Folder, Policy};

/// The files of a sandbox. Its calls may block: ask on a thread that may wait.
pub trait Files: Send + Sync {
    /// Begins to unpack an archive into the folder at `path`, which is absolute and made when it
    /// is missing.
    ///
    /// # Errors
    /// The folder cannot be had.
    fn push(&self, path: &[u8]) -> Result<Box<dyn Push>, FilesError>;

    /// Opens the regular file at `path`, which is absolute.
    ///
    /// # Errors
    /// There is no such file, or it is none.
    fn pull(&self, path: &[u8]) -> Result<Pulled, FilesError>;
}

/// An archive that is being unpacked. Dropping it leaves what was stored, and no file in half.
pub trait Push: Send {
    /// Takes the next bytes of the archive.
    ///
    /// # Errors
    /// An entry is refused or cannot be stored; nothing more is taken.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError>;

    /// Ends the archive.
    ///
    /// # Errors
    /// As [`feed`](Self::feed); or the archive is not whole.
    fn finish(&mut self) -> Result<FilesPutResult, FilesError>;

    /// Returns what was stored so far.
    fn stored(&self) -> FilesPutResult;
}

/// A file that is sent.
pub struct Pulled {
    /// Its content.
    pub content: Box<dyn Read + Send>,
    /// Its length when it was opened, in bytes.
    pub len: u64,
}

impl fmt::Debug for Pulled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulled").field("len", &self.len).finish_non_exhaustive()
    }
}

/// What is the matter with a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FilesFault {
    /// The archive, or an entry of it, is refused.
    Refused,
    /// A limit was passed.
    TooLarge,
    /// There is no such file.
    Missing,
    /// It is no regular file.
    NotAFile,
    /// The file system failed.
    Failed,
}

impl FilesFault {
    /// Returns the refusal that stands for it.
    #[must_use]
    pub fn refusal(self) -> Refusal {
        match self {
            Self::Refused => Why::Archive.into(),
            Self::TooLarge => Why::TransferTooLarge.into(),
            Self::Missing => Why::UnknownFile.into(),
            Self::NotAFile => Why::NotAFile.into(),
            Self::Failed => Why::Internal.into(),
        }
    }
}

/// A transfer that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesError {
    /// What is the matter.
    pub fault: FilesFault,
    /// The entry, escaped, and why, as a sentence for people.
    pub why: String,
    /// What a push had stored before.
    pub stored: FilesPutResult,
}

impl FilesError {
    /// Makes an error of a transfer that has stored nothing.
    #[must_use]
    pub fn new(fault: FilesFault, why: impl Into<String>) -> Self {
        Self { fault, why: why.into(), stored: FilesPutResult::default() }
    }
}

impl fmt::Display for FilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Error for FilesError {}
