//! Where threads run and memory lies: cores, NUMA nodes, and the network interface's place among them.
//!
//! | file | purpose |
//! |---|---|
//! | `caches` | how much the processor's caches hold |
//! | `card` | what a network card's driver tells |
//! | `cpus` | sets of cores, as the kernel writes them |
//! | `topology` | nodes and interfaces, read from files below a directory |
//! | `files` | how many descriptors there may be |
//! | `placement` | who goes where: pure, no system calls |
//! | `load` | how busy cores are |
//! | `numa` | the system calls: which cores this thread runs on, and its memory's nodes |
//! | `route` | which interface a connection uses |
//! | `sockets` | which process listens at an address |
//!
//! On a machine with one node all of this does nothing but pin threads to the cores that were named.

mod caches;
mod card;
mod cpus;
pub mod files;
mod load;
pub mod numa;
mod placement;
mod route;
mod sockets;
mod topology;

pub use caches::outgrows_caches;
pub use card::{Channels, Offloads};
pub use cpus::Cpus;
pub use files::raise_open_files;
pub use load::CoreLoads;
pub use placement::{Affinity, Placement, Threads, affinities, home, memory_nodes};
use route::interface_names;
pub use route::{Route, packets_core, packets_napi_id};
pub use sockets::{Listening, listening_at};
pub use topology::{Interface, Node, Topology};

use std::net::SocketAddr;
use std::path::Path;
use tracing::{info, warn};

/// Where the kernel describes the machine.
const ROOT: &str = "/";

/// The affinities of a host's reactors, when its connection takes `route`.
pub fn host_affinities(threads: Threads<'_>, route: &Route) -> Vec<Affinity> {
    let names = route.interfaces();
    warn_of_mismatches("host", &names, threads.cores);
    place("host", threads, |topology| home(topology, &interfaces(names), route.incoming_cpu))
}

/// The affinities of a target's reactors: it listens on `addresses`, and for frames at the interfaces of those
/// `names`.
pub fn target_affinities(
    threads: Threads<'_>,
    addresses: &[SocketAddr],
    names: Vec<String>,
) -> Vec<Affinity> {
    let names: Vec<String> = interface_names(addresses).into_iter().chain(names).collect();
    warn_of_mismatches("target", &names, threads.cores);
    place("target", threads, |topology| home(topology, &interfaces(names), None))
}

/// Where packets and reactors are on different cores the log says so.
fn warn_of_mismatches(who: &str, names: &[String], cores: &[usize]) {
    for name in names {
        if let Some(mismatch) = Interface::read(Path::new(ROOT), name).mismatch(cores) {
            warn!(interface = name, "{who}: {mismatch}");
        }
    }
}

fn interfaces(names: impl IntoIterator<Item = String>) -> Vec<Interface> {
    names.into_iter().map(|name| Interface::read(Path::new(ROOT), &name)).collect()
}

fn place(
    who: &str,
    threads: Threads<'_>,
    find_home: impl FnOnce(&Topology) -> Option<u32>,
) -> Vec<Affinity> {
    if threads.placement == Placement::None {
        return affinities(&Topology::default(), threads, None);
    }
    let topology = Topology::read(Path::new(ROOT));
    if !topology.has_nodes() {
        return affinities(&topology, threads, None);
    }
    let affinities = affinities(&topology, threads, find_home(&topology));
    for (index, affinity) in affinities.iter().enumerate() {
        info!("{who} reactor {index}: {affinity}");
    }
    affinities
}
