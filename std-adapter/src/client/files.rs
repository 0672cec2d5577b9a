//! Files to and from a sandbox.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;
use triwire::exec::files::{FilesPutResult, SILENCE_BOUND, TAR_TYPE};

use super::http::{Connector, HttpError, unsent};
use super::{Client, Secret};
use crate::exchange::{self, Refusal};

/// The most of an error's body that is read, in bytes.
const MAX_ERROR: usize = 64 * 1024;

impl Client {
    /// Unpacks a tar archive, without compression, into the folder at `path` of a sandbox, which
    /// is absolute and made when it is missing. The archive is asked for as it is sent: count its
    /// pieces to show progress.
    ///
    /// It takes as long as it takes, but no longer than 60 s without a byte.
    ///
    /// ```no_run
    /// # async fn run(archive: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
    /// use futures_util::stream;
    /// use triwire_std::client::Client;
    ///
    /// let client = Client::builder("http://127.0.0.1:7878").key("…").build()?;
    /// let pieces = stream::iter([Ok(archive.into())]);
    /// let stored = client.push("local", "/in", pieces).await?;
    /// println!("{} files, {} bytes", stored.files, stored.bytes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The [`TransferError`] that says why not all of it was stored.
    ///
    /// # Cancel safety
    /// Dropping the future ends the transfer; what was stored stays.
    pub async fn push<S>(
        &self,
        sandbox: &str,
        path: &str,
        archive: S,
    ) -> Result<FilesPutResult, TransferError>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + Unpin + 'static,
    {
        let moved = Arc::new(AtomicU64::new(0));
        let body = Archive { pieces: archive, moved: Arc::clone(&moved) };
        let mut request = self.request(Method::POST, sandbox, path, body)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TAR_TYPE));
        let http = self.transfers();
        let mut answering = std::pin::pin!(async {
            let answer = http.request(request).await.map_err(cut)?;
            let status = answer.status();
            Ok::<_, TransferError>((status, short(answer).await?))
        });
        // rule: FILE-19
        let (status, body) = loop {
            let before = moved.load(Ordering::Relaxed);
            match timeout(SILENCE_BOUND, &mut answering).await {
                Ok(answered) => break answered?,
                Err(_) if moved.load(Ordering::Relaxed) != before => {}
                Err(_) => return Err(HttpError::Late { after: SILENCE_BOUND }.into()),
            }
        };
        match status {
            StatusCode::OK => FilesPutResult::parse(&body).map_err(|_| TransferError::Malformed),
            status => Err(refused(status, &body)),
        }
    }

    /// Reads the regular file at `path` of a sandbox, which is absolute.
    ///
    /// # Errors
    /// The [`TransferError`] that says why there is no file.
    pub async fn pull(&self, sandbox: &str, path: &str) -> Result<Pulled, TransferError> {
        let none = Archive { pieces: futures_util::stream::empty(), moved: Arc::default() };
        let request = self.request(Method::GET, sandbox, path, none)?;
        let http = self.transfers();
        let asked = timeout(SILENCE_BOUND, http.request(request)).await;
        let late = || TransferError::from(HttpError::Late { after: SILENCE_BOUND });
        let answer = asked.map_err(|_| late())?.map_err(cut)?;
        match answer.status() {
            StatusCode::OK => {
                let len = answer.body().size_hint().exact();
                Ok(Pulled { body: answer.into_body(), len })
            }
            status => Err(refused(status, &short(answer).await?)),
        }
    }

    fn request<B>(
        &self,
        method: Method,
        sandbox: &str,
        path: &str,
        body: B,
    ) -> Result<Request<B>, TransferError> {
        let mut url = url::Url::parse(&self.url()).map_err(|_| TransferError::Secret)?;
        let base = url.path().trim_end_matches('/');
        let files = format!("{base}/sandboxes/{sandbox}/files");
        url.set_path(&files);
        url.query_pairs_mut().append_pair("path", path);
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = url.as_str().parse().map_err(|_| TransferError::Secret)?;
        if let Some(key) = self.key.as_ref().map(Secret::as_str) {
            let value = HeaderValue::try_from(format!("Bearer {key}"));
            let mut value = value.map_err(|_| TransferError::Secret)?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        Ok(request)
    }

    fn transfers<B>(&self) -> legacy::Client<Connector, B>
    where
        B: Body<Data: Send> + Send,
    {
        #[cfg(feature = "tls")]
        let trust = self.tls.clone();
        #[cfg(not(feature = "tls"))]
        let trust = None;
        let connector = Connector::new(trust, self.connect_timeout);
        legacy::Client::builder(TokioExecutor::new()).build(connector)
    }
}

