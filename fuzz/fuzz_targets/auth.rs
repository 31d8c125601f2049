//! Authentications (DH-HMAC-CHAP) between two honest ends, with somebody between them who alters, cuts,
//! repeats, moves, drops and makes up messages. Nobody is taken for who he is not, nothing that was proved
//! was altered, and what nobody has interfered with succeeds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_fuzz::auth;

fuzz_target!(
    init: auth::assert_reached(),
    |input: &[u8]| drop(auth::run(input))
);
