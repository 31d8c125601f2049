//! The host's side of Ethernet, around the queue pair (docs/reference/ethernet.md).
//!
//! | file | purpose |
//! |---|---|
//! | `address` | over which interfaces, and how |
//! | `ports` | a thread's ports |
//! | `ask` | a question, repeated until it is answered |
//! | `route` | links, and what leads to them |
//! | `discovery` | which targets there are, and which links lead to one |
//! | `probe` | how large a frame each link takes |
//! | `join` | makes a lane |
//! | `late` | links that join a lane while it lives |
//! | `path_discovery` | looks for links that were not there when lanes were made |
//! | `lane` | a lane that was made: frames in, frames out, what ends it |
//! | `topology` | which links a lane has, as interfaces come and go |
//! | `reconnect` | whether a lane's links still suit |
//! | `port_writer` | its frames on their way to the ports |
//! | `fence` | ends the host's earlier lanes before it makes others |

mod address;
mod ask;
mod discovery;
mod fence;
mod join;
mod lane;
mod late;
mod path_discovery;
mod port_writer;
mod ports;
mod probe;
mod reconnect;
mod route;
mod topology;

pub use address::EtherAddress;
pub use discovery::{EtherOffer, discover_ether};
pub(crate) use discovery::{Target, find};
pub(crate) use fence::end_lanes;
pub(crate) use join::{Joining, join};
pub(crate) use lane::EtherLane;
pub(crate) use path_discovery::{Found, PathDiscovery, Whereabouts};
pub(crate) use port_writer::Source;
pub(crate) use ports::{Heard, Ports, beside};
pub(crate) use probe::probe;
pub(crate) use route::{Path, Survey};
