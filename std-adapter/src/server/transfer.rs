//! Archives in and files out. The bodies move here; the disk is waited for on a thread of its own.

use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::io::Read as _;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use http::{Response, StatusCode};
use http_body::Body;
use tokio::sync::mpsc;
use tokio::task;
use tokio::time::timeout;
use tracing::info;
use triwire::exec::files::{SILENCE_BOUND, path_of};
use triwire::exec::head::{PushErrorBody, Refusal, STREAM_TYPE, Why};
use triwire::tar::MAX_NAME_SIZE;

use super::oneshot::{AnswerBody, Content};
use super::service::{answer, refuse, refused_with, text};
use super::stop::{Event, SHUTTING_DOWN};
use crate::files::{Files, FilesError, FilesFault};

/// Bytes of a file that are read at once; two such pieces wait at most.
const PIECE: usize = 128 * 1024;

/// Unpacks the body, and answers with what was stored.
pub(super) async fn push<B>(
    files: Option<Arc<dyn Files>>,
    query: &str,
    body: B,
    stop: Event,
) -> Response<AnswerBody>
where
    B: Body<Error: Display> + Unpin,
{
    let Some(files) = files else { return unavailable() };
    let path = match path(query) {
        Ok(path) => path,
        Err(refused) => return *refused,
    };
    // One piece waits while one is stored.
    let (sender, mut pieces) = mpsc::channel::<Result<Bytes, FilesError>>(1);
    let storing = task::spawn_blocking(move || {
        let mut push = files.push(&path)?;
        while let Some(piece) = pieces.blocking_recv() {
            match piece {
                Ok(piece) => push.feed(&piece)?,
                // What was stored before is the push's to say.
                Err(error) => {
                    return Err(FilesError { stored: push.stored(), ..error });
                }
            }
        }
        push.finish()
    });
    hand_on(body, &sender, stop).await;
    drop(sender);
    let stored = storing
        .await
        .unwrap_or_else(|error| Err(FilesError::new(FilesFault::Failed, error.to_string())));
    match stored {
        Ok(stored) => {
            info!(files = stored.files, bytes = stored.bytes, "stored");
            let mut room = [0; 64];
            let record = stored.write(&mut room).unwrap_or_default();
            text(StatusCode::OK, String::from_utf8_lossy(record).into_owned())
        }
        Err(FilesError { fault, why, stored }) => {
            let refusal = fault.refusal();
            // The path of an entry is the client's own; nothing else of the archive is shown.
            info!(status = refusal.status, code = refusal.code, why, "push refused");
            let status = StatusCode::from_u16(refusal.status);
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let body = PushErrorBody::new(&refusal, why, stored).to_string();
            refused_with(&refusal, status, body)
        }
    }
}

/// Hands the body on until its end, or until nobody takes it.
// rule: FILE-19
async fn hand_on<B>(mut body: B, to: &mpsc::Sender<Result<Bytes, FilesError>>, stop: Event)
where
    B: Body<Error: Display> + Unpin,
{
    let failed = |why: String| Err(FilesError::new(FilesFault::Refused, why));
    let mut stop = pin!(stop);
    loop {
        let frame = timeout(SILENCE_BOUND, poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)));
        let frame = tokio::select! {
            biased;
            () = &mut stop => {
                let _ = to.send(failed(SHUTTING_DOWN.to_owned())).await;
                return;
            }
            frame = frame => frame,
        };
        let piece = match frame {
            Ok(None) => return,
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(mut data) => Ok(data.copy_to_bytes(data.remaining())),
                Err(_) => continue,
            },
            Ok(Some(Err(error))) => failed(format!("the archive did not come whole: {error}")),
            Err(_) => {
                let bound = SILENCE_BOUND.as_secs();
                failed(format!("nothing more of the archive came within {bound} s"))
            }
        };
        let is_last = piece.is_err();
        // Who stores it has stopped when it refuses the archive.
        if to.send(piece).await.is_err() || is_last {
            return;
        }
    }
}

/// Sends a file.
pub(super) async fn pull(files: Option<Arc<dyn Files>>, query: &str) -> Response<AnswerBody> {
    let Some(files) = files else { return unavailable() };
    let path = match path(query) {
        Ok(path) => path,
        Err(refused) => return *refused,
    };
    let opened = task::spawn_blocking(move || files.pull(&path)).await;
    let opened =
        opened.unwrap_or_else(|error| Err(FilesError::new(FilesFault::Failed, error.to_string())));
    let pulled = match opened {
        Ok(pulled) => pulled,
        Err(FilesError { fault, why, .. }) => return refuse(&fault.refusal(), why),
    };
    info!(bytes = pulled.len, "sends a file");
    let (sender, pieces) = mpsc::channel(1);
    let left = pulled.len;
    task::spawn_blocking(move || {
        // What is added meanwhile was not promised.
        let mut content = pulled.content.take(left);
        loop {
            let mut piece = vec![0; PIECE];
            let piece = match content.read(&mut piece) {
                Ok(0) => return,
                Ok(count) => {
                    piece.truncate(count);
                    Ok(Bytes::from(piece))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            // Nobody takes it once the client is gone.
            if sender.blocking_send(piece).is_err() {
                return;
            }
        }
    });
    answer(StatusCode::OK, STREAM_TYPE, AnswerBody::File(Content { pieces, left }))
}

fn path(query: &str) -> Result<Vec<u8>, Box<Response<AnswerBody>>> {
    let mut room = [0; MAX_NAME_SIZE];
    match path_of(query, &mut room) {
        Ok(path) => Ok(path.to_vec()),
        Err(fault) => {
            let refusal = Refusal::from(Why::Path(fault));
            Err(Box::new(refuse(&refusal, refusal.why)))
        }
    }
}

fn unavailable() -> Response<AnswerBody> {
    let refusal = Refusal::from(Why::FilesUnavailable);
    refuse(&refusal, refusal.why)
}
