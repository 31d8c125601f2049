//! Any bytes as the data of a Connect command.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_wire::fabrics::{ConnectData, NQN_BYTES_MAX, parse_nqn};
use roadtrain_wire::zerocopy::FromBytes;

fuzz_target!(|input: &[u8]| {
    let Ok((data, _)) = ConnectData::ref_from_prefix(input) else { return };
    for nqn in [&data.subnqn, &data.hostnqn].into_iter().filter_map(parse_nqn) {
        assert!((1..=NQN_BYTES_MAX).contains(&nqn.len()));
    }
});
