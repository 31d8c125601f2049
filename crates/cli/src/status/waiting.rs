//! Wait statistics of reactors, as shown.

use crate::units::show_us;
use roadtrain_reactor::waits::WaitState;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Wait statistics of a reactor. All zero if nothing is known yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WaitReport {
    /// CPU time of a sleep and its wake-up, in microseconds.
    pub sleep_cost_us: f64,
    /// Longest spin before a sleep, in microseconds; 0 to sleep at once.
    pub spin_bound_us: f64,
    /// Share of recent spins that found an event.
    pub caught: f64,
}

impl From<WaitState> for WaitReport {
    fn from(state: WaitState) -> Self {
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        WaitReport {
            sleep_cost_us: us(state.sleep_cost),
            spin_bound_us: us(state.spin_bound),
            caught: state.caught,
        }
    }
}

impl WaitReport {
    fn text(&self) -> String {
        let WaitReport { sleep_cost_us, spin_bound_us, caught } = self;
        let spins = match *spin_bound_us {
            0.0 => "sleeps at once".to_owned(),
            bound => format!("spins up to {} and catches {:.0} %", show_us(bound), caught * 100.0),
        };
        format!("a sleep costs {}, {spins}", show_us(*sleep_cost_us))
    }
}

/// Formats the statistics of all reactors; `None` if nothing is known.
pub(crate) fn text(reports: &[WaitReport]) -> Option<String> {
    let known = reports.iter().filter(|report| report.sleep_cost_us > 0.0);
    let known: Vec<String> = known.map(WaitReport::text).collect();
    (!known.is_empty()).then(|| known.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_how_it_waits() {
        let asleep = WaitReport { sleep_cost_us: 12.3, ..WaitReport::default() };
        let spinning = WaitReport { spin_bound_us: 24.6, caught: 0.987, ..asleep };
        assert_eq!(
            text(&[asleep, WaitReport::default(), spinning]).unwrap(),
            "a sleep costs 12.3 us, sleeps at once; a sleep costs 12.3 us, spins up to 24.6 us and catches 99 %"
        );
        assert_eq!(text(&[WaitReport::default()]), None);
    }
}
