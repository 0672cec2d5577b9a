use core::fmt;

use super::header::Header;
use super::name::{components, link_reach};
use super::pax::{Records, Scope};
use super::{BLOCK_SIZE, MAX_METADATA_ENTRIES, MAX_METADATA_SIZE, MODE_MASK, TarError, TarFault};

/// A kind of entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Kind {
    /// A regular file, whose content follows.
    File,
    /// A directory.
    Directory,
    /// A symbolic link to [`Reader::link`], which is relative to the link's own folder.
    Symlink,
    /// A second name for the entry that [`Reader::link`] names.
    HardLink,
}

/// An entry that may be unpacked. Its name is [`Reader::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Bytes of content that follow; 0 for all but files.
    pub size: u64,
    /// Its permissions, within [`MODE_MASK`].
    pub mode: u32,
}

/// What an archive says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event<'i> {
    /// An entry begins; the one before is complete.
    Entry(Entry),
    /// The next bytes of the file's content, never empty.
    Data(&'i [u8]),
    /// The end marker, once. What follows it is ignored.
    End,
}

/// Reads an archive as it comes. The type's parameter is room for names: an array in firmware, a
/// boxed slice of twice [`MAX_NAME_SIZE`](super::MAX_NAME_SIZE) on a host.
///
/// The [module](super) tells what is taken and what is refused.
#[derive(Clone)]
pub struct Reader<S> {
    names: Names<S>,
    block: [u8; BLOCK_SIZE],
    state: State,
    /// What metadata said of the next entry.
    pending: Pending,
    global_size: Option<u64>,
    /// Where the header begins that is read or was read last.
    entry_at: u64,
    offset: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header { filled: usize },
    Content { left: u64, padding: u64 },
    Metadata { left: u64, padding: u64, what: Metadata },
    Padding { left: u64 },
    Ended,
    Failed(TarError),
}

#[derive(Clone, Copy, Debug)]
enum Metadata {
    Records(Records, Scope),
    /// A name of GNU's, up to its first zero byte.
    Name {
        which: Which,
        ended: bool,
    },
}

/// Of each kind of metadata an entry has at most one: of two, tools disagree which counts.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    count: u8,
    has_records: bool,
    has_long_name: bool,
    has_long_link: bool,
    size: Option<u64>,
}

impl<S: AsRef<[u8]> + AsMut<[u8]>> Reader<S> {
    /// Makes a reader. Half of `room` holds the entry's name, half a link's target; a name that
    /// does not fit is an error.
    pub const fn new(room: S) -> Self {
        Self {
            names: Names { room, name: 0, link: 0 },
            block: [0; BLOCK_SIZE],
            state: State::Header { filled: 0 },
            pending: Pending {
                count: 0,
                has_records: false,
                has_long_name: false,
                has_long_link: false,
                size: None,
            },
            global_size: None,
            entry_at: 0,
            offset: 0,
        }
    }

    /// Takes more of the archive and says what it means, advancing `input` past what was used;
    /// `None` asks for more.
    ///
    /// # Errors
    /// The archive is broken, or its next entry is refused. It cannot be read on.
    pub fn feed<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, TarError> {
        loop {
            match self.state {
                State::Failed(error) => return Err(error),
                State::Ended => {
                    let rest = input.len() as u64;
                    self.take(input, rest);
                    return Ok(None);
                }
                State::Header { filled } => {
                    if !self.fill(filled, input) {
                        return Ok(None);
                    }
                    if let Some(event) = self.header().map_err(|fault| self.fail(fault))? {
                        return Ok(Some(event));
                    }
                }
                State::Content { left: 0, padding } => {
                    self.state = State::Padding { left: padding }
                }
                State::Metadata { left: 0, padding, what } => {
                    self.metadata_ended(&what).map_err(|fault| self.fail(fault))?;
                    self.state = State::Padding { left: padding };
                }
                State::Padding { left: 0 } => {
                    self.entry_at = self.offset;
                    self.state = State::Header { filled: 0 };
                }
                _ if input.is_empty() => return Ok(None),
                State::Content { left, padding } => {
                    let data = self.take(input, left);
                    let left = left.saturating_sub(data.len() as u64);
                    self.state = State::Content { left, padding };
                    return Ok(Some(Event::Data(data)));
                }
                State::Metadata { left, padding, mut what } => {
                    let bytes = self.take(input, left);
                    what.feed(bytes, &mut self.names).map_err(|fault| self.fail(fault))?;
                    let left = left.saturating_sub(bytes.len() as u64);
                    self.state = State::Metadata { left, padding, what };
                }
                State::Padding { left } => {
                    let bytes = self.take(input, left);
                    self.state = State::Padding { left: left.saturating_sub(bytes.len() as u64) };
                }
            }
        }
    }

