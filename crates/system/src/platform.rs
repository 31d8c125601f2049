//! Placement of threads and memory: cores, NUMA nodes, and the network interfaces close to them.
//!
//! | file | purpose |
//! |---|---|
//! | `caches` | sizes of the processor's caches |
//! | `card` | settings of a network card's driver |
//! | `cpus` | sets of cores, as the kernel writes them |
//! | `topology` | nodes and interfaces, read from files below a directory |
//! | `files` | limit of open descriptors |
//! | `placement` | placement of reactors: pure, no system calls |
//! | `load` | load of the cores |
//! | `mptcp` | Multipath TCP: sockets with fallback to TCP, subflows of a connection |
//! | `numa` | system calls: cores of this thread, and nodes of its memory |
//! | `route` | network interface of a connection |
//! | `sockets` | process that listens at an address |
//!
//! On a machine with one node, all of this does nothing but pin threads to the configured cores.

mod caches;
mod card;
mod cpus;
pub mod files;
mod load;
pub mod mptcp;
pub mod numa;
mod placement;
mod route;
mod sockets;
mod topology;

pub use caches::outgrows_caches;
pub use card::{NicChannels, Offloads};
pub use cpus::Cpus;
pub use files::raise_open_files;
pub use load::CoreLoads;
pub use placement::{
    Affinity, NumaPlacement, PlacedThreads, affinities, memory_nodes, network_node,
};
use route::interface_names;
pub use route::{ConnectionRoute, packets_core, packets_napi_id};
pub use sockets::{ListeningProcess, listen_problem, listening_at};
pub use topology::{InterfaceTopology, NumaNode, NumaTopology};

use std::net::SocketAddr;
use std::path::Path;
use tracing::{info, warn};

/// Root of the files in which the kernel describes the machine.
const ROOT: &str = "/";

/// Returns the affinities of a host's reactors whose connections take `route`.
pub fn host_affinities(threads: PlacedThreads<'_>, route: &ConnectionRoute) -> Vec<Affinity> {
    let names = route.interfaces();
    warn_of_mismatches("host", &names, threads.cores);
    place("host", threads, |topology| {
        network_node(topology, &interfaces(names), route.incoming_cpu)
    })
}

/// Returns the affinities of a target's reactors. The target listens on `addresses`, and for frames at the interfaces
/// of those `names`.
pub fn target_affinities(
    threads: PlacedThreads<'_>,
    addresses: &[SocketAddr],
    names: Vec<String>,
) -> Vec<Affinity> {
    let names: Vec<String> = interface_names(addresses).into_iter().chain(names).collect();
    warn_of_mismatches("target", &names, threads.cores);
    place("target", threads, |topology| network_node(topology, &interfaces(names), None))
}

/// Logs interfaces whose packets are processed on other cores than those of the reactors.
fn warn_of_mismatches(who: &str, names: &[String], cores: &[usize]) {
    for name in names {
        if let Some(mismatch) = InterfaceTopology::read(Path::new(ROOT), name).mismatch(cores) {
            warn!(interface = name, "{who}: {mismatch}");
        }
    }
}

fn interfaces(names: impl IntoIterator<Item = String>) -> Vec<InterfaceTopology> {
    names.into_iter().map(|name| InterfaceTopology::read(Path::new(ROOT), &name)).collect()
}

fn place(
    who: &str,
    threads: PlacedThreads<'_>,
    find_home: impl FnOnce(&NumaTopology) -> Option<u32>,
) -> Vec<Affinity> {
    if threads.placement == NumaPlacement::None {
        return affinities(&NumaTopology::default(), threads, None);
    }
    let topology = NumaTopology::read(Path::new(ROOT));
    if !topology.has_nodes() {
        return affinities(&topology, threads, None);
    }
    let affinities = affinities(&topology, threads, find_home(&topology));
    for (index, affinity) in affinities.iter().enumerate() {
        info!("{who} reactor {index}: {affinity}");
    }
    affinities
}
