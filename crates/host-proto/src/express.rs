//! Policy of a lane's *express connection*: a second connection for latency-critical requests while bulk data is in
//! flight on the first.
//!
//! A latency-critical request is queued behind all bytes that were sent before it on its connection, in both
//! directions. Order inside the lane helps only while these bytes are not sent. So where such requests meet bulk data
//! for long enough, [`ExpressPolicy`] requests one more connection for them. Where they have not met for long enough, it
//! closes that connection.
//!
//! - It opens only after critical requests have met bulk repeatedly: [`ExpressRules::opens_after`].
//! - After a refusal it waits before the next request: [`ExpressRules::refused_pause`].
//! - It closes only when idle, so no request changes its connection.
//! - When the controller's connections are lost, it is lost as well; its requests wait with the lane's.
//!
//! Commands of one queue have no order among each other (NVMe Base 2.0, section 2.1), so none is lost by this.

use core::time::Duration;
use roadtrain_proto::policy::{Class, SMALL_BYTES_MAX};
use roadtrain_proto::time::Instant;

/// Conditions to open and close an express connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpressRules {
    /// Bytes of bulk in flight that count as a meeting.
    pub bulk_bytes: u64,
    /// Minimum interval between two checks for bulk in flight.
    pub check_interval: Duration,
    /// Minimum duration of meetings before a connection is requested.
    pub opens_after: Duration,
    /// Minimum number of meetings in that time.
    pub meetings: u32,
    /// Maximum interval between two meetings; a longer one restarts the count.
    pub meets_within: Duration,
    /// Duration without a meeting after which it closes.
    pub closes_after: Duration,
    /// Pause after a refusal.
    pub refused_pause: Duration,
}

impl Default for ExpressRules {
    fn default() -> Self {
        ExpressRules {
            bulk_bytes: 256 << 10,
            check_interval: Duration::from_millis(2),
            opens_after: Duration::from_millis(50),
            meetings: 16,
            // Longer than the latency of a request behind bulk on a slow link.
            meets_within: Duration::from_millis(250),
            closes_after: Duration::from_secs(5),
            refused_pause: Duration::from_secs(60),
        }
    }
}

/// Timeout of Disconnect.
pub const CLOSES_WITHIN: Duration = Duration::from_secs(2);
/// Maximum number of express connections for a controller.
pub const EXPRESSES_MAX: u32 = 8;

/// Effect of a request on others of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestTraffic {
    /// Latency-critical.
    Critical,
    /// Bytes of bulk, or of a large request.
    Bulk(u32),
    /// Small, and not latency-critical.
    Plain,
}

impl RequestTraffic {
    /// Returns the traffic type of a request of a class with this many bytes of data.
    #[inline]
    #[must_use]
    pub fn of(class: Class, bytes: u32) -> RequestTraffic {
        match class {
            Class::Latency => RequestTraffic::Critical,
            Class::Bulk => RequestTraffic::Bulk(bytes),
            Class::Normal if bytes > SMALL_BYTES_MAX => RequestTraffic::Bulk(bytes),
            Class::Normal => RequestTraffic::Plain,
        }
    }

    /// Returns the bytes that delay other requests.
    #[inline]
    #[must_use]
    pub fn bulk(self) -> u32 {
        match self {
            RequestTraffic::Bulk(bytes) => bytes,
            _ => 0,
        }
    }
}

/// Action for the owner of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressAction {
    /// Request a connection; reply with [`ExpressPolicy::opened`] or [`ExpressPolicy::refused`].
    Open,
    /// Close the idle connection; report [`ExpressPolicy::closed`].
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpressState {
    /// Disabled.
    Off,
    /// Closed, and not opened before this time.
    Shut {
        not_before: Instant,
    },
    /// To be requested.
    Wanted,
    /// Requested.
    Requested,
    Open {
        may_close: bool,
    },
    /// Open for its pending requests only; it closes when idle.
    Draining,
    /// Closing, until this timeout.
    Closing {
        until: Instant,
    },
}

/// Express connection of a lane.
#[derive(Clone, Debug)]
pub struct ExpressPolicy {
    rules: ExpressRules,
    state: ExpressState,
    /// Time of the next check for bulk in flight.
    checks_at: Instant,
    /// Time of the first of the recent meetings.
    since: Instant,
    /// Time of the last meeting.
    met: Instant,
    /// Number of recent meetings.
    meetings: u32,
}

