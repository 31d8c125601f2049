//! How long lanes hold back the little that they could send while frames keep coming.

use roadtrain_proto::time::Instant;
use roadtrain_reactor::spin::{Spinner, Waiting};
use std::time::Duration;

/// When nothing has come for so long, what is there leaves: a target that is busy sends a jumbo frame every 5 us.
const GAP_MAX: Duration = Duration::from_micros(10);
/// Nothing is held for longer.
const HOLD_MAX: Duration = Duration::from_micros(50);

/// A reactor's holding back. It looks at its ports meanwhile, so it stops where that catches nothing.
pub(super) struct Gathering {
    gap: Spinner,
    since: Option<Instant>,
}

impl Default for Gathering {
    fn default() -> Self {
        Gathering { gap: Spinner::new(Waiting::Spin(GAP_MAX)), since: None }
    }
}

impl Gathering {
    /// Frames have come.
    pub(super) fn heard(&mut self) {
        self.gap.worked();
    }

    /// Something could be sent: whether to look for more frames first.
    pub(super) fn goes_on(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        now.since(since) < HOLD_MAX && self.gap.spin_again(now, true)
    }

    /// Everything is sent now.
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
            gathering.heard();
            assert!(gathering.goes_on(at(us)), "{us}");
            assert!(gathering.goes_on(at(us + 4)), "{us}");
        }
        gathering.heard();
        assert!(!gathering.goes_on(at(50)));
        gathering.ends();
        gathering.heard();
        assert!(gathering.goes_on(at(51)));
        assert!(!gathering.goes_on(at(61)), "nothing has come for long");
    }

    #[test]
    fn what_catches_nothing_becomes_rare() {
        let (mut gathering, mut us, mut looks) = (Gathering::default(), 0, 0);
        for _ in 0..1000 {
            while gathering.goes_on(at(us)) {
                (looks, us) = (looks + 1, us + 10);
            }
            gathering.ends();
            us += 100;
            gathering.heard();
        }
        assert!(looks < 20, "{looks} looks");
    }
}
