//! Verifying signed requests beside the bare SHA-256 of the same bytes, the RustCrypto crates as
//! they are commonly called, and ring; and claims in the replay window beside std's HashMap.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use base64ct::{Base64UrlUnpadded, Encoding};
use criterion::{BatchSize, Criterion, Throughput};
use hmac::{Hmac, KeyInit, Mac};
use sha2::block_api::compress256;
use sha2::{Digest, Sha256};
use triwire::signed::{
    self, Claimed, Entry, Genuine, Key, KeyId, Nonce, Presented, ReplayWindow, Target, Window,
};
use triwire::time::UnixMillis;
use triwire_bench::{Goal, Line, table};

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

fn verifying(c: &mut Criterion) {
    let key = Key::new(SECRET).unwrap();
    let ring_key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET);
    for (size, len) in
        [("200 B", 200), ("4 KiB", 4 << 10), ("16 KiB", 16 << 10), ("1 MiB", 1 << 20)]
    {
        let body = vec![b'x'; len];
        let header = header(&body);
        let mut group = c.benchmark_group(format!("verify {size}"));
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function("ours", |b| {
            b.iter(|| verify(black_box(header.as_bytes()), black_box(&key), black_box(&body)));
        });
        group.bench_function("compressions", |b| {
            let blocks = vec![[b'x'; 64]; compressions(&body)];
            b.iter(|| {
                let mut state = black_box([7; 8]);
                compress256(&mut state, black_box(&blocks));
                state
            });
        });
        group.bench_function("hash", |b| b.iter(|| Sha256::digest(black_box(&body))));
        group.bench_function("rustcrypto", |b| {
            b.iter(|| rustcrypto(black_box(&header), black_box(&body)));
        });
        group.bench_function("ring", |b| {
            b.iter(|| with_ring(black_box(&header), black_box(&ring_key), black_box(&body)));
        });
        group.finish();
    }
    c.bench_function("sign 200 B/ours", |b| {
        let body = [b'x'; 200];
        let (id, nonce) = (KeyId::parse("shop.1").unwrap(), Nonce::parse(NONCE).unwrap());
        let mut out = [0; signed::MAX_HEADER_LENGTH];
        b.iter(|| {
            signed::sign(NOW, id, black_box(&key), target(), nonce, black_box(&body), &mut out)
                .unwrap()
                .len()
        });
    });
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

fn claiming(c: &mut Criterion) {
    const LIVE: usize = 100_000;
    let genuine = requests(LIVE + 10_000);
    let (live, next) = genuine.split_at(LIVE);
    let mut group = c.benchmark_group("claim among 100k");
    for (name, entries) in [("ours at 2/3", LIVE * 3 / 2), ("ours at 90 %", LIVE * 10 / 9 + 10_000)]
    {
        let mut window = ReplayWindow::new(vec![Entry::EMPTY; entries]);
        for request in live {
            assert_eq!(window.claim(NOW, request.claim()), Ok(Claimed::Fresh));
        }
        group.bench_function(name, |b| {
            b.iter_batched(
                || window.clone(),
                |mut window| {
                    for request in next {
                        let _ = black_box(window.claim(NOW, request.claim()));
                    }
                    window
                },
                BatchSize::LargeInput,
            );
        });
    }
    let mut map: HashMap<[u8; 12], u64> = HashMap::new();
    for request in live {
        map.insert(request.claim().digest(), request.expires_at().get());
    }
    group.bench_function("map", |b| {
        b.iter_batched(
            || map.clone(),
            |mut map| {
                for request in next {
                    let claim = request.claim();
                    black_box(map.insert(claim.digest(), claim.expires_at().get()));
                }
                map
            },
            BatchSize::LargeInput,
        );
    });
    group.bench_function("digest alone", |b| {
        b.iter(|| {
            for request in next {
                black_box(request.claim().digest());
            }
        });
    });
    group.finish();
}

const LINES: [Line; 9] = [
    Line {
        what: "verify, 200 B, key kept, beside the compressions it needs",
        ours: "verify 200 B/ours",
        peer: "verify 200 B/compressions",
        goal: Goal::AtMost(1.8),
    },
    Line {
        what: "verify, 200 B, beside RustCrypto as commonly called",
        ours: "verify 200 B/ours",
        peer: "verify 200 B/rustcrypto",
        goal: Goal::AtMost(1.0),
    },
    Line {
        what: "verify, 200 B, beside ring with a kept key",
        ours: "verify 200 B/ours",
        peer: "verify 200 B/ring",
        goal: Goal::Faster(1.2),
    },
    Line {
        what: "verify, 4 KiB, beside RustCrypto as commonly called",
        ours: "verify 4 KiB/ours",
        peer: "verify 4 KiB/rustcrypto",
        goal: Goal::AtMost(1.0),
    },
    Line {
        what: "verify, 16 KiB, beside the bare hash of the body",
        ours: "verify 16 KiB/ours",
        peer: "verify 16 KiB/hash",
        goal: Goal::AtMost(1.05),
    },
    Line {
        what: "verify, 1 MiB, beside the bare hash of the body",
        ours: "verify 1 MiB/ours",
        peer: "verify 1 MiB/hash",
        goal: Goal::AtMost(1.05),
    },
    Line {
        what: "verify, 16 KiB, beside ring with a kept key",
        ours: "verify 16 KiB/ours",
        peer: "verify 16 KiB/ring",
        goal: Goal::AtMost(1.0),
    },
    Line {
        what: "10 000 claims among 100 000 live, 2/3 full, beside std's HashMap alone",
        ours: "claim among 100k/ours at 2_3",
        peer: "claim among 100k/map",
        goal: Goal::AtMost(1.0),
    },
    Line {
        what: "10 000 claims among 100 000 live, from 83 to 91 % full, beside the same",
        ours: "claim among 100k/ours at 90 %",
        peer: "claim among 100k/map",
        goal: Goal::AtMost(1.0),
    },
];

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30)
        .configure_from_args();
    verifying(&mut criterion);
    claiming(&mut criterion);
    criterion.final_summary();
    match table(&LINES) {
        Ok(table) => println!("\n{table}"),
        Err(error) => eprintln!("no table: {error}"),
    }
}
