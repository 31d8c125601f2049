//! The target: reactors that serve lanes, and the control plane they share.

mod backends;
mod control;
mod due;
mod lane;
mod namespace;
mod reactor;
mod server;
mod slot;
mod tasks;

pub use server::{Export, Server, ServerConfig, ServerError, Subsystem, Usage};
