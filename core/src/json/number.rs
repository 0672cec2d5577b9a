//! Numbers by their exact decimal value: nothing becomes a float on the way.
//!
//! ```
//! use triwire::json::Reader;
//!
//! let number = |text| Reader::from_str(text).unwrap().number().unwrap();
//! assert_eq!(number("1.299e3").as_u64(), Some(1299));
//! assert_eq!(number("1299.00000000000000001").as_u64(), None);
//! assert_eq!(number("1e400").same_value(&number("10e399")), Ok(true));
//! assert_eq!(number("9007199254740993").same_value(&number("9007199254740992")), Ok(false));
//! ```

use core::fmt;

/// A JSON number as it was written, of any size and precision.
///
/// `==` is not offered: numbers are compared by [value](Self::same_value), which can fail.
#[derive(Clone, Copy, Debug)]
pub struct Number<'i> {
    raw: &'i str,
}

impl<'i> Number<'i> {
    /// Takes a text that follows the grammar.
    #[inline]
    pub(super) const fn checked(raw: &'i str) -> Self {
        Self { raw }
    }

    /// Returns the number as it was written.
    #[inline]
    #[must_use]
    pub const fn raw(&self) -> &'i str {
        self.raw
    }

    /// Returns the value when it is whole and in range, however it is written: `1e2` is 100, and
    /// `-0.0` is 0.
    #[cfg_attr(not(target_os = "none"), inline)]
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        // The common way to write one; fewer digits than would overflow.
        if self.raw.len() < 20 && self.raw.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(self.raw.bytes().fold(0, push_digit));
        }
        let decimal = Decimal::new(self.raw).ok()?;
        if decimal.is_negative { None } else { decimal.magnitude() }
    }

    /// Returns the value when it is whole and in range, however it is written.
    #[cfg_attr(not(target_os = "none"), inline)]
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        let decimal = Decimal::new(self.raw).ok()?;
        let magnitude = decimal.magnitude()?;
        if decimal.is_negative {
            0_i64.checked_sub_unsigned(magnitude)
        } else {
            i64::try_from(magnitude).ok()
        }
    }

    /// Compares by exact value: 1, 1.0 and 1e0 are one number, and so are -0 and 0; 2^53 and
    /// 2^53 + 1 are two.
    ///
    /// # Errors
    /// [`ExponentTooLong`] when one of both has an exponent of more than nine digits, leading
    /// zeros aside, whatever stands before it.
    ///
    /// # Cost
    /// Linear in both texts, whatever their exponents.
    pub fn same_value(&self, other: &Number<'_>) -> Result<bool, ExponentTooLong> {
        // The common case; an exponent has to be looked at.
        if self.raw == other.raw && !self.raw.bytes().any(|byte| matches!(byte, b'e' | b'E')) {
            return Ok(true);
        }
        Ok(Decimal::new(self.raw)? == Decimal::new(other.raw)?)
    }
}

impl fmt::Display for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw)
    }
}

/// A number's exponent has more than nine digits, leading zeros aside: too long to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ExponentTooLong;

impl fmt::Display for ExponentTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("exponent of more than nine digits; write the number with a shorter one")
    }
}

impl core::error::Error for ExponentTooLong {}

/// A number as ±0.DIGITS × 10^point, which every value has exactly one of: the digits start and
/// end with one that is not 0.
#[derive(Clone, Copy, Debug)]
struct Decimal<'i> {
    is_negative: bool,
    /// Digits, and perhaps a point between them; empty for zero.
    digits: &'i [u8],
    point: isize,
}

impl<'i> Decimal<'i> {
    fn new(raw: &'i str) -> Result<Self, ExponentTooLong> {
        let (is_negative, unsigned) = sign(raw.as_bytes());
        let (mantissa, exponent) = cut(unsigned, |byte| matches!(byte, b'e' | b'E'));
        let exponent = read_exponent(exponent)?;
        let mut digits = mantissa;
        while let [b'0' | b'.', rest @ ..] | [rest @ .., b'0' | b'.'] = digits {
            digits = rest;
        }
        if digits.is_empty() {
            return Ok(Self { is_negative: false, digits, point: 0 });
        }
        let (whole, fraction) = cut(mantissa, |byte| byte == b'.');
        let point = if whole == b"0" {
            let zeros = fraction.len().saturating_sub(without_zeros(fraction).len());
            0_isize.saturating_sub_unsigned(zeros)
        } else {
            0_isize.saturating_add_unsigned(whole.len())
        };
        Ok(Self { is_negative, digits, point: point.saturating_add(exponent) })
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.digits.iter().copied().filter(|byte| *byte != b'.')
    }

    /// Returns the value without its sign, when it is whole and fits.
    fn magnitude(&self) -> Option<u64> {
        if self.digits.is_empty() {
            return Some(0);
        }
        // 2^64 has 20 digits.
        let places = u8::try_from(self.point).ok().filter(|places| (1..=20).contains(places))?;
        let mut digits = self.digits();
        let mut value = 0_u64;
        for _ in 0..places {
            let digit = digits.next().unwrap_or(b'0').wrapping_sub(b'0');
            value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
        }
        // What is left is a fraction, and not zero.
        digits.next().is_none().then_some(value)
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.is_negative == other.is_negative
            && self.point == other.point
            && self.digits().eq(other.digits())
    }
}

/// Reads what stands behind an `e`; nothing is 0.
fn read_exponent(text: &[u8]) -> Result<isize, ExponentTooLong> {
    let (is_negative, digits) = sign(text);
    let digits = without_zeros(digits);
    if digits.len() > 9 {
        return Err(ExponentTooLong);
    }
    let size = digits.iter().fold(0_isize, |size, digit| {
        size.wrapping_mul(10).wrapping_add(isize::from(digit.wrapping_sub(b'0').cast_signed()))
    });
    Ok(if is_negative { size.wrapping_neg() } else { size })
}

/// Takes a sign off; whether it is a minus.
fn sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

fn without_zeros(mut digits: &[u8]) -> &[u8] {
    while let [b'0', rest @ ..] = digits {
        digits = rest;
    }
    digits
}

/// Splits at the first byte of a kind, which is dropped; without one, all stands before it.
fn cut(text: &[u8], is: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let at = text.iter().position(|byte| is(*byte)).unwrap_or(text.len());
    let (before, from) = text.split_at_checked(at).unwrap_or((text, &[]));
    (before, from.split_first().map_or(&[], |(_, after)| after))
}

/// Appends a digit; of at most 19 of them, so that nothing wraps.
#[inline]
fn push_digit(value: u64, digit: u8) -> u64 {
    value.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0')))
}
