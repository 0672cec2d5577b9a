//! The process guest: how a request becomes a process of this machine.
//!
//! | what | the command gets |
//! | --- | --- |
//! | root | a folder; no chroot: the command sees the host's paths with the gateway's rights |
//! | `cwd` | taken beneath the root, `/` being the root; neither `..` nor a link leaves it |
//! | environment | `PATH`, `HOME` and `TRIWIRE_ROOT` (the root), `PWD`, and the request's, which win |
//! | descriptors | three pipes, nothing else |
//! | group | one of its own, so that it ends as a whole |

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{Access, AtFlags};
use rustix::process::{Pid, getegid};
use tokio::task;

use super::child::Child;
use super::running::Process;
use super::{Guest, Lost, Output, Running, Starting, StdinGone, Unreachable};
use crate::clock::Clock;
use crate::files::{Files, Folder};
use crate::record::{ExecRequest, ExecResult};

/// The `PATH` of commands when the gateway has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs commands as processes of this machine, in a root folder.
///
/// It separates commands by folder, group and environment, not by rights: a command can do what
/// the gateway's user can.
///
/// - A command's exit is delivered once it has ended and its pipes are read to their end; a
///   background child that holds them open gets 2 s more, and is left running.
/// - Dropping the [`Running`] before its exit kills the command's process group, and those of its
///   descendants that left the group but can still be found as descendants. A daemon that broke
///   the line (a double fork into a session of its own) survives: only a control group or a
///   container would reach it.
/// - Usage is the kernel's own account of the one child and what it waited for. The kernel starts
///   the account of the memory's peak with what the gateway occupies when it forks, so a command
///   smaller than the gateway shows the gateway's size. `oom_killed` is always false: the kernel
///   tells of it only by control group.
///
/// It needs a tokio runtime with io and time, Linux 5.3 or later, `/proc`, and that nobody else
/// in the program waits for any child (as an ignored `SIGCHLD` also would). `SIGPIPE` must be
/// ignored, as in every Rust program by default.
#[derive(Clone, Debug)]
pub struct ProcessGuest {
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
struct Shared {
    root: Arc<Dir>,
    path: PathBuf,
    inherit_env: bool,
}

impl ProcessGuest {
    /// Opens the root folder, which must be there.
    ///
    /// # Errors
    ///
    /// When the folder cannot be opened.
    pub fn new(root: impl AsRef<Path>) -> io::Result<Self> {
        let path = fs::canonicalize(root)?;
        let root = Arc::new(Dir::open_ambient_dir(&path, ambient_authority())?);
        Ok(Self { shared: Arc::new(Shared { root, path, inherit_env: false }) })
    }

    /// Hands the gateway's whole environment to commands, its keys among it. Off by default.
    #[must_use]
    pub fn inherit_env(mut self, inherit: bool) -> Self {
        Arc::make_mut(&mut self.shared).inherit_env = inherit;
        self
    }

    /// Returns the root folder, without links.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.shared.path
    }
}

impl Guest for ProcessGuest {
    fn files(&self) -> Option<Arc<dyn Files>> {
        Some(Arc::new(Folder::of(Arc::clone(&self.shared.root))))
    }

    fn start(&self, request: ExecRequest) -> Starting<'_> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            // Folders and programs may stand on slow storage. When this future is dropped, so is
            // what the closure returns, and with it the command.
            let timeout_s = request.timeout_s;
            let started = task::spawn_blocking(move || shared.spawn(&request)).await;
            let started = started.map_err(|error| Unreachable { why: error.to_string() })?;
            Ok(match started.and_then(|started| start_watch(started, timeout_s)) {
                Ok(process) => Box::new(process) as Box<dyn Running>,
                Err(why) => Box::new(NotStarted { why: Some(why) }),
            })
        })
    }
}

/// A process and our ends of its pipes.
pub(super) struct Started {
    pub(super) child: Child,
    /// Zero is the start.
    pub(super) clock: Clock,
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
}

fn start_watch(started: Started, timeout_s: u32) -> Result<Process, String> {
    Process::watch(started, timeout_s)
        .map_err(|error| format!("the command was ended, for it cannot be watched: {error}"))
}

