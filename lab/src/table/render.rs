//! The table as Markdown that also reads well on a terminal.

use super::plan::{Group, Metric};
use super::result::{
    Check, ConnectionRow, CoreRow, Least, Most, RowResult, Table, TlsRow, WaitingRow,
};
use crate::grid::{self, Grid, optional, pair, strings};
use crate::measure::Measure;
use std::fmt::Write;

/// Renders everything.
pub(crate) fn markdown(table: &Table) -> String {
    let mut out = String::new();
    machine(&mut out, table);
    for (group, heading) in [
        (Group::Throughput, "4 KiB random, depth 128, one lane"),
        (Group::Bandwidth, "128 KiB random, depth 32, one lane"),
        (Group::RoundTrip, "4 KiB random reads, depth 1: the round trip"),
        (Group::Parts, "What each part adds: 4 KiB random reads, 128 in flight"),
        (Group::Depths, "Latency of 4 KiB random reads by depth"),
    ] {
        let rows: Vec<&RowResult> = table.rows.iter().filter(|row| row.group == group).collect();
        if !rows.is_empty() {
            writeln!(out, "\n### {heading}\n").expect("a string takes all");
            grid::write(&mut out, &rows_of(group, &rows));
            if matches!(group, Group::Throughput | Group::Bandwidth | Group::RoundTrip) {
                out.push_str("\nWhere it comes from:\n\n");
                grid::write(&mut out, &instruments(&rows));
            }
        }
    }
    if !table.cores.is_empty() {
        out.push_str("\n### Cores: 4 KiB random reads, 128 in flight on each lane\n\n");
        grid::write(&mut out, &cores(&table.cores));
    }
    if !table.connections.is_empty() {
        out.push_str("\n### Many connections: 4 KiB random reads, 1,024 in flight in all\n\n");
        grid::write(&mut out, &connections(&table.connections));
    }
    if !table.tls.is_empty() {
        out.push_str("\n### TLS: with it, without it, and what AES-128-GCM alone takes\n\n");
        grid::write(&mut out, &tls(&table.tls));
    }
    if !table.waiting.is_empty() {
        out.push_str("\n### Waiting: 4 KiB random reads, mean us and CPU-us/IO of both ends\n\n");
        grid::write(&mut out, &waiting(&table.waiting));
    }
    if !table.checks.is_empty() {
        out.push_str("\n### At rest\n\n");
        grid::write(&mut out, &checks(&table.checks));
    }
    let (kept, all) = table.score();
    writeln!(out, "\n{kept} of {all} goals kept.").expect("a string takes all");
    out
}

/// What is reached, beside the floor, in one table; and what is used at rest.
pub(super) fn short(table: &Table) -> String {
    let mut out = String::new();
    machine(&mut out, table);
    out.push('\n');
    let heading =
        ["", "unit", "reached", "floor", "ratio", "p99 us", "floor", "CPU-us/IO", "ratio"];
    let mut lines = vec![strings(&heading)];
    for group in [Group::Throughput, Group::Bandwidth, Group::RoundTrip] {
        let rows: Vec<&RowResult> = table.rows.iter().filter(|row| row.group == group).collect();
        let compared = comparison(group, &rows);
        let unit = compared[0][1].clone();
        for (line, row) in compared.into_iter().skip(1).zip(&rows) {
            let [_, reached, floor, ratio, p99, floor_p99, cpu, _, cpu_ratio, _] =
                <[String; 10]>::try_from(line).expect("a cell for each column");
            let what = match group {
                Group::Throughput => format!("4 KiB {}", row.title),
                Group::RoundTrip => format!("4 KiB reads, depth 1, {}", row.title),
                _ => row.title.clone(),
            };
            let unit = unit.clone();
            lines.push(vec![what, unit, reached, floor, ratio, p99, floor_p99, cpu, cpu_ratio]);
        }
    }
    grid::write(&mut out, &lines);
    out.push('\n');
    grid::write(&mut out, &checks(&table.checks));
    let (kept, all) = table.score();
    writeln!(out, "\n{kept} of {all} goals kept.").expect("a string takes all");
    out
}

