//! The device as an executor of a channel: a chair, and the stream of the line that holds it.

use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};
use triwire::channel::refusal::Refusal;
use triwire::line::Protocol;

use super::SerialGuest;
use crate::channel::{Chairs, Executor};

/// How long it takes until a device that takes no stream is asked again, and one that had one until
/// a moment ago.
const AGAIN: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(100);

impl SerialGuest {
    /// Lets the device answer the calls to one executor, for as long as this future is polled.
    ///
    /// It opens the channel's stream on the line and takes the chair once the device has shown that
    /// it knows the stream; nobody is asked for a hello, since who has the line has the device.
    /// When the stream ends, the calls in flight are `machine-closed`, and until the device is back
    /// they are `machine-unreachable`; it is looked for once a second. Commands go on beside it.
    ///
    /// Whoever takes the chair later keeps it: the device is seated again when it is free.
    ///
    /// ```no_run
    /// # async fn example() {
    /// use triwire_std::channel::{Channel, Executor};
    /// use triwire_std::guest::SerialGuest;
    ///
    /// let guest = SerialGuest::new("/dev/ttyUSB0");
    /// let channel = Channel::builder().build();
    /// let chairs = channel.chairs().clone();
    /// tokio::spawn(async move { guest.serve_channel(chairs, Executor::named("mcu")).await });
    /// # }
    /// ```
    // rule: CHAN-117, CHAN-118
    pub async fn serve_channel(&self, chairs: Chairs, executor: Executor) {
        let device = self.settings.device.display();
        // What was said last, so that a device that stays away is told of once.
        let mut said = String::new();
        let mut replaced = false;
        loop {
            let mut pause = AGAIN;
            replaced &= chairs.seated().contains(&executor);
            if !replaced {
                match self.sit(&chairs, &executor).await {
                    Ok(refusal) => {
                        info!(%device, ?executor, ?refusal, "the device left its chair");
                        said.clear();
                        replaced = refusal == Some(Refusal::Replaced);
                        pause = SOON;
                    }
                    Err(why) if why != said => {
                        warn!(%device, ?executor, "the device takes no chair: {why}");
                        said = why;
                    }
                    Err(_) => {}
                }
            }
            sleep(pause).await;
        }
    }

    /// Seats the device until its stream ends or its chair is taken away.
    async fn sit(&self, chairs: &Chairs, executor: &Executor) -> Result<Option<Refusal>, String> {
        let stream = self.stream(Protocol::Channel).await?;
        stream.known().await?;
        let seat = chairs.sit(executor.clone()).map_err(|error| error.to_string())?;
        info!(device = %self.settings.device.display(), ?executor, "the device took its chair");
        match seat.serve_lines(stream).await {
            Ok(refusal) => Ok(refusal),
            Err(error) => {
                warn!(device = %self.settings.device.display(), ?executor, %error, "channel lost");
                Ok(None)
            }
        }
    }
}
