//! Processes that are told from later ones of the same number.

use serde::{Deserialize, Serialize};
use std::fs;

/// A process: its number, which is used again when it is gone, and when it began, which is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Its number.
    pub pid: u32,
    /// When it began, in clock ticks since the machine did.
    pub started: u64,
}

impl Process {
    /// This one.
    #[must_use]
    pub(crate) fn this() -> Process {
        Process::of(std::process::id())
    }

    /// The one that has this number now.
    #[must_use]
    pub(crate) fn of(pid: u32) -> Process {
        Process { pid, started: start_of(pid).unwrap_or(0) }
    }

    /// Whether it still runs.
    #[must_use]
    pub(crate) fn is_alive(self) -> bool {
        start_of(self.pid) == Some(self.started)
    }

    /// Sends it a signal, if it still runs.
    pub(crate) fn signal(self, signal: libc::c_int) {
        if self.is_alive() {
            // SAFETY: a plain system call; a number that means nobody is an error, which is as well.
            unsafe { libc::kill(self.pid as libc::pid_t, signal) };
        }
    }
}

/// When a process began; `None`: it is not there, or is over and only waits for its parent.
fn start_of(pid: u32) -> Option<u64> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `/proc/PID/stat`: number, name in brackets, state, ..., start time as field 22. The name may hold anything.
fn parse(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn lines_are_read_whatever_the_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(parse(&format!("7 (a) b (c) {rest}")), Some(4711));
        assert_eq!(parse(&format!("7 (a) {}", rest.replace('S', "Z"))), None);
        assert_eq!(parse("7 (a) S 1"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn the_dead_are_told_from_the_living() {
        let this = Process::this();
        assert!(this.is_alive());
        assert!(!Process { started: this.started + 1, ..this }.is_alive(), "another one");
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process { pid: child.id(), started: start_of(child.id()).unwrap() };
        assert!(process.is_alive());
        process.signal(libc::SIGKILL);
        child.wait().unwrap();
        assert!(!process.is_alive());
    }
}
