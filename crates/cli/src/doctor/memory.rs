//! Memory checks: free memory, page sizes, NUMA nodes.

use super::Finding;
use super::machine::ExaminedMachine;
use roadtrain_system::platform::NumaTopology;

const MIB: u64 = 1 << 20;
/// Memory that `serve` takes for data in flight by default, and as much again for all else.
const NEEDED: u64 = 256 * MIB;

/// Checks that there is enough memory for the buffers.
pub(super) fn free(machine: &ExaminedMachine) -> Vec<Finding> {
    let Some(free) = meminfo(machine, "MemAvailable") else { return Vec::new() };
    let found = format!("{} MiB can be had", free / MIB);
    vec![match free < NEEDED {
        true => Finding::problem(
            "memory",
            format!("{found}, and serve needs {} MiB", NEEDED / MIB),
            "end what uses it (ps --sort=-rss aux | head), or give less to buffers: roadtrain serve --buffers 32MiB",
        ),
        false => Finding::ok("memory", found),
    }]
}

/// Checks that buffers can have huge pages.
pub(super) fn transparent(machine: &ExaminedMachine) -> Vec<Finding> {
    let check = "transparent huge pages";
    let file = "sys/kernel/mm/transparent_hugepage/enabled";
    vec![match machine.chosen(file).as_deref() {
        Some(policy @ ("always" | "madvise")) => Finding::ok(check, policy),
        Some(policy) => Finding::advice(
            check,
            format!("{policy}: buffers and memory namespaces have small pages, which cost time"),
            format!("echo madvise | sudo tee /{file}"),
        ),
        None => Finding::ok(check, "this kernel has none"),
    }]
}

/// Checks for memory reserved for huge pages, which Roadtrain does not use.
pub(super) fn reserved(machine: &ExaminedMachine) -> Vec<Finding> {
    let check = "reserved huge pages";
    let pages = meminfo(machine, "HugePages_Free").unwrap_or(0);
    let bytes = pages * meminfo(machine, "Hugepagesize").unwrap_or(0);
    vec![match bytes {
        0 => Finding::ok(check, "none, and none are needed"),
        _ => Finding::advice(
            check,
            format!("{} MiB are kept for them and not used; Roadtrain needs none", bytes / MIB),
            "unless another program needs them: sudo sysctl -w vm.nr_hugepages=0",
        ),
    }]
}

/// Checks for several nodes between which the kernel moves pages.
pub(super) fn nodes(machine: &ExaminedMachine) -> Vec<Finding> {
    let check = "NUMA";
    if !NumaTopology::read(machine.root()).has_nodes() {
        return vec![Finding::ok(check, "one node")];
    }
    let moves = machine.number("proc/sys/kernel/numa_balancing").unwrap_or(0) != 0;
    let found = "several nodes: serve and attach keep buffers and reactors on the network's";
    vec![match moves {
        true => Finding::advice(
            check,
            format!(
                "{found}, and the kernel moves pages between nodes, which stalls the threads that use them"
            ),
            "sudo sysctl -w kernel.numa_balancing=0",
        ),
        false => Finding::ok(check, found),
    }]
}

/// Returns a value of meminfo: bytes, or a plain number.
fn meminfo(machine: &ExaminedMachine, key: &str) -> Option<u64> {
    let text = machine.text("proc/meminfo")?;
    let line = text.lines().find(|line| line.split(':').next() == Some(key))?;
    let mut words = line.split_whitespace().skip(1);
    let number: u64 = words.next()?.parse().ok()?;
    number.checked_mul(if words.next() == Some("kB") { 1024 } else { 1 })
}
