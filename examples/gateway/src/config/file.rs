//! The config file, in TOML: every fault is told with file, line, column and field.
//!
//! ```toml
//! listen = "127.0.0.1:7878"
//! hosts = ["gateway.example"]
//! key_file = "keys"          # or key_files = ["keys", "more-keys"]
//!
//! [sandboxes.build]
//! root = "/srv/build"
//! inherit_env = false
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Origin, Sandbox, beside};
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
    pub(crate) sandboxes: Vec<Located<Sandbox>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    listen: Option<Spanned<String>>,
    hosts: Option<Spanned<Vec<Spanned<String>>>>,
    key_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    key_files: Vec<Spanned<PathBuf>>,
    #[serde(default)]
    sandboxes: BTreeMap<Spanned<String>, SandboxTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SandboxTable {
    root: Spanned<PathBuf>,
    #[serde(default)]
    inherit_env: bool,
}

impl File {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let path = path.display();
            Failure::new(format!("the config file {path} cannot be read: {error}"))
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
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
            let root = locate(text, table.root);
            let folder = beside(path, &root.value);
            if !folder.is_dir() {
                let why = format!("{} is no folder; make it, or name another", folder.display());
                return Err(file.wrong(&root, &format!("{field}.root"), why));
            }
            let value = Sandbox { name, root: folder, inherit_env: table.inherit_env };
            file.sandboxes.push(Located { value, line, column });
        }
        Ok(file)
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

    fn refused(text: &str) -> String {
        File::parse(Path::new("t.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn faults_name_line_and_field() {
        let cases = [
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
                "t.toml:1:1: sandboxes.a: missing field `root`",
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
}
