//! The serial device: opened for one program alone, raw, and read and written without waiting.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{ControlModes, OptionalActions, QueueSelector};
use tokio::net::unix::pipe::{Receiver, Sender};
use triwire::time::Instant;

/// How much of the line's time may wait in the system's buffer: what waits there is late.
const AHEAD: Duration = Duration::from_millis(250);
/// Bytes that the system's buffer takes, and on the wire of each byte the bits.
const SYSTEM_BUFFER: u64 = 4096;
const BITS: u64 = 10;
/// The least that is worth a write of its own.
const WORTH: u64 = 32;
/// The device numbers of pseudo-terminals.
const PTY_MAJORS: std::ops::RangeInclusive<u32> = 136..=143;

/// Opens and sets up the device; what fails is a sentence for people. It may take long.
pub(super) fn open(path: &Path, speed: u32, flow_control: bool) -> Result<OwnedFd, String> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => {
            "there is no such device; plug it in, or correct `device`".to_owned()
        }
        Errno::ACCESS | Errno::PERM => "this user may not open it; \
             add the user to the group that owns it, often `dialout`"
            .to_owned(),
        Errno::BUSY => IN_USE.to_owned(),
        _ => unusable(error),
    })?;
    let mut settings = rustix::termios::tcgetattr(&device).map_err(|error| match error {
        Errno::NOTTY => "it is no serial device; correct `device`".to_owned(),
        _ => unusable(error),
    })?;
    // Two programs on one line would each take a part of what comes.
    rustix::fs::flock(&device, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
        if error == Errno::WOULDBLOCK { IN_USE.to_owned() } else { unusable(error) }
    })?;
    // This keeps out those that take no lock. On a pseudo-terminal it would outlive a program
    // that was killed, for as long as the other end is open.
    let stat = rustix::fs::fstat(&device).map_err(unusable)?;
    if !PTY_MAJORS.contains(&rustix::fs::major(stat.st_rdev)) {
        rustix::termios::ioctl_tiocexcl(&device).map_err(unusable)?;
    }
    settings.make_raw();
    settings.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD;
    settings.control_modes.set(ControlModes::CRTSCTS, flow_control);
    // Many boards restart when the line hangs up.
    settings.control_modes -= ControlModes::HUPCL;
    let refused = |error| format!("it does not take the speed {speed} ({error}); correct `speed`");
    settings.set_speed(speed).map_err(refused)?;
    rustix::termios::tcsetattr(&device, OptionalActions::Flush, &settings).map_err(refused)?;
    Ok(device)
}

const IN_USE: &str =
    "another program has it open; end that program, or name another device in `device`";

fn unusable(error: impl fmt::Display) -> String {
    format!("it cannot be used: {error}; check the device and its driver")
}

/// An open device.
pub(super) struct Device {
    receiver: Receiver,
    sender: Sender,
    speed: u64,
    /// When the system's buffer will be empty, as far as the speed tells; only at speeds so low
    /// that what fits into it would be late.
    drained: Option<Instant>,
}

impl Device {
    pub(super) fn new(fd: OwnedFd, speed: u32) -> io::Result<Self> {
        let speed = u64::from(speed).max(1);
        let is_slow = SYSTEM_BUFFER * BITS > speed / 2;
        let drained = is_slow.then_some(Instant::ZERO);
        // Tokio knows no terminals, but waits for one as for a pipe.
        let sender = Sender::from_owned_fd_unchecked(fd.try_clone()?)?;
        Ok(Self { receiver: Receiver::from_owned_fd_unchecked(fd)?, sender, speed, drained })
    }

    /// Returns how many bytes may wait for the device, for them not to be late.
    pub(super) fn ahead(&self) -> usize {
        let bytes = self.speed.saturating_mul(AHEAD.as_millis() as u64) / (BITS * 1000);
        bytes.clamp(512, 16 * 1024) as usize
    }

    /// Reads what came; at least one byte.
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.receiver.poll_read_ready(cx))?;
            match self.receiver.try_read(room) {
                Ok(0) => return Poll::Ready(Err(ErrorKind::UnexpectedEof.into())),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Writes what the device takes; at most as much as is not late.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let bytes = match self.drained {
            None => bytes,
            Some(drained) => {
                let left = drained.saturating_since(now);
                let free = AHEAD.saturating_sub(left);
                let mut count = free.as_micros() as u64 * self.speed / (BITS * 1_000_000);
                if left.is_zero() {
                    count = count.max(WORTH);
                }
                if count < WORTH {
                    // `writable_at` tells when to come again.
                    return Poll::Pending;
                }
                bytes.get(..count as usize).unwrap_or(bytes)
            }
        };
        let count = loop {
            ready!(self.sender.poll_write_ready(cx))?;
            match self.sender.try_write(bytes) {
                Ok(count) => break count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        };
        if let Some(drained) = &mut self.drained {
            let takes = Duration::from_micros(count as u64 * BITS * 1_000_000 / self.speed);
            *drained = (*drained).max(now).saturating_add(takes);
        }
        Poll::Ready(Ok(count))
    }

    /// Returns when a write that waits for the line's speed goes on.
    pub(super) fn writable_at(&self, now: Instant) -> Option<Instant> {
        let behind = self.drained?.saturating_since(now).saturating_sub(AHEAD / 2);
        (!behind.is_zero()).then(|| now.saturating_add(behind))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Closing would wait for a device that takes nothing.
        let _ = rustix::termios::tcflush(&self.receiver, QueueSelector::OFlush);
    }
}