fn machine(out: &mut String, table: &Table) {
    let foreign = table.rows.iter().flat_map(|row| [&row.product, &row.floor]).flatten();
    let foreign = foreign.map(|m| m.foreign_cores).fold(0.0, f64::max);
    writeln!(
        out,
        "{}.\n\
         Medians of {} alternating rounds of {} s; others used up to {foreign:.2} cores meanwhile.\n\
         Command: `{}`.",
        table.machine, table.rounds, table.seconds, table.command,
    )
    .expect("a string takes all");
}

fn rows_of(group: Group, rows: &[&RowResult]) -> Grid {
    match group {
        Group::Parts => parts(rows),
        Group::Depths => depths(rows),
        _ => comparison(group, rows),
    }
}

/// Product against floor, with goals.
fn comparison(group: Group, rows: &[&RowResult]) -> Grid {
    let unit = match group {
        Group::Throughput => "kIOPS",
        Group::Bandwidth => "GB/s",
        _ => "mean us",
    };
    let mut grid = vec![strings(&[
        "row",
        unit,
        "floor",
        "ratio",
        "p99 us",
        "floor",
        "CPU-us/IO",
        "floor",
        "ratio",
        "goal",
    ])];
    for row in rows {
        let (product, floor) = (row.product.as_ref(), row.floor.as_ref());
        let ratio = match group {
            Group::Throughput => row.ratios.iops,
            Group::Bandwidth => row.ratios.bandwidth,
            _ => row.ratios.latency,
        };
        let cpu = |m: &Measure| optional(m.cpu_us_per_io(), 2);
        grid.push(vec![
            row.title.clone(),
            show(product, |m| headline(group, m)),
            show(floor, |m| headline(group, m)),
            optional(ratio, 2),
            show(product, |m| format!("{:.1}", m.latency_us_p99)),
            show(floor, |m| format!("{:.1}", m.latency_us_p99)),
            show(product, cpu),
            show(floor, cpu),
            optional(row.ratios.cpu, 2),
            goals(row),
        ]);
    }
    grid
}

/// Why: what each side's sends carried and what each I/O cost, product and floor.
fn instruments(rows: &[&RowResult]) -> Grid {
    let mut grid = vec![strings(&[
        "row",
        "CPU-us/IO host / target",
        "per send host / target",
        "bytes/send host / target",
        "syscalls/IO",
        "switches/IO",
    ])];
    for row in rows {
        let floor =
            row.floor.as_ref().map(|m| (format!("  floor, {}", row.floor_gather.unwrap_or(0)), m));
        let product = row.product.as_ref().map(|m| (row.title.clone(), m));
        for (label, m) in product.into_iter().chain(floor) {
            grid.push(vec![
                label,
                pair(m.host_cpu_us_per_io, m.target_cpu_us_per_io, 2),
                pair(m.requests_per_caravan, m.target_requests_per_caravan, 1),
                pair(m.bytes_per_send, m.target_bytes_per_send, 0),
                optional(m.syscalls_per_io, 3),
                optional(m.context_switches_per_io, 4),
            ]);
        }
    }
    grid
}

fn parts(rows: &[&RowResult]) -> Grid {
    let first = rows.first().and_then(|row| row.product.as_ref()).map(|m| m.iops);
    let mut grid = vec![strings(&[
        "step",
        "kIOPS",
        "times the first",
        "mean us",
        "p99 us",
        "CPU-us/IO host + target",
        "per caravan host / target",
        "syscalls/IO",
        "switches/IO",
    ])];
    for row in rows {
        let product = row.product.as_ref();
        grid.push(vec![
            label(row),
            show(product, |m| format!("{:.0}", m.iops / 1e3)),
            show(product, |m| optional(first.map(|f| m.iops / f), 2)),
            show(product, |m| format!("{:.1}", m.latency_us_mean)),
            show(product, |m| format!("{:.1}", m.latency_us_p99)),
            show(product, cpu),
            show(product, |m| pair(m.requests_per_caravan, m.target_requests_per_caravan, 1)),
            show(product, |m| optional(m.syscalls_per_io, 3)),
            show(product, |m| optional(m.context_switches_per_io, 4)),
        ]);
    }
    grid
}

