//! One archive on its way into a folder.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use triwire::exec::files::FilesPutResult;
use triwire::tar::{Entry, Event, Kind, MAX_NAME_SIZE, Reader, TarError, components};

use super::{FilesError, FilesFault, Policy, Push};
use crate::entropy;

/// The most folders without the right to write in them, which get their permissions last.
const MAX_LATE: usize = 4096;
/// What the owner of a folder needs to store in it.
const OWNER: u32 = 0o300;

pub(super) struct Extraction {
    to: Unpacked,
    reader: Reader<Box<[u8]>>,
    /// Nothing is taken behind an error.
    failed: Option<FilesError>,
}

/// The folder, as far as it is filled.
struct Unpacked {
    folder: Dir,
    policy: Policy,
    entries: u64,
    stored: FilesPutResult,
    /// The file that is written.
    open: Option<Open>,
    /// The folder of the last entry: most entries have the same.
    last: Option<(Vec<u8>, Dir)>,
    late: Vec<(Vec<u8>, u32)>,
    /// Makes names that nobody else uses.
    random: u64,
    serial: u64,
}

struct Open {
    folder: Dir,
    file: File,
    temporary: String,
    /// From the archive's folder on.
    path: Vec<u8>,
    len: u64,
    /// What it will have.
    size: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        // It is not there any more when it was renamed.
        if !self.temporary.is_empty() {
            let _ = rustix::fs::unlinkat(&self.folder, &self.temporary, AtFlags::empty());
        }
    }
}

/// Why an entry is not stored.
enum NotStored {
    Refused(String),
    TooLarge(String),
    Failed(io::Error),
}

impl From<io::Error> for NotStored {
    /// What is the archive's fault, or the folder's, is told from what is the machine's.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::DirectoryNotEmpty
            | ErrorKind::AlreadyExists
            | ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::InvalidInput
            | ErrorKind::InvalidFilename => Self::Refused(error.to_string()),
            _ if error.raw_os_error() == Some(libc::ELOOP) => Self::Refused(error.to_string()),
            _ => Self::Failed(error),
        }
    }
}

impl From<rustix::io::Errno> for NotStored {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl Extraction {
    pub(super) fn new(folder: Dir, policy: Policy) -> io::Result<Self> {
        let mut random = [0; 8];
        entropy::fill(&mut random)?;
        let to = Unpacked {
            folder,
            policy,
            entries: 0,
            stored: FilesPutResult::default(),
            open: None,
            last: None,
            late: Vec::new(),
            random: u64::from_ne_bytes(random),
            serial: 0,
        };
        let room = vec![0; 2 * MAX_NAME_SIZE].into_boxed_slice();
        Ok(Self { to, reader: Reader::new(room), failed: None })
    }

    fn fail(&mut self, error: FilesError) -> FilesError {
        // A file in half is none.
        self.to.open = None;
        self.failed = Some(error.clone());
        error
    }

    fn refused(&self, error: TarError) -> FilesError {
        let name = self.reader.name();
        let why = match name {
            [] => error.to_string(),
            name => format!("{}: {error}", name.escape_ascii()),
        };
        FilesError { fault: FilesFault::Refused, why, stored: self.to.stored }
    }

    fn not_stored(&self, error: NotStored) -> FilesError {
        let name = self.reader.name().escape_ascii();
        let (fault, why) = match error {
            NotStored::Refused(why) => (FilesFault::Refused, why),
            NotStored::TooLarge(why) => (FilesFault::TooLarge, why),
            NotStored::Failed(error) => (FilesFault::Failed, error.to_string()),
        };
        FilesError { fault, why: format!("{name}: {why}"), stored: self.to.stored }
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), FilesError> {
        loop {
            let event = match self.reader.feed(&mut bytes) {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.refused(error)),
            };
            let done = match event {
                Event::Entry(entry) => {
                    let Self { to, reader, .. } = self;
                    to.entry(entry, reader.name(), reader.link())
                }
                Event::Data(data) => self.to.data(data),
                Event::End => Ok(()),
            };
            done.map_err(|error| self.not_stored(error))?;
        }
    }

