//! `triwire cp`: files into a sandbox as an archive, one file out of it.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read as _, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::thread;

use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use triwire_std::client::{Client, DEFAULT_URL, TransferError};
use triwire_std::tls::ClientTls;

use crate::cli::CpArgs;
use crate::config;
use crate::failure::{Failure, Outcome};
use crate::keys::{self, Source};
use crate::terminal::Progress;

/// Bytes of an archive that are sent at once.
const PIECE: usize = 64 * 1024;

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Local(PathBuf),
    /// Standard input or output.
    Standard,
    Sandbox {
        name: String,
        path: String,
    },
}

impl End {
    /// `-` is standard input or output, `NAME:/PATH` is in a sandbox, anything else is here.
    fn parse(text: &str) -> Self {
        match text.split_once(':') {
            _ if text == "-" => Self::Standard,
            Some((name, path))
                if path.starts_with('/') && triwire::exec::head::is_sandbox_id(name) =>
            {
                Self::Sandbox { name: name.to_owned(), path: path.to_owned() }
            }
            _ => Self::Local(PathBuf::from(text)),
        }
    }
}

pub(crate) fn run(args: &CpArgs) -> Outcome {
    let url = args.server.url.as_deref().unwrap_or(DEFAULT_URL);
    let state = || config::state(&args.state).map(|state| state.value);
    let (key, source) = keys::for_client(args.key_file.as_deref(), state, url)?;
    let mut builder = Client::builder(url);
    if let Some(ca) = &args.server.ca {
        let tls = ClientTls::from_file(ca);
        builder = builder.tls(tls.map_err(|error| Failure::new(format!("--ca: {error}")))?);
    }
    if let Some(key) = key {
        builder = builder.key(key.expose());
    }
    let client = builder.build()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no runtime to connect with: {error}")))?;
    let copied = match (End::parse(&args.from), End::parse(&args.to)) {
        (End::Sandbox { name, path }, to @ (End::Local(_) | End::Standard)) => {
            runtime.block_on(pull(&client, &source, &name, &path, &to))
        }
        (from @ (End::Local(_) | End::Standard), End::Sandbox { name, path }) => {
            runtime.block_on(push(&client, &source, &from, &name, &path))
        }
        _ => Err(Failure::new(
            "one end is in a sandbox, such as local:/folder/file, and the other is here",
        )),
    };
    runtime.shutdown_background();
    copied
}

fn failed(error: &TransferError, source: &Source) -> Failure {
    match error {
        TransferError::Refused { status: 401, .. } => Failure::new(format!("{error}; {source}")),
        _ => Failure::new(error.to_string()),
    }
}

/// Where something goes in a sandbox: the folder to unpack in, and its name there. A path that ends
/// with a slash is a folder, in which it keeps its name.
fn place(path: &str, own: Option<&str>) -> Result<(String, String), Failure> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let name = match (name, own) {
        ("", Some(own)) => own,
        ("", None) => {
            return Err(Failure::new(format!(
                "{path} is a folder, and standard input has no name: name the file in it"
            )));
        }
        (name, _) => name,
    };
    let folder = if folder.is_empty() { "/" } else { folder };
    Ok((folder.to_owned(), name.to_owned()))
}

async fn push(client: &Client, source: &Source, from: &End, sandbox: &str, path: &str) -> Outcome {
    let (content, own) = match from {
        End::Local(local) => {
            let real = fs::canonicalize(local).map_err(|error| unreadable(local, &error))?;
            let own = real.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            (Content::Path(local.clone()), own)
        }
        _ => (Content::Spooled(spool()?), None),
    };
    let (folder, name) = place(path, own.as_deref())?;
    let (sender, pieces) = mpsc::channel(2);
    let archiving = thread::spawn(move || {
        let mut out = Pieces { sender, waiting: Vec::with_capacity(PIECE) };
        let made = archive(content, &name, &mut out).and_then(|()| out.flush());
        if let Err(error) = made {
            // Who sends it hears why there is no more.
            let _ = out.sender.blocking_send(Err(error));
        }
    });
    let progress = Progress::start();
    let mut sent = 0_u64;
    let counted = Box::pin(futures_util::stream::unfold(pieces, |mut pieces| async {
        pieces.recv().await.map(|piece| (piece, pieces))
    }));
    let counted =
        futures_util::StreamExt::inspect(counted, move |piece: &io::Result<bytes::Bytes>| {
            sent += piece.as_ref().map_or(0, |piece| piece.len() as u64);
            progress.say(format_args!("{} sent", Size(sent)));
        });
    let stored = client.push(sandbox, &folder, counted).await;
    let stored = stored.map_err(|error| failed(&error, source))?;
    // It has sent all that there was.
    let _ = archiving.join();
    if io::stderr().is_terminal() {
        eprintln!("triwire: {} files, {} stored", stored.files, Size(stored.bytes));
    }
    Ok(0)
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{} cannot be read: {error}", path.display()))
}

enum Content {
    Path(PathBuf),
    /// An archive says a file's length before its content.
    Spooled(File),
}

fn spool() -> Result<File, Failure> {
    let spooled = || {
        let mut file = tempfile::tempfile()?;
        io::copy(&mut io::stdin().lock(), &mut file)?;
        file.rewind()?;
        Ok::<_, io::Error>(file)
    };
    spooled().map_err(|error| Failure::new(format!("standard input cannot be read: {error}")))
}

