//! Limits of the time for which lanes delay small sends while frames keep arriving.

use roadtrain_proto::time::Instant;
use std::time::Duration;

/// Longest gap between frames: then the pending frames are sent. A busy target sends a jumbo frame every 5 us.
const GAP_MAX: Duration = Duration::from_micros(10);
/// Longest delay of a send.
const HOLD_MAX: Duration = Duration::from_micros(50);
/// Maximum number of sends without a delay; the number doubles with each gap that no frame has ended.
const PAUSE_MAX: u32 = 1024;

/// Delay of a reactor's sends. It polls the ports meanwhile, so it pauses where this gains nothing.
#[derive(Default)]
pub(super) struct Gathering {
    since: Option<Instant>,
    /// Start of a gap between frames.
    gap_since: Option<Instant>,
    /// Length of the next pause, and the rest of this one, in sends.
    pause: u32,
    skip: u32,
}

impl Gathering {
    /// Records received frames.
    pub(super) fn frames_received(&mut self) {
        if self.gap_since.take().is_some() {
            self.pause = 0;
        }
    }

    /// True if the reactor should poll for more frames before it sends.
    pub(super) fn goes_on(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= HOLD_MAX {
            return false;
        }
        if self.gap_since.is_none() && self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let gap_since = *self.gap_since.get_or_insert(now);
        if now.since(gap_since) < GAP_MAX {
            return true;
        }
        self.gap_since = None;
        self.pause = (self.pause * 2).clamp(1, PAUSE_MAX);
        self.skip = self.pause;
        false
    }

    /// Ends the delay: everything is sent now.
    pub(super) fn ends(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant(us * 1000)
    }

    #[test]
    fn it_goes_on_while_frames_come_but_not_for_long() {
        let mut gathering = Gathering::default();
        for us in (0..50).step_by(5) {
            gathering.frames_received();
            assert!(gathering.goes_on(at(us)), "{us}");
            assert!(gathering.goes_on(at(us + 4)), "{us}");
        }
        gathering.frames_received();
        assert!(!gathering.goes_on(at(50)));
        gathering.ends();
        gathering.frames_received();
        assert!(gathering.goes_on(at(51)));
        assert!(!gathering.goes_on(at(61)), "nothing has come for long");
    }

    #[test]
    fn what_catches_nothing_becomes_rare() {
        let (mut gathering, mut us, mut polls) = (Gathering::default(), 0, 0);
        for _ in 0..1000 {
            while gathering.goes_on(at(us)) {
                (polls, us) = (polls + 1, us + 10);
            }
            gathering.ends();
            us += 100;
            gathering.frames_received();
        }
        assert!(polls < 20, "{polls} polls");
    }
}
