//! What the fuzz targets share: the ways to cut an input.

/// Cuts `data` in three ways that must not matter: whole, one byte at a time, and in pieces of
/// `size` bytes.
pub fn cuts(data: &[u8], size: u8) -> [Vec<&[u8]>; 3] {
    let size = usize::from(size).max(2);
    [vec![data], data.chunks(1).collect(), data.chunks(size).collect()]
}

/// Asserts that `read` makes the same of every cut, and returns it.
pub fn same_in_every_cut<T: PartialEq + std::fmt::Debug>(
    data: &[u8],
    size: u8,
    read: impl Fn(&[&[u8]]) -> T,
) -> T {
    let [whole, bytes, pieces] = cuts(data, size).map(|cut| read(&cut));
    assert_eq!(whole, bytes, "one byte at a time");
    assert_eq!(whole, pieces, "in pieces of {size} bytes");
    whole
}
