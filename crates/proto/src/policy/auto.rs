//! `auto`, ours: nothing to tune (`docs/internals/auto.md` explains it).
//!
//! It never waits while the peer may be idle. What it decides is how much of the work in flight one send may
//! take: with little in flight a quarter, so that both ends always have something to do; with much, everything
//! that is ready. In flight is what all lanes of this reactor have: a lane's few requests need no parts when
//! other lanes keep both ends busy.

use super::spare_time::SpareTime;
use super::{Backlog, BatchPolicy, Cause, Doorbell, Freight, Kind, Pace, Parcel, Urgency};
use crate::caravan::Limits;
use crate::time::Instant;
use core::time::Duration;

/// Commands in flight from which on nothing is split: handling so many takes several times as long as a round
/// trip's two wake-ups, so that both ends are busy even when each sends all it has. With fewer they would take
/// turns, one asleep while the other works.
const WHOLE: u32 = 128;
/// The same where requests come from elsewhere, such as a block device's programs: those do not wait for one
/// another's answers, so parts form by themselves, and a processor is busy with them besides.
const WHOLE_OF_DEVICE: u32 = 16;
/// In so many parts a few commands in flight go round: one at each end, one on each way.
const PARTS_MAX: u32 = 4;
/// In so many parts many go round where this end waits for most of its time: as many again, which are in the store.
const PARTS_IN_SPARE_TIME: u32 = 2 * PARTS_MAX;
/// Where both ends stay awake, a part of fewer is not worth its send: they go round all together.
const AWAKE_PART_MIN: u32 = 4;
/// Most PDUs of a caravan: what one send can gather.
const COUNT_MAX: u32 = 512;
/// Less than this part of what is in flight may wait for company, ...
const GATHERED: u32 = 8;
/// ... and less than so many octets of data.
const GATHERED_BYTES: u32 = 64 << 10;
/// Limits of a caravan.
const WIDE: Limits = Limits { count_max: COUNT_MAX, bytes_max: 2 << 20 };
/// Beside an express lane a caravan is at most so large: it takes the time of a wake-up or two.
const YIELDING: Limits = Limits { count_max: 64, bytes_max: 256 << 10 };
/// PDUs with more data let smaller ones pass.
pub const SMALL_BYTES_MAX: u32 = 16 << 10;
/// How long a number of commands in flight is remembered, once or twice: the load may change in a millisecond.
const WINDOW: Duration = Duration::from_millis(1);

/// The most commands in flight at any time in this window and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    now: u32,
    before: u32,
    window_end: Instant,
}

impl Peak {
    /// Notes `in_flight`; whether the peak may have changed.
    fn note(&mut self, now: Instant, in_flight: u32) -> bool {
        if now >= self.window_end {
            let is_next = now < self.window_end + WINDOW;
            self.before = if is_next { self.now } else { 0 };
            self.now = 0;
            self.window_end = now + WINDOW;
        } else if in_flight <= self.now {
            return false;
        }
        self.now = self.now.max(in_flight);
        true
    }

    #[inline]
    fn get(&self) -> u32 {
        self.now.max(self.before)
    }
}

/// Sends when a share of what is in flight waits, or nothing more is ready.
#[derive(Clone, Copy, Debug)]
pub struct Auto {
    /// Commands in flight on all lanes of the reactor.
    peak: Peak,
    /// PDUs that make a caravan full.
    share: u32,
    /// Commands in flight from which on nothing is split.
    whole: u32,
    /// The peer works only while this end does not: parts would only cost sends.
    shares_core: bool,
    limits: Limits,
    /// Whether this end has time for more sends.
    spare_time: SpareTime,
    /// What both ends do with few.
    pace: Pace,
}

impl Auto {
    /// With more in flight it matters for how long this end waits: see [`BatchPolicy::set_idle`].
    pub const IN_FOUR_PARTS: u32 = WHOLE / PARTS_MAX;

    /// For one end of a lane; `of_device`: whether its requests come from elsewhere.
    #[must_use]
    pub fn new(of_device: bool) -> Self {
        let whole = if of_device { WHOLE_OF_DEVICE } else { WHOLE };
        Auto {
            peak: Peak::default(),
            share: 1,
            whole,
            shares_core: false,
            limits: WIDE,
            spare_time: SpareTime::default(),
            pace: Pace::default(),
        }
    }

