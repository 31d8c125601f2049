//! Rate limits of a namespace or a host.
//!
//! A limit is a point in time: the start of the next command. Each command moves it by its cost at the limit's rate
//! (the generic cell rate algorithm). The command begins at its own point, or up to half a millisecond later. So
//! commands begin in the order of arrival, none has to check twice, and the only timer is that of the first waiting
//! command. Reactors share a limit without a lock. Commands without a limit skip all of this.

use super::io::TargetIoCommand;
use core::fmt;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Default burst: duration whose unused quota may be used at once.
pub const BURST: Duration = Duration::from_millis(5);
/// Longest burst.
pub const BURST_MAX: Duration = Duration::from_secs(60);

/// Step of the start times of waiting commands: each with its own start would wake a core that others use.
const START_STEP: Duration = Duration::from_micros(500);
/// Divisor of the burst that limits this step, so that waiting longer costs no throughput.
const PARTS_OF_BURST: u64 = 10;

/// Picoseconds of a second.
const SECOND_PS: u64 = 1_000_000_000_000;

/// Rates per second. `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RateSettings {
    /// Commands that read or write.
    pub iops: Option<NonZeroU64>,
    /// Commands that read.
    pub read_iops: Option<NonZeroU64>,
    /// Commands that write.
    pub write_iops: Option<NonZeroU64>,
    /// Bytes read and written.
    pub bandwidth: Option<NonZeroU64>,
    /// Bytes read.
    pub read_bandwidth: Option<NonZeroU64>,
    /// Bytes written.
    pub write_bandwidth: Option<NonZeroU64>,
    /// Duration whose unused quota may be used at once; `None`: [`BURST`].
    pub burst: Option<Duration>,
}

impl RateSettings {
    /// No limits.
    pub const UNLIMITED: RateSettings = RateSettings {
        iops: None,
        read_iops: None,
        write_iops: None,
        bandwidth: None,
        read_bandwidth: None,
        write_bandwidth: None,
        burst: None,
    };

    /// True if any rate is limited.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.each().iter().any(Option::is_some)
    }

    /// Returns the rates in the order of [`RateLimit`]'s points: commands, then bytes, each total, reads, writes.
    fn each(&self) -> [Option<NonZeroU64>; 6] {
        [
            self.iops,
            self.read_iops,
            self.write_iops,
            self.bandwidth,
            self.read_bandwidth,
            self.write_bandwidth,
        ]
    }
}

/// Text for logs and replies.
impl fmt::Display for RateSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            ["IOPS", "read IOPS", "write IOPS", "bytes/s", "bytes/s read", "bytes/s written"];
        let mut before = "at most ";
        for (rate, name) in self.each().into_iter().zip(names) {
            if let Some(rate) = rate {
                write!(f, "{before}{rate} {name}")?;
                before = ", ";
            }
        }
        if self.is_limited() { Ok(()) } else { f.write_str("not limited") }
    }
}

/// Limit of one rate, with its use.
#[derive(Debug, Default)]
struct RatePoint {
    /// Cost of a command or a byte, in picoseconds; 0: unlimited.
    cost_ps: u64,
    /// Time at which all admitted units are paid for, in nanoseconds.
    next: AtomicU64,
}

impl RatePoint {
    /// Returns the cost of `units` in nanoseconds; `None`: unlimited.
    fn cost(&self, units: u64) -> Option<u64> {
        let is_limited = self.cost_ps != 0 && units != 0;
        is_limited.then(|| (u128::from(self.cost_ps) * u128::from(units) / 1000) as u64)
    }

    /// Returns when `units` that arrive now may begin, and charges them.
    fn take(&self, now: u64, units: u64, burst: u64) -> u64 {
        let Some(cost) = self.cost(units) else { return now };
        let after = |next: u64| Some(next.max(now).saturating_add(cost));
        let next = self.next.fetch_update(Relaxed, Relaxed, after).unwrap_or_else(|next| next);
        next.max(now).saturating_sub(burst)
    }

    /// Refunds `units` that have waited and do not begin.
    fn give_back(&self, units: u64) {
        let Some(cost) = self.cost(units) else { return };
        let after = |next: u64| Some(next.saturating_sub(cost));
        let _ = self.next.fetch_update(Relaxed, Relaxed, after);
    }
}

/// A rate limit: [`RateSettings`] with their use, shared by all reactors. Other rates are another limit.
#[derive(Debug, Default)]
pub struct RateLimit {
    points: [RatePoint; 6],
    /// Burst in nanoseconds.
    burst: u64,
}

impl RateLimit {
    /// Creates an unused limit.
    #[must_use]
    pub fn new(rates: &RateSettings) -> Self {
        let burst = rates.burst.unwrap_or(BURST).min(BURST_MAX).as_nanos() as u64;
        let points = rates.each().map(|rate| RatePoint {
            cost_ps: rate.map_or(0, |rate| (SECOND_PS / rate).max(1)),
            next: AtomicU64::new(0),
        });
        RateLimit { points, burst }
    }

