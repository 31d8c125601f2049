//! `--background`: the program runs itself again, as a process without a terminal.
//!
//! The parent starts the same command with `--daemon`, forwards the line that the child prints when it is ready, and
//! ends. If the child ends first, the parent ends with its exit status. No process with threads forks, and the pipe of
//! that line is the only shared descriptor.

use crate::failure::{CommandFailure, CommandResult};
use crate::output;
use crate::registry::ProcessIdentity;
use crate::signals::BlockedSignals;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of an interrupted child for its cleanup.
const CHILD_TIMEOUT: Duration = Duration::from_secs(15);
/// The program itself, even if its file was replaced meanwhile.
const SELF: &str = "/proc/self/exe";

/// Starts the child and waits until it is ready.
///
/// # Errors
/// The exit status of the child, which has reported the reason.
pub(super) fn start() -> CommandResult {
    let signals = BlockedSignals::block()?.of_terminal();
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| OsString::from("roadtrain"));
    let mut child = Command::new(program())
        .arg0(name)
        .args(arguments)
        .arg("--daemon")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| CommandFailure::failed(format!("--background: {e}")))?;
    let process = ProcessIdentity::of(child.id());
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        let read = || stdout.read_line(&mut line);
        signals.guard_with(Duration::ZERO, || end(process), read)?;
    }
    if line.is_empty() {
        return Err(CommandFailure::of_child(child.wait()?.code()));
    }
    output::line(&line)
}

fn program() -> PathBuf {
    let path = std::env::current_exe().ok().filter(|path| path.exists());
    path.unwrap_or_else(|| PathBuf::from(SELF))
}

/// Ends the child and waits for it.
fn end(process: ProcessIdentity) {
    process.signal(rustix::process::Signal::TERM);
    let last = Instant::now() + CHILD_TIMEOUT;
    while process.is_alive() && Instant::now() < last {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// In the child, before anything else: starts a session, and closes all descriptors of the caller but the standard
/// streams. The caller's locks would be held as long as the child had their descriptors.
///
/// # Errors
/// The system's refusal.
pub(super) fn start_session() -> CommandResult {
    // SAFETY: no preconditions. It fails for the leader of a process group, whose caller has already started a session
    // for it.
    unsafe { libc::setsid() };
    // SAFETY: this process has opened no descriptor yet: all beyond the standard streams are the caller's.
    match unsafe { libc::close_range(3, libc::c_uint::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().into()),
    }
}

/// In the child, when it is ready: detaches it from its caller's output and from the working directory.
///
/// # Errors
/// The system's refusal.
pub(super) fn detach_streams(log: Option<File>) -> CommandResult {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let errors = log.as_ref().unwrap_or(&null);
    for (from, to) in [(&null, libc::STDOUT_FILENO), (errors, libc::STDERR_FILENO)] {
        // SAFETY: both are open, and no object owns the standard streams.
        if unsafe { libc::dup2(from.as_raw_fd(), to) } < 0 {
            return Err(io::Error::last_os_error().into());
        }
    }
    Ok(std::env::set_current_dir("/")?)
}
