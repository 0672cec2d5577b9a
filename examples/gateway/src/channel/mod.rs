//! The channel: as the gateway offers it, and from the command line with `triwire ask`,
//! `triwire pair` and `triwire executor`.

mod ask;
mod executor;
mod offered;
mod page;
mod pair;
mod tools;

use triwire_std::client::{Client, ClientBuilder, DEFAULT_URL};
use triwire_std::tls::ClientTls;

use crate::cli::ServerFlags;
use crate::failure::Failure;

pub(crate) use ask::run as ask;
pub(crate) use executor::run as executor;
pub(crate) use offered::Offered;
pub(crate) use pair::run as pair;

fn url(flags: &ServerFlags) -> &str {
    flags.url.as_deref().unwrap_or(DEFAULT_URL)
}

fn client(flags: &ServerFlags) -> Result<ClientBuilder, Failure> {
    let builder = Client::builder(url(flags));
    Ok(match &flags.ca {
        Some(ca) => {
            let tls = ClientTls::from_file(ca);
            builder.tls(tls.map_err(|error| Failure::new(format!("--ca: {error}")))?)
        }
        None => builder,
    })
}

fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no runtime to connect with: {error}")))?
        .block_on(work)
}
