//! `auto`, this project's own policy: no settings (`docs/internals/auto.md` explains it).
//!
//! The policy never waits while the peer may be idle. It decides which share of the commands in flight one send takes.
//! A polling end sends a few requests in two parts, so that both ends work at the same time. A blocking end sends
//! everything that is ready together, because each part would cost a wake-up. With many commands in flight, everything
//! leaves together as well, because both ends are busy anyway. The commands of all lanes of this reactor count. A
//! lane's few requests need no parts when other lanes keep both ends busy.

use super::{Backlog, BatchPolicy, Doorbell, DoorbellCause, Freight, PduInfo, PduKind, Urgency};
use crate::caravan::CaravanLimits;
use crate::time::Instant;
use core::time::Duration;

/// Commands in flight from which on nothing is split: both ends are busy anyway. With 16 to 24 in flight, splitting
/// gains a factor of 1.1 to 1.4 (measured); from 32 on it gains nothing.
const WHOLE: u32 = 32;
/// The same limit where requests come from other threads, such as a block device's programs. Those do not wait for one
/// another's completions, so parts form by themselves, and they keep a processor busy.
const WHOLE_OF_DEVICE: u32 = 16;
/// Minimum number of requests in a part: a smaller one is not worth its send.
const PART_MIN: u32 = 4;
/// Commands in flight from which on frames may wait for company, ...
const GATHERING_MIN: u32 = 128;
/// Maximum number of PDUs in a caravan: the limit of one send.
const COUNT_MAX: u32 = 512;
/// ... if they are less than this fraction (1/8) of the commands in flight, ...
const GATHERED: u32 = 8;
/// ... with less data than that.
const GATHERED_BYTES: u32 = 64 << 10;
/// Limits of a caravan.
const WIDE: CaravanLimits = CaravanLimits { count_max: COUNT_MAX, bytes_max: 2 << 20 };
/// Limits of a caravan next to an express lane: sending it takes the time of a wake-up or two.
const YIELDING: CaravanLimits = CaravanLimits { count_max: 64, bytes_max: 256 << 10 };
/// Bytes of data up to which PDUs pass larger ones.
pub const SMALL_BYTES_MAX: u32 = 16 << 10;
/// Time for which a number of commands in flight is remembered, once or twice: the load may change in a millisecond.
const WINDOW: Duration = Duration::from_millis(1);

/// Peak number of commands in flight in this window and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    now: u32,
    before: u32,
    window_end: Instant,
}

impl Peak {
    /// Records `in_flight`. True if the peak may have changed.
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

/// Sends when a share of the commands in flight waits, or nothing more is ready.
#[derive(Clone, Copy, Debug)]
pub struct Auto {
    /// Peak of the commands in flight on all lanes of the reactor.
    peak: Peak,
    /// PDUs that make a caravan full.
    share: u32,
    /// True if the last decision was to split.
    splits: bool,
    /// True if requests come from other threads.
    of_device: bool,
}

impl Auto {
    /// The policy of one end of a lane; `of_device`: its requests come from other threads.
    #[must_use]
    pub fn new(of_device: bool) -> Self {
        Auto { peak: Peak::default(), share: COUNT_MAX, splits: false, of_device }
    }

    #[inline]
    fn set_share(&mut self, splits: bool) {
        self.splits = splits;
        let whole = if self.of_device { WHOLE_OF_DEVICE } else { WHOLE };
        self.share = match self.peak.get() {
            all if !splits || all >= whole => COUNT_MAX,
            all if all >= 2 * PART_MIN => all / 2,
            all => all.max(1),
        };
    }
}

/// Limits of a caravan.
#[inline]
fn limits(yields: bool) -> CaravanLimits {
    if yields { YIELDING } else { WIDE }
}

impl BatchPolicy for Auto {
    fn freight(&self, pdu: &PduInfo) -> Freight {
        // All H2CData of a write uses the same freight, also its short end.
        let is_part = pdu.kind == PduKind::H2cData;
        let bytes = if is_part { pdu.request_bytes } else { pdu.data_bytes };
        match (pdu.urgency, pdu.kind) {
            (_, PduKind::Control) | (Urgency::Critical, _) => Freight::Express,
            (Urgency::Bulk, _) => Freight::Data,
            _ if bytes > SMALL_BYTES_MAX => Freight::Data,
            _ => Freight::Cmd,
        }
    }

