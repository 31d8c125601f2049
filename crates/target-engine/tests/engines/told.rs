//! Policy that records the state of its end.

use roadtrain_proto::caravan::Limits;
use roadtrain_proto::policy::{
    Backlog, BatchPolicy, Cause, Doorbell, Freight, Parcel, PolicyConfig, Role,
};
use roadtrain_proto::time::Instant;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Recorded state of one end.
#[derive(Debug)]
pub struct Told {
    /// True if both ends share a core, as last reported.
    pub shares_core: AtomicBool,
    /// True if the end has ever polled.
    pub polled: AtomicBool,
}

/// State of both ends: host, target.
pub type Ends = [Told; 2];

/// Returns the initial state.
pub const fn nothing() -> Ends {
    [const { Told { shares_core: AtomicBool::new(false), polled: AtomicBool::new(false) } }; 2]
}

/// Policy that sends immediately.
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
