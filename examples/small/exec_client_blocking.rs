//! A one-shot over a blocking socket: no runtime, no thread, one link.
//!
//! `exec_client_blocking HOST:PORT SANDBOX COMMAND…`, with the key in `TRIWIRE_KEY`.

use std::error::Error;
use std::io::Write;
use std::net::TcpStream;
use std::process::ExitCode;

use triwire::exec::body::Body;
use triwire::exec::head::{HeadScan, Mode, RequestHead};
use triwire::exec::request::{MAX_REQUEST_BODY, write_request};
use triwire::exec::session::{Output, OutputReader};
use triwire_std::Wake;
use triwire_std::blocking::{Rx, Tx};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, sandbox, command @ ..] = &arguments[..] else {
        return Err("give HOST:PORT, SANDBOX and a command".into());
    };
    let key = std::env::var("TRIWIRE_KEY").ok();
    let mut json = vec![0; MAX_REQUEST_BODY];
    let json = write_request(command, &[("", ""); 0], "", 0, &mut json)?;
    let head = RequestHead {
        mode: Mode::OneShot,
        sandbox,
        host,
        bearer: key.as_deref(),
        content_length: Some(json.len()),
        path: "",
    };

    let stream = TcpStream::connect(host)?;
    let mut tx = Tx::new(&stream, vec![0; 8192 + json.len()]);
    let written = head.write(tx.space())?.len();
    tx.filled(written);
    tx.send(json)?;
    tx.flush()?;

    let mut rx = Rx::new(&stream, vec![0; 16 * 1024]);
    let mut scan = HeadScan::new();
    let mut body = None;
    let mut output = OutputReader::new(vec![0; 65_536]);
    while rx.wait()? == Wake::Bytes {
        while let Some(mut window) = rx.next() {
            let body = match &mut body {
                Some(body) => body,
                None => {
                    let is_full = window.rest.len() == 16 * 1024;
                    let Some(head) = scan.response(window.rest, is_full)? else { continue };
                    window.rest = &window.rest[head.len..];
                    body.insert(Body::new(head.expect_stream()?))
                }
            };
            while let Some(mut frames) = body.feed(&mut window.rest)? {
                while let Some(event) = output.feed(&mut frames)? {
                    match event {
                        Output::Stdout(bytes) => std::io::stdout().write_all(bytes)?,
                        Output::Stderr(bytes) => std::io::stderr().write_all(bytes)?,
                        Output::Exit(_) => {}
                    }
                }
            }
        }
        // The server keeps the connection open for a next request.
        if body.as_ref().is_some_and(Body::is_complete) {
            break;
        }
    }
    output.finish()?; // without an exit frame the command was lost
    Ok(ExitCode::from(output.result().ok_or("no result")?.status()))
}
