//! The table `[channel]`, and the variables that win over it.
//!
//! | member | variable |
//! | --- | --- |
//! | `page` | |
//! | `loopback_auth` | `VOICEBOX_LOOPBACK_AUTH` |
//! | `patience_ms` | |
//! | `hello_bound_ms` | `VOICEBOX_HELLO_BOUND_MS` |
//! | `extensions_dir` | `VOICEBOX_EXTENSIONS_DIR` |

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use triwire::channel::broker::DEFAULT_PATIENCE;
use triwire::channel::hello::HelloBound;

use super::file::{File, Located};
use super::{Origin, Setting};
use crate::failure::Failure;

const LOOPBACK_AUTH: &str = "VOICEBOX_LOOPBACK_AUTH";
const HELLO_BOUND: &str = "VOICEBOX_HELLO_BOUND_MS";
const EXTENSIONS_DIR: &str = "VOICEBOX_EXTENSIONS_DIR";

/// The longest that calls may wait for their answers, in ms.
const MAX_PATIENCE_MS: u32 = 600_000;

/// How the channel is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChannelSettings {
    /// Whether there is a page at `/`.
    pub(crate) page: Setting<bool>,
    /// Whether local pages show a session.
    pub(crate) loopback_auth: Setting<bool>,
    /// How long calls wait for their answers, and may ask to.
    pub(crate) patience: Setting<Duration>,
    pub(crate) hello_bound: Setting<HelloBound>,
    /// Where the pairings and the host token are.
    pub(crate) extensions_dir: Setting<PathBuf>,
}

/// The table as it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    pub(super) page: Option<Spanned<bool>>,
    pub(super) loopback_auth: Option<Spanned<bool>>,
    pub(super) patience_ms: Option<Spanned<u32>>,
    pub(super) hello_bound_ms: Option<Spanned<u32>>,
    pub(super) extensions_dir: Option<Spanned<PathBuf>>,
}

/// The table, with the places of its values.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChannelTable {
    pub(super) page: Option<Located<bool>>,
    pub(super) loopback_auth: Option<Located<bool>>,
    pub(super) patience_ms: Option<Located<u32>>,
    pub(super) hello_bound: Option<Located<HelloBound>>,
    pub(super) extensions_dir: Option<Located<PathBuf>>,
}

