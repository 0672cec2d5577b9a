//! The file of tools: each is a command, the bounds of its calls, and how long it may run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use triwire::channel::bounds::Bounds;
use triwire::exec::request::MAX_TIMEOUT_S;

use crate::failure::Failure;

/// Seconds that a command may run unless its tool says otherwise.
const TIMEOUT_S: u32 = 10;
/// Calls that run at once unless the file says otherwise.
const CONCURRENCY: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tools {
    #[serde(default)]
    root: PathBuf,
    #[serde(default = "concurrency")]
    pub(super) concurrency: usize,
    /// By extension, then by tool.
    pub(super) tools: BTreeMap<String, BTreeMap<String, Tool>>,
}

fn concurrency() -> usize {
    CONCURRENCY
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tool {
    pub(super) command: Vec<String>,
    #[serde(default)]
    bounds: toml::Table,
    #[serde(default = "timeout")]
    pub(super) timeout: u32,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Its output is any text.
    #[serde(default)]
    pub(super) raw: bool,
}

fn timeout() -> u32 {
    TIMEOUT_S
}

impl Tool {
    /// Writes the bounds as calls must echo them.
    pub(super) fn bounds(&self) -> String {
        // Dates apart, which are texts then, TOML's values are JSON's.
        serde_json::to_string(&self.bounds).unwrap_or_default()
    }
}

impl Tools {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::new(format!("the tools {} cannot be read: {error}", path.display()))
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let shown = path.display();
        let mut tools: Self = toml::from_str(text).map_err(|error| {
            let before = text.get(..error.span().unwrap_or_default().start).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            Failure::new(format!("{shown}:{line}: {}", error.message().trim_end()))
        })?;
        let wrong = |field: &str, why: &str| Failure::new(format!("{shown}: {field}: {why}"));
        if tools.concurrency == 0 {
            return Err(wrong("concurrency", "expected at least 1"));
        }
        if tools.tools.values().all(BTreeMap::is_empty) {
            return Err(wrong("tools", "there is none; add [tools.EXTENSION.TOOL]"));
        }
        for (extension, of) in &tools.tools {
            for (name, tool) in of {
                let field = |field: &str| format!("tools.{extension}.{name}.{field}");
                if tool.command.first().is_none_or(String::is_empty) {
                    return Err(wrong(&field("command"), "expected a program and its arguments"));
                }
                if !(1..=MAX_TIMEOUT_S).contains(&tool.timeout) {
                    let why = format!("expected 1 to {MAX_TIMEOUT_S} seconds");
                    return Err(wrong(&field("timeout"), &why));
                }
                Bounds::parse(&tool.bounds())
                    .map_err(|error| wrong(&field("bounds"), &error.to_string()))?;
            }
        }
        tools.root = path.parent().unwrap_or(Path::new("")).join(&tools.root);
        if tools.root.as_os_str().is_empty() {
            tools.root = ".".into();
        }
        Ok(tools)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn find(&self, extension: &str, tool: &str) -> Option<&Tool> {
        self.tools.get(extension)?.get(tool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_tools_is_read_and_its_faults_are_named() {
        let good = "root = \"r\"\n[tools.texts.measure]\ncommand = [\"wc\"]\n\
                    bounds = { hosts = [\"a\"], maxRequests = 3 }\n";
        let tools = Tools::parse(Path::new("/etc/t.toml"), good).unwrap();
        assert_eq!((tools.root(), tools.concurrency), (Path::new("/etc/r"), 4));
        let tool = tools.find("texts", "measure").unwrap();
        assert_eq!(tool.bounds(), r#"{"hosts":["a"],"maxRequests":3}"#);
        assert_eq!((tool.timeout, tool.raw), (10, false));
        let plain = "[tools.a.b]\ncommand = [\"x\"]\n";
        assert_eq!(Tools::parse(Path::new("t.toml"), plain).unwrap().root(), Path::new("."));
        for (text, expected) in [
            ("", "t.toml:1: missing field `tools`"),
            ("[tools]\n", "t.toml: tools: there is none"),
            ("[tools.a.b]\n", "t.toml:1: missing field `command`"),
            ("[tools.a.b]\ncommand = []\n", "t.toml: tools.a.b.command: expected a program"),
            ("[tools.a.b]\ncommand = [\"\"]\n", "t.toml: tools.a.b.command: expected a program"),
            (
                "[tools.a.b]\ncommand = [\"x\"]\ntimeout = 0\n",
                "t.toml: tools.a.b.timeout: expected 1 to",
            ),
            (
                "[tools.a.b]\ncommand = [\"x\"]\nbounds = { maxRequests = -1 }\n",
                "t.toml: tools.a.b.bounds: ",
            ),
            ("[tools.a.b]\ncommand = [\"x\"]\nbonds = 1\n", "t.toml:3: unknown field `bonds`"),
            ("concurrency = 0\n[tools.a.b]\ncommand = [\"x\"]\n", "t.toml: concurrency: "),
        ] {
            let got = Tools::parse(Path::new("t.toml"), text).unwrap_err().to_string();
            assert!(got.starts_with(expected), "{text:?}\n  expected {expected}\n  got      {got}");
        }
    }
}
