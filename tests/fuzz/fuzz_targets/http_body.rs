#![no_main]
//! Any cut of a body gives the same payload, the same ending and the same rest.

use libfuzzer_sys::fuzz_target;
use triwire::exec::body::{Body, BodyError, Framing};
use triwire_fuzz::same_in_every_cut;

#[derive(Debug, PartialEq)]
struct Read {
    payload: Vec<u8>,
    rest: Vec<u8>,
    ending: Result<(), BodyError>,
    is_complete: bool,
}

fn read(framing: Framing, limit: u64, pieces: &[&[u8]]) -> Read {
    let mut body = Body::limited(framing, limit);
    let (mut payload, mut rest) = (Vec::new(), Vec::new());
    for mut input in pieces.iter().copied() {
        loop {
            match body.feed(&mut input) {
                Ok(Some(piece)) => {
                    assert!(!piece.is_empty());
                    payload.extend_from_slice(piece);
                    assert!(payload.len() as u64 <= limit);
                }
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(body.finish(), Err(error), "errors stay");
                    // How much of a piece that goes over the limit is handed out is free.
                    return Read {
                        payload: Vec::new(),
                        rest,
                        ending: Err(error),
                        is_complete: false,
                    };
                }
            }
        }
        assert!(body.is_complete() || input.is_empty());
        rest.extend_from_slice(input);
    }
    Read { payload, rest, ending: body.finish(), is_complete: body.is_complete() }
}

fuzz_target!(|case: (u8, u16, Option<u16>, &[u8])| {
    let (size, length, limit, data) = case;
    let limit = limit.map_or(u64::MAX, u64::from);
    for framing in [Framing::Chunked, Framing::ToEnd, Framing::Length(u64::from(length))] {
        let whole = same_in_every_cut(data, size, |pieces| {
            let mut read = read(framing, limit, pieces);
            if let Err(error) = &mut read.ending {
                error.at = if limit == u64::MAX { error.at } else { 0 };
            }
            read
        });
        if framing == Framing::ToEnd && whole.ending.is_ok() {
            assert_eq!(whole.payload, data);
        }
    }
});
