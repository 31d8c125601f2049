//! Any bytes as PDUs, from either end, with any digests: refused or divided into parts within the input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_proto::framing::{FramingStep, PduFramer};
use roadtrain_wire::pdu::Digests;

fuzz_target!(|input: &[u8]| {
    for bits in 0..8u8 {
        let mut framer = PduFramer::new(bits & 4 != 0);
        framer.agree(Digests { header: bits & 1 != 0, data: bits & 2 != 0 }, 4);
        let mut at = 0;
        while let Ok((used, step)) = framer.next(&input[at..]) {
            if let FramingStep::Data(range) = &step {
                assert!(range.start < range.end && range.end <= used, "{range:?} of {used}");
            }
            at += used;
            if let FramingStep::Need(_) = step {
                break;
            }
        }
        assert!(at <= input.len());
    }
});
