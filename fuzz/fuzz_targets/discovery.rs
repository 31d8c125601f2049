//! Any bytes as a discovery log.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_wire::discovery::{DiscoveryEntry, DiscoveryLogHeader};
use roadtrain_wire::zerocopy::FromBytes;

fuzz_target!(|input: &[u8]| {
    let Ok((_, mut rest)) = DiscoveryLogHeader::ref_from_prefix(input) else { return };
    while let Ok((entry, tail)) = DiscoveryEntry::ref_from_prefix(rest) {
        rest = tail;
        let _ = (entry.subnqn(), entry.traddr(), entry.trsvcid());
    }
});
