//! Parts of the reactors of both ends: a loop over one io_uring, and the connections that it serves.
//!
//! ```text
//!         +-> check the ring: sockets, stores, mailbox, listeners, timers     every turn, or every 16th if busy
//!         |        v
//!         |   Reactor::turn: receive, parse, execute or complete, send        one receive and one send a lane
//!         |        v
//!         +-- anything left to do?  no: spin, or io_uring_enter: submits and sleeps until news or a deadline
//! ```
//!
//! One thread runs it, with one ring, one buffer pool and its lanes. There is no lock and no async runtime. Host and
//! target implement [`ReactorCallbacks`], so the loop is compiled for each and calls nothing virtually. Payload goes by direct
//! `recvmsg` and `sendmsg`, and io_uring is used for waiting and for storage.
//!
//! | module | purpose |
//! |---|---|
//! | `guests`, `hosting` | the loop for a reactor with guests on its thread |
//! | `turns` | the loop: the inbox, spinning, sleeping, everything between two turns |
//! | `table` | the lanes of a reactor: their uses, their polls, the lists of those that have something to do |
//! | [`event`] | completions in the ring |
//! | [`waits`] | decisions to spin or to sleep, and the time that they took |
//! | [`connection`], [`stream`], [`gather`] | a TCP connection, its TLS, sends of many parts |
//! | [`clients`], [`handshakes`], [`sources`] | new connections, and TLS handshakes on helper threads, fair to each
//! source |
//! | [`metrics`], [`recorded`] | counters, what an observer sees of them, recorded requests |
//! | [`probes`], [`shared_core`], [`tuning`] | reactors that hang, ends that share a core, CPUs and limits of the process |
//!
//! Nothing here sends or executes commands: `roadtrain_host_engine` and `roadtrain_target_engine` do.

pub mod clients;
pub mod connection;
pub mod event;
pub mod gather;
mod guests;
pub mod handshakes;
mod hosting;
pub mod ip_address;
pub mod metrics;
pub mod probes;
pub mod recorded;
pub mod shared_core;
#[cfg(test)]
#[path = "../../../tests/lib/skipped.rs"]
mod skipped;
pub mod sources;
pub mod stream;
mod table;
mod transports;
pub mod tuning;
mod turns;
pub mod waits;

pub use guests::Guests;
pub use hosting::{finish, run, step};
pub use table::{LaneList, LaneTable, Pollable};
pub use turns::{ReactorCallbacks, ReactorCore, RxBuffers, begin, handle_completion, poll_inbox};