    /// So few that their pace matters.
    #[inline]
    fn are_few(&self) -> bool {
        let all = self.peak.get();
        (1..=Self::IN_FOUR_PARTS).contains(&all) && all < self.whole
    }

    /// Awake, nobody has to be woken up: two parts are enough, and a part of a few requests would only cost a send.
    #[inline]
    fn widen(&mut self) {
        let all = self.peak.get();
        match self.pace {
            Pace::Awake if self.are_few() && all >= 2 * AWAKE_PART_MIN => self.share = all / 2,
            Pace::Awake | Pace::Together if self.are_few() => self.share = all,
            _ => {}
        }
    }

    #[inline]
    fn set_share(&mut self, now: Instant) {
        let all = self.peak.get();
        self.share = share(all, self.whole);
        self.widen();
        if all > Self::IN_FOUR_PARTS && self.spare_time.is_there(now) {
            self.share = self.share.min(all / PARTS_IN_SPARE_TIME);
        }
    }
}

/// PDUs that make a caravan full when all lanes of the reactor have `all` commands in flight.
#[inline]
fn share(all: u32, whole: u32) -> u32 {
    match all {
        _ if all >= whole => COUNT_MAX,
        0..=2 => all.max(1), // a part of its own for each would only cost sends
        _ => (all / (WHOLE / all).min(PARTS_MAX)).max(1),
    }
}

impl BatchPolicy for Auto {
    fn freight(&self, parcel: &Parcel) -> Freight {
        // All H2CData of a write goes the same way, also its short end.
        let is_part = parcel.kind == Kind::H2cData;
        let bytes = if is_part { parcel.request_bytes } else { parcel.data_bytes };
        match (parcel.urgency, parcel.kind) {
            (_, Kind::Control) | (Urgency::Critical, _) => Freight::Express,
            (Urgency::Bulk, _) => Freight::Data,
            _ if bytes > SMALL_BYTES_MAX => Freight::Data,
            _ => Freight::Cmd,
        }
    }

    fn on_enqueue(&mut self, now: Instant, backlog: &Backlog, parcel: &Parcel) -> Doorbell {
        // Other lanes are parts as well. While this one is answered they may have nothing in flight for a moment.
        if self.peak.note(now, backlog.in_flight.saturating_add(backlog.in_others)) {
            self.set_share(now);
        }
        if parcel.is_urgent() {
            return Doorbell::Ring(Cause::Urgent);
        }
        let share = if self.shares_core { COUNT_MAX } else { self.share };
        let full = share.min(self.limits.count_max);
        if backlog.requests >= full || backlog.data_bytes >= self.limits.bytes_max {
            return Doorbell::Ring(Cause::Size);
        }
        Doorbell::ArmUntil(now)
    }

    #[inline]
    fn limits(&self, _: Freight) -> Limits {
        self.limits
    }

    #[inline]
    fn gathers(&self, backlog: &Backlog) -> bool {
        // Nothing is split: then nor are answers answered one by one.
        self.whole == WHOLE
            && self.share == COUNT_MAX
            && backlog.requests < backlog.in_flight / GATHERED
            && backlog.data_bytes < GATHERED_BYTES
    }

    fn looks_again(&self, backlog: &Backlog) -> bool {
        // Other lanes are parts as well, and data has its own pace.
        self.pace == Pace::Awake
            && backlog.in_others == 0
            && !self.shares_core
            && self.are_few()
            && backlog.requests < self.share.min(backlog.in_flight)
            && backlog.data_bytes < GATHERED_BYTES
    }

    #[inline]
    fn is_few(&self) -> bool {
        self.are_few() && !self.shares_core
    }

