//! Judges WebSocket frames by their heads, as they pass into the codec.
//!
//! The codec judges most faults when a frame is complete. Here a frame that will be refused is
//! refused at the first byte that shows it: no payload of it is waited for, and none is stored.
//!
//! ```text
//! byte 0         byte 1        then
//! F RSV opcode   M length      0, 2 or 8 bytes of length, 4 bytes of mask, the payload
//! ```

use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{Fault, Role};

/// A place in the stream of frames that the peer sends.
#[derive(Debug)]
pub(super) struct Heads {
    role: Role,
    max_message: u64,
    /// The head being read, and how much of it is here.
    head: [u8; 14],
    have: usize,
    /// Payload bytes of the current frame that are still to come.
    left: u64,
    /// Payload bytes of the unfinished message so far.
    message: Option<u64>,
    /// The code of a close frame: its mask, and the bytes that are here.
    close: Option<CloseBody>,
}

#[derive(Debug)]
struct CloseBody {
    mask: [u8; 2],
    code: [u8; 2],
    have: usize,
}

impl Heads {
    pub(super) fn new(role: Role, max_message: usize) -> Self {
        Self {
            role,
            max_message: max_message as u64,
            head: [0; 14],
            have: 0,
            left: 0,
            message: None,
            close: None,
        }
    }

    /// Follows `bytes`; a fault comes with how many of the bytes stand before it.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Result<(), (usize, Fault)> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if let Some(body) = &mut self.close {
                self.left -= 1;
                if body.take(byte).map_err(|fault| (at, fault))? || self.left == 0 {
                    self.close = None;
                }
                at += 1;
            } else if self.left > 0 {
                let skip = self.left.min((bytes.len() - at) as u64);
                self.left -= skip;
                at += skip as usize;
            } else {
                self.head[self.have] = byte;
                self.have += 1;
                self.judge().map_err(|fault| (at, fault))?;
                at += 1;
            }
        }
        Ok(())
    }

    /// Judges the head after one more byte of it.
    fn judge(&mut self) -> Result<(), Fault> {
        let [first, second, ..] = self.head;
        let (last, opcode) = (first & 0x80 != 0, first & 0x0f);
        let control = opcode & 0x08 != 0;
        if self.have == 1 {
            let order = match opcode {
                0 => self.message.is_some(),
                1 | 2 => self.message.is_none(),
                8..=10 => last,
                _ => false,
            };
            return if order && first & 0x70 == 0 { Ok(()) } else { Err(Fault::Protocol) };
        }
        let masked = second & 0x80 != 0;
        let length_size = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if self.have == 2 {
            let direction = masked == (self.role == Role::Server);
            let size = !control || second & 0x7f <= 125 && !(opcode == 8 && second & 0x7f == 1);
            if !direction || !size {
                return Err(Fault::Protocol);
            }
        }
        let mask_at = 2 + length_size;
        if self.have < mask_at {
            return Ok(());
        }
        let length = match length_size {
            0 => u64::from(second & 0x7f),
            _ => self.head[2..mask_at].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        let message = self.message.unwrap_or(0).saturating_add(length);
        if self.have == mask_at {
            if length > i64::MAX as u64 {
                return Err(Fault::Protocol);
            }
            if !control && message > self.max_message {
                return Err(Fault::TooLarge);
            }
        }
        if self.have == mask_at + if masked { 4 } else { 0 } {
            if !control {
                self.message = (!last).then_some(message);
            }
            if opcode == 8 && length > 0 {
                let mask =
                    if masked { [self.head[mask_at], self.head[mask_at + 1]] } else { [0; 2] };
                self.close = Some(CloseBody { mask, code: [0; 2], have: 0 });
            }
            self.left = length;
            self.have = 0;
        }
        Ok(())
    }
}

impl CloseBody {
    /// Takes one byte; true once the code is whole and one that may travel.
    fn take(&mut self, byte: u8) -> Result<bool, Fault> {
        self.code[self.have] = byte ^ self.mask[self.have];
        self.have += 1;
        if self.have < 2 {
            return Ok(false);
        }
        let code = u16::from_be_bytes(self.code);
        if CloseCode::from(code).is_allowed() { Ok(true) } else { Err(Fault::Protocol) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(bytes: &[u8]) -> Result<(), (usize, Fault)> {
        let whole = Heads::new(Role::Server, 1 << 20).follow(bytes);
        // One byte at a time the same place is found.
        let mut heads = Heads::new(Role::Server, 1 << 20);
        let single = bytes
            .iter()
            .enumerate()
            .try_for_each(|(at, byte)| heads.follow(&[*byte]).map_err(|(_, fault)| (at, fault)));
        assert_eq!(whole, single);
        whole
    }

    #[test]
    fn faults_are_found_at_the_first_byte_that_shows_them() {
        // rule: EXEC-29
        let above = [0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 1];
        assert_eq!(server(&above), Err((9, Fault::TooLarge)));
        let most = [0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0];
        assert_eq!(server(&most), Ok(()));
        let all = [0x82, 0xff, 255, 255, 255, 255, 255, 255, 255, 255];
        assert_eq!(server(&all), Err((9, Fault::Protocol)));
        // Unmasked, reserved bits, reserved opcode, long ping, cut ping, close of one byte.
        assert_eq!(server(&[0x82, 0x05]), Err((1, Fault::Protocol)));
        assert_eq!(server(&[0xc2]), Err((0, Fault::Protocol)));
        assert_eq!(server(&[0x83]), Err((0, Fault::Protocol)));
        assert_eq!(server(&[0x89, 0xfe]), Err((1, Fault::Protocol)));
        assert_eq!(server(&[0x09]), Err((0, Fault::Protocol)));
        assert_eq!(server(&[0x88, 0x81]), Err((1, Fault::Protocol)));
        // A continuation of nothing, a new message inside another.
        assert_eq!(server(&[0x80]), Err((0, Fault::Protocol)));
        assert_eq!(server(&[0x01, 0x80, 0, 0, 0, 0, 0x81]), Err((6, Fault::Protocol)));
        // A close with a code that never travels, and with one that does.
        assert_eq!(server(&[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xed]), Err((7, Fault::Protocol)));
        assert_eq!(server(&[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]), Ok(()));
    }

    #[test]
    fn fragments_are_judged_by_their_sum() {
        // rule: EXEC-29
        let mut heads = Heads::new(Role::Client, 10);
        heads.follow(&[0x02, 6, 0, 0, 0, 0, 0, 0, 0x89, 0, 0x00, 4, 0, 0, 0, 0]).unwrap();
        assert_eq!(heads.follow(&[0x80, 1]), Err((1, Fault::TooLarge)));
    }
}
