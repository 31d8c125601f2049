//! PDUs of a host's queue pair that wait for their doorbell.

use super::{Slot, fused};
use roadtrain_proto::error::PeerMisbehaved;

#[derive(Clone, Copy, Debug)]
pub(super) enum Tx {
    IcReq,
    Command {
        slot: u16,
    },
    /// Two fused commands, sent together.
    Fused {
        first: u16,
        second: u16,
    },
    H2cData {
        slot: u16,
        ttag: u16,
        offset: u32,
        length: u32,
        last: bool,
    },
    Term {
        error: PeerMisbehaved,
    },
}

impl Tx {
    #[inline]
    pub(super) fn waits(&self, for_icresp: bool) -> bool {
        for_icresp && !matches!(self, Tx::IcReq)
    }

    #[inline]
    pub(super) fn data_bytes(&self, slots: &[Slot]) -> u32 {
        match *self {
            Tx::Command { slot } => slots[usize::from(slot)].in_capsule_bytes(),
            Tx::Fused { first, second } => fused::in_capsule_bytes(slots, [first, second]),
            Tx::H2cData { length, .. } => length,
            _ => 0,
        }
    }
}
