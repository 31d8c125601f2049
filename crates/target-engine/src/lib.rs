//! The target as a program: reactors on io_uring that drive the state machines of `roadtrain_target_proto`, and the
//! control plane that they share.
//!
//! ```text
//!   your program, a local block device           files, block devices, memory
//!            |  Client, or a Front                          |  Store
//!   +--------v-----------+                        +---------v----------+
//!   | host: Controller   |   lanes: TCP, Ethernet | target: Server     |
//!   |  reactor per core  |=======================>|  reactor per core  |
//!   +--------------------+                        +--------------------+
//! ```
//!
//! A reactor is one thread with one ring, its buffers and its lanes. Reactors share nothing. The control plane is one
//! value; reactors lock it only for rare operations.
//!
//! | module | purpose |
//! |---|---|
//! | `server`, `export`, `handover`, `drain` | a running target, its exports, its clean shutdown |
//! | `reactor`, `order`, `listeners` | a turn of a reactor, messages to it, listening sockets |
//! | `lane`, `tasks`, `namespace` | a connection, its commands in stores, its table of namespaces |
//! | `control` | the lock of the control plane, and the driver of `service` |
//! | `stores`, `open_store`, `flushes` | open stores, shared by all reactors; their flushes |
//! | `reserving`, `uncorrectable`, `exclusion` | reservations, marked blocks, exclusive ranges |
//! | `handshakes`, `dh_worker` | threads for TLS handshakes and for Diffie-Hellman |
//! | `meters`, `snapshot`, `health` | counters, and reactors that have failed |
//! | `ether` | lanes directly over Ethernet |
//!
//! A reactor that ends by an error or a panic is reported (`health`), and the program ends then: otherwise the loss of
//! its lanes, listeners and timers would stay unnoticed. A target starts only if every reactor runs, and leaves no
//! thread if one cannot.
//!
//! ```
//! use roadtrain_store::{StoreKind, StoreSpec};
//! use roadtrain_system::buffer::Buffer;
//! use roadtrain_host_engine::{HostClient, HostConfig};
//! use roadtrain_target_engine::{Export, Server, ServerConfig, Subsystem};
//!
//! let nqn = "nqn.2025-01.io.example:disk";
//! let kind = StoreKind::Memory { size: 1 << 20 };
//! let store = StoreSpec { kind, lba_bytes: 512, read_only: false };
//! let namespaces = vec![Export::new(1, store)];
//! let subsystem = Subsystem { namespaces, ..Subsystem::new(nqn) };
//! let server = Server::start(ServerConfig::new(vec!["127.0.0.1:0".parse()?], vec![subsystem]))?;
//!
//! let host_nqn = "nqn.2025-01.io.example:host";
//! let client = HostClient::connect(HostConfig::new(server.addresses()[0], nqn, host_nqn, [7; 16]))?;
//! let mut block = Buffer::alloc(512);
//! block.fill(0x42);
//! client.write(1, 0, block, false)?;
//! assert_eq!(client.read(1, 0, Buffer::alloc(512))?[0], 0x42);
//! drop(client);
//! server.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod authentication_tests;
#[cfg(test)]
mod connection_limit_tests;
mod control;
mod dh_worker;
mod drain;
mod error;
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
mod guest_threads;
mod handover;
mod handshakes;
mod health;
mod inherited;
mod kept_file;
mod lane;
mod listeners;
mod meters;
#[cfg(test)]
mod moves_tests;
mod namespace;
mod open_store;
mod order;
#[cfg(test)]
mod per_io;
mod range_locks;
mod rates;
mod reactor;
mod reservation_file;
mod reserving;
mod server;
#[cfg(test)]
#[path = "../../../tests/lib/skipped.rs"]
mod skipped;
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
pub use ether::{Drop, Drops};
pub use export::{Export, ExportBlocks, Subsystem};
pub use guest_threads::GuestThreads;
pub use handover::HandOverError;
pub use inherited::{Inherited, InheritedReservations};
pub use kept_file::KeptPlace;
pub use order::{LanePlace, TargetUsage};
pub use roadtrain_target_proto::{
    AnaListener, AnaState, AnaStates, ConfigError, ConfigObject, ConfigOperation, ConnectionLimits,
    TargetListener, TlsUse,
};
pub use server::{Server, ServerConfig, TlsConfig};
pub use uncorrectable::marks_file_of;

#[cfg(test)]
pub(crate) use reactor::HandTarget;
