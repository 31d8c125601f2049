//! The host: lanes on their reactors, and the control thread that connects them.

mod address;
mod api;
mod blocking;
mod bringup;
mod config;
mod controller;
mod discovery;
mod error;
mod ether;
mod hurry;
mod keep_alive;
mod lane;
mod link;
mod meter;
mod name;
mod pins;
mod queue;
mod reactor;
mod requests;

pub use address::Address;
pub use api::{Class, Completion, Front, Interest, LaneId, Op, Request, RingCommand, Turn};
pub use bringup::{Admin, ControllerInfo, NamespaceInfo};
pub use config::{HostConfig, RECONNECT_DELAY_MAX};
pub use controller::{Controller, ControllerView, ReactorInfo};
pub use discovery::discover;
pub use error::HostError;
pub use ether::{EtherAddress, EtherOffer, look_around};
pub use link::LinkError;
pub use meter::{LaneReading, LinkReport, LinkState, PathReading};
pub use name::{Lookup, TargetName};
pub use queue::{Client, RequestError};
