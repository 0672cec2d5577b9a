//! The streams of `fixtures/exec` and whole sessions, on a Cortex-M3.

#![no_std]
#![no_main]

use cortex_m_rt as _;
use triwire::exec::body::Framing;
use triwire::exec::head::{self, Access, Answer, Peer, Route};
use triwire::exec::request::ExecRequest;
use triwire::exec::result::ExecResult;
use triwire::exec::session::{Input, InputReader, OutputWriter};
use triwire_embedded::blocking::{Rx, Tx, Wake};
use triwire_firmware_tests::{Pieces, Stream, Witness};

/// One stream through a link of `N` bytes.
fn adapted<const N: usize>(stream: &Stream, step: usize) {
    let mut witness = Witness::new(stream);
    let mut rx = Rx::new(Pieces::new(stream.bytes, step), [0; N]);
    let mut fed = Ok(());
    while fed.is_ok() {
        match rx.wait() {
            Ok(Wake::Bytes) => {}
            Ok(Wake::End) => break,
            Err(error) => defmt::panic!("{}: {}", stream.name, error),
        }
        while let Some(mut window) = rx.next() {
            fed = witness.feed(&mut window.rest);
            if fed.is_err() {
                break;
            }
        }
    }
    witness.judge(stream, fed);
}

/// Answers one hijacked request with its own input.
fn serve(rx: &mut Rx<Pieces<'_>, [u8; 512]>, tx: &mut Tx<&mut [u8], [u8; 512]>) {
    let (head_len, body_len) = loop {
        defmt::assert!(rx.wait() == Ok(Wake::Bytes));
        if let Some(parsed) = head::request(rx.unread(), false).unwrap() {
            let hosts = [""; 0];
            let peer = Peer { port: 80, loopback: false, hosts: &hosts, access: Access::Open };
            let route = parsed.admit(&peer, |id| id == "mcu").unwrap();
            defmt::assert!(route == Route::Hijack { sandbox: "mcu" });
            let Framing::Length(body_len) = parsed.framing else {
                defmt::panic!("the body has a length");
            };
            break (parsed.len, body_len as usize);
        }
    };
    while rx.unread().len() < head_len + body_len {
        defmt::assert!(rx.wait() == Ok(Wake::Bytes));
    }
    let request = ExecRequest::parse(&rx.unread()[head_len..head_len + body_len]).unwrap();
    defmt::assert!(request.cmd().eq(["cat"]));
    let count = Answer::Hijack.write(tx.space()).unwrap().len();
    tx.filled(count);

    let (mut reader, mut writer) = (InputReader::new(), OutputWriter::new());
    let mut skip = head_len + body_len;
    while !reader.is_closed() {
        while let Some(mut window) = rx.next() {
            window.rest = &window.rest[core::mem::take(&mut skip)..];
            while let Some(event) = reader.feed(&mut window.rest).unwrap() {
                if let Input::Stdin(bytes) = event {
                    let count = writer.stdout(bytes).unwrap().write(tx.space()).unwrap().len();
                    tx.filled(count);
                }
            }
        }
        if !reader.is_closed() {
            defmt::assert!(rx.wait() == Ok(Wake::Bytes));
        }
    }
    let count = writer.exit(&ExecResult::default(), tx.space()).unwrap().len();
    tx.filled(count);
    defmt::assert!(tx.flush().is_ok());
}

#[defmt_test::tests]
mod tests {
    use triwire::exec::frame::{self, Kind};
    use triwire::exec::head::{self, Mode, RequestHead};
    use triwire::exec::request::write_request;
    use triwire::exec::session::InputWriter;
    use triwire_embedded::blocking::{LinkError, Rx, Tx, Wake};
    use triwire_firmware_tests::{Pieces, STREAMS, Stream, Witness};

    use super::{adapted, serve};

    #[test]
    fn the_streams_are_there() {
        defmt::assert!(STREAMS.len() > 30);
        defmt::assert!(STREAMS.iter().any(|stream| stream.bytes.len() > 65_536));
    }

