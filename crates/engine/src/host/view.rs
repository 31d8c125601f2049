//! What other threads may know about a controller.

use super::counters::{LaneCounters, LaneReading, LinkReport, LinkState, PathReading};
use crate::platform::Affinity;
use crate::spin::{Learnt, Meter};
use roadtrain_proto::host::bringup::{ControllerInfo, NamespaceInfo};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What everybody may know about the controller; shared with the fronts.
#[derive(Clone)]
pub struct ControllerView {
    info: Arc<Mutex<ControllerInfo>>,
    link: Arc<Mutex<LinkReport>>,
    pub(super) counters: Arc<[LaneCounters]>,
    affinities: Arc<[Affinity]>,
    pub(super) meters: Arc<[Arc<Meter>]>,
    lost: Arc<Mutex<Vec<String>>>,
    failure: Arc<Mutex<Option<String>>>,
}

impl ControllerView {
    pub(super) fn new(info: ControllerInfo, lanes: usize, affinities: Vec<Affinity>) -> Self {
        let link = LinkReport::new(LinkState::Connected, None);
        ControllerView {
            info: Arc::new(Mutex::new(info)),
            link: Arc::new(Mutex::new(link)),
            counters: (0..lanes).map(|_| LaneCounters::default()).collect(),
            meters: affinities.iter().map(|_| Arc::default()).collect(),
            affinities: affinities.into(),
            lost: Arc::default(),
            failure: Arc::default(),
        }
    }

    /// Where the reactors' threads run and their memory is.
    #[must_use]
    pub fn affinities(&self) -> &[Affinity] {
        &self.affinities
    }

    /// How it stands with the target.
    #[must_use]
    pub fn link(&self) -> LinkReport {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lanes, by their number over all reactors.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneReading> {
        self.counters.iter().map(LaneCounters::read).collect()
    }

    /// What the reactors have learnt of waiting.
    #[must_use]
    pub fn waiting(&self) -> Vec<Learnt> {
        self.meters.iter().map(|meter| meter.read()).collect()
    }

    /// The lanes' parts of links, where they have no connections of their own.
    #[must_use]
    pub fn paths(&self) -> Vec<PathReading> {
        self.counters.iter().flat_map(LaneCounters::paths).collect()
    }

    /// Requests that the target had not answered when the controller was ended: what they wrote may be lost.
    #[must_use]
    pub fn abandoned(&self) -> u64 {
        self.counters.iter().map(LaneCounters::abandoned).sum()
    }

    /// Something could not be brought to the target before the end.
    pub fn lose(&self, what: String) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// What may be lost, for people to read, once the controller has ended. Nothing after an end in order.
    #[must_use]
    pub fn lost(&self) -> Vec<String> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let requests = match self.abandoned() {
            0 => None,
            count => Some(format!(
                "{count} requests that the target did not answer have failed: what they wrote may be lost"
            )),
        };
        requests.into_iter().chain(lost).collect()
    }

    /// Why a reactor has ended, if that was a failure: the controller has ended then, too.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn fail(&self, failure: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    /// Whoever stays in a state has been there since before.
    pub(super) fn set_link(&self, state: LinkState, error: Option<String>) {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let since = if link.state == state { link.since } else { Instant::now() };
        *link = LinkReport { state, since, error };
    }

    /// The controller as it was when it was last looked at.
    #[must_use]
    pub fn info(&self) -> ControllerInfo {
        self.info.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The namespace `nsid`, if it is there.
    #[must_use]
    pub fn namespace(&self, nsid: u32) -> Option<NamespaceInfo> {
        let info = self.info.lock().unwrap_or_else(PoisonError::into_inner);
        info.namespaces.iter().find(|namespace| namespace.nsid == nsid).cloned()
    }

    pub(super) fn set(&self, info: ControllerInfo) {
        *self.info.lock().unwrap_or_else(PoisonError::into_inner) = info;
    }
}
