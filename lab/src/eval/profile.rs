//! Where CPU time goes: `perf record` of both cores while the product runs, each sample counted by
//! the innermost frame whose kind is known.

use super::plan::{CpuPart, EvalPoint, EvalSide};
use super::result::ProfileResult;
use crate::command;
use crate::measure::median;
use crate::product::{self, LoadTiming};
use anyhow::{Context, bail, ensure};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Loading, which covers what starting takes: samples are taken when it is surely over.
const TIMING: LoadTiming =
    LoadTiming { mib: super::MIB, seconds: 1.0, ramp_seconds: 1.2, rate: None };
/// When sampling begins, after the program's start.
const DELAY_MS: u32 = 1000;
const SAMPLES_PER_SECOND: u32 = 1999;
/// Host and target.
const CORES: f64 = 2.0;
const SYMBOLS_SHOWN: usize = 8;
/// Longest time of a run of perf.
const LIMIT: Duration = Duration::from_secs(60);

/// Kernel functions by the beginnings of their names. Innermost first decides, so the generic ones
/// that everything calls (locks, allocation, copies) are in no list: their caller counts.
const IDLE: &str = "default_idle pv_native_safe_halt native_safe_halt do_idle cpuidle_ mwait_idle intel_idle \
    acpi_idle arch_cpu_idle";
const SWITCH: &str = "schedule __schedule finish_task_switch try_to_wake_up ttwu_ enqueue_task dequeue_task \
    pick_next_task pick_task select_task_rq __switch_to wake_up __wake_up default_wake_function \
    autoremove_wake_function futex_ do_futex prepare_to_wait finish_wait hrtimer_start \
    hrtimer_try_to_cancel hrtimer_cancel io_cqring_wait exit_to_user_mode_loop sched_ \
    update_curr asm_sysvec_reschedule asm_sysvec_call_function flush_smp_call_function \
    psi_task_switch update_rq_clock";
const NETWORK: &str = "tcp_ __tcp_ ip_ __ip_ ipv4_ inet_ __inet_ inet6_ sock_ __sock_ sk_ __sk_ skb_ __skb_ \
    __alloc_skb alloc_skb kfree_skb __kfree_skb consume_skb napi_ __napi_ net_rx_action \
    net_tx_action netif_ __netif_ dev_ __dev_ loopback_ process_backlog release_sock lock_sock \
    ___sys_sendmsg __sys_send __sys_recv ___sys_recvmsg __x64_sys_send __x64_sys_recv io_send \
    io_recv bbr_ cubictcp_ bictcp_ nf_ eth_ qdisc_ fib_ rt_ dst_ enqueue_to_backlog \
    simple_copy_to_iter security_socket_ __local_bh_enable_ip validate_xmit";

/// Why profiles cannot be taken here, if so.
pub(super) fn unavailable() -> Option<String> {
    let file = scratch();
    let outcome = command::run(record(&file, 0).arg("true"), LIMIT);
    let _ = std::fs::remove_file(&file);
    outcome.err().map(|e| format!("perf record is not possible here: {e:#}"))
}

/// Profiles a point `rounds` times.
pub(super) fn take(program: &Path, point: &EvalPoint, rounds: usize) -> ProfileResult {
    let mut profiles = Vec::new();
    let mut error = None;
    for _ in 0..rounds {
        match once(program, point) {
            Ok(profile) => profiles.push(profile),
            Err(e) => error = Some(format!("{e:#}")),
        }
    }
    let part = |part: CpuPart| {
        let values = profiles.iter().map(|p| p.ns_per_io(part));
        Some((part.name().to_owned(), median(values)?))
    };
    ProfileResult {
        load: point.load.to_string(),
        side: point.side.to_string(),
        error,
        ns_per_io: CpuPart::ALL.into_iter().filter_map(part).collect(),
        samples: profiles.iter().map(|p| p.samples.total()).sum(),
        other_symbols: profiles.last().map(|p| p.samples.unknown()).unwrap_or_default(),
    }
}

/// One profile.
struct Profile {
    samples: Samples,
    iops: f64,
}

impl Profile {
    fn ns_per_io(&self, part: CpuPart) -> f64 {
        let share = self.samples.count(part) as f64 / self.samples.total().max(1) as f64;
        share * CORES * 1e9 / self.iops.max(1.0)
    }
}

