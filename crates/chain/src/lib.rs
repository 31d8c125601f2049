//! Chains: namespaces of other targets as stores of this one.
//!
//! ```text
//!   host --> front target: reactor thread                            back target
//!              lanes of hosts --> NvmeStore::submit
//!                                     |  queue of this thread
//!                                     v
//!              guest reactor of a host controller: its lane ------->  namespace
//!                                     |
//!                  completions <------+  no other thread takes part
//! ```
//!
//! A [`NvmeSource`] is everything that is needed to connect. Its store, [`NvmeStore`], is a
//! [`Store`](roadtrain_store::Store) over a host controller, which all stores of the same subsystem with the same options
//! share. The controller has a lane on each reactor thread of the target, where its reactor is a guest, and one on a
//! thread of its own. That one carries what other threads submit, and the last flush after the target has ended.
//!
//! `roadtrain_host_proto::block_operation` decides how an operation becomes requests, and what their ends mean.
//!
//! | module | what |
//! |---|---|
//! | `source` | the source of a store: connection parameters, checks at the start |
//! | `store` | the store: its properties, submissions, the last flush |
//! | `controller` | connected controllers, shared by their stores |
//! | `front` | the front of a lane: operations in, completions out |
//! | `queue` | queues from threads to fronts |
//! | `allocation` | block allocation, in several queries |

mod allocation;
mod controller;
mod front;
mod queue;
mod source;
mod store;

pub use source::NvmeSource;
pub use store::NvmeStore;
