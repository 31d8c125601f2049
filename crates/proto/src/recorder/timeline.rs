//! When a request was where.

use crate::time::Instant;
use core::time::Duration;

/// Most moments of a timeline: one more than stages.
pub const MOMENTS: usize = 6;

/// Whose view of a request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Host,
    Target,
}

impl End {
    /// The names of its stages, in their order.
    #[must_use]
    pub fn stages(self) -> &'static [&'static str] {
        match self {
            End::Host => &["lane", "caravan", "target", "data"],
            End::Target => &["buffer", "data", "store", "caravan", "send"],
        }
    }
}

/// The moments between which a request's stages lie. They never go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    end: End,
    moments: [Instant; MOMENTS],
}

impl Timeline {
    /// At a host: when it was taken, when it got a slot, when its command was put into a caravan, when the first of its
    /// answer was there, when it ended.
    #[must_use]
    pub fn at_host(moments: [Instant; 5]) -> Self {
        let [taken, submitted, sent, answered, ended] = moments;
        Timeline::new(End::Host, [taken, submitted, sent, answered, ended, ended])
    }

    /// At a target: when its command was received, when it had a buffer, when its store (or who moves its data) could
    /// begin, when it was answered, when the answer was put into a caravan, when the socket had taken that.
    #[must_use]
    #[inline]
    pub fn at_target(moments: [Instant; 6]) -> Self {
        Timeline::new(End::Target, moments)
    }

    /// What has not happened happened with what came before it, and nothing happened after the end.
    fn new(end: End, mut moments: [Instant; MOMENTS]) -> Self {
        let last = moments[MOMENTS - 1];
        for at in 1..MOMENTS - 1 {
            moments[at] = moments[at].min(last).max(moments[at - 1]);
        }
        moments[MOMENTS - 1] = last.max(moments[MOMENTS - 2]);
        Timeline { end, moments }
    }

    /// Whose view it is.
    #[must_use]
    pub fn end(&self) -> End {
        self.end
    }

    /// When it began.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.moments[0]
    }

    /// When it ended.
    #[must_use]
    pub fn ended(&self) -> Instant {
        self.moments[MOMENTS - 1]
    }

    /// How long it took, in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.ended().0 - self.begun().0
    }

    /// Its stages in their order, with the beginning and the length of each.
    pub fn stages(&self) -> impl Iterator<Item = (&'static str, Instant, Duration)> {
        let names = self.end.stages().iter().zip(self.moments.windows(2));
        names.map(|(name, of)| (*name, of[0], of[1].since(of[0])))
    }

    /// The stage that took longest.
    #[must_use]
    pub fn longest(&self) -> &'static str {
        let longest = self.stages().max_by_key(|(.., time)| *time);
        longest.map_or("", |(name, ..)| name)
    }
}
