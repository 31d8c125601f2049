//! A path that is given up while others go on: it takes no more requests, those that it has are finished, and then its
//! controller is shut down. A path that is lost meanwhile is connected again for that, as any other.

use super::{Control, HostError, Leftover, LinkError, Order};
use crate::admin::close;
use roadtrain_host_proto::procedure::Failure;
use roadtrain_system::clock;
use roadtrain_wire::identify::vwc;
use tracing::{info, warn};

impl Control {
    /// The path is given up.
    pub(super) fn leave(&mut self) {
        if self.leaving.is_some() || self.association.is_ending() {
            return;
        }
        info!(target = %self.config.address, "this path is given up");
        self.leaving = Some(self.reactors.iter().map(|reactor| reactor.lanes.len()).sum());
        self.each_lane(|lane| Order::Leave { lane });
    }

    /// One of its lanes has no request any more, and gets none.
    pub(super) fn lane_left(&mut self) {
        let Some(lanes) = &mut self.leaving else { return };
        *lanes = lanes.saturating_sub(1);
        if *lanes == 0 {
            self.detach_lanes();
            self.association.ended(clock::now());
        }
    }

    /// The controller was to be shut down, which flushes what it was told to write. If that is not known to be done the
    /// user hears that writes may be lost; but not of a path that is given up while others go on, whose next flush hears of
    /// it from the target.
    pub(super) fn has_shut_down(&mut self, ended: Result<(), Failure<LinkError>>) {
        let queues = std::mem::take(&mut self.queues);
        let Err(failure) = ended else { return close(queues) };
        let (target, error) = (&self.config.address, HostError::new(&self.config, failure));
        warn!(%target, "not shut down: {error}");
        if self.leaving.is_none() && self.may_be_unflushed() {
            self.view.lose(format!(
                "{target} has not said that its last flush is done ({error}): what was written and not flushed before may \
                 be lost"
            ));
        }
    }

    /// Whether the target may have writes in a volatile cache.
    fn may_be_unflushed(&self) -> bool {
        let info = self.association.info();
        info.is_none_or(|info| {
            let writes = info.namespaces.iter().any(|namespace| !namespace.read_only);
            writes && info.identify.vwc & vwc::PRESENT != 0
        })
    }

    /// At the end.
    pub(super) fn left(self) -> Leftover {
        if self.leaving.is_some() {
            self.view.close_path(self.seat.path);
            info!(target = %self.config.address, "this path is gone");
        }
        Leftover { inbox: self.inbox, ended: self.ended, is_refused: self.is_refused }
    }

    /// What an earlier control thread has left at this place.
    pub(crate) fn after(mut self, ended: usize) -> Self {
        self.ended = ended;
        if ended >= self.reactors.len() {
            self.association.ended(clock::now());
        }
        self
    }
}
