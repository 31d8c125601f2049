//! The target's protocol: queue pairs and I/O commands (data plane), and [`TargetControl`], the control plane with subsystems,
//! namespaces, controllers, admin commands and discovery.
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
//! | [`qpair`] | PDUs of one connection: commands and data in, completions out |
//! | [`session`], [`state`] | PDUs and commands allowed in each state of a connection |
//! | [`execution`] | each command's checks, buffer, data, store and completion |
//! | [`io`] | I/O commands checked against their namespace |
//! | [`service`] | order of checks of a Connect, authentication, the grant, events, the end of a lane; rules of a reactor for its lanes |
//! | [`host_connections`] | stale connections of a host, and the Connect that waits for their end |
//! | [`reservations`], [`exclusion`], [`uncorrectable`] | access of hosts, exclusive ranges of a command, marked blocks |
//! | [`stability`] | hosts that receive the error of a failed flush |
//! | [`buffer_shares`], [`rate`] | limits on buffers that wait for hosts, and on commands per second |
//! | [`flows`], [`moves`], [`pauses`] | the reactor of a connection, and its move to another one; targets that were suspended |
//! | [`gateways`] | gateways of a group, and which one serves an image |
//!
//! An *authenticating* connection stays in that state until its host is authenticated. Until then it holds nothing that
//! another host could need.
//!
//! [`TargetControl`] is behind one lock; lanes take it for Connect, admin and fabrics commands only. For I/O a lane keeps a
//! copy of the state that it needs: the [`SubsystemNamespaces`] of its subsystem (renewed after
//! [`TargetEvent::NamespacesChanged`]) and its controller's [`ControllerShared`]. Order of calls:
//!
//! 1. 1. `connect_over` for the first command of a connection, `grant` once its host is authenticated, or need not be
//! 1. ([`session::TargetConnection::take_granted`] calls it), then `admin_command` (queue 0) or `fabrics_command` (fabrics
//! 1. commands on I/O queues), `disconnect` when the connection is gone;
//! 2. 2. after any call, [`host_connections::HostConnections::next_event`] until it is empty: completions of asynchronous event
//! 2. requests and queues to close may concern other connections than the caller's;
//! 3. 3. `handle_timeout` at `poll_timeout`;
//! 4. 4. after a lane's [`TargetControl::reserve`]: [`TargetControl::saved`] and [`TargetControl::fenced`] as events request it;
//! 5. 5. `drained` when a lane closed by its controller (reset, Disconnect) has no command in a store any more,
//! 5. `quiesced` when one has none after [`TargetEvent::Quiesce`], `aborted` after [`TargetEvent::Abort`].
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
pub mod host_connections;
pub mod io;
pub mod moves;
pub mod pauses;
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
mod changed_namespaces;
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
mod namespace_management;
mod namespace_operations;
mod namespace_request;
mod operations;
mod outcome;
mod path_states;
mod paths;
mod property;
mod removed;
mod resets;
mod revocation;
mod subsystem;
mod target_event;
mod view;

pub use admission::{Admitted, ConnectionAdmission, ConnectionLimitReached, ConnectionLimits};
pub use ana::{AnaListener, AnaState, AnaStates};
pub use authentication::{
    AuthenticationRequirement, AuthenticationResult, Authenticator, HostAuthentication, Reaction,
};
pub use config::{
    NAMESPACES_MAX, NamespaceConfig, NamespaceDescription, SubsystemConfig, TARGET_NAMESPACES_MAX,
    TargetConfig, TargetLimits,
};
pub use config_error::{ConfigError, ConfigObject};
pub use connected::{ConnectRefused, ConnectedQueue, host_name};
pub use control::TargetControl;
pub use controller::{CommandUsage, ControllerShared, ControllerSummary};
pub use identity::NamespaceId;
pub use image::ImageError;
pub use keep_alive::KEEP_ALIVE_GRANULARITY;
pub use kind::ControllerKind;
pub use listen::{FrameListener, TargetListener, TlsUse};
pub use namespace::SubsystemNamespaces;
pub use namespace_operations::{NamespaceKeys, changed_namespaces};
pub use namespace_request::{NamespaceManagement, NamespaceRequest};
pub use operations::ConfigOperation;
pub use outcome::{AdminOutcome, LbaStatusQuery};
pub use target_event::{CloseReason, TargetEvent, TurnOf};
pub use view::{ANA_GROUPS_MAX, NamespaceView};