    /// Judges the end of the archive. One that ends between entries, without its end marker, is
    /// whole, as common tools take it.
    ///
    /// # Errors
    /// It ended inside an entry, or was refused before.
    pub fn finish(&self) -> Result<(), TarError> {
        let whole = BLOCK_SIZE as u64;
        let missing = match self.state {
            State::Failed(error) => return Err(error),
            State::Ended => 0,
            State::Header { filled: 0 } if self.pending.count == 0 => 0,
            State::Header { filled } => whole.saturating_sub(filled as u64),
            State::Padding { left: 0 } if self.pending.count == 0 => 0,
            State::Padding { left: 0 } => whole,
            State::Padding { left } => left,
            State::Content { left, padding } | State::Metadata { left, padding, .. } => {
                match left.saturating_add(padding) {
                    0 if self.pending.count > 0 => whole,
                    missing => missing,
                }
            }
        };
        match missing {
            0 => Ok(()),
            missing => Err(TarError { at: self.offset, fault: TarFault::Truncated { missing } }),
        }
    }

    /// Returns the name of the last entry, also of one that was refused, as the archive writes
    /// it: clean components with `/` between them, in whatever encoding.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.names.get(Which::Name)
    }

    /// Returns the target of the last entry when it is a link, else nothing.
    #[must_use]
    pub fn link(&self) -> &[u8] {
        self.names.get(Which::Link)
    }

    /// Returns how many bytes of the archive were taken.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    fn fail(&mut self, fault: TarFault) -> TarError {
        let error = TarError { at: self.entry_at, fault };
        self.state = State::Failed(error);
        error
    }

    fn take<'i>(&mut self, input: &mut &'i [u8], most: u64) -> &'i [u8] {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(input.len());
        let (taken, rest) = input.split_at_checked(most).unwrap_or_default();
        *input = rest;
        self.offset = self.offset.saturating_add(taken.len() as u64);
        taken
    }

    /// Fills the header's block; `true` when it is whole.
    fn fill(&mut self, filled: usize, input: &mut &[u8]) -> bool {
        let missing = BLOCK_SIZE.saturating_sub(filled);
        let bytes = self.take(input, missing as u64);
        let end = filled.saturating_add(bytes.len());
        if let Some(place) = self.block.get_mut(filled..end) {
            // Without the check that both have one length, which nothing could fail.
            for (to, from) in place.iter_mut().zip(bytes) {
                *to = *from;
            }
        }
        self.state = State::Header { filled: end };
        end == BLOCK_SIZE
    }

    /// Judges a whole header.
    fn header(&mut self) -> Result<Option<Event<'static>>, TarFault> {
        let Self { names, block, pending, .. } = self;
        let Some(header) = Header::parse(block)? else {
            if pending.count > 0 {
                return Err(TarFault::Truncated { missing: BLOCK_SIZE as u64 });
            }
            self.state = State::Ended;
            return Ok(Some(Event::End));
        };
        if pending.count == 0 {
            names.clear(Which::Name);
            names.clear(Which::Link);
        }
        let type_byte = header.type_byte();
        if let Some((what, limit)) = pending.metadata(type_byte, names.half())? {
            pending.count = pending.count.saturating_add(1);
            let size = header.size()?;
            if pending.count > MAX_METADATA_ENTRIES {
                return Err(TarFault::TooMuchMetadata);
            }
            if size > MAX_METADATA_SIZE {
                return Err(TarFault::MetadataTooLarge { size });
            }
            if size > limit {
                return Err(TarFault::NameTooLong { room: names.half() });
            }
            self.state = State::Metadata { left: size, padding: padding(size), what };
            return Ok(None);
        }

        // The name first: a refusal tells it.
        if names.get(Which::Name).is_empty() {
            let (prefix, name) = header.name();
            names.write(Which::Name, prefix, name)?;
        }
        if names.get(Which::Link).is_empty() {
            names.write(Which::Link, b"", header.link())?;
        }
        let name = names.get(Which::Name);
        let is_named_directory = name.ends_with(b"/");
        let kind = match type_byte {
            0 if is_named_directory => Kind::Directory,
            0 | b'0' | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'5' => Kind::Directory,
            b'S' => return Err(TarFault::Sparse),
            found => return Err(TarFault::Unsupported { found }),
        };
        let declared = header.size()?;
        let said = pending.size.or(self.global_size);
        let size = match kind {
            Kind::File => said.unwrap_or(declared),
            // The size of the file that it names; no content follows.
            Kind::HardLink => said.unwrap_or(0),
            Kind::Directory | Kind::Symlink => said.unwrap_or(declared),
        };
        components(name).map_err(TarFault::Name)?;
        match kind {
            Kind::File if is_named_directory => return Err(TarFault::FileAsDirectory),
            Kind::File => {}
            _ if size != 0 => return Err(TarFault::Content { size }),
            Kind::HardLink => {
                components(names.get(Which::Link)).map_err(TarFault::Target)?;
            }
            Kind::Symlink => {
                link_reach(name, names.get(Which::Link)).map_err(TarFault::Target)?;
            }
            Kind::Directory => {}
        }
        if !matches!(kind, Kind::HardLink | Kind::Symlink) {
            names.clear(Which::Link);
        }
        let mode = header.mode()? & MODE_MASK;
        *pending = Pending::default();
        self.state = State::Content { left: size, padding: padding(size) };
        Ok(Some(Event::Entry(Entry { kind, size, mode })))
    }

    fn metadata_ended(&mut self, what: &Metadata) -> Result<(), TarFault> {
        match what {
            Metadata::Records(records, scope) => {
                records.finish()?;
                let size = match scope {
                    Scope::Entry => &mut self.pending.size,
                    Scope::Global => &mut self.global_size,
                };
                *size = records.size.unwrap_or(*size);
                Ok(())
            }
            Metadata::Name { which, .. } if self.names.get(*which).is_empty() => {
                Err(TarFault::Records)
            }
            Metadata::Name { .. } => Ok(()),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Reader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("state", &self.state)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl Pending {
    /// Tells whether the type is one of metadata, and how much of it there may be.
    fn metadata(
        &mut self,
        type_byte: u8,
        room: usize,
    ) -> Result<Option<(Metadata, u64)>, TarFault> {
        let (flag, is_mixed, metadata) = match type_byte {
            b'g' => {
                let records = Metadata::Records(Records::new(Scope::Global), Scope::Global);
                return Ok(Some((records, MAX_METADATA_SIZE)));
            }
            b'x' => {
                let records = Metadata::Records(Records::new(Scope::Entry), Scope::Entry);
                let is_mixed = self.has_long_name || self.has_long_link;
                (&mut self.has_records, is_mixed, records)
            }
            b'L' => (
                &mut self.has_long_name,
                self.has_records,
                Metadata::Name { which: Which::Name, ended: false },
            ),
            b'K' => (
                &mut self.has_long_link,
                self.has_records,
                Metadata::Name { which: Which::Link, ended: false },
            ),
            _ => return Ok(None),
        };
        if is_mixed || core::mem::replace(flag, true) {
            return Err(TarFault::Records);
        }
        // A name may have its zero byte beside it.
        let limit = match metadata {
            Metadata::Records(..) => MAX_METADATA_SIZE,
            Metadata::Name { .. } => (room as u64).saturating_add(1),
        };
        Ok(Some((metadata, limit)))
    }
}

impl Metadata {
    fn feed<S: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        bytes: &[u8],
        names: &mut Names<S>,
    ) -> Result<(), TarFault> {
        for byte in bytes {
            match self {
                Self::Records(records, _) => records.feed(*byte, names)?,
                Self::Name { ended: true, .. } => {}
                Self::Name { ended, .. } if *byte == 0 => *ended = true,
                Self::Name { which, .. } => names.push(*which, *byte)?,
            }
        }
        Ok(())
    }
}

/// Which of an entry's two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Name,
    Link,
}

