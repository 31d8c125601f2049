//! Connections secured by TLS, in their handshake or after it, with an attacker between the ends who alters, cuts,
//! repeats, moves, drops and forges records. An end receives a prefix of its peer's data, and nothing without the
//! key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_fuzz::tls;

fuzz_target!(
    init: tls::assert_reached(),
    |input: &[u8]| drop(tls::run(input))
);