impl Shared {
    fn spawn(&self, request: &ExecRequest) -> Result<Started, String> {
        let Some((program, arguments)) = request.cmd.split_first() else {
            return Err("cmd names no program".into());
        };
        let (dir, pwd) = self.working_dir(&request.cwd)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            // By its descriptor: a folder renamed or swapped meanwhile changes nothing.
            .current_dir(descriptor_path(&dir))
            .process_group(0)
            // Our own group, so nothing changes but that std forks: its other way shares our
            // memory with the child, whose account would then hold our peak for ever.
            .gid(getegid().as_raw())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if !self.inherit_env {
            command.env_clear();
        }
        let path = env::var_os("PATH").unwrap_or_else(|| OsString::from(DEFAULT_PATH));
        command
            .env("PATH", &path)
            .env("HOME", &self.path)
            .env("TRIWIRE_ROOT", &self.path)
            .env("PWD", &pwd)
            .envs(request.env.iter().map(|(name, value)| (name, value)));
        let clock = Clock::start();
        let mut child = command.spawn().map_err(|error| {
            let own = request.env.iter().rev().find(|(name, _)| name == "PATH");
            let path = own.map_or(path.as_os_str(), |(_, path)| OsStr::new(path));
            start_failure(program, &error, path, &pwd)
        })?;
        Ok(Started {
            clock,
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            child: Child::new(Pid::from_child(&child)),
        })
    }

    /// Opens the working directory beneath the root, and finds its real path.
    fn working_dir(&self, cwd: &str) -> Result<(OwnedFd, PathBuf), String> {
        // The wording keeps clear of what clients read as a program that was not found or may not
        // be run.
        let beneath = match cwd.trim_start_matches('/') {
            "" => ".",
            beneath => beneath,
        };
        let dir = self.root.open_dir(beneath).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("cwd {cwd}: no such directory"),
            io::ErrorKind::NotADirectory => format!("cwd {cwd}: not a directory"),
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
                format!("cwd {cwd}: leads out of the sandbox's folder")
            }
            io::ErrorKind::PermissionDenied => format!("cwd {cwd}: no access"),
            _ => format!("cwd {cwd}: {error}"),
        })?;
        let dir = OwnedFd::from(dir.into_std_file());
        rustix::fs::accessat(&dir, ".", Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|_| format!("cwd {cwd}: no access"))?;
        // The child moves its standard streams to 0, 1 and 2 before it changes directory.
        let dir = if dir.as_raw_fd() > 2 {
            dir
        } else {
            rustix::io::fcntl_dupfd_cloexec(&dir, 3)
                .map_err(|error| format!("cwd {cwd}: {error}"))?
        };
        let real = fs::read_link(descriptor_path(&dir))
            .map_err(|error| format!("cwd {cwd}: /proc cannot be read ({:?})", error.kind()))?;
        Ok((dir, real))
    }
}

fn descriptor_path(dir: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", dir.as_raw_fd())
}

// rule: EXEC-42
fn start_failure(program: &str, error: &io::Error, path: &OsStr, pwd: &Path) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("{program}: not found"),
        // The search says so too when it may not look into one folder of the path.
        io::ErrorKind::PermissionDenied
            if !program.contains('/')
                && !env::split_paths(path)
                    .any(|folder| pwd.join(folder).join(program).symlink_metadata().is_ok()) =>
        {
            format!("{program}: not found")
        }
        io::ErrorKind::PermissionDenied => format!("{program}: permission denied"),
        _ => format!("{program}: {error}"),
    }
}

/// A command that could not start: its exit, and nothing else.
struct NotStarted {
    why: Option<String>,
}

impl Running for NotStarted {
    fn poll_output(&mut self, _: &mut Context<'_>) -> Poll<Result<Output, Lost>> {
        Poll::Ready(match self.why.take() {
            Some(error) => {
                Ok(Output::Exit(ExecResult { exit_code: -1, error, ..ExecResult::default() }))
            }
            None => Err(Lost { why: "polled after its exit".into() }),
        })
    }

    fn poll_stdin(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<Result<usize, StdinGone>> {
        Poll::Ready(Err(StdinGone))
    }

    fn close_stdin(&mut self) {}
}
