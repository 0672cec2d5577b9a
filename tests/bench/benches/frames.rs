//! The frame codec beside a bare walk over the headers, tokio-util's length-delimited codec, and
//! a plain copy.

use std::hint::black_box;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use criterion::{BenchmarkId, Criterion, Throughput};
use tokio_util::codec::{Decoder as _, LengthDelimitedCodec};
use triwire::exec::frame::{Decoder, Direction, HEADER_SIZE, Kind, head};
use triwire::exec::session::OutputWriter;
use triwire_bench::{Goal, Line, table};

/// Bytes of every stream measured.
const STREAM: usize = 4 << 20;

fn stream(payload: usize) -> Vec<u8> {
    let mut stream = Vec::with_capacity(STREAM + payload + HEADER_SIZE);
    while stream.len() < STREAM {
        stream.extend(head(Kind::Stdout, payload).unwrap());
        stream.resize(stream.len() + payload, b'x');
    }
    stream
}

/// All of ours: every piece of the stream, cut into chunks as a socket would.
fn decode(stream: &[u8], chunk: usize) -> usize {
    let mut decoder = Decoder::new(Direction::GuestToHost);
    let mut pieces = 0;
    for mut input in stream.chunks(chunk) {
        while let Some(piece) = decoder.feed(&mut input).unwrap() {
            black_box(piece.payload);
            pieces += 1;
        }
    }
    decoder.finish().unwrap();
    pieces
}

/// The least that anyone must do with the same chunks: find each header, hand the payload on in
/// slices of the chunk, and carry over a cut no more than the bytes still to skip and the bytes of
/// a header that is not whole. It checks nothing and tells no kinds apart.
fn walk(stream: &[u8], chunk: usize) -> usize {
    let mut skip = 0;
    let mut partial = [0; HEADER_SIZE];
    let mut have = 0;
    let mut pieces = 0;
    for mut input in stream.chunks(chunk) {
        while !input.is_empty() {
            if skip > 0 {
                let (payload, rest) = input.split_at(skip.min(input.len()));
                black_box(payload);
                pieces += 1;
                skip -= payload.len();
                input = rest;
            } else if have == 0
                && let Some((header, rest)) = input.split_first_chunk::<HEADER_SIZE>()
            {
                skip = declared(header);
                input = rest;
            } else {
                let (bytes, rest) = input.split_at((HEADER_SIZE - have).min(input.len()));
                partial[have..][..bytes.len()].copy_from_slice(bytes);
                have += bytes.len();
                input = rest;
                if have == HEADER_SIZE {
                    skip = declared(&partial);
                    have = 0;
                }
            }
        }
    }
    pieces
}

fn declared(header: &[u8; HEADER_SIZE]) -> usize {
    u32::from_be_bytes([header[4], header[5], header[6], header[7]]) as usize
}

/// tokio-util's codec set to the same header, over the buffer that its framing fills.
fn peer(stream: &[u8], chunk: usize) -> usize {
    let mut codec = LengthDelimitedCodec::builder()
        .length_field_offset(4)
        .length_field_length(4)
        .length_adjustment(HEADER_SIZE as isize)
        .num_skip(0)
        .max_frame_length(65_544)
        .new_codec();
    let mut buffer = BytesMut::with_capacity(256 << 10);
    let mut frames = 0;
    for input in stream.chunks(chunk) {
        buffer.put_slice(input);
        while let Some(frame) = codec.decode(&mut buffer).unwrap() {
            black_box(frame);
            frames += 1;
        }
    }
    frames
}

fn decoding(c: &mut Criterion) {
    for (size, payload) in [("16 B", 16), ("1 KiB", 1 << 10), ("64 KiB", 64 << 10)] {
        let stream = stream(payload);
        for (cut, chunk) in [("64 KiB", 64 << 10), ("1460 B", 1460), ("1 B", 1)] {
            let mut group = c.benchmark_group(format!("decode {size} in {cut}"));
            group.throughput(Throughput::Bytes(stream.len() as u64));
            group.bench_function("ours", |b| b.iter(|| decode(black_box(&stream), chunk)));
            group.bench_function("peer", |b| b.iter(|| peer(black_box(&stream), chunk)));
            if cut == "64 KiB" {
                group.bench_function("walk", |b| b.iter(|| walk(black_box(&stream), chunk)));
            }
            group.finish();
        }
    }
    // Twice the bytes in single-byte chunks must take twice the time.
    let small = stream(1 << 10);
    let mut group = c.benchmark_group("linear in 1 B");
    group.bench_function(BenchmarkId::from_parameter("half"), |b| {
        b.iter(|| decode(black_box(&small[..STREAM / 2 / 1032 * 1032]), 1));
    });
    group.bench_function(BenchmarkId::from_parameter("whole"), |b| {
        b.iter(|| decode(black_box(&small[..STREAM / 1032 * 1032]), 1));
    });
    group.finish();
}

