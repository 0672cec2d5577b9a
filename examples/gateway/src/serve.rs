//! `triwire serve`: the gateway, from settings to a listening socket and back.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use triwire::exec::head::KeyDigest;
use triwire_std::channel::{Chairs, Executor};
use triwire_std::guest::{Guest, ProcessGuest, SerialGuest, TcpGuest, UnixGuest};
use triwire_std::server::{Exposed, Exposure, Keys, MetricsAccess, Server};
use triwire_std::tls::ServerTls;

use crate::channel::Offered;
use crate::cli::{LogFormat, ServeArgs};
use crate::config::file::{MetricsPage, Tls};
use crate::config::sandbox::{Place, Sandbox};
use crate::config::{Origin, ServeSettings};
use crate::failure::{Failure, Outcome};
use crate::keys::{self, KeyFile};
use crate::metrics;
use crate::terminal::Paint;

/// How often key files are looked at.
const KEY_FILES_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &ServeArgs) -> Outcome {
    let settings = ServeSettings::resolve(&args.flags)?;
    let exposure = Exposure {
        address: settings.listen.value,
        has_keys: !args.insecure_no_auth,
        has_tls: settings.tls.is_some(),
        behind_proxy: settings.behind_proxy.value,
    };
    exposure.judge().map_err(exposed)?;
    log(args)?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no threads to serve with: {error}")))?
        .block_on(serve(args, &settings))
}

/// Says what to do, in words of this tool.
fn exposed(exposed: Exposed) -> Failure {
    Failure::new(match exposed {
        Exposed::WithoutKeys { address } => format!(
            "--insecure-no-auth would let everybody who reaches {address} run commands: \
             listen on 127.0.0.1, or use a key"
        ),
        Exposed::WithoutTls { address } => format!(
            "on {address} keys and output would cross the network in clear: add [tls] with cert \
             and key to the config, listen on 127.0.0.1, or say --behind-proxy when a proxy \
             before it speaks TLS"
        ),
    })
}

fn log(args: &ServeArgs) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&args.log)
        .map_err(|error| Failure::new(format!("--log {:?}: {error}", args.log)))?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(Paint::for_stream(&io::stderr()).is_on());
    match args.log_format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
    Ok(())
}

