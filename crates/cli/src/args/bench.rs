//! `roadtrain bench`

use super::stream::{LaneChoice, ReadWrite, StepSpec, StreamSpec, parse_rate};
use super::{
    ClassName, ConnectArgs, EtherArgs, LaneArgs, NO_HEADING, PolicyArgs, PolicyName, Portals,
    SlowOverName, TransportName, WaitArgs,
};
use crate::namespace::NamespaceSettings;
use crate::units::{CoreList, parse_cores, parse_seconds, parse_size, parse_size_u32};
use clap::{Args, ValueEnum};
use std::time::Duration;

/// Measuring time without `--seconds` and `--ios`.
const SECONDS: Duration = Duration::from_secs(5);

const EXAMPLES: &str = concat!(
    "\
Without -a it starts a target of its own on loopback and reports that one's CPU time as well.
Writing destroys what the namespace holds.

A --stream is a load beside the main one, as one word:
  rw=WHAT, bs=SIZE, depth=N, rwmixread=PERCENT, rate=N   as the options of the main load
  class=latency|normal|bulk                              as --class
  lane=shared|own                                        over the main load's lanes, or one more
                                                         connection on each core used
IOPS, bandwidth and latency are the main load's, and each stream's own; all else covers
everything.

With --threads the load comes from so many threads, one request each at a time, on --cores in turn.
In inline mode each has a lane of its own and drives it itself: it sends, and sleeps on its
connection. In queue mode they hand requests over to the lanes' reactors (--lanes, on the same
--cores) and sleep until these hand the answers back. Without --threads the load runs on the lanes'
reactors.

With --step the main load's depth changes between two values, each for half a period; the report
says how soon the IOPS follow.

With --verify every block written carries its number, a generation and the seed; reads check them,
and what was written is read back at the end. A read-only run checks what an earlier `--rw write
--verify` of the same region has written.

Exit status: 1 when any request failed or any block was wrong, 3 when no connection could be made.

Examples:
  roadtrain bench --rw randread --bs 4k --depth 128 --seconds 5
  roadtrain bench -a 127.0.0.1 -n nqn.2025-01.io.example:disk --rw randwrite --bs 4k --depth 128 \\
      --lanes 1 --cores 0 --seconds 5 --policy i10 --json
  roadtrain bench --rw randrw --rwmixread 70 --rate 100k --cores 0 --target-cores 1
  roadtrain bench --rw randread --depth 1 --class latency \\
      --stream rw=randwrite,bs=128k,depth=128,class=bulk,lane=own
  roadtrain bench --mode queue --threads 16 --cores 0 --target-cores 1 --rw randread --bs 512k
  roadtrain bench --namespace ssd:1GiB,service-us=100,parallel=64 --step depth=1:128,period-ms=200
  roadtrain bench -a 192.0.2.7 -n nqn.2025-01.io.example:disk --rw write --bs 128k --size 1GiB \\
      --verify",
    ether!(
        "\n  roadtrain bench -t ether -a eth1,eth2 -n nqn.2025-01.io.example:disk --rw randread --depth 128"
    )
);

/// The thread that drives a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BenchMode {
    /// The thread whose requests they carry.
    #[default]
    Inline,
    /// Reactors, to which other threads hand requests over.
    Queue,
}

/// Options of `roadtrain bench`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// Transport.
    #[arg(short = 't', long, default_value = "tcp")]
    pub transport: TransportName,
    /// Transport address of the target.
    #[arg(short = 'a', long, value_name = "ADDRESS", requires = "nqn", help = concat!(
        "Transport address. IP address or name of the target, with :PORT or without; repeated, each is a path to the \
         same subsystem",
        ether!("; with -t ether interfaces that lead to it: IF[,IF..]"),
        " [default: start one here]"
    ))]
    pub traddr: Vec<String>,
    /// TCP port. That of addresses without one.
    #[arg(short = 's', long, value_name = "PORT", default_value_t = 4420)]
    pub trsvcid: u16,
    /// -a names discovery controllers: all that they know of the subsystem are its paths.
    #[arg(long, requires = "traddr")]
    pub discover: bool,
    /// Frame options.
    #[command(flatten)]
    pub ether: EtherArgs,
    /// NQN of the subsystem.
    #[arg(short = 'n', long, value_name = "NQN", alias = "subnqn", requires = "traddr",
          help_heading = NO_HEADING)]
    pub nqn: Option<String>,
    /// Namespace ID.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..), help_heading = NO_HEADING)]
    pub nsid: u32,
    /// The load.
    #[command(flatten)]
    pub load: LoadArgs,
    /// The target that the benchmark starts itself.
    #[command(flatten)]
    pub own: OwnTargetArgs,
    /// Lanes and cores.
    #[command(flatten)]
    pub lanes: LaneArgs,
    /// Batching policy.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Waiting (a target started here waits likewise).
    #[command(flatten)]
    pub wait: WaitArgs,
    /// The host's identity, keys and timeouts.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Record requests that take longer than this, for `roadtrain slow`: p99 (longer than 99 of 100 recent ones), a
    /// time, or off. A target started here does likewise.
    #[arg(long, value_name = "TIME", default_value = "p99", help_heading = NO_HEADING)]
    pub slow_over: SlowOverName,
}

impl BenchArgs {
    /// Returns the portals of the target; empty if none is named.
    #[must_use]
    pub fn portals(&self) -> Portals {
        let (transport, trsvcid, ether) = (self.transport, self.trsvcid, self.ether);
        Portals {
            transport,
            traddr: self.traddr.clone(),
            trsvcid,
            discover: self.discover,
            mdns: false,
            ether,
        }
    }
}