/// Writes a file or a folder as an archive, links as links, with permissions and no owners.
fn archive(content: Content, name: &str, out: &mut impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(out);
    archive.mode(tar::HeaderMode::Complete);
    archive.follow_symlinks(false);
    match content {
        Content::Spooled(mut file) => {
            let mut header = tar::Header::new_gnu();
            header.set_size(file.metadata()?.len());
            header.set_mode(0o644);
            archive.append_data(&mut header, name, &mut file)?;
        }
        Content::Path(path) => {
            // What the command line names is followed.
            let metadata = fs::metadata(&path)?;
            if metadata.is_dir() {
                archive.append_dir_all(name, &path)?;
            } else if metadata.is_file() {
                let mut file = File::open(&path)?;
                let mut header = tar::Header::new_gnu();
                header.set_size(metadata.len());
                header.set_mode(mode(&metadata));
                // A file that grows meanwhile is sent as long as it was.
                archive.append_data(&mut header, name, (&mut file).take(metadata.len()))?;
            } else {
                let why = format!("{} is neither a file nor a folder", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        }
    }
    archive.finish()
}

#[cfg(unix)]
fn mode(metadata: &fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(metadata) & 0o777
}

#[cfg(not(unix))]
fn mode(_: &fs::Metadata) -> u32 {
    0o644
}

/// Hands an archive on in pieces, to who sends them.
struct Pieces {
    sender: mpsc::Sender<io::Result<bytes::Bytes>>,
    waiting: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.waiting, Vec::with_capacity(PIECE));
        let sent = self.sender.blocking_send(Ok(piece.into()));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

async fn pull(client: &Client, source: &Source, sandbox: &str, path: &str, to: &End) -> Outcome {
    let mut pulled = client.pull(sandbox, path).await.map_err(|error| failed(&error, source))?;
    let progress = Progress::start();
    let total = pulled.len();
    let mut received = 0_u64;
    let End::Local(local) = to else {
        let mut stdout = tokio::io::stdout();
        while let Some(bytes) = pulled.next().await.map_err(|error| failed(&error, source))? {
            if let Err(error) = stdout.write_all(&bytes).await {
                return Failure::output(&error);
            }
        }
        return match stdout.flush().await {
            Ok(()) => Ok(0),
            Err(error) => Failure::output(&error),
        };
    };
    let name = path.rsplit('/').next().unwrap_or_default();
    let local = if local.is_dir() { local.join(name) } else { local.clone() };
    let folder = match local.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let unwritten =
        |error: io::Error| Failure::new(format!("{} cannot be written: {error}", local.display()));
    // Whole or not at all, whatever stood there before.
    let mut file = tempfile::Builder::new();
    #[cfg(unix)]
    file.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = file.tempfile_in(folder).map_err(unwritten)?;
    while let Some(bytes) = pulled.next().await.map_err(|error| failed(&error, source))? {
        file.write_all(&bytes).map_err(unwritten)?;
        received += bytes.len() as u64;
        match total {
            Some(total) => {
                progress.say(format_args!("{} of {} received", Size(received), Size(total)));
            }
            None => progress.say(format_args!("{} received", Size(received))),
        }
    }
    file.persist(&local).map_err(|error| unwritten(error.error))?;
    Ok(0)
}

/// A count of bytes, for people.
struct Size(u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(bytes) = self;
        let (unit, name) = match bytes {
            0..0x400 => return write!(f, "{bytes} B"),
            0x400..0x10_0000 => (0x400, "KiB"),
            0x10_0000..0x4000_0000 => (0x10_0000, "MiB"),
            _ => (0x4000_0000, "GiB"),
        };
        let tenths = u128::from(*bytes) * 10 / unit;
        write!(f, "{}.{} {name}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_here_or_in_a_sandbox() {
        let sandbox =
            |name: &str, path: &str| End::Sandbox { name: name.into(), path: path.into() };
        assert_eq!(End::parse("local:/a/b"), sandbox("local", "/a/b"));
        assert_eq!(End::parse("local:/a:b"), sandbox("local", "/a:b"));
        assert_eq!(End::parse("-"), End::Standard);
        for here in ["a", "./local:/a", "local:a", "/x", "C:\\x", ":/a", "./-"] {
            assert_eq!(End::parse(here), End::Local(here.into()), "{here}");
        }
    }

    #[test]
    fn a_place_has_a_folder_and_a_name() {
        let of = |path, own| place(path, own).map_err(|error| error.to_string());
        let pair = |folder: &str, name: &str| Ok((folder.to_owned(), name.to_owned()));
        assert_eq!(of("/a/b", Some("x")), pair("/a", "b"));
        assert_eq!(of("/a/b/", Some("x")), pair("/a/b", "x"));
        assert_eq!(of("/", Some("x")), pair("/", "x"));
        assert_eq!(of("/b", None), pair("/", "b"));
        assert!(of("/b/", None).unwrap_err().contains("name the file"));
    }

    #[test]
    fn sizes_are_told_in_their_unit() {
        for (bytes, told) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB")]
        {
            assert_eq!(Size(bytes).to_string(), told);
        }
        assert_eq!(Size(u64::MAX).to_string(), "17179869183.9 GiB");
    }
}
