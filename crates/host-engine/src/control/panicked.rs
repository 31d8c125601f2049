//! Failure of a controller whose control thread panics: no thread keeps its connections any more, so its users get an
//! error.

use super::{Control, Order, ReactorHandle, Report};
use crate::numbers::Numbers;
use crate::view::ControllerView;
use roadtrain_system::mailbox::Outbox;
use std::thread;
use tracing::error;

/// Guard that fails the controller when the thread panics, so that no request waits for ever.
pub(crate) struct Alarm {
    view: ControllerView,
    path: usize,
    lanes: usize,
    reactors: Vec<ReactorHandle>,
    peers: Vec<Outbox<Report>>,
}

impl Control {
    /// Returns the guard for the thread that runs it.
    pub(crate) fn alarm(&self) -> Alarm {
        Alarm {
            view: self.view.clone(),
            path: self.seat.path,
            lanes: self.seat.lanes,
            reactors: self.reactors.iter().map(ReactorHandle::share).collect(),
            peers: self.seat.peers.clone(),
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let failure =
            format!("the control thread of {} has panicked", self.view.address_of(self.path));
        error!("{failure}");
        self.view.fail(failure);
        // The other paths end normally.
        self.peers.iter().for_each(|peer| _ = peer.send(Report::Stop));
        let numbers = Numbers::new(self.lanes, self.peers.len());
        for reactor in &self.reactors {
            reactor.orders.send(Order::Stop);
            for &lane in &reactor.lanes {
                reactor.orders.send(Order::Fail { lane: numbers.of(self.path, lane) });
            }
        }
    }
}
