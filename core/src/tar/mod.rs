//! Tar archives, read as a stream and judged entry by entry: the one judge on hosts and in
//! firmware.
//!
//! ```text
//! ┌ header, 512 bytes ┐┌ content ─────────┐┌ zeros to 512 ┐ …  ┌ 512 zeros ┐ anything
//! └ name size type …  ┘└ `size` bytes     ┘└──────────────┘    └ the end   ┘
//! ```
//!
//! [`Reader`] takes the archive in pieces of any size and hands on each [`Entry`] and its content,
//! which borrows the input. It reads ustar, PAX and GNU names. What two readers could take for two
//! different things is refused, and so is every entry that could reach outside the folder that the
//! archive is unpacked into:
//!
//! | entry | verdict |
//! | --- | --- |
//! | file, contiguous file, directory | kept, with at most the permission bits 0777 |
//! | symbolic link | kept when its target stays inside; see [`Reach`] |
//! | hard link | kept when its target is a clean name of the archive |
//! | name that is absolute, or has `..` anywhere | refused |
//! | device, FIFO, sparse file, any other type | refused |
//!
//! That is the judgement of what an archive says. What stands in the folder already is the
//! extractor's to judge, with directory handles, so that the check and the open are one act.
//!
//! ```
//! use triwire::tar::{BLOCK_SIZE, Event, Kind, Reader};
//! # let mut archive = vec![0u8; 3 * BLOCK_SIZE];
//! # archive[..9].copy_from_slice(b"notes.txt");
//! # archive[100..107].copy_from_slice(b"0000644");
//! # archive[124..135].copy_from_slice(b"00000000005");
//! # archive[156] = b'0';
//! # archive[257..265].copy_from_slice(b"ustar\x0000");
//! # archive[148..156].fill(b' ');
//! # let sum: u32 = archive[..512].iter().map(|b| u32::from(*b)).sum();
//! # archive[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
//! # archive[512..517].copy_from_slice(b"hello");
//!
//! let mut reader = Reader::new([0; 512]); // room for names: half for the entry's, half for a link's
//! let mut content = Vec::new();
//! for mut piece in archive.chunks(100) {
//!     while let Some(event) = reader.feed(&mut piece)? {
//!         match event {
//!             Event::Entry(entry) => {
//!                 assert_eq!((entry.kind, entry.size), (Kind::File, 5));
//!                 assert_eq!(reader.name(), b"notes.txt");
//!             }
//!             Event::Data(bytes) => content.extend_from_slice(bytes),
//!             Event::End => {}
//!         }
//!     }
//! }
//! reader.finish()?;
//! assert_eq!(content, b"hello");
//! # Ok::<(), triwire::tar::TarError>(())
//! ```
//!
//! # Cost
//!
//! The reader holds one header block (512 bytes), a few counters and the caller's room for names.
//! Content is never copied. Each call does work in proportion to the input that it takes.

mod error;
mod header;
mod name;
mod pax;
mod reader;

pub use error::{TarError, TarFault};
pub use name::{Components, NameFault, Reach, components, link_reach};
pub use reader::{Entry, Event, Kind, Reader};

/// The size of a header, and what content is padded to, in bytes.
pub const BLOCK_SIZE: usize = 512;

/// The longest name that a host needs room for, in bytes: the longest path of its system calls
/// (our choice). [`Reader::new`] takes room for two.
pub const MAX_NAME_SIZE: usize = 4096;

/// The most content of one metadata entry (PAX records, a GNU long name), in bytes (our choice).
pub const MAX_METADATA_SIZE: u64 = 1 << 20;

/// The most metadata entries in front of one entry (our choice: common tools write at most four).
pub const MAX_METADATA_ENTRIES: u8 = 16;

/// The permission bits that an entry keeps.
pub const MODE_MASK: u32 = 0o777;
