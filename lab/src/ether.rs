//! Checks of the Ethernet transport: each figure is measured over links between two
//! network namespaces, host on core 0, target on core 1.

mod against;
mod cost;
mod fair;
mod rates;
mod trouble;

use crate::checks::{self, ChecksReport, Set};
use crate::measure::{Measure, median};
use crate::product::LoadTiming;
use crate::runs;
use crate::wired::{Wired, WiredContestant};
use crate::workload::{LabLoad, ProductSetup, ProductTransport};
use anyhow::Context;
use std::path::{Path, PathBuf};

/// Checks the bars.
#[derive(Debug, clap::Args)]
pub(crate) struct EtherChecksArgs {
    #[command(flatten)]
    checks: checks::ChecksArgs,
    /// The program that sends hostile frames
    #[arg(long, default_value = "target/release/roadtrain-exercise")]
    exercise: PathBuf,
}

/// The product over frames, as it comes.
const ETHER: ProductSetup =
    ProductSetup { over: ProductTransport::Ether, ..ProductSetup::new("auto") };
/// The same policy over TCP.
const TCP: ProductSetup = ProductSetup::new("auto");

/// Runs the checks, or hands them over.
fn with_checks<T>(exercise: &Path, then: impl FnOnce(&[checks::CheckEntry<'_>]) -> T) -> T {
    let hostile = |bench: &checks::CheckBench| trouble::hostile(bench, exercise);
    then(&[
        ("use", "how full a link of 1 Gbit/s is", &rates::link_use),
        ("links", "1 to 6 links of 1 Gbit/s", &rates::links),
        ("floor", "beside frames without a protocol", &against::floor),
        ("tcp", "beside NVMe/TCP over the same link", &against::tcp),
        ("loss", "with 1 % of the frames lost", &trouble::loss),
        ("heavy", "errors with very many frames lost", &trouble::heavy_loss),
        ("cut", "errors while a link of two is cut and restored", &trouble::cut),
        ("fair", "beside a TCP stream on the same link", &fair::beside_stream),
        ("hostile", "errors, and memory, beside a hostile peer", &hostile),
        ("cost", "what a 4 KiB request costs, by component", &cost::components),
    ])
}

/// Measures or reads what was measured; prints.
pub(crate) fn main(args: &EtherChecksArgs) -> anyhow::Result<()> {
    with_checks(&args.exercise, |checks| {
        let set = Set { name: "ether", rounds: 3, seconds: 1.0, needs_links: true, checks };
        checks::main(&args.checks, &set)
    })
}

/// The section of the page for users.
pub(crate) fn short_of(json: &str) -> anyhow::Result<String> {
    let report = ChecksReport::parse(json)?;
    let page = with_checks(Path::new(""), |checks| {
        report.short(|wanted| {
            checks.iter().find(|(name, ..)| *name == wanted).map_or("", |(_, about, _)| *about)
        })
    });
    Ok(page.markdown())
}

/// The section of the journal.
pub(crate) fn page_of(json: &str) -> anyhow::Result<String> {
    Ok(ChecksReport::parse(json)?.page().markdown())
}

/// So much memory for the target.
fn timing(bench: &checks::CheckBench) -> LoadTiming {
    LoadTiming { mib: 64, seconds: bench.seconds, ramp_seconds: 0.3, rate: None }
}

/// Measures contestants in turns; the figures of each round, in the contestants' order.
fn rounds(
    bench: &checks::CheckBench,
    wired: &Wired,
    load: &LabLoad,
    contestants: &[WiredContestant],
) -> anyhow::Result<Vec<Vec<Measure>>> {
    runs::rounds(bench.rounds, contestants, |contestant| {
        wired.measure(load, *contestant, &timing(bench)).with_context(|| load.to_string())
    })
}

fn middle(values: impl Iterator<Item = f64>) -> anyhow::Result<f64> {
    median(values).context("nothing was measured")
}

fn direction(reads_percent: u8) -> &'static str {
    if reads_percent == 100 { "reads" } else { "writes" }
}
