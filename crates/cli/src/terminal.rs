//! The terminal that a command was started in: its width, and detection of its hangup.
//!
//! A terminal hangs up when its window, its multiplexer or its connection ends. The kernel sends SIGHUP to the
//! processes that it controls, and every read and write fails from then on. A command that only waits for input or for
//! a signal has to check for that, or it never ends.

use std::io::{self, Write};
use std::os::fd::RawFd;
use std::time::Duration;
use std::{fmt, process, thread};

/// Standard input, output and error.
const STREAMS: [RawFd; 3] = [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO];
/// Time for an orderly end once the terminal is gone.
const GRACE: Duration = Duration::from_secs(1);

/// True if a standard stream is a terminal that has hung up. Does not wait.
pub(crate) fn is_gone() -> bool {
    STREAMS.into_iter().any(|fd| is_character_device(fd) && poll(fd, 0, 0) & libc::POLLHUP != 0)
}

/// Waits until standard input can be read or has hung up, at most for `limit`.
pub(crate) fn wait_for_input(limit: Duration) {
    let limit_ms = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
    poll(libc::STDIN_FILENO, libc::POLLIN, limit_ms);
}

/// Ends the process soon after standard input has hung up, independent of its other threads. For a program that reads
/// the terminal through code that would block for ever.
///
/// # Errors
/// The thread cannot be started.
#[allow(
    clippy::exit,
    reason = "the main thread may never come back from the code that reads the terminal"
)]
pub(crate) fn end_when_gone() -> io::Result<()> {
    let is_over = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;
    let watch = move || {
        while poll(libc::STDIN_FILENO, 0, -1) & is_over == 0 {}
        thread::sleep(GRACE);
        process::exit(1);
    };
    thread::Builder::new().name("terminal".into()).spawn(watch).map(drop)
}

/// Returns the characters in a line of standard output; `None` if that is no terminal, or has no size.
pub(crate) fn width() -> Option<usize> {
    // SAFETY: `winsize` is a plain C struct that the call fills in.
    let columns = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        let failed = libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size);
        if failed == 0 { size.ws_col } else { 0 }
    };
    (columns > 0).then(|| columns.into())
}

/// Writes a line to standard error. Ignores a failure: the terminal may be gone.
pub(crate) fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// True for a character device. Pipes hang up as well, when their other end is closed.
fn is_character_device(fd: RawFd) -> bool {
    // SAFETY: `stat` is a plain C struct that the call fills in.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFCHR
    }
}

/// Polls one descriptor; returns no events after `limit_ms` milliseconds, or after a signal. -1 waits without a limit.
fn poll(fd: RawFd, events: libc::c_short, limit_ms: libc::c_int) -> libc::c_short {
    let mut one = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: `one` is a valid array of one entry for the duration of the call.
    let count = unsafe { libc::poll(&raw mut one, 1, limit_ms) };
    if count > 0 { one.revents } else { 0 }
}
