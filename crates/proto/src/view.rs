//! Views over PDUs that the framer has already found to be complete.

use crate::error::TermReqError;
use roadtrain_wire::pdu::Fes;
use roadtrain_wire::zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Returns the PDU at the start of `pdu`.
#[inline]
pub fn view<T>(pdu: &[u8]) -> Result<&T, TermReqError>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    T::ref_from_prefix(pdu)
        .map(|(view, _)| view)
        .map_err(|_| TermReqError::new(Fes::PduSequenceError, "PDU cut short"))
}
