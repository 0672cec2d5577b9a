//! The config file, in TOML: every fault is told with file, line, column and field.
//!
//! ```toml
//! listen = "127.0.0.1:7878"
//! hosts = ["gateway.example"]
//! key_file = "keys"          # or key_files = ["keys", "more-keys"]
//!
//! behind_proxy = false
//! metrics = "keyed"          # or "open", "off"
//!
//! [tls]
//! cert = "cert.pem"
//! key = "key.pem"
//!
//! [channel]                  # its members: the module `channel`
//! page = true
//!
//! [sandboxes.build]
//! root = "/srv/build"
//! inherit_env = false
//!
//! [sandboxes.vm]             # the kinds and their fields: the module `sandbox`
//! kind = "tcp"
//! address = "10.0.0.2:7878"
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use triwire::channel::hello::HelloBound;

use super::channel::{self, ChannelTable};
use super::sandbox::{Place, Sandbox, Table, Wrong};
use super::{Origin, beside};
use crate::failure::Failure;

/// A value and the line it stands on, counted from 1, with its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located<T> {
    pub(crate) value: T,
    line: usize,
    column: usize,
}

/// A config file that was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    path: PathBuf,
    pub(crate) listen: Option<Located<String>>,
    pub(crate) hosts: Option<Located<Vec<String>>>,
    pub(crate) key_files: Vec<Located<PathBuf>>,
    pub(crate) tls: Option<Located<Tls>>,
    pub(crate) behind_proxy: Option<Located<bool>>,
    pub(crate) metrics: Option<Located<MetricsPage>>,
    pub(crate) channel: Option<ChannelTable>,
    pub(crate) sandboxes: Vec<Located<Sandbox>>,
}

/// Who may read `GET /metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MetricsPage {
    /// Whoever has a key.
    #[default]
    Keyed,
    /// Whoever reaches the gateway.
    Open,
    /// Nobody: there is no such page.
    Off,
}

impl MetricsPage {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Keyed => "keyed",
            Self::Open => "open",
            Self::Off => "off",
        }
    }
}

/// The files that TLS is spoken with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    /// The certificate chain, the server's own first, in PEM.
    pub(crate) cert: PathBuf,
    /// Its private key, in PEM.
    pub(crate) key: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    listen: Option<Spanned<String>>,
    hosts: Option<Spanned<Vec<Spanned<String>>>>,
    key_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    key_files: Vec<Spanned<PathBuf>>,
    tls: Option<Spanned<Tls>>,
    behind_proxy: Option<Spanned<bool>>,
    metrics: Option<Spanned<MetricsPage>>,
    channel: Option<channel::Table>,
    #[serde(default)]
    sandboxes: BTreeMap<Spanned<String>, Table>,
}