    #[inline]
    fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
        self.share = share(self.peak.get(), self.whole);
        self.widen();
    }

    #[inline]
    fn set_yielding(&mut self, yielding: bool) {
        self.limits = if yielding { YIELDING } else { WIDE };
    }

    #[inline]
    fn set_shares_core(&mut self, shares: bool) {
        self.shares_core = shares;
    }

    #[inline]
    fn set_idle(&mut self, now: Instant, permille: u32) {
        // A device's processor is busy with its programs.
        let may_split = self.peak.get() > Self::IN_FOUR_PARTS && self.whole == WHOLE;
        if may_split && self.spare_time.heard(now, permille) {
            self.set_share(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant(us * 1000)
    }

    fn command() -> Parcel {
        Parcel { kind: Kind::Command, urgency: Urgency::Normal, data_bytes: 0, request_bytes: 4096 }
    }

    #[test]
    fn lanes_that_are_being_answered_are_still_parts() {
        let mut auto = Auto::new(false);
        let backlog = |in_others| Backlog { requests: 1, in_flight: 8, in_others, data_bytes: 0 };
        auto.on_enqueue(at(0), &backlog(24), &command());
        assert_eq!(auto.share, 8);
        auto.on_enqueue(at(100), &backlog(4), &command());
        assert_eq!(auto.share, 8);
    }

    #[test]
    fn a_share_leaves_work_for_the_other_end() {
        for in_flight in 3..=WHOLE / 2 {
            let share = share(in_flight, WHOLE);
            assert!(share >= 1 && share * 2 <= in_flight, "{in_flight}: {share}");
        }
        let shares = [0, 1, 2, 3, 4, 8, 16, 32, 48, 64, 127, 128, 1023].map(|n| share(n, WHOLE));
        assert_eq!(shares, [1, 1, 2, 1, 1, 2, 4, 8, 24, 32, 127, COUNT_MAX, COUNT_MAX]);
    }

    #[test]
    fn other_lanes_are_parts_as_well() {
        let shares = |in_flight| {
            [1, 2, 4, 8, 16, 64, 128].map(|n| {
                let mut auto = Auto::new(false);
                let parcel = command();
                let in_others = in_flight * (n - 1);
                let backlog = Backlog { requests: 1, in_flight, in_others, ..Backlog::default() };
                auto.on_enqueue(at(0), &backlog, &parcel);
                auto.share
            })
        };
        assert_eq!(shares(1), [1, 2, 1, 2, 4, 32, COUNT_MAX]);
        assert_eq!(shares(2), [2, 1, 2, 4, 8, COUNT_MAX, COUNT_MAX]);
        assert_eq!(shares(8), [2, 4, 8, 32, COUNT_MAX, COUNT_MAX, COUNT_MAX]);
        assert_eq!(shares(32), [8, 32, COUNT_MAX, COUNT_MAX, COUNT_MAX, COUNT_MAX, COUNT_MAX]);
    }

    #[test]
    fn nothing_is_split_where_both_ends_share_a_core() {
        let mut auto = Auto::new(false);
        let backlog = |requests| Backlog { requests, in_flight: 8, ..Backlog::default() };
        let rings = |auto: &mut Auto, requests| {
            auto.on_enqueue(at(0), &backlog(requests), &command()) == Doorbell::Ring(Cause::Size)
        };
        assert!(rings(&mut auto, 2));
        auto.set_shares_core(true);
        assert!(!rings(&mut auto, 7));
        assert!(rings(&mut auto, COUNT_MAX));
        auto.set_yielding(true);
        assert!(rings(&mut auto, YIELDING.count_max), "beside an express lane");
        auto.set_shares_core(false);
        assert!(rings(&mut auto, 2));
    }

    /// The share of so many in flight, when this end has waited for so many thousandths of its time.
    fn share_when_idle(of_device: bool, in_flight: u32, permille: u32) -> u32 {
        let mut auto = Auto::new(of_device);
        let backlog = Backlog { requests: 1, in_flight, ..Backlog::default() };
        for turn in 0..4 {
            auto.on_enqueue(at(turn * 2000), &backlog, &command());
            auto.set_idle(at(turn * 2000), permille);
        }
        auto.share
    }

    #[test]
    fn who_waits_for_most_of_its_time_sends_more_often() {
        let shares = [8, 32, 33, 48, 64, 96, 128, 511].map(|n| share_when_idle(false, n, 900));
        assert_eq!(shares, [2, 8, 4, 6, 8, 12, 16, 63]);
        for in_flight in [8, 32, 33, 48, 64, 96, 128, 511] {
            assert_eq!(share_when_idle(false, in_flight, 300), share(in_flight, WHOLE), "busy");
            assert_eq!(
                share_when_idle(true, in_flight, 900),
                share(in_flight, WHOLE_OF_DEVICE),
                "a device's programs use the processor"
            );
        }
    }

    /// With so many in flight, alone on the reactor.
    fn awake(of_device: bool, in_flight: u32) -> Auto {
        let mut auto = Auto::new(of_device);
        auto.set_pace(Pace::Awake);
        let backlog = Backlog { requests: 1, in_flight, ..Backlog::default() };
        auto.on_enqueue(at(0), &backlog, &command());
        auto
    }

    #[test]
    fn ends_that_stay_awake_send_few_in_two_parts_or_one() {
        let shares = [1, 2, 3, 7, 8, 15, 16, 24, 31, 32].map(|n| awake(false, n).share);
        assert_eq!(shares, [1, 2, 3, 7, 4, 7, 8, 12, 15, 16]);
        for in_flight in [33, 64, 127, 128] {
            assert_eq!(awake(false, in_flight).share, share(in_flight, WHOLE), "they are many");
        }
        assert_eq!([4, 8, 15, 16].map(|n| awake(true, n).share), [4, 4, 7, COUNT_MAX]);
        let mut auto = awake(false, 16);
        auto.set_pace(Pace::Parts);
        assert_eq!(auto.share, 4, "at once");
        assert!(
            awake(false, 1).is_few() && awake(false, 32).is_few() && !awake(false, 33).is_few()
        );
    }

    #[test]
    fn ends_that_stay_awake_look_whether_the_rest_of_a_part_has_come() {
        let looks = |auto: &Auto, requests, in_flight| {
            auto.looks_again(&Backlog { requests, in_flight, ..Backlog::default() })
        };
        let mut auto = awake(false, 16);
        assert!(looks(&auto, 1, 16) && looks(&auto, 7, 16));
        assert!(!looks(&auto, 8, 16), "the part is whole");
        assert!(!looks(&auto, 2, 2), "the peer has nothing");
        let large = Backlog { requests: 1, data_bytes: 64 << 10, in_flight: 16, in_others: 0 };
        assert!(!auto.looks_again(&large), "enough data");
        let beside = Backlog { requests: 1, data_bytes: 0, in_flight: 16, in_others: 1 };
        assert!(!auto.looks_again(&beside), "other lanes are parts");
        auto.set_pace(Pace::Parts);
        assert!(!looks(&auto, 1, 16));
    }

    #[test]
    fn a_device_s_requests_leave_together_when_they_are_many() {
        let shares = [1, 2, 4, 8, 15, 16, 32, 128].map(|n| share(n, WHOLE_OF_DEVICE));
        assert_eq!(shares, [1, 2, 1, 2, 3, COUNT_MAX, COUNT_MAX, COUNT_MAX]);
    }

    #[test]
    fn little_is_gathered_when_much_is_in_flight() {
        let gathers = |of_device, peak, backlog: Backlog| {
            let mut auto = Auto::new(of_device);
            let parcel = command();
            let before = Backlog { requests: 1, in_flight: peak, ..Backlog::default() };
            assert_eq!(auto.on_enqueue(at(0), &before, &parcel), Doorbell::ArmUntil(at(0)));
            auto.gathers(&backlog)
        };
        let few = Backlog { requests: 15, data_bytes: 15 * 4096, in_flight: 128, in_others: 0 };
        assert!(gathers(false, 128, few));
        assert!(!gathers(false, 127, few), "parts go round");
        assert!(!gathers(true, 128, few), "processors are busy with a device's programs");
        assert!(!gathers(false, 128, Backlog { requests: 16, ..few }), "enough");
        assert!(!gathers(false, 128, Backlog { data_bytes: 64 << 10, ..few }), "enough data");
        assert!(!gathers(false, 128, Backlog { in_flight: 15, ..few }), "the peer has nothing");
    }

    #[test]
    fn the_peak_is_forgotten_within_two_windows() {
        let mut peak = Peak::default();
        peak.note(at(0), 128);
        assert!(!peak.note(at(500), 1));
        assert_eq!(peak.get(), 128);
        peak.note(at(1100), 1);
        assert_eq!(peak.get(), 128);
        peak.note(at(2200), 1);
        assert_eq!(peak.get(), 1, "the window before had 1");
        peak.note(at(2300), 9);
        assert_eq!(peak.get(), 9, "a rise counts at once");
        peak.note(at(9000), 2);
        assert_eq!(peak.get(), 2, "nothing is remembered over a pause");
    }
}
