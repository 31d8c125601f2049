//! A policy of another crate: requests leave in pairs.
//!
//!     cargo run -p roadtrain-proto --example toy_policy
//!
//! A host or a target uses it with `config.policy = pairs()`. The steps are in
//! docs/internals/how-to-add-a-policy.md.

use roadtrain_proto::caravan::CaravanLimits;
use roadtrain_proto::policy::{
    Backlog, BatchPolicy, Batcher, Doorbell, DoorbellCause, Freight, PduInfo, PduKind,
    PolicyConfig, Urgency,
};
use roadtrain_proto::policy::{DoorbellTotals, PolicyRole};
use roadtrain_proto::time::Instant;

/// Sends when two requests wait, or when the reactor's turn has nothing more.
struct Pairs;

impl BatchPolicy for Pairs {
    fn on_enqueue(&mut self, now: Instant, backlog: &Backlog, pdu: &PduInfo) -> Doorbell {
        if pdu.is_urgent() {
            Doorbell::Ring(DoorbellCause::Urgent)
        } else if backlog.requests >= 2 {
            Doorbell::Ring(DoorbellCause::Size)
        } else {
            // Held work needs a wake-up: `on_drained` rings at the end of this turn.
            Doorbell::ArmUntil(now)
        }
    }

    fn limits(&self, _: Freight, _: bool) -> CaravanLimits {
        CaravanLimits { count_max: 2, bytes_max: 4 << 20 }
    }
}

/// The value for `config.policy` of a host or a target.
pub(crate) fn pairs() -> PolicyConfig {
    PolicyConfig::custom(|_| Box::new(Pairs))
}

/// Doorbells of five reads of one turn: two pairs, and one read that leaves when the turn ends.
pub(crate) fn doorbells_of_five_reads() -> DoorbellTotals {
    let mut batcher = Batcher::new(&pairs(), PolicyRole::Host);
    let read = PduInfo {
        kind: PduKind::Command,
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
