//! How much of what was sent is still on its way.

use tokio::net::TcpStream;

pub(super) fn of(stream: &TcpStream) -> usize {
    let _ = stream;
    0
}
