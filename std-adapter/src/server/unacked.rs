//! How many bytes of ours a TCP peer has not acknowledged, end of the sending side included.
//!
//! The system tells by an ioctl, which only unsafe code can call, or by a message to the kernel's
//! socket diagnosis, which is the same figure.

use std::net::{IpAddr, SocketAddr};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use tokio::net::TcpStream;

/// Message type of a question by address family, and of its answer.
const BY_FAMILY: u16 = 20;
/// Flag of a message that asks.
const ASKS: u16 = 1;
const TCP: u8 = 6;
const ANY_STATE: u32 = !0;
/// Stands for a socket's cookie when it is not known.
const NO_COOKIE: [u8; 8] = [0xff; 8];
const QUESTION: usize = 72;
/// Where the answer holds the bytes that are queued for the peer.
const WRITE_QUEUE: std::ops::Range<usize> = 76..80;

/// Looks once; 0 also where the system does not tell, as the core asks for.
pub(super) fn of(stream: &TcpStream) -> usize {
    let ends = stream.local_addr().and_then(|local| Ok((local, stream.peer_addr()?)));
    ends.ok().and_then(|(local, peer)| ask(local, peer)).unwrap_or(0)
}

fn ask(local: SocketAddr, peer: SocketAddr) -> Option<usize> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Some(netlink::SOCK_DIAG);
    let kernel = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol).ok()?;
    send(&kernel, &question(local, peer), SendFlags::empty()).ok()?;
    // The kernel answers before the send returns.
    let mut answer = [0; 512];
    let (count, _) = recv(&kernel, &mut answer[..], RecvFlags::empty()).ok()?;
    let answer = answer.get(..count)?;
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    let queued = u32::from_ne_bytes(answer.get(WRITE_QUEUE)?.try_into().ok()?);
    (kind == BY_FAMILY).then(|| usize::try_from(queued).unwrap_or(usize::MAX))
}

fn question(local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    let family = match local.ip().to_canonical() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let mut out = Vec::with_capacity(QUESTION);
    out.extend_from_slice(&(QUESTION as u32).to_ne_bytes());
    out.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    out.extend_from_slice(&ASKS.to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[family.as_raw() as u8, TCP, 0, 0]);
    out.extend_from_slice(&ANY_STATE.to_ne_bytes());
    out.extend_from_slice(&local.port().to_be_bytes());
    out.extend_from_slice(&peer.port().to_be_bytes());
    for end in [local, peer] {
        match end.ip().to_canonical() {
            IpAddr::V4(ip) => {
                out.extend_from_slice(&ip.octets());
                out.extend_from_slice(&[0; 12]);
            }
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
    }
    // Any interface.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&NO_COOKIE);
    out
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_waits_for_the_peer_is_counted_until_it_is_taken() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address).await else { continue };
            let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            assert_eq!(of(&near), 0);
            let mut sent = 0;
            near.writable().await.unwrap();
            while let Ok(count) = near.try_write(&[0; 65_536]) {
                sent += count;
            }
            let waiting = of(&near);
            assert!(waiting > 0 && waiting <= sent, "{waiting} of {sent}");
            far.read_exact(&mut vec![0; sent]).await.unwrap();
            while of(&near) > 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}
