//! Seeds of every scenario, in one test program: `cargo test -p roadtrain-sim --test sim tls::`.

#[path = "../../../../tests/lib/cases.rs"]
mod cases;
mod common;
mod counting;
mod ether;
mod ether_faults;
mod ether_flow;
mod express;
mod gateways;
mod marking;
mod neighbours;
mod paths;
mod reactors;
mod seeds;
mod swapping;
mod taking;
mod target_faults;
mod targets;
mod tls;
