//! Policy that records the state of its end.

use roadtrain_proto::caravan::CaravanLimits;
use roadtrain_proto::policy::{
    Backlog, BatchPolicy, Doorbell, DoorbellCause, Freight, PduInfo, PolicyConfig, PolicyRole,
};
use roadtrain_proto::time::Instant;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Recorded state of one end.
#[derive(Debug)]
pub struct PolicyObservations {
    /// True if both ends share a core, as last reported.
    pub shares_core: AtomicBool,
    /// True if the end has ever polled.
    pub polled: AtomicBool,
}

/// State of both ends: host, target.
pub type EndObservations = [PolicyObservations; 2];

/// Returns the initial state.
pub const fn no_observations() -> EndObservations {
    [const { PolicyObservations { shares_core: AtomicBool::new(false), polled: AtomicBool::new(false) } };
        2]
}

/// Policy that sends immediately.
struct ObservingPolicy(&'static PolicyObservations);

impl BatchPolicy for ObservingPolicy {
    fn on_enqueue(&mut self, _: Instant, backlog: &Backlog, _: &PduInfo) -> Doorbell {
        self.0.shares_core.store(backlog.shares_core, Relaxed);
        self.0.polled.fetch_or(backlog.polls, Relaxed);
        Doorbell::Ring(DoorbellCause::Drained)
    }

    fn limits(&self, _: Freight, _: bool) -> CaravanLimits {
        PolicyConfig::none().limits
    }
}

pub fn observing(
    observations: &'static EndObservations,
    role: PolicyRole,
) -> Box<dyn BatchPolicy + Send> {
    Box::new(ObservingPolicy(&observations[usize::from(role == PolicyRole::Target)]))
}
