//! Archives, good and hostile, in every two parts.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use proptest::prelude::*;
use triwire::tar::{
    BLOCK_SIZE, Event, Kind, MAX_METADATA_ENTRIES, MAX_METADATA_SIZE, NameFault, Reader, TarError,
    TarFault, components, link_reach,
};

/// What an archive holds, as it is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Entry { name: String, link: String, kind: Kind, mode: u32, content: Vec<u8> },
    End,
}

/// One header under construction.
#[derive(Clone)]
struct Block([u8; BLOCK_SIZE]);

impl Block {
    fn new(name: &str, type_byte: u8, size: u64) -> Self {
        let mut block = Self([0; BLOCK_SIZE]);
        block.put(0, name.as_bytes());
        block.put(100, b"0000644\0");
        block.put(124, format!("{size:011o}\0").as_bytes());
        block.0[156] = type_byte;
        block.put(257, b"ustar\x0000");
        block
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.put(at, bytes);
        self
    }

    fn link(self, target: &str) -> Self {
        self.with(157, target.as_bytes())
    }

    /// The block with its sum.
    fn sum(mut self) -> Vec<u8> {
        self.put(148, b"        ");
        let sum: u32 = self.0.iter().map(|byte| u32::from(*byte)).sum();
        self.put(148, format!("{sum:06o}\0 ").as_bytes());
        self.0.to_vec()
    }

    fn content(self, bytes: &[u8]) -> Vec<u8> {
        let mut whole = self.sum();
        whole.extend(bytes);
        whole.resize(whole.len().next_multiple_of(BLOCK_SIZE), 0);
        whole
    }
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    Block::new(name, b'0', content.len() as u64).content(content)
}

fn pax(type_byte: u8, records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::new();
    for (name, value) in records {
        let rest = name.len() + value.len() + 3;
        let mut len = rest + 1;
        while len != rest + len.to_string().len() {
            len += 1;
        }
        text += &format!("{len} {name}={value}\n");
    }
    Block::new("pax", type_byte, text.len() as u64).content(text.as_bytes())
}

fn gnu(type_byte: u8, name: &str) -> Vec<u8> {
    let name = format!("{name}\0");
    Block::new("././@LongLink", type_byte, name.len() as u64).content(name.as_bytes())
}

fn end() -> Vec<u8> {
    vec![0; 2 * BLOCK_SIZE]
}

fn read_in(pieces: &[&[u8]]) -> (Vec<Seen>, Result<(), TarError>) {
    let mut reader = Reader::new([0; 512]);
    let mut seen = Vec::new();
    for piece in pieces {
        let mut input = *piece;
        loop {
            match reader.feed(&mut input) {
                Ok(Some(Event::Entry(entry))) => seen.push(Seen::Entry {
                    name: String::from_utf8_lossy(reader.name()).into_owned(),
                    link: String::from_utf8_lossy(reader.link()).into_owned(),
                    kind: entry.kind,
                    mode: entry.mode,
                    content: Vec::new(),
                }),
                Ok(Some(Event::Data(bytes))) => match seen.last_mut() {
                    Some(Seen::Entry { content, .. }) => content.extend(bytes),
                    other => panic!("data behind {other:?}"),
                },
                Ok(Some(Event::End)) => seen.push(Seen::End),
                Ok(None) => {
                    assert!(input.is_empty(), "it asked for more with bytes left");
                    break;
                }
                Err(error) => {
                    assert_eq!(reader.feed(&mut input), Err(error), "an error stays");
                    assert_eq!(reader.finish(), Err(error));
                    return (seen, Err(error));
                }
            }
        }
    }
    (seen, reader.finish())
}

/// Reads whole, then in every two parts and in single bytes: all the same.
fn read(archive: &[u8]) -> (Vec<Seen>, Result<(), TarError>) {
    // rule: FILE-1
    let whole = read_in(&[archive]);
    for at in (0..archive.len()).step_by(7) {
        let (first, second) = archive.split_at(at);
        assert_eq!(read_in(&[first, second]), whole, "cut at {at}");
    }
    let single: Vec<_> = archive.chunks(1).collect();
    assert_eq!(read_in(&single), whole);
    whole
}

fn accepted(archive: &[u8]) -> Vec<Seen> {
    let (seen, ended) = read(archive);
    assert_eq!(ended, Ok(()), "{seen:?}");
    seen
}

fn refused(archive: &[u8]) -> TarFault {
    read(archive).1.unwrap_err().fault
}

fn entry(name: &str, kind: Kind, content: &[u8]) -> Seen {
    let (name, content) = (name.to_owned(), content.to_vec());
    Seen::Entry { name, link: String::new(), kind, mode: 0o644, content }
}

