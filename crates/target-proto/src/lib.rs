//! The target's end: queue pairs and I/O commands (data plane), and [`Target`], the control plane:
//! subsystems, namespaces, controllers, admin commands and discovery.
//!
//! ```text
//!   received bytes -> qpair --- I/O command -------> execution -> a store's operations -> qpair -> caravan
//!                       |                               ^
//!                       |                        session: what the connection may do
//!                       |                               v
//!                       +--- admin, fabrics command -> service -> Target, behind the driver's lock
//! ```
//!
//! | module | decides |
//! |---|---|
//! | [`qpair`] | PDUs of one connection: commands and data in, answers out |
//! | [`session`], [`state`] | PDUs and commands that may come in each state of a connection |
//! | [`execution`] | each command's checks, buffer, data, store and answer |
//! | [`io`] | I/O commands checked against their namespace |
//! | [`service`] | order of checks of a Connect, authentication, the grant, events, the end of a lane; rules of a reactor for its lanes |
//! | [`presence`] | connections of a host that are left, and the Connect that waits for their end |
//! | [`reservations`], [`exclusion`], [`uncorrectable`] | access of hosts, ranges for one command, marked blocks |
//! | [`stability`] | hosts that receive the error of a failed flush |
//! | [`buffer_shares`], [`rate`] | limits on buffers that wait for hosts, and on commands in a second |
//! | [`flows`], [`moves`], [`pauses`] | the reactor of a connection, and the way to another one; targets that stood still |
//! | [`gateways`] | gateways of a group, and which one serves an image |
//!
//! An *authenticating* connection stays in that state until its host has proved its name, and holds nothing until then
//! that another host could need.
//!
//! [`Target`] lives behind one lock; lanes take it for Connect, admin and fabrics commands only. What a
//! lane needs for I/O it takes along once: the [`NamespaceTable`] of its subsystem (again after
//! [`TargetEvent::NamespacesChanged`]) and its controller's [`ControllerShared`]. Order of calls:
//!
//! 1. `connect_over` for the first command of a connection, `grant` when its host has proved who it is, or need not
//!    ([`session::Session::take_granted`] calls it), then `admin_command` (queue 0) or `fabrics_command` (fabrics commands on I/O queues), `disconnect` when the connection is gone;
//! 2. after any call, [`presence::Presences::next_event`] until it is empty: completions of asynchronous event requests and
//!    queues to close may concern other connections than the one that called;
//! 3. `handle_timeout` at `poll_timeout`;
//! 4. after a lane's [`Target::reserve`]: [`Target::saved`] and [`Target::fenced`] as events want it;
//! 5. `drained` when a lane that the controller has given up (reset, Disconnect) has no command in a store any more,
//!    `quiesced` when one has none after [`TargetEvent::Quiesce`], `aborted` after [`TargetEvent::Abort`].
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field or variant whose name and type say what it is has no comment"
)]

#[cfg(test)]
#[path = "../../../tests/lib/cases.rs"]
mod cases;

pub mod exclusion;
pub mod execution;
pub mod flows;
pub mod gateways;
pub mod io;
pub mod moves;
pub mod pauses;
pub mod presence;
pub mod qpair;
pub mod rate;
pub mod reservations;
pub mod service;
pub mod session;
pub mod stability;
pub mod state;
pub mod uncorrectable;

mod aborts;
mod admin;
mod admission;
mod ana;
mod appearance;
mod authentication;
pub mod buffer_shares;
mod carrier;
mod claims;
mod cntlids;
mod config;
mod config_error;
mod connect;
mod connected;
mod context;
mod control;
mod controller;
mod discovery;
mod error_log;
mod events;
mod fabrics;
mod feature_values;
mod features;
mod grant;
mod identify;
mod identity;
mod image;
mod keep_alive;
mod kind;
mod lba_status;
mod listen;
mod log_page;
mod namespace;
mod operations;
mod outcome;
mod property;
mod removed;
mod resets;
mod revocation;
mod subsystem;
mod target_event;
mod ways;

pub use admission::{Admission, Admitted, ConnectionLimits, Full};
pub use ana::{AnaListener, AnaState, AnaStates};
pub use authentication::{Asked, Authentication, Authenticator, Reaction, Verdict};
pub use config::{
    Description, Limits, NAMESPACES_MAX, NamespaceConfig, SubsystemConfig, TargetConfig,
};
pub use config_error::{ConfigError, Place};
pub use connected::{ConnectRefused, Connected, host_name};
pub use control::Target;
pub use controller::{ControllerShared, ControllerView, Usage};
pub use identity::NamespaceId;
pub use image::ImageError;
pub use keep_alive::KEEP_ALIVE_GRANULARITY;
pub use kind::ControllerKind;
pub use listen::{FrameListener, Listener, TlsUse};
pub use namespace::NamespaceTable;
pub use operations::Operation;
pub use outcome::{LookUp, Outcome};
pub use target_event::{CloseReason, TargetEvent, TurnOf};
