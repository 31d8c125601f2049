//! Placement of threads and memory on described machines: `topologies/` has the contents of their sysfs and procfs.

#[allow(dead_code, unreachable_pub, reason = "each test uses some of it")]
#[path = "../../../../tests/lib/described.rs"]
mod described;

use roadtrain_system::platform::{
    Affinity, Cpus, InterfaceTopology, NumaPlacement, NumaTopology, PlacedThreads, affinities,
    memory_nodes, network_node,
};
use std::collections::BTreeSet;
use std::path::Path;
use tempfile::TempDir;

const TWO_NODES: &str = include_str!("topologies/two-nodes.txt");
const FOUR_NODES: &str = include_str!("topologies/four-nodes.txt");
const ONE_NODE: &str = include_str!("topologies/one-node.txt");
const NO_NUMA: &str = include_str!("topologies/no-numa.txt");
const MALFORMED: &str = include_str!("topologies/malformed.txt");

/// Described machine.
struct DescribedMachine {
    root: TempDir,
    topology: NumaTopology,
}

impl DescribedMachine {
    fn new(text: &str) -> DescribedMachine {
        let root = described::describe(text);
        let topology = NumaTopology::read(root.path());
        DescribedMachine { root, topology }
    }

    fn root(&self) -> &Path {
        self.root.path()
    }

    /// Returns the NUMA node of threads that use these interfaces.
    fn shared_node(&self, names: &[&str], incoming_cpu: Option<usize>) -> Option<u32> {
        let interfaces: Vec<InterfaceTopology> =
            names.iter().map(|name| InterfaceTopology::read(self.root(), name)).collect();
        network_node(&self.topology, &interfaces, incoming_cpu)
    }

    /// Returns the affinities as text, on a machine without restrictions.
    fn affinities(
        &self,
        placement: NumaPlacement,
        cores: &[usize],
        count: usize,
        shared_node: Option<u32>,
    ) -> Vec<String> {
        let allowed = &Cpus::parse("0-63");
        let threads = PlacedThreads { placement, count, cores, allowed };
        affinities(&self.topology, threads, shared_node).iter().map(Affinity::to_string).collect()
    }
}

#[test]
fn nodes_have_the_cores_that_are_online() {
    let machine = DescribedMachine::new(TWO_NODES);
    let nodes = [0, 1].map(|id| machine.topology.node(id).unwrap());
    assert_eq!(nodes.map(|node| node.cpus.to_string()), ["0-3", "4-5,7"]);
    assert!(machine.topology.has_nodes() && nodes.iter().all(|node| node.has_memory));
    assert!(machine.topology.node_of(6).is_none());
    assert_eq!(machine.topology.node_of(7).unwrap().id, 1);
}

#[test]
fn interrupts_and_cores_go_together() {
    let interface = |interrupts: &str, hands_on| InterfaceTopology {
        interrupt_cpus: Cpus::parse(interrupts),
        hands_on,
        ..InterfaceTopology::default()
    };
    let says = |interrupts, cores: &[usize]| interface(interrupts, false).mismatch(cores);
    assert_eq!(says("0-3", &[0, 1, 2, 3]), None);
    assert_eq!(says("0-7", &[2, 3]), None, "further queues carry other packets");
    assert!(says("4-7", &[0, 1]).unwrap().contains("all packets cross cores"));
    assert!(says("0", &[0, 1]).unwrap().contains("not all reactors"));
    assert_eq!(says("", &[0]), None, "nothing is known");
    assert_eq!(says("4", &[]), None, "reactors run anywhere");
    assert_eq!(interface("4", true).mismatch(&[0]), None, "the kernel hands packets on");
}

#[test]
fn the_network_is_where_its_device_is() {
    let machine = DescribedMachine::new(TWO_NODES);
    assert_eq!(machine.shared_node(&["eth1"], Some(0)), Some(1));
    assert_eq!(machine.shared_node(&["vlan7"], Some(0)), Some(1), "through what it lies on");
    let interrupts = InterfaceTopology::read(machine.root(), "eth1").interrupt_cpus;
    assert_eq!(interrupts.to_string(), "4-5");
}

#[test]
fn interrupts_and_the_receiving_core_say_what_the_firmware_does_not() {
    let machine = DescribedMachine::new(FOUR_NODES);
    assert_eq!(machine.shared_node(&["eth0"], Some(0)), Some(3));
    assert_eq!(machine.shared_node(&["lo"], Some(5)), Some(1), "loopback has no device");
    assert_eq!(machine.shared_node(&["lo"], None), None);
    assert_eq!(machine.shared_node(&[], Some(99)), None);
}

#[test]
fn devices_on_several_nodes_have_no_node() {
    let machine = DescribedMachine::new(FOUR_NODES);
    assert_eq!(machine.shared_node(&["bond0"], Some(0)), None);
    assert_eq!(machine.shared_node(&["eth1", "eth2"], None), None);
    assert_eq!(machine.shared_node(&["eth1", "lo"], None), Some(0));
    assert_eq!(machine.shared_node(&["eth4"], None), None, "no thread can run there");
}

