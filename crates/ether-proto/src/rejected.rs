//! Counters of a lane's dropped frames and records, and the records that end a lane.

use core::fmt;

/// A record that breaks the protocol. Its frame was acknowledged, so the peer does not send it again, and its request
/// would never complete. The lane therefore ends with [`Reason::LeaveReason`](roadtrain_wire::ether::setup::LeaveReason).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenRecord {
    /// Reason, as [`Rejected::by_reason`] names it.
    pub reason: &'static str,
    /// Name of the wrong field in docs/reference/ethernet.md.
    pub field: &'static str,
    /// Value of the field.
    pub value: u64,
    /// SLOT of the record; `None` if it is unreadable.
    pub slot: Option<u16>,
}

impl fmt::Display for BrokenRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of a record", self.field, self.value)?;
        if let Some(slot) = self.slot {
            write!(f, " in slot {slot}")?;
        }
        write!(f, " breaks the protocol ({})", self.reason)
    }
}

roadtrain_proto::counters! {
    /// Invalid frames and records that were dropped. `duplicates`, `beyond`, `late` and `repeated` are normal after
    /// losses; the others mean that the peer, or a forger of its frames, breaks the protocol. A record of such a
    /// reason ends the lane ([`BrokenRecord`]), except for one that is larger than MDTS.
    pub struct Rejected {
        /// Frames of a type that no lane carries.
        types,
        /// Frames with another token, or of no link of the lane.
        foreign,
        /// Clear frames in a sealed lane.
        clear,
        /// Frames sealed without the lane's keys or altered since, and Leave frames without a valid proof.
        forged,
        /// Repeated sealed frames, and acknowledgements that arrived late.
        replayed,
        /// Cargo without a number.
        unnumbered,
        /// Frames whose SEQ has arrived before, or is before BASE of a later frame.
        duplicates,
        /// Frames whose SEQ is beyond the window.
        beyond,
        /// Frames whose BASE is after SEQ, or too far ahead.
        absurd,
        /// Records that are unreadable, or that this end never receives.
        records,
        /// Slots beyond the queue.
        slots,
        /// Pieces of a request that is complete, or older than the slot's.
        late,
        /// Commands and pieces that have arrived before.
        repeated,
        /// New requests in a slot whose last one has no response yet, or with a GENERATION out of sequence.
        busy,
        /// Positions outside of the damq, or other than the request's.
        places,
        /// OFFSET, INDEX, PIECES, BYTES or LENGTH that do not fit each other, or the request.
        shapes,
        /// Data in a direction in which the request has none.
        directions,
        /// Completions of commands that were not sent, or that name another command.
        unexpected,
    }
}

impl Rejected {
    /// Returns each reason's name and count.
    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        Self::NAMES.into_iter().zip(self.to_array())
    }
}
