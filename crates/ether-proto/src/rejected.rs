//! What was dropped of a lane's frames, by reason, and what a lane cannot go on after.

use core::fmt;

/// A record that breaks the protocol. Its frame was acknowledged, so its sender does not send it again: the request that
/// it is of would never end. So the lane ends instead, with [`Reason::Broken`](roadtrain_wire::ether::setup::Reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Reason, as [`Rejected::by_reason`] names it.
    pub reason: &'static str,
    /// Field that is wrong, as docs/reference/ethernet.md names it.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// SLOT of the record; `None` for one that cannot be read.
    pub slot: Option<u16>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of a record", self.field, self.value)?;
        if let Some(slot) = self.slot {
            write!(f, " in slot {slot}")?;
        }
        write!(f, " breaks the protocol ({})", self.reason)
    }
}

roadtrain_proto::counters! {
    /// Frames and records that made no sense and were dropped. `duplicates`, `beyond`, `late` and `repeated` are
    /// normal after losses; the others say that the peer, or a forger of its frames, breaks the protocol. A record of
    /// such a reason ends the lane ([`Broken`]), but for one that is larger than MDTS.
    pub struct Rejected {
        /// Frames of a type that no lane carries.
        types,
        /// Frames with another token, or of no link of the lane.
        foreign,
        /// In the clear, in a lane that is sealed.
        clear,
        /// Sealed by nobody who has the lane's keys, or altered since; ends of the lane without its proof.
        forged,
        /// Sealed frames that came again, and acknowledgements that came late.
        replayed,
        /// Cargo without a number.
        unnumbered,
        /// Frames whose SEQ has arrived before, or is before BASE of a later frame.
        duplicates,
        /// Frames whose SEQ is beyond the window.
        beyond,
        /// Frames whose BASE is after SEQ, or too far ahead.
        absurd,
        /// Records that cannot be read, or that this end never gets.
        records,
        /// Slots beyond the queue.
        slots,
        /// Pieces of a request that is complete, or older than the slot's.
        late,
        /// Commands and pieces that have arrived before.
        repeated,
        /// A new request in a slot whose last one has not been answered, or out of turn.
        busy,
        /// Places outside of the damq, or other than the request's.
        places,
        /// OFFSET, INDEX, PIECES, OCTETS or LENGTH that do not fit each other, or the request.
        shapes,
        /// Data for a request that has none in this direction.
        directions,
        /// Completions of commands that were not sent, or that name another command.
        unexpected,
    }
}

impl Rejected {
    /// Each reason's name and count.
    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        Self::NAMES.into_iter().zip(self.to_array())
    }
}