    fn end(&mut self) -> Result<FilesPutResult, FilesError> {
        self.reader.finish().map_err(|error| self.refused(error))?;
        self.to.settle().map_err(|error| self.not_stored(error))?;
        Ok(self.to.stored)
    }
}

impl Push for Extraction {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.take(bytes).map_err(|error| self.fail(error))
    }

    fn finish(&mut self) -> Result<FilesPutResult, FilesError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.end().map_err(|error| self.fail(error))
    }

    fn stored(&self) -> FilesPutResult {
        self.to.stored
    }
}

impl Unpacked {
    /// Begins an entry.
    fn entry(&mut self, entry: Entry, name: &[u8], link: &[u8]) -> Result<(), NotStored> {
        // rule: FILE-18
        self.entries += 1;
        if self.entries > self.policy.max_entries {
            let why = format!("more than {} entries", self.policy.max_entries);
            return Err(NotStored::TooLarge(why));
        }
        if entry.size > self.policy.max_bytes - self.stored.bytes.min(self.policy.max_bytes) {
            let why = format!("more than {} bytes of content", self.policy.max_bytes);
            return Err(NotStored::TooLarge(why));
        }
        // The reader has judged it.
        let parts: Vec<&[u8]> =
            components(name).map_err(|fault| NotStored::Refused(fault.to_string()))?.collect();
        let Some((own, above)) = parts.split_last() else {
            // The folder itself, whose permissions are not the archive's to set.
            return match entry.kind {
                Kind::Directory => Ok(()),
                _ => Err(NotStored::Refused("it is the folder itself".to_owned())),
            };
        };
        match entry.kind {
            Kind::File => self.file(entry, &parts, above),
            Kind::Directory => self.directory(entry.mode, &parts, own, above),
            Kind::Symlink => self.symlink(own, above, &parts, link),
            Kind::HardLink => self.hard_link(&parts, above, link),
        }
    }

