//! Topology of the machine from sysfs and procfs, below any root directory.

use super::cpus::Cpus;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum depth of stacked interfaces: VLAN on bond on device is three.
const STACK_MAX: usize = 8;

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// Number of the node.
    pub id: u32,
    /// Cores that are online.
    pub cpus: Cpus,
    /// True if the node has memory.
    pub has_memory: bool,
}

/// Nodes of the machine and their cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaTopology {
    nodes: Vec<NumaNode>,
}

/// Location of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceTopology {
    /// Nodes of its devices: several for a bond of several.
    pub nodes: BTreeSet<u32>,
    /// Cores that its devices' interrupts go to.
    pub interrupt_cpus: Cpus,
    /// True if the kernel hands packets on to other cores (RPS).
    pub hands_on: bool,
}

impl NumaTopology {
    /// Reads the topology below `root` (`/` for this machine). A kernel without NUMA gives no nodes.
    #[must_use]
    pub fn read(root: &Path) -> NumaTopology {
        let system = root.join("sys/devices/system");
        let list = |path: PathBuf| Cpus::parse(&text(&path));
        let online = list(system.join("cpu/online"));
        let with_memory = list(system.join("node/has_memory"));
        let node = |id: usize| {
            let cpus = list(system.join(format!("node/node{id}/cpulist"))).and(&online);
            NumaNode { id: id as u32, cpus, has_memory: with_memory.contains(id) }
        };
        NumaTopology { nodes: list(system.join("node/online")).iter().map(node).collect() }
    }

    /// True if placement matters: two nodes or more have cores.
    #[must_use]
    pub fn has_nodes(&self) -> bool {
        self.nodes.iter().filter(|node| !node.cpus.is_empty()).count() > 1
    }

    /// Returns the node with that number.
    #[must_use]
    pub fn node(&self, id: u32) -> Option<&NumaNode> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// Returns the node of a core.
    #[must_use]
    pub fn node_of(&self, cpu: usize) -> Option<&NumaNode> {
        self.nodes.iter().find(|node| node.cpus.contains(cpu))
    }
}

impl InterfaceTopology {
    /// Describes a mismatch between the cores of its interrupts and the `cores` of reactors; `None` for interfaces
    /// without interrupts of their own.
    #[must_use]
    pub fn mismatch(&self, cores: &[usize]) -> Option<String> {
        if cores.is_empty() || self.interrupt_cpus.is_empty() || self.hands_on {
            return None;
        }
        let interrupts = &self.interrupt_cpus;
        let reactors = Cpus::from_iter(cores.iter().copied());
        let common = reactors.and(interrupts).iter().count();
        if common == 0 {
            return Some(format!(
                "its interrupts go to cores {interrupts}, reactors are on cores {reactors}: all packets cross cores"
            ));
        }
        (common < reactors.iter().count()).then(|| {
            format!("its interrupts go to cores {interrupts}: not all reactors, on cores {reactors}, have packets")
        })
    }

    /// Reads the location below `root`; missing parts (loopback has no device) stay unknown.
    #[must_use]
    pub fn read(root: &Path, name: &str) -> InterfaceTopology {
        let mut interface = InterfaceTopology::default();
        let mut names = vec![name.to_owned()];
        for _ in 0..STACK_MAX {
            let mut below = Vec::new();
            for name in &names {
                let folder = root.join("sys/class/net").join(name);
                interface.add_device(root, &folder.join("device"));
                interface.hands_on |= hands_on(&folder.join("queues"));
                below.extend(lower(&folder));
            }
            names = below;
        }
        interface
    }

    fn add_device(&mut self, root: &Path, device: &Path) {
        let (Ok(device), Ok(root)) = (fs::canonicalize(device), fs::canonicalize(root)) else {
            return;
        };
        // A virtio device has no node itself, but its PCI device does.
        let parents = device.ancestors().take_while(|path| path.starts_with(&root));
        // -1: the firmware does not know.
        let known = |path: &Path| text(&path.join("numa_node")).trim().parse::<u32>().ok();
        self.nodes.extend(parents.clone().find_map(known));
        let interrupts = parents.map(|path| path.join("msi_irqs")).find(|path| path.is_dir());
        let numbers = interrupts.map(|path| entries(&path)).unwrap_or_default();
        let affinity = |number: &String| {
            let folder = root.join("proc/irq").join(number);
            let effective = Cpus::parse(&text(&folder.join("effective_affinity_list")));
            match effective.is_empty() {
                true => Cpus::parse(&text(&folder.join("smp_affinity_list"))),
                false => effective,
            }
        };
        let cpus = numbers.iter().map(affinity).collect::<Vec<_>>();
        let before = self.interrupt_cpus.iter().collect::<Vec<_>>();
        self.interrupt_cpus = cpus.iter().flat_map(Cpus::iter).chain(before).collect();
    }
}

/// True if a queue hands packets on to other cores: its mask is not zero.
fn hands_on(queues: &Path) -> bool {
    let masks = entries(queues).into_iter().map(|queue| text(&queues.join(queue).join("rps_cpus")));
    masks.into_iter().any(|mask| mask.contains(|c: char| c.is_ascii_hexdigit() && c != '0'))
}

/// Returns the interfaces below a stacked one.
fn lower(folder: &Path) -> Vec<String> {
    let names = entries(folder);
    names.iter().filter_map(|name| name.strip_prefix("lower_")).map(str::to_owned).collect()
}

fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