fn cut(error: legacy::Error) -> TransferError {
    // Our own source's failure comes back as the reason why nothing was sent on.
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(Source(error)) = inner.downcast_ref() {
            return TransferError::Source(io::Error::new(error.kind(), error.to_string()));
        }
        source = inner.source();
    }
    unsent(error).into()
}

/// Reads the short body of an answer.
async fn short(answer: Response<Incoming>) -> Result<Bytes, TransferError> {
    let limited = http_body_util::Limited::new(answer.into_body(), MAX_ERROR);
    let read = timeout(SILENCE_BOUND, limited.collect()).await;
    let read = read.map_err(|_| HttpError::Late { after: SILENCE_BOUND })?;
    Ok(read.map_err(|source| HttpError::Broken { source })?.to_bytes())
}

fn refused(status: StatusCode, body: &[u8]) -> TransferError {
    let Refusal { code, why } = exchange::refusal_of(body);
    // A push that failed names what it had stored.
    let stored = FilesPutResult::parse(body).unwrap_or_default();
    TransferError::Refused { status: status.as_u16(), code, why, stored }
}

/// The pieces of an archive, as a body.
struct Archive<S> {
    pieces: S,
    /// Bytes that were taken.
    moved: Arc<AtomicU64>,
}

/// The failure of an archive's source.
#[derive(Debug)]
struct Source(io::Error);

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Source {}

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> Body for Archive<S> {
    type Data = Bytes;
    type Error = Source;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Source>>> {
        Pin::new(&mut self.pieces).poll_next(cx).map(|piece| {
            let piece = piece?.map_err(Source);
            if let Ok(bytes) = &piece {
                self.moved.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            Some(piece.map(Frame::data))
        })
    }

    fn is_end_stream(&self) -> bool {
        // An empty one declares no body at all.
        self.pieces.size_hint() == (0, Some(0))
    }
}

/// A file that comes.
#[derive(Debug)]
pub struct Pulled {
    body: Incoming,
    len: Option<u64>,
}

impl Pulled {
    /// Returns the file's length in bytes, where the server told it.
    #[must_use]
    pub const fn len(&self) -> Option<u64> {
        self.len
    }

    /// Reports whether the file is known to have no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self.len, Some(0))
    }

    /// Gives the next bytes; `None` when the file is whole.
    ///
    /// # Errors
    /// It broke off, or nothing came for 60 s.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Bytes>, TransferError> {
        loop {
            let frame = timeout(SILENCE_BOUND, self.body.frame()).await;
            let late = HttpError::Late { after: SILENCE_BOUND };
            let Some(frame) = frame.map_err(|_| late)? else { return Ok(None) };
            let frame = frame.map_err(|error| HttpError::Broken { source: error.into() })?;
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Ok(Some(data));
            }
        }
    }
}

/// Why a transfer failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransferError {
    /// The key or the sandbox's name cannot stand in a request. Nothing was sent.
    Secret,
    /// The server did not answer, or broke off.
    Http(HttpError),
    /// The server refused it.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The stable word in the answer's body, empty when it had none.
        code: String,
        /// The answer's own words, on one line; empty when it had none. A refused archive's
        /// entry is named here.
        why: String,
        /// What a push had stored before.
        stored: FilesPutResult,
    },
    /// The answer to a push is no record of what was stored.
    Malformed,
    /// The source of the archive failed.
    Source(io::Error),
}

impl From<HttpError> for TransferError {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret => f.write_str("the key or the sandbox's name cannot be sent; check both"),
            Self::Http(error) => error.fmt(f),
            Self::Malformed => {
                f.write_str("the answer is not one of the contract's; check the URL")
            }
            Self::Source(error) => write!(f, "the archive cannot be read: {error}"),
            Self::Refused { status, code, why, stored } => {
                let advice = match (*status, code.as_str()) {
                    (401, _) => "the server does not know the key; check the key file",
                    (403, _) => {
                        "the server does not answer to this host name; add it to its `hosts`"
                    }
                    (404, "file_not_found") => "there is no such file",
                    (404, "not_found") => "there is no such sandbox; check its name",
                    (404, _) => "no gateway answers at this path; check the URL",
                    (400, "not_a_file") => "only regular files are sent",
                    (400, "archive_refused") => "the archive was refused",
                    (501, _) => "this sandbox transfers no files",
                    _ => "the server refused the transfer",
                };
                write!(f, "{advice} (status {status}")?;
                if !why.is_empty() {
                    write!(f, ": {why}")?;
                }
                f.write_str(")")?;
                match stored {
                    FilesPutResult { files: 0, .. } => Ok(()),
                    FilesPutResult { files, bytes } => {
                        write!(f, "; {files} files of {bytes} bytes were stored before")
                    }
                }
            }
        }
    }
}

impl Error for TransferError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Http(error) => error.source(),
            Self::Source(error) => Some(error),
            _ => None,
        }
    }
}