#[test]
fn files_directories_and_links_are_read() {
    let directory = Block::new("d/", b'5', 0).with(100, b"0000755\0").sum();
    let link = Block::new("d/l", b'2', 0).link("../a").sum();
    let hard = Block::new("h", b'1', 0).link("a").sum();
    let archive =
        [file("a", b"hello"), directory, link, hard, file("empty", b""), end(), vec![1; 700]];
    let seen = accepted(&archive.concat());
    assert_eq!(seen.len(), 6);
    assert_eq!(seen[0], entry("a", Kind::File, b"hello"));
    assert!(
        matches!(&seen[1], Seen::Entry { name, kind: Kind::Directory, mode: 0o755, .. } if name == "d/")
    );
    assert!(matches!(&seen[2], Seen::Entry { link, kind: Kind::Symlink, .. } if link == "../a"));
    assert!(matches!(&seen[3], Seen::Entry { link, kind: Kind::HardLink, .. } if link == "a"));
    assert_eq!(seen[5], Seen::End);
}

#[test]
fn names_come_from_every_format() {
    let long = format!("{}/{}", "d".repeat(100), "f".repeat(90));
    let target = "t".repeat(150);
    let mut prefixed = Block::new(&"f".repeat(90), b'0', 0);
    prefixed.put(345, "d".repeat(100).as_bytes());
    // In GNU's own format times stand where the prefix would.
    let times = Block::new("g", b'0', 0).with(257, b"ustar  \0").with(345, b"14000000000");
    let oldest = Block::new("old/", 0, 0).with(257, &[0; 8]);
    let archives = [
        (prefixed.sum(), &*long),
        ([gnu(b'L', &long), file("cut", b"")].concat(), &*long),
        ([pax(b'x', &[("path", &long)]), file("cut", b"")].concat(), &*long),
        (times.sum(), "g"),
        (oldest.sum(), "old/"),
        (Block::new("c", b'7', 0).sum(), "c"),
    ];
    for (archive, name) in archives {
        let seen = accepted(&archive);
        assert!(matches!(&seen[..], [Seen::Entry { name: read, .. }] if read == name), "{seen:?}");
    }
    for metadata in [gnu(b'K', &target), pax(b'x', &[("linkpath", &target)])] {
        let archive = [metadata, Block::new("l", b'2', 0).link("cut").sum()].concat();
        let seen = accepted(&archive);
        assert!(matches!(&seen[..], [Seen::Entry { link, .. }] if *link == target), "{seen:?}");
    }
}

#[test]
fn records_are_cut_by_their_lengths() {
    // rule: FILE-3
    let records = [("comment", "a\n9 path=b\nc=d"), ("path", "x y=z\nw"), ("mtime", "1.5")];
    let seen = accepted(&[pax(b'x', &records), file("cut", b"1")].concat());
    assert_eq!(seen, [entry("x y=z\nw", Kind::File, b"1")]);
    for broken in [
        "0 path=a\n",
        "6 a=\n",
        "99 path=a\n",
        "x path=a\n",
        "9 path=a ",
        "8 path=a\n",
        "99999999999 a=b\n",
        "5 abc\n",
        "11path=abc\n",
        "9 path",
    ] {
        let metadata = Block::new("p", b'x', broken.len() as u64).content(broken.as_bytes());
        let fault = refused(&[metadata, file("a", b"")].concat());
        assert_eq!(fault, TarFault::Records, "{broken:?}");
    }
    // The last one of a name counts, and an empty one takes it back.
    let twice = [("path", "first"), ("path", "second")];
    let seen = accepted(&[pax(b'x', &twice), file("cut", b"")].concat());
    assert_eq!(seen, [entry("second", Kind::File, b"")]);
    let seen =
        accepted(&[pax(b'x', &[("path", "first"), ("path", "")]), file("own", b"")].concat());
    assert_eq!(seen, [entry("own", Kind::File, b"")]);
}

#[test]
fn the_size_of_records_decides_what_is_read_and_what_is_skipped() {
    // rule: FILE-4
    let inner = file("inner", b"never seen");
    let size = inner.len().to_string();
    let outer = [Block::new("outer", b'0', 0).sum(), inner.clone()].concat();
    let archive = [pax(b'x', &[("size", &size)]), outer, file("next", b"seen"), end()].concat();
    let seen = accepted(&archive);
    assert_eq!(
        seen,
        [entry("outer", Kind::File, &inner), entry("next", Kind::File, b"seen"), Seen::End]
    );
    for wrong in ["-1", "1e3", "", "9223372036854775808", "99999999999999999999"] {
        let archive = [pax(b'x', &[("size", wrong)]), file("a", b"")].concat();
        match wrong {
            "" => assert_eq!(accepted(&archive).len(), 1),
            _ => assert_eq!(refused(&archive), TarFault::Number, "{wrong}"),
        }
    }
    // A global one holds for what follows, until an entry has its own.
    let global = [
        pax(b'g', &[("comment", "by git"), ("size", "3")]),
        Block::new("a", b'0', 0).content(b"abc"),
        pax(b'x', &[("size", "1")]),
        Block::new("b", b'0', 0).content(b"d"),
    ];
    let seen = accepted(&global.concat());
    assert_eq!(seen, [entry("a", Kind::File, b"abc"), entry("b", Kind::File, b"d")]);
}