#[test]
fn full_puts_threads_and_memory_on_the_network_s_node() {
    let machine = DescribedMachine::new(TWO_NODES);
    let there = "cores 4-5,7, memory of node 1";
    assert_eq!(machine.affinities(NumaPlacement::Full, &[], 2, Some(1)), [there, there]);
    assert_eq!(machine.affinities(NumaPlacement::Full, &[], 1, None), ["any core"]);
}

#[test]
fn named_cores_win_and_memory_follows_them() {
    let machine = DescribedMachine::new(TWO_NODES);
    let expected =
        ["core 0, memory of node 0", "core 5, memory of node 1", "core 0, memory of node 0"];
    for placement in [NumaPlacement::Full, NumaPlacement::Buffers] {
        assert_eq!(machine.affinities(placement, &[0, 5], 3, Some(1)), expected, "{placement}");
    }
    assert_eq!(machine.affinities(NumaPlacement::None, &[0, 5], 2, Some(1)), ["core 0", "core 5"]);
    assert_eq!(
        machine.affinities(NumaPlacement::Full, &[6], 1, Some(1)),
        ["core 6"],
        "it is offline"
    );
}

#[test]
fn buffers_leaves_threads_alone() {
    let machine = DescribedMachine::new(TWO_NODES);
    assert_eq!(
        machine.affinities(NumaPlacement::Buffers, &[], 1, Some(1)),
        ["any core, memory of node 1"]
    );
    assert_eq!(machine.affinities(NumaPlacement::None, &[], 1, Some(1)), ["any core"]);
}

#[test]
fn a_node_without_memory_gives_none() {
    let machine = DescribedMachine::new(FOUR_NODES);
    assert_eq!(machine.shared_node(&["eth3"], None), Some(2));
    assert_eq!(machine.affinities(NumaPlacement::Full, &[], 1, Some(2)), ["cores 2,6"]);
    assert_eq!(machine.affinities(NumaPlacement::Full, &[6], 1, None), ["core 6"]);
}

#[test]
fn only_cores_that_may_be_used_are_used() {
    let machine = DescribedMachine::new(TWO_NODES);
    let affinity = |allowed: &str| {
        let allowed = &Cpus::parse(allowed);
        let threads =
            PlacedThreads { placement: NumaPlacement::Full, count: 1, cores: &[], allowed };
        affinities(&machine.topology, threads, Some(1))[0].to_string()
    };
    assert_eq!(affinity("0-4"), "core 4, memory of node 1");
    assert_eq!(affinity("0-3"), "any core", "a shared_node that is closed is none");
}

#[test]
fn one_node_is_left_alone() {
    for text in [ONE_NODE, NO_NUMA] {
        let machine = DescribedMachine::new(text);
        assert!(!machine.topology.has_nodes());
        let shared_node = machine.shared_node(&["eth0"], Some(0));
        assert_eq!(machine.affinities(NumaPlacement::Full, &[], 1, shared_node), ["any core"]);
        assert_eq!(machine.affinities(NumaPlacement::Full, &[1], 1, shared_node), ["core 1"]);
    }
}

#[test]
fn namespaces_lie_where_all_reactors_are() {
    let machine = DescribedMachine::new(FOUR_NODES);
    let nodes = |cores: &[usize]| {
        let allowed = &Cpus::parse("0-63");
        let threads =
            PlacedThreads { placement: NumaPlacement::Full, count: cores.len(), cores, allowed };
        memory_nodes(&affinities(&machine.topology, threads, None))
    };
    assert_eq!(nodes(&[3, 7]), BTreeSet::from([3]));
    assert_eq!(nodes(&[0, 1, 5]), BTreeSet::from([0, 1]));
    assert_eq!(nodes(&[0, 2]), BTreeSet::new(), "one of them does not mind");
}

#[test]
fn a_machine_that_says_nothing_is_no_trouble() {
    let machine = DescribedMachine::new("");
    assert_eq!(machine.topology, NumaTopology::default());
    assert_eq!(InterfaceTopology::read(machine.root(), "eth0"), InterfaceTopology::default());
    assert_eq!(machine.affinities(NumaPlacement::Full, &[2], 1, Some(0)), ["core 2"]);
}

/// Entries that cannot be parsed are skipped, and the others are used.
#[test]
fn nonsense_is_no_trouble() {
    let machine = DescribedMachine::new(MALFORMED);
    let nodes = [0, 1, 5].map(|id| machine.topology.node(id).unwrap().cpus.to_string());
    assert_eq!(nodes, ["0-2", "2-3", ""]);
    for name in ["eth0", "eth1", "eth2", "loop0", "..", ""] {
        assert_eq!(
            machine.shared_node(&[name], Some(3)),
            Some(1),
            "{name}: the receiving core's node"
        );
    }
    for name in ["eth3", "eth4"] {
        assert_eq!(
            machine.shared_node(&[name], Some(3)),
            None,
            "{name}: on a node that is not there"
        );
    }
    assert_eq!(
        machine.affinities(NumaPlacement::Full, &[], 1, Some(1)),
        ["cores 2-3"],
        "no memory known"
    );
    assert_eq!(machine.affinities(NumaPlacement::Full, &[], 1, Some(77)), ["any core"]);
}
