//! Reactor of the host as the guest of another reactor: on its thread and in its ring.

use super::{FrontedReactor, HostReactor};
use crate::api::Front;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::{ReactorCallbacks, RxBuffers};
use roadtrain_system::guest::GuestReactor;
use roadtrain_system::ring::{ReactorRing, RingCqe};
use std::any::Any;
use std::mem;

/// Reactor and its front, as a guest. The reactor's own ring is used only while its host does not call it.
pub(crate) struct HostGuest {
    reactor: HostReactor,
    front: Box<dyn Front>,
    /// Receive buffers; `None` before it begins.
    rx: Option<RxBuffers>,
    /// True if something has come since the last turn.
    is_woken: bool,
    /// Kept until the guest is dropped, which it may report.
    _end: Box<dyn Any>,
}

impl HostGuest {
    /// Makes a guest, which begins on this thread. Without `rx` the reactor has not begun. `end` is dropped with it.
    pub(crate) fn with(
        reactor: HostReactor,
        front: Box<dyn Front>,
        rx: Option<RxBuffers>,
        end: Box<dyn Any>,
    ) -> HostGuest {
        HostGuest { reactor, front, rx, is_woken: true, _end: end }
    }

    fn running(&mut self) -> FrontedReactor<'_> {
        FrontedReactor { reactor: &mut self.reactor, front: &mut *self.front }
    }

    /// True if a turn would do something.
    fn is_due(&mut self, now: Instant) -> bool {
        self.is_woken
            || self.reactor.has_work()
            || self.front.has_requests()
            || self.running().deadline().is_some_and(|due| due <= now)
    }

    /// Calls while the reactor has the ring of its host.
    fn in_ring<T>(&mut self, ring: &mut ReactorRing, call: impl FnOnce(&mut Self) -> T) -> T {
        mem::swap(&mut self.reactor.ring, ring);
        let result = call(self);
        mem::swap(&mut self.reactor.ring, ring);
        result
    }
}

impl GuestReactor for HostGuest {
    fn begin(&mut self, ring: &mut ReactorRing) {
        self.in_ring(ring, |guest| {
            guest.reactor.poll_carrier();
            match guest.rx {
                None => guest.rx = roadtrain_reactor::begin(&mut guest.running()),
                Some(_) => roadtrain_reactor::poll_inbox(&mut guest.running()),
            }
        });
    }

    fn is_over(&self) -> bool {
        self.reactor.stop
    }

    fn is_all_busy(&self) -> bool {
        self.reactor.is_all_busy()
    }

    fn has_work(&self) -> bool {
        self.reactor.has_work()
    }

    fn expects(&self) -> bool {
        self.reactor.expects()
    }

    fn lanes(&self) -> usize {
        self.reactor.lanes.len()
    }

    fn deadline(&mut self) -> Option<Instant> {
        self.running().deadline()
    }

    fn poll_lanes(&mut self, ring: &mut ReactorRing) {
        let has_work = self.reactor.has_work();
        self.in_ring(ring, |guest| {
            guest.running().poll_lanes(has_work);
            if !has_work {
                guest.reactor.poll_ports();
            }
        });
    }

    fn check_lanes(&mut self) {
        self.is_woken = true;
        self.running().check_lanes();
    }

    fn completed(&mut self, ring: &mut ReactorRing, now: Instant, cqe: RingCqe) {
        self.reactor.shared.now = now;
        self.is_woken = true;
        self.in_ring(ring, |guest| roadtrain_reactor::handle_completion(&mut guest.running(), cqe));
    }

    fn turn(&mut self, ring: &mut ReactorRing, now: Instant) {
        self.reactor.shared.now = now;
        if !self.is_due(now) {
            return;
        }
        self.is_woken = false;
        let Some(mut rx) = self.rx.take() else { return };
        self.in_ring(ring, |guest| guest.reactor.turn(&mut *guest.front, &mut rx));
        self.rx = Some(rx);
    }

    fn send(&mut self, ring: &mut ReactorRing) {
        if self.front.has_requests() {
            self.in_ring(ring, |guest| guest.reactor.send_requests(&mut *guest.front));
        }
    }
}

/// Closes the lanes: their polls are cancelled by the reactor that drops the guest.
impl Drop for HostGuest {
    fn drop(&mut self) {
        let HostReactor { lanes, shared, .. } = &mut self.reactor;
        lanes.iter_mut().for_each(|lane| lane.shut_down(shared));
    }
}
