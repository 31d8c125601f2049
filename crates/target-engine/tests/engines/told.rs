//! A policy that notes the state of its end.

use roadtrain_proto::caravan::Limits;
use roadtrain_proto::policy::{
    Backlog, BatchPolicy, Cause, Doorbell, Freight, Parcel, PolicyConfig, Role,
};
use roadtrain_proto::time::Instant;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// State of one end.
#[derive(Debug)]
pub struct Told {
    /// At last: both ends share a core.
    pub shares_core: AtomicBool,
    /// Ever: it polled.
    pub polled: AtomicBool,
}

/// The ends of a pair: host, target.
pub type Ends = [Told; 2];

/// Nothing is known yet.
pub const fn nothing() -> Ends {
    [const { Told { shares_core: AtomicBool::new(false), polled: AtomicBool::new(false) } }; 2]
}

/// Sends at once.
struct Listening(&'static Told);

impl BatchPolicy for Listening {
    fn on_enqueue(&mut self, _: Instant, backlog: &Backlog, _: &Parcel) -> Doorbell {
        self.0.shares_core.store(backlog.shares_core, Relaxed);
        self.0.polled.fetch_or(backlog.polls, Relaxed);
        Doorbell::Ring(Cause::Drained)
    }

    fn limits(&self, _: Freight, _: bool) -> Limits {
        PolicyConfig::none().limits
    }
}

pub fn listening(told: &'static Ends, role: Role) -> Box<dyn BatchPolicy + Send> {
    Box::new(Listening(&told[usize::from(role == Role::Target)]))
}
