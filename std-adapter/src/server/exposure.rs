//! Where a server may listen, by who could reach it and what it would show them.

use std::fmt;
use std::net::SocketAddr;

/// What a server is at an address.
///
/// ```
/// use triwire_std::server::{Exposed, Exposure};
///
/// let address = "0.0.0.0:7878".parse().unwrap();
/// let plain = Exposure { address, has_keys: true, has_tls: false, behind_proxy: false };
/// assert_eq!(plain.judge(), Err(Exposed::WithoutTls { address }));
/// assert_eq!(Exposure { has_tls: true, ..plain }.judge(), Ok(()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// Where it listens.
    pub address: SocketAddr,
    /// Whether it asks for a key.
    pub has_keys: bool,
    /// Whether it speaks TLS itself.
    pub has_tls: bool,
    /// Whether a proxy before it speaks TLS to the clients, and nobody else reaches it.
    pub behind_proxy: bool,
}

impl Exposure {
    /// Judges whether it may be served. This is the one place that decides it;
    /// [`Server::serve`](super::Server::serve) asks here.
    ///
    /// # Errors
    /// The address is beyond loopback, and something is missing there.
    pub fn judge(self) -> Result<(), Exposed> {
        let Self { address, has_keys, has_tls, behind_proxy } = self;
        // rule: EXEC-70
        match (is_loopback(address), has_keys, has_tls || behind_proxy) {
            (true, _, _) | (false, true, true) => Ok(()),
            (false, false, _) => Err(Exposed::WithoutKeys { address }),
            (false, true, false) => Err(Exposed::WithoutTls { address }),
        }
    }
}

/// Reports whether an address is one of this machine alone.
pub(super) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// An address at which a server would be open to more than it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposed {
    /// Everybody who reaches it could run commands.
    WithoutKeys {
        /// The address.
        address: SocketAddr,
    },
    /// Keys and output would cross the network in clear.
    WithoutTls {
        /// The address.
        address: SocketAddr,
    },
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WithoutKeys { address } => write!(
                f,
                "a server without keys listens on a loopback address only, not on {address}: \
                 give it keys, or bind 127.0.0.1"
            ),
            Self::WithoutTls { address } => write!(
                f,
                "on {address} keys and output would cross the network in clear: give the server \
                 a certificate, bind 127.0.0.1, or say that a proxy before it speaks TLS"
            ),
        }
    }
}

impl std::error::Error for Exposed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_neither_keys_nor_secrecy_goes_without_them() {
        // rule: EXEC-70
        const NO_KEYS: &str = "without keys";
        const NO_TLS: &str = "in clear";
        // Beyond loopback: has_keys, has_tls, behind_proxy.
        let table = [
            ([false, false, false], NO_KEYS),
            ([false, false, true], NO_KEYS),
            ([false, true, false], NO_KEYS),
            ([false, true, true], NO_KEYS),
            ([true, false, false], NO_TLS),
            ([true, false, true], ""),
            ([true, true, false], ""),
            ([true, true, true], ""),
        ];
        for ([has_keys, has_tls, behind_proxy], expected) in table {
            let at = |address: &str| {
                let address = address.parse().unwrap();
                Exposure { address, has_keys, has_tls, behind_proxy }.judge()
            };
            for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
                assert_eq!(at(address), Ok(()), "{address}");
            }
            for address in
                ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[fe80::1]:1", "[::ffff:0.0.0.0]:1"]
            {
                match at(address) {
                    Ok(()) => assert_eq!(expected, "", "{address}"),
                    Err(exposed) => {
                        let why = exposed.to_string();
                        assert!(!expected.is_empty() && why.contains(expected), "{why}");
                    }
                }
            }
        }
    }
}
