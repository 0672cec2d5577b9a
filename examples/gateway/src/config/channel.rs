//! The channel's settings: `[channel]` of the config file, and the variables of existing peers.
//!
//! ```toml
//! [channel]
//! session = false            # VOICEBOX_LOOPBACK_AUTH=1
//! hello_bound_ms = 5000      # VOICEBOX_HELLO_BOUND_MS
//! state = "channel"          # VOICEBOX_EXTENSIONS_DIR
//! ```

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use triwire::channel::hello::HelloBound;

use super::file::{File, Located};
use super::{Origin, Setting};
use crate::failure::Failure;

const SESSION: &str = "VOICEBOX_LOOPBACK_AUTH";
const HELLO_BOUND: &str = "VOICEBOX_HELLO_BOUND_MS";
const STATE: &str = "VOICEBOX_EXTENSIONS_DIR";

/// `[channel]` as it stands in the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    session: Option<Spanned<bool>>,
    hello_bound_ms: Option<Spanned<u32>>,
    state: Option<Spanned<PathBuf>>,
}

/// `[channel]` with its places in the file.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    session: Option<Located<bool>>,
    hello_bound_ms: Option<Located<u32>>,
    state: Option<Located<PathBuf>>,
}

impl Table {
    pub(super) fn locate(self, text: &str, beside: impl Fn(&Path) -> PathBuf) -> Section {
        let state = self.state.map(|state| super::file::locate(text, state));
        Section {
            session: self.session.map(|session| super::file::locate(text, session)),
            hello_bound_ms: self.hello_bound_ms.map(|bound| super::file::locate(text, bound)),
            state: state.map(|mut state| {
                state.value = beside(&state.value);
                state
            }),
        }
    }
}

/// What the channel is told.
#[derive(Clone, Debug)]
pub(crate) struct ChannelSettings {
    /// Local pages need a session.
    pub(crate) session: Setting<bool>,
    pub(crate) hello_bound: Setting<HelloBound>,
    /// Folder of the pairings and of the host token.
    pub(crate) state: Setting<PathBuf>,
}

impl ChannelSettings {
    /// Brings variables, the section and defaults together.
    pub(super) fn resolve(
        section: Option<&Section>,
        file: &File,
        state: &Path,
    ) -> Result<Self, Failure> {
        Self::of(section, file, state, |name| std::env::var(name).ok())
    }

    fn of(
        section: Option<&Section>,
        file: &File,
        state: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let session = match (variable(SESSION), section.and_then(|s| s.session.as_ref())) {
            // On for exactly `1`, as existing peers have it.
            (Some(text), _) => Setting::new(text == "1", Origin::Variable(SESSION)),
            (None, Some(session)) => Setting::new(session.value, file.origin(session)),
            (None, None) => Setting::new(false, Origin::Default),
        };
        let hello_bound =
            match (variable(HELLO_BOUND), section.and_then(|s| s.hello_bound_ms.as_ref())) {
                (Some(text), _) => {
                    let bound = HelloBound::parse(&text);
                    let bound =
                        bound.map_err(|error| Failure::new(format!("{HELLO_BOUND}: {error}")))?;
                    Setting::new(bound, Origin::Variable(HELLO_BOUND))
                }
                (None, Some(millis)) => {
                    let bound = HelloBound::from_millis(millis.value);
                    let bound = bound
                        .map_err(|error| file.wrong(millis, "channel.hello_bound_ms", error))?;
                    Setting::new(bound, file.origin(millis))
                }
                (None, None) => Setting::new(HelloBound::default(), Origin::Default),
            };
        let state = match (variable(STATE), section.and_then(|s| s.state.as_ref())) {
            (Some(path), _) => Setting::new(path.into(), Origin::Variable(STATE)),
            (None, Some(path)) => Setting::new(path.value.clone(), file.origin(path)),
            (None, None) => Setting::new(state.to_owned(), Origin::Default),
        };
        Ok(Self { session, hello_bound, state })
    }
}

/// Returns the folder that a client on this machine finds the host token in, unless it is told.
pub(crate) fn state(state: PathBuf) -> PathBuf {
    std::env::var_os(STATE).map_or(state, PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_come_before_the_file() {
        let text = "[channel]\nsession = true\nhello_bound_ms = 70\nstate = \"c\"\n";
        let file = File::parse(Path::new("/etc/t.toml"), text).unwrap();
        let of = |set: &[(&str, &str)]| {
            let variable = |name: &str| {
                set.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
            };
            let section = file.channel.as_ref().map(|channel| &channel.value);
            ChannelSettings::of(section, &file, Path::new("/state"), variable)
        };
        let plain = of(&[]).unwrap();
        assert!(plain.session.value);
        assert_eq!(plain.hello_bound.value, HelloBound::from_millis(70).unwrap());
        assert_eq!(plain.state.value, Path::new("/etc/c"));
        assert_eq!(plain.state.origin.to_string(), "/etc/t.toml:4");
        for (value, on) in [("1", true), ("true", false), ("0", false), ("", false)] {
            assert_eq!(of(&[(SESSION, value)]).unwrap().session.value, on, "{value}");
        }
        assert_eq!(of(&[(STATE, "/x")]).unwrap().state.value, Path::new("/x"));
        assert_eq!(of(&[(HELLO_BOUND, "9")]).unwrap().hello_bound.origin.to_string(), HELLO_BOUND);
        for wrong in ["0", "600001", "5s", "", "-1"] {
            let refused = of(&[(HELLO_BOUND, wrong)]).unwrap_err().to_string();
            assert!(refused.contains(HELLO_BOUND), "{refused}");
        }
    }
}
