//! Which letters may stand where, one look for each.

/// A set of letters, as a bit of [`SETS`].
#[derive(Clone, Copy)]
pub(super) struct Set(u8);

/// A key's id.
pub(super) const KEY_ID: Set = Set(1);
/// base64url, so a nonce or a signature.
pub(super) const BASE64URL: Set = Set(2);
/// A token of HTTP, so a method.
pub(super) const TOKEN: Set = Set(4);
/// A host's name: what a URL parser leaves in one, but for the marks around it.
pub(super) const NAME: Set = Set(8);
/// A path with its query.
pub(super) const PATH: Set = Set(16);
/// Such of them as mean nothing more in a path than themselves.
pub(super) const PLAIN: Set = Set(32);
/// Those of base64url whose lowest two bits are zero, as they are in the last of 43.
pub(super) const LAST: Set = Set(64);
/// Decimal digits.
pub(super) const DIGITS: Set = Set(128);

#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const SETS: [u8; 256] = {
    let mut sets = [0; 256];
    let mut letter = 0_u8;
    while letter < 128 {
        sets[letter as usize] = sets_of(letter);
        letter += 1;
    }
    sets
};

const fn sets_of(letter: u8) -> u8 {
    let alphanumeric = letter.is_ascii_alphanumeric();
    let name = !letter.is_ascii_uppercase()
        && !matches!(
            letter,
            b'#' | b'%'
                | b'/'
                | b':'
                | b'<'
                | b'>'
                | b'?'
                | b'@'
                | b'['
                | b'\\'
                | b']'
                | b'^'
                | b'|'
        );
    let path = !matches!(letter, b'"' | b'#' | b'<' | b'>');
    let mut sets = 0;
    if alphanumeric || matches!(letter, b'.' | b'_' | b'-') {
        sets |= KEY_ID.0;
    }
    if alphanumeric || matches!(letter, b'_' | b'-') {
        sets |= BASE64URL.0;
    }
    if matches!(
        letter,
        b'A' | b'E'
            | b'I'
            | b'M'
            | b'Q'
            | b'U'
            | b'Y'
            | b'c'
            | b'g'
            | b'k'
            | b'o'
            | b's'
            | b'w'
            | b'0'
            | b'4'
            | b'8'
    ) {
        sets |= LAST.0;
    }
    if letter.is_ascii_digit() {
        sets |= DIGITS.0;
    }
    if alphanumeric
        || matches!(letter, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
    {
        sets |= TOKEN.0;
    }
    if letter.is_ascii_graphic() && name {
        sets |= NAME.0;
    }
    if letter.is_ascii_graphic() && path {
        sets |= PATH.0;
        if !matches!(letter, b'.' | b'%' | b'?' | b'\\') {
            sets |= PLAIN.0;
        }
    }
    sets
}

impl Set {
    /// Whether all letters are of the set.
    #[inline]
    pub(super) fn has_all(self, letters: &[u8]) -> bool {
        letters.iter().fold(self.0, |all, letter| all & Self::of(*letter)) != 0
    }

    /// The offset of the first letter that is not of the set.
    pub(super) fn first_other(self, letters: &[u8]) -> Option<usize> {
        letters.iter().position(|letter| Self::of(*letter) & self.0 == 0)
    }

    fn of(letter: u8) -> u8 {
        SETS.get(usize::from(letter)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    #[test]
    fn sets_are_as_their_standards_write_them() {
        for letter in 0..=u8::MAX {
            let is = |set: Set| set.has_all(&[letter]);
            let alphanumeric = letter.is_ascii_alphanumeric();
            assert_eq!(is(KEY_ID), alphanumeric || b"._-".contains(&letter), "{letter}");
            assert_eq!(is(BASE64URL), alphanumeric || b"_-".contains(&letter), "{letter}");
            assert_eq!(is(TOKEN), alphanumeric || b"!#$%&'*+-.^_`|~".contains(&letter), "{letter}");
            let graphic = (0x21..=0x7e).contains(&letter);
            let name =
                graphic && !b"#%/:<>?@[\\]^|".contains(&letter) && !letter.is_ascii_uppercase();
            assert_eq!(is(NAME), name, "{letter}");
            assert_eq!(is(PATH), graphic && !b"\"#<>".contains(&letter), "{letter}");
            assert_eq!(is(PLAIN), is(PATH) && !b".%?\\".contains(&letter), "{letter}");
            assert_eq!(is(DIGITS), letter.is_ascii_digit(), "{letter}");
            assert_eq!(PATH.first_other(&[b'/', letter]), (!is(PATH)).then_some(1));
        }
        assert!(PATH.has_all(b""));
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let last: Vec<u8> = alphabet.iter().copied().step_by(4).collect();
        assert!((0..=u8::MAX).all(|letter| LAST.has_all(&[letter]) == last.contains(&letter)));
    }
}
