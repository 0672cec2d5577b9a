use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use triwire::exec::files::MAX_ENTRIES;

use super::extract::Extraction;
use super::{Files, FilesError, FilesFault, Pulled, Push};

/// What an archive may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The most entries; 1 000 000 unless set.
    pub max_entries: u64,
    /// The most bytes of content; as many as the disk has unless set.
    pub max_bytes: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { max_entries: MAX_ENTRIES, max_bytes: u64::MAX }
    }
}

/// A folder whose files are transferred, and nothing outside it. Clones are the same folder.
#[derive(Clone, Debug)]
pub struct Folder {
    dir: Arc<Dir>,
    policy: Policy,
}

impl Folder {
    /// Opens a folder, which must be there.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self::of(Arc::new(Dir::open_ambient_dir(path, ambient_authority())?)))
    }

    pub(crate) fn of(dir: Arc<Dir>) -> Self {
        Self { dir, policy: Policy::default() }
    }

    /// Sets what archives may hold.
    #[must_use]
    pub const fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }
}

/// Cuts an absolute path to one beneath the folder; the folder itself is `.`.
fn beneath(path: &[u8]) -> &Path {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    match path.get(start..).unwrap_or_default() {
        [] => Path::new("."),
        inner => Path::new(OsStr::from_bytes(inner)),
    }
}

impl Files for Folder {
    fn push(&self, path: &[u8]) -> Result<Box<dyn Push>, FilesError> {
        let inner = beneath(path);
        let open = || match self.dir.open_dir(inner) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.dir.create_dir_all(inner)?;
                self.dir.open_dir(inner)
            }
            opened => opened,
        };
        let folder = open().map_err(|error| {
            let shown = path.escape_ascii();
            let fault = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::Other => FilesFault::Failed,
                _ => FilesFault::Refused,
            };
            FilesError::new(fault, format!("the folder {shown} cannot be had: {error}"))
        })?;
        let failed = |error: io::Error| FilesError::new(FilesFault::Failed, error.to_string());
        Ok(Box::new(Extraction::new(folder, self.policy).map_err(failed)?))
    }

    // rule: FILE-15
    fn pull(&self, path: &[u8]) -> Result<Pulled, FilesError> {
        let shown = path.escape_ascii();
        let refused = |fault, why: &str| FilesError::new(fault, format!("{shown}: {why}"));
        let mut options = OpenOptions::new();
        // A FIFO without a writer must not hold it up.
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let opened = self.dir.open_with(beneath(path), &options);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => refused(FilesFault::Missing, "there is no such file"),
            io::ErrorKind::NotADirectory => {
                refused(FilesFault::Missing, "there is no such file: a folder on its way is none")
            }
            // A socket, or a device without its driver.
            _ if error.raw_os_error() == Some(libc::ENXIO) => {
                refused(FilesFault::NotAFile, "that is no regular file")
            }
            _ => refused(FilesFault::NotAFile, &error.to_string()),
        })?;
        let file = file.into_std();
        let metadata = file.metadata();
        let metadata = metadata.map_err(|error| refused(FilesFault::Failed, &error.to_string()))?;
        let kind = metadata.file_type();
        if !kind.is_file() {
            let what = match () {
                () if kind.is_dir() => "that is a folder; only single files are sent",
                () if kind.is_fifo() => "that is a FIFO; only regular files are sent",
                () => "that is no regular file",
            };
            return Err(refused(FilesFault::NotAFile, what));
        }
        Ok(Pulled { content: Box::new(file), len: metadata.len() })
    }
}