fn depths(rows: &[&RowResult]) -> Grid {
    let mut grid = vec![strings(&[
        "depth, policy",
        "kIOPS",
        "mean us",
        "p50 us",
        "p99 us",
        "CPU-us/IO host + target",
        "floor: kIOPS",
        "mean us",
        "p99 us",
    ])];
    for row in rows {
        let (product, floor) = (row.product.as_ref(), row.floor.as_ref());
        grid.push(vec![
            label(row),
            show(product, |m| format!("{:.1}", m.iops / 1e3)),
            show(product, |m| format!("{:.1}", m.latency_us_mean)),
            show(product, |m| format!("{:.1}", m.latency_us_p50)),
            show(product, |m| format!("{:.1}", m.latency_us_p99)),
            show(product, cpu),
            show(floor, |m| format!("{:.1}", m.iops / 1e3)),
            show(floor, |m| format!("{:.1}", m.latency_us_mean)),
            show(floor, |m| format!("{:.1}", m.latency_us_p99)),
        ]);
    }
    grid
}

/// How the ends share two cores.
fn cores(rows: &[CoreRow]) -> Grid {
    let heading =
        ["set-up", "kIOPS", "floor", "p99 us", "floor", "CPU-us/IO", "floor", "of two pairs"];
    let mut grid = vec![strings(&heading)];
    for row in rows {
        let (product, floor) = (row.product.as_ref(), row.floor.as_ref());
        let kiops = |m: &Measure| format!("{:.0}", m.iops / 1e3);
        let p99 = |m: &Measure| format!("{:.1}", m.latency_us_p99);
        let cpu = |m: &Measure| optional(m.cpu_us_per_io(), 2);
        let judged = match (row.iops_of_pairs, row.p99_of_pairs) {
            (Some(iops), Some(p99)) => format!(
                "IOPS {:.2} (>= {}) {}, p99 {:.2} (<= {}) {}",
                iops.value,
                iops.bound,
                verdict(iops.value >= iops.bound),
                p99.value,
                p99.bound,
                verdict(p99.value <= p99.bound),
            ),
            _ => row.error.clone().unwrap_or_default(),
        };
        grid.push(vec![
            row.title.clone(),
            show(product, kiops),
            show(floor, kiops),
            show(product, p99),
            show(floor, p99),
            show(product, cpu),
            show(floor, cpu),
            judged,
        ]);
    }
    grid
}

/// What many connections to one reactor cost.
fn connections(rows: &[ConnectionRow]) -> Grid {
    let heading = [
        "connections x depth",
        "kIOPS",
        "bare exchange",
        "of one",
        "bare, of one",
        "p99 us",
        "CPU-us/IO",
        "fairness",
        "KiB each in the target",
        "goal",
    ];
    let mut grid = vec![strings(&heading)];
    let one = rows.iter().find(|row| row.connections == 1);
    let of = |measure: Option<&Measure>, one: Option<&Measure>| {
        optional(measure.zip(one).map(|(m, one)| m.iops / one.iops), 2)
    };
    for row in rows {
        let (product, bare) = (row.product.as_ref(), row.bare.as_ref());
        let kiops = |m: &Measure| format!("{:.0}", m.iops / 1e3);
        let kib = |m: &Measure| m.target_kib.map(|kib| kib / row.connections as f64);
        let goal = |what: &str, least: Option<Least>| {
            let verdict = |Least { value, bound }| verdict(value >= bound);
            least.map(|least| format!("{what} >= {:.2} {}", least.bound, verdict(least)))
        };
        let goals = [goal("of one", row.of_one), goal("fairness", row.fairness)];
        let goals = goals.into_iter().flatten().collect::<Vec<_>>().join(", ");
        grid.push(vec![
            format!("{} x {}", row.connections, row.depth),
            show(product, kiops),
            show(bare, kiops),
            of(product, one.and_then(|one| one.product.as_ref())),
            of(bare, one.and_then(|one| one.bare.as_ref())),
            show(product, |m| format!("{:.0}", m.latency_us_p99)),
            show(product, |m| optional(m.cpu_us_per_io(), 2)),
            show(product, |m| optional(m.fairness, 3)),
            show(product, |m| optional(kib(m), 1)),
            row.error.clone().unwrap_or(goals),
        ]);
    }
    grid
}

