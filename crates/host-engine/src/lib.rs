//! The host on real machines: reactors on io_uring that drive the machines of `roadtrain_host_proto`, and the control
//! thread that connects them.
//!
//! A program uses [`HostClient`], whose methods block, or gives a [`Front`] to a [`HostController`], which runs it on its
//! reactors.
//!
//! ```text
//!   Client, of any thread --mailbox--+
//!                                    v
//!   Front ---- reactor: lanes (requests, link), their ring and buffers         one thread for each core
//!                 |  reports          ^  orders: attach, reset, fail
//!                 v  (mailbox)        |
//!              control: association, admin queue, by calls that wait           one thread for each path
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | `controller`, `config`, `view` | a connected controller, its settings, its state for other threads |
//! | `control`, `path_set`, `admin`, `command_queue` | control threads, and their queues of commands |
//! | `connect` | connections to a target, by blocking calls |
//! | `reactor`, `lane`, `requests`, `link`, `commands` | the fast path: a turn, a lane, its requests, what carries it |
//! | `api`, `queue` | fronts on a reactor; requests of other threads |
//! | `name`, `race`, `finder`, `follower`, `discovery` | names, parallel attempts, discovery controllers |
//! | `ether` | lanes straight on Ethernet: finding a target, joining, changes of links |

mod address;
mod admin;
mod api;
mod command_queue;
mod commands;
mod config;
mod connect;
mod control;
mod controller;
mod counters;
mod discovery;
mod error;
mod ether;
mod finder;
mod follower;
pub mod identity;
mod lane;
mod link;
mod name;
mod numbers;
mod path_set;
mod queue;
mod race;
mod reactor;
mod requests;
mod reservations;
mod stopping;
mod threads;
mod view;

pub use address::TargetAddress;
pub use admin::AdminConnection;
pub use api::{
    Allocation, AllocationQuery, Class, Front, FrontTurn, Interest, IoCompletion, IoOp, IoRequest,
    LaneId, UringCommand,
};
pub use config::{HostConfig, HostTls, LocalEnd, RECONNECT_DELAY_MAX, TlsKeySource};
pub use controller::{HostController, ReactorInfo};
pub use counters::{
    ExpressReading, LaneReading, LinkState, PathReading, PathReport, TargetLinkReport,
};
pub use discovery::discover;
pub use error::HostControlError;
pub use ether::{EtherAddress, EtherOffer, discover_ether};
pub use link::LinkError;
pub use name::{Lookup, TargetName};
pub use queue::{Completer, HostClient, RequestError};
pub use reservations::{HostReservations, ReportedRegistrant, ReservationReport};
pub use roadtrain_host_proto::allocation::RANGES_MAX;
pub use roadtrain_host_proto::block_operation;
pub use roadtrain_host_proto::bringup::{ControllerInfo, NamespaceInfo};
pub use roadtrain_host_proto::old_commands::{BlockRange, ControllerIdentity, OpenController};
pub use roadtrain_host_proto::paths::PathPolicy;
pub use roadtrain_wire::ana::AnaState;
pub use roadtrain_wire::cross_reset::ControllerInstance;
pub use roadtrain_wire::reservation::{
    AcquireAction, ChangePersistence, Notification, RegisterAction, ReleaseAction, ReservationType,
};
pub use view::{HostControllerView, NamespaceWatcher};

#[cfg(feature = "testing")]
pub use reactor::{ConnectedLanes, HandHost};