async fn serve(args: &ServeArgs, settings: &ServeSettings) -> Outcome {
    // Before anything is made on disk: a second start must not disturb the first.
    let listener = listen(settings.listen.value).await?;
    let address = listener
        .local_addr()
        .map_err(|error| Failure::new(format!("the socket has no address: {error}")))?;
    let mut words = Vec::new();
    let mut builder = Server::builder().hosts(settings.hosts.value.iter().cloned());
    builder = builder.behind_proxy(settings.behind_proxy.value);
    if let Some(tls) = &settings.tls {
        let Tls { cert, key } = &tls.value;
        if keys::others_may_read(key) {
            tracing::warn!(file = %key.display(), "others can read this TLS key; chmod 600 it");
        }
        let tls = ServerTls::from_files(cert, key)
            .map_err(|error| Failure::new(format!("{}: tls: {error}", tls.origin)))?;
        builder = builder.tls(tls);
    }
    if settings.hosts.value.is_empty() && !address.ip().is_loopback() {
        tracing::warn!(
            "no hosts are configured: every Host name is answered here; say which are this \
             gateway's, hosts = [\"gateway.example\"]"
        );
    }
    let access = match settings.metrics.value {
        MetricsPage::Keyed => Some(MetricsAccess::Keyed),
        MetricsPage::Open => Some(MetricsAccess::Open),
        MetricsPage::Off => None,
    };
    if let Some(access) = access {
        builder = builder.metrics(access, metrics::CONTENT_TYPE, metrics::render);
    }
    let mut devices = Vec::new();
    for sandbox in &settings.sandboxes {
        let made_by_us = sandbox.origin == Origin::Default;
        let Sandbox { name, place } = &sandbox.value;
        builder = builder.sandbox(name, guest(&sandbox.value, made_by_us, &mut devices)?);
        words.push(format!("sandbox {name}: {place}"));
        if let Some(executor) = place.executor() {
            words.push(format!("executor {executor}: {place}"));
        }
    }
    let mut offered = match &settings.channel {
        Some(channel) => Some(Offered::new(settings, channel, address)?),
        None => None,
    };
    let is_process = |sandbox: &Sandbox| matches!(sandbox.place, Place::Process { .. });
    if settings.sandboxes.iter().any(|sandbox| is_process(&sandbox.value)) {
        words.push("commands see this machine's paths: a sandbox is a folder, not a jail".into());
    }

    if args.insecure_no_auth {
        words.push("no key needed: everybody on this machine can run commands here".into());
        builder = builder.open();
        offered = offered.map(Offered::open);
    } else {
        let first = &settings.key_files[0];
        if first.origin == Origin::Default
            && let Some(key) = keys::make_once(&settings.state.value)?
        {
            words.push(format!("key, shown this once, kept in {}:", first.value.display()));
            words.push(format!("  {}", key.expose()));
        }
        let files: Vec<PathBuf> =
            settings.key_files.iter().map(|file| file.value.clone()).collect();
        let read = read_strictly(&files)?;
        let keys = Keys::new(digests(&read));
        builder = builder.keys(keys.clone());
        offered = offered.map(|offered| offered.keys(keys.clone()));
        tokio::spawn(watch(files, read.into_iter().map(Ok).collect(), keys));
    }
    if let Some(offered) = offered {
        words.extend(offered.words);
        let channel = offered.builder.build();
        seat(devices, channel.chairs());
        builder = builder.channel(channel);
    }
    let first = &settings.sandboxes[0].value;
    // What runs elsewhere may be no system of programs.
    let command = if is_process(first) { "uname -a" } else { "COMMAND" };
    let line = exec_line(settings, address);
    words.push(format!("try: {line} {} -- {command}", first.name));
    words.push(format!("listening on {address}"));
    // Before the word that it listens: whoever waits for that may stop it at once.
    let stop = stop()?;
    let mut stdout = io::stdout().lock();
    // Whoever started it may not read it.
    let _ = writeln!(stdout, "{}", words.join("\n")).and_then(|()| stdout.flush());
    drop(stdout);

    builder
        .build()
        .map_err(|error| Failure::new(error.to_string()))?
        .serve(listener, stop)
        .await
        .map_err(|error| Failure::new(format!("serving ended: {error}")))?;
    tracing::info!("stopped");
    Ok(0)
}

/// Lets each device answer the calls to its executor.
fn seat(devices: Vec<(SerialGuest, Executor)>, chairs: &Chairs) {
    for (device, executor) in devices {
        let chairs = chairs.clone();
        tokio::spawn(async move { device.serve_channel(chairs, executor).await });
    }
}

/// Makes the guest of a sandbox. Its folder must be there, unless it is ours to make. A device that
/// is offered as an executor is added to `devices`.
fn guest(
    sandbox: &Sandbox,
    made_by_us: bool,
    devices: &mut Vec<(SerialGuest, Executor)>,
) -> Result<Arc<dyn Guest>, Failure> {
    let name = &sandbox.name;
    let key = match sandbox.place.link().and_then(|link| link.key_file.as_deref()) {
        Some(path) => Some(keys::first(path).map_err(|failure| {
            Failure::new(format!("the sandbox {name} cannot use its key_file: {failure}"))
        })?),
        None => None,
    };
    // Each kind sets what it is given, by the same names.
    macro_rules! linked {
        ($guest:expr, $link:expr) => {{
            let mut guest = $guest;
            if let Some(path) = &$link.path {
                guest = guest.path(path);
            }
            if let Some(key) = &key {
                guest = guest.key(key.expose());
            }
            guest
        }};
    }
    Ok(match &sandbox.place {
        Place::Process { root, inherit_env } => {
            let failed = |error: io::Error| {
                let root = root.display();
                Failure::new(format!("the sandbox {name} cannot use {root}: {error}"))
            };
            if made_by_us {
                keys::make_folder(root).map_err(failed)?;
            }
            Arc::new(ProcessGuest::new(root).map_err(failed)?.inherit_env(*inherit_env))
        }
        Place::Tcp { address, link } => Arc::new(linked!(TcpGuest::new(address), link)),
        Place::Unix { socket, link } => Arc::new(linked!(UnixGuest::new(socket), link)),
        Place::Serial { device, speed, flow_control, link, executor } => {
            let mut guest = linked!(SerialGuest::new(device), link).flow_control(*flow_control);
            if let Some(speed) = speed {
                guest = guest.speed(*speed);
            }
            // The log tells at once what is wrong with it.
            guest.connect();
            if let Some(executor) = executor {
                devices.push((guest.clone(), Executor::named(executor)));
            }
            Arc::new(guest)
        }
    })
}

