//! Verifying signed requests beside the bare SHA-256 of the same bytes, the RustCrypto crates as
//! they are commonly called, and ring; and claims in the replay window beside std's HashMap.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use base64ct::{Base64UrlUnpadded, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use sha2::block_api::compress256;
use sha2::{Digest, Sha256};
use triwire::signed::{
    self, Claimed, Entry, Genuine, Key, KeyId, Nonce, Presented, ReplayWindow, Target, Window,
};
use triwire::time::UnixMillis;
use triwire_bench::{Goal, HEADINGS, row};

const SECRET: &[u8] = b"a shared secret of at least 32 bytes";
const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);
const NONCE: &str = "AAECAwQFBgcICQoLDA0ODw";
const HOST: &str = "shop.example";
const PATH: &str = "/assistant/tools";

fn target() -> Target<'static> {
    Target::new("POST", HOST, PATH).unwrap()
}

fn header(body: &[u8]) -> String {
    let (id, nonce) = (KeyId::parse("shop.1").unwrap(), Nonce::parse(NONCE).unwrap());
    let mut out = [0; signed::MAX_HEADER_LENGTH];
    let key = Key::new(SECRET).unwrap();
    signed::sign(NOW, id, &key, target(), nonce, body, &mut out).unwrap().to_owned()
}

/// All of ours, from the header's bytes to the genuine request.
fn verify(header: &[u8], key: &Key, body: &[u8]) -> Genuine {
    let presented = Presented::parse([header]).unwrap();
    let timely = presented.check(NOW, Window::default()).unwrap();
    assert!(timely.key_id().as_str() == "shop.1");
    let mut verification = timely.with(black_box(target()), key);
    verification.feed(body);
    verification.finish(NOW).unwrap()
}

/// The compressions that nobody can do without: the body's hash, the lines behind the secret's
/// block, and the outer pass behind its own.
fn compressions(body: &[u8]) -> usize {
    let padded = |len: usize| (len + 9).div_ceil(64);
    let lines = ["assistant-signature-v1", "shop.1", "1800000000", NONCE, "POST", HOST, PATH];
    let lines: usize = lines.iter().map(|line| line.len() + 1).sum();
    padded(body.len()) + padded(64 + lines + 64) - 1 + 1
}

/// What the header says, as most would take it apart.
fn fields(header: &str) -> (&str, &str, &str, &str) {
    let mut fields = header.strip_prefix("v1 ").unwrap().split(',');
    let mut field = |name| fields.next().unwrap().strip_prefix(name).unwrap();
    (field("k="), field("t="), field("n="), field("s="))
}

fn lines(header: &str, hash: &str) -> (String, Vec<u8>) {
    let (k, t, n, s) = fields(header);
    let seconds: u64 = t.parse().unwrap();
    assert!(NOW.get().abs_diff(seconds * 1_000) <= 300_000);
    let method = black_box("POST").to_uppercase();
    let lines = format!("assistant-signature-v1\n{k}\n{t}\n{n}\n{method}\n{HOST}\n{PATH}\n{hash}");
    (lines, Base64UrlUnpadded::decode_vec(s).unwrap())
}

fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The RustCrypto crates, as their documentation has them called.
fn rustcrypto(header: &str, body: &[u8]) {
    let hash = hex(&Sha256::digest(body));
    let (lines, signature) = lines(header, &hash);
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET).unwrap();
    mac.update(lines.as_bytes());
    mac.verify_slice(&signature).unwrap();
}

/// ring with a kept key.
fn with_ring(header: &str, key: &ring::hmac::Key, body: &[u8]) {
    let hash = ring::digest::digest(&ring::digest::SHA256, body);
    let (lines, signature) = lines(header, &hex(hash.as_ref()));
    ring::hmac::verify(key, lines.as_bytes(), &signature).unwrap();
}

/// Lets each of `work` take its turn, many times in short batches, and returns their median times
/// in ns: what else the machine does meanwhile falls on all of them alike.
fn turns<const N: usize>(batch: u32, mut work: [&mut dyn FnMut(); N]) -> [f64; N] {
    const ROUNDS: usize = 1_001;
    let mut times = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (work, times) in work.iter_mut().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..batch {
                work();
            }
            times.push(start.elapsed().as_nanos() as f64 / f64::from(batch));
        }
    }
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    })
}

