//! The channel as the gateway offers it: its page, sessions and pairings.

use std::net::SocketAddr;

use triwire_std::channel::{Builder, Channel, HostToken, Limits, Pairings, SessionGate};
use triwire_std::server::Keys;

use super::page;
use crate::config::ServeSettings;
use crate::config::channel::ChannelSettings;
use crate::failure::Failure;
use crate::{keys, serve};

/// The files of the folder of extensions.
const PAIRINGS: &str = ".pairings.json";
pub(crate) const HOST_TOKEN: &str = ".host-token";

/// A channel to be, and what its user is told at the start.
pub(crate) struct Offered {
    pub(crate) builder: Builder,
    pub(crate) words: Vec<String>,
}

impl Offered {
    /// Prepares the channel of a gateway that listens at `address`.
    pub(crate) fn new(
        settings: &ServeSettings,
        channel: &ChannelSettings,
        address: SocketAddr,
    ) -> Result<Self, Failure> {
        let folder = &channel.extensions_dir.value;
        let token = folder.join(HOST_TOKEN);
        keys::make_folder(folder).map_err(|error| {
            Failure::new(format!("the folder {} cannot be made: {error}", folder.display()))
        })?;
        let host_token = HostToken::from_file(&token).map_err(|error| {
            Failure::new(format!("the host token {}: {error}", token.display()))
        })?;
        let mut builder = Channel::builder()
            .hosts(settings.hosts.value.iter().cloned())
            .limits(Limits { patience: channel.patience.value, ..Limits::default() })
            .hello_bound(channel.hello_bound.value)
            .pairings(Pairings::new(folder.join(PAIRINGS)))
            .host_token(host_token);
        let mut words = Vec::new();
        let url = format!("http://{}/", serve::reachable(address));
        let has_page = channel.page.value;
        if has_page {
            let page = page::Page::new();
            builder = builder.page(page.html, &page.policy);
        }
        if channel.loopback_auth.value {
            let (gate, ticket) = SessionGate::new().map_err(|error| {
                Failure::new(format!("there is no randomness for sessions: {error}"))
            })?;
            builder = builder.session(gate);
            // rule: CHAN-93
            words.push("pages need a session; this address, shown this once, gives it:".into());
            words.push(format!("  {url}?bootstrap={ticket}"));
        } else if has_page {
            words.push(format!("page: {url}"));
        }
        Ok(Self { builder, words })
    }

    /// Lets everybody who reaches the gateway make calls.
    pub(crate) fn open(mut self) -> Self {
        self.builder = self.builder.open();
        self
    }

    /// Lets whoever has a key make calls.
    pub(crate) fn keys(mut self, keys: Keys) -> Self {
        self.builder = self.builder.keys(keys);
        self
    }
}
