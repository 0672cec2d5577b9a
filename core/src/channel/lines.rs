//! Messages on a stream of bytes, which has none of its own: one JSON text a line.
//!
//! ```text
//! {"v":1,"callId":"a","tool":"read",…}\n{"v":1,"callId":"b",…}\n
//! ```
//!
//! Between the tokens of JSON a newline means what a space means, and within a string none can
//! stand: so a message that has newlines goes out with spaces in their place, and is the same.
//!
//! ```
//! use triwire::channel::lines::{self, Lines};
//!
//! let mut out = [0; 32];
//! let message = b"{\"v\":\n1}";
//! lines::room(&mut out)[..message.len()].copy_from_slice(message); // as a machine writes it
//! let line = lines::end(&mut out, message.len())?;
//! assert_eq!(line, b"{\"v\": 1}\n");
//!
//! let mut lines = Lines::new(16);
//! let mut window = &b"{\"v\": 1}\n{\"v\""[..];
//! assert_eq!(lines.feed(&mut window), Some(&b"{\"v\": 1}"[..]));
//! assert_eq!(lines.feed(&mut window), None); // the rest stays, until more came behind it
//! assert_eq!(window, b"{\"v\"");
//! # Ok::<(), triwire::OutTooSmall>(())
//! ```

use crate::OutTooSmall;

/// Bytes that a line has beyond its message.
pub const LINE_EXTRA: usize = 1;

/// What ends a line.
const END: u8 = b'\n';

/// Finds the messages in a stream.
///
/// A line has to stand whole in the window, so a receive buffer holds the limit and
/// [`LINE_EXTRA`]. A longer one is dropped up to its end, however it arrives. Empty lines are no
/// messages, and neither is what has no newline behind it when the stream ends.
#[derive(Clone, Debug)]
pub struct Lines {
    limit: usize,
    /// Bytes at the beginning of the window that were looked at and hold no end.
    seen: usize,
    /// In a line that is too long.
    skipping: bool,
    dropped: u64,
}

impl Lines {
    /// Begins at the start of a stream, with the longest message that is taken, in bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, seen: 0, skipping: false, dropped: 0 }
    }

    /// Returns the longest message that is taken, in bytes.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Returns how many lines were dropped because they were too long.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Gives the next message, and advances `input` past its line; `None` when no line is whole.
    ///
    /// What is left in `input` then stands at the beginning of the next one.
    ///
    /// # Cost
    /// Looks at each byte once, however often the window is lent.
    // rule: CHAN-110, CHAN-112
    pub fn feed<'i>(&mut self, input: &mut &'i [u8]) -> Option<&'i [u8]> {
        loop {
            let seen = core::mem::take(&mut self.seen).min(input.len());
            let (_, news) = input.split_at_checked(seen)?;
            let Some(at) = news.iter().position(|byte| *byte == END) else {
                self.seen = input.len();
                if input.len() > self.limit && !self.skipping {
                    self.skipping = true;
                    self.dropped = self.dropped.saturating_add(1);
                }
                if self.skipping {
                    self.seen = 0;
                    *input = &[];
                }
                return None;
            };
            let (line, rest) = input.split_at_checked(seen.saturating_add(at))?;
            *input = rest.split_first().map_or(rest, |(_, behind)| behind);
            if core::mem::take(&mut self.skipping) || line.is_empty() {
                continue;
            }
            if line.len() <= self.limit {
                return Some(line);
            }
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Forgets the line that had begun: the next bytes are those of another stream.
    pub const fn link_down(&mut self) {
        self.seen = 0;
        self.skipping = false;
    }
}

/// Lends the part of `out` that a message may take: the end of its line fits behind it.
pub fn room(out: &mut [u8]) -> &mut [u8] {
    out.split_last_mut().map_or(&mut [], |(_, room)| room)
}

/// Makes a line of the message in the first `len` bytes of `out`.
///
/// # Errors
/// [`OutTooSmall`] when there is no room behind it; write it into [`room`].
// rule: CHAN-110, CHAN-111
pub fn end(out: &mut [u8], len: usize) -> Result<&[u8], OutTooSmall> {
    let needed = len.saturating_add(LINE_EXTRA);
    let line = out.get_mut(..needed).ok_or(OutTooSmall { needed })?;
    if let Some((end, message)) = line.split_last_mut() {
        for byte in message {
            if *byte == END {
                *byte = b' ';
            }
        }
        *end = END;
    }
    Ok(line)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::buffer::Inbox;

    /// The messages of a stream that comes in pieces, through an inbox as every adapter has one.
    fn messages(stream: &[u8], step: usize, limit: usize) -> (Vec<Vec<u8>>, u64) {
        let mut inbox = Inbox::new(std::vec![0; limit + LINE_EXTRA]);
        let (mut lines, mut found) = (Lines::new(limit), Vec::new());
        for mut piece in stream.chunks(step) {
            while !piece.is_empty() {
                let space = inbox.space();
                assert!(!space.is_empty(), "it got stuck");
                let count = space.len().min(piece.len());
                space[..count].copy_from_slice(&piece[..count]);
                inbox.filled(count);
                piece = &piece[count..];
                while let Some(mut window) = inbox.lend() {
                    found.extend(lines.feed(&mut window.rest).map(<[u8]>::to_vec));
                }
            }
        }
        (found, lines.dropped())
    }

    // rule: CHAN-110, CHAN-112
    #[test]
    fn every_cut_gives_the_same_messages() {
        let stream = b"{}\n\n{\"a\":1}\nfar too long for it\n[]\r\n12345678\n123456789\n{}\ncut";
        let expected = [&b"{}"[..], b"{\"a\":1}", b"[]\r", b"12345678", b"{}"];
        for step in 1..=stream.len() {
            let (found, dropped) = messages(stream, step, 8);
            assert_eq!(found, expected, "{step}");
            assert_eq!(dropped, 2, "{step}");
        }
    }

    // rule: CHAN-112
    #[test]
    fn a_line_without_an_end_takes_no_more_than_the_limit() {
        let stream = [&[b'x'; 10_000][..], b"\n{}\n"].concat();
        for step in [1, 7, 4096] {
            assert_eq!(messages(&stream, step, 64), (std::vec![b"{}".to_vec()], 1));
        }
    }

    // rule: CHAN-111
    #[test]
    fn newlines_within_a_message_are_spaces() {
        let message = b"{\"a\":\n[1,\r\n2]}";
        let mut out = [0; 32];
        room(&mut out)[..message.len()].copy_from_slice(message);
        assert_eq!(end(&mut out, message.len()), Ok(&b"{\"a\": [1,\r 2]}\n"[..]));
        let short = &mut out[..message.len()];
        assert_eq!(end(short, message.len()), Err(OutTooSmall { needed: message.len() + 1 }));
        assert_eq!(room(&mut []), b"");
        assert_eq!(end(&mut out, 0), Ok(&b"\n"[..]));
    }

    #[test]
    fn another_stream_begins_with_a_line() {
        let mut lines = Lines::new(4);
        let mut input = &b"much too long"[..];
        assert_eq!(lines.feed(&mut input), None);
        lines.link_down();
        let mut input = &b"{}\n"[..];
        assert_eq!(lines.feed(&mut input), Some(&b"{}"[..]));
    }
}
