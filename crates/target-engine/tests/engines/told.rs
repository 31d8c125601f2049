//! A policy that notes what its end is told.

use roadtrain_proto::caravan::Limits;
use roadtrain_proto::policy::{
    Backlog, BatchPolicy, Cause, Doorbell, Freight, Pace, Parcel, PolicyConfig, Role,
};
use roadtrain_proto::time::Instant;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What one end was told.
#[derive(Debug)]
pub struct Told {
    /// At last: both ends share a core.
    pub shares_core: AtomicBool,
    /// Ever: it stays awake.
    pub awake: AtomicBool,
}

/// The ends of a pair: host, target.
pub type Ends = [Told; 2];

/// They were told nothing yet.
pub const fn nothing() -> Ends {
    [const { Told { shares_core: AtomicBool::new(false), awake: AtomicBool::new(false) } }; 2]
}

/// Sends at once.
struct Listening(&'static Told);

impl BatchPolicy for Listening {
    fn on_enqueue(&mut self, _: Instant, _: &Backlog, _: &Parcel) -> Doorbell {
        Doorbell::Ring(Cause::Drained)
    }

    fn limits(&self, _: Freight) -> Limits {
        PolicyConfig::none().limits
    }

    fn set_shares_core(&mut self, shares: bool) {
        self.0.shares_core.store(shares, Relaxed);
    }

    fn is_few(&self) -> bool {
        true
    }

    fn set_pace(&mut self, pace: Pace) {
        self.0.awake.fetch_or(pace == Pace::Awake, Relaxed);
    }
}

pub fn listening(told: &'static Ends, role: Role) -> Box<dyn BatchPolicy + Send> {
    Box::new(Listening(&told[usize::from(role == Role::Target)]))
}
