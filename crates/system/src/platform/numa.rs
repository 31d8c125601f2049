//! System calls: cores of this thread, and nodes of its memory.

use super::cpus::Cpus;
use super::placement::Affinity;
use crate::memory::nodes;
pub use crate::memory::nodes::scoped_memory_nodes;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;
use tracing::warn;

/// Additional cost of a frame over an interface on another node: its bytes pass between nodes. About the time of a
/// jumbo frame at 10 Gbit/s.
const DETOUR: Duration = Duration::from_micros(5);

/// Binds the calling thread for good. A failure costs speed, not function.
pub fn bind_thread(affinity: &Affinity) {
    if !affinity.cpus.is_empty()
        && let Err(error) = run_on(&affinity.cpus)
    {
        warn!("cannot run on {affinity}: {error}");
    }
    let nodes: BTreeSet<u32> = affinity.node.into_iter().collect();
    if let Err(error) = nodes::set_memory_nodes(nodes) {
        warn!("cannot use the {affinity}: {error}");
    }
}

/// Guard that keeps the calling thread on a core. Dropping it restores the cores of before.
pub struct CoreGuard(CpuSet);

/// Keeps the calling thread on `core`, if it may run there.
pub fn pin_scoped(core: usize) -> Option<CoreGuard> {
    let before = sched_getaffinity(None).ok()?;
    run_on(&Cpus::from_iter([core])).ok()?;
    Some(CoreGuard(before))
}

impl Drop for CoreGuard {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(None, &self.0) {
            warn!("cannot restore the cores of the thread: {error}");
        }
    }
}

/// Returns the cost of using a device on `node` for this thread: zero on its own node, or where either is unknown.
pub fn remote_node_cost(node: Option<u32>) -> Duration {
    if node.is_some_and(nodes::is_far) { DETOUR } else { Duration::ZERO }
}

/// Returns the cores that this process may use; none if the kernel does not report them.
pub fn allowed() -> Cpus {
    let Ok(set) = sched_getaffinity(None) else { return Cpus::default() };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Returns the core that the calling thread runs on now. Called for each request of a caller in queue mode: the C
/// library returns it without a system call.
pub fn current_core() -> Option<usize> {
    // SAFETY: returns a number, touches no memory.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// True if the calling thread runs on `core`, and may run on no other one.
pub fn is_only_core(core: usize) -> bool {
    let is_here = current_core() == Some(core);
    is_here && sched_getaffinity(None).is_ok_and(|set| set.count() == 1)
}

/// Restricts the calling thread to these cores.
///
/// # Errors
/// None of them exists or may be used.
pub fn run_on(cpus: &Cpus) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no core {cpu}")));
        }
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn other_nodes_are_a_detour() {
        assert_eq!(remote_node_cost(Some(1)), Duration::ZERO, "it belongs to no node");
        let _near = scoped_memory_nodes(BTreeSet::from([0]));
        assert_eq!(remote_node_cost(Some(0)), Duration::ZERO);
        assert_eq!(remote_node_cost(Some(1)), DETOUR);
        assert_eq!(remote_node_cost(None), Duration::ZERO, "an unknown node");
    }

    #[test]
    fn a_thread_is_bound_to_its_cores() {
        let cpu = allowed().iter().next().expect("we run somewhere");
        let affinity = Affinity { cpus: Cpus::from_iter([cpu]), node: None };
        let seen = thread::spawn(move || {
            bind_thread(&affinity);
            (allowed(), is_only_core(cpu), is_only_core(cpu + 1))
        });
        assert_eq!(seen.join().unwrap(), (Cpus::from_iter([cpu]), true, false));
    }

    #[test]
    fn a_thread_stays_on_a_core_for_a_while() {
        let seen = thread::spawn(|| {
            let before = allowed();
            let core = before.iter().last().expect("we run somewhere");
            let stay = pin_scoped(core);
            let there = (stay.is_some(), allowed(), current_core());
            drop(stay);
            (there == (true, Cpus::from_iter([core]), Some(core)), allowed() == before)
        });
        assert_eq!(seen.join().unwrap(), (true, true));
        assert!(pin_scoped(CpuSet::MAX_CPU).is_none());
    }

    #[test]
    fn a_missing_object_is_an_error() {
        assert!(run_on(&Cpus::from_iter([CpuSet::MAX_CPU])).is_err());
    }
}
