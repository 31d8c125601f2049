//! The system calls: which cores this thread runs on, which nodes its memory comes from.

use super::cpus::Cpus;
use super::placement::Seat;
use crate::memory::nodes;
pub(crate) use crate::memory::nodes::take_from;
use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::time::Duration;
use tracing::warn;

/// What a frame over an interface on another node costs beside its way: its octets pass between nodes, and what waits
/// for them there. About what a jumbo frame takes at 10 Gbit/s.
const DETOUR: Duration = Duration::from_micros(5);

/// Moves the calling thread to its seat, for good. What cannot be had costs speed, not function.
pub(crate) fn sit_down(seat: &Seat) {
    if !seat.cpus.is_empty()
        && let Err(error) = run_on(&seat.cpus)
    {
        warn!("cannot run on {seat}: {error}");
    }
    let nodes: BTreeSet<u32> = seat.node.into_iter().collect();
    if let Err(error) = nodes::settle(nodes) {
        warn!("cannot use the {seat}: {error}");
    }
}

/// What using a device on `node` costs this thread: nothing on its own node, or where either is not known.
pub(crate) fn detour(node: Option<u32>) -> Duration {
    if node.is_some_and(nodes::is_far) { DETOUR } else { Duration::ZERO }
}

/// Cores that this process may use.
pub(crate) fn allowed() -> Cpus {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is as large as said; 0 is the calling thread.
    unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
    // SAFETY: every number is below CPU_SETSIZE.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// The core that the calling thread runs on just now.
pub(crate) fn current_core() -> Option<usize> {
    // SAFETY: asks for a number, touches no memory.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Lets the calling thread run on these cores only.
///
/// # Errors
/// None of them exists or may be used.
pub(crate) fn run_on(cpus: &Cpus) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for cpu in cpus.iter() {
        if cpu >= libc::CPU_SETSIZE as usize {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no core {cpu}")));
        }
        // SAFETY: below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: `set` lives through the call and its size is given; 0 is the calling thread.
    match unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn other_nodes_are_a_detour() {
        assert_eq!(detour(Some(1)), Duration::ZERO, "it belongs to no node");
        let _near = take_from(BTreeSet::from([0]));
        assert_eq!(detour(Some(0)), Duration::ZERO);
        assert_eq!(detour(Some(1)), DETOUR);
        assert_eq!(detour(None), Duration::ZERO, "nobody knows");
    }

    #[test]
    fn a_thread_takes_its_seat() {
        let cpu = allowed().iter().next().expect("we run somewhere");
        let seat = Seat { cpus: Cpus::from_iter([cpu]), node: None };
        let seen = thread::spawn(move || {
            sit_down(&seat);
            allowed()
        });
        assert_eq!(seen.join().unwrap(), Cpus::from_iter([cpu]));
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        assert!(run_on(&Cpus::from_iter([libc::CPU_SETSIZE as usize])).is_err());
    }
}
