//! Archives into folders and files out of them: by hand, against GNU tar, under attack, and over
//! the wire.
#![cfg(all(feature = "server", feature = "client", feature = "guest", target_os = "linux"))]
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::stream;
use tempfile::TempDir;
use tokio::net::TcpListener;
use triwire::exec::files::FilesPutResult;
use triwire_std::client::{Client, TransferError};
use triwire_std::files::{Files as _, FilesError, FilesFault, Folder, Policy};
use triwire_std::guest::ProcessGuest;
use triwire_std::server::Server;

/// Writes headers that no tool would.
struct Archive(Vec<u8>);

impl Archive {
    const fn new() -> Self {
        Self(Vec::new())
    }

    fn entry(mut self, kind: u8, name: &str, link: &str, mode: u32, content: &[u8]) -> Self {
        let mut block = [0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..107].copy_from_slice(format!("{mode:07o}").as_bytes());
        block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        block[148..156].fill(b' ');
        block[156] = kind;
        block[157..157 + link.len()].copy_from_slice(link.as_bytes());
        block[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.0.extend_from_slice(&block);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &str, content: &str) -> Self {
        self.entry(b'0', name, "", 0o644, content.as_bytes())
    }

    fn folder(self, name: &str) -> Self {
        self.entry(b'5', name, "", 0o755, b"")
    }

    fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(b'2', name, target, 0o777, b"")
    }

    fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(b'1', name, target, 0o644, b"")
    }
}

/// A folder with a neighbour that must stay as it is.
struct Place {
    outer: TempDir,
}

impl Place {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("in")).unwrap();
        fs::create_dir(outer.path().join("in-evil")).unwrap();
        fs::write(outer.path().join("victim"), "untouched").unwrap();
        Self { outer }
    }

    fn root(&self) -> PathBuf {
        self.outer.path().join("in")
    }

    fn folder(&self) -> Folder {
        Folder::open(self.root()).unwrap()
    }

    fn push(&self, archive: &[u8]) -> Result<FilesPutResult, FilesError> {
        push_to(&self.folder(), archive, 700)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.root().join(name)).unwrap()
    }

    /// Nothing stands outside but what stood there, and no temporary file is left.
    fn check(&self) {
        assert_eq!(fs::read_to_string(self.outer.path().join("victim")).unwrap(), "untouched");
        let mut names: Vec<_> = fs::read_dir(self.outer.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["in", "in-evil", "victim"]);
        assert_eq!(fs::read_dir(self.outer.path().join("in-evil")).unwrap().count(), 0);
        for path in tree(&self.root()).keys() {
            assert!(!path.contains(".triwire-"), "{path}");
        }
    }
}

fn push_to(folder: &Folder, archive: &[u8], cut: usize) -> Result<FilesPutResult, FilesError> {
    let mut push = folder.push(b"/")?;
    for piece in archive.chunks(cut) {
        push.feed(piece)?;
    }
    push.finish()
}

/// Each entry with its kind, permissions and content or target.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.mode() & 0o7777;
            let what = if metadata.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if metadata.is_dir() {
                left.push(path.clone());
                format!("folder {mode:o}")
            } else {
                let content = fs::read(&path).unwrap();
                format!("{mode:o} {} {}", metadata.nlink(), content.escape_ascii())
            };
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            all.insert(name, what);
        }
    }
    all
}

#[test]
fn entries_are_stored_with_their_permissions() {
    let place = Place::new();
    let archive = Archive::new()
        .folder("./")
        .folder("d/")
        .file("d/a", "one")
        .entry(b'0', "deep/er/x", "", 0o6755, b"#!")
        .entry(b'5', "sealed", "", 0o555, b"")
        .file("sealed/inside", "kept")
        .symlink("lib", "d/a")
        .symlink("deep/back", "../d/a")
        .symlink("nowhere", "later")
        .hard_link("d/b", "d/a")
        .file("empty", "");
    let stored = place.push(&archive.0).unwrap();
    assert_eq!(stored, FilesPutResult { files: 4, bytes: 9 });
    let expected = [
        ("d", "folder 755"),
        ("d/a", "644 2 one"),
        ("d/b", "644 2 one"),
        ("deep", ""),
        ("deep/back", "-> ../d/a"),
        ("deep/er", ""),
        ("deep/er/x", "755 1 #!"),
        ("empty", "644 1 "),
        ("lib", "-> d/a"),
        ("nowhere", "-> later"),
        ("sealed", "folder 555"),
        ("sealed/inside", "644 1 kept"),
    ];
    let found = tree(&place.root());
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.map(|(name, _)| name));
    for (name, what) in expected {
        assert!(what.is_empty() || found[name] == what, "{name}: {}", found[name]);
    }
    place.check();
}

