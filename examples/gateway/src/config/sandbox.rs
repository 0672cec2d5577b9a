//! A sandbox of the config file: where its commands run, and how that place is reached.
//!
//! | `kind` | must have | may have |
//! | --- | --- | --- |
//! | `"process"`, the default | `root` | `inherit_env` |
//! | `"tcp"` | `address` | `path`, `key_file` |
//! | `"unix"` | `socket` | `path`, `key_file` |
//! | `"serial"` | `device` | `speed`, `flow_control`, `path`, `key_file`, `executor` |

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use triwire::channel::route::{MAX_ENV_KEY, PAGE_EXECUTOR, is_env_key};
use triwire::exec::head::{Mode, RequestHead};

/// Room for a head without a key.
const HEAD: usize = 16 * 1024;

/// A place to run commands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sandbox {
    pub(crate) name: String,
    pub(crate) place: Place,
}

/// Where a sandbox's commands run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Processes of this machine.
    Process { root: PathBuf, inherit_env: bool },
    /// Behind a TCP address that speaks the hijacked transport.
    Tcp { address: String, link: Link },
    /// Behind a unix socket that does.
    Unix { socket: PathBuf, link: Link },
    /// On a device at a serial port, which may answer the calls to an executor as well.
    Serial {
        device: PathBuf,
        speed: Option<u32>,
        flow_control: bool,
        link: Link,
        executor: Option<String>,
    },
}

/// How commands are asked for at the other end of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// None is the guest's default.
    pub(crate) path: Option<String>,
    pub(crate) key_file: Option<PathBuf>,
}

impl Place {
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Process { .. } => Kind::Process,
            Self::Tcp { .. } => Kind::Tcp,
            Self::Unix { .. } => Kind::Unix,
            Self::Serial { .. } => Kind::Serial,
        }
    }

    /// Returns the executor that the place is offered as.
    pub(crate) fn executor(&self) -> Option<&str> {
        match self {
            Self::Serial { executor, .. } => executor.as_deref(),
            _ => None,
        }
    }

    pub(crate) const fn link(&self) -> Option<&Link> {
        match self {
            Self::Process { .. } => None,
            Self::Tcp { link, .. } | Self::Unix { link, .. } | Self::Serial { link, .. } => {
                Some(link)
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { root, .. } => write!(f, "{}", root.display()),
            Self::Tcp { address, .. } => write!(f, "tcp {address}"),
            Self::Unix { socket, .. } => write!(f, "unix {}", socket.display()),
            Self::Serial { device, .. } => write!(f, "serial {}", device.display()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[default]
    Process,
    Tcp,
    Unix,
    Serial,
}

impl Kind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::Serial => "serial",
        }
    }
}

/// The table as it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    #[serde(default)]
    kind: Kind,
    root: Option<Spanned<PathBuf>>,
    inherit_env: Option<Spanned<bool>>,
    address: Option<Spanned<String>>,
    socket: Option<Spanned<PathBuf>>,
    device: Option<Spanned<PathBuf>>,
    speed: Option<Spanned<u32>>,
    flow_control: Option<Spanned<bool>>,
    executor: Option<Spanned<String>>,
    path: Option<Spanned<String>>,
    key_file: Option<Spanned<PathBuf>>,
}

/// What is wrong with a table: with which field, where in the text when not in its name, and why.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) field: &'static str,
    pub(super) at: Option<usize>,
    pub(super) why: String,
}

