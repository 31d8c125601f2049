//! How an end waits while it has nothing to do: asleep, or as the product does where nobody has said how.

use roadtrain_proto::costs::{Costs, Pace, Used};
use roadtrain_proto::spin::{Adaptive, Reading};
use roadtrain_proto::time::Instant;
use std::time::Duration;

/// How both ends wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// `--no-spin`.
    Sleep,
    /// By default: an end spins where that has paid. Ends that share a core sleep all the same: who spins there keeps
    /// the other end from its work, and the kernel's accounts, by which the product finds that out, are not modelled.
    Learns,
}

/// The machines that decide, between two turns.
#[derive(Debug)]
pub struct Waits {
    pub costs: Costs,
    adaptive: Option<Adaptive>,
    /// It looks again and again until then, if nothing comes.
    spins_until: Option<Instant>,
}

/// What a wait was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waited {
    /// For how long it spun.
    pub spun: Duration,
    /// It slept, or would have.
    pub slept: bool,
}

impl Waits {
    pub fn new(waiting: Waiting, is_host: bool) -> Self {
        let adaptive = (waiting == Waiting::Learns).then(Adaptive::default);
        Waits { costs: Costs::new(is_host), adaptive, spins_until: None }
    }

    pub fn spins_until(&self) -> Option<Instant> {
        self.spins_until
    }

    /// A turn ends. `expects`: something may come; `due`: something is to be done then; `used`: so far.
    pub fn begin(&mut self, now: Instant, expects: bool, due: Option<Instant>, used: Reading) {
        let Some(adaptive) = &mut self.adaptive else { return };
        if adaptive.wants_reading() {
            adaptive.review(used);
        }
        let (sleep, is_awake) = (&self.costs.sleep, self.costs.awake.pace() == Pace::Awake);
        adaptive.spin_again(now, expects, due, sleep, is_awake);
        self.spins_until = adaptive.spins_until(sleep);
    }

    /// The wait that began at `since` is over: at `event` there was something to do, and at `start` a turn can begin.
    /// `look` is what a sleep costs at least.
    pub fn end(
        &mut self,
        (since, event, start): (Instant, Instant, Instant),
        look: Duration,
    ) -> Waited {
        let until = self.spins_until.take();
        let Costs { sleep, idle, awake } = &mut self.costs;
        let is_there = event <= since;
        let event = event.max(since);
        if !is_there {
            idle.waits(since);
        }
        if until.is_some_and(|until| event <= until) {
            if !is_there {
                idle.waits(event);
            }
            idle.works();
            let adaptive = self.adaptive.as_mut().expect("it spins");
            adaptive.spin_again(event, true, None, sleep, awake.pace() == Pace::Awake);
            adaptive.worked(sleep);
            return Waited { spun: event.since(since), slept: false };
        }
        let mut spun = Duration::ZERO;
        if let (Some(until), Some(adaptive)) = (until, &mut self.adaptive) {
            idle.waits(until);
            adaptive.spin_again(until, true, None, sleep, false);
            spun = until.since(since);
        }
        awake.slept();
        if let Some(adaptive) = &mut self.adaptive {
            if sleep.samples_next() {
                sleep.sampled(start.since(event).max(look));
            }
            adaptive.woke(start, sleep);
            adaptive.worked(sleep);
        }
        if !is_there {
            idle.woke(start);
        }
        idle.works();
        Waited { spun, slept: true }
    }

    /// A turn has heard something; `few`: so little is in flight that it matters whether this end stays awake. What
    /// both ends are to do.
    pub fn turned(&mut self, few: bool, used: Used) -> Pace {
        if self.adaptive.is_some() && self.costs.awake.works(few) {
            self.costs.awake.review(used);
        }
        self.costs.awake.pace()
    }
}
