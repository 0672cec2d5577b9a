//! The word that a server goes down, for its sessions.

use std::future::{Future, pending};
use std::pin::Pin;

use tokio::sync::watch;

/// What a client reads when the server goes down under its session.
pub(crate) const SHUTTING_DOWN: &str = "the gateway is shutting down";

/// A future of a session, polled beside its others.
pub(crate) type Event = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tells sessions to end.
#[derive(Debug)]
pub(crate) struct Stopper(watch::Sender<bool>);

impl Stopper {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(crate) fn stop(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn subscribe(&self) -> Stop {
        Stop(self.0.subscribe())
    }
}

/// A session's end of a [`Stopper`].
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Makes a future that is ready once the server goes down.
    pub(crate) fn event(&self) -> Event {
        let mut stop = self.0.clone();
        Box::pin(async move {
            if stop.wait_for(|stop| *stop).await.is_err() {
                // Nobody is left who could say it.
                pending().await
            }
        })
    }
}