impl ExpressPolicy {
    /// Creates the state without a connection; without rules it stays disabled.
    #[must_use]
    pub fn new(rules: Option<ExpressRules>) -> Self {
        let not_before = Instant::default();
        let state = rules.map_or(ExpressState::Off, |_| ExpressState::Shut { not_before });
        let rules = rules.unwrap_or_default();
        let (checks_at, since, met) = (not_before, not_before, not_before);
        ExpressPolicy { rules, state, checks_at, since, met, meetings: 0 }
    }

    // ---- Requests ----

    /// True if a request takes the express connection. `is_bulk` returns whether this many bytes of bulk are in flight
    /// on the lane; it is called only at intervals.
    #[inline]
    #[must_use]
    pub fn takes(
        &mut self,
        now: Instant,
        traffic: RequestTraffic,
        is_bulk: impl FnOnce(u64) -> bool,
    ) -> bool {
        if traffic != RequestTraffic::Critical || self.state == ExpressState::Off {
            return false;
        }
        if now >= self.checks_at {
            self.checks_at = now + self.rules.check_interval;
            if is_bulk(self.rules.bulk_bytes) {
                self.record_meeting(now);
            }
        }
        matches!(self.state, ExpressState::Open { .. })
    }

    fn record_meeting(&mut self, now: Instant) {
        if now.since(self.met) > self.rules.meets_within {
            (self.since, self.meetings) = (now, 0);
        }
        self.met = now;
        self.meetings = self.meetings.saturating_add(1);
        let is_lasting =
            now.since(self.since) >= self.rules.opens_after && self.meetings >= self.rules.meetings;
        match self.state {
            ExpressState::Shut { not_before } if is_lasting && now >= not_before => {
                self.state = ExpressState::Wanted;
            }
            ExpressState::Draining => self.state = ExpressState::Open { may_close: true },
            _ => {}
        }
    }

    // ---- Actions ----

    /// Returns the next action, once. `outstanding`: requests on the express connection.
    #[inline]
    pub fn poll(&mut self, now: Instant, outstanding: u32) -> Option<ExpressAction> {
        match self.state {
            ExpressState::Off
            | ExpressState::Shut { .. }
            | ExpressState::Requested
            | ExpressState::Closing { .. } => return None,
            ExpressState::Open { may_close: true }
                if now.since(self.met) >= self.rules.closes_after =>
            {
                self.state = ExpressState::Draining;
            }
            ExpressState::Open { .. } => return None,
            ExpressState::Wanted => {
                self.state = ExpressState::Requested;
                return Some(ExpressAction::Open);
            }
            ExpressState::Draining => {}
        }
        (outstanding == 0).then(|| {
            self.state = ExpressState::Closing { until: now + CLOSES_WITHIN };
            ExpressAction::Close
        })
    }

