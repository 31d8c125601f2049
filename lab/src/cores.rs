//! How busy each core is. What the kernel counts as busy by its ticks misses work that is done in interrupts
//! between them, such as shaping links; how long a core was idle is exact, so busy is all the rest.

use std::fs;
use std::time::Instant;

/// How long each core has been idle until a moment.
#[derive(Clone, Debug)]
pub(crate) struct Idle {
    at: Instant,
    seconds: Vec<f64>,
}

impl Idle {
    /// Until now.
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks = crate::procfs::ticks_per_second();
        Self { at: Instant::now(), seconds: idle_ticks(&stat).map(|idle| idle / ticks).collect() }
    }

    /// The share of the time between two moments that each core was busy.
    pub(crate) fn busy_until(&self, later: &Self) -> Vec<f64> {
        let seconds = later.at.duration_since(self.at).as_secs_f64().max(f64::MIN_POSITIVE);
        let idle = self.seconds.iter().zip(&later.seconds).map(|(before, after)| after - before);
        idle.map(|idle| (1.0 - idle / seconds).clamp(0.0, 1.0)).collect()
    }
}

/// Each core's ticks without work, waiting for a disk or not.
fn idle_ticks(stat: &str) -> impl Iterator<Item = f64> {
    let of_core = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        name.strip_prefix("cpu").filter(|number| !number.is_empty())?;
        // user nice system idle iowait
        Some(rest.split_whitespace().skip(3).take(2).filter_map(|n| n.parse::<f64>().ok()).sum())
    };
    stat.lines().filter_map(of_core)
}

/// Percents of the cores, in their order.
pub(crate) fn show(busy: &[f64]) -> String {
    let each: Vec<String> = busy.iter().map(|share| format!("{:.0}", share * 100.0)).collect();
    each.join(" and ") + " %"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn idle_and_waiting_for_a_disk_are_no_work() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 0 0\ncpu1 0 0 0 7 0 0 0 0\nintr 1 2\n";
        assert_eq!(idle_ticks(stat).collect::<Vec<_>>(), [45.0, 7.0]);
    }

    #[test]
    fn busy_is_what_is_not_idle() {
        let before = Idle { at: Instant::now(), seconds: vec![10.0, 20.0, 5.0] };
        let at = before.at + Duration::from_secs(2);
        let after = Idle { at, seconds: vec![10.5, 20.0, 7.1] };
        let busy = before.busy_until(&after);
        assert_eq!(busy, [0.75, 1.0, 0.0]);
        assert_eq!(show(&busy), "75 and 100 and 0 %");
        assert!(!Idle::now().seconds.is_empty());
    }
}
