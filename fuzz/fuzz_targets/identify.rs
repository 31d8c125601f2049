//! Any bytes as every Identify page.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_wire::fabrics::parse_nqn;
use roadtrain_wire::identify::{
    IdentifyController, IdentifyNamespace, NamespaceList, namespace_descriptors, parse_ascii,
};
use roadtrain_wire::zerocopy::FromBytes;

fuzz_target!(|input: &[u8]| {
    assert!(namespace_descriptors(input).count() <= input.len() / 5);
    if let Ok((controller, _)) = IdentifyController::ref_from_prefix(input) {
        let _ = (parse_ascii(&controller.mn), parse_nqn(&controller.subnqn));
    }
    if let Ok((namespace, _)) = IdentifyNamespace::ref_from_prefix(input) {
        assert!(namespace.block_bytes().is_none_or(|bytes| (512..=65536).contains(&bytes)));
    }
    if let Ok((list, _)) = NamespaceList::ref_from_prefix(input) {
        assert!(list.iter().all(|nsid| nsid != 0));
    }
});