fn verifying() {
    let key = Key::new(SECRET).unwrap();
    let ring_key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET);
    for (size, len, batch) in
        [("200 B", 200, 20), ("4 KiB", 4 << 10, 4), ("16 KiB", 16 << 10, 1), ("1 MiB", 1 << 20, 1)]
    {
        let body = vec![b'x'; len];
        let header = header(&body);
        let blocks = vec![[b'x'; 64]; compressions(&body)];
        let [ours, needed, hash, rustcrypto, ring] = turns(
            batch,
            [
                &mut || {
                    let _ = black_box(verify(
                        black_box(header.as_bytes()),
                        black_box(&key),
                        black_box(&body),
                    ));
                },
                &mut || {
                    let mut state = black_box([7; 8]);
                    compress256(&mut state, black_box(&blocks));
                    black_box(state);
                },
                &mut || {
                    black_box(Sha256::digest(black_box(&body)));
                },
                &mut || rustcrypto(black_box(&header), black_box(&body)),
                &mut || with_ring(black_box(&header), black_box(&ring_key), black_box(&body)),
            ],
        );
        let (small, large) = (len == 200, len >= 16 << 10);
        let most = |goal: bool, most: f64| goal.then_some(Goal::AtMost(most));
        print(size, "the compressions it needs", ours, needed, most(small, 1.8));
        print(size, "the bare hash of the body", ours, hash, most(large, 1.05));
        print(size, "RustCrypto as commonly called", ours, rustcrypto, most(true, 1.0));
        print(size, "ring, key kept", ours, ring, small.then_some(Goal::Faster(1.2)));
    }
}

fn print(size: &str, peer: &str, ours: f64, theirs: f64, goal: Option<Goal>) {
    let what = format!("verify, {size}, key kept, beside {peer}");
    let ratio = format!("{:.2} x the time", ours / theirs);
    let (goal, held) = match goal {
        None => (String::new(), None),
        Some(Goal::AtMost(most)) => (format!("at most {most} x"), Some(ours / theirs <= most)),
        Some(Goal::Faster(least)) => (format!("{least} x faster"), Some(theirs / ours >= least)),
    };
    let (ours, theirs) = (format!("{ours:.0} ns"), format!("{theirs:.0} ns"));
    println!("{}", row(&what, &ours, &theirs, &ratio, &goal, held));
}

/// Genuine requests of their own nonces.
fn requests(count: usize) -> Vec<Genuine> {
    let key = Key::new(SECRET).unwrap();
    let id = KeyId::parse("shop.1").unwrap();
    (0..count)
        .map(|n| {
            let (nonce, mut out) = (format!("nonce-{n}"), [0; signed::MAX_HEADER_LENGTH]);
            let nonce = Nonce::parse(&nonce).unwrap();
            let header = signed::sign(NOW, id, &key, target(), nonce, b"", &mut out).unwrap();
            verify(header.as_bytes(), &key, b"")
        })
        .collect()
}

/// Each claim is of a nonce that is live: found, among as many as there are, without a change.
fn claiming() {
    const LIVE: usize = 100_000;
    let genuine = requests(LIVE);
    for (full, entries) in
        [("2/3 full", LIVE * 3 / 2), ("90 % full", LIVE * 10 / 9), ("full", LIVE)]
    {
        let mut window = ReplayWindow::new(vec![Entry::EMPTY; entries]);
        let mut map: HashMap<[u8; 12], u64> = HashMap::new();
        for request in &genuine {
            assert_eq!(window.claim(NOW, request.claim()), Ok(Claimed::Fresh));
            map.insert(request.claim().digest(), request.expires_at().get());
        }
        let (mut one, mut other) = (genuine.iter().cycle(), genuine.iter().cycle());
        let [ours, theirs] = turns(
            20,
            [
                &mut || {
                    let _ = black_box(window.claim(NOW, one.next().unwrap().claim()));
                },
                &mut || {
                    black_box(map.get(&other.next().unwrap().claim().digest()));
                },
            ],
        );
        let what =
            format!("claim among 100 000 live, {full}, beside std's HashMap with the same hash");
        let ratio = format!("{:.2} x the time", ours / theirs);
        let (ours, theirs) = (format!("{ours:.0} ns"), format!("{theirs:.0} ns"));
        println!("{}", row(&what, &ours, &theirs, &ratio, "", None));
    }
}

fn main() {
    println!("{HEADINGS}");
    verifying();
    claiming();
}