fn encoding(c: &mut Criterion) {
    let payload = vec![b'x'; 64 << 10];
    let mut out = vec![0; 128 << 10];
    let mut group = c.benchmark_group("encode");
    group.bench_function("header apart", |b| {
        b.iter(|| black_box(head(black_box(Kind::Stdout), black_box(payload.len()))));
    });
    group.bench_function("payload copied", |b| {
        let mut writer = OutputWriter::new();
        b.iter(|| {
            let written = writer.stdout(black_box(&payload)).unwrap().write(&mut out).unwrap();
            black_box(written);
        });
    });
    group.bench_function("memcpy", |b| {
        b.iter(|| {
            out[HEADER_SIZE..][..payload.len()].copy_from_slice(black_box(&payload));
            black_box(&out);
        });
    });
    group.finish();
}

const LINES: [Line; 14] = [
    Line {
        what: "decode 16 B frames, 64 KiB chunks, beside a walk over the headers",
        ours: "decode 16 B in 64 KiB/ours",
        peer: "decode 16 B in 64 KiB/walk",
        goal: Goal::AtMost(1.15),
    },
    Line {
        what: "decode 1 KiB frames, 64 KiB chunks, beside a walk",
        ours: "decode 1 KiB in 64 KiB/ours",
        peer: "decode 1 KiB in 64 KiB/walk",
        goal: Goal::AtMost(1.15),
    },
    Line {
        what: "decode 64 KiB frames, 64 KiB chunks, beside a walk",
        ours: "decode 64 KiB in 64 KiB/ours",
        peer: "decode 64 KiB in 64 KiB/walk",
        goal: Goal::AtMost(1.15),
    },
    Line {
        what: "decode 16 B frames, 64 KiB chunks",
        ours: "decode 16 B in 64 KiB/ours",
        peer: "decode 16 B in 64 KiB/peer",
        goal: Goal::Faster(10.0),
    },
    Line {
        what: "decode 1 KiB frames, 64 KiB chunks",
        ours: "decode 1 KiB in 64 KiB/ours",
        peer: "decode 1 KiB in 64 KiB/peer",
        goal: Goal::Faster(10.0),
    },
    Line {
        what: "decode 64 KiB frames, 64 KiB chunks",
        ours: "decode 64 KiB in 64 KiB/ours",
        peer: "decode 64 KiB in 64 KiB/peer",
        goal: Goal::Faster(300.0),
    },
    Line {
        what: "decode 16 B frames, 1460 B chunks",
        ours: "decode 16 B in 1460 B/ours",
        peer: "decode 16 B in 1460 B/peer",
        goal: Goal::Faster(10.0),
    },
    Line {
        what: "decode 1 KiB frames, 1460 B chunks",
        ours: "decode 1 KiB in 1460 B/ours",
        peer: "decode 1 KiB in 1460 B/peer",
        goal: Goal::Faster(10.0),
    },
    Line {
        what: "decode 64 KiB frames, 1460 B chunks",
        ours: "decode 64 KiB in 1460 B/ours",
        peer: "decode 64 KiB in 1460 B/peer",
        goal: Goal::Faster(10.0),
    },
    Line {
        what: "decode 16 B frames, single bytes",
        ours: "decode 16 B in 1 B/ours",
        peer: "decode 16 B in 1 B/peer",
        goal: Goal::Faster(2.8),
    },
    Line {
        what: "decode 1 KiB frames, single bytes",
        ours: "decode 1 KiB in 1 B/ours",
        peer: "decode 1 KiB in 1 B/peer",
        goal: Goal::Faster(2.8),
    },
    Line {
        what: "decode 64 KiB frames, single bytes",
        ours: "decode 64 KiB in 1 B/ours",
        peer: "decode 64 KiB in 1 B/peer",
        goal: Goal::Faster(2.8),
    },
    Line {
        what: "twice the single bytes, beside once",
        ours: "linear in 1 B/whole",
        peer: "linear in 1 B/half",
        goal: Goal::AtMost(2.1),
    },
    Line {
        what: "encode with the payload copied, beside memcpy",
        ours: "encode/payload copied",
        peer: "encode/memcpy",
        goal: Goal::AtMost(1.05),
    },
];

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30)
        .configure_from_args();
    decoding(&mut criterion);
    encoding(&mut criterion);
    criterion.final_summary();
    match table(&LINES) {
        Ok(table) => println!("\n{table}"),
        Err(error) => eprintln!("no table: {error}"),
    }
}
