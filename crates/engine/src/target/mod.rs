//! The target: reactors that serve lanes, and the control plane they share.

#[cfg(test)]
mod authentication_tests;
#[cfg(test)]
mod connection_limit_tests;
mod control;
mod drain;
mod error;
#[cfg_attr(not(feature = "ether"), path = "no_ether.rs")]
mod ether;
mod exclusion;
mod export;
#[cfg(test)]
mod failing;
#[cfg(test)]
mod flaky;
#[cfg(test)]
mod flush_tests;
mod flushes;
mod handover;
mod handshakes;
mod health;
mod kept_file;
mod lane;
mod listeners;
mod meters;
#[cfg(test)]
mod moves_tests;
mod namespace;
mod open_store;
mod order;
mod powers;
mod rates;
mod reactor;
mod reservation_file;
mod reserving;
mod server;
mod snapshot;
#[cfg(test)]
mod standby_tests;
mod stores;
mod tasks;
#[cfg(test)]
mod tests;
mod tickets;
mod uncorrectable;

pub use error::ServerError;
pub use ether::EtherConfig;
#[cfg(feature = "ether")]
pub use ether::{Drop, Drops};
pub use export::{Blocks, Export, Subsystem};
pub use handover::{HandOverError, Inherited, Reserved};
pub use kept_file::KeptPlace;
pub use order::{LanePlace, Usage};
pub use roadtrain_target_proto::{
    AnaListener, AnaState, AnaStates, ConfigError, ConnectionLimits, Listener, Operation, Place,
    TlsUse,
};
pub use server::{Server, ServerConfig, TlsConfig};
pub use uncorrectable::marks_beside;

#[cfg(test)]
pub(crate) use reactor::HandTarget;
