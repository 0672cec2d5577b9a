//! A WebSocket in a loop of one's own: tungstenite cuts messages, the core has the rules, mio waits.

use std::error::Error;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use mio::{Events, Interest, Poll, Token, net::TcpStream};
use triwire::exec::head::{HeadScan, Mode, RequestHead};
use triwire::exec::request::{MAX_REQUEST_BODY, write_request};
use triwire::exec::session::{InputWriter, Output, OutputReader};
use triwire::exec::socket::{ClientSocket, Close, Message as Part};
use triwire_std::{Wake, blocking::Rx, entropy};
use tungstenite::protocol::{CloseFrame, Role};
use tungstenite::{Error as Failed, Message, WebSocket, handshake::derive_accept_key};

const USAGE: &str = "websocket_own_loop HOST:PORT SANDBOX COMMAND…, the key in TRIWIRE_KEY";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, sandbox, command @ ..] = &arguments[..] else { return Err(USAGE.into()) };
    let mut json = vec![0; MAX_REQUEST_BODY];
    let json = write_request(command, &[("", ""); 0], "", 0, &mut json)?;
    // The upgrade, blocking; what came behind the answer's head are the first messages.
    let (bearer, key) = (std::env::var("TRIWIRE_KEY").ok(), entropy::websocket_key()?);
    let (mode, bearer) = (Mode::Socket { key: &key }, bearer.as_deref());
    let head = RequestHead { mode, sandbox, host, bearer, content_length: None, path: "" };
    let stream = std::net::TcpStream::connect(host)?;
    (&stream).write_all(head.write(&mut [0; 8192])?)?;
    let (mut rx, mut scan) = (Rx::new(&stream, vec![0; 16_384]), HeadScan::new());
    let behind = loop {
        let Wake::Bytes = rx.wait()? else { return Err("no answer came".into()) };
        if let Some(head) = scan.response(rx.unread(), rx.unread().len() == 16_384)? {
            head.expect_upgrade(&derive_accept_key(key.as_bytes()))?;
            break rx.unread()[head.len..].to_vec();
        }
    };
    stream.set_nonblocking(true)?;
    let stream = TcpStream::from_std(stream);
    let mut ws = WebSocket::from_partially_read(stream, behind, Role::Client, None);
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(1));
    poll.registry().register(ws.get_mut(), Token(0), Interest::READABLE | Interest::WRITABLE)?;
    ws.write(Message::text(std::str::from_utf8(json)?))?;
    ws.write(Message::binary(InputWriter::new().close()?.to_vec()))?;
    let (mut rules, mut output) = (ClientSocket::new(), OutputReader::new(vec![0; 65_536]));
    loop {
        let _ = ws.flush(); // what is not just for the moment, the read tells too
        let message = match ws.read() {
            Ok(message) => message,
            Err(Failed::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                poll.poll(&mut events, None)?;
                continue;
            }
            Err(_) => break, // whatever ended it, the frames say whether the command was lost
        };
        let part = match &message {
            Message::Text(text) => Part::Text(text.as_bytes()),
            Message::Binary(bytes) => Part::Binary(bytes),
            Message::Close(Some(close)) => {
                rules.closed(Close::new(close.code.into(), &close.reason));
                continue;
            }
            _ => continue, // tungstenite answers pings and closes by itself
        };
        let mut frames = rules.feed(part).map_err(|close| {
            let (code, reason) = (close.code.into(), close.reason.as_str().into());
            let _ = ws.close(Some(CloseFrame { code, reason }));
            close.to_string()
        })?;
        while let Some(event) = output.feed(&mut frames)? {
            match event {
                Output::Stdout(bytes) => std::io::stdout().write_all(bytes)?,
                Output::Stderr(bytes) => std::io::stderr().write_all(bytes)?,
                Output::Exit(_) => {}
            }
        }
    }
    rules.finish(output.finish())?; // only an exit frame is success, no close code is
    Ok(ExitCode::from(output.result().ok_or("no result")?.status()))
}
