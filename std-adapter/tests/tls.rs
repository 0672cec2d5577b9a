//! All three transports in TLS, and every way in which it can be refused.
#![cfg(all(
    feature = "tls",
    feature = "server",
    feature = "client",
    feature = "guest",
    target_os = "linux"
))]

mod server_common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use server_common::{KEY, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use triwire::exec::frame::Kind;
use triwire::exec::head::KeyDigest;
use triwire_std::client::{Client, ClientError, Output, Transport};
use triwire_std::guest::ProcessGuest;
use triwire_std::record::ExecRequest;
use triwire_std::server::{Keys, Server};
use triwire_std::tls::{ClientTls, ServerTls, TlsError};

const TRANSPORTS: [Transport; 3] = [Transport::OneShot, Transport::Hijack, Transport::WebSocket];

/// Signs certificates, for whoever trusts it.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate and its key, as PEM.
    fn issue(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn server(&self, name: &str) -> ServerTls {
        let (certificate, key) = self.issue(name, |_| {});
        ServerTls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap()
    }

    fn client(&self) -> ClientTls {
        ClientTls::from_pem(self.pem.as_bytes()).unwrap()
    }
}

struct Gateway {
    address: SocketAddr,
    root: tempfile::TempDir,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
}

async fn serve(tls: Option<ServerTls>) -> Gateway {
    let root = tempfile::tempdir().unwrap();
    let guest = Arc::new(ProcessGuest::new(root.path()).unwrap());
    let keys = Keys::new([KeyDigest::of(KEY.as_bytes())]);
    let mut builder = Server::builder().sandbox("local", guest).keys(keys);
    if let Some(tls) = tls {
        builder = builder.tls(tls);
    }
    let server = builder.build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving =
        tokio::spawn(async move { server.serve(listener, async { drop(stopped.await) }).await });
    Gateway { address, root, stop, serving }
}

impl Gateway {
    fn client(&self, tls: ClientTls) -> Client {
        let url = format!("https://localhost:{}", self.address.port());
        Client::builder(url).key(KEY).tls(tls).build().unwrap()
    }
}

fn sh(script: &str) -> ExecRequest {
    let cmd = ["sh", "-c", script].map(str::to_owned).into();
    ExecRequest { cmd, ..ExecRequest::default() }
}

#[tokio::test]
async fn every_transport_works_in_tls() {
    let authority = Authority::new();
    let gateway = serve(Some(authority.server("localhost"))).await;
    let client = gateway.client(authority.client());
    for transport in TRANSPORTS {
        let request = sh("echo out; echo err >&2; exit 3");
        let session = within(client.exec("local", &request).transport(transport).start()).await;
        let collected = within(session.unwrap().collect(1 << 20)).await.unwrap();
        assert_eq!(
            (&*collected.stdout, &*collected.stderr, collected.result.exit_code),
            (&b"out\n"[..], &b"err\n"[..], 3),
            "{transport:?}"
        );
    }
}

#[tokio::test]
async fn much_goes_both_ways_at_once_before_a_slow_reader() {
    let authority = Authority::new();
    let gateway = serve(Some(authority.server("localhost"))).await;
    let client = gateway.client(authority.client());
    let input: Vec<u8> = (0..4 << 20_u32).map(|at| (at % 251) as u8).collect();
    for transport in [Transport::Hijack, Transport::WebSocket] {
        let request = sh("cat");
        let exec = client.exec("local", &request).transport(transport).interactive();
        let mut session = within(exec.start()).await.unwrap();
        let mut output = Vec::new();
        session.forward_stdin(std::io::Cursor::new(input.clone()));
        within(async {
            while let Some(event) = session.next().await.unwrap() {
                if let Output::Stdout(bytes) = event {
                    output.extend_from_slice(bytes);
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(output == input, "{transport:?}: {} bytes", output.len());
    }
}

/// A TLS connection of raw bytes, with a small receive window.
async fn raw(gateway: &Gateway, authority: &Authority) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = within(socket.connect(gateway.address)).await.unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from("localhost").unwrap();
    let secured = within(connector.connect(name, stream)).await.unwrap();
    assert_eq!(secured.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    secured
}

#[tokio::test]
async fn a_slow_reader_gets_all_that_was_said_and_the_end_of_tls() {
    let authority = Authority::new();
    let gateway = serve(Some(authority.server("localhost"))).await;
    let mut stream = raw(&gateway, &authority).await;
    let body = r#"{"cmd":["head","-c","1048576","/dev/zero"]}"#;
    let head = format!(
        "POST /sandboxes/local/exec?stdin=1 HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        gateway.address,
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // Input that the command never reads must not take its output away.
    let unread = server_common::frame(Kind::Stdin, &[1; 65_536]);
    stream.write_all(&unread).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    let mut window = [0; 1000];
    // Without the end that TLS says itself this read would fail.
    while let count @ 1.. = within(stream.read(&mut window)).await.unwrap() {
        answer.extend_from_slice(&window[..count]);
        tokio::task::yield_now().await;
    }
    let frames = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let told = server_common::told(&answer[frames..]);
    assert_eq!((told.stdout.len(), told.exit().exit_code), (1 << 20, 0));
}

#[tokio::test]
async fn a_handshake_has_its_time() {
    let authority = Authority::new();
    let gateway = serve(Some(authority.server("localhost"))).await;
    for begun in [&[][..], &[22, 3, 1]] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(begun).await.unwrap();
        let before = tokio::time::Instant::now();
        tokio::time::pause();
        assert_eq!(within(stream.read(&mut [0])).await.unwrap(), 0);
        assert!(before.elapsed() >= triwire_std::server::HEAD_BOUND);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_who_never_shook_hands() {
    let authority = Authority::new();
    let gateway = serve(Some(authority.server("localhost"))).await;
    let _silent = TcpStream::connect(gateway.address).await.unwrap();
    let mut begun = TcpStream::connect(gateway.address).await.unwrap();
    begun.write_all(&[22, 3, 1]).await.unwrap();
    // Served behind them: both are accepted by now.
    let request = sh("exit 3");
    let client = gateway.client(authority.client());
    let session = within(client.exec("local", &request).start()).await.unwrap();
    within(session.collect(1000)).await.unwrap();
    let before = std::time::Instant::now();
    gateway.stop.send(()).unwrap();
    within(gateway.serving).await.unwrap().unwrap();
    assert!(before.elapsed() < triwire_std::server::SHUTDOWN_BOUND / 2);
}

#[tokio::test]
async fn wss_says_what_https_says() {
    let authority = Authority::new();
    let gateway = serve(Some(authority.server("localhost"))).await;
    let url = format!("wss://localhost:{}", gateway.address.port());
    let client = Client::builder(url).key(KEY).tls(authority.client()).build().unwrap();
    for transport in TRANSPORTS {
        let request = sh("exit 3");
        let session = within(client.exec("local", &request).transport(transport).start()).await;
        let collected = within(session.unwrap().collect(1000)).await.unwrap();
        assert_eq!(collected.result.exit_code, 3, "{transport:?}");
    }
}

#[tokio::test]
async fn who_cannot_be_trusted_is_refused_by_name() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let told = async |tls: ServerTls, trusted: &Authority| -> (String, String) {
        let gateway = serve(Some(tls)).await;
        let client = gateway.client(trusted.client());
        let error = within(client.exec("local", &sh("true")).start()).await.unwrap_err();
        assert!(std::error::Error::source(&error).is_some());
        (error.code().to_owned(), error.to_string())
    };
    let (code, why) = told(authority.server("localhost"), &stranger).await;
    assert_eq!(code, "tls");
    assert!(why.contains("give the CA"), "{why}");
    let (_, why) = told(authority.server("other.example"), &authority).await;
    assert!(why.contains("another name"), "{why}");
    let expired = authority.issue("localhost", |params| {
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    let expired = ServerTls::from_pem(expired.0.as_bytes(), expired.1.as_bytes()).unwrap();
    let (_, why) = told(expired, &authority).await;
    assert!(why.contains("expired"), "{why}");
}

#[tokio::test]
async fn http_and_https_at_the_wrong_port_end_at_once_by_name() {
    let authority = Authority::new();
    let secure = serve(Some(authority.server("localhost"))).await;
    let plain = serve(None).await;
    for transport in TRANSPORTS {
        let client = Client::builder(format!("http://{}", secure.address)).key(KEY);
        let exec = client.build().unwrap();
        let request = sh("true");
        let error = within(exec.exec("local", &request).transport(transport).start()).await;
        match error.unwrap_err() {
            ClientError::Refused { status: 400, code, why } => {
                assert_eq!(code, "tls_required");
                assert!(why.contains("https://"), "{why}");
            }
            other => panic!("{other}"),
        }
    }
    let client = plain.client(authority.client());
    let error = within(client.exec("local", &sh("true")).start()).await.unwrap_err();
    assert!(matches!(error, ClientError::Tls { .. }) && error.to_string().contains("http://"));
}

#[tokio::test]
async fn a_peer_that_says_nothing_or_nonsense_holds_up_nobody() {
    let authority = Authority::new();
    let gateway = serve(Some(authority.server("localhost"))).await;
    let mut silent = TcpStream::connect(gateway.address).await.unwrap();
    let mut broken = TcpStream::connect(gateway.address).await.unwrap();
    broken.write_all(&[22, 3, 1, 0, 4, 99, 0, 0, 0]).await.unwrap();
    let client = gateway.client(authority.client());
    let request = sh("true");
    let session = within(client.exec("local", &request).start()).await.unwrap();
    assert_eq!(within(session.collect(1000)).await.unwrap().result.exit_code, 0);
    // The broken one is closed; the silent one waits for its time.
    let mut rest = Vec::new();
    let _ = within(broken.read_to_end(&mut rest)).await;
    let mut room = [0];
    let nothing = silent.read(&mut room);
    assert!(tokio::time::timeout(Duration::from_millis(50), nothing).await.is_err());
}

#[tokio::test]
async fn a_command_ends_with_its_client() {
    let authority = Authority::new();
    let gateway = serve(Some(authority.server("localhost"))).await;
    let client = gateway.client(authority.client());
    for transport in TRANSPORTS {
        let mark = gateway.root.path().join(format!("{transport:?}"));
        let script = format!("echo on; trap '' TERM; while sleep 0.05; do date >> {mark:?}; done");
        let request = sh(&script);
        let mut exec = client.exec("local", &request).transport(transport);
        if transport != Transport::OneShot {
            exec = exec.interactive();
        }
        let mut session = within(exec.start()).await.unwrap();
        let first = within(session.next()).await.unwrap();
        assert!(matches!(first, Some(Output::Stdout(b"on\n"))), "{transport:?}");
        drop(session);
        // It writes no more soon after.
        let size = || std::fs::metadata(&mark).map_or(0, |metadata| metadata.len());
        within(async {
            loop {
                let before = size();
                tokio::time::sleep(Duration::from_millis(300)).await;
                if size() == before {
                    break;
                }
            }
        })
        .await;
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("localhost", |_| {});
    let (_, other_key) = authority.issue("localhost", |_| {});
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (cert, key, other) =
        (write("cert.pem", &certificate), write("key.pem", &key), write("other.pem", &other_key));
    assert!(ServerTls::from_files(&cert, &key).is_ok());
    let told = |certificate, key| ServerTls::from_files(certificate, key).unwrap_err();
    let missing = folder.path().join("missing.pem");
    assert!(matches!(told(&missing, &key), TlsError::File { path, .. } if path == missing));
    assert!(matches!(told(&key, &key), TlsError::NoCertificate { .. }));
    assert!(matches!(told(&cert, &cert), TlsError::NoKey { .. }));
    let mismatch = told(&cert, &other);
    assert!(matches!(mismatch, TlsError::Rejected { .. }));
    assert!(mismatch.to_string().contains("belong together"), "{mismatch}");
    assert!(mismatch.to_string().starts_with(&*other.to_string_lossy()));
    let broken = write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA");
    assert!(matches!(told(&broken, &key), TlsError::Pem { .. }), "{}", told(&broken, &key));
    let ca = write("ca.pem", &authority.pem);
    assert!(ClientTls::from_file(&ca).is_ok());
    assert!(matches!(ClientTls::from_file(&key), Err(TlsError::NoCertificate { .. })));
    assert_eq!(format!("{:?}", ServerTls::from_files(&cert, &key).unwrap()), "ServerTls(..)");
}

#[tokio::test]
async fn an_address_beyond_loopback_wants_keys_and_tls() {
    // rule: EXEC-70
    let authority = Authority::new();
    let keys = || Keys::new([KeyDigest::of(KEY.as_bytes())]);
    let listen = || TcpListener::bind("0.0.0.0:0");
    let tls = || authority.server("localhost");
    let refused = [
        (Server::builder().open(), "without keys"),
        (Server::builder().open().tls(tls()), "without keys"),
        (Server::builder().open().behind_proxy(true), "without keys"),
        (Server::builder().keys(keys()), "in clear"),
    ];
    for (builder, word) in refused {
        let server = builder.build().unwrap();
        let served = server.serve(listen().await.unwrap(), std::future::ready(())).await;
        let why = served.unwrap_err().to_string();
        assert!(why.contains(word), "{why}");
    }
    for builder in [
        Server::builder().keys(keys()).tls(tls()),
        Server::builder().keys(keys()).behind_proxy(true),
    ] {
        let server = builder.build().unwrap();
        server.serve(listen().await.unwrap(), std::future::ready(())).await.unwrap();
    }
}
