//! Any bytes as the log pages and lists that are parsed entry by entry.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_wire::ana::ana_groups;
use roadtrain_wire::lba_status::parse_list;

fuzz_target!(|input: &[u8]| {
    for (group, nsids) in ana_groups(input) {
        assert_eq!(group.nnsids.get() as usize, nsids.len());
    }
    if let Some((head, descriptors)) = parse_list(input) {
        assert!(descriptors.len() <= head.count.get() as usize);
    }
});
