//! Common parts of the fuzz targets.

mod attacker;
pub mod auth;
pub mod cursor;
pub mod ether;
mod inputs;
mod reached;
pub mod sealed;
pub mod tls;

use roadtrain_proto::framing::{FramingStep, PduFramer};
use roadtrain_proto::manifest::Manifest;
use roadtrain_proto::policy::{PolicyConfig, PolicyKind};
use roadtrain_wire::pdu::Digests;

/// Longest data of any command in the queue pair targets.
pub const DATA_BYTES_MAX: usize = 1 << 18;
static ZEROES: [u8; DATA_BYTES_MAX] = [0; DATA_BYTES_MAX];

/// Returns the bytes of a caravan whose data is all zeroes.
pub fn bytes(caravan: &Manifest) -> Vec<u8> {
    caravan.bytes(|_| &ZEROES)
}

/// Asserts that `bytes` are whole PDUs of that end with correct digests.
pub fn assert_well_formed(from_host: bool, digests: Digests, alignment: u32, bytes: &[u8]) {
    let mut framer = PduFramer::new(from_host);
    framer.agree(digests, alignment);
    let mut at = 0;
    loop {
        let (used, step) = framer.next(&bytes[at..]).expect("we sent a malformed PDU");
        at += used;
        match step {
            FramingStep::Need(_) => break,
            FramingStep::DataEnd { intact } => assert!(intact, "we sent a wrong data digest"),
            FramingStep::Header(_) | FramingStep::Data(_) => {}
        }
    }
    assert_eq!(at, bytes.len(), "we sent half a PDU");
}

/// Returns a policy, chosen by the upper bits.
#[must_use]
pub fn policy(shape: u8) -> PolicyConfig {
    let kinds =
        [PolicyKind::None, PolicyKind::I10, PolicyKind::Pinof, PolicyKind::Tyche, PolicyKind::Auto];
    PolicyConfig::of(kinds[usize::from(shape >> 4) % kinds.len()])
}