/// What a client of this machine connects to.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    // Every address is none that a client could name.
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// The line that reaches this gateway: what the client finds by itself is left out.
fn exec_line(settings: &ServeSettings, address: SocketAddr) -> String {
    let address = reachable(address);
    let mut line = "triwire exec".to_owned();
    if settings.tls.is_some() || address.to_string() != crate::cli::DEFAULT_LISTEN {
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        line.push_str(&format!(" --url {scheme}://{address}"));
    }
    let file = &settings.key_files[0];
    if file.origin != Origin::Default {
        line.push_str(&format!(" --key-file {}", file.value.display()));
    } else if settings.state.origin != Origin::Default {
        line.push_str(&format!(" --state {}", settings.state.value.display()));
    }
    line
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "is in use: another gateway or program listens there; stop it, \
                 or choose another address with --listen"
            }
            io::ErrorKind::PermissionDenied => {
                "needs rights that this user has not; choose a port above 1023 with --listen"
            }
            io::ErrorKind::AddrNotAvailable => {
                "is no address of this machine; choose another with --listen"
            }
            _ => return Failure::new(format!("{address} cannot be listened on: {error}")),
        };
        Failure::new(format!("{address} {advice}"))
    })
}

/// Is ready at the first signal to stop; a second one ends at once.
fn stop() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let failed = |error| Failure::new(format!("signals cannot be waited for: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let (sender, receiver) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut sender = Some(sender);
        loop {
            let number = tokio::select! {
                _ = interrupt.recv() => 2,
                _ = terminate.recv() => 15,
            };
            match sender.take() {
                Some(sender) => {
                    tracing::info!("stopping; once more to stop at once");
                    let _ = sender.send(());
                }
                None => std::process::exit(128 + number),
            }
        }
    });
    Ok(async move {
        let _ = receiver.await;
    })
}

fn read_strictly(files: &[PathBuf]) -> Result<Vec<KeyFile>, Failure> {
    let mut read = Vec::new();
    for path in files {
        let file = KeyFile::read_strictly(path)?;
        if file.exposed {
            tracing::warn!(file = %path.display(), "others can read this key file; chmod 600 it");
        }
        if file.keys.is_empty() {
            tracing::warn!(file = %path.display(), "this key file holds no key");
        }
        read.push(file);
    }
    Ok(read)
}

fn digests(files: &[KeyFile]) -> Vec<KeyDigest> {
    let keys = files.iter().flat_map(|file| &file.keys);
    keys.map(|key| KeyDigest::of(key.expose().as_bytes())).collect()
}

/// Reads the key files again whenever they change. They are small: reading them tells a change
/// that a coarse modification time would hide.
async fn watch(files: Vec<PathBuf>, mut last: Vec<Result<KeyFile, String>>, keys: Keys) {
    loop {
        tokio::time::sleep(KEY_FILES_EVERY).await;
        let now = read_leniently(&files);
        if last == now {
            continue;
        }
        last = now;
        let admitted: Vec<KeyFile> = last.iter().filter_map(|file| file.clone().ok()).collect();
        keys.replace(digests(&admitted));
        let count: usize = admitted.iter().map(|file| file.keys.len()).sum();
        tracing::info!(keys = count, "key files read again");
        for (path, file) in files.iter().zip(&last) {
            let path = path.display();
            match file {
                Ok(file) => {
                    for (line, why) in &file.bad {
                        tracing::warn!(file = %path, line, "this line is no key: {why}");
                    }
                }
                // Fail closed: what cannot be read admits nobody.
                Err(why) => tracing::warn!(file = %path, "this key file admits nobody: {why}"),
            }
        }
        if count == 0 {
            tracing::warn!("no key is left: nobody is admitted");
        }
    }
}

fn read_leniently(files: &[PathBuf]) -> Vec<Result<KeyFile, String>> {
    files.iter().map(|path| KeyFile::read(path).map_err(|error| error.to_string())).collect()
}