fn once(program: &Path, point: &EvalPoint) -> anyhow::Result<Profile> {
    let EvalSide::Product(setup) = point.side else { bail!("only the product is profiled") };
    let file = scratch();
    let arguments = product::arguments(&point.load, &setup, &TIMING);
    let outcome = command::run(record(&file, DELAY_MS).arg(program).args(arguments), LIMIT)
        .and_then(|printed| Ok((product::measure(printed.as_bytes())?, script(&file)?)));
    let _ = std::fs::remove_file(&file);
    let (measure, text) = outcome?;
    let samples = Samples::read(&text);
    ensure!(samples.total() > 100, "only {} samples", samples.total());
    ensure!(!samples.lacks_symbols(), "no kernel symbols: kernel.kptr_restrict or no permission");
    Ok(Profile { samples, iops: measure.iops })
}

fn scratch() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("roadtrain-lab-{}.perf", std::process::id()))
}

fn record(file: &Path, delay_ms: u32) -> Command {
    let mut command = Command::new("perf");
    command.args(["record", "--quiet", "--event", "cpu-clock", "--call-graph", "fp"]);
    command.args(["--cpu", "0,1", "--freq", &SAMPLES_PER_SECOND.to_string()]);
    if delay_ms > 0 {
        command.args(["--delay", &delay_ms.to_string()]);
    }
    command.arg("--output").arg(file).arg("--");
    command
}

fn script(file: &Path) -> anyhow::Result<String> {
    let mut command = Command::new("perf");
    command.args(["script", "--fields", "comm,pid,cpu,ip,sym,dso", "--input"]).arg(file);
    command::run(&mut command, LIMIT).context("perf script")
}

/// Samples by part; those of other programs are left out.
#[derive(Debug, Default)]
struct Samples {
    parts: BTreeMap<CpuPart, u64>,
    /// Innermost symbols of what was counted as other.
    others: HashMap<String, u64>,
    unresolved: u64,
}

impl Samples {
    /// Reads what `perf script` prints: a line for each sample, an indented one for each frame,
    /// innermost first, and an empty line.
    fn read(text: &str) -> Self {
        let mut samples = Self::default();
        for sample in text.split("\n\n") {
            let mut lines = sample.lines().skip_while(|line| line.trim().is_empty());
            let Some(heading) = lines.next() else { continue };
            let frames: Vec<StackFrame> = lines.filter_map(StackFrame::parse).collect();
            if is_ours(heading, &frames) {
                samples.add(&frames);
            }
        }
        samples
    }

    fn add(&mut self, frames: &[StackFrame]) {
        let part = part(frames);
        *self.parts.entry(part).or_default() += 1;
        if let (CpuPart::Other, Some(first)) = (part, frames.first()) {
            *self.others.entry(first.symbol.to_owned()).or_default() += 1;
            self.unresolved += u64::from(first.is_kernel && first.symbol == "[unknown]");
        }
    }

    fn count(&self, part: CpuPart) -> u64 {
        self.parts.get(&part).copied().unwrap_or(0)
    }

    fn total(&self) -> u64 {
        self.parts.values().sum()
    }

    fn lacks_symbols(&self) -> bool {
        self.unresolved * 5 > self.total()
    }

    /// The commonest innermost symbols that were counted as other.
    fn unknown(&self) -> Vec<(String, u64)> {
        let mut symbols: Vec<(String, u64)> =
            self.others.iter().map(|(symbol, &count)| (symbol.clone(), count)).collect();
        symbols.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        symbols.truncate(SYMBOLS_SHOWN);
        symbols
    }
}

/// A frame of a sample's stack.
#[derive(Debug, PartialEq, Eq)]
struct StackFrame<'a> {
    symbol: &'a str,
    is_kernel: bool,
    module: &'a str,
}

impl<'a> StackFrame<'a> {
    /// `ffffffff81a2b3c4 tcp_sendmsg+0x1c ([kernel.kallsyms])`
    fn parse(line: &'a str) -> Option<Self> {
        let (_, rest) = line.trim().split_once(' ')?;
        let (symbol, module) = rest.rsplit_once(" (")?;
        let symbol = symbol.split_once("+0x").map_or(symbol, |(name, _)| name);
        let module = module.trim_end_matches(')');
        let is_kernel = module.starts_with("[kernel") || module.ends_with(".ko");
        Some(Self { symbol, is_kernel, module })
    }
}

