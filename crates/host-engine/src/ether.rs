//! The host's side of Ethernet, around the queue pair (docs/reference/ethernet.md).
//!
//! | file | purpose |
//! |---|---|
//! | `address` | over which interfaces, and how |
//! | `ports` | a thread's ports |
//! | `query` | queries that are repeated until they are answered |
//! | `route` | links, and paths to them |
//! | `discovery` | search for targets, and for links to a target |
//! | `probe` | largest frame of each link |
//! | `join` | makes a lane |
//! | `late` | links that join a lane while it lives |
//! | `path_discovery` | search for links that did not exist when lanes were made |
//! | `lane` | a lane: frames in, frames out, reasons for its end |
//! | `topology` | changes of a lane's links as interfaces change |
//! | `reconnect` | check whether a lane's links still suit |
//! | `port_writer` | its frames on their way to the ports |
//! | `fence` | ends the host's earlier lanes before new ones are made |

mod address;
mod discovery;
mod fence;
mod join;
mod lane;
mod late;
mod path_discovery;
mod port_writer;
mod ports;
mod probe;
mod query;
mod reconnect;
mod route;
mod topology;

pub use address::EtherAddress;
pub use discovery::{EtherOffer, discover_ether};
pub(crate) use discovery::{FoundTarget, find};
pub(crate) use fence::end_lanes;
pub(crate) use join::{Joining, join};
pub(crate) use lane::HostEtherLane;
pub(crate) use path_discovery::{FoundPath, PathDiscovery, Whereabouts};
pub(crate) use port_writer::CommandDataSource;
pub(crate) use ports::{HostFrame, Ports, shared_port_config};
pub(crate) use probe::probe;
pub(crate) use route::{LinkPath, Survey};
