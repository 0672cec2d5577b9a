//! The records of a PAX extended header: `LENGTH NAME=VALUE\n`, cut by their lengths alone.

use super::header::decimal;
use super::reader::{Names, Which};
use super::{MAX_METADATA_SIZE, TarFault};

/// The longest name of a record that is kept: those that mean something here are shorter.
const MAX_KEY: usize = 16;
/// What sparse files' records begin with.
const SPARSE: &[u8] = b"GNU.sparse.";
/// Digits of a record's length, enough for [`MAX_METADATA_SIZE`].
const MAX_DIGITS: u8 = 8;
/// Digits of the largest size.
const MAX_SIZE_DIGITS: usize = 19;

/// Reads records as they come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records {
    scope: Scope,
    place: Place,
    /// Bytes of the record that are still to come.
    left: u64,
    /// The record's name while it comes, then the digits of a size.
    text: [u8; MAX_SIZE_DIGITS],
    len: usize,
    /// The size that was read; `Some(None)` takes an earlier one back.
    pub(super) size: Option<Option<u64>>,
}

/// What the records hold for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Entry,
    Global,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Length { value: u64, digits: u8 },
    Key,
    Name(Which),
    Size,
    Other,
}

impl Records {
    pub(super) const fn new(scope: Scope) -> Self {
        let place = Place::Length { value: 0, digits: 0 };
        Self { scope, place, left: 0, text: [0; MAX_SIZE_DIGITS], len: 0, size: None }
    }

    /// Takes the next byte.
    pub(super) fn feed<S: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        byte: u8,
        names: &mut Names<S>,
    ) -> Result<(), TarFault> {
        if let Place::Length { value, digits } = self.place {
            return self.length(byte, value, digits);
        }
        self.left = self.left.checked_sub(1).ok_or(TarFault::Records)?;
        if self.left == 0 {
            return self.end(byte);
        }
        match self.place {
            Place::Key if byte == b'=' => self.value(names)?,
            Place::Key => self.push(byte, MAX_KEY),
            Place::Name(which) => names.push(which, byte)?,
            Place::Size if self.len == MAX_SIZE_DIGITS => return Err(TarFault::Number),
            Place::Size => self.push(byte, MAX_SIZE_DIGITS),
            Place::Other | Place::Length { .. } => {}
        }
        Ok(())
    }

    /// Judges the end of the extended header.
    pub(super) const fn finish(&self) -> Result<(), TarFault> {
        match self.place {
            Place::Length { digits: 0, .. } => Ok(()),
            _ => Err(TarFault::Records),
        }
    }

    fn length(&mut self, byte: u8, value: u64, digits: u8) -> Result<(), TarFault> {
        if byte == b' ' {
            // The length counts its own digits and the space.
            let before = u64::from(digits).saturating_add(1);
            self.left = match value.checked_sub(before) {
                // At least `=` and the newline follow.
                Some(left @ 2..) if digits > 0 && value <= MAX_METADATA_SIZE => left,
                _ => return Err(TarFault::Records),
            };
            self.place = Place::Key;
            self.len = 0;
            return Ok(());
        }
        let digit = char::from(byte).to_digit(10).filter(|_| digits < MAX_DIGITS);
        let digit = digit.ok_or(TarFault::Records)?;
        let value = value.saturating_mul(10).saturating_add(digit.into());
        self.place = Place::Length { value, digits: digits.saturating_add(1) };
        Ok(())
    }

    fn push(&mut self, byte: u8, max: usize) {
        if let Some(place) = self.text.get_mut(self.len).filter(|_| self.len < max) {
            *place = byte;
        }
        self.len = self.len.saturating_add(1);
    }

    fn value<S: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        names: &mut Names<S>,
    ) -> Result<(), TarFault> {
        // A longer name is none of these, but may begin as a sparse file's.
        let kept = self.text.get(..self.len.min(MAX_KEY)).unwrap_or_default();
        let key = if self.len > MAX_KEY { b"" } else { kept };
        self.place = match key {
            _ if kept.starts_with(SPARSE) => return Err(TarFault::Sparse),
            b"path" => self.name(Which::Name, names)?,
            b"linkpath" => self.name(Which::Link, names)?,
            b"size" => Place::Size,
            _ => Place::Other,
        };
        self.len = 0;
        Ok(())
    }

    fn name<S: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        which: Which,
        names: &mut Names<S>,
    ) -> Result<Place, TarFault> {
        if self.scope == Scope::Global {
            return Err(TarFault::GlobalName);
        }
        // The last record of a name counts.
        names.clear(which);
        Ok(Place::Name(which))
    }

    /// Takes the record's last byte.
    fn end(&mut self, byte: u8) -> Result<(), TarFault> {
        match self.place {
            Place::Key => return Err(TarFault::Records),
            Place::Size => {
                let digits = self.text.get(..self.len).unwrap_or_default();
                let size = decimal(digits);
                if size.is_none() && !digits.is_empty() {
                    return Err(TarFault::Number);
                }
                self.size = Some(size);
            }
            Place::Name(_) | Place::Other | Place::Length { .. } => {}
        }
        self.place = Place::Length { value: 0, digits: 0 };
        if byte == b'\n' { Ok(()) } else { Err(TarFault::Records) }
    }
}
