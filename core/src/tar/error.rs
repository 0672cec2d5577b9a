use core::fmt;

use super::{MAX_METADATA_ENTRIES, MAX_METADATA_SIZE, NameFault};

/// An archive that is refused, and where.
///
/// The reader that answered it answers it again to every later call. What was handed out before
/// stays good, and [`Reader::name`](super::Reader::name) still tells the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct TarError {
    /// Offset in the archive, in bytes: of the header of the entry that is refused, or the end.
    pub at: u64,
    /// What is wrong.
    pub fault: TarFault,
}

/// What is wrong with an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum TarFault {
    /// A header whose checksum is not that of its bytes: no tar archive, or a broken one.
    Checksum,
    /// A number field that holds no number, a negative one, or one beyond 2^63 - 1.
    Number,
    /// The archive ended inside an entry or in front of the entry that metadata announced.
    Truncated {
        /// Bytes missing of the header, the content or its padding.
        missing: u64,
    },
    /// PAX records whose lengths, names or values do not fit together.
    Records,
    /// Metadata larger than [`MAX_METADATA_SIZE`].
    MetadataTooLarge {
        /// Its declared size in bytes.
        size: u64,
    },
    /// More than [`MAX_METADATA_ENTRIES`] in a row.
    TooMuchMetadata,
    /// A name that does not fit the caller's room.
    NameTooLong {
        /// Bytes of that room.
        room: usize,
    },
    /// A name that could reach outside.
    Name(NameFault),
    /// A link's target that could.
    Target(NameFault),
    /// A type of entry that is not taken, as the byte of its type field.
    Unsupported {
        /// The type byte.
        found: u8,
    },
    /// A sparse file, which would be read as something else.
    Sparse,
    /// An entry without content, such as a directory, that declares some.
    Content {
        /// The declared size in bytes.
        size: u64,
    },
    /// A file whose name ends as a directory's.
    FileAsDirectory,
    /// A name or a link's target for all entries that follow (our choice: nothing writes it).
    GlobalName,
}

impl TarFault {
    /// Returns the stable word for the fault, the same in every version.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::Number => "number",
            Self::Truncated { .. } => "truncated",
            Self::Records => "records",
            Self::MetadataTooLarge { .. } => "metadata_too_large",
            Self::TooMuchMetadata => "too_much_metadata",
            Self::NameTooLong { .. } => "name_too_long",
            Self::Name(fault) => fault.code(),
            Self::Target(_) => "link_outside",
            Self::Unsupported { .. } => "unsupported",
            Self::Sparse => "sparse",
            Self::Content { .. } => "content",
            Self::FileAsDirectory => "file_as_directory",
            Self::GlobalName => "global_name",
        }
    }
}

impl fmt::Display for TarFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Checksum => f.write_str(
                "the header's checksum is wrong; send a plain tar archive, without compression",
            ),
            Self::Number => f.write_str("a number in the header is none; make the archive anew"),
            Self::Truncated { missing } => {
                write!(f, "the archive ends {missing} bytes too early; send it whole")
            }
            Self::Records => f.write_str("the extended header is broken; make the archive anew"),
            Self::MetadataTooLarge { size } => write!(
                f,
                "an extended header of {size} bytes, at most {MAX_METADATA_SIZE} are read; \
                 leave extended attributes out"
            ),
            Self::TooMuchMetadata => write!(
                f,
                "more than {MAX_METADATA_ENTRIES} extended headers in front of one entry; \
                 make the archive anew"
            ),
            Self::NameTooLong { room } => {
                write!(f, "a name longer than {room} bytes; use shorter names")
            }
            Self::Name(fault) => write!(f, "the entry's name {fault}"),
            Self::Target(fault) => write!(f, "the link's target {fault}"),
            Self::Unsupported { found } => write!(
                f,
                "entries of type `{}` are not taken, only files, directories and links",
                found.escape_ascii()
            ),
            Self::Sparse => f.write_str("sparse files are not taken; make the archive without"),
            Self::Content { size } => {
                write!(f, "an entry that has no content declares {size} bytes of it")
            }
            Self::FileAsDirectory => f.write_str("a file's name ends with `/`"),
            Self::GlobalName => {
                f.write_str("a name for all entries that follow; make the archive anew")
            }
        }
    }
}

impl fmt::Display for TarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.fault.code(), self.at, self.fault)
    }
}

impl core::error::Error for TarError {}