    /// What the two streams that are left out would show.
    #[test]
    fn the_largest_frame_in_pieces() {
        for (kind, ending) in [(Kind::Stdin, (0, 0, 65_536)), (Kind::Stderr, (0, 65_536, 0))] {
            let stream = Stream {
                name: kind.as_str(),
                bytes: &[],
                from_guest: kind == Kind::Stderr,
                ending: Ok(ending),
                exit_code: (kind == Kind::Stderr).then_some(3),
            };
            let last = if stream.from_guest {
                &b"\x03\0\0\0\0\0\0\x20{\"exit_code\":3,\"duration_ms\":20}"[..]
            } else {
                &b"\x05\0\0\0\0\0\0\0"[..]
            };
            let mut witness = Witness::new(&stream);
            let fed = witness
                .feed(&mut &frame::head(kind, 65_536).unwrap()[..])
                .and_then(|()| (0..256).try_for_each(|_| witness.feed(&mut &[b'x'; 256][..])))
                .and_then(|()| witness.feed(&mut &*last));
            witness.judge(&stream, fed);
        }
    }

    #[test]
    fn every_stream_whole() {
        for stream in STREAMS {
            let mut witness = Witness::new(stream);
            let fed = witness.feed(&mut &*stream.bytes);
            witness.judge(stream, fed);
        }
    }

    #[test]
    fn every_stream_in_pieces() {
        for stream in STREAMS {
            for step in [1, 7, 8, 9, 64, 1000] {
                let mut witness = Witness::new(stream);
                let fed =
                    stream.bytes.chunks(step).try_for_each(|mut piece| witness.feed(&mut piece));
                witness.judge(stream, fed);
            }
        }
    }

    #[test]
    fn every_stream_through_the_adapter() {
        for stream in STREAMS {
            adapted::<64>(stream, 1);
            adapted::<64>(stream, 100);
            adapted::<9>(stream, 5);
            adapted::<1>(stream, 1);
        }
    }

    #[test]
    fn a_message_that_does_not_fit_is_said() {
        let mut rx = Rx::new(&b"HTTP/1.1 200 OK"[..], [0; 8]);
        defmt::assert!(rx.wait() == Ok(Wake::Bytes));
        while let Some(window) = rx.next() {
            drop(window); // a machine that waits for more
        }
        defmt::assert!(rx.wait() == Err(LinkError::InboxFull));
    }

    #[test]
    fn a_hijacked_session_echoes() {
        let (mut sent, mut at) = ([0; 1024], 0);
        let mut put = |bytes: &[u8]| {
            sent[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
            at
        };

        // The client's side.
        let (mut body, mut out) = ([0; 128], [0; 256]);
        let body = write_request(&["cat"], &[("", ""); 0], "", 5, &mut body).unwrap();
        let head = RequestHead {
            mode: Mode::Hijack,
            sandbox: "mcu",
            host: "mcu:80",
            bearer: None,
            content_length: Some(body.len()),
            path: "",
        };
        put(head.write(&mut out).unwrap());
        put(body);
        let mut writer = InputWriter::new();
        put(writer.stdin(b"hello, device").unwrap().write(&mut out).unwrap());
        let len = put(&writer.close().unwrap());

        // The device's side, over the adapter.
        let mut answer = [0; 512];
        let left = {
            let mut rx = Rx::new(Pieces::new(&sent[..len], 11), [0; 512]);
            let mut tx = Tx::new(&mut answer[..], [0; 512]);
            serve(&mut rx, &mut tx);
            tx.into_writer().len()
        };
        let answer = &answer[..512 - left];

        let parsed = head::response(answer, false).unwrap().unwrap();
        defmt::assert!(parsed.expect_hijack().is_ok());
        let stream = Stream {
            name: "echo",
            bytes: &[],
            from_guest: true,
            ending: Ok((13, 0, 0)),
            exit_code: Some(0),
        };
        let mut witness = Witness::new(&stream);
        let fed = witness.feed(&mut &answer[parsed.len..]);
        witness.judge(&stream, fed);
    }

    #[test]
    fn headers_are_big_endian_here_too() {
        // rule: EXEC-1
        defmt::assert!(frame::head(Kind::Stderr, 0x1234) == Ok([2, 0, 0, 0, 0, 0, 0x12, 0x34]));
    }
}
