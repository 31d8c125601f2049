//! How full links of 1 Gbit/s are.

use super::{ETHER, direction, middle, rounds};
use crate::checks::CheckBench;
use crate::cores;
use crate::judge::{BoundVerdict, Judged};
use crate::measure::Measure;
use crate::wired::{Wired, WiredContestant};
use crate::workload::{KIB, LabLoad, LoadLinks, size};

const LINKS_MAX: usize = 6;
const LARGE: usize = 128 * KIB;
/// A core that is busy for this share of the time is full: idle time is counted in steps of 10 ms.
const FULL: f64 = 0.97;

/// One link: data over what Ethernet can carry with such frames.
pub(super) fn link_use(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let wire = LoadLinks::gigabit(1);
    let wired = Wired::new(&bench.program, wire)?;
    let cases = [
        (100, 4 * KIB, 128, 95.0),
        (0, 4 * KIB, 128, 92.0),
        (100, 16 * KIB, 64, 97.0),
        (0, 16 * KIB, 64, 97.0),
        (100, LARGE, 16, 97.0),
        (0, LARGE, 16, 97.0),
    ];
    let row = |(share, bs, depth, bar)| {
        let load = LabLoad::new(share, bs, depth).over(wire);
        let rounds = rounds(bench, &wired, &load, &[WiredContestant::Product(ETHER)])?;
        let used = middle(rounds.iter().filter_map(|round| round[0].link_use))? * 100.0;
        let what = format!("{} {}, depth {depth}", size(bs), direction(share));
        Ok(Judged::new("use", what, "%", used)
            .at_least(bar)
            .note("of what frames of 9000 bytes can carry"))
    };
    cases.into_iter().map(row).collect()
}

/// Throughput by the number of links, as a multiple of one link's.
pub(super) fn links(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let mut rows = Vec::new();
    let mut first = [0.0; 2];
    let mut busy = [const { Vec::new() }; 2];
    for links in 1..=LINKS_MAX {
        let wire = LoadLinks::gigabit(links);
        let wired = Wired::new(&bench.program, wire)?;
        for (place, share) in [100, 0].into_iter().enumerate() {
            let load = LabLoad::new(share, LARGE, 16 * links).over(wire);
            let rounds = rounds(bench, &wired, &load, &[WiredContestant::Product(ETHER)])?;
            let rate = middle(rounds.iter().map(|round| round[0].bytes_per_second))?;
            if links == 1 {
                first[place] = rate;
            }
            let measures: Vec<Measure> = rounds.into_iter().flatten().collect();
            let cores = Measure::median(&measures).cores_busy;
            busy[place].push(cores.iter().copied().fold(0.0, f64::max));
            let is_full = cores.iter().any(|&share| share >= FULL);
            let cores = cores::show(&cores);
            let what = format!("{links} links, {} {}", size(LARGE), direction(share));
            let note = format!("{:.1} MB/s, cores busy {cores}", rate / 1e6);
            let row = Judged::new("links", what, "x one link", rate / first[place])
                .at_least(0.95 * links as f64);
            let is_missed = row.verdict() == Some(BoundVerdict::Missed);
            rows.push(match is_missed && is_full {
                // Judged while the cores suffice.
                true => Judged { bound: None, ..row }.note(note + ": they do not suffice"),
                false => row.note(note),
            });
        }
    }
    let limits = [100, 0].into_iter().zip(&busy).filter_map(|(share, busy)| {
        let what = format!("{}: a core is full from", direction(share));
        let note = format!("busy for {:.0} % of the time and more", FULL * 100.0);
        Some(Judged::new("links", what, "links", full_from(busy)? as f64).note(note))
    });
    rows.extend(limits);
    Ok(rows)
}

/// The number of links from which on the busiest core has nothing to spare; `busy` begins with one link.
fn full_from(busy: &[f64]) -> Option<usize> {
    let spare = busy.iter().rposition(|&share| share < FULL).map_or(0, |place| place + 1);
    (spare < busy.len()).then_some(spare + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_full_from_where_it_never_has_time_to_spare_again() {
        assert_eq!(full_from(&[0.75, 0.97, 0.88, 1.0, 0.99, 0.97]), Some(4));
        assert_eq!(full_from(&[1.0, 1.0]), Some(1));
        assert_eq!(full_from(&[0.5, 1.0, 0.5]), None);
        assert_eq!(full_from(&[]), None);
    }
}