/// What TLS costs.
fn tls(rows: &[TlsRow]) -> Grid {
    let heading = [
        "load",
        "plain kIOPS",
        "TLS kIOPS",
        "plain mean us",
        "TLS mean us",
        "plain CPU-us/IO host + target",
        "cipher alone",
        "TLS CPU-us/IO host + target",
        "goal",
    ];
    let mut grid = vec![strings(&heading)];
    for row in rows {
        let (plain, tls) = (row.plain.as_ref(), row.tls.as_ref());
        let kiops = |m: &Measure| format!("{:.1}", m.iops / 1e3);
        let mean = |m: &Measure| format!("{:.1}", m.latency_us_mean);
        let of_limit = row.of_limit.map(|Least { value, bound }| {
            format!("of the limit {value:.2} (>= {bound}) {}", verdict(value >= bound))
        });
        let added = row.added_us.map(|Most { value, bound }| {
            format!("{value:.1} us over plain (<= {bound}) {}", verdict(value <= bound))
        });
        grid.push(vec![
            row.title.clone(),
            show(plain, kiops),
            show(tls, kiops),
            show(plain, mean),
            show(tls, mean),
            show(plain, cpu),
            pair(row.cipher_host_us, row.cipher_target_us, 2),
            show(tls, cpu),
            row.error.clone().or(of_limit).or(added).unwrap_or_default(),
        ]);
    }
    grid
}

/// What the ways of waiting cost.
fn waiting(rows: &[WaitingRow]) -> Grid {
    let ways = rows.first().map_or(&[][..], |row| &row.ways).iter().map(|(name, _)| name.clone());
    let heading = [String::from("load")].into_iter().chain(ways);
    let mut grid: Grid =
        vec![heading.chain(strings(&["polled floor", "default's goals"])).collect()];
    let cell =
        |m: &Measure| format!("{:.1} / {}", m.latency_us_mean, optional(m.cpu_us_per_io(), 2));
    for row in rows {
        let goals = row.goals().map(|(what, Most { value, bound })| {
            format!("{value:.2} of the {what} (<= {bound}) {}", verdict(value <= bound))
        });
        let goals = goals.collect::<Vec<_>>().join(", ");
        let mut line = vec![row.title.clone()];
        line.extend(row.ways.iter().map(|(_, way)| show(way.as_ref(), cell)));
        line.push(show(row.polled_floor.as_ref(), cell));
        line.push(row.error.clone().unwrap_or(goals));
        grid.push(line);
    }
    grid
}

fn checks(checks: &[Check]) -> Grid {
    let mut grid = vec![strings(&["figure", "measured", "goal", ""])];
    for check in checks {
        let value = check.value.map(|v| format!("{v:.2} {}", check.unit));
        let value = value.or_else(|| check.error.clone()).unwrap_or_default();
        let bound = format!("at most {} {}", check.bound, check.unit);
        grid.push(vec![check.title.clone(), value, bound, verdict(check.pass).into()]);
    }
    grid
}

fn label(row: &RowResult) -> String {
    match &row.error {
        Some(error) => format!("{} ({error})", row.title),
        None => row.title.clone(),
    }
}

fn goals(row: &RowResult) -> String {
    if let Some(error) = &row.error {
        return format!("MISS: {error}");
    }
    if row.product.is_none() {
        return "not run".into();
    }
    let each = row.goals.iter().map(|g| {
        let (name, sign) = match g.goal.metric {
            Metric::Iops => ("IOPS", ">="),
            Metric::Bandwidth => ("bandwidth", ">="),
            Metric::Cpu => ("CPU", "<="),
            Metric::Latency => ("latency", "<="),
        };
        format!("{name} {sign} {:.2} {}", g.goal.bound, verdict(g.pass))
    });
    each.collect::<Vec<_>>().join(", ")
}

fn verdict(pass: bool) -> &'static str {
    if pass { "PASS" } else { "MISS" }
}

fn headline(group: Group, m: &Measure) -> String {
    match group {
        Group::Throughput => format!("{:.0}", m.iops / 1e3),
        Group::Bandwidth => format!("{:.2}", m.bytes_per_second / 1e9),
        _ => format!("{:.1}", m.latency_us_mean),
    }
}

fn cpu(m: &Measure) -> String {
    match (m.host_cpu_us_per_io, m.target_cpu_us_per_io) {
        (Some(host), Some(target)) => format!("{:.2} = {host:.2} + {target:.2}", host + target),
        (host, target) => pair(host, target, 2),
    }
}

fn show(measure: Option<&Measure>, f: impl Fn(&Measure) -> String) -> String {
    measure.map_or_else(|| "-".into(), f)
}
