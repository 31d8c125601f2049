//! The target: reactors that serve lanes, and the control plane they share.

mod backends;
#[cfg(test)]
mod connection_limit_tests;
mod control;
#[cfg_attr(not(feature = "ether"), path = "no_ether.rs")]
mod ether;
#[cfg(test)]
mod failing;
#[cfg(test)]
mod flaky;
#[cfg(test)]
mod flush_tests;
mod flushes;
mod health;
mod lane;
mod listeners;
mod namespace;
mod open_store;
mod reactor;
mod server;
mod tasks;
#[cfg(test)]
mod tests;
mod tickets;

pub use ether::EtherConfig;
#[cfg(feature = "ether")]
pub use ether::{Drop, Drops};
pub use roadtrain_proto::target::{ConfigError, ConnectionLimits, Listener, Operation, Place};
pub use server::{Blocks, Export, Server, ServerConfig, ServerError, Subsystem, Usage};