    /// Returns when a command that arrives now may begin, and charges it.
    #[must_use]
    pub fn take(&self, now: Instant, command: &TargetIoCommand) -> Instant {
        let units = self.units(command).into_iter().flatten();
        let begins = units.map(|(point, units)| point.take(now.0, units, self.burst));
        match begins.fold(now.0, u64::max) {
            begins if begins == now.0 => now,
            begins => Instant(round_start(begins, self.burst)),
        }
    }

    /// Refunds a command that has waited and does not begin. Waiting commands keep their start.
    pub fn give_back(&self, command: &TargetIoCommand) {
        let units = self.units(command).into_iter().flatten();
        units.for_each(|(point, units)| point.give_back(units));
    }

    /// Returns a command's units for each point that applies to it.
    fn units(&self, command: &TargetIoCommand) -> Option<[(&RatePoint, u64); 4]> {
        let (is_write, bytes) = load(command)?;
        let own = if is_write { 2 } else { 1 };
        let units = [(0, 1), (own, 1), (3, bytes), (3 + own, bytes)];
        Some(units.map(|(point, units)| (&self.points[point], units)))
    }
}

/// Rounds a start time up, so that waiting commands begin together.
fn round_start(begins: u64, burst: u64) -> u64 {
    let step = (START_STEP.as_nanos() as u64).min(burst / PARTS_OF_BURST).max(1);
    begins.div_ceil(step).saturating_mul(step)
}

