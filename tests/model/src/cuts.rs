//! Ways to cut an input that must not matter.

use std::fmt::Debug;

/// Cuts `data` into pieces of the given sizes, over and over; a size of 0 is an empty piece, and
/// without any other there is one piece.
#[must_use]
pub fn by<'d>(data: &'d [u8], sizes: &[usize]) -> Vec<&'d [u8]> {
    if sizes.iter().all(|size| *size == 0) {
        return vec![data];
    }
    let mut rest = data;
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, behind) = rest.split_at((*size).min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// Asserts that `read` makes the same of `data` whole, one byte at a time, and in pieces of
/// `size` bytes; returns it.
pub fn same_in_every_cut<T: PartialEq + Debug>(
    data: &[u8],
    size: u8,
    read: impl Fn(&[&[u8]]) -> T,
) -> T {
    let size = usize::from(size).max(2);
    let whole = read(&[data]);
    assert_eq!(read(&by(data, &[1])), whole, "one byte at a time");
    assert_eq!(read(&by(data, &[size])), whole, "in pieces of {size} bytes");
    whole
}

/// Asserts that `read` makes the same of every split of `data` into two parts; returns it.
pub fn same_in_every_split<T: PartialEq + Debug>(data: &[u8], read: impl Fn(&[&[u8]]) -> T) -> T {
    let whole = read(&[data]);
    for at in 0..=data.len() {
        let (before, behind) = data.split_at(at);
        assert_eq!(read(&[before, behind]), whole, "cut at byte {at}");
    }
    whole
}
