//! The host's end: queue pairs, the requests of a lane, and the association that connects them.
//!
//! ```text
//!   front ---> requests ---> qpair ---> caravan of capsules                     fast path, on a reactor
//!                 ^           ^
//!      attach, reset, fail    connection of each lane
//!                 |           |
//!              association ---+---> procedures: bring-up, namespaces, abort, shutdown     control thread
//! ```
//!
//! | module | decides |
//! |---|---|
//! | [`qpair`] | PDUs of one connection: commands and data out, completions and data in |
//! | [`requests`] | the end of each request of a lane, exactly once, whatever its connections do |
//! | [`retry`], [`overdue`] | another try after a status; Abort and the end of a connection after silence |
//! | [`association`] | connections of a controller: made together, lost together, connected again |
//! | [`procedure`], [`bringup`] | admin commands in a row, written from top to bottom; their driver may block |
//! | [`paths`] | the path of a request, where there are several |
//! | [`old_commands`] | writes that a lost controller may still execute, and commands that wait for them |
//! | [`namespace_identity`] | the namespace that an NSID stands for |
//! | [`namespace_scan`] | namespaces of a controller and their ANA states, in pages |
//! | [`write_verifier`] | flushes that fail because the target's machine has lost acknowledged writes |
//! | [`express`] | a second connection of a lane, for latency-critical requests next to bulk transfers |
//! | [`block_operation`] | requests for the operations of a store whose blocks a namespace has |
//! | [`discovered`], [`allocation`] | meaning of discovery entries and of LBA status |
//!
//! An association's life:
//!
//! ```text
//!              lane lost, overdue, events, stop                actions
//!   reactors ------------------------------> association ----------------> control thread
//!                                             |      |                       opens connections, runs commands,
//!   connecting ---- all lanes connected ---> live    |                       attaches, resets and fails lanes
//!       ^                                     |      +- pins, procedures
//!       |            any connection lost      |
//!     down <---- old connections are gone -- resetting
//! ```
//!
//! A host and a target without a network between them:
//!
//! ```
//! use roadtrain_host_proto as host;
//! use roadtrain_proto::manifest::Manifest;
//! use roadtrain_proto::policy::PolicyConfig;
//! use roadtrain_proto::time::Instant;
//! use roadtrain_target_proto as target;
//! use roadtrain_wire::pdu::Digests;
//!
//! let (now, policy, digests) = (Instant(0), PolicyConfig::auto(), Digests::default());
//! let mut host = host::qpair::HostQpair::new(
//!     now,
//!     host::qpair::HostQpairConfig { digests, queue_entries: 32, in_capsule_bytes: 0, policy },
//! );
//! let mut target = target::qpair::TargetQpair::new(target::qpair::TargetQpairConfig {
//!     digests,
//!     maxh2cdata: 4096,
//!     in_capsule_bytes_max: 8192,
//!     policy,
//! });
//!
//! // ICReq leaves the host, ICResp the target: the connection is initialised.
//! let mut sent = Manifest::default();
//! host.poll_tx(&mut sent);
//! target.poll_rx(now, &sent.bytes(|_| []), &mut 0, |_, _, _| {})?;
//! let mut answer = Manifest::default();
//! target.poll_tx(&mut answer);
//! host.poll_rx(now, &answer.bytes(|_| []), &mut 0, |_, _, _| {})?;
//! assert!(host.is_ready());
//! # Ok::<(), roadtrain_proto::error::QpairError>(())
//! ```
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field or variant whose name and type say what it is has no comment"
)]

#[cfg(test)]
#[path = "../../../tests/lib/cases.rs"]
mod cases;

pub mod allocation;
pub mod association;
mod authenticate;
pub mod block_operation;
pub mod bringup;
pub mod discovered;
pub mod express;
pub mod namespace_identity;
mod namespace_info;
pub mod namespace_scan;
pub mod old_commands;
pub mod overdue;
pub mod paths;
pub mod procedure;
pub mod qpair;
pub mod requests;
pub mod retry;
mod wants;
pub mod write_verifier;
