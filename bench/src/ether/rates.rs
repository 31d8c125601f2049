//! How full links of 1 Gbit/s are.

use super::report::{Bound, Row};
use super::{Bench, ETHER, direction, middle};
use crate::measure::Measure;
use crate::wired::{Contestant, Wired};
use crate::workload::{KIB, Load, Wire, size};

const LINKS_MAX: usize = 6;
const LARGE: usize = 128 * KIB;

/// One link: data over what Ethernet can carry with such frames.
pub(super) fn link_use(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let wire = Wire::gigabit(1);
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
        let load = Load::new(share, bs, depth).over(wire);
        let used = bench.median(&wired, &load, ETHER, |m| m.link_use.unwrap_or(0.0) * 100.0)?;
        let what = format!("{} {}, depth {depth}", size(bs), direction(share));
        Ok(Row::new("use", what, "%", used)
            .bound(Bound::AtLeast(bar))
            .note("of what frames of 9000 octets can carry"))
    };
    cases.into_iter().map(row).collect()
}

/// Throughput by the number of links, as a multiple of one link's.
pub(super) fn links(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut first = [0.0; 2];
    for links in 1..=LINKS_MAX {
        let wire = Wire::gigabit(links);
        let wired = Wired::new(&bench.program, wire)?;
        for (place, share) in [100, 0].into_iter().enumerate() {
            let load = Load::new(share, LARGE, 16 * links).over(wire);
            let rounds = bench.rounds(&wired, &load, &[Contestant::Product(ETHER)])?;
            let rate = middle(rounds.iter().map(|round| round[0].bytes_per_second))?;
            if links == 1 {
                first[place] = rate;
            }
            let own = |m: &Measure| m.cpu_us_per_io().unwrap_or(0.0) * m.iops / 1e6;
            // Shaping works in interrupts, on nobody's account.
            let cores = middle(rounds.iter().map(|r| own(&r[0]) + r[0].foreign_cores))?;
            let what = format!("{links} links, {} {}", size(LARGE), direction(share));
            let row = Row::new("links", what, "x one link", rate / first[place])
                .bound(Bound::AtLeast(0.95 * links as f64))
                .note(format!("{:.1} MB/s, {cores:.2} of 2 cores busy", rate / 1e6));
            rows.push(row);
        }
    }
    Ok(rows)
}
