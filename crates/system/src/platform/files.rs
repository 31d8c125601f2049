//! Limit of this process's open descriptors: each connection takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Descriptors that are not connections: rings, mailboxes, stores, logs.
const OTHERS: u64 = 64;
/// Such descriptors for each reactor.
const EACH_REACTOR: u64 = 8;

/// Raises the limit of this process's open descriptors to its hard limit. The usual limit of 1,024 is for programs that
/// use `select`.
///
/// # Errors
/// The system's refusal.
pub fn raise_open_files() -> io::Result<()> {
    let limits = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits })?)
}

/// Returns the number of connections for which descriptors are left besides `reactors` and `files`.
pub fn connections_max(reactors: usize, files: usize) -> u32 {
    let all = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let others = OTHERS + EACH_REACTOR * reactors as u64 + files as u64;
    u32::try_from(all.saturating_sub(others).max(all / 4)).unwrap_or(u32::MAX)
}