// rule: FILE-16
#[test]
fn what_is_there_is_replaced_and_never_written_through() {
    let place = Place::new();
    fs::write(place.root().join("file"), "old").unwrap();
    let held = fs::File::open(place.root().join("file")).unwrap();
    fs::hard_link(place.root().join("file"), place.root().join("other")).unwrap();
    symlink("other", place.root().join("link")).unwrap();
    let archive = Archive::new().file("file", "new").file("link", "a file now");
    place.push(&archive.0).unwrap();
    assert_eq!((place.read("file"), place.read("other")), ("new".into(), "old".into()));
    let mut text = String::new();
    (&held).read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
    assert!(!fs::symlink_metadata(place.root().join("link")).unwrap().is_symlink());
    // An archive that ends early leaves the old file, whole.
    let cut = Archive::new().file("file", &"x".repeat(2000)).0;
    let error = place.push(&cut[..1000]).unwrap_err();
    assert!(error.fault == FilesFault::Refused && error.why.contains("truncated"), "{error}");
    assert_eq!(place.read("file"), "new");
    let mut push = place.folder().push(b"/").unwrap();
    push.feed(&cut[..1000]).unwrap();
    drop(push);
    place.check();
}

// rule: FILE-17, FILE-14
#[test]
fn nothing_leads_outside() {
    let outside = |place: &Place| {
        symlink(place.outer.path(), place.root().join("out")).unwrap();
        symlink("../victim", place.root().join("victim")).unwrap();
        symlink("../in-evil", place.root().join("evil")).unwrap();
        place.push(&Archive::new().folder("deep").symlink("deep/link", "..").0).unwrap();
    };
    let cases: Vec<(&str, Archive)> = vec![
        ("../x", Archive::new().file("../x", "")),
        ("/x", Archive::new().file("/x", "")),
        ("p", Archive::new().symlink("p", "..").file("p/exploit", "")),
        ("s", Archive::new().symlink("s", "/tmp/x").file("s", "")),
        ("a", Archive::new().hard_link("a", "../victim").file("a", "changed")),
        ("b", Archive::new().hard_link("b", "/etc/passwd")),
        ("out/x", Archive::new().file("out/x", "")),
        ("out", Archive::new().file("out", "")),
        ("out", Archive::new().folder("out")),
        ("out/d", Archive::new().folder("out/d")),
        ("evil/x", Archive::new().file("evil/x", "")),
        ("evil", Archive::new().folder("evil")),
        ("victim", Archive::new().file("victim", "changed")),
        ("x", Archive::new().hard_link("x", "out/victim")),
        ("m", Archive::new().symlink("m", "deep/link/..")),
        ("f/x", Archive::new().file("f", "").file("f/x", "")),
        ("f", Archive::new().file("f", "").folder("f")),
        ("d", Archive::new().folder("d").file("d", "")),
        ("d", Archive::new().folder("d").file("d/x", "").symlink("d", "e")),
        ("dev", Archive::new().entry(b'3', "dev", "", 0o644, b"")),
        ("fifo", Archive::new().entry(b'6', "fifo", "", 0o644, b"")),
    ];
    for (name, archive) in cases {
        for cut in [archive.0.len(), 100] {
            let place = Place::new();
            outside(&place);
            let error = push_to(&place.folder(), &archive.0, cut).unwrap_err();
            assert_eq!(error.fault, FilesFault::Refused, "{name}: {error}");
            assert!(error.why.starts_with(&format!("{name}: ")), "{name}: {error}");
            place.check();
        }
    }
    // What was stored before stays, and is told.
    let place = Place::new();
    let archive = Archive::new().file("good", "12345").file("../bad", "");
    let error = place.push(&archive.0).unwrap_err();
    assert_eq!(error.stored, FilesPutResult { files: 1, bytes: 5 });
    assert_eq!(place.read("good"), "12345");
    // A link of the folder that stays inside is followed.
    fs::create_dir(place.root().join("real")).unwrap();
    symlink("real", place.root().join("alias")).unwrap();
    place.push(&Archive::new().file("alias/x", "through").0).unwrap();
    assert_eq!(place.read("real/x"), "through");
}

