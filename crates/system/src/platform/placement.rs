//! Placement of reactors. Pure: a topology and threads in, affinities out.

use super::cpus::Cpus;
use super::topology::{InterfaceTopology, NumaTopology};
use std::collections::BTreeSet;
use std::fmt;

/// Parts that are kept on one NUMA node. No effect on a machine with a single node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NumaPlacement {
    /// Nothing: memory lies where it is first touched, threads run where they are put.
    None,
    /// Buffers, and a target's memory namespaces, lie on the node of the lane's core; without a core on
    /// that of the network interface.
    Buffers,
    /// As `Buffers`; a lane without a core of its own also runs on the node of the network interface.
    #[default]
    Full,
}

/// Threads to be placed.
#[derive(Clone, Copy, Debug)]
pub struct PlacedThreads<'a> {
    /// Parts to keep together.
    pub placement: NumaPlacement,
    /// Number of reactors.
    pub count: usize,
    /// Cores that reactors are assigned to in turn. They precede all other rules.
    pub cores: &'a [usize],
    /// Cores that this process may use.
    pub allowed: &'a Cpus,
}

/// Cores of a reactor's thread, and node of its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// Cores; none: any core that the system chooses.
    pub cpus: Cpus,
    /// Preferred node of its memory.
    pub node: Option<u32>,
}

/// Returns the affinity of every reactor; `network_node` is the node of those that have no core of their own.
#[must_use]
pub fn affinities(
    topology: &NumaTopology,
    threads: PlacedThreads<'_>,
    shared_node: Option<u32>,
) -> Vec<Affinity> {
    let placed = threads.placement != NumaPlacement::None && topology.has_nodes();
    let shared_node = shared_node.and_then(|id| topology.node(id)).filter(|_| placed);
    let shared_node = shared_node.filter(|node| !node.cpus.and(threads.allowed).is_empty());
    let affinity = |index: usize| {
        let core = threads.cores.get(index % threads.cores.len().max(1)).copied();
        let node = core.map_or(shared_node, |core| topology.node_of(core).filter(|_| placed));
        let cpus = match (core, shared_node) {
            (Some(core), _) => Cpus::from_iter([core]),
            (None, Some(shared_node)) if threads.placement == NumaPlacement::Full => {
                shared_node.cpus.and(threads.allowed)
            }
            _ => Cpus::default(),
        };
        Affinity { cpus, node: node.filter(|node| node.has_memory).map(|node| node.id) }
    };
    (0..threads.count).map(affinity).collect()
}

/// Returns the node of the network: that of the interfaces' devices, else of their interrupts, else of the core that
/// received last. `None`: not known, or several nodes.
#[must_use]
pub fn network_node(
    topology: &NumaTopology,
    interfaces: &[InterfaceTopology],
    incoming_cpu: Option<usize>,
) -> Option<u32> {
    let devices: BTreeSet<u32> = interfaces.iter().flat_map(|i| i.nodes.clone()).collect();
    if !devices.is_empty() {
        return usable(topology, &devices);
    }
    let node = |cpu| Some(topology.node_of(cpu)?.id);
    let interrupts = interfaces.iter().flat_map(|i| i.interrupt_cpus.iter());
    let interrupts: BTreeSet<u32> = interrupts.filter_map(node).collect();
    match interrupts.len() {
        0 => incoming_cpu.and_then(node),
        _ => usable(topology, &interrupts),
    }
}

/// Returns the only one of `nodes`, if threads can run there.
fn usable(topology: &NumaTopology, nodes: &BTreeSet<u32>) -> Option<u32> {
    let only = nodes.first().filter(|_| nodes.len() == 1)?;
    topology.node(*only).filter(|node| !node.cpus.is_empty()).map(|node| node.id)
}

/// Returns the nodes for memory that all of these reactors use; empty: any.
#[must_use]
pub fn memory_nodes(affinities: &[Affinity]) -> BTreeSet<u32> {
    let all: Option<BTreeSet<u32>> = affinities.iter().map(|affinity| affinity.node).collect();
    all.unwrap_or_default()
}

impl fmt::Display for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.cpus.single(), self.cpus.is_empty()) {
            (Some(core), _) => write!(f, "core {core}")?,
            (None, true) => write!(f, "any core")?,
            (None, false) => write!(f, "cores {}", self.cpus)?,
        }
        match self.node {
            Some(node) => write!(f, ", memory of node {node}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for NumaPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NumaPlacement::None => "none",
            NumaPlacement::Buffers => "buffers",
            NumaPlacement::Full => "full",
        })
    }
}