#[test]
fn what_two_tools_would_read_differently_is_refused() {
    // rule: FILE-5
    let a = || file("a", b"");
    let x = || pax(b'x', &[("path", "p")]);
    for archive in [
        [x(), x(), a()].concat(),
        [gnu(b'L', "l"), gnu(b'L', "m"), a()].concat(),
        [x(), gnu(b'L', "l"), a()].concat(),
        [gnu(b'K', "l"), x(), a()].concat(),
        [gnu(b'L', ""), a()].concat(),
    ] {
        assert_eq!(refused(&archive), TarFault::Records);
    }
    assert_eq!(refused(&[pax(b'g', &[("path", "p")]), a()].concat()), TarFault::GlobalName);
    assert_eq!(refused(&Block::new("a/", b'0', 0).sum()), TarFault::FileAsDirectory);
    let directory = Block::new("d", b'5', 512).content(&[1; 512]);
    assert_eq!(refused(&directory), TarFault::Content { size: 512 });
    // The size of a hard link is that of the file that it names.
    let hard = Block::new("h", b'1', 512).link("a").sum();
    assert_eq!(accepted(&[a(), hard].concat()).len(), 2);
}

#[test]
fn names_that_lead_outside_are_refused() {
    // rule: FILE-6
    for (name, fault) in [
        ("/etc/x", NameFault::Absolute),
        ("//x", NameFault::Absolute),
        ("../x", NameFault::Outside),
        ("..", NameFault::Outside),
        ("a/../../x", NameFault::Outside),
        ("a/../b", NameFault::Outside),
        ("a/..", NameFault::Outside),
        ("", NameFault::Empty),
    ] {
        assert_eq!(refused(&file(name, b"")), TarFault::Name(fault), "{name}");
        assert_eq!(components(name.as_bytes()).unwrap_err(), fault);
    }
    let split = Block::new("x", b'0', 0).with(345, b"../a");
    assert_eq!(refused(&split.sum()), TarFault::Name(NameFault::Outside));
    let nul = [pax(b'x', &[("path", "a\0/../../b")]), file("a", b"")].concat();
    assert_eq!(refused(&nul), TarFault::Name(NameFault::Nul));
    for name in [".", "./", "./a//b", "..a", "a..", "..\\x", "C:\\x", "..."] {
        assert_eq!(accepted(&Block::new(name, b'5', 0).sum()).len(), 1, "{name}");
    }
    let parts: Vec<_> = components(b"./a//b/.").unwrap().collect();
    assert_eq!(parts, [b"a", b"b"]);
    assert_eq!(components(b".").unwrap().count(), 0);
}

#[test]
fn links_that_lead_outside_are_refused() {
    // rule: FILE-7
    for (link, target, is_inside) in [
        ("p", "..", false),
        ("s", "/tmp/x", false),
        ("lib/a", "../other/b", true),
        ("lib/a", "../../other/b", false),
        ("lib/a", "x/../../../b", false),
        ("lib/./a", "../b", true),
        ("a/b/c", "../../x", true),
        ("a", ".", true),
        ("a", "b/../c", true),
        ("a", "b/../../c", false),
    ] {
        let archive = Block::new(link, b'2', 0).link(target).sum();
        let is_accepted = read(&archive).1.is_ok();
        assert_eq!(is_accepted, is_inside, "{link} -> {target}");
        assert_eq!(link_reach(link.as_bytes(), target.as_bytes()).is_ok(), is_inside);
    }
    let hard = |target| Block::new("a", b'1', 0).link(target).sum();
    for target in ["../victim", "/etc/passwd", "d/../x", ""] {
        assert!(matches!(refused(&hard(target)), TarFault::Target(_)), "{target}");
    }
}

