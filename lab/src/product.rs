//! Runs `roadtrain bench`, which measures both ends in one command, and reads its JSON.

use crate::command;
use crate::measure::{Measure, SecondLoadMeasure, fairness};
use crate::workload::{
    self, LabLoad, LoadWaiting, ProductSetup, ProductTransport, SendMode, Sharing,
};
use anyhow::{Context, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The subsystem of a target that is started for a run.
const NQN: &str = "nqn.2026-11.io.roadtrain:bench";
/// A run that has not ended by then is ended.
const RUN_TIME_MAX: Duration = Duration::from_secs(60);

/// Received data of a lane over frames: as much as a target gives one at most.
const LANE_MIB: usize = 16;

/// On how much data to work, how long to load and to measure, and how fast in an open loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadTiming {
    pub(crate) mib: usize,
    pub(crate) seconds: f64,
    pub(crate) ramp_seconds: f64,
    /// Requests a second; a closed loop without.
    pub(crate) rate: Option<f64>,
}

/// Arguments of `roadtrain` for one run with a target of its own.
pub(crate) fn arguments(load: &LabLoad, setup: &ProductSetup, timing: &LoadTiming) -> Vec<String> {
    let own = format!(
        "--namespace {} --target-cores 1 --target-policy {}",
        load.store.namespace(timing.mib),
        setup.policy,
    );
    words(&format!("bench {} {own} {}", host(load, setup, timing), both(setup)))
}

/// The same for a run against a target that `serve` has started, at an address or interfaces.
pub(crate) fn against(
    load: &LabLoad,
    setup: &ProductSetup,
    timing: &LoadTiming,
    at: &str,
) -> Vec<String> {
    let at = format!("-t {} -a {at} -n {NQN}", setup.over.transport());
    words(&format!("bench {at} {} {}", host(load, setup, timing), both(setup)))
}

/// Arguments of a run that writes all of that target's memory.
pub(crate) fn fill(setup: &ProductSetup, timing: &LoadTiming, at: &str) -> Vec<String> {
    let (over, bs) = (setup.over.transport(), 128 << 10);
    let ios = (timing.mib << 20) / bs;
    words(&format!(
        "bench -t {over} -a {at} -n {NQN} --rw write --bs {bs} --depth 8 --lanes 1 --ios {ios}"
    ))
}

