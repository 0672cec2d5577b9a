//! The two buffers, against a queue that has no memory of its own to manage.

use std::collections::VecDeque;

use triwire::OutTooSmall;
use triwire::buffer::{Inbox, Outbox};

/// What is done to an [`Inbox`].
#[derive(Clone, Copy, Debug)]
pub enum Received {
    /// Up to so many bytes arrive.
    Fill(usize),
    /// A window is lent and so many bytes of it used.
    Window(usize),
    /// A window is lent if there is news, and so many bytes of it used.
    Lend(usize),
    /// So many bytes are used without a window.
    Consume(usize),
}

/// Does the same to an inbox of `size` bytes and to a queue, and compares.
pub fn check_inbox(size: usize, script: &[Received]) {
    let mut inbox = Inbox::new(vec![0; size]);
    let mut queue: VecDeque<u8> = VecDeque::new();
    // Whether anything came, or was used, since the last lend.
    let mut lent: Option<usize> = None;
    let mut next = 0_u8;
    for step in script {
        match *step {
            Received::Fill(count) => {
                let space = inbox.space();
                assert_eq!(space.is_empty(), queue.len() == size, "room unless all is unread");
                let count = count.min(space.len());
                for byte in &mut space[..count] {
                    *byte = next;
                    queue.push_back(next);
                    next = next.wrapping_add(1);
                }
                inbox.filled(count);
                if count > 0 {
                    lent = None;
                }
            }
            Received::Window(count) => {
                let mut window = inbox.window();
                assert_eq!(window.rest, Vec::from(queue.clone()));
                let count = count.min(window.rest.len());
                window.rest = &window.rest[count..];
                queue.drain(..count);
            }
            Received::Lend(count) => {
                let has_news = !queue.is_empty() && lent != Some(queue.len());
                assert_eq!(inbox.has_news(), has_news);
                let mut window = inbox.lend();
                assert_eq!(window.is_some(), has_news);
                if let Some(window) = &mut window {
                    assert_eq!(window.rest, Vec::from(queue.clone()));
                    lent = Some(queue.len());
                    let count = count.min(window.rest.len());
                    window.rest = &window.rest[count..];
                    queue.drain(..count);
                }
            }
            Received::Consume(count) => {
                inbox.consume(count);
                queue.drain(..count.min(queue.len()));
            }
        }
        assert_eq!(inbox.unread(), Vec::from(queue.clone()));
        assert_eq!(inbox.is_full(), queue.len() == size);
    }
}

/// What is done to an [`Outbox`].
#[derive(Clone, Copy, Debug)]
pub enum Sent {
    /// A message of so many bytes is appended.
    Push(usize),
    /// Up to so many bytes are written in place.
    Fill(usize),
    /// So many bytes leave.
    Send(usize),
}

/// Does the same to an outbox of `size` bytes and to a queue, and compares.
pub fn check_outbox(size: usize, script: &[Sent]) {
    let mut outbox = Outbox::new(vec![0; size]);
    let mut queue: VecDeque<u8> = VecDeque::new();
    let mut next = 0_u8;
    let mut bytes = |count: usize| -> Vec<u8> {
        let bytes = (0..count).map(|offset| next.wrapping_add(offset as u8)).collect();
        next = next.wrapping_add(count as u8);
        bytes
    };
    for step in script {
        match *step {
            Sent::Push(count) => {
                let message = bytes(count);
                if count <= size - queue.len() {
                    assert_eq!(outbox.push(&message), Ok(()));
                    queue.extend(message);
                } else {
                    assert_eq!(outbox.push(&message), Err(OutTooSmall { needed: count }));
                }
            }
            Sent::Fill(count) => {
                let space = outbox.space();
                assert!(space.len() <= size - queue.len());
                assert!(!queue.is_empty() || space.len() == size, "all of it once all is sent");
                let written = bytes(count.min(space.len()));
                space[..written.len()].copy_from_slice(&written);
                outbox.filled(written.len());
                queue.extend(written);
            }
            Sent::Send(count) => {
                outbox.sent(count);
                queue.drain(..count.min(queue.len()));
            }
        }
        assert_eq!(outbox.unsent(), Vec::from(queue.clone()));
        assert_eq!(outbox.room(), size - queue.len());
        assert_eq!(outbox.is_empty(), queue.is_empty());
    }
}
