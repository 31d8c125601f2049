//! Authentications (DH-HMAC-CHAP) between two honest ends, with an attacker who alters, cuts, repeats, moves, drops
//! and forges messages. No end accepts an impostor, nothing that was proved was altered, and an authentication
//! without interference succeeds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_fuzz::auth;

fuzz_target!(
    init: auth::assert_reached(),
    |input: &[u8]| drop(auth::run(input))
);