/// The load.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// Order and direction of the requests, as fio names them.
    #[arg(long, value_name = "WHAT", default_value = "randread")]
    pub rw: ReadWrite,
    /// Percentage of reads in randrw and rw.
    #[arg(long, value_name = "PERCENT", default_value_t = 50,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pub rwmixread: u8,
    /// Bytes of a request.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = parse_size_u32)]
    pub bs: u32,
    /// Requests in flight on each lane.
    #[arg(long, value_name = "N", default_value_t = 32, alias = "iodepth",
          value_parser = clap::value_parser!(u32).range(1..=1023))]
    pub depth: u32,
    /// Measuring time [default: 5, or without limit with --ios].
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub seconds: Option<Duration>,
    /// Threads that the load comes from, with one request each at a time [default: the load runs on the
    /// lanes' reactors].
    #[arg(long, value_name = "N", conflicts_with_all = ["depth", "step", "streams"],
          value_parser = clap::value_parser!(u32).range(1..=128))]
    pub threads: Option<u32>,
    /// Driver of the lanes: each thread has a lane of its own, or hands requests over to reactors.
    #[arg(long, value_name = "MODE", default_value = "inline", requires_if("queue", "threads"))]
    pub mode: BenchMode,
    /// End after so many requests (over all lanes).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ios: Option<u64>,
    /// Load for so long before measuring.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_seconds)]
    pub ramp: Duration,
    /// Requests a second over all lanes, at a fixed schedule; latency counts from the scheduled
    /// time [default: as many as --depth in flight allows].
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Importance of requests. Those of the main load.
    #[arg(long, value_name = "CLASS", default_value = "normal")]
    pub class: ClassName,
    /// A load beside this one, such as rw=randwrite,bs=128k,depth=8 (repeatable; see below).
    #[arg(long = "stream", value_name = "SPEC")]
    pub streams: Vec<StreamSpec>,
    /// Change the depth between two values, such as depth=1:128,period-ms=200.
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["depth", "rate", "ios"])]
    pub step: Option<StepSpec>,
    /// Check the data. With streams, the main load and each of them get an equal part of the region.
    #[arg(long)]
    pub verify: bool,
    /// Bytes of the namespace to use [default: all after --offset].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// First byte of the namespace to use.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub offset: u64,
    /// Seed of the addresses and of the data.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl LoadArgs {
    /// Returns the main load.
    #[must_use]
    pub fn main(&self) -> StreamSpec {
        StreamSpec {
            rw: self.rw,
            rwmixread: self.rwmixread,
            bs: self.bs,
            depth: match (self.threads, self.step) {
                (Some(_), _) => 1,
                (None, step) => step.map_or(self.depth, |step| step.high),
            },
            class: self.class,
            lane: LaneChoice::Shared,
            rate: self.rate,
        }
    }

    /// Returns the number of threads that hand requests over to reactors.
    #[must_use]
    pub fn queue_threads(&self) -> Option<u32> {
        self.threads.filter(|_| self.mode == BenchMode::Queue)
    }

    /// Returns the number of threads that drive a lane each.
    #[must_use]
    pub fn inline_threads(&self) -> Option<u32> {
        self.threads.filter(|_| self.mode == BenchMode::Inline)
    }

    /// Returns the main load and the streams.
    pub fn loads(&self) -> impl Iterator<Item = StreamSpec> {
        std::iter::once(self.main()).chain(self.streams.iter().copied())
    }

    /// Returns the measuring time; `--ios` may end it earlier.
    #[must_use]
    pub fn measured(&self) -> Duration {
        self.seconds.unwrap_or(SECONDS)
    }

    /// Counts the streams with connections of their own.
    #[must_use]
    pub fn own_lanes(&self) -> u32 {
        self.streams.iter().filter(|stream| stream.lane == LaneChoice::Own).count() as u32
    }

    /// Returns the most requests in flight on one lane.
    #[must_use]
    pub fn lane_depth(&self) -> u32 {
        let (own, shared): (Vec<_>, Vec<_>) =
            self.loads().partition(|load| load.lane == LaneChoice::Own);
        let own = own.iter().map(|load| load.depth).max().unwrap_or(0);
        shared.iter().map(|load| load.depth).sum::<u32>().max(own)
    }
}

/// The target that the benchmark starts itself without -a.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Own target (without -a)")]
pub struct OwnTargetArgs {
    /// Namespace, such as mem:1GiB or file:disk.img,size=2GiB (repeatable) [default: mem:1GiB].
    #[arg(long = "namespace", value_name = "SPEC", conflicts_with = "traddr")]
    pub namespaces: Vec<NamespaceSettings>,
    /// Its cores [default: not pinned].
    #[arg(long, value_name = "LIST", value_parser = parse_cores, conflicts_with = "traddr")]
    pub target_cores: Option<CoreList>,
    /// Its policy [default: as --policy].
    #[arg(long, value_name = "NAME", conflicts_with = "traddr")]
    pub target_policy: Option<PolicyName>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_in_thousands() {
        assert_eq!(parse_rate("100k"), Ok(100_000.0));
        assert_eq!(parse_rate("1.5M"), Ok(1_500_000.0));
        assert_eq!(parse_rate("7"), Ok(7.0));
        for text in ["0", "-1", "x", "", "nan", "k"] {
            parse_rate(text).expect_err(text);
        }
    }
}
