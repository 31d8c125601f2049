//! Removal of a path while others work: it takes no more requests, finishes those that it has, and then shuts its
//! controller down. If it is lost meanwhile it reconnects for that, as any other.

use super::{HostControlError, HostReactorOrder, Leftover, LinkError, PathControl};
use crate::admin::close;
use roadtrain_host_proto::procedure::ProcedureFailure;
use roadtrain_system::clock;
use roadtrain_wire::identify::vwc;
use tracing::{info, warn};

impl PathControl {
    /// Starts to remove the path.
    pub(super) fn leave(&mut self) {
        if self.leaving.is_some() || self.association.is_ending() {
            return;
        }
        info!(target = %self.config.address, "this path is being removed");
        self.leaving = Some(self.reactors.iter().map(|reactor| reactor.lanes.len()).sum());
        self.each_lane(|lane| HostReactorOrder::Leave { lane });
    }

    /// Records that one of its lanes has no request left, and gets none.
    pub(super) fn lane_left(&mut self) {
        let Some(lanes) = &mut self.leaving else { return };
        *lanes = lanes.saturating_sub(1);
        if *lanes == 0 {
            self.detach_lanes();
            self.association.ended(clock::now());
        }
    }

    /// Handles the result of the shutdown, which flushes acknowledged writes. If it failed, the user is warned that
    /// writes may be lost. A removed path gives no warning: the next flush over another path gets the failure from the
    /// target.
    pub(super) fn has_shut_down(&mut self, ended: Result<(), ProcedureFailure<LinkError>>) {
        let queues = std::mem::take(&mut self.queues);
        let Err(failure) = ended else { return close(queues) };
        let (target, error) = (&self.config.address, HostControlError::new(&self.config, failure));
        warn!(%target, "not shut down: {error}");
        if self.leaving.is_none() && self.may_be_unflushed() {
            self.view.lose(format!(
                "{target} has not said that its last flush is done ({error}): what was written and not flushed before may \
                 be lost"
            ));
        }
    }

    /// True if the target may have writes in a volatile cache.
    fn may_be_unflushed(&self) -> bool {
        let info = self.association.info();
        info.is_none_or(|info| {
            let writes = info.namespaces.iter().any(|namespace| !namespace.read_only);
            writes && info.identify.vwc & vwc::PRESENT != 0
        })
    }

    /// Returns the state for the next control thread.
    pub(super) fn left(self) -> Leftover {
        if self.leaving.is_some() {
            self.view.close_path(self.context.path);
            info!(target = %self.config.address, "this path is removed");
        }
        Leftover { inbox: self.inbox, ended: self.ended, is_refused: self.is_refused }
    }

    /// Takes over the number of ended reactors from an earlier control thread in this slot.
    pub(crate) fn after(mut self, ended: usize) -> Self {
        self.ended = ended;
        if ended >= self.reactors.len() {
            self.association.ended(clock::now());
        }
        self
    }
}