/// Arguments of that target.
pub(crate) fn serve(
    load: &LabLoad,
    setup: &ProductSetup,
    timing: &LoadTiming,
    at: &str,
) -> Vec<String> {
    let cores = (0..setup.reactors).map(|n| (1 - n % 2).to_string()).collect::<Vec<_>>().join(",");
    words(&format!(
        "serve -t {} -a {at} -n {NQN} --namespace {} --cores {cores} --policy {} {} {}",
        setup.over.transport(),
        load.store.namespace(timing.mib),
        setup.policy,
        both(setup),
        buffers(load, setup),
    ))
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The load, and what only the host has.
fn host(load: &LabLoad, setup: &ProductSetup, timing: &LoadTiming) -> String {
    let mut text = match load.direction() {
        Some(direction) => format!("--rw {}", workload::direction(direction)),
        None => format!("--rw randrw --rwmixread {}", load.reads_percent),
    };
    text += &format!(
        " --bs {} {} --cores 0 --seconds {}",
        load.bs,
        flights(load, setup),
        timing.seconds,
    );
    let mut add = |option: &str, value: Option<String>| {
        if let Some(value) = value {
            text += &format!(" --{option} {value}");
        }
    };
    add("ramp", Some(timing.ramp_seconds).filter(|&s| s > 0.0).map(|s| s.to_string()));
    add("rate", timing.rate.map(|rate| format!("{rate:.0}")));
    add("class", load.class.map(|class| class.name().to_owned()));
    add("stream", load.second_load.map(|stream| stream.option()));
    text + &format!(" --policy {} --json", setup.policy)
}

/// Options of both ends.
pub(crate) fn both(setup: &ProductSetup) -> String {
    let mut text = String::new();
    let mut add = |option: &str, value: Option<usize>| {
        if let Some(value) = value {
            text += &format!("--{option} {value} ");
        }
    };
    add("caravan-requests", setup.caravan_requests);
    add("caravan-bytes", setup.caravan_bytes);
    add("doorbell-delay-us", setup.doorbell_delay_us);
    add("batch-level", setup.batch_level);
    add("batch-interval-ms", setup.batch_interval_ms);
    match setup.waiting {
        LoadWaiting::Default => {}
        LoadWaiting::Sleep => text += "--no-spin ",
        LoadWaiting::SpinUs(us) => text += &format!("--spin-us {us} "),
        LoadWaiting::BusyPoll => text += "--busy-poll ",
    }
    text += match setup.sharing {
        Sharing::All => "",
        Sharing::NoData => "--no-data-batching ",
        Sharing::Nothing => "--no-data-batching --no-request-batching ",
    };
    text
}

/// Memory for what a target receives: over frames every lane has its part of it.
fn buffers(load: &LabLoad, setup: &ProductSetup) -> String {
    const LANES_OF_DEFAULT: usize = 8;
    let lanes = match setup.mode {
        SendMode::Inline => load.threads.unwrap_or(load.lanes),
        SendMode::Queue => load.lanes,
    };
    let is_short = setup.over != ProductTransport::Tcp && lanes > LANES_OF_DEFAULT;
    if is_short { format!("--buffers {}MiB", LANE_MIB * lanes) } else { String::new() }
}

/// Where requests come from and how many are in flight, as options.
fn flights(load: &LabLoad, setup: &ProductSetup) -> String {
    let (lanes, depth) = (load.lanes, (load.depth / load.lanes).max(1));
    match (load.threads, setup.mode) {
        (Some(threads), SendMode::Inline) => format!("--threads {threads}"),
        (Some(threads), SendMode::Queue) => {
            format!("--threads {threads} --mode queue --lanes {lanes}")
        }
        (None, _) if load.steps => {
            let period_ms = workload::STEP_PERIOD_MS;
            format!("--step depth=1:{depth},period-ms={period_ms} --lanes {lanes}")
        }
        (None, _) => format!("--depth {depth} --lanes {lanes}"),
    }
}

/// Runs it once.
pub(crate) fn run(program: &Path, arguments: &[String]) -> anyhow::Result<Measure> {
    measure(command::run(Command::new(program).args(arguments), RUN_TIME_MAX)?.as_bytes())
}

/// Reads the JSON object. Throughput, latency and errors must be there.
pub(crate) fn measure(stdout: &[u8]) -> anyhow::Result<Measure> {
    let json: Value = serde_json::from_slice(stdout).context("JSON of roadtrain bench")?;
    let number = |path: &str| json.pointer(path).and_then(Value::as_f64);
    let need = |path: &str| number(path).with_context(|| format!("no {path} in the JSON"));
    if need("/errors")? > 0.0 {
        bail!("{} errors", need("/errors")?);
    }
    let iops = need("/iops")?;
    // CPU time and I/Os must cover the same time: the measured one.
    let requests = number("/requests_total").or_else(|| number("/requests"));
    let ios = requests.or_else(|| Some(iops * number("/seconds")?));
    let per_io = |path: &str| Some(number(path)? * 1e6 / ios?.max(1.0));
    let lanes = json["lanes"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(Measure {
        iops,
        bytes_per_second: need("/bytes_per_second")?,
        latency_us_mean: need("/latency/mean_us")?,
        latency_us_p50: need("/latency/p50_us")?,
        latency_us_p99: need("/latency/p99_us")?,
        host_cpu_us_per_io: per_io("/host_cpu_seconds"),
        target_cpu_us_per_io: per_io("/target_cpu_seconds"),
        requests_per_caravan: number("/requests_per_caravan"),
        target_requests_per_caravan: number("/target_requests_per_caravan"),
        bytes_per_send: number("/bytes_per_send"),
        target_bytes_per_send: number("/target_bytes_per_send"),
        syscalls_per_io: number("/syscalls_per_io"),
        context_switches_per_io: number("/context_switches_per_io"),
        host_wake_ups_per_io: number("/host/voluntary_switches_per_io"),
        settle_ms: number("/step/settle_ms"),
        fairness: fairness(lanes.iter().filter_map(|lane| lane["iops"].as_f64())),
        beside: number("/streams/0/iops").map(|iops| SecondLoadMeasure {
            iops,
            bytes_per_second: number("/streams/0/bytes_per_second").unwrap_or_default(),
            latency_us_mean: number("/streams/0/latency/mean_us").unwrap_or_default(),
            latency_us_p99: number("/streams/0/latency/p99_us").unwrap_or_default(),
        }),
        ..Measure::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::DataDirection;
    use crate::workload::{LoadLinks, LoadStore, SecondLoad, StreamClass};
    use serde_json::json;

    const CLOSED: LoadTiming =
        LoadTiming { mib: 1024, seconds: 1.0, ramp_seconds: 0.0, rate: None };

    fn output() -> Value {
        json!({
            "iops": 1000.0, "bytes_per_second": 4096000.0, "seconds": 2.0, "errors": 0,
            "latency": { "mean_us": 10.0, "p50_us": 9.0, "p99_us": 20.0, "p999_us": 30.0 },
            "host_cpu_seconds": 0.5, "target_cpu_seconds": 1.0,
            "requests_per_caravan": 16.0, "sends_per_io": 0.0625,
        })
    }

    fn read(json: &Value) -> anyhow::Result<Measure> {
        measure(json.to_string().as_bytes())
    }

    #[test]
    fn the_contract_is_read() {
        let m = read(&output()).expect("complete");
        assert_eq!(m.iops, 1000.0);
        assert_eq!(m.host_cpu_us_per_io, Some(250.0));
        assert_eq!(m.cpu_us_per_io(), Some(750.0));
        assert_eq!(m.bytes_per_send, None);
        assert!(m.beside.is_none());
    }

    #[test]
    fn a_second_stream_is_read_and_shares_the_cost() {
        let mut json = output();
        json["requests_total"] = json!(4000);
        json["streams"] = json!([{ "iops": 1000.0, "bytes_per_second": 131072000.0,
                                   "latency": { "mean_us": 5.0, "p99_us": 7.0 } }]);
        let m = read(&json).expect("complete");
        assert_eq!(m.cpu_us_per_io(), Some(375.0));
        assert_eq!(m.beside.as_ref().expect("there is one").latency_us_p99, 7.0);
        assert_eq!(m.bytes_per_second_total(), 4096000.0 + 131072000.0);
    }

    #[test]
    fn errors_and_absent_figures_are_refused() {
        let mut with_errors = output();
        with_errors["errors"] = json!(1);
        assert!(read(&with_errors).is_err());
        let mut without = output();
        without.as_object_mut().expect("an object").remove("iops");
        assert!(read(&without).is_err());
    }

    #[test]
    fn depth_is_shared_by_the_lanes() {
        let load = LabLoad { lanes: 4, ..LabLoad::small(100, 128) };
        let line = arguments(&load, &ProductSetup::new("i10"), &CLOSED).join(" ");
        assert!(line.contains("--depth 32 --lanes 4"), "{line}");
        assert!(!line.contains("caravan"), "{line}");
    }

    #[test]
    fn a_load_that_steps_says_so_and_is_read() {
        let load = LabLoad { steps: true, ..LabLoad::small(100, 128) };
        let line = arguments(&load, &ProductSetup::new("auto"), &CLOSED).join(" ");
        assert!(line.contains("--step depth=1:128,period-ms=100"), "{line}");
        assert!(!line.contains("--depth"), "{line}");
        assert_eq!(load.to_string(), "mem: 4 KiB reads, depth 1 to 128");
        let mut json = output();
        json["step"] = json!({ "settle_ms": 2.5 });
        assert_eq!(read(&json).expect("complete").settle_ms, Some(2.5));
    }

    #[test]
    fn threads_have_no_depth() {
        let load = LabLoad::of_threads(100, 512 << 10, 16);
        let line = |setup: &ProductSetup| arguments(&load, setup, &CLOSED).join(" ");
        let inline = line(&ProductSetup::new("auto"));
        assert!(inline.contains("--bs 524288 --threads 16 --cores 0"), "{inline}");
        let queue = line(&ProductSetup { mode: SendMode::Queue, ..ProductSetup::new("auto") });
        assert!(queue.contains("--threads 16 --mode queue --lanes 1 --cores 0"), "{queue}");
    }

    #[test]
    fn everything_is_passed_on() {
        let bulk = SecondLoad {
            rw: DataDirection::Write,
            bs: 4096,
            depth: 8,
            class: None,
            own_lane: false,
        };
        let load = LabLoad { class: Some(StreamClass::Latency), ..LabLoad::small(70, 1) };
        let load = load.on(LoadStore::Ssd).with_second_load(bulk);
        let setup = ProductSetup { batch_level: Some(4), ..ProductSetup::new("tyche") };
        let timing = LoadTiming { mib: 1024, rate: Some(1234.4), ramp_seconds: 0.2, seconds: 0.5 };
        assert_eq!(
            arguments(&load, &setup, &timing).join(" "),
            "bench --rw randrw --rwmixread 70 --bs 4096 --depth 1 --lanes 1 --cores 0 \
             --seconds 0.5 --ramp 0.2 --rate 1234 --class latency \
             --stream rw=randwrite,bs=4096,depth=8,lane=shared --policy tyche --json \
             --namespace ssd:1024MiB,service-us=100,parallel=64 --target-cores 1 \
             --target-policy tyche --batch-level 4 --no-spin"
        );
        let i10 = ProductSetup {
            doorbell_delay_us: Some(9),
            ..ProductSetup::new("i10").limited(16, 65536)
        };
        let i10 = arguments(&load, &i10, &timing).join(" ");
        let options = "--caravan-requests 16 --caravan-bytes 65536 --doorbell-delay-us 9 --no-spin";
        assert!(i10.ends_with(options), "{i10}");
    }

    #[test]
    fn a_target_in_a_namespace_gets_the_same_options() {
        let load = LabLoad::small(100, 8).over(LoadLinks::gigabit(2));
        let setup = ProductSetup {
            over: ProductTransport::Ether,
            sharing: Sharing::NoData,
            ..ProductSetup::new("auto")
        };
        assert_eq!(
            serve(&load, &setup, &CLOSED, "lan0,lan1").join(" "),
            "serve -t ether -a lan0,lan1 -n nqn.2026-11.io.roadtrain:bench --namespace \
             mem:1024MiB --cores 1 --policy auto --no-spin --no-data-batching"
        );
        assert_eq!(
            against(&load, &setup, &CLOSED, "lan0,lan1").join(" "),
            "bench -t ether -a lan0,lan1 -n nqn.2026-11.io.roadtrain:bench --rw randread --bs 4096 \
             --depth 8 --lanes 1 --cores 0 --seconds 1 --policy auto --json --no-spin \
             --no-data-batching"
        );
    }

    #[test]
    fn many_lanes_over_frames_get_memory_for_each() {
        let setup = ProductSetup { over: ProductTransport::Ether, ..ProductSetup::new("auto") };
        let line =
            |load: LabLoad, setup: &ProductSetup| serve(&load, setup, &CLOSED, "lan0").join(" ");
        let many = LabLoad::of_threads(0, 512 << 10, 64);
        assert!(line(many, &setup).ends_with("--buffers 1024MiB"));
        assert!(!line(LabLoad::of_threads(0, 512 << 10, 4), &setup).contains("--buffers"));
        let queue = ProductSetup { mode: SendMode::Queue, ..setup };
        assert!(!line(many, &queue).contains("--buffers"));
        assert!(!line(many, &ProductSetup::new("auto")).contains("--buffers"));
    }
}
