//! Reservation Report.

use super::state::{HostId, ReservationState};
use roadtrain_wire::reservation::{
    CNTLID_NONE, EXTENDED_ENTRIES, RCSTS_HOLDER, ReportEntryExtended, ReportHead, ReservationType,
};
use roadtrain_wire::zerocopy::{FromZeros, IntoBytes};

/// Returns the report with host identifiers of 128 bits. It has an entry for each of the registrants' `controllers`,
/// given by identifier and host, and one for each registrant without a controller.
#[must_use]
pub(super) fn of(state: &ReservationState, controllers: &[(u16, HostId)]) -> Vec<u8> {
    let mut entries = Vec::new();
    for registrant in &state.registrants {
        let own = controllers.iter().filter(|(_, host)| *host == registrant.host);
        let own: Vec<u16> = own.map(|(cntlid, _)| *cntlid).collect();
        let cntlids = if own.is_empty() { vec![CNTLID_NONE] } else { own };
        let is_holder = state.is_held_by(&registrant.host);
        entries.extend(cntlids.into_iter().map(|cntlid| {
            let mut entry = ReportEntryExtended::new_zeroed();
            (entry.cntlid, entry.key) = (cntlid.into(), registrant.key.into());
            entry.rcsts = if is_holder { RCSTS_HOLDER } else { 0 };
            entry.hostid = registrant.host;
            entry
        }));
    }
    entries.truncate(usize::from(u16::MAX));
    let mut head = ReportHead::new_zeroed();
    head.generation = state.generation.into();
    head.rtype = state.reservation.map_or(0, |held| ReservationType::emit(held.kind));
    head.registrants = (entries.len() as u16).into();
    head.ptpls = state.persists.into();
    let mut report = head.as_bytes().to_vec();
    report.resize(EXTENDED_ENTRIES, 0);
    report.extend_from_slice(entries.as_bytes());
    report
}
