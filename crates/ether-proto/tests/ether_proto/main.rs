//! Both ends against each other, over byte streams and over frames, in one test program:
//! `cargo test -p roadtrain-ether-proto --test ether_proto pair::`.

#[path = "../../../../tests/lib/cases.rs"]
mod cases;
mod classes;
mod common;
mod ether;
mod fused;
mod hostile;
mod lane;
mod model;
mod mutations;
mod pair;
mod policies;
mod scripts;
mod transitions;
mod whole_blocks;