impl Table {
    /// Finds the place; `beside` resolves a path against the file's folder.
    pub(super) fn place(self, beside: impl Fn(&Path) -> PathBuf) -> Result<Place, Wrong> {
        let kind = self.kind;
        self.refuse_others()?;
        Ok(match kind {
            Kind::Process => {
                let root = needed(self.root, "root", kind)?;
                let folder = beside(root.get_ref());
                if !folder.is_dir() {
                    let why =
                        format!("{} is no folder; make it, or name another", folder.display());
                    return Err(wrong("root", &root, why));
                }
                let inherit_env = self.inherit_env.is_some_and(Spanned::into_inner);
                Place::Process { root: folder, inherit_env }
            }
            Kind::Tcp => {
                let address = needed(self.address, "address", kind)?;
                let port = address.get_ref().rsplit_once(':').map(|(_, port)| port.parse::<u16>());
                if !matches!(port, Some(Ok(1..))) || head(address.get_ref(), "").is_err() {
                    let why = "expected a name or an IP address with a port, as 10.0.0.2:7878";
                    return Err(wrong("address", &address, why));
                }
                let link = link(self.path, self.key_file, beside)?;
                Place::Tcp { address: address.into_inner(), link }
            }
            Kind::Unix => {
                let socket = beside(needed(self.socket, "socket", kind)?.get_ref());
                Place::Unix { socket, link: link(self.path, self.key_file, beside)? }
            }
            Kind::Serial => {
                let device = beside(needed(self.device, "device", kind)?.get_ref());
                if let Some(speed) = self.speed.as_ref().filter(|speed| *speed.get_ref() == 0) {
                    return Err(wrong("speed", speed, "expected bits per second, as 115200"));
                }
                let executor = self.executor;
                if let Some(name) =
                    executor.as_ref().filter(|name| !is_env_key(name.get_ref().as_str().into()))
                {
                    let why = format!(
                        "expected the name that calls are made by: 1 to {MAX_ENV_KEY} bytes, and \
                         not {PAGE_EXECUTOR}, which is the browser's"
                    );
                    return Err(wrong("executor", name, why));
                }
                Place::Serial {
                    device,
                    speed: self.speed.map(Spanned::into_inner),
                    flow_control: self.flow_control.is_some_and(Spanned::into_inner),
                    link: link(self.path, self.key_file, beside)?,
                    executor: executor.map(Spanned::into_inner),
                }
            }
        })
    }

    /// Refuses what belongs to other kinds: it would have no effect.
    fn refuse_others(&self) -> Result<(), Wrong> {
        use Kind::{Process, Serial, Tcp, Unix};
        let fields: [(&'static str, Option<usize>, &[Kind]); 10] = [
            ("root", start(&self.root), &[Process]),
            ("inherit_env", start(&self.inherit_env), &[Process]),
            ("address", start(&self.address), &[Tcp]),
            ("socket", start(&self.socket), &[Unix]),
            ("device", start(&self.device), &[Serial]),
            ("speed", start(&self.speed), &[Serial]),
            ("flow_control", start(&self.flow_control), &[Serial]),
            ("executor", start(&self.executor), &[Serial]),
            ("path", start(&self.path), &[Tcp, Unix, Serial]),
            ("key_file", start(&self.key_file), &[Tcp, Unix, Serial]),
        ];
        for (field, at, kinds) in fields {
            if at.is_some() && !kinds.contains(&self.kind) {
                let kinds: Vec<_> =
                    kinds.iter().map(|kind| format!("{:?}", kind.as_str())).collect();
                let own = self.kind.as_str();
                let why = format!(
                    "a sandbox of kind {own:?} has none; remove it, or say kind = {}",
                    kinds.join(" or ")
                );
                return Err(Wrong { field, at, why });
            }
        }
        Ok(())
    }
}

fn start<T>(field: &Option<Spanned<T>>) -> Option<usize> {
    field.as_ref().map(|field| field.span().start)
}

fn needed<T>(
    field: Option<Spanned<T>>,
    name: &'static str,
    kind: Kind,
) -> Result<Spanned<T>, Wrong> {
    field.ok_or_else(|| Wrong {
        field: "",
        at: None,
        why: format!("missing field `{name}`, which kind = {:?} needs", kind.as_str()),
    })
}

fn wrong<T>(field: &'static str, at: &Spanned<T>, why: impl fmt::Display) -> Wrong {
    Wrong { field, at: Some(at.span().start), why: why.to_string() }
}

fn link(
    path: Option<Spanned<String>>,
    key_file: Option<Spanned<PathBuf>>,
    beside: impl Fn(&Path) -> PathBuf,
) -> Result<Link, Wrong> {
    if let Some(path) = &path {
        let is_empty = path.get_ref().is_empty();
        if let Err(error) = head("localhost", if is_empty { "none" } else { path.get_ref() }) {
            return Err(wrong("path", path, error));
        }
    }
    Ok(Link {
        path: path.map(Spanned::into_inner),
        key_file: key_file.map(|file| beside(file.get_ref())),
    })
}

/// Writes the head that commands would be asked for with.
fn head(host: &str, path: &str) -> Result<(), triwire::exec::head::HeadError> {
    let mode = Mode::Hijack;
    let head =
        RequestHead { mode, sandbox: "guest", host, bearer: None, content_length: Some(0), path };
    head.write(&mut [0; HEAD]).map(|_| ())
}
