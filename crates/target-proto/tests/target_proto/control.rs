//! The target's control plane, driven through its public interface.

mod aborts;
mod ana;
mod arbitrary;
mod authentication;
mod bring_up;
mod concatenation;
mod connect;
mod discovery;
mod events;
mod features;
mod grant;
mod identify;
mod keep_alive;
mod lba_status;
mod log_page;
mod mandatory;
mod namespace_management;
mod namespaces;
mod operations;
mod recorded;
mod reservations;
mod resets;
mod script;
mod session;
mod visibility;