    /// Returns the time of the next timer.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            ExpressState::Open { may_close: true } => Some(self.met + self.rules.closes_after),
            ExpressState::Closing { until } => Some(until),
            _ => None,
        }
    }

    /// True if [`ExpressPolicy::poll`] may have an action.
    #[inline]
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !matches!(
            self.state,
            ExpressState::Off | ExpressState::Shut { .. } | ExpressState::Requested
        )
    }

    /// True if the close has timed out.
    #[must_use]
    pub fn has_timed_out(&self, now: Instant) -> bool {
        matches!(self.state, ExpressState::Closing { until } if until <= now)
    }

    /// True if requests may be in flight on it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(
            self.state,
            ExpressState::Open { .. } | ExpressState::Draining | ExpressState::Closing { .. }
        )
    }

    /// True if it was requested and no reply was received.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.state == ExpressState::Requested
    }

    /// True if it is closing: the end of its connection is not a loss.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        matches!(self.state, ExpressState::Closing { .. })
    }

    // ---- Events ----

    /// Handles the requested connection. Its idle time starts now; without `may_close` it stays open.
    pub fn opened(&mut self, now: Instant, may_close: bool) {
        debug_assert!(self.is_requested(), "it was not requested");
        self.state = ExpressState::Open { may_close };
        self.met = now;
    }

    /// Handles a refusal.
    pub fn refused(&mut self, now: Instant) {
        self.shut(now + self.rules.refused_pause);
    }

    /// Handles the end of the close.
    pub fn closed(&mut self, now: Instant) {
        self.shut(now);
    }

    /// Handles the loss of the controller's connections.
    pub fn lost(&mut self, now: Instant) {
        match self.state {
            ExpressState::Off => {}
            ExpressState::Shut { not_before } => self.shut(not_before),
            _ => self.shut(now),
        }
    }

    fn shut(&mut self, not_before: Instant) {
        self.state = ExpressState::Shut { not_before };
        self.meetings = 0;
        self.since = self.met;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: ExpressRules = ExpressRules {
        bulk_bytes: BULK,
        check_interval: Duration::from_millis(1),
        opens_after: Duration::from_millis(50),
        meetings: 16,
        meets_within: Duration::from_millis(20),
        closes_after: Duration::from_secs(5),
        refused_pause: Duration::from_secs(60),
    };
    const BULK: u64 = 1 << 18;

    fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// Bulk in flight that counts as a meeting.
    fn enough(least: u64) -> bool {
        BULK >= least
    }

    /// Meets bulk each millisecond of an interval.
    fn record_meeting(express: &mut ExpressPolicy, from: u64, to: u64, traffic: RequestTraffic) {
        (from..to).for_each(|at| _ = express.takes(ms(at), traffic, enough));
    }

    fn open() -> ExpressPolicy {
        let mut express = ExpressPolicy::new(Some(RULES));
        record_meeting(&mut express, 1000, 1100, RequestTraffic::Critical);
        assert_eq!(express.poll(ms(1100), 0), Some(ExpressAction::Open));
        express.opened(ms(1100), true);
        express
    }

    /// Sends requests in turn, each behind half a mebibyte on a link of 100 Mbit/s.
    #[test]
    fn requests_that_wait_long_behind_bulk_meet_it_again() {
        let mut express = ExpressPolicy::new(Some(ExpressRules::default()));
        for at in (1000..2000).step_by(45) {
            _ = express.takes(ms(at), RequestTraffic::Critical, |_| true);
        }
        assert_eq!(express.poll(ms(2000), 0), Some(ExpressAction::Open));
    }

    #[test]
    fn what_a_request_is() {
        assert_eq!(RequestTraffic::of(Class::Latency, 1 << 20), RequestTraffic::Critical);
        assert_eq!(RequestTraffic::of(Class::Bulk, 512), RequestTraffic::Bulk(512));
        assert_eq!(RequestTraffic::of(Class::Normal, SMALL_BYTES_MAX), RequestTraffic::Plain);
        assert_eq!(RequestTraffic::of(Class::Normal, 128 << 10), RequestTraffic::Bulk(128 << 10));
    }

    #[test]
    fn it_opens_where_critical_requests_meet_bulk_for_long() {
        let mut express = ExpressPolicy::new(Some(RULES));
        record_meeting(&mut express, 1000, 1040, RequestTraffic::Critical);
        assert_eq!(express.poll(ms(1040), 0), None, "not yet");
        record_meeting(&mut express, 1040, 1060, RequestTraffic::Critical);
        assert_eq!(express.poll(ms(1060), 0), Some(ExpressAction::Open));
        assert_eq!(express.poll(ms(1060), 0), None, "reported once");
        assert!(!express.takes(ms(1061), RequestTraffic::Critical, enough), "there is none yet");
        express.opened(ms(1062), true);
        assert!(express.takes(ms(1063), RequestTraffic::Critical, enough));
        assert!(!express.takes(ms(1063), RequestTraffic::Bulk(4096), enough));
        assert!(!express.takes(ms(1063), RequestTraffic::Plain, enough));
    }

    #[test]
    fn a_moment_now_and_then_is_not_enough() {
        let mut express = ExpressPolicy::new(Some(RULES));
        for second in 1..100 {
            record_meeting(
                &mut express,
                second * 1000,
                second * 1000 + 40,
                RequestTraffic::Critical,
            );
            assert_eq!(express.poll(ms(second * 1000 + 40), 0), None);
        }
        let mut express = ExpressPolicy::new(Some(RULES));
        for at in (0..10_000).step_by(19) {
            let little = if at % 8 == 0 { BULK - 1 } else { 0 };
            let _ = express.takes(ms(at), RequestTraffic::Critical, |least| little >= least);
            assert_eq!(express.poll(ms(at), 0), None, "little is in the way");
        }
    }

    #[test]
    fn bulk_in_flight_is_checked_at_intervals() {
        let (mut express, mut checks) = (open(), 0);
        for us in 1_200_000..1_201_000 {
            let now = Instant(us * 1000);
            let count_check = |least| {
                checks += 1;
                enough(least)
            };
            assert!(express.takes(now, RequestTraffic::Critical, count_check));
            assert!(!express.takes(now, RequestTraffic::Plain, |_| panic!("it does not matter")));
        }
        assert_eq!(checks, 1);
        let mut off = ExpressPolicy::new(None);
        assert!(!off.takes(ms(1), RequestTraffic::Critical, |_| panic!("it does not matter")));
    }

    #[test]
    fn it_closes_when_it_carries_nothing() {
        let mut express = open();
        let idle = 1100 + RULES.closes_after.as_millis() as u64;
        assert_eq!(express.deadline(), Some(ms(idle)));
        assert_eq!(express.poll(ms(idle - 1), 0), None);
        assert_eq!(express.poll(ms(idle), 3), None, "requests are in flight");
        assert!(
            !express.takes(ms(idle), RequestTraffic::Critical, |_| false),
            "and no others come"
        );
        assert_eq!(express.poll(ms(idle), 0), Some(ExpressAction::Close));
        assert!(express.is_closing() && express.is_open());
        assert_eq!(express.deadline(), Some(ms(idle) + CLOSES_WITHIN));
        assert!(
            !express.has_timed_out(ms(idle)) && express.has_timed_out(ms(idle) + CLOSES_WITHIN)
        );
        express.closed(ms(idle));
        assert!(!express.is_open());
    }

    #[test]
    fn it_stays_where_they_meet_again() {
        let mut express = open();
        let idle = 1100 + RULES.closes_after.as_millis() as u64;
        assert_eq!(express.poll(ms(idle), 3), None);
        assert!(express.takes(ms(idle), RequestTraffic::Critical, enough), "in the last moment");
        assert_eq!(express.poll(ms(idle), 0), None);
        let mut stays = ExpressPolicy::new(Some(RULES));
        record_meeting(&mut stays, 1000, 1100, RequestTraffic::Critical);
        stays.poll(ms(1100), 0);
        stays.opened(ms(1100), false);
        assert_eq!((stays.deadline(), stays.poll(ms(1 << 30), 0)), (None, None));
    }

    #[test]
    fn what_is_critical_takes_it_without_bulk_as_well() {
        let mut express = open();
        assert!(express.takes(ms(1200), RequestTraffic::Critical, |_| false));
        assert!(!express.takes(ms(1200), RequestTraffic::Plain, |_| false));
    }

    #[test]
    fn a_refusal_delays_the_next_request() {
        let mut express = ExpressPolicy::new(Some(RULES));
        record_meeting(&mut express, 1000, 1100, RequestTraffic::Critical);
        assert_eq!(express.poll(ms(1100), 0), Some(ExpressAction::Open));
        express.refused(ms(1100));
        let pause = RULES.refused_pause.as_millis() as u64;
        record_meeting(&mut express, 1100, 1100 + pause, RequestTraffic::Critical);
        assert_eq!(express.poll(ms(1100 + pause - 1), 0), None);
        express.lost(ms(1100 + pause - 1)); // which changes nothing about that
        record_meeting(&mut express, 1100 + pause, 1200 + pause, RequestTraffic::Critical);
        assert_eq!(express.poll(ms(1200 + pause), 0), Some(ExpressAction::Open));
    }

    proptest! {
        /// Checks with any sequence: no request takes it unless it is open, it closes only when idle, and it does
        /// nothing when disabled.
        #[test]
        fn nothing_takes_what_is_not_there(
            allowed: bool,
            steps in prop::collection::vec((0u8..8, 0u64..2000, 0u32..3), 1..400),
        ) {
            let mut express = ExpressPolicy::new(allowed.then_some(RULES));
            let (mut now, mut carried, mut is_there) = (ms(1000), 0, false);
            for (what, wait, count) in steps {
                now += Duration::from_millis(if what < 6 { wait / 100 } else { wait });
                match what {
                    0..5 => {
                        let traffic = [RequestTraffic::Critical, RequestTraffic::Bulk(4096), RequestTraffic::Plain];
                        let takes = express.takes(now, traffic[count as usize], enough);
                        prop_assert!(!takes || is_there);
                        carried += u32::from(takes);
                    }
                    5 => carried = carried.saturating_sub(count * 4),
                    6 if is_there && express.is_closing() => {
                        express.closed(now);
                        is_there = false;
                    }
                    7 => {
                        express.lost(now);
                        (carried, is_there) = (0, false);
                    }
                    _ => {}
                }
                match express.poll(now, carried) {
                    Some(ExpressAction::Open) => {
                        prop_assert!(allowed && !is_there);
                        if count == 0 {
                            express.refused(now);
                        } else {
                            express.opened(now, count == 1);
                            is_there = true;
                        }
                    }
                    Some(ExpressAction::Close) => prop_assert!(is_there && carried == 0),
                    None => {}
                }
                prop_assert_eq!(express.is_open(), is_there);
            }
        }
    }
}
