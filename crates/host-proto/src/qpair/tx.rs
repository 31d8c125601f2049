//! PDUs of a host's queue pair that wait for their doorbell.

use super::{QpairSlot, fused};
use roadtrain_proto::error::TermReqError;

#[derive(Clone, Copy, Debug)]
pub(super) enum HostTx {
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
        error: TermReqError,
    },
}

impl HostTx {
    #[inline]
    pub(super) fn waits(&self, for_icresp: bool) -> bool {
        for_icresp && !matches!(self, HostTx::IcReq)
    }

    #[inline]
    pub(super) fn data_bytes(&self, slots: &[QpairSlot]) -> u32 {
        match *self {
            HostTx::Command { slot } => slots[usize::from(slot)].in_capsule_bytes(),
            HostTx::Fused { first, second } => fused::in_capsule_bytes(slots, [first, second]),
            HostTx::H2cData { length, .. } => length,
            _ => 0,
        }
    }
}
