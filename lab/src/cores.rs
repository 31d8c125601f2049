//! The machine's clocks: busy and idle time of the cores. What the kernel counts as busy by its ticks misses work that is
//! done in interrupts between them, such as shaping links; how long a core was idle is exact.

use crate::procfs::ticks_per_second;
use std::fs;
use std::time::Instant;

/// Readings of /proc/stat at one time.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    at: Instant,
    /// CPU time of everything by ticks, with the time that the hypervisor gave to others.
    pub(crate) busy_seconds: f64,
    /// Time that all cores were idle, or stolen.
    pub(crate) idle_seconds: f64,
    /// Time that each core was idle, waiting for a disk or not.
    cores: Vec<f64>,
    pub(crate) switches: f64,
}

impl Clocks {
    pub(crate) fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default(), Instant::now())
    }

    fn parse(stat: &str, at: Instant) -> Self {
        // user nice system idle iowait irq softirq steal
        let seconds = |line: &str, fields: &[usize]| -> f64 {
            let ticks: Vec<&str> = line.split_whitespace().skip(1).collect();
            let ticks = fields.iter().filter_map(|&field| ticks.get(field)?.parse::<f64>().ok());
            ticks.sum::<f64>() / ticks_per_second()
        };
        let all = stat.lines().next().unwrap_or_default();
        let cores = stat.lines().skip(1).filter(|line| line.starts_with("cpu"));
        let switches = stat.lines().find_map(|line| line.strip_prefix("ctxt "));
        Self {
            at,
            busy_seconds: seconds(all, &[0, 1, 2, 5, 6, 7]),
            idle_seconds: seconds(all, &[3, 4, 7]),
            cores: cores.map(|line| seconds(line, &[3, 4])).collect(),
            switches: switches.and_then(|n| n.trim().parse().ok()).unwrap_or(0.0),
        }
    }

    pub(crate) fn cores(&self) -> usize {
        self.cores.len()
    }

    /// The share of the time until later readings that each core was busy.
    pub(crate) fn busy_until(&self, later: &Self) -> Vec<f64> {
        let seconds = later.at.duration_since(self.at).as_secs_f64().max(f64::MIN_POSITIVE);
        let idle = self.cores.iter().zip(&later.cores).map(|(before, after)| after - before);
        idle.map(|idle| (1.0 - idle / seconds).clamp(0.0, 1.0)).collect()
    }
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
    fn idle_waiting_and_stolen_time_is_no_work() {
        let stat = "cpu  50 1 30 1000 200 3 4 7 0 0\ncpu0 1 2 3 40 5 6 7 8\ncpu1 0 0 0 7 0\nintr 5\nctxt 90\n";
        let clocks = Clocks::parse(stat, Instant::now());
        let ticks = ticks_per_second();
        assert_eq!((clocks.cores(), clocks.switches), (2, 90.0));
        assert_eq!((clocks.busy_seconds, clocks.idle_seconds), (95.0 / ticks, 1207.0 / ticks));
        assert_eq!(clocks.cores, [45.0 / ticks, 7.0 / ticks]);
        assert!(Clocks::now().cores() > 0);
    }

    #[test]
    fn cores_are_busy_when_they_are_not_idle() {
        let before = Clocks { cores: vec![10.0, 20.0, 5.0], ..Clocks::parse("", Instant::now()) };
        let at = before.at + Duration::from_secs(2);
        let after = Clocks { at, cores: vec![10.5, 20.0, 7.1], ..before.clone() };
        let busy = before.busy_until(&after);
        assert_eq!(busy, [0.75, 1.0, 0.0]);
        assert_eq!(show(&busy), "75 and 100 and 0 %");
    }
}
