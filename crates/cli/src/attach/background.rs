//! `--background`: the program runs itself again, as a process that belongs to no terminal.
//!
//! The parent starts the same command with `--daemon`, passes on the line that the child prints when it is
//! ready, and ends; when the child ends first, with the child's exit status. Nothing is forked that has
//! threads, and no descriptor is shared but the pipe of that line.

use crate::failure::{Failure, Outcome};
use crate::output;
use crate::registry::Process;
use crate::signals::Signals;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long an interrupted child may take to put things in order.
const CHILD_TIMEOUT: Duration = Duration::from_secs(15);
/// The program itself, also when its file was replaced meanwhile.
const SELF: &str = "/proc/self/exe";

/// Starts the child and waits until it is ready.
///
/// # Errors
/// What the child ended with; it has said why.
pub(super) fn start() -> Outcome {
    let signals = Signals::block()?.of_terminal();
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| OsString::from("roadtrain"));
    let mut child = Command::new(program())
        .arg0(name)
        .args(arguments)
        .arg("--daemon")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| Failure::failed(format!("--background: {e}")))?;
    let process = Process::of(child.id());
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        let read = || stdout.read_line(&mut line);
        signals.guard_with(Duration::ZERO, || end(process), read)?;
    }
    if line.is_empty() {
        return Err(Failure::of_child(child.wait()?.code()));
    }
    output::line(&line)
}

fn program() -> PathBuf {
    let path = std::env::current_exe().ok().filter(|path| path.exists());
    path.unwrap_or_else(|| PathBuf::from(SELF))
}

/// Ends the child and waits for it.
fn end(process: Process) {
    process.signal(rustix::process::Signal::TERM);
    let last = Instant::now() + CHILD_TIMEOUT;
    while process.is_alive() && Instant::now() < last {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// In the child, first of all: a session of its own, and nothing of the caller's but the standard streams. A
/// lock that the caller holds by a descriptor would be held as long as the child lives.
///
/// # Errors
/// The system's refusal.
pub(super) fn leave_session() -> Outcome {
    // SAFETY: no preconditions. It fails for a leader of a process group, which has a session of its own if
    // it was started so on purpose.
    unsafe { libc::setsid() };
    // SAFETY: nothing of ours has opened a descriptor yet: all beyond the standard streams are the caller's.
    match unsafe { libc::close_range(3, libc::c_uint::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().into()),
    }
}

/// In the child, when it is ready: nobody waits for its output any more, and it holds no folder.
///
/// # Errors
/// The system's refusal.
pub(super) fn let_go(log: Option<File>) -> Outcome {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let errors = log.as_ref().unwrap_or(&null);
    for (from, to) in [(&null, libc::STDOUT_FILENO), (errors, libc::STDERR_FILENO)] {
        // SAFETY: both are open, and nobody owns the standard streams.
        if unsafe { libc::dup2(from.as_raw_fd(), to) } < 0 {
            return Err(io::Error::last_os_error().into());
        }
    }
    Ok(std::env::set_current_dir("/")?)
}
