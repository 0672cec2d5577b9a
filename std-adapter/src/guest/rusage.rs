//! Reaping one child together with what it used.
//!
//! The one module of this crate with unsafe code: `wait4` is the only call that gives the usage of
//! one child (`getrusage` sums over all of them), and no safe wrapper offers it.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Pid;
use triwire::exec::result::Usage;

/// Whether to wait for a child that still runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    Wait,
    Look,
}

/// Reaps `pid`: its status, and its usage without the io figures. `None` while it still runs.
pub(super) fn reap(pid: Pid, patience: Patience) -> io::Result<Option<(ExitStatus, Usage)>> {
    let options = if patience == Patience::Look { libc::WNOHANG } else { 0 };
    let mut status: libc::c_int = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to live locals of the types that wait4 writes; all-zero bytes
        // are a valid rusage, so it is initialized whether or not the call wrote it.
        let (found, usage) = unsafe {
            let found = libc::wait4(
                pid.as_raw_nonzero().get(),
                &raw mut status,
                options,
                usage.as_mut_ptr(),
            );
            (found, usage.assume_init())
        };
        if found > 0 {
            return Ok(Some((ExitStatus::from_raw(status), to_usage(&usage))));
        }
        if found == 0 {
            return Ok(None);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[allow(clippy::useless_conversion)] // The fields' width depends on the target.
fn to_usage(usage: &libc::rusage) -> Usage {
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    let millis = |time: libc::timeval| {
        let seconds = u64::try_from(i64::from(time.tv_sec)).unwrap_or(0);
        let micros = u64::try_from(i64::from(time.tv_usec)).unwrap_or(0);
        seconds.saturating_mul(1_000).saturating_add(micros / 1_000)
    };
    Usage {
        cpu_user_ms: millis(usage.ru_utime),
        cpu_sys_ms: millis(usage.ru_stime),
        // Linux counts it in KiB.
        peak_memory_bytes: count(usage.ru_maxrss).saturating_mul(1_024),
        page_faults_major: count(usage.ru_majflt),
        context_switches_involuntary: count(usage.ru_nivcsw),
        io_read_bytes: 0,
        io_write_bytes: 0,
    }
}