/// Returns whether a command writes, and the bytes that it transfers; `None`: unlimited, because other hosts depend on
/// it.
fn load(command: &TargetIoCommand) -> Option<(bool, u64)> {
    Some(match *command {
        TargetIoCommand::Read { length, .. }
        | TargetIoCommand::Compare { length, .. }
        | TargetIoCommand::Verify { length, .. } => (false, length.into()),
        TargetIoCommand::Write { length, .. } => (true, length.into()),
        TargetIoCommand::WriteZeroes { .. }
        | TargetIoCommand::WriteUncorrectable { .. }
        | TargetIoCommand::DatasetManagement { .. }
        | TargetIoCommand::Copy { .. } => (true, 0),
        TargetIoCommand::Flush => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn read(length: u32) -> TargetIoCommand {
        TargetIoCommand::Read { offset: 0, length, fua: false }
    }

    fn write(length: u32) -> TargetIoCommand {
        TargetIoCommand::Write { offset: 0, length, fua: false }
    }

    fn rate(number: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(number)
    }

    /// Returns the commands that begin within a second of a closed loop: each of `depth` repeats `service` nanoseconds
    /// after its start.
    fn in_a_second(
        limit: &RateLimit,
        command: &TargetIoCommand,
        depth: usize,
        service: u64,
    ) -> u64 {
        let mut comes: std::collections::BinaryHeap<_> =
            (0..depth).map(|_| std::cmp::Reverse(SECOND)).collect();
        let mut begun = 0;
        while let Some(std::cmp::Reverse(now)) = comes.pop() {
            let begins = limit.take(Instant(now), command).0;
            begun += u64::from(begins < 2 * SECOND);
            if begins + service < 2 * SECOND {
                comes.push(std::cmp::Reverse(begins + service));
            }
        }
        begun
    }

    #[test]
    fn a_second_has_what_it_may_have() {
        for iops in [1_000, 3_333, 30_000, 500_000] {
            let limit =
                RateLimit::new(&RateSettings { iops: rate(iops), ..RateSettings::default() });
            let begun = in_a_second(&limit, &read(4096), 64, 50_000);
            let ratio = begun as f64 / iops as f64;
            assert!((0.99..1.01).contains(&ratio), "{iops}: {begun}");
        }
        for megabytes in [1, 100, 10_000] {
            let bytes = megabytes * 1_000_000;
            let limit =
                RateLimit::new(&RateSettings { bandwidth: rate(bytes), ..RateSettings::default() });
            let begun = in_a_second(&limit, &write(4096), 256, 10_000);
            let ratio = (begun * 4096) as f64 / bytes as f64;
            assert!((0.97..1.01).contains(&ratio), "{megabytes} MB/s: {begun}");
        }
    }

    #[test]
    fn who_needs_less_never_waits() {
        let limit = RateLimit::new(&RateSettings { iops: rate(1_000), ..RateSettings::default() });
        for at in 1..2_000 {
            let now = Instant(at * 1_000_001);
            assert_eq!(limit.take(now, &read(4096)), now);
        }
    }

    #[test]
    fn reads_and_writes_are_limited_apart_and_together() {
        let rates =
            RateSettings { iops: rate(1_000), write_iops: rate(100), ..RateSettings::default() };
        let limit = RateLimit::new(&rates);
        let now = Instant(SECOND);
        let writes: Vec<_> = (0..11).map(|_| limit.take(now, &write(512))).collect();
        assert_eq!(writes[10].since(now), Duration::from_millis(95), "ten times 10 ms, but for 5");
        let limit = RateLimit::new(&rates);
        let reads: Vec<_> = (0..11).map(|_| limit.take(now, &read(512))).collect();
        assert_eq!(reads[5], now);
        assert_eq!(reads[10].since(now), Duration::from_millis(5));
    }

    #[test]
    fn what_was_not_used_may_be_caught_up_on() {
        let burst = Some(Duration::from_millis(100));
        let limit =
            RateLimit::new(&RateSettings { iops: rate(1_000), burst, ..RateSettings::default() });
        let now = Instant(SECOND);
        let begun = (0..200).filter(|_| limit.take(now, &read(512)) == now).count();
        assert_eq!(begun, 101, "those of 100 ms, and the one after them");
    }

    #[test]
    fn those_that_wait_begin_together() {
        let limit =
            RateLimit::new(&RateSettings { iops: rate(100_000), ..RateSettings::default() });
        let mut times: Vec<_> =
            (0..2_000).map(|_| limit.take(Instant(SECOND), &read(512)).0).collect();
        times.dedup();
        assert_eq!(times.len(), 1 + 30, "at once in a burst of 5 ms, then 15 ms in steps of 0.5");
        // A queue depth of one loses nothing by it.
        let limit = RateLimit::new(&RateSettings { iops: rate(20_000), ..RateSettings::default() });
        let begun = in_a_second(&limit, &read(4096), 1, 5_000);
        assert!((19_800..20_200).contains(&begun), "{begun}");
    }

    /// A host that queues many commands and ends delays no other one.
    #[test]
    fn what_does_not_begin_takes_no_time() {
        let rates = RateSettings {
            iops: rate(100),
            write_bandwidth: rate(1 << 20),
            ..RateSettings::default()
        };
        let limit = RateLimit::new(&rates);
        let now = Instant(SECOND);
        let kept = limit.take(now, &write(4096));
        for _ in 0..1_000 {
            let _ = limit.take(now, &write(4096));
        }
        assert!(limit.take(now, &read(512)).since(now) > Duration::from_secs(9));
        limit.give_back(&read(512));
        (0..1_000).for_each(|_| limit.give_back(&write(4096)));
        assert_eq!(kept, now);
        assert!(limit.take(now, &write(4096)).since(now) < Duration::from_millis(11));
        limit.give_back(&TargetIoCommand::Flush);
        (0..9).for_each(|_| limit.give_back(&write(4096)));
        assert_eq!(limit.take(now, &write(4096)), now, "never more than a burst at once");
    }

    #[test]
    fn flushes_and_what_has_no_bytes_wait_for_no_bandwidth() {
        let limit = RateLimit::new(&RateSettings {
            bandwidth: rate(1),
            iops: rate(1),
            ..RateSettings::default()
        });
        let now = Instant(SECOND);
        let _ = limit.take(now, &write(1 << 20));
        assert_eq!(limit.take(now, &TargetIoCommand::Flush), now);
        let limit = RateLimit::new(&RateSettings { bandwidth: rate(1), ..RateSettings::default() });
        let _ = limit.take(now, &write(1 << 20));
        let zeroes = TargetIoCommand::WriteZeroes {
            offset: 0,
            length: 1 << 40,
            deallocate: true,
            fua: false,
        };
        assert_eq!(limit.take(now, &zeroes), now);
    }

    proptest! {
        /// For any arrivals: no interval begins more commands than the rate and the burst allow, and commands of one
        /// kind begin in the order of arrival.
        #[test]
        fn no_time_has_too_much(
            iops in 1_u64..5_000_000,
            burst_us in 0_u64..100_000,
            gaps in prop::collection::vec(0_u64..3_000_000, 1..200),
        ) {
            let burst = Some(Duration::from_micros(burst_us));
            let limit = RateLimit::new(&RateSettings { iops: rate(iops), burst, ..RateSettings::default() });
            let mut now = SECOND;
            let mut begins = Vec::new();
            for gap in gaps {
                now += gap;
                let at = limit.take(Instant(now), &read(512)).0;
                prop_assert!(at >= now);
                prop_assert!(begins.last().is_none_or(|&last| last <= at));
                begins.push(at);
            }
            let cost = 1e9 / iops as f64;
            for (first, from) in begins.iter().enumerate() {
                for (more, to) in begins[first..].iter().enumerate() {
                    let burst = burst_us as f64 * 1e3;
                    let allowed = ((to - from) as f64 + burst * 1.1) / cost + 2.0;
                    prop_assert!(more as f64 <= allowed * 1.001, "{more} in {}", to - from);
                }
            }
        }
    }
}