impl ChannelSettings {
    /// Brings the variables, the file's table and the defaults together; `state` is the state
    /// folder. Browsers reach the page over plain HTTP only, so with `tls` there is none.
    pub(super) fn resolve(
        file: &File,
        state: &Setting<PathBuf>,
        has_tls: bool,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Failure> {
        let table = file.channel.clone().unwrap_or_default();
        let page = match table.page {
            Some(page) if page.value && has_tls => {
                let why = "the page takes its chair over plain HTTP; remove it, or [tls]";
                return Err(file.wrong(&page, "channel.page", why));
            }
            Some(page) => Setting::new(page.value, file.origin(&page)),
            None => Setting::new(!has_tls, Origin::Default),
        };
        // rule: CHAN-90
        let loopback_auth = match (variable(LOOPBACK_AUTH), table.loopback_auth) {
            (Some(text), _) => Setting::new(text == "1", Origin::Variable(LOOPBACK_AUTH)),
            (None, Some(on)) => Setting::new(on.value, file.origin(&on)),
            (None, None) => Setting::new(false, Origin::Default),
        };
        let patience = match table.patience_ms {
            Some(millis) if !(1..=MAX_PATIENCE_MS).contains(&millis.value) => {
                let why = format!("expected a whole number of ms from 1 to {MAX_PATIENCE_MS}");
                return Err(file.wrong(&millis, "channel.patience_ms", why));
            }
            Some(millis) => {
                let patience = Duration::from_millis(millis.value.into());
                Setting::new(patience, file.origin(&millis))
            }
            None => Setting::new(DEFAULT_PATIENCE, Origin::Default),
        };
        let hello_bound = match (variable(HELLO_BOUND), table.hello_bound) {
            (Some(text), _) => {
                let bound = HelloBound::parse(&text.to_string_lossy())
                    .map_err(|error| Failure::new(format!("{HELLO_BOUND}: {error}")))?;
                Setting::new(bound, Origin::Variable(HELLO_BOUND))
            }
            (None, Some(bound)) => Setting::new(bound.value, file.origin(&bound)),
            (None, None) => Setting::new(HelloBound::default(), Origin::Default),
        };
        // An empty path is the folder that the gateway happens to run in: nobody means that.
        let folder = variable(EXTENSIONS_DIR).filter(|folder| !folder.is_empty());
        let extensions_dir = match (folder, table.extensions_dir) {
            (Some(folder), _) => {
                let folder = std::path::absolute(&folder).map_err(|error| {
                    Failure::new(format!("{EXTENSIONS_DIR} {}: {error}", folder.display()))
                })?;
                Setting::new(folder, Origin::Variable(EXTENSIONS_DIR))
            }
            (None, Some(folder)) => Setting::new(folder.value.clone(), file.origin(&folder)),
            (None, None) => state.clone(),
        };
        Ok(Self { page, loopback_auth, patience, hello_bound, extensions_dir })
    }
}

/// Returns the folder that a client on this machine finds the host token in, unless it is told.
pub(crate) fn extensions_dir(state: PathBuf) -> PathBuf {
    let folder = std::env::var_os(EXTENSIONS_DIR).filter(|folder| !folder.is_empty());
    folder.map_or(state, PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn resolve(text: &str, variables: &[(&str, &str)]) -> Result<ChannelSettings, String> {
        let file =
            File::parse(Path::new("/etc/t.toml"), text).map_err(|error| error.to_string())?;
        let state = Setting::new("/state".into(), Origin::Default);
        let variable = |name: &str| {
            variables.iter().find(|(own, _)| *own == name).map(|(_, value)| value.into())
        };
        ChannelSettings::resolve(&file, &state, file.tls.is_some(), variable)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_file_and_variables() {
        let settings = resolve("[channel]\n", &[]).unwrap();
        assert!(settings.page.value && !settings.loopback_auth.value);
        assert_eq!(settings.hello_bound.value, HelloBound::default());
        assert_eq!(settings.patience.value, DEFAULT_PATIENCE);
        assert_eq!(settings.extensions_dir.value, Path::new("/state"));

        let text = "[channel]\npage = false\nloopback_auth = true\nhello_bound_ms = 70\n\
                    patience_ms = 600000\nextensions_dir = \"e\"\n";
        let settings = resolve(text, &[]).unwrap();
        assert!(!settings.page.value && settings.loopback_auth.value);
        assert_eq!(settings.hello_bound.value, HelloBound::parse("70").unwrap());
        assert_eq!(settings.extensions_dir.value, Path::new("/etc/e"));
        assert_eq!(settings.patience.value, Duration::from_secs(600));
        assert_eq!(settings.loopback_auth.origin.to_string(), "/etc/t.toml:3");

        let variables = [(HELLO_BOUND, "80"), (EXTENSIONS_DIR, "/other"), (LOOPBACK_AUTH, "0")];
        let settings = resolve(text, &variables).unwrap();
        assert!(!settings.loopback_auth.value);
        assert_eq!(settings.hello_bound.value, HelloBound::parse("80").unwrap());
        assert_eq!(settings.extensions_dir.value, Path::new("/other"));
        assert_eq!(settings.extensions_dir.origin.to_string(), EXTENSIONS_DIR);
    }

    // rule: CHAN-90
    #[test]
    fn only_1_turns_sessions_on() {
        for (text, on) in [("1", true), ("", false), ("true", false), ("01", false), (" 1", false)]
        {
            let settings = resolve("[channel]\n", &[(LOOPBACK_AUTH, text)]).unwrap();
            assert_eq!(settings.loopback_auth.value, on, "{text:?}");
        }
    }

    // rule: CHAN-91
    #[test]
    fn what_cannot_be_is_told_with_its_place() {
        for text in ["0", "600001", "5s", "-1", ""] {
            let error = resolve("[channel]\n", &[(HELLO_BOUND, text)]).unwrap_err();
            assert!(error.starts_with(HELLO_BOUND), "{error}");
        }
        let cases = [
            ("[channel]\nhello_bound_ms = 0\n", "/etc/t.toml:2:18: channel.hello_bound_ms: "),
            ("[channel]\nhello_bound_ms = 600001\n", "/etc/t.toml:2:18: channel.hello_bound_ms: "),
            ("[channel]\npatience_ms = 0\n", "/etc/t.toml:2:15: channel.patience_ms: "),
            ("[channel]\npatience_ms = 600001\n", "/etc/t.toml:2:15: channel.patience_ms: "),
            ("[channel]\npage = 1\n", "/etc/t.toml:2:8: channel.page: "),
            (
                "[tls]\ncert = \"c\"\nkey = \"k\"\n[channel]\npage = true\n",
                "/etc/t.toml:5:8: channel.page: the page takes its chair over plain HTTP",
            ),
        ];
        for (text, expected) in cases {
            let error = resolve(text, &[]).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        let text = "[tls]\ncert = \"c\"\nkey = \"k\"\n[channel]\n";
        assert!(!resolve(text, &[]).unwrap().page.value);
    }
}
