//! One task, an echoing peer, and less buffer than data: it completes, whatever the schedule.

use proptest::collection::vec;
use proptest::prelude::*;
use triwire::buffer::{Inbox, Outbox};
use triwire::exec::frame::HEADER_SIZE;
use triwire::exec::result::ExecResult;
use triwire::exec::session::{Input, InputReader, InputWriter, Output, OutputReader, OutputWriter};

const BUFFER: usize = 64 * 1024;
const TOTAL: usize = 1024 * 1024;

/// One end's buffers.
struct Link {
    inbox: Inbox<Vec<u8>>,
    outbox: Outbox<Vec<u8>>,
}

impl Link {
    fn new() -> Self {
        Self { inbox: Inbox::new(vec![0; BUFFER]), outbox: Outbox::new(vec![0; BUFFER]) }
    }
}

/// Moves up to `count` bytes, as a wire does that holds none itself.
fn carry(from: &mut Outbox<Vec<u8>>, to: &mut Inbox<Vec<u8>>, count: usize) {
    let space = to.space();
    let count = count.min(space.len()).min(from.unsent().len());
    space[..count].copy_from_slice(&from.unsent()[..count]);
    to.filled(count);
    from.sent(count);
}

struct Client {
    link: Link,
    stdin: Vec<u8>,
    sent: usize,
    writer: InputWriter,
    reader: OutputReader<[u8; 512]>,
    stdout: Vec<u8>,
}

impl Client {
    /// Gives the outbox up to `count` bytes of input, and its end behind the last.
    fn send(&mut self, count: usize) {
        let room = self.link.outbox.space();
        let rest = &self.stdin[self.sent..];
        let count = count.min(rest.len()).min(room.len().saturating_sub(HEADER_SIZE));
        let frames = self.writer.stdin(&rest[..count]);
        if let Ok(frames) = frames {
            let written = frames.write(room).map_or(0, <[u8]>::len);
            self.link.outbox.filled(written);
            self.sent += if written > 0 { count } else { 0 };
        }
        if self.sent == self.stdin.len()
            && !self.writer.is_ended()
            && self.link.outbox.room() >= HEADER_SIZE
        {
            self.link.outbox.push(&self.writer.close().unwrap()).unwrap();
        }
    }

    /// Takes up to `count` bytes of what came, however full the outbox is.
    fn receive(&mut self, count: usize) {
        let mut window = self.link.inbox.window();
        let (mut part, _) = window.rest.split_at(count.min(window.rest.len()));
        let whole = part.len();
        while let Some(event) = self.reader.feed(&mut part).unwrap() {
            match event {
                Output::Stdout(bytes) => self.stdout.extend_from_slice(bytes),
                Output::Stderr(_) => panic!("the peer writes no stderr"),
                Output::Exit(exit) => assert_eq!(exit.exit_code, 0),
            }
        }
        window.rest = &window.rest[whole - part.len()..];
    }
}

struct Peer {
    link: Link,
    reader: InputReader,
    writer: OutputWriter,
}

impl Peer {
    /// Echoes up to `count` bytes, never more than the outbox has room for.
    fn echo(&mut self, count: usize) {
        let mut window = self.link.inbox.window();
        loop {
            let room = self.link.outbox.space();
            let most = count.min(room.len().saturating_sub(HEADER_SIZE + 64));
            let (mut part, _) = window.rest.split_at(most.min(window.rest.len()));
            let whole = part.len();
            let event = self.reader.feed(&mut part).unwrap();
            window.rest = &window.rest[whole - part.len()..];
            let written = match event {
                None => break,
                Some(Input::Stdin(bytes)) => {
                    self.writer.stdout(bytes).unwrap().write(room).unwrap().len()
                }
                Some(Input::Close) => self.writer.exit(&ExecResult::default(), room).unwrap().len(),
            };
            self.link.outbox.filled(written);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Send(usize),
    Carry(usize),
    Echo(usize),
    CarryBack(usize),
    Receive(usize),
}

fn turn() -> impl Strategy<Value = Turn> {
    let count = prop_oneof![
        1 => 1_usize..20,
        4 => 1_usize..10_000,
        4 => Just(BUFFER),
        1 => Just(usize::MAX),
    ];
    (0..5, count).prop_map(|(which, count)| match which {
        0 => Turn::Send(count),
        1 => Turn::Carry(count),
        2 => Turn::Echo(count),
        3 => Turn::CarryBack(count),
        _ => Turn::Receive(count),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 16))]

    // rule: EXEC-48
    #[test]
    fn echo_completes(turns in vec(turn(), 1..60), seed in any::<u8>()) {
        // Every part has its turn, whatever the script leaves out.
        let fair = [
            Turn::Send(BUFFER),
            Turn::Carry(BUFFER),
            Turn::Echo(BUFFER),
            Turn::CarryBack(BUFFER),
            Turn::Receive(BUFFER),
        ];
        let stdin: Vec<u8> = (0..TOTAL).map(|at| (at >> 8) as u8 ^ at as u8 ^ seed).collect();
        let mut client = Client {
            link: Link::new(),
            stdin,
            sent: 0,
            writer: InputWriter::new(),
            reader: OutputReader::new([0; 512]),
            stdout: Vec::new(),
        };
        let mut peer =
            Peer { link: Link::new(), reader: InputReader::new(), writer: OutputWriter::new() };
        let mut rounds = 0;
        while !client.reader.is_ended() {
            for turn in turns.iter().chain(&fair) {
                match *turn {
                    Turn::Send(count) => client.send(count),
                    Turn::Carry(count) => {
                        carry(&mut client.link.outbox, &mut peer.link.inbox, count);
                    }
                    Turn::Echo(count) => peer.echo(count),
                    Turn::CarryBack(count) => {
                        carry(&mut peer.link.outbox, &mut client.link.inbox, count);
                    }
                    Turn::Receive(count) => client.receive(count),
                }
            }
            rounds += 1;
            prop_assert!(rounds < 1_000, "stuck behind {} of {TOTAL} bytes", client.stdout.len());
        }
        prop_assert_eq!(client.reader.finish(), Ok(()));
        prop_assert!(client.stdout == client.stdin);
        prop_assert!(peer.reader.is_closed() && peer.writer.is_ended());
        prop_assert!(client.link.inbox.unread().is_empty() && peer.link.outbox.is_empty());
    }
}
