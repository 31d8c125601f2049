//! How many descriptors this process may have: each connection takes one.

use std::io;

/// Descriptors that are no connections: rings, mailboxes, backends, logs.
const OTHERS: u64 = 64;
/// Of them, for each reactor.
const EACH_REACTOR: u64 = 8;

fn limits() -> io::Result<libc::rlimit> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes to `limits`.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) } {
        0 => Ok(limits),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets this process have as many descriptors as it may let itself have. The usual limit of 1,024 is for programs
/// that use `select`.
///
/// # Errors
/// The system's refusal.
pub fn raise_open_files() -> io::Result<()> {
    let limits = limits()?;
    let raised = libc::rlimit { rlim_cur: limits.rlim_max, ..limits };
    // SAFETY: the kernel reads `raised`.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Connections that there are descriptors for, beside `reactors` and `files`.
pub(crate) fn connections_max(reactors: usize, files: usize) -> u32 {
    let all = limits().map_or(u64::MAX, |limits| limits.rlim_cur);
    let others = OTHERS + EACH_REACTOR * reactors as u64 + files as u64;
    u32::try_from(all.saturating_sub(others).max(all / 4)).unwrap_or(u32::MAX)
}
