//! Connections secured by TLS, their handshake or what comes after it, with somebody between the ends who
//! alters, cuts, repeats, moves, drops and makes up records. An end hears what its peer has said, as far as
//! it gets; without the key it gets nowhere.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_fuzz::tls;

fuzz_target!(
    init: tls::assert_reached(),
    |input: &[u8]| drop(tls::run(input))
);
