//! State machines without sockets, clock or threads.
#![forbid(unsafe_code)]

pub mod time;
