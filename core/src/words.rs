//! Sentences with numbers in them, without the formatting machinery: what it knows of widths, bases
//! and padding takes 3 KiB of a device's flash.

use core::fmt;

use crate::json;

/// Writes several texts, one behind the other.
pub(crate) fn texts(f: &mut fmt::Formatter<'_>, texts: &[&str]) -> fmt::Result {
    texts.iter().try_for_each(|text| f.write_str(text))
}

/// Writes `before`, a number, then `after`.
pub(crate) fn number(
    f: &mut fmt::Formatter<'_>,
    before: &str,
    number: u64,
    after: &str,
) -> fmt::Result {
    let mut digits = [0; 20];
    let digits = core::str::from_utf8(json::decimal(number, &mut digits)).unwrap_or_default();
    texts(f, &[before, digits, after])
}

/// Writes `before`, then a number in hex of at least `least` digits, at most 8, whose letters begin
/// with `letter`: `b'a'` or `b'A'`.
pub(crate) fn hex(
    f: &mut fmt::Formatter<'_>,
    before: &str,
    number: u32,
    least: usize,
    letter: u8,
) -> fmt::Result {
    let mut digits = [b'0'; 8];
    let mut rest = number;
    let mut start = digits.len().saturating_sub(least);
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        if rest == 0 {
            break;
        }
        let value = (rest & 0xf) as u8;
        *digit = match value.checked_sub(10) {
            Some(above) => letter.wrapping_add(above),
            None => b'0'.wrapping_add(value),
        };
        start = start.min(at);
        rest >>= 4;
    }
    let digits = digits.get(start..).unwrap_or_default();
    texts(f, &[before, core::str::from_utf8(digits).unwrap_or_default()])
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    struct Hex(u32, usize, u8);

    impl fmt::Display for Hex {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            hex(f, "U+", self.0, self.1, self.2)
        }
    }

    struct Number(u64);

    impl fmt::Display for Number {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            number(f, "<", self.0, ">")
        }
    }

    #[test]
    fn numbers_are_written_as_the_formatting_machinery_writes_them() {
        for value in [0, 9, 0xa, 0x1f, 0xabc, 0xffff, 0x1f600, 0x10_ffff, u32::MAX] {
            assert_eq!(Hex(value, 4, b'A').to_string(), std::format!("U+{value:04X}"));
            assert_eq!(Hex(value, 2, b'a').to_string(), std::format!("U+{value:02x}"));
            for value in [u64::from(value), u64::from(value) << 32 | 7, u64::MAX] {
                assert_eq!(Number(value).to_string(), std::format!("<{value}>"));
            }
        }
    }
}
