//! A policy of another crate: requests leave two by two.
//!
//!     cargo run -p roadtrain-proto --example toy_policy
//!
//! A host or a target uses it with `config.policy = pairs()`. The steps are in
//! docs/internals/how-to-add-a-policy.md.

use roadtrain_proto::caravan::Limits;
use roadtrain_proto::policy::{
    Backlog, BatchPolicy, Batcher, Cause, Doorbell, Freight, Kind, Parcel, PolicyConfig, Urgency,
};
use roadtrain_proto::policy::{Doorbells, Role};
use roadtrain_proto::time::Instant;

/// Sends when two requests wait, or when the reactor's turn has nothing more.
struct Pairs;

impl BatchPolicy for Pairs {
    fn on_enqueue(&mut self, now: Instant, backlog: &Backlog, parcel: &Parcel) -> Doorbell {
        if parcel.is_urgent() {
            Doorbell::Ring(Cause::Urgent)
        } else if backlog.requests >= 2 {
            Doorbell::Ring(Cause::Size)
        } else {
            // Held work needs a wake-up: `on_drained`, at the end of this turn, rings.
            Doorbell::ArmUntil(now)
        }
    }

    fn limits(&self, _: Freight, _: bool) -> Limits {
        Limits { count_max: 2, bytes_max: 4 << 20 }
    }
}

/// What a host's or a target's configuration takes.
pub(crate) fn pairs() -> PolicyConfig {
    PolicyConfig::custom(|_| Box::new(Pairs))
}

/// Five reads of one turn: two pairs, and one that leaves when the turn ends.
pub(crate) fn doorbells_of_five_reads() -> Doorbells {
    let mut batcher = Batcher::new(&pairs(), Role::Host);
    let read = Parcel {
        kind: Kind::Command,
        urgency: Urgency::Normal,
        data_bytes: 0,
        request_bytes: 4096,
    };
    for _ in 0..5 {
        batcher.enqueue(Instant(0), &read);
    }
    batcher.drained(Instant(0));
    batcher.doorbells()
}

fn main() {
    println!("{:?}", doorbells_of_five_reads());
}
