//! Windows over memory that the caller owns: what came in and is not yet used, what goes out and
//! is not yet sent. No protocol here; every adapter uses these two, so none keeps offsets itself.
//!
//! ```
//! use triwire::buffer::{Inbox, Outbox};
//!
//! let mut inbox = Inbox::new([0; 16]);
//! inbox.space()[..5].copy_from_slice(b"hello");
//! inbox.filled(5);
//! let mut window = inbox.window();
//! window.rest = &window.rest[2..]; // "he" is used; what is left is lent again
//! drop(window);
//! assert_eq!(inbox.unread(), b"llo");
//!
//! let mut outbox = Outbox::new([0; 8]);
//! outbox.push(b"abc").unwrap();
//! outbox.sent(1);
//! assert_eq!(outbox.unsent(), b"bc");
//! assert_eq!(outbox.push(b"1234567").unwrap_err().needed, 7);
//! ```

use core::fmt;

/// The caller's output buffer has less room than the message needs; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct OutTooSmall {
    /// Bytes that the whole message takes.
    pub needed: usize,
}

impl fmt::Display for OutTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "output buffer too small: the message takes {} bytes; give a larger one or send what waits first",
            self.needed
        )
    }
}

impl core::error::Error for OutTooSmall {}

/// Bytes received and not yet used, in the caller's memory.
///
/// The size of `B` bounds what must stand whole in the window at once, such as the head of an
/// HTTP message; a frame's payload never has to.
#[derive(Clone, Debug)]
pub struct Inbox<B> {
    memory: B,
    start: usize,
    end: usize,
    /// Unread bytes at the last lend; 0 when more came since.
    lent: usize,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Inbox<B> {
    /// Makes an empty inbox over `memory`.
    pub const fn new(memory: B) -> Self {
        Self { memory, start: 0, end: 0, lent: 0 }
    }

    /// Returns the bytes not yet used.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        self.memory.as_ref().get(self.start..self.end).unwrap_or_default()
    }

    /// Lends the unread bytes; what is left in [`Window::rest`] when the window drops stays unread.
    pub fn window(&mut self) -> Window<'_> {
        let rest = self.memory.as_ref().get(self.start..self.end).unwrap_or_default();
        Window { rest, start: &mut self.start, end: self.end }
    }

    /// Lends the unread bytes as [`window`](Self::window) does, but only when they show a machine
    /// something new: `None` while they are the same that the last lend left over, so a loop over
    /// this ends.
    ///
    /// ```
    /// let mut inbox = triwire::buffer::Inbox::new([0; 8]);
    /// inbox.space()[..3].copy_from_slice(b"abc");
    /// inbox.filled(3);
    /// inbox.lend().unwrap().rest = b"c"; // a machine used two
    /// assert!(inbox.lend().is_some()); // fewer than before: ask it again
    /// assert!(inbox.lend().is_none()); // it used none
    /// ```
    pub fn lend(&mut self) -> Option<Window<'_>> {
        if !self.has_news() {
            return None;
        }
        self.lent = self.unread().len();
        Some(self.window())
    }

    /// Reports whether a [`lend`](Self::lend) would give something.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let unread = self.unread().len();
        unread > 0 && unread != self.lent
    }

    /// Marks the first `count` unread bytes as used; more than there are marks all.
    pub fn consume(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
    }

    /// Returns the room for more bytes, moving unread ones to the front where that makes room.
    ///
    /// Empty only when unread bytes fill the whole memory: use some, or the peer sent more than
    /// fits. Never read into an empty slice; a read of nothing looks like the end.
    ///
    /// # Cost
    /// Moves the unread bytes when less than half of the memory is free behind them.
    pub fn space(&mut self) -> &mut [u8] {
        let memory = self.memory.as_mut();
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.start > 0 && memory.len().saturating_sub(self.end) < memory.len() / 2 {
            to_front(memory, self.start, self.end);
            self.end = self.end.saturating_sub(self.start);
            self.start = 0;
        }
        memory.get_mut(self.end..).unwrap_or_default()
    }

    /// Marks the first `count` bytes of [`space`](Self::space) as received.
    pub fn filled(&mut self, count: usize) {
        self.end = self.end.saturating_add(count).min(self.memory.as_ref().len());
        if count > 0 {
            self.lent = 0;
        }
    }

    /// Reports whether every byte of the memory is unread.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.end.saturating_sub(self.start) == self.memory.as_ref().len()
    }
}

/// Unread bytes on loan: machines advance [`rest`](Self::rest) past what they used.
#[derive(Debug)]
pub struct Window<'a> {
    /// What is still unread.
    pub rest: &'a [u8],
    start: &'a mut usize,
    end: usize,
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        *self.start = self.end.saturating_sub(self.rest.len()).max(*self.start);
    }
}

/// Bytes to send, in the caller's memory.
#[derive(Clone, Debug)]
pub struct Outbox<B> {
    memory: B,
    start: usize,
    end: usize,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Outbox<B> {
    /// Makes an empty outbox over `memory`.
    pub const fn new(memory: B) -> Self {
        Self { memory, start: 0, end: 0 }
    }

    /// Returns the bytes that are not yet sent.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        self.memory.as_ref().get(self.start..self.end).unwrap_or_default()
    }

    /// Marks the first `count` unsent bytes as sent; more than there are marks all.
    pub fn sent(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Returns the room behind the unsent bytes, for a machine to write into;
    /// [`filled`](Self::filled) keeps what it wrote. All of the memory once nothing is unsent.
    pub fn space(&mut self) -> &mut [u8] {
        if self.behind() < self.memory.as_ref().len() / 2 {
            self.compact();
        }
        self.memory.as_mut().get_mut(self.end..).unwrap_or_default()
    }

    /// Marks the first `count` bytes of [`space`](Self::space) as to be sent.
    pub fn filled(&mut self, count: usize) {
        self.end = self.end.saturating_add(count).min(self.memory.as_ref().len());
    }

    /// Appends a copy of `bytes`, whole or not at all.
    ///
    /// # Errors
    /// [`OutTooSmall`] when less room is left; send what waits, then try again.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), OutTooSmall> {
        if self.behind() < bytes.len() {
            self.compact();
        }
        let room = self.memory.as_mut().get_mut(self.end..).unwrap_or_default();
        let Some(to) = room.get_mut(..bytes.len()) else {
            return Err(OutTooSmall { needed: bytes.len() });
        };
        to.copy_from_slice(bytes);
        self.filled(bytes.len());
        Ok(())
    }

    /// Returns how many bytes fit.
    #[must_use]
    pub fn room(&self) -> usize {
        let used = self.end.saturating_sub(self.start);
        self.memory.as_ref().len().saturating_sub(used)
    }

    /// Reports whether nothing waits to be sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn behind(&self) -> usize {
        self.memory.as_ref().len().saturating_sub(self.end)
    }

    fn compact(&mut self) {
        if self.start > 0 {
            to_front(self.memory.as_mut(), self.start, self.end);
            self.end = self.end.saturating_sub(self.start);
            self.start = 0;
        }
    }
}

/// Moves the bytes from `start` to `end` to the beginning of `memory`.
fn to_front(memory: &mut [u8], start: usize, end: usize) {
    if start <= end && end <= memory.len() {
        memory.copy_within(start..end, 0);
    }
}
