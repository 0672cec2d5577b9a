//! `tar` and `exec::files`: archives, names, paths and records.

use triwire::exec::files::{FilesPutResult, path_of};
use triwire::tar::{Event, Reader, components, link_reach};

use crate::{any, bytes, done, judged, text};

pub(crate) fn run() {
    let mut reader = Reader::new(any([0; 64]));
    let mut input = bytes();
    while let Some(event) = judged(reader.feed(&mut input)).flatten() {
        if let Event::Entry(entry) = event {
            done((entry, reader.name(), reader.link(), reader.offset()));
        } else {
            done(event);
        }
    }
    if let Err(error) = reader.finish() {
        done(error.fault.code());
    }
    done(judged(reader.finish()));
    for part in judged(components(bytes())).into_iter().flatten() {
        done(part);
    }
    done(judged(link_reach(bytes(), bytes())));
    done(judged(path_of(text(), any(&mut [0; 64]))));
    done(judged(FilesPutResult::parse(bytes())));
    let result = FilesPutResult { files: any(1), bytes: any(1) };
    done(judged(result.write(any(&mut [0; 64]))));
}
