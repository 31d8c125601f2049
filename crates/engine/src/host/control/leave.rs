//! A path that is given up while others go on: it takes no more requests, those that it has are finished, and then its
//! controller is shut down. A path that is lost meanwhile is connected again for that, as any other.

use super::{Control, Leftover, Order};
use crate::clock;
use tracing::info;

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

    /// At the end.
    pub(super) fn left(self) -> Leftover {
        if self.leaving.is_some() {
            self.view.close_path(self.seat.path);
            info!(target = %self.config.address, "this path is gone");
        }
        Leftover { inbox: self.inbox, ended: self.ended, is_refused: self.is_refused }
    }

    /// What an earlier control thread has left at this place.
    pub(in crate::host) fn after(mut self, ended: usize) -> Self {
        self.ended = ended;
        if ended >= self.reactors.len() {
            self.association.ended(clock::now());
        }
        self
    }
}
