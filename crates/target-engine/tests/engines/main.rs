//! Real hosts and targets in one process: over loopback on free ports, and over pairs of Ethernet interfaces.
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod abort;
mod alive;
mod ana;
mod authentication;
mod awake;
mod classes;
mod cold;
mod commands;
mod concatenation;
mod control;
mod copying;
mod discovery;
#[cfg(feature = "ether")]
mod ether;
mod express;
mod fence;
mod fused;
mod fused_loss;
mod handover;
mod harness;
mod hostile;
mod identity;
mod idle;
mod lba_status;
mod listeners;
mod loss;
mod name;
mod ops;
mod paths;
mod pauses;
mod peer;
mod placement;
mod proxy;
mod queue;
mod rates;
mod recorded;
mod reservations;
mod scarce;
mod shared_core;
#[path = "../../../../tests/lib/skipped.rs"]
mod skipped;
mod ssd;
mod store;
mod tls;
mod told;
mod transfers;
mod uncorrectable;
mod unsent;
mod whole_blocks;