// rule: FILE-17
#[test]
fn links_that_change_meanwhile_lead_nowhere() {
    let place = Place::new();
    let (root, outer) = (place.root(), place.outer.path().join("in-evil"));
    fs::create_dir(root.join("real")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (ended, swapped) = (Arc::clone(&stop), root.join("swap"));
    let swapping = std::thread::spawn(move || {
        let mut rounds = 0_u64;
        while !ended.load(Ordering::Relaxed) {
            for target in [Path::new("real"), outer.as_path()] {
                let _ = fs::remove_file(&swapped).or_else(|_| fs::remove_dir_all(&swapped));
                let _ = symlink(target, &swapped);
            }
            rounds += 1;
        }
        rounds
    });
    let archive = Archive::new()
        .folder("swap")
        .file("swap/file", "x")
        .symlink("swap/link", "file")
        .hard_link("swap/hard", "swap/file")
        .folder("swap/sub")
        .file("swap/sub/file", "y");
    let (mut stored, mut refused) = (0, 0);
    for _ in 0..2000 {
        match place.push(&archive.0) {
            Ok(_) => stored += 1,
            Err(_) => refused += 1,
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(swapping.join().unwrap() > 10);
    assert!(refused > 0, "{stored} stored, none refused: nothing was swapped");
    assert_eq!(fs::read_dir(place.outer.path().join("in-evil")).unwrap().count(), 0);
}

// rule: FILE-18
#[test]
fn limits_are_the_policy_s() {
    let place = Place::new();
    let policy = Policy { max_entries: 2, max_bytes: 10 };
    let folder = place.folder().policy(policy);
    let archive = Archive::new().file("a", "12345").file("b", "12345");
    assert_eq!(push_to(&folder, &archive.0, 512).unwrap().bytes, 10);
    for (archive, why) in [
        (archive.file("c", ""), "c: more than 2 entries"),
        (Archive::new().file("a", "12345").file("d", "123456"), "d: more than 10 bytes"),
    ] {
        let error = push_to(&folder, &archive.0, 512).unwrap_err();
        assert_eq!(error.fault, FilesFault::TooLarge);
        assert!(error.why.starts_with(why), "{error}");
    }
    place.check();
}

// rule: FILE-15
#[test]
fn only_regular_files_are_sent() {
    let place = Place::new();
    fs::write(place.root().join("file"), "content").unwrap();
    fs::create_dir(place.root().join("folder")).unwrap();
    symlink("file", place.root().join("inside")).unwrap();
    symlink("../victim", place.root().join("outside")).unwrap();
    assert!(Command::new("mkfifo").arg(place.root().join("fifo")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(place.root().join("socket")).unwrap();
    let folder = place.folder();
    for path in ["/file", "//file", "/inside", "/folder/..//file"] {
        let pulled = folder.pull(path.as_bytes());
        // What a request may name is the core's to say; the folder itself stays inside.
        let mut text = String::new();
        let mut pulled = pulled.unwrap();
        pulled.content.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), pulled.len), ("content", 7), "{path}");
    }
    for (path, fault) in [
        ("/none", FilesFault::Missing),
        ("/file/none", FilesFault::Missing),
        ("/folder", FilesFault::NotAFile),
        ("/", FilesFault::NotAFile),
        ("/fifo", FilesFault::NotAFile),
        ("/socket", FilesFault::NotAFile),
        ("/outside", FilesFault::NotAFile),
        ("/../victim", FilesFault::NotAFile),
    ] {
        let error = folder.pull(path.as_bytes()).unwrap_err();
        assert_eq!(error.fault, fault, "{path}: {error}");
    }
}

/// What GNU tar makes, in each of its formats, is stored as GNU tar itself stores it.
#[test]
fn archives_of_gnu_tar_are_stored_as_it_does() {
    let source = tempfile::tempdir().unwrap();
    let at = |name: &str| source.path().join(name);
    fs::create_dir_all(at("a/b c/ż")).unwrap();
    fs::write(at("a/one"), "1").unwrap();
    fs::write(at("a/b c/ż/big"), vec![7; 100_000]).unwrap();
    fs::write(at("a/empty"), "").unwrap();
    let long = "n".repeat(120);
    fs::create_dir(at(&long)).unwrap();
    fs::write(at(&long).join(&long), "long").unwrap();
    symlink("one", at("a/link")).unwrap();
    symlink(format!("{long}/{long}"), at("far")).unwrap();
    fs::hard_link(at("a/one"), at("a/two")).unwrap();
    fs::set_permissions(at("a/one"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(at("a/b c"), fs::Permissions::from_mode(0o700)).unwrap();
    for format in ["gnu", "oldgnu", "pax", "ustar"] {
        let mut tar = Command::new("tar");
        tar.args(["--format", format, "-C"]).arg(source.path()).args(["-cf", "-", "."]);
        let made = tar.stderr(Stdio::inherit()).output().unwrap();
        // The old formats have no room for some names; what is not in them is on neither side.
        assert!(made.status.success() || format == "ustar", "{format}");
        let (place, theirs) = (Place::new(), tempfile::tempdir().unwrap());
        let stored = place.push(&made.stdout).unwrap();
        let archive = theirs.path().join("archive");
        fs::write(&archive, &made.stdout).unwrap();
        let root = theirs.path().join("in");
        fs::create_dir(&root).unwrap();
        let mut tar = Command::new("tar");
        let unpacked = tar.args(["-p", "-C"]).arg(&root).arg("-xf").arg(&archive).status().unwrap();
        assert!(unpacked.success(), "{format}");
        let (ours, theirs) = (tree(&place.root()), tree(&root));
        assert_eq!(ours, theirs, "{format}");
        assert!(stored.files >= 3 && ours.len() >= 8, "{format}: {stored:?} {ours:?}");
        place.check();
    }
}

async fn gateway(root: &Path) -> (Client, tokio::task::JoinHandle<()>) {
    let guest = Arc::new(ProcessGuest::new(root).unwrap());
    let server = Server::builder().open().sandbox("local", guest).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        server.serve(listener, std::future::pending()).await.unwrap();
    });
    (Client::builder(url).build().unwrap(), serving)
}

fn pieces(
    bytes: Vec<u8>,
    size: usize,
) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send + Unpin + 'static {
    let pieces: Vec<_> =
        bytes.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    stream::iter(pieces)
}

#[tokio::test]
async fn files_go_in_and_come_out_over_the_wire() {
    let place = Place::new();
    let (client, serving) = gateway(&place.root()).await;
    let big: String = (0..300_000).map(|number| char::from(b'a' + (number % 26) as u8)).collect();
    let archive = Archive::new().file("big", &big).file("sp ace+%", "odd");
    let stored = client.push("local", "/new/folder", pieces(archive.0, 10_000)).await.unwrap();
    assert_eq!(stored, FilesPutResult { files: 2, bytes: 300_003 });
    let mut pulled = client.pull("local", "/new/folder/big").await.unwrap();
    assert_eq!(pulled.len(), Some(300_000));
    let mut content = Vec::new();
    while let Some(bytes) = pulled.next().await.unwrap() {
        content.extend_from_slice(&bytes);
    }
    assert!(content == big.as_bytes());
    let mut odd = client.pull("local", "/new/folder/sp ace+%").await.unwrap();
    assert_eq!(odd.next().await.unwrap().unwrap(), "odd");
    assert_eq!(odd.next().await.unwrap(), None);
    let none = client.push("local", "/", pieces(Vec::new(), 1)).await.unwrap();
    assert_eq!(none, FilesPutResult::default());

    let is = |error: TransferError, status, word: &str| {
        let TransferError::Refused { status: got, code, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*got, code.as_str()), (status, word), "{error}");
        error.to_string()
    };
    for (path, status, word) in [
        ("/none", 404, "file_not_found"),
        ("/new", 400, "not_a_file"),
        ("none", 400, "bad_path"),
        ("/../victim", 400, "bad_path"),
    ] {
        is(client.pull("local", path).await.unwrap_err(), status, word);
    }
    is(client.pull("other", "/x").await.unwrap_err(), 404, "not_found");
    // rule: FILE-14
    let hostile = Archive::new().file("good", "12345").file("../bad", &big);
    let error = client.push("local", "/", pieces(hostile.0, 4096)).await.unwrap_err();
    let said = is(error, 400, "archive_refused");
    assert!(said.contains("../bad: ") && said.contains("1 files of 5 bytes"), "{said}");
    let cut = Archive::new().file("cut", &big).0;
    let error = client.push("local", "/", pieces(cut[..5000].to_vec(), 512)).await.unwrap_err();
    assert!(is(error, 400, "archive_refused").contains("truncated"));
    let gone = stream::iter([
        Ok(Bytes::from(cut[..5000].to_vec())),
        Err(io::Error::other("the disk is gone")),
    ]);
    let error = client.push("local", "/", gone).await.unwrap_err();
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    place.check();
    serving.abort();
}

// rule: FILE-19
#[tokio::test]
async fn only_silence_ends_a_transfer() {
    use std::io::Write as _;
    use std::time::Duration;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let silent = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            peer.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").unwrap();
        peer
    });
    let client = Client::builder(url).build().unwrap();
    let mut pulled = client.pull("local", "/x").await.unwrap();
    assert_eq!(pulled.next().await.unwrap().unwrap(), "half");
    let _peer = silent.join().unwrap();
    // From here on nothing happens but time.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let error = pulled.next().await.unwrap_err();
    assert!(error.to_string().contains("60000 ms"), "{error}");
    assert_eq!(begun.elapsed().as_secs(), Duration::from_secs(60).as_secs());
}
