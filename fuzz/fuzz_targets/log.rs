//! Any octets as the log pages that are walked.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_wire::ana::ana_groups;

fuzz_target!(|input: &[u8]| {
    for (group, nsids) in ana_groups(input) {
        assert_eq!(group.nnsids.get() as usize, nsids.len());
    }
});
