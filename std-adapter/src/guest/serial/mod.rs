//! The guest at the other end of a serial line.

mod device;
#[cfg(feature = "server")]
mod executor;
mod line;
mod stream;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

use triwire::line::Protocol;

use self::line::{Ask, Settings};
use self::stream::Stream;
use super::asked::Peer;
use super::{Guest, Starting};
use crate::record::ExecRequest;
use crate::secret::Secret;

/// The speed of a serial line unless told otherwise, in bits per second.
pub const DEFAULT_SPEED: u32 = 115_200;
/// Commands that wait to be looked at.
const ASKS: usize = 64;

/// Runs commands on a device at a serial port, a tty or a pty, over the line of
/// [`triwire::line`]: a stream for each command, and on it the hijacked transport.
///
/// One task opens the device and serves all commands of this guest and its clones. It looks for
/// a device that is not there, or went away, once a second and with each command. A device that
/// is unplugged, restarts or falls silent ends its commands within 1 s; the next one waits up to
/// 3 s for it to be back. No other program can use the device meanwhile.
///
/// The port is set to 8 data bits, no parity and one stop bit, and its control lines are left
/// alone when it is closed, so that a board does not restart. The deadline of a command is the
/// device's to keep.
///
/// With the feature `server`, `serve_channel` offers the device as an executor of a channel as well.
///
/// ```no_run
/// use triwire_std::guest::SerialGuest;
///
/// let guest = SerialGuest::new("/dev/ttyUSB0").speed(921_600);
/// ```
#[derive(Clone, Debug)]
pub struct SerialGuest {
    settings: Settings,
    peer: Peer,
    /// To the line's task, once it runs.
    task: Arc<Mutex<Option<mpsc::Sender<Ask>>>>,
}

impl SerialGuest {
    /// Makes a guest at the device. It is opened with the first command, or by
    /// [`connect`](Self::connect).
    pub fn new(device: impl AsRef<Path>) -> Self {
        let device = device.as_ref().to_owned();
        let peer = Peer::new(&device.display().to_string(), "localhost");
        let settings = Settings { device, speed: DEFAULT_SPEED, flow_control: false };
        Self { settings, peer, task: Arc::default() }
    }

    /// Sets the line's speed in bits per second; 115 200 unless set. A pty has none.
    #[must_use]
    pub fn speed(mut self, speed: u32) -> Self {
        self.settings.speed = speed;
        self
    }

    /// Uses the line's RTS and CTS wires to hold the other end back; off unless set.
    #[must_use]
    pub fn flow_control(mut self, on: bool) -> Self {
        self.settings.flow_control = on;
        self
    }

    /// Sets the path at which commands are asked for; `/exec?stdin=1` unless set.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.peer.path = path.into();
        self
    }

    /// Sets the key that the guest knows this end by; none is sent unless set.
    #[must_use]
    pub fn key(mut self, key: impl Into<Secret>) -> Self {
        self.peer.key = Some(key.into());
        self
    }

    /// Opens the device now, and in the background: a device that is not there is looked for.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn connect(&self) {
        let _ = self.task();
    }

    fn task(&self) -> mpsc::Sender<Ask> {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // It ends with the runtime that it was started in.
        if let Some(sender) = task.as_ref().filter(|sender| !sender.is_closed()) {
            return sender.clone();
        }
        let (sender, asks) = mpsc::channel(ASKS);
        drop(tokio::spawn(line::serve(self.settings.clone(), asks)));
        *task = Some(sender.clone());
        sender
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// Why there is none, in words for people.
    async fn stream(&self, protocol: Protocol) -> Result<Stream, String> {
        let (answer, answered) = oneshot::channel();
        // A task that is gone drops what it was asked.
        let _ = self.task().send(Ask { protocol, answer }).await;
        answered.await.unwrap_or_else(|_| Err("the gateway is going away".to_owned()))
    }
}

impl Guest for SerialGuest {
    fn start(&self, request: ExecRequest) -> Starting<'_> {
        Box::pin(async move {
            let stream = self.stream(Protocol::Http).await;
            let stream = stream.map_err(|why| self.peer.unreachable(why))?;
            self.peer.ask(stream, &request).await
        })
    }
}