/// True for samples of the product, and of the kernel's own: idle, interrupts, kernel threads.
fn is_ours(heading: &str, frames: &[StackFrame]) -> bool {
    let comm = heading.trim_start();
    let ours = ["rt-", "roadtrain", "swapper", "ksoftirqd", "kworker", "rcu_", "migration"];
    ours.iter().any(|name| comm.starts_with(name))
        || frames.iter().any(|frame| frame.module.contains("roadtrain"))
}

/// The part that a sample belongs to.
fn part(frames: &[StackFrame]) -> CpuPart {
    match frames.first() {
        Some(first) if !first.is_kernel => user_part(first),
        _ => {
            let kernel = frames.iter().take_while(|frame| frame.is_kernel);
            kernel.filter_map(|frame| kernel_part(frame.symbol)).next().unwrap_or(CpuPart::Other)
        }
    }
}

/// The load generator lives in the command line's crate; all else in user space is the storage path.
fn user_part(frame: &StackFrame) -> CpuPart {
    let generator = ["roadtrain_cli", "hdrhistogram"];
    match generator.iter().any(|name| frame.symbol.contains(name)) {
        true => CpuPart::Application,
        false => CpuPart::Block,
    }
}

fn kernel_part(symbol: &str) -> Option<CpuPart> {
    [(CpuPart::Idle, IDLE), (CpuPart::Switch, SWITCH), (CpuPart::Network, NETWORK)]
        .into_iter()
        .find(|(_, names)| names.split(' ').any(|name| symbol.starts_with(name)))
        .map(|(part, _)| part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
roadtrain   101 [000] \n\
\tffffffff81000001 rep_movs_alternative+0x4 ([kernel.kallsyms])\n\
\tffffffff81000002 _copy_to_iter+0x1f ([kernel.kallsyms])\n\
\tffffffff81000003 tcp_recvmsg+0x8 ([kernel.kallsyms])\n\
\tffffffff81000004 entry_SYSCALL_64_after_hwframe+0x4b ([kernel.kallsyms])\n\
\t    7f0000000001 recv+0x1 (/usr/lib/libc.so.6)\n\
\n\
roadtrain   101 [000] \n\
\t    560000000001 roadtrain_cli::bench::lane::Lane::turn+0x11 (/tmp/roadtrain)\n\
\n\
roadtrain   102 [001] \n\
\t    560000000002 roadtrain_target_proto::qpair::Qpair::parse+0x11 (/tmp/roadtrain)\n\
\n\
roadtrain   102 [001] \n\
\tffffffff81000005 update_load_avg+0x4 ([kernel.kallsyms])\n\
\tffffffff81000006 dequeue_task_fair+0x4 ([kernel.kallsyms])\n\
\tffffffff81000007 __schedule+0x4 ([kernel.kallsyms])\n\
\n\
roadtrain   102 [001] \n\
\tffffffff81000008 entry_SYSCALL_64+0x4 ([kernel.kallsyms])\n\
\n\
swapper       0 [001] \n\
\tffffffff81000009 pv_native_safe_halt+0xf ([kernel.kallsyms])\n\
\tffffffff8100000a do_idle+0xf ([kernel.kallsyms])\n\
\n\
rustc       900 [001] \n\
\t    560000000003 llvm::run+0x11 (/usr/lib/librustc.so)\n";

    #[test]
    fn samples_are_counted_by_the_innermost_known_frame() {
        let samples = Samples::read(TEXT);
        for part in CpuPart::ALL {
            assert_eq!(samples.count(part), 1, "{part:?}");
        }
        assert_eq!(samples.total(), 6, "the compiler's is not ours");
        assert_eq!(samples.unknown(), [("entry_SYSCALL_64".to_owned(), 1)]);
        assert!(!samples.lacks_symbols());
    }

    #[test]
    fn cpu_time_is_shared_by_requests() {
        let profile = Profile { samples: Samples::read(TEXT), iops: 1e6 };
        let all: f64 = CpuPart::ALL.into_iter().map(|part| profile.ns_per_io(part)).sum();
        assert!((all - 2000.0).abs() < 1e-6, "two cores for a million a second: {all}");
    }

    #[test]
    fn absent_symbols_are_noticed() {
        let text = "roadtrain 1 [000] \n\tffffffff81000001 [unknown] ([kernel.kallsyms])\n\n";
        assert!(Samples::read(text).lacks_symbols());
    }
}
