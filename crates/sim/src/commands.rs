//! Driver of [`roadtrain_target_proto::service`] in the simulation: what it computes takes no time.

use crate::rng::Rng;
use core::time::Duration;
use roadtrain_proto::security::GeneratedPsk;
use roadtrain_proto::security::dhchap::Work;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::presence::Presences;
use roadtrain_target_proto::service::{Broadcast, Computing, Driver, Note, Plane};
use roadtrain_target_proto::{Connected, Target};

/// Network, as the target sees the ends of its connections.
pub(crate) trait Ends<C> {
    /// True if the host has ended the connection, though bytes that it sent before may be unread.
    fn is_lost(&self, now: Instant, connection: C) -> bool;
}

/// Control plane for the commands of one connection.
pub(crate) struct Commands<'a, C, N> {
    pub(crate) now: Instant,
    pub(crate) network: &'a N,
    pub(crate) control: &'a mut Target,
    pub(crate) presences: &'a mut Presences<C>,
    pub(crate) rng: &'a mut Rng,
    /// Numbers that no host can guess.
    pub(crate) numbers: &'a mut Rng,
    /// Messages to the reactors.
    pub(crate) messages: &'a mut Vec<Broadcast>,
    /// Connects refused as commands of lost connections were on the disk.
    pub(crate) busy: &'a mut u64,
}

impl<C, N> Commands<'_, C, N> {
    pub(crate) fn reborrow(&mut self) -> Commands<'_, C, N> {
        let Commands { now, network, control, presences, rng, numbers, messages, busy } = self;
        Commands { now: *now, network, control, presences, rng, numbers, messages, busy }
    }
}

impl<C: Copy, N: Ends<C>> Driver for Commands<'_, C, N> {
    type Connection = C;

    fn control<R>(&mut self, call: impl FnOnce(Plane<'_, C>) -> (R, Option<Broadcast>)) -> R {
        let is_lost = |connection: &C| self.network.is_lost(self.now, *connection);
        let any_lost = |connections: &[C]| connections.iter().any(is_lost);
        let plane = Plane { target: self.control, presences: self.presences, any_lost: &any_lost };
        let (result, message) = call(plane);
        self.messages.extend(message);
        result
    }

    fn number(&mut self) -> Option<u64> {
        Some(self.numbers.bits())
    }

    fn random(&mut self) -> Option<impl FnMut(&mut [u8])> {
        Some(|place: &mut [u8]| place.fill_with(|| self.rng.bits() as u8))
    }

    fn compute(&mut self, work: Work) -> Option<Computing> {
        work.compute();
        Some(Computing::Done)
    }

    /// Hosts do not authenticate again here.
    fn authentication_time(&self) -> Duration {
        Duration::MAX
    }

    /// No host makes a PSK here.
    fn keep_psk(&mut self, _: Instant, _: &Connected, _: &GeneratedPsk) {}

    fn note(&mut self, note: &Note<'_>) {
        *self.busy += u64::from(matches!(note, Note::Busy(..)));
    }
}
