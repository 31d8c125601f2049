//! Two commands that are one request: Compare and Write (NVMe Base 2.1, section 3.4.2).
//!
//! Both are sent together, as one entry of the send queue. Their data is in one slot, the second command's: first the
//! expected data, then the data to write. The slot completes once, when both commands are complete.

use super::{
    CommandTransfer, HostQpair, HostRxEvent, HostRxState, HostTx, QpairSlot, QpairSlotState,
};
use roadtrain_proto::caravan::Caravan;
use roadtrain_proto::policy::{PduInfo, PduKind, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::sqe::{FUSE_FIRST, FUSE_SECOND, Sqe};
use roadtrain_wire::status::Status;

/// Fused pair in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct FusedPair {
    /// Slot of the Compare; `None` once it is complete.
    first: Option<u16>,
    second: u16,
    /// Bytes of data of each command.
    bytes: u32,
    /// Status of the Compare.
    compare_status: Status,
    /// Completion of the Write, and whether its data is intact.
    ended: Option<(Cqe, bool)>,
}

impl FusedPair {
    /// Returns the completion of the request, from the results of both commands.
    fn cqe(&self, second: Cqe) -> Cqe {
        let written = second.status();
        let status = match self.compare_status {
            // The Compare did not run, because of the Write.
            compare_status if compare_status.is(Status::FUSED_FAILED) => written,
            compare_status if !compare_status.is_success() => compare_status,
            // The written data is unknown: another Compare would not show the result of this request.
            _ if !written.is_success() => written.dnr(),
            _ => written,
        };
        Cqe { status: status.to_field().into(), ..second }
    }
}

/// Returns the bytes of in-capsule data of both.
#[cold]
pub(super) fn in_capsule_bytes(slots: &[QpairSlot], pair: [u16; 2]) -> u32 {
    pair.map(|number| slots[usize::from(number)].in_capsule_bytes()).iter().sum()
}

impl HostQpair {
    /// Queues a fused Compare and Write, with `bytes` of data each. Returns the slot of both, whose data is the
    /// expected data and then the data to write. `None` if the queue has no room for two.
    pub fn submit_fused(
        &mut self,
        now: Instant,
        (compare, write): (&Sqe, &Sqe),
        bytes: u32,
        urgency: Urgency,
    ) -> Option<u16> {
        if self.room() < 2 || self.rx == HostRxState::Ended {
            return None;
        }
        let fused = |sqe: &Sqe, fuse| Sqe { flags: sqe.flags | fuse, ..*sqe };
        let pair = [fused(compare, FUSE_FIRST), fused(write, FUSE_SECOND)];
        let [(first, of_first), (second, of_second)] =
            pair.map(|sqe| self.prepare(now, &sqe, CommandTransfer::Out(bytes), urgency));
        let data_bytes = of_first + of_second;
        let kind = if data_bytes > 0 { PduKind::CommandData } else { PduKind::Command };
        let parcel = PduInfo { kind, urgency, data_bytes, request_bytes: bytes * 2 };
        self.fused.push(FusedPair {
            first: Some(first),
            second,
            bytes,
            compare_status: Status::SUCCESS,
            ended: None,
        });
        self.count_in_flight();
        self.out.push(now, HostTx::Fused { first, second }, &parcel);
        Some(second)
    }

    /// Sends both capsules.
    #[cold]
    pub(super) fn emit_fused(&mut self, pair: [u16; 2], caravan: &mut impl Caravan) {
        for number in pair {
            self.emit_command(number, caravan);
        }
    }

    /// Returns the slot that has a command's data, and the offset there.
    #[inline]
    pub(super) fn data_of(&self, number: u16) -> (u16, u32) {
        if self.fused.is_empty() {
            return (number, 0);
        }
        let pair = self.fused.iter().find(|p| p.first == Some(number) || p.second == number);
        match pair {
            Some(pair) if pair.second == number => (number, pair.bytes),
            Some(pair) => (pair.second, 0),
            None => (number, 0),
        }
    }

    /// Completes a command of a pair. `Err`: it is not fused; `Ok(None)`: its partner is still in flight.
    #[cold]
    pub(super) fn end_fused(
        &mut self,
        number: u16,
        cqe: Cqe,
        data_intact: bool,
    ) -> Result<Option<HostRxEvent>, ()> {
        let is_it = |pair: &FusedPair| pair.first == Some(number) || pair.second == number;
        let at = self.fused.iter().position(is_it).ok_or(())?;
        let pair = &mut self.fused[at];
        if pair.second == number {
            pair.ended = Some((cqe, data_intact));
            self.slots[usize::from(number)].state = QpairSlotState::Completed;
        } else {
            (pair.first, pair.compare_status) = (None, cqe.status());
            self.free.give(number);
        }
        let (None, Some((cqe, data_intact))) = (pair.first, pair.ended) else { return Ok(None) };
        let pair = self.fused.swap_remove(at);
        self.slots[usize::from(pair.second)].state = QpairSlotState::Free;
        self.free.give(pair.second);
        Ok(Some(HostRxEvent::Complete { slot: pair.second, cqe: pair.cqe(cqe), data_intact }))
    }
}