impl File {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let path = path.display();
            Failure::new(format!("the config file {path} cannot be read: {error}"))
        })?;
        Self::parse(path, &text)
    }

    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let tables: Tables = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            let (line, column) = position(text, span.start);
            let message = error.message().trim_end();
            let field = field(text, &span);
            let field = if field.is_empty() { field } else { format!("{field}: ") };
            Failure::new(format!("{}:{line}:{column}: {field}{message}", path.display()))
        })?;
        let mut file = Self { path: path.to_owned(), ..Self::default() };
        file.listen = tables.listen.map(|listen| locate(text, listen));
        file.behind_proxy = tables.behind_proxy.map(|behind| locate(text, behind));
        file.metrics = tables.metrics.map(|metrics| locate(text, metrics));
        file.tls = tables.tls.map(|tls| {
            let mut tls = locate(text, tls);
            tls.value.cert = beside(path, &tls.value.cert);
            tls.value.key = beside(path, &tls.value.key);
            tls
        });
        if let Some(table) = tables.channel {
            file.channel = Some(file.channel_table(text, table)?);
        }
        if let Some(hosts) = tables.hosts {
            let start = hosts.span().start;
            let mut names = Vec::new();
            for host in hosts.into_inner() {
                let host = locate(text, host);
                if host.value.is_empty() || !host.value.bytes().all(|byte| byte.is_ascii_graphic())
                {
                    return Err(file.wrong(
                        &host,
                        "hosts",
                        "expected a name such as gateway.example",
                    ));
                }
                names.push(host.value);
            }
            let (line, column) = position(text, start);
            file.hosts = Some(Located { value: names, line, column });
        }
        for key_file in tables.key_file.into_iter().chain(tables.key_files) {
            let mut located = locate(text, key_file);
            located.value = beside(path, &located.value);
            file.key_files.push(located);
        }
        for (name, table) in tables.sandboxes {
            let Located { value: name, line, column } = locate(text, name);
            let field = format!("sandboxes.{name}");
            let at = Located { value: (), line, column };
            if !triwire::exec::head::is_sandbox_id(&name) {
                let why = "a sandbox's name is 1 to 64 letters, digits, - and _";
                return Err(file.wrong(&at, &field, why));
            }
            let place = table.place(|path_in| beside(path, path_in)).map_err(|wrong| {
                let Wrong { field: own, at: start, why } = wrong;
                let field = if own.is_empty() { field.clone() } else { format!("{field}.{own}") };
                let at = start.map_or(at.clone(), |start| {
                    let (line, column) = position(text, start);
                    Located { value: (), line, column }
                });
                file.wrong(&at, &field, why)
            })?;
            if let Some(other) =
                file.sandboxes.iter().find(|other| shares(&other.value.place, &place))
            {
                let why = format!(
                    "{place} is the sandbox {}'s; one serial device is one sandbox",
                    other.value.name
                );
                return Err(file.wrong(&at, &format!("{field}.device"), why));
            }
            if let Some(executor) = place.executor()
                && let Some(other) = file
                    .sandboxes
                    .iter()
                    .find(|other| other.value.place.executor() == Some(executor))
            {
                let other = &other.value.name;
                let why = format!("{executor} is the sandbox {other}'s; name another");
                return Err(file.wrong(&at, &format!("{field}.executor"), why));
            }
            file.sandboxes.push(Located { value: Sandbox { name, place }, line, column });
        }
        Ok(file)
    }

    fn channel_table(&self, text: &str, table: channel::Table) -> Result<ChannelTable, Failure> {
        let hello_bound = match table.hello_bound_ms {
            Some(millis) => {
                let Located { value, line, column } = locate(text, millis);
                let at = Located { value: (), line, column };
                let bound = HelloBound::from_millis(value)
                    .map_err(|error| self.wrong(&at, "channel.hello_bound_ms", error))?;
                Some(Located { value: bound, line, column })
            }
            None => None,
        };
        Ok(ChannelTable {
            page: table.page.map(|page| locate(text, page)),
            loopback_auth: table.loopback_auth.map(|on| locate(text, on)),
            patience_ms: table.patience_ms.map(|millis| locate(text, millis)),
            hello_bound,
            extensions_dir: table.extensions_dir.map(|folder| {
                let mut folder = locate(text, folder);
                folder.value = beside(&self.path, &folder.value);
                folder
            }),
        })
    }

    /// Says what is wrong with a value of this file.
    pub(crate) fn wrong<T>(
        &self,
        at: &Located<T>,
        field: &str,
        why: impl std::fmt::Display,
    ) -> Failure {
        let path = self.path.display();
        Failure::new(format!("{path}:{}:{}: {field}: {why}", at.line, at.column))
    }

    pub(crate) fn origin<T>(&self, at: &Located<T>) -> Origin {
        Origin::File { path: self.path.clone(), line: at.line }
    }
}

/// Reports whether two sandboxes would keep each other from a serial device.
fn shares(one: &Place, other: &Place) -> bool {
    let real = |place: &Place| match place {
        Place::Serial { device, .. } => {
            Some(device.canonicalize().unwrap_or_else(|_| device.clone()))
        }
        _ => None,
    };
    real(one).is_some_and(|device| Some(device) == real(other))
}

