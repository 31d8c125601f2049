//! Timeline of a request: the timestamps of its stages.

use crate::time::Instant;
use core::time::Duration;

/// Maximum number of timestamps: one more than stages.
pub const TIMESTAMPS: usize = 6;

/// End of the connection that recorded a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineEnd {
    Host,
    Target,
}

impl TimelineEnd {
    /// Returns the names of the stages, in order.
    #[must_use]
    pub fn stages(self) -> &'static [&'static str] {
        match self {
            TimelineEnd::Host => &["lane", "caravan", "target", "data"],
            TimelineEnd::Target => &["buffer", "data", "store", "caravan", "send"],
        }
    }
}

/// Timestamps at the borders of a request's stages, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    end: TimelineEnd,
    timestamps: [Instant; TIMESTAMPS],
}

impl Timeline {
    /// Timeline at a host: request taken, slot assigned, command put into a caravan, first of the response received,
    /// request ended.
    #[must_use]
    pub fn at_host(timestamps: [Instant; 5]) -> Self {
        let [taken, submitted, sent, answered, ended] = timestamps;
        Timeline::new(TimelineEnd::Host, [taken, submitted, sent, answered, ended, ended])
    }

    /// Timeline at a target: command received, buffer assigned, store (or data transfer) able to begin, store done,
    /// response put into a caravan, response taken.
    #[must_use]
    #[inline]
    pub fn at_target(timestamps: [Instant; 6]) -> Self {
        Timeline::new(TimelineEnd::Target, timestamps)
    }

    /// Fills in stages that have not happened with the timestamp before them, and limits all to the end.
    fn new(end: TimelineEnd, mut timestamps: [Instant; TIMESTAMPS]) -> Self {
        let last = timestamps[TIMESTAMPS - 1];
        for at in 1..TIMESTAMPS - 1 {
            timestamps[at] = timestamps[at].min(last).max(timestamps[at - 1]);
        }
        timestamps[TIMESTAMPS - 1] = last.max(timestamps[TIMESTAMPS - 2]);
        Timeline { end, timestamps }
    }

    /// Returns the end that recorded the request.
    #[must_use]
    pub fn end(&self) -> TimelineEnd {
        self.end
    }

    /// Returns the start.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.timestamps[0]
    }

    /// Returns the end of the request.
    #[must_use]
    pub fn ended(&self) -> Instant {
        self.timestamps[TIMESTAMPS - 1]
    }

    /// Returns the latency in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.ended().0 - self.begun().0
    }

    /// Returns the stages in order, with the start and the length of each.
    pub fn stages(&self) -> impl Iterator<Item = (&'static str, Instant, Duration)> {
        let names = self.end.stages().iter().zip(self.timestamps.windows(2));
        names.map(|(name, of)| (*name, of[0], of[1].since(of[0])))
    }

    /// Returns the name of the longest stage.
    #[must_use]
    pub fn longest(&self) -> &'static str {
        let longest = self.stages().max_by_key(|(.., time)| *time);
        longest.map_or("", |(name, ..)| name)
    }
}
