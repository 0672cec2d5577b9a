//! One header block.

use super::{BLOCK_SIZE, TarFault};

/// The largest size that an archive can declare.
const MAX_NUMBER: u64 = i64::MAX as u64;

/// A header whose checksum is right.
pub(super) struct Header<'b>(&'b [u8; BLOCK_SIZE]);

/// Which family of fields follow those of the oldest format.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Oldest,
    Ustar,
    Gnu,
}

impl<'b> Header<'b> {
    /// Checks the sum that the header has of itself; `None` for a block of zeros, the end.
    pub(super) fn parse(block: &'b [u8; BLOCK_SIZE]) -> Result<Option<Self>, TarFault> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Self(block);
        let declared = header.number(148, 8)?;
        let (mut unsigned, mut signed) = (0_u64, 0_i64);
        for (at, byte) in block.iter().enumerate() {
            // The field itself counts as spaces.
            let byte = if matches!(at, 148..156) { b' ' } else { *byte };
            unsigned = unsigned.saturating_add(byte.into());
            signed = signed.saturating_add(i64::from(byte.cast_signed()));
        }
        // Some tools of old added up signed bytes.
        if declared == unsigned || i64::try_from(declared) == Ok(signed) {
            Ok(Some(header))
        } else {
            Err(TarFault::Checksum)
        }
    }

    fn field(&self, at: usize, len: usize) -> &'b [u8] {
        self.0.get(at..).and_then(|rest| rest.get(..len)).unwrap_or_default()
    }

    /// A text field, up to its first zero byte.
    fn text(&self, at: usize, len: usize) -> &'b [u8] {
        let field = self.field(at, len);
        field.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// An octal number between spaces and zero bytes, or base 256.
    fn number(&self, at: usize, len: usize) -> Result<u64, TarFault> {
        let field = self.field(at, len);
        let value = match field.split_first() {
            Some((0x80, rest)) => base_256(rest),
            // The bit beside the mark is the sign; other marks are none.
            Some((0x81.., _)) => None,
            _ => octal(field),
        };
        value.filter(|value| *value <= MAX_NUMBER).ok_or(TarFault::Number)
    }

    fn format(&self) -> Format {
        match self.field(257, 6) {
            b"ustar\0" => Format::Ustar,
            b"ustar " => Format::Gnu,
            _ => Format::Oldest,
        }
    }

    pub(super) fn size(&self) -> Result<u64, TarFault> {
        self.number(124, 12)
    }

    pub(super) fn mode(&self) -> Result<u32, TarFault> {
        // More bits than these are no permissions anyway.
        self.number(100, 8).map(|mode| mode as u32)
    }

    pub(super) fn type_byte(&self) -> u8 {
        self.field(156, 1).first().copied().unwrap_or_default()
    }

    /// Both parts of the name; the first may be empty. The second stands behind a `/` otherwise.
    pub(super) fn name(&self) -> (&'b [u8], &'b [u8]) {
        let name = self.text(0, 100);
        match self.format() {
            Format::Ustar => (self.text(345, 155), name),
            Format::Oldest | Format::Gnu => (b"", name),
        }
    }

    pub(super) fn link(&self) -> &'b [u8] {
        self.text(157, 100)
    }
}

fn octal(field: &[u8]) -> Option<u64> {
    let digits = field.trim_ascii_start();
    let end = digits.iter().position(|byte| matches!(byte, 0 | b' ')).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at_checked(end)?;
    if !rest.iter().all(|byte| matches!(byte, 0 | b' ')) {
        return None;
    }
    // An empty field is zero, as all tools read it.
    digits.iter().try_fold(0_u64, |value, byte| {
        let digit = char::from(*byte).to_digit(8)?;
        value.checked_mul(8)?.checked_add(digit.into())
    })
}

fn base_256(bytes: &[u8]) -> Option<u64> {
    bytes.iter().try_fold(0_u64, |value, byte| value.checked_mul(256)?.checked_add((*byte).into()))
}

/// Reads a decimal number of PAX, digits only.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, byte| {
        let digit = char::from(*byte).to_digit(10)?;
        value.checked_mul(10)?.checked_add(digit.into())
    })?;
    (value <= MAX_NUMBER).then_some(value)
}
