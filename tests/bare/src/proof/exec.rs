//! `exec`: frames, sessions, records, signals, bodies, lingering.

use core::time::Duration;

use triwire::exec::body::{Body, ChunkHead, Framing};
use triwire::exec::frame::{self, Decoder, Direction, Kind};
use triwire::exec::linger::Linger;
use triwire::exec::request::{ExecRequest, write_request};
use triwire::exec::result::{ExecResult, Usage};
use triwire::exec::session::{Frames, InputReader, InputWriter, OutputReader, OutputWriter};
use triwire::exec::signal;
use triwire::json::Text;
use triwire::time::Instant;

use crate::json::words;
use crate::{any, bytes, done, judged, text};

pub(crate) fn run() {
    frames();
    guest();
    client();
    records();
    done((signal::number(text()), signal::name(any(1))));
    body();
    linger();
}

fn frames() {
    if let Some(kind) = any(Kind::from_byte(any(1))).or(Kind::from_word(text())) {
        done((kind.as_str(), kind.direction().as_str(), any(Kind::ALL)));
        done(judged(frame::head(kind, any(1))));
    }
    let mut decoder = Decoder::new(any(Direction::GuestToHost));
    let mut input = bytes();
    while let Some(Some(piece)) = judged(decoder.feed(&mut input)) {
        done(piece);
    }
    done((decoder.offset(), decoder.is_in_payload(), judged(decoder.finish())));
}

fn guest() {
    let mut reader = InputReader::new();
    let mut input = bytes();
    while let Some(Some(event)) = judged(reader.feed(&mut input)) {
        done(event);
    }
    done((reader.is_closed(), reader.is_in_payload(), reader.offset()));
    if let Err(error) = reader.finish() {
        done(error.code());
    }

    let mut writer = any(OutputWriter::new());
    judged(writer.stdout(bytes())).map(sent);
    judged(writer.stderr(bytes())).map(sent);
    done(judged(writer.exit(&result(), any(&mut [0; 64]))));
    done(writer.is_ended());
}

fn client() {
    let mut reader = OutputReader::new(any([0_u8; 64]));
    let mut input = bytes();
    while let Some(Some(event)) = judged(reader.feed(&mut input)) {
        done(event);
    }
    done((reader.is_ended(), reader.offset()));
    if let Some(result) = reader.result() {
        words(result.error);
        done((result.status(), result.usage));
    }
    done(judged(reader.finish()));

    let mut writer = any(InputWriter::new());
    judged(writer.stdin(bytes())).map(sent);
    done(judged(writer.close()));
    done(writer.is_ended());
}

fn sent(frames: Frames<'_>) {
    done(frames.wire_len());
    for frame in frames.clone() {
        done(frame);
    }
    done(judged(frames.write(any(&mut [0; 64]))));
}

fn result() -> ExecResult<'static> {
    ExecResult {
        exit_code: any(1),
        duration_ms: any(1),
        signal: any(Text::plain(text())),
        timed_out: any(false),
        oom_killed: any(false),
        error: any(Text::plain(text())),
        usage: any(Some(Usage::default())),
    }
}

fn records() {
    if let Some(request) = judged(ExecRequest::parse(bytes())) {
        request.cmd().for_each(words);
        for (name, value) in request.env() {
            words(name);
            words(value);
        }
        words(request.cwd());
        done(request.timeout_s());
    }
    let (cmd, env) = (any(&[""; 2][..]), any(&[("", ""); 2][..]));
    done(judged(write_request(cmd, env, text(), any(1), any(&mut [0; 64]))));

    if let Some(result) = judged(ExecResult::parse(bytes())) {
        done((result.status(), result.exit()));
        done(judged(result.write(any(&mut [0; 64]))));
        done(result.shortened(any(1)));
    }
}

fn body() {
    for framing in [Framing::Length(any(1)), Framing::Chunked, Framing::ToEnd] {
        let mut body = any(Body::new(framing));
        if any(true) {
            body = Body::limited(framing, any(1));
        }
        let mut input = bytes();
        while let Some(Some(part)) = judged(body.feed(&mut input)) {
            done(part);
        }
        done(body.is_complete());
        if let Err(error) = body.finish() {
            done((error.code(), error.fault.code(), error.is_early_end()));
        }
    }
    done(ChunkHead::new(any(1)).as_ref().map(ChunkHead::as_bytes));
}

fn linger() {
    let mut now = Instant::ZERO;
    let mut linger = Linger::new(now);
    while linger.poll(now).is_none() {
        now = now.saturating_add(any(Duration::ZERO));
        match any(0_u8) {
            0 => linger.feed(now, any(1)),
            1 => linger.acknowledged(now, any(1)),
            _ => linger.peer_closed(now),
        }
        done(linger.deadline());
    }
}