fn locate<T>(text: &str, spanned: Spanned<T>) -> Located<T> {
    let (line, column) = position(text, spanned.span().start);
    Located { value: spanned.into_inner(), line, column }
}

/// Counts lines and columns from 1, columns in characters.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Names the field whose value holds `span`, as `sandboxes.build.root`; empty when none does.
fn field(text: &str, span: &Range<usize>) -> String {
    let path = DeTable::parse(text).ok().and_then(|root| path(root.get_ref(), span));
    path.unwrap_or_default()
}

fn path(table: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
    table.iter().find_map(|(name, value)| {
        let inner = match value.get_ref() {
            DeValue::Table(inner) => path(inner, span),
            _ => None,
        };
        let own = value.span();
        let below = match inner {
            Some(inner) => format!(".{inner}"),
            None if own.start <= span.start && span.end <= own.end => String::new(),
            // An unknown name is told by the fault itself; its table is what is missing there.
            None => match value.get_ref() {
                DeValue::Table(inner) if inner.keys().any(|name| name.span() == *span) => {
                    String::new()
                }
                _ => return None,
            },
        };
        Some(format!("{}{below}", name.get_ref()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sandbox::Link;

    fn refused(text: &str) -> String {
        File::parse(Path::new("t.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn faults_name_line_and_field() {
        let cases = [
            (
                "metrics = \"all\"\n",
                "t.toml:1:11: metrics: unknown variant `all`, expected one of `keyed`, `open`, `off`",
            ),
            ("listen = 5\n", "t.toml:1:10: listen: "),
            ("\nlisten = \"x\"\nport = 1\n", "t.toml:3:1: unknown field `port`"),
            ("hosts = [\"a\", 3]\n", "t.toml:1:15: hosts: "),
            ("hosts = [\"a\", \"\"]\n", "t.toml:1:15: hosts: "),
            (
                "[sandboxes.a]\nroot = \"/\"\ninherit_env = 1\n",
                "t.toml:3:15: sandboxes.a.inherit_env: ",
            ),
            (
                "[sandboxes.a]\nroot = \"/\"\nrooot = 1\n",
                "t.toml:3:1: sandboxes.a: unknown field `rooot`",
            ),
            (
                "[sandboxes.a]\ninherit_env = true\n",
                "t.toml:1:12: sandboxes.a: missing field `root`, which kind = \"process\" needs",
            ),
            (
                "[sandboxes.a]\nkind = \"vm\"\n",
                "t.toml:2:8: sandboxes.a.kind: unknown variant `vm`, expected one of `process`",
            ),
            (
                "[sandboxes.a]\nkind = \"tcp\"\n",
                "t.toml:1:12: sandboxes.a: missing field `address`, which kind = \"tcp\" needs",
            ),
            (
                "[sandboxes.a]\nkind = \"tcp\"\naddress = \"10.0.0.2\"\n",
                "t.toml:3:11: sandboxes.a.address: expected a name or an IP address with a port",
            ),
            (
                "[sandboxes.a]\nkind = \"tcp\"\naddress = \"a b:1\"\n",
                "t.toml:3:11: sandboxes.a.address: expected a name",
            ),
            (
                "[sandboxes.a]\nkind = \"unix\"\nsocket = \"s\"\nroot = \"/\"\n",
                "t.toml:4:8: sandboxes.a.root: a sandbox of kind \"unix\" has none; remove it, \
                 or say kind = \"process\"",
            ),
            (
                "[sandboxes.a]\nroot = \"/\"\npath = \"/exec\"\n",
                "t.toml:3:8: sandboxes.a.path: a sandbox of kind \"process\" has none",
            ),
            (
                "[sandboxes.a]\nkind = \"unix\"\nsocket = \"s\"\npath = \"exec\"\n",
                "t.toml:4:8: sandboxes.a.path: the path is malformed",
            ),
            (
                "[sandboxes.a]\nkind = \"unix\"\nsocket = \"s\"\npath = \"\"\n",
                "t.toml:4:8: sandboxes.a.path: the path is malformed",
            ),
            (
                "[sandboxes.a]\nkind = \"serial\"\ndevice = \"/d\"\nspeed = 0\n",
                "t.toml:4:9: sandboxes.a.speed: expected bits per second",
            ),
            (
                "[sandboxes.a]\nkind = \"serial\"\ndevice = \"/d\"\nspeed = \"fast\"\n",
                "t.toml:4:9: sandboxes.a.speed: ",
            ),
            (
                "[sandboxes.a]\nkind = \"serial\"\ndevice = \"/d\"\n\
                 [sandboxes.b]\nkind = \"serial\"\ndevice = \"/d\"\n",
                "t.toml:4:12: sandboxes.b.device: serial /d is the sandbox a's",
            ),
            (
                "[sandboxes.a]\nkind = \"serial\"\ndevice = \"/d\"\nexecutor = \"page\"\n",
                "t.toml:4:12: sandboxes.a.executor: expected the name that calls are made by",
            ),
            (
                "[sandboxes.a]\nkind = \"serial\"\ndevice = \"/d\"\nexecutor = \"m\"\n\
                 [sandboxes.b]\nkind = \"serial\"\ndevice = \"/e\"\nexecutor = \"m\"\n",
                "t.toml:5:12: sandboxes.b.executor: m is the sandbox a's",
            ),
            (
                "[sandboxes.a]\nroot = \"/\"\nexecutor = \"m\"\n",
                "t.toml:3:12: sandboxes.a.executor: a sandbox of kind \"process\" has none",
            ),
            ("[sandboxes.\"a b\"]\nroot = \"/\"\n", "t.toml:1:12: sandboxes.a b: "),
            ("[sandboxes.a]\nroot = \"/no/such/folder\"\n", "t.toml:2:8: sandboxes.a.root: "),
            ("listen = \"x\"\nlisten = \"y\"\n", "t.toml:2:1: "),
            ("listen = \n", "t.toml:1:10: "),
        ];
        for (text, expected) in cases {
            let got = refused(text);
            assert!(got.starts_with(expected), "{text:?}\n  expected {expected}\n  got      {got}");
        }
    }

    #[test]
    fn paths_stand_beside_the_file() {
        let text = "key_file = \"k\"\nkey_files = [\"/m\"]\n[sandboxes.a]\nroot = \"/\"\n";
        let file = File::parse(Path::new("/etc/t.toml"), text).unwrap();
        let paths: Vec<_> = file.key_files.iter().map(|path| path.value.as_path()).collect();
        assert_eq!(paths, [Path::new("/etc/k"), Path::new("/m")]);
        assert_eq!(file.sandboxes[0].value.name, "a");
    }

    #[test]
    fn each_kind_is_read_with_its_fields() {
        let text = "[sandboxes.a]\nkind = \"tcp\"\naddress = \"vm:7878\"\nkey_file = \"k\"\n\
                    [sandboxes.b]\nkind = \"unix\"\nsocket = \"s\"\npath = \"/v1/exec\"\n\
                    [sandboxes.c]\nkind = \"serial\"\ndevice = \"/dev/ttyUSB0\"\n\
                    speed = 921600\nflow_control = true\nexecutor = \"mcu\"\n";
        let file = File::parse(Path::new("/etc/t.toml"), text).unwrap();
        let places: Vec<_> = file.sandboxes.iter().map(|sandbox| &sandbox.value.place).collect();
        let link = Link { path: None, key_file: Some("/etc/k".into()) };
        assert_eq!(places[0], &Place::Tcp { address: "vm:7878".into(), link });
        let link = Link { path: Some("/v1/exec".into()), key_file: None };
        assert_eq!(places[1], &Place::Unix { socket: "/etc/s".into(), link });
        let serial = Place::Serial {
            device: "/dev/ttyUSB0".into(),
            speed: Some(921_600),
            flow_control: true,
            link: Link::default(),
            executor: Some("mcu".into()),
        };
        assert_eq!(places[2], &serial);
    }
}
