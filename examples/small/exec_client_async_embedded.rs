//! The links of firmware on a host, under an executor that is not tokio: one task sends readings
//! to a command and prints what it says. On a device the stream is its UART or its network stack's
//! socket; the arrays are the same.
//!
//! `exec_client_async_embedded HOST:PORT SANDBOX COMMAND…`, with the key in `TRIWIRE_KEY`.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use embedded_io_adapters::futures_03::FromFutures;
use smol::{future, net::TcpStream};
use triwire::exec::head::{HeadScan, Mode, RequestHead};
use triwire::exec::request::write_request;
use triwire::exec::session::{InputWriter, Output, OutputReader};
use triwire_embedded::asynch::{Rx, Tx, Wake};

async fn run(host: &str, sandbox: &str, command: &[String]) -> Result<u8, Box<dyn Error>> {
    let key = std::env::var("TRIWIRE_KEY").ok();
    let mut json = [0; 2048];
    let json = write_request(command, &[("", ""); 0], "", 0, &mut json)?;
    let (bearer, content_length) = (key.as_deref(), Some(json.len()));
    let mode = Mode::Hijack;
    let head = RequestHead { mode, sandbox, host, bearer, content_length, path: "" };

    let stream = TcpStream::connect(host).await?;
    let mut rx = Rx::new(FromFutures::new(stream.clone()), [0; 2048]);
    let mut tx = Tx::new(FromFutures::new(stream), [0; 4096]);
    let written = head.write(tx.space())?.len();
    tx.filled(written);
    tx.send(json)?;

    let mut readings = (0..10_000).map(|number| format!("reading {number}\n"));
    let (mut scan, mut answered) = (HeadScan::new(), false);
    let (mut input, mut output) = (InputWriter::new(), OutputReader::new([0; 1024]));
    loop {
        while let Some(mut window) = rx.next() {
            if !answered {
                let is_full = window.rest.len() == 2048;
                let Some(head) = scan.response(window.rest, is_full)? else { continue };
                head.expect_hijack()?;
                answered = true;
                window.rest = &window.rest[head.len..];
            }
            while let Some(event) = output.feed(&mut window.rest)? {
                match event {
                    Output::Stdout(bytes) => std::io::stdout().write_all(bytes)?,
                    Output::Stderr(bytes) => std::io::stderr().write_all(bytes)?,
                    Output::Exit(_) => {}
                }
            }
        }
        while answered && !input.is_ended() && tx.has_room(64) {
            if let Some(reading) = readings.next() {
                let written = input.stdin(reading.as_bytes())?.write(tx.space())?.len();
                tx.filled(written);
            } else {
                tx.send(&input.close()?)?;
            }
        }
        // Both directions at once; the one that is dropped loses nothing.
        let sent = async {
            if tx.is_flushed() { future::pending().await } else { tx.flush().await.map(|()| None) }
        };
        if let Some(Wake::End) = future::or(async { rx.wait().await.map(Some) }, sent).await? {
            break;
        }
    }
    output.finish()?;
    Ok(output.result().ok_or("no result")?.status())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, sandbox, command @ ..] = &arguments[..] else {
        return Err("give HOST:PORT, SANDBOX and a command".into());
    };
    smol::block_on(run(host, sandbox, command)).map(ExitCode::from)
}
