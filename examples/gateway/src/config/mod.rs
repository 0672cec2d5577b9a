//! Settings: flags before variables before the config file before defaults, each with its origin.

pub(crate) mod channel;
pub(crate) mod file;
pub(crate) mod sandbox;
pub(crate) mod show;

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use crate::cli::{DEFAULT_LISTEN, ServeFlags, StateFlags};
use crate::failure::Failure;
use crate::keys;
use channel::ChannelSettings;
use file::{File, MetricsPage, Tls};
use sandbox::{Place, Sandbox};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A flag or its variable; clap knows which.
    Given,
    /// A variable that has no flag.
    Variable(&'static str),
    /// The config file, with the line.
    File {
        path: PathBuf,
        line: usize,
    },
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => f.write_str("given"),
            Self::Variable(name) => f.write_str(name),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Setting<T> {
    const fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }
}

/// All that `triwire serve` is told.
#[derive(Clone, Debug)]
pub(crate) struct ServeSettings {
    pub(crate) config: Option<PathBuf>,
    pub(crate) state: Setting<PathBuf>,
    pub(crate) listen: Setting<SocketAddr>,
    pub(crate) hosts: Setting<Vec<String>>,
    /// In the order of the file; never empty.
    pub(crate) key_files: Vec<Setting<PathBuf>>,
    pub(crate) tls: Option<Setting<Tls>>,
    pub(crate) behind_proxy: Setting<bool>,
    pub(crate) metrics: Setting<MetricsPage>,
    /// None where the channel is off.
    pub(crate) channel: Option<ChannelSettings>,
    /// By name; never empty.
    pub(crate) sandboxes: Vec<Setting<Sandbox>>,
}

impl ServeSettings {
    /// Brings flags, variables, the config file and defaults together, without touching the disk
    /// but for reading the file.
    pub(crate) fn resolve(flags: &ServeFlags) -> Result<Self, Failure> {
        let file = match &flags.config {
            Some(path) => File::read(path)?,
            None => File::default(),
        };
        let state = state(&flags.state)?;
        let listen = match (&flags.listen, &file.listen) {
            (Some(text), _) => Setting::new(
                address(text).map_err(|why| Failure::new(format!("--listen: {why}")))?,
                Origin::Given,
            ),
            (None, Some(listen)) => Setting::new(
                address(&listen.value).map_err(|why| file.wrong(listen, "listen", why))?,
                file.origin(listen),
            ),
            (None, None) => {
                Setting::new(address(DEFAULT_LISTEN).map_err(Failure::new)?, Origin::Default)
            }
        };
        if flags.config.is_none() && !listen.value.ip().is_loopback() {
            return Err(Failure::new(format!(
                "{} is reachable from other machines: write a config file with its hosts and [tls], \
                 or behind_proxy = true where a proxy before it speaks TLS, and start with \
                 --config FILE",
                listen.value
            )));
        }
        let hosts = match &file.hosts {
            Some(hosts) => Setting::new(hosts.value.clone(), file.origin(hosts)),
            None => Setting::new(Vec::new(), Origin::Default),
        };
        let mut key_files: Vec<_> = file
            .key_files
            .iter()
            .map(|path| Setting::new(path.value.clone(), file.origin(path)))
            .collect();
        if key_files.is_empty() {
            key_files.push(Setting::new(keys::default_file(&state.value), Origin::Default));
        }
        let tls = file.tls.as_ref().map(|tls| Setting::new(tls.value.clone(), file.origin(tls)));
        let behind_proxy = match &file.behind_proxy {
            _ if flags.behind_proxy => Setting::new(true, Origin::Given),
            Some(behind) => Setting::new(behind.value, file.origin(behind)),
            None => Setting::new(false, Origin::Default),
        };
        let metrics = file.metrics.as_ref().map_or_else(
            || Setting::new(MetricsPage::default(), Origin::Default),
            |metrics| Setting::new(metrics.value, file.origin(metrics)),
        );
        let mut sandboxes: Vec<_> = file
            .sandboxes
            .iter()
            .map(|sandbox| Setting::new(sandbox.value.clone(), file.origin(sandbox)))
            .collect();
        if sandboxes.is_empty() {
            let root = state.value.join("sandboxes").join("local");
            let place = Place::Process { root, inherit_env: false };
            let local = Sandbox { name: "local".into(), place };
            sandboxes.push(Setting::new(local, Origin::Default));
        }
        let has_executor = sandboxes.iter().any(|sandbox| sandbox.value.place.executor().is_some());
        let channel = (file.channel.is_some() || has_executor)
            .then(|| {
                ChannelSettings::resolve(&file, &state, tls.is_some(), |name| {
                    std::env::var_os(name)
                })
            })
            .transpose()?;
        Ok(Self {
            config: flags.config.clone(),
            state,
            listen,
            hosts,
            key_files,
            tls,
            behind_proxy,
            metrics,
            channel,
            sandboxes,
        })
    }
}

/// Finds the state folder.
pub(crate) fn state(flags: &StateFlags) -> Result<Setting<PathBuf>, Failure> {
    if let Some(path) = &flags.state {
        let path = std::path::absolute(path)
            .map_err(|error| Failure::new(format!("--state {}: {error}", path.display())))?;
        return Ok(Setting::new(path, Origin::Given));
    }
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_STATE_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local").join("state")))
        .ok_or_else(|| Failure::new("HOME is not set: say where to keep state with --state DIR"))?;
    Ok(Setting::new(base.join("triwire"), Origin::Default))
}

/// Reads an address to listen on; a name may stand for this machine only.
fn address(text: &str) -> Result<SocketAddr, String> {
    let expected = || format!("{text:?} is no address; expected one such as {DEFAULT_LISTEN}");
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    match text.rsplit_once(':') {
        Some(("localhost", _)) => {
            text.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(expected)
        }
        _ => Err(expected()),
    }
}

/// Resolves a path of the config file against the folder that the file stands in.
fn beside(file: &Path, path: &Path) -> PathBuf {
    let path = file.parent().unwrap_or(Path::new("")).join(path);
    std::path::absolute(&path).unwrap_or(path)
}
