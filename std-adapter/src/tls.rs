//! TLS for clients and servers: certificates, keys and roots, read from PEM.
//!
//! ```no_run
//! use triwire_std::client::Client;
//! use triwire_std::tls::{ClientTls, ServerTls};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A server's certificate chain and key.
//! let server = ServerTls::from_files("/etc/triwire/cert.pem", "/etc/triwire/key.pem")?;
//!
//! // A client trusts the system's roots, or those that it is given.
//! let tls = ClientTls::from_file("/etc/triwire/ca.pem")?;
//! let client = Client::builder("https://gateway.example").tls(tls).build()?;
//! # let _ = (server, client);
//! # Ok(())
//! # }
//! ```
//!
//! TLS 1.2 and 1.3 are spoken, by rustls. Only HTTP/1.1 is offered: the hijacked transport is its.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "server")]
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
#[cfg(feature = "server")]
use rustls::pki_types::PrivateKeyDer;
#[cfg(feature = "server")]
use rustls::pki_types::pem;
use rustls::pki_types::pem::PemObject as _;
#[cfg(feature = "client")]
use rustls::{ClientConfig, RootCertStore};
#[cfg(feature = "server")]
use tokio_rustls::TlsAcceptor;
#[cfg(feature = "client")]
use tokio_rustls::TlsConnector;

/// The protocol that is offered in the handshake.
const HTTP_1_1: &[u8] = b"http/1.1";

/// Whom a client trusts. Copies share it.
#[cfg(feature = "client")]
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

#[cfg(feature = "client")]
impl ClientTls {
    /// Trusts the roots that this system trusts.
    ///
    /// # Errors
    /// [`TlsError::NoRoots`] when it has none.
    pub fn system() -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self::trusting(roots, None)
    }

    /// Trusts the certificates of a PEM file, and nothing else.
    ///
    /// # Errors
    /// The file cannot be read, or holds no certificate.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TlsError> {
        let path = path.as_ref();
        Self::from_pem_of(&read(path)?, Some(path))
    }

    /// Trusts the certificates of a PEM text, and nothing else.
    ///
    /// # Errors
    /// It holds no certificate.
    pub fn from_pem(text: &[u8]) -> Result<Self, TlsError> {
        Self::from_pem_of(text, None)
    }

    fn from_pem_of(text: &[u8], path: Option<&Path>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(text, path)? {
            let wrong = |error| TlsError::Rejected { path: path.map(Path::to_owned), error };
            roots.add(certificate).map_err(wrong)?;
        }
        Self::trusting(roots, path)
    }

    fn trusting(roots: RootCertStore, path: Option<&Path>) -> Result<Self, TlsError> {
        if roots.is_empty() {
            return Err(TlsError::NoRoots { path: path.map(Path::to_owned) });
        }
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Rejected { path: None, error })?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Takes a configuration of rustls as it is: for client certificates, or roots of one's own.
    /// It should offer no other protocol than `http/1.1`.
    #[must_use]
    pub fn from_config(config: Arc<ClientConfig>) -> Self {
        Self(config)
    }

    pub(crate) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.0))
    }
}

#[cfg(feature = "client")]
impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls(..)")
    }
}

/// A server's certificate and key. Copies share them.
#[cfg(feature = "server")]
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

#[cfg(feature = "server")]
impl ServerTls {
    /// Reads the certificate chain, the server's own first, and its key from PEM files.
    ///
    /// # Errors
    /// A file cannot be read, holds none, or they do not belong together.
    pub fn from_files(
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, TlsError> {
        let (certificate, key) = (certificate.as_ref(), key.as_ref());
        let (chain, secret) = (read(certificate)?, read(key)?);
        Self::from_pem_of(&chain, Some(certificate), &secret, Some(key))
    }

    /// Reads them from PEM texts.
    ///
    /// # Errors
    /// A text holds none, or they do not belong together.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Self::from_pem_of(certificate, None, key, None)
    }

    fn from_pem_of(
        certificate: &[u8],
        certificate_path: Option<&Path>,
        key: &[u8],
        key_path: Option<&Path>,
    ) -> Result<Self, TlsError> {
        let chain = certificates(certificate, certificate_path)?;
        let owned = || key_path.map(Path::to_owned);
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            pem::Error::NoItemsFound => TlsError::NoKey { path: owned() },
            _ => TlsError::Pem { path: owned() },
        })?;
        let rejected = |error| TlsError::Rejected { path: owned(), error };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(rejected)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(rejected)?;
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Takes a configuration of rustls as it is: for certificates that change, or client
    /// certificates. It should offer no other protocol than `http/1.1`.
    #[must_use]
    pub fn from_config(config: Arc<ServerConfig>) -> Self {
        Self(config)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}

#[cfg(feature = "server")]
impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls(..)")
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::File { path: path.to_owned(), error: Arc::new(error) })
}

fn certificates(
    text: &[u8],
    path: Option<&Path>,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let path = || path.map(Path::to_owned);
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match read {
        Ok(none) if none.is_empty() => Err(TlsError::NoCertificate { path: path() }),
        Ok(certificates) => Ok(certificates),
        Err(_) => Err(TlsError::Pem { path: path() }),
    }
}

/// Why certificates, keys or roots cannot be used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: Arc<io::Error>,
    },
    /// A text is no PEM.
    Pem {
        /// Its file.
        path: Option<PathBuf>,
    },
    /// There is no certificate in it.
    NoCertificate {
        /// Its file.
        path: Option<PathBuf>,
    },
    /// There is no private key in it.
    NoKey {
        /// Its file.
        path: Option<PathBuf>,
    },
    /// There is nobody to trust.
    NoRoots {
        /// The file of roots, none for the system's.
        path: Option<PathBuf>,
    },
    /// rustls refused it: a certificate that is none, or a key that is another's.
    Rejected {
        /// Its file.
        path: Option<PathBuf>,
        /// Why.
        error: rustls::Error,
    },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match self {
            Self::File { path, .. } => Some(path),
            Self::Pem { path }
            | Self::NoCertificate { path }
            | Self::NoKey { path }
            | Self::NoRoots { path }
            | Self::Rejected { path, .. } => path.as_ref(),
        };
        if let Some(path) = path {
            write!(f, "{}: ", path.display())?;
        }
        match self {
            Self::File { error, .. } => write!(f, "cannot be read: {error}"),
            Self::Pem { .. } => f.write_str("this is no PEM text; convert it to PEM"),
            Self::NoCertificate { .. } => f.write_str(
                "there is no certificate in it; expected PEM, -----BEGIN CERTIFICATE-----",
            ),
            Self::NoKey { .. } => f.write_str(
                "there is no private key in it; expected PEM, -----BEGIN PRIVATE KEY-----",
            ),
            Self::NoRoots { path: None } => f.write_str(
                "this system trusts no certificate; install its ca-certificates, or name a CA",
            ),
            Self::NoRoots { .. } => f.write_str("there is no certificate to trust in it"),
            Self::Rejected { error, .. } => write!(
                f,
                "it cannot be used: {error}; check that certificate and key belong together"
            ),
        }
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { error, .. } => Some(&**error),
            Self::Rejected { error, .. } => Some(error),
            _ => None,
        }
    }
}
