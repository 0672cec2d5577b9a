//! What every machine and every error of the slice promises of its type, and the stable words.

use std::error::Error;
use std::fmt::Display;

use triwire::OutTooSmall;
use triwire::buffer::{Inbox, Outbox};
use triwire::exec::body::{Body, BodyError, BodyFault};
use triwire::exec::frame::{Decoder, Direction, Kind};
use triwire::exec::head::{HeadError, HeadScan, KeyDigest, Malformed, Part, Refusal};
use triwire::exec::linger::Linger;
use triwire::exec::request::RequestError;
use triwire::exec::result::{ResultError, ResultFault};
use triwire::exec::session::{
    Ended, InputReader, InputWriter, OutputReader, OutputWriter, WriteError,
};
use triwire::exec::socket::{ClientSocket, Close, Lost, ServerSocket};
use triwire::exec::{ExecError, Fault};
use triwire::json::{self, DecodeError, ExponentTooLong, LoneSurrogate};

fn machine<T: Send + Sync + Clone + 'static>() {}

fn error<T: Copy + Eq + Error + Display + Send + Sync + 'static>() {}

#[test]
fn machines_move_and_copy() {
    machine::<Decoder>();
    machine::<OutputReader<[u8; 512]>>();
    machine::<OutputReader<Box<[u8]>>>();
    machine::<InputReader>();
    machine::<OutputWriter>();
    machine::<InputWriter>();
    machine::<Inbox<Box<[u8]>>>();
    machine::<Outbox<Box<[u8]>>>();
    machine::<Body>();
    machine::<HeadScan>();
    machine::<ServerSocket>();
    machine::<ClientSocket>();
    machine::<Linger>();
    machine::<KeyDigest>();
    machine::<json::Reader<'static>>();
}

#[test]
fn errors_are_values() {
    error::<OutTooSmall>();
    error::<ExecError>();
    error::<Ended>();
    error::<WriteError>();
    error::<BodyError>();
    error::<HeadError>();
    error::<Refusal>();
    error::<RequestError>();
    error::<ResultError>();
    error::<Close>();
    error::<Lost>();
    error::<json::Error>();
    error::<DecodeError>();
    error::<LoneSurrogate>();
    error::<ExponentTooLong>();
}

#[test]
fn decoder_is_small() {
    assert!(size_of::<Decoder>() <= 16);
}

/// Programs match on these words.
#[test]
fn words_are_stable() {
    let unreadable = ResultError { at: 0, fault: ResultFault::NoExitCode };
    for (fault, code) in [
        (Fault::UnknownType { found: 6 }, "unknown_type"),
        (Fault::WrongDirection { kind: Kind::Stdin }, "wrong_direction"),
        (Fault::Oversize { len: 65_537 }, "oversize"),
        (Fault::Truncated { missing: 1 }, "truncated"),
        (Fault::MissingExit, "missing_exit"),
        (Fault::AfterExit, "after_exit"),
        (Fault::AfterStdinClose, "after_stdin_close"),
        (Fault::ExitUnreadable(unreadable), "exit_unreadable"),
        (Fault::ExitTooLarge { room: 512 }, "exit_too_large"),
    ] {
        let error = ExecError { at: 8, fault };
        assert_eq!(error.code(), code);
        assert!(error.to_string().starts_with(&format!("{code} at byte 8: ")));
    }
    for (fault, code) in [
        (BodyFault::Truncated { missing: 1 }, "truncated"),
        (BodyFault::NoLastChunk, "truncated"),
        (BodyFault::ChunkSize { found: 0 }, "chunk_malformed"),
        (BodyFault::ChunkTooLarge, "chunk_malformed"),
        (BodyFault::LineEnd { found: 0 }, "chunk_malformed"),
        (BodyFault::SkippedTooLong, "chunk_malformed"),
        (BodyFault::TooLarge { limit: 1 }, "oversize"),
    ] {
        assert_eq!(fault.code(), code);
    }
    for (error, code) in [
        (HeadError::Unclean(Part::Host), "unclean_head"),
        (HeadError::OutTooSmall { needed: 1 }, "out_too_small"),
        (HeadError::TooLarge, "head_too_large"),
        (HeadError::TooManyHeaders, "head_too_large"),
        (HeadError::Malformed(Malformed::Version), "head_malformed"),
        (HeadError::Length, "head_malformed"),
        (HeadError::TransferCoding, "head_malformed"),
        (HeadError::Status { found: 500 }, "status"),
        (HeadError::ContentType, "content_type"),
        (HeadError::ContentEncoding, "content_type"),
        (HeadError::UpgradeMissing, "upgrade_refused"),
        (HeadError::WrongAccept, "upgrade_refused"),
    ] {
        assert_eq!(error.code(), code);
    }
    // rule: EXEC-2
    let kinds = Kind::ALL.map(|kind| (kind as u8, kind.as_str(), kind.direction()));
    assert_eq!(
        kinds,
        [
            (1, "stdout", Direction::GuestToHost),
            (2, "stderr", Direction::GuestToHost),
            (3, "exit", Direction::GuestToHost),
            (4, "stdin", Direction::HostToGuest),
            (5, "stdin_close", Direction::HostToGuest),
        ]
    );
    assert_eq!(Direction::GuestToHost.as_str(), "guest_to_host");
    assert_eq!(Direction::HostToGuest.as_str(), "host_to_guest");
}

/// A key never shows, however it is printed.
// rule: EXEC-32
#[test]
fn keys_do_not_show() {
    let digest = format!("{:?}", KeyDigest::of(b"secret"));
    assert!(digest.contains("redacted") && !digest.contains(|c: char| c.is_ascii_digit()));
}