#[test]
fn kinds_that_are_not_taken_are_refused_by_name() {
    // rule: FILE-8
    for found in *b"346DMNVXAZ" {
        assert_eq!(refused(&Block::new("a", found, 0).sum()), TarFault::Unsupported { found });
    }
    assert_eq!(refused(&Block::new("a", b'S', 0).sum()), TarFault::Sparse);
    let sparse = [pax(b'x', &[("GNU.sparse.major", "1")]), file("a", b"")].concat();
    assert_eq!(refused(&sparse), TarFault::Sparse);
    let mode = Block::new("a", b'0', 0).with(100, b"0006755\0");
    assert!(matches!(accepted(&mode.sum())[..], [Seen::Entry { mode: 0o755, .. }]));
    // The refused one is named.
    let mut reader = Reader::new([0; 64]);
    let archive = [file("good", b""), Block::new("dev/null", b'3', 0).sum()].concat();
    let mut input = &archive[..];
    assert!(matches!(reader.feed(&mut input), Ok(Some(Event::Entry(_)))));
    let error = reader.feed(&mut input).unwrap_err();
    assert_eq!((error.at, reader.name()), (512, &b"dev/null"[..]));
    assert!(error.to_string().starts_with("unsupported at byte 512: entries of type `3`"));
}

#[test]
fn numbers_are_octal_or_base_256_within_bounds() {
    let with_size = |field: &[u8]| Block::new("a", b'0', 0).with(124, field).sum();
    for field in [&b"zzzzzzzzzzz\0"[..], b"12345678\x009ab", &[0xff; 12], b"0000000000-\0"] {
        assert_eq!(refused(&with_size(field)), TarFault::Number, "{field:?}");
    }
    let near = [0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(refused(&with_size(&near)), TarFault::Number);
    let large = [0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let missing = i64::MAX as u64 + 1;
    assert_eq!(refused(&with_size(&large)), TarFault::Truncated { missing });
    let five = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    let archive = Block::new("a", b'0', 0).with(124, &five).content(b"hello");
    assert_eq!(accepted(&archive), [entry("a", Kind::File, b"hello")]);
    let spaced = Block::new("a", b'0', 0).with(124, b"         5 \0").content(b"hello");
    assert_eq!(accepted(&spaced), [entry("a", Kind::File, b"hello")]);
    let mut wrong = file("a", b"");
    wrong[0] ^= 1;
    assert_eq!(refused(&wrong), TarFault::Checksum);
    assert_eq!(refused(&[7; 600]), TarFault::Number);
}

#[test]
fn an_archive_ends_whole_or_is_truncated() {
    // rule: FILE-2
    assert_eq!(accepted(b""), []);
    assert_eq!(accepted(&[0; 512]), [Seen::End]);
    let two = [file("a", b"hello"), file("b", b"world")].concat();
    let whole = [&two[..], &end()].concat();
    for len in 0..whole.len() {
        let (_, ended) = read_in(&[&whole[..len]]);
        let is_boundary = matches!(len, 0 | 1024 | 2048) || len >= 2560;
        assert_eq!(ended.is_ok(), is_boundary, "{len} bytes: {ended:?}");
    }
    // Metadata announces an entry.
    for tail in [Vec::new(), end()] {
        let archive = [pax(b'x', &[("path", "a")]), tail].concat();
        assert!(matches!(refused(&archive), TarFault::Truncated { .. }));
    }
}

#[test]
fn limits_are_stated_before_anything_is_stored() {
    // rule: FILE-9
    let size = MAX_METADATA_SIZE + 1;
    assert_eq!(refused(&Block::new("p", b'x', size).sum()), TarFault::MetadataTooLarge { size });
    let long = Block::new("l", b'L', 2 << 30).sum();
    assert_eq!(refused(&long), TarFault::MetadataTooLarge { size: 2 << 30 });
    let name = gnu(b'L', &"n".repeat(257));
    assert_eq!(refused(&name), TarFault::NameTooLong { room: 256 });
    let fits = [gnu(b'L', &"n".repeat(256)), file("a", b"")].concat();
    assert_eq!(accepted(&fits).len(), 1);
    let path = pax(b'x', &[("path", &"n".repeat(257))]);
    assert_eq!(refused(&path), TarFault::NameTooLong { room: 256 });
    let many = vec![pax(b'g', &[("comment", "c")]); usize::from(MAX_METADATA_ENTRIES) + 1];
    assert_eq!(refused(&many.concat()), TarFault::TooMuchMetadata);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_disagree(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        at in any::<prop::sample::Index>(),
        changed in any::<u8>(),
    ) {
        let _ = read_in(&[&bytes]);
        // A good archive with one byte changed.
        let mut archive = [
            pax(b'x', &[("path", "a/b"), ("size", "5")]),
            Block::new("cut", b'0', 0).content(b"hello"),
            gnu(b'L', "c/d"),
            file("cut", b"x"),
            end(),
        ]
        .concat();
        let at = at.index(archive.len());
        archive[at] = changed;
        let whole = read_in(&[&archive]);
        let parts: Vec<_> = archive.chunks(13).collect();
        prop_assert_eq!(read_in(&parts), whole);
    }
}
