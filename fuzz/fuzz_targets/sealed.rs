//! Sealed lanes over Ethernet between two honest ends, with somebody between them who has no key, and who
//! alters, cuts, repeats, moves, drops and makes up frames. What is delivered is what was sent, at most once;
//! what is repeated or in the clear is no sign of life; and when he stops, every request completes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_fuzz::sealed;

fuzz_target!(
    init: sealed::assert_reached(),
    |input: &[u8]| drop(sealed::run(input))
);
