//! Load of the cores by all processes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};

/// Unit of shares: thousandths.
const WHOLE: u64 = 1000;

/// Load of the cores between the last two readings.
#[derive(Debug, Default)]
pub struct CoreLoads {
    file: Option<File>,
    text: String,
    /// Ticks busy, all ticks, and the last share, by core.
    cores: HashMap<usize, (u64, u64, u32)>,
}

impl CoreLoads {
    /// Takes a reading from the kernel. Cores that it does not report keep their share.
    pub fn read(&mut self) {
        if self.file.is_none() {
            self.file = File::open("/proc/stat").ok();
        }
        let Some(file) = &mut self.file else { return };
        self.text.clear();
        if file.rewind().is_ok() && file.read_to_string(&mut self.text).is_ok() {
            let text = std::mem::take(&mut self.text);
            self.take(&text);
            self.text = text;
        }
    }

    fn take(&mut self, text: &str) {
        for (core, busy, all) in text.lines().filter_map(parse) {
            let (old_busy, old_all, share) = self.cores.entry(core).or_insert((busy, all, 0));
            let (busy_now, now) = (busy.saturating_sub(*old_busy), all.saturating_sub(*old_all));
            if let Some(new) = (busy_now.min(now) * WHOLE).checked_div(now) {
                *share = new as u32;
            }
            (*old_busy, *old_all) = (busy, all);
        }
    }

    /// Returns the share of the time between the last two readings in which the core was busy; 0 when unknown.
    pub fn busy(&self, core: usize) -> u32 {
        self.cores.get(&core).map_or(0, |(_, _, share)| *share)
    }
}

/// Returns a core, its busy ticks and all ticks. Of the eight kinds the fourth is idle, the fifth idle with I/O in
/// flight.
fn parse(line: &str) -> Option<(usize, u64, u64)> {
    let mut words = line.strip_prefix("cpu")?.split_whitespace();
    let core = words.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
    let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let all = ticks.iter().sum::<u64>();
    let idle = ticks.iter().skip(3).take(2).sum::<u64>();
    Some((core, all - idle, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_two_reads_counts() {
        let mut loads = CoreLoads::default();
        loads.take("cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 0 50 800 50 0 0 0 0 0\ncpu11 1 1 1 1 1 1 1 1 0 0\nintr 5\n");
        assert_eq!((loads.busy(0), loads.busy(11)), (0, 0), "nothing is known yet");
        loads.take("cpu0 110 0 55 803 52 0 0 0 0 0\ncpu11 1 1 1 1 1 1 1 1 0 0\n");
        assert_eq!((loads.busy(0), loads.busy(11)), (750, 0));
        loads.take("cpu0 110 0 55 903 52 0 0 0 0 0\n");
        assert_eq!(loads.busy(0), 0);
        loads.take("cpu0 nonsense\ncpu0\ncpuX 1 2\n");
        assert_eq!(loads.busy(5), 0);
    }

    #[test]
    fn the_kernel_reports_loads() {
        let mut loads = CoreLoads::default();
        loads.read();
        assert!(!loads.cores.is_empty());
        loads.read();
        assert!(loads.cores.keys().all(|&core| loads.busy(core) <= 1000));
    }
}