/// The names of one entry, in the caller's room.
#[derive(Clone)]
pub(super) struct Names<S> {
    room: S,
    name: usize,
    link: usize,
}

impl<S: AsRef<[u8]> + AsMut<[u8]>> Names<S> {
    fn half(&self) -> usize {
        self.room.as_ref().len() / 2
    }

    fn get(&self, which: Which) -> &[u8] {
        let (name, link) = self.room.as_ref().split_at_checked(self.half()).unwrap_or_default();
        let (half, len) = match which {
            Which::Name => (name, self.name),
            Which::Link => (link, self.link),
        };
        half.get(..len).unwrap_or_default()
    }

    pub(super) const fn clear(&mut self, which: Which) {
        match which {
            Which::Name => self.name = 0,
            Which::Link => self.link = 0,
        }
    }

    pub(super) fn push(&mut self, which: Which, byte: u8) -> Result<(), TarFault> {
        let room = self.half();
        let (start, len) = match which {
            Which::Name => (0, &mut self.name),
            Which::Link => (room, &mut self.link),
        };
        if *len >= room {
            return Err(TarFault::NameTooLong { room });
        }
        if let Some(place) = self.room.as_mut().get_mut(start.saturating_add(*len)) {
            *place = byte;
        }
        *len = len.saturating_add(1);
        Ok(())
    }

    fn write(&mut self, which: Which, prefix: &[u8], name: &[u8]) -> Result<(), TarFault> {
        self.clear(which);
        let slash: &[u8] = if prefix.is_empty() { b"" } else { b"/" };
        for byte in prefix.iter().chain(slash).chain(name) {
            self.push(which, *byte)?;
        }
        Ok(())
    }
}

/// Zeros behind content of this size.
const fn padding(size: u64) -> u64 {
    const MASK: u64 = BLOCK_SIZE as u64 - 1;
    size.wrapping_neg() & MASK
}
