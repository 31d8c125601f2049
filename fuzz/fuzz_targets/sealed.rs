//! Sealed lanes over Ethernet between two honest ends, with an attacker who has no key, and who alters, cuts,
//! repeats, moves, drops and forges frames. Each frame is delivered as it was sent, at most once. Replayed and clear
//! frames are no signs of life, and every request completes when the attacker stops.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_fuzz::sealed;

fuzz_target!(
    init: sealed::assert_reached(),
    |input: &[u8]| drop(sealed::run(input))
);
