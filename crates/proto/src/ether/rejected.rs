//! What was dropped of a lane's frames, by reason.

use core::ops::AddAssign;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Frames and records that made no sense and were dropped. `late` and `repeated` are normal after losses; the
        /// others say that the peer, or somebody who forges its frames, breaks the protocol.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Rejected {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Rejected {
            /// Each reason's name and count.
            #[must_use]
            pub fn by_reason(&self) -> [(&'static str, u64); [$(stringify!($name)),*].len()] {
                [$((stringify!($name), self.$name)),*]
            }
        }

        impl AddAssign for Rejected {
            fn add_assign(&mut self, other: Rejected) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
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
    /// Records that cannot be read, or that this end never gets.
    records,
    /// Slots beyond the queue.
    slots,
    /// Of a request that is complete, or older than the slot's.
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
