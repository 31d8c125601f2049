//! The host's state machines, in one test program: `cargo test -p roadtrain-host-proto --test host_proto association::`.

mod association;
mod moves;
mod requests;
mod security;
