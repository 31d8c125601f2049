//! The host and the target on real machines: reactors on io_uring that drive the machines of `roadtrain-proto`.
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
//! A reactor is one thread with one ring, its buffers and its lanes; they share nothing. [`host`] connects to any
//! NVMe/TCP target, [`target`] serves any NVMe/TCP host.
//!
//! ```
//! use roadtrain_engine::store::{StoreKind, StoreSpec};
//! use roadtrain_engine::buffer::Buffer;
//! use roadtrain_engine::host::{Client, HostConfig};
//! use roadtrain_engine::target::{Export, Server, ServerConfig, Subsystem};
//!
//! let nqn = "nqn.2025-01.io.example:disk";
//! let kind = StoreKind::Memory { size: 1 << 20 };
//! let store = StoreSpec { kind, lba_bytes: 512, read_only: false };
//! let namespaces = vec![Export::new(1, store)];
//! let subsystem = Subsystem { namespaces, ..Subsystem::new(nqn) };
//! let server = Server::start(ServerConfig::new(vec!["127.0.0.1:0".parse()?], vec![subsystem]))?;
//!
//! let host_nqn = "nqn.2025-01.io.example:host";
//! let client = Client::connect(HostConfig::new(server.addresses()[0], nqn, host_nqn, [7; 16]))?;
//! let mut block = Buffer::alloc(512);
//! block.fill(0x42);
//! client.write(1, 0, block, false)?;
//! assert_eq!(client.read(1, 0, Buffer::alloc(512))?[0], 0x42);
//! drop(client);
//! server.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// What only Ethernet uses is checked for use where it is built.
#![cfg_attr(
    not(feature = "ether"),
    allow(dead_code, reason = "parts that only lanes over Ethernet use")
)]

pub mod clients;
mod connection;
mod digest;
#[cfg(feature = "ether")]
pub mod ether;
mod gather;
mod handshakes;
pub mod host;
pub mod ip_address;
pub mod metrics;
#[cfg(test)]
mod per_io;
pub mod platform;
pub mod pulse;
mod reactor;
pub mod recorded;
mod shared_core;
#[cfg(test)]
#[path = "../../../tests/lib/skipped.rs"]
mod skipped;
mod sources;
pub mod spin;
pub mod stats;
mod stream;
pub mod target;
mod transports;
pub mod tuning;

/// Where blocks are kept.
pub use roadtrain_store as store;
pub use roadtrain_system::{buffer, clock, keyring, mailbox, memory, ring};
use roadtrain_system::{machine, random};