    fn on_enqueue(&mut self, now: Instant, backlog: &Backlog, pdu: &PduInfo) -> Doorbell {
        // Other lanes count as parts. While this lane receives responses they may have nothing in flight for a moment.
        let has_changed = self.peak.note(now, backlog.in_flight.saturating_add(backlog.in_others));
        let splits = backlog.polls && !backlog.shares_core;
        if has_changed || self.splits != splits {
            self.set_share(splits);
        }
        if pdu.is_urgent() {
            return Doorbell::Ring(DoorbellCause::Urgent);
        }
        let limits = limits(backlog.yields);
        if backlog.requests >= self.share.min(limits.count_max)
            || backlog.data_bytes >= limits.bytes_max
        {
            return Doorbell::Ring(DoorbellCause::Size);
        }
        Doorbell::ArmUntil(now)
    }

    #[inline]
    fn limits(&self, _: Freight, yields: bool) -> CaravanLimits {
        limits(yields)
    }

    #[inline]
    fn gathers(&self, backlog: &Backlog) -> bool {
        // A device's programs keep its processor busy.
        !self.of_device
            && self.peak.get() >= GATHERING_MIN
            && backlog.requests < backlog.in_flight / GATHERED
            && backlog.data_bytes < GATHERED_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant(us * 1000)
    }

    fn command() -> PduInfo {
        PduInfo {
            kind: PduKind::Command,
            urgency: Urgency::Normal,
            data_bytes: 0,
            request_bytes: 4096,
        }
    }

    fn backlog(requests: u32, in_flight: u32, in_others: u32) -> Backlog {
        Backlog { requests, in_flight, in_others, polls: true, ..Backlog::default() }
    }

    /// Share of a polling end, with so many commands in flight in this lane and in others.
    fn share(of_device: bool, in_flight: u32, in_others: u32) -> u32 {
        let mut auto = Auto::new(of_device);
        auto.on_enqueue(at(0), &backlog(1, in_flight, in_others), &command());
        auto.share
    }

    #[test]
    fn few_requests_leave_in_two_parts_or_one() {
        let shares = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 1023].map(|n| share(false, n, 0));
        assert_eq!(shares, [1, 1, 2, 3, 7, 4, 7, 8, 15, COUNT_MAX, COUNT_MAX]);
        let shares = [1, 4, 8, 15, 16, 32].map(|n| share(true, n, 0));
        assert_eq!(shares, [1, 4, 4, 7, COUNT_MAX, COUNT_MAX], "a device's programs");
    }

    #[test]
    fn other_lanes_are_parts_as_well() {
        let shares =
            |in_flight| [1, 2, 4, 16].map(|n| share(false, in_flight, in_flight * (n - 1)));
        assert_eq!(shares(1), [1, 2, 4, 8]);
        assert_eq!(shares(8), [4, 8, COUNT_MAX, COUNT_MAX]);
    }

    #[test]
    fn lanes_that_are_being_answered_are_still_parts() {
        let mut auto = Auto::new(false);
        auto.on_enqueue(at(0), &backlog(1, 8, 16), &command());
        assert_eq!(auto.share, 12);
        auto.on_enqueue(at(100), &backlog(1, 8, 4), &command());
        assert_eq!(auto.share, 12);
    }

    #[test]
    fn an_end_that_sleeps_sends_all_that_is_ready() {
        let mut auto = Auto::new(false);
        let mut rings = |requests, polls, yields| {
            let backlog = Backlog { polls, yields, ..backlog(requests, 8, 0) };
            auto.on_enqueue(at(0), &backlog, &command()) == Doorbell::Ring(DoorbellCause::Size)
        };
        assert!(rings(4, true, false));
        assert!(!rings(7, false, false), "at once");
        assert!(rings(COUNT_MAX, false, false));
        assert!(rings(YIELDING.count_max, false, true), "beside an express lane");
        assert!(rings(4, true, false), "and back");
        let shared = Backlog { shares_core: true, ..backlog(4, 8, 0) };
        assert_eq!(auto.on_enqueue(at(0), &shared, &command()), Doorbell::ArmUntil(at(0)));
    }

    #[test]
    fn little_is_gathered_when_much_is_in_flight() {
        let gathers = |of_device, peak, now: Backlog| {
            let mut auto = Auto::new(of_device);
            let decision = auto.on_enqueue(at(0), &backlog(1, peak, 0), &command());
            assert_eq!(decision, Doorbell::ArmUntil(at(0)));
            auto.gathers(&now)
        };
        let few = Backlog { data_bytes: 15 * 4096, ..backlog(15, 128, 0) };
        assert!(gathers(false, 128, few));
        assert!(!gathers(false, 127, few), "the target would soon have nothing to do");
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
