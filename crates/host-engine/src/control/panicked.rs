//! Failure of a controller whose control thread panics: no thread keeps its connections any more, so its users get an
//! error.

use super::{HostReactorOrder, HostReactorReport, PathControl, ReactorHandle};
use crate::numbers::ConnectionNumbers;
use crate::view::HostControllerView;
use roadtrain_system::mailbox::MailboxSender;
use std::thread;
use tracing::error;

/// Guard that fails the controller when the thread panics, so that no request waits for ever.
pub(crate) struct PanicGuard {
    view: HostControllerView,
    path: usize,
    lanes: usize,
    reactors: Vec<ReactorHandle>,
    peers: Vec<MailboxSender<HostReactorReport>>,
}

impl PathControl {
    /// Returns the guard for the thread that runs it.
    pub(crate) fn panic_guard(&self) -> PanicGuard {
        PanicGuard {
            view: self.view.clone(),
            path: self.context.path,
            lanes: self.context.lanes,
            reactors: self.reactors.iter().map(ReactorHandle::share).collect(),
            peers: self.context.peers.clone(),
        }
    }
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let failure =
            format!("the control thread of {} has panicked", self.view.address_of(self.path));
        error!("{failure}");
        self.view.fail(failure);
        // The other paths end normally.
        self.peers.iter().for_each(|peer| _ = peer.send(HostReactorReport::Stop));
        let numbers = ConnectionNumbers::new(self.lanes, self.peers.len());
        for reactor in &self.reactors {
            reactor.orders.send(HostReactorOrder::Stop);
            for &lane in &reactor.lanes {
                reactor.orders.send(HostReactorOrder::Fail { lane: numbers.of(self.path, lane) });
            }
        }
    }
}
