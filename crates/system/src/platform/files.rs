//! How many descriptors this process may have: each connection takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Descriptors that are no connections: rings, mailboxes, stores, logs.
const OTHERS: u64 = 64;
/// Of them, for each reactor.
const EACH_REACTOR: u64 = 8;

/// Lets this process have as many descriptors as it may let itself have. The usual limit of 1,024 is for programs
/// that use `select`.
///
/// # Errors
/// The system's refusal.
pub fn raise_open_files() -> io::Result<()> {
    let limits = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits })?)
}

/// Connections that there are descriptors for, beside `reactors` and `files`.
pub fn connections_max(reactors: usize, files: usize) -> u32 {
    let all = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let others = OTHERS + EACH_REACTOR * reactors as u64 + files as u64;
    u32::try_from(all.saturating_sub(others).max(all / 4)).unwrap_or(u32::MAX)
}