    /// Opens the folder of an entry, made when it is missing, from the archive's folder on: a link
    /// on the way is followed where that stays inside.
    fn above(&mut self, above: &[&[u8]]) -> io::Result<&Dir> {
        if above.is_empty() {
            return Ok(&self.folder);
        }
        let path = above.join(&b'/');
        if self.last.as_ref().is_none_or(|(last, _)| *last != path) {
            let inner = Path::new(OsStr::from_bytes(&path));
            let opened = match self.folder.open_dir(inner) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.folder.create_dir_all(inner)?;
                    self.folder.open_dir(inner)
                }
                opened => opened,
            };
            self.last = Some((path, opened?));
        }
        match &self.last {
            Some((_, folder)) => Ok(folder),
            None => Ok(&self.folder),
        }
    }

    /// Makes a name in which nothing else stands.
    fn temporary(&mut self) -> String {
        self.serial += 1;
        format!(".triwire-{:016x}-{:x}", self.random, self.serial)
    }

    // rule: FILE-16
    fn file(&mut self, entry: Entry, parts: &[&[u8]], above: &[&[u8]]) -> Result<(), NotStored> {
        let temporary = self.temporary();
        let folder = self.above(above)?.try_clone()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let flags = flags | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&folder, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
        let path = parts.join(&b'/');
        let open =
            Open { folder, file: File::from(file), temporary, path, len: 0, size: entry.size };
        rustix::fs::fchmod(&open.file, Mode::from_raw_mode(entry.mode))?;
        self.open = Some(open);
        self.complete()
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), NotStored> {
        if let Some(open) = &mut self.open {
            open.file.write_all(bytes)?;
            open.len += bytes.len() as u64;
        }
        self.complete()
    }

    /// Puts a file in its place once it is whole.
    fn complete(&mut self) -> Result<(), NotStored> {
        if let Some(mut open) = self.open.take_if(|open| open.len == open.size) {
            self.put(&open.folder, &open.temporary, &open.path)?;
            open.temporary.clear();
            self.stored.files += 1;
            self.stored.bytes += open.len;
        }
        Ok(())
    }

    fn directory(
        &mut self,
        mode: u32,
        parts: &[&[u8]],
        own: &[u8],
        above: &[&[u8]],
    ) -> Result<(), NotStored> {
        let folder = self.above(above)?;
        match rustix::fs::mkdirat(folder, OsStr::from_bytes(own), Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let path = parts.join(&b'/');
        // A link is followed where it stays inside; anything but a folder is refused here.
        let opened = self.folder.open_dir(Path::new(OsStr::from_bytes(&path)))?;
        if mode & OWNER == OWNER {
            set_mode(&opened, mode)?;
        } else if self.late.len() < MAX_LATE {
            self.late.push((path, mode));
        } else {
            let why = format!("more than {MAX_LATE} folders that may not be written in");
            return Err(NotStored::TooLarge(why));
        }
        Ok(())
    }

    // rule: FILE-17
    fn symlink(
        &mut self,
        own: &[u8],
        above: &[&[u8]],
        parts: &[&[u8]],
        target: &[u8],
    ) -> Result<(), NotStored> {
        let temporary = self.temporary();
        let folder = self.above(above)?.try_clone()?;
        let target = OsStr::from_bytes(target);
        rustix::fs::symlinkat(target, &folder, &temporary)?;
        let path = parts.join(&b'/');
        self.put(&folder, &temporary, &path)?;
        // By its words it stays inside; over other links it might not.
        if self.check_link(&path).is_err() {
            rustix::fs::unlinkat(&folder, OsStr::from_bytes(own), AtFlags::empty())?;
            return Err(NotStored::Refused("the link leads outside over other links".to_owned()));
        }
        // What was behind the name before may be behind it no more.
        self.last = None;
        Ok(())
    }

    fn hard_link(
        &mut self,
        own: &[&[u8]],
        above: &[&[u8]],
        target: &[u8],
    ) -> Result<(), NotStored> {
        let temporary = self.temporary();
        let parts: Vec<&[u8]> =
            components(target).map_err(|fault| NotStored::Refused(fault.to_string()))?.collect();
        let Some((last, to_target)) = parts.split_last() else {
            return Err(NotStored::Refused("it links to the folder itself".to_owned()));
        };
        let from = match to_target {
            [] => self.folder.try_clone()?,
            above => {
                let path = above.join(&b'/');
                self.folder.open_dir(Path::new(OsStr::from_bytes(&path)))?
            }
        };
        let folder = self.above(above)?.try_clone()?;
        let last = OsStr::from_bytes(last);
        rustix::fs::linkat(&from, last, &folder, &temporary, AtFlags::empty())?;
        self.put(&folder, &temporary, &own.join(&b'/'))?;
        self.last = None;
        Ok(())
    }

    /// Gives the folders that may not be written in their permissions, the innermost first.
    fn settle(&mut self) -> Result<(), NotStored> {
        while let Some((path, mode)) = self.late.pop() {
            let folder = self.folder.open_dir(Path::new(OsStr::from_bytes(&path)))?;
            set_mode(&folder, mode)?;
        }
        Ok(())
    }

    /// Puts what has a temporary name in its place. A link that stands there and leads outside is
    /// refused; anything else but a folder is replaced.
    // rule: FILE-16
    fn put(&self, folder: &Dir, temporary: &str, path: &[u8]) -> Result<(), NotStored> {
        let own = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let own = OsStr::from_bytes(own);
        let flags = RenameFlags::NOREPLACE;
        // Most of the time nothing stands there, and nothing has to be looked at.
        if rustix::fs::renameat_with(folder, temporary, folder, own, flags).is_ok() {
            return Ok(());
        }
        let put = self.check_link(path).and_then(|()| {
            rustix::fs::renameat(folder, temporary, folder, own)?;
            Ok(())
        });
        // Of two names of one file the rename leaves both.
        let _ = rustix::fs::unlinkat(folder, temporary, AtFlags::empty());
        put
    }

    /// Refuses what is behind a link that leads outside.
    fn check_link(&self, path: &[u8]) -> Result<(), NotStored> {
        match self.folder.metadata(Path::new(OsStr::from_bytes(path))) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Sets a folder's permissions through its handle, which is good for looking things up only.
fn set_mode(folder: &Dir, mode: u32) -> Result<(), NotStored> {
    rustix::fs::chmodat(folder, ".", Mode::from_raw_mode(mode), AtFlags::empty())?;
    Ok(())
}
