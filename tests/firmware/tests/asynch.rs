//! The async links on a Cortex-M3: what a dropped future had done is not lost.

#![no_std]
#![no_main]

use cortex_m_rt as _;
use triwire_embedded::asynch::{Rx, Tx, Wake};
use triwire_firmware_tests::asynch::{Slow, block_on, drop_pending};
use triwire_firmware_tests::{Stream, Witness};

/// One stream through a link of `N` bytes, whose waits are dropped or not.
fn adapted<const N: usize>(stream: &Stream, step: usize, dropping: bool) {
    let mut witness = Witness::new(stream);
    let mut rx = Rx::new(Slow::new(stream.bytes, &mut [], step), [0; N]);
    let mut fed = Ok(());
    while fed.is_ok() {
        let woken =
            if dropping { drop_pending(async || rx.wait().await) } else { block_on(rx.wait()) };
        match woken {
            Ok(Wake::Bytes) => {}
            Ok(Wake::End) => break,
            Err(_) => defmt::panic!("{}: the link failed", stream.name),
        }
        while let Some(mut window) = rx.next() {
            fed = witness.feed(&mut window.rest);
            if fed.is_err() {
                break;
            }
        }
    }
    defmt::assert!(stream.bytes.is_empty() || rx.into_reader().pending > 0);
    witness.judge(stream, fed);
}

/// Messages through a link of `N` bytes; gives how many bytes the transport got.
fn sent<const N: usize>(messages: &[&[u8]], wire: &mut [u8], dropping: bool) -> usize {
    let room = wire.len();
    let mut tx = Tx::new(Slow::new(&[], wire, 3), [0; N]);
    for message in messages.iter().chain([&&b""[..]]) {
        if message.is_empty() || !tx.has_room(message.len()) {
            let flushed = if dropping {
                drop_pending(async || tx.flush().await)
            } else {
                block_on(tx.flush())
            };
            defmt::assert!(flushed.is_ok() && tx.is_flushed());
        }
        defmt::assert!(tx.send(message).is_ok());
    }
    let transport = tx.into_writer();
    defmt::assert!(transport.pending > 0);
    room - transport.to.len()
}

#[defmt_test::tests]
mod tests {
    use triwire_firmware_tests::STREAMS;

    use super::{adapted, sent};

    #[test]
    fn every_stream_through_the_adapter() {
        for stream in STREAMS {
            for dropping in [false, true] {
                adapted::<64>(stream, 100, dropping);
                adapted::<9>(stream, 5, dropping);
            }
        }
    }
    #[test]
    fn every_message_arrives_once() {
        let messages: &[&[u8]] = &[b"one", b"four and a half", b"two", b"sixteen  bytes.."];
        for dropping in [false, true] {
            let mut wire = [0; 64];
            let count = sent::<16>(messages, &mut wire, dropping);
            defmt::assert!(&wire[..count] == b"onefour and a halftwosixteen  bytes..");
        }
    }
}
