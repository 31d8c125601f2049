//! Process identity that survives the reuse of process IDs.

use super::directory::user_id;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fs;

/// A process: its ID, which may be reused after its end, and its start time, which may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessIdentity {
    /// Process ID.
    pub pid: u32,
    /// Start time, in clock ticks since boot.
    pub started: u64,
    /// User that it runs as; not written: the owner of the entry.
    #[serde(skip, default = "user_id")]
    pub owner: u32,
}

impl ProcessIdentity {
    /// Returns this process.
    #[must_use]
    pub(crate) fn this() -> ProcessIdentity {
        ProcessIdentity::of(std::process::id())
    }

    /// Returns the process that has this ID now.
    #[must_use]
    pub(crate) fn of(pid: u32) -> ProcessIdentity {
        ProcessIdentity { pid, started: start_of(pid).unwrap_or(0), owner: user_id() }
    }

    /// True while it runs as a process of its owner: one of another user has reused its ID.
    #[must_use]
    pub(crate) fn is_alive(self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid));
        let runs = |status: String| {
            effective_user(&status) == Some(self.owner) && !is_killed_in_kernel(&status)
        };
        start_of(self.pid) == Some(self.started) && status.is_ok_and(runs)
    }

    /// Sends it a signal, if it still runs.
    pub(crate) fn signal(self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        // The descriptor refers to the process that has the ID now, even if the ID is reused later.
        let Some(process) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
            return;
        };
        if self.is_alive() {
            let _ = pidfd_send_signal(process, signal);
        }
    }
}

/// Returns a process's start time; `None` if it does not exist, or is a zombie.
fn start_of(pid: u32) -> Option<u64> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// True for a process that was killed while it waits in the kernel: it executes nothing any more, and may wait for ever. One
/// that serves a FUSE mount waits for itself, if it was opening a file there. Its end begins when the mount is removed.
fn is_killed_in_kernel(status: &str) -> bool {
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let pending = value("SigPnd:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    let kill = 1 << (Signal::KILL.as_raw() - 1);
    value("State:").is_some_and(|state| state.starts_with('D'))
        && pending.is_some_and(|mask| mask & kill != 0)
}

/// Returns the user that a process runs as; `None` if it does not exist.
#[cfg(test)]
fn owner_of(pid: u32) -> Option<u32> {
    effective_user(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// Parses `Uid:` of `/proc/PID/status`: real, effective, saved, file system user. (The owner of `/proc/PID` is root for
/// a process that must not be dumped.)
fn effective_user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

/// Parses `/proc/PID/stat`: ID, name in parentheses, state, ..., start time as field 22. The name may contain anything.
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
    use std::os::unix::process::CommandExt;
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
    fn killed_processes_that_wait_in_the_kernel_are_gone() {
        let status = |state: &str, pending: &str| {
            format!("Name:\ta\nState:\t{state}\nSigPnd:\t{pending}\nShdPnd:\t{pending}\n")
        };
        let killed = "0000000000000100";
        assert!(is_killed_in_kernel(&status("D (disk sleep)", killed)));
        assert!(!is_killed_in_kernel(&status("D (disk sleep)", "0000000000000000")));
        assert!(!is_killed_in_kernel(&status("D (disk sleep)", "0000000000004000")));
        assert!(!is_killed_in_kernel(&status("R (running)", killed)));
        assert!(!is_killed_in_kernel(""));
    }

    #[test]
    fn a_process_of_another_user_is_another_one() {
        let status = "Name:\tx Uid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n";
        assert_eq!(effective_user(status), Some(2));
        assert_eq!(effective_user("Name:\tx\n"), None);
        assert_eq!(owner_of(std::process::id()), Some(user_id()));
        if user_id() != 0 {
            assert!(!ProcessIdentity::of(1).is_alive(), "the first process is root's");
            return;
        }
        let mut child = Command::new("sleep").arg("60").uid(65534).spawn().unwrap();
        let process = ProcessIdentity::of(child.id());
        assert_eq!(start_of(child.id()), Some(process.started));
        assert!(!process.is_alive());
        process.signal(Signal::KILL);
        assert!(child.try_wait().unwrap().is_none(), "it was let alone");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_dead_process_differs_from_a_live_one() {
        let this = ProcessIdentity::this();
        assert!(this.is_alive());
        assert!(!ProcessIdentity { started: this.started + 1, ..this }.is_alive(), "another one");
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessIdentity::of(child.id());
        assert!(process.is_alive());
        process.signal(Signal::KILL);
        child.wait().unwrap();
        assert!(!process.is_alive());
    }
}
