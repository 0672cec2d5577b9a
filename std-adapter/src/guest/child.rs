//! One child process, from its start until it is reaped.
//!
//! The child leads a process group of its own. It is reaped as late as possible: until then its
//! number, and so its group's, belongs to nobody else, and a signal cannot hit a stranger.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpgid, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};
use triwire::exec::result::Usage;

use super::rusage::{self, Patience};

/// How often the tree of descendants is walked for new ones before it is killed as it is.
const MAX_WALKS: usize = 16;

/// A child, killed and reaped on drop unless it was reaped before.
pub(super) struct Child {
    pid: Pid,
    reaped: AtomicBool,
}

impl Child {
    /// Takes over a child that leads its own process group and that nobody else waits for.
    pub(super) fn new(pid: Pid) -> Self {
        Self { pid, reaped: AtomicBool::new(false) }
    }

    /// Opens a descriptor that becomes readable when the child ends.
    pub(super) fn pidfd(&self) -> io::Result<OwnedFd> {
        Ok(pidfd_open(self.pid, PidfdFlags::NONBLOCK)?)
    }

    /// Says whether the child has ended, and leaves it to be reaped.
    pub(super) fn has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that there is no such child any more.
        !matches!(waitid(WaitId::Pid(self.pid), look), Ok(None))
    }

    /// Kills the child's process group.
    pub(super) fn kill_group(&self) {
        if !self.reaped.load(Ordering::Acquire) {
            // It fails only when there is nobody left.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// Kills the group, and what descends from the child outside it.
    ///
    /// A descendant is found as long as the line of parents from it up to the child is alive. One
    /// whose parent has ended (a daemon's double fork) is nobody's descendant any more and is
    /// reached only while it is still in the group.
    ///
    /// # Cost
    ///
    /// A few system calls for each descendant.
    pub(super) fn kill_all(&self) {
        if self.reaped.load(Ordering::Acquire) {
            return;
        }
        // Who is stopped starts no more children, and takes none of those found away.
        let _ = kill_process_group(self.pid, Signal::STOP);
        let mut outside: Vec<(Pid, OwnedFd)> = Vec::new();
        for _ in 0..MAX_WALKS {
            let known = outside.len();
            self.walk(&mut outside);
            if outside.len() == known {
                break;
            }
        }
        self.kill_group();
        for (_, pidfd) in &outside {
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
        }
    }

    /// Stops and adds the descendants outside the group that are not yet known.
    fn walk(&self, outside: &mut Vec<(Pid, OwnedFd)>) {
        let mut parents = vec![self.pid];
        while let Some(parent) = parents.pop() {
            for pid in children(parent) {
                parents.push(pid);
                if getpgid(Some(pid)) == Ok(self.pid)
                    || outside.iter().any(|(known, _)| *known == pid)
                {
                    continue;
                }
                let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
                // Between the list and the descriptor the number may have gone to someone else.
                if parent_of(pid) == Some(parent) {
                    let _ = pidfd_send_signal(&pidfd, Signal::STOP);
                    outside.push((pid, pidfd));
                }
            }
        }
    }

    /// Reaps the ended child: its status and exact usage.
    pub(super) fn reap(&self) -> io::Result<(ExitStatus, Usage)> {
        let (io_read_bytes, io_write_bytes) = self.storage_io();
        let waited = rusage::reap(self.pid, Patience::Wait);
        // Also on an error: then somebody else reaped it, and its number is not ours any more.
        self.reaped.store(true, Ordering::Release);
        match waited? {
            Some((status, usage)) => Ok((status, Usage { io_read_bytes, io_write_bytes, ..usage })),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// The bytes read from and written to storage, 0 where the system does not count them.
    fn storage_io(&self) -> (u64, u64) {
        let text = fs::read_to_string(format!("/proc/{}/io", self.pid)).unwrap_or_default();
        let value = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once(": "))
                .find(|(key, _)| *key == name)
                .and_then(|(_, value)| value.parse().ok())
                .unwrap_or(0)
        };
        (value("read_bytes"), value("write_bytes"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.reaped.load(Ordering::Acquire) {
            return;
        }
        self.kill_all();
        let pid = self.pid;
        if !matches!(rusage::reap(pid, Patience::Look), Ok(None)) {
            return;
        }
        // Killed, but not gone yet, and no runtime watches it: a thread waits. Where none can be
        // had, waiting here is better than a zombie.
        let wait = move || drop(rusage::reap(pid, Patience::Wait));
        if thread::Builder::new().name("triwire-reap".into()).spawn(wait).is_err() {
            wait();
        }
    }
}

/// The children of a process, of all its threads.
fn children(parent: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(parse_pid)),
            // The thread ended meanwhile, or this kernel keeps no such list.
            Err(_) if thread.path().exists() => return children_by_parent(parent),
            Err(_) => {}
        }
    }
    found
}

/// The children of a process, found by asking every process for its parent.
fn children_by_parent(parent: Pid) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|entry| parse_pid(entry.file_name().to_str()?))
        .filter(|pid| parent_of(*pid) == Some(parent))
        .collect()
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, and may hold anything.
    let stat = String::from_utf8_lossy(&stat);
    let (_, fields) = stat.rsplit_once(')')?;
    parse_pid(fields.split_ascii_whitespace().nth(1)?)
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    fn sleeper() -> Child {
        let mut command = Command::new("sleep");
        command.arg("1000").process_group(0).stdin(Stdio::null());
        let pid = Pid::from_child(&command.spawn().unwrap());
        Child::new(pid)
    }

    #[test]
    fn both_ways_find_a_child() {
        let child = sleeper();
        let me = rustix::process::getpid();
        assert!(children(me).contains(&child.pid));
        assert!(children_by_parent(me).contains(&child.pid));
        assert_eq!(parent_of(child.pid), Some(me));
    }

    #[test]
    fn drop_without_a_runtime_kills_and_reaps() {
        let child = sleeper();
        let pidfd = child.pidfd().unwrap();
        assert!(!child.has_ended());
        drop(child);
        // A process that was reaped cannot be signalled any more.
        let mut tries = 0;
        while pidfd_send_signal(&pidfd, Signal::CONT).is_ok() {
            thread::yield_now();
            tries += 1;
            assert!(tries < 10_000_000, "still not reaped");
        }
    }
}
