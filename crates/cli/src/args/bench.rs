//! `roadtrain bench`

use super::{ConnectArgs, LaneArgs, PolicyArgs, PolicyName, Transport, WaitArgs};
use crate::namespace::NamespaceSpec;
use crate::units::{CoreList, parse_cores, parse_seconds, parse_size, parse_size_u32};
use clap::{Args, ValueEnum};
use std::time::Duration;

const EXAMPLES: &str = "\
Without -a it starts a target of its own on loopback and reports that one's CPU time as well.
Writing destroys what the namespace holds.

With --verify every block written carries its number, a generation and the seed; reads check them, and
what was written is read back at the end. A read-only run checks what an earlier
`--rw write --verify` of the same region has written.

Exit status: 1 when any request failed or any block was wrong, 3 when no connection could be made.

Examples:
  roadtrain bench --rw randread --bs 4k --depth 128 --seconds 5
  roadtrain bench -a 127.0.0.1 -n nqn.2025-01.io.example:disk --rw randwrite --bs 4k --depth 128 \\
      --lanes 1 --cores 0 --seconds 5 --policy i10 --json
  roadtrain bench --rw randrw --rwmixread 70 --rate 100k --cores 0 --target-cores 1
  roadtrain bench -a 192.0.2.7 -n nqn.2025-01.io.example:disk --rw write --bs 128k --size 1GiB --verify";

/// What to do with the blocks, in fio's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReadWrite {
    /// Read in order.
    Read,
    /// Write in order.
    Write,
    /// Read at random.
    Randread,
    /// Write at random.
    Randwrite,
    /// Read and write at random.
    Randrw,
    /// Read and write in order.
    #[value(alias = "readwrite")]
    Rw,
}

/// Options of `roadtrain bench`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// Transport.
    #[arg(short = 't', long, default_value = "tcp")]
    pub transport: Transport,
    /// Address or name of the target [default: start one here].
    #[arg(short = 'a', long, value_name = "ADDRESS", requires = "nqn")]
    pub traddr: Option<String>,
    /// TCP port.
    #[arg(short = 's', long, value_name = "PORT", default_value_t = 4420)]
    pub trsvcid: u16,
    /// NQN of the subsystem.
    #[arg(short = 'n', long, value_name = "NQN", alias = "subnqn", requires = "traddr")]
    pub nqn: Option<String>,
    /// Namespace.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub nsid: u32,
    /// The load.
    #[command(flatten)]
    pub load: LoadArgs,
    /// The target it starts itself.
    #[command(flatten)]
    pub own: OwnTargetArgs,
    /// Over what.
    #[command(flatten)]
    pub lanes: LaneArgs,
    /// When to send.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// How to wait (a target started here waits likewise).
    #[command(flatten)]
    pub wait: WaitArgs,
    /// As whom to connect.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// The load.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// What to do.
    #[arg(long, value_name = "WHAT", default_value = "randread")]
    pub rw: ReadWrite,
    /// Percentage of reads in randrw and rw.
    #[arg(long, value_name = "PERCENT", default_value_t = 50,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pub rwmixread: u8,
    /// Octets of a request.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = parse_size_u32)]
    pub bs: u32,
    /// Requests in flight on each lane.
    #[arg(long, value_name = "N", default_value_t = 32, alias = "iodepth",
          value_parser = clap::value_parser!(u32).range(1..=1023))]
    pub depth: u32,
    /// How long to measure [default: 5, or without limit with --ios].
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub seconds: Option<Duration>,
    /// End after so many requests (over all lanes).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ios: Option<u64>,
    /// Load for so long before measuring.
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_seconds)]
    pub ramp: Duration,
    /// Requests a second over all lanes, at a fixed schedule; latency counts from the scheduled
    /// time [default: as many as --depth in flight allows].
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Check the data.
    #[arg(long)]
    pub verify: bool,
    /// Octets of the namespace to use [default: all after --offset].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// First octet of the namespace to use.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub offset: u64,
    /// Seed of the addresses and of the data.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// The target it starts itself when there is no -a.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Own target (without -a)")]
pub struct OwnTargetArgs {
    /// Its namespaces [default: mem:1GiB].
    #[arg(long = "namespace", value_name = "SPEC", conflicts_with = "traddr")]
    pub namespaces: Vec<NamespaceSpec>,
    /// Its cores [default: not pinned].
    #[arg(long, value_name = "LIST", value_parser = parse_cores, conflicts_with = "traddr")]
    pub target_cores: Option<CoreList>,
    /// Its policy [default: as --policy].
    #[arg(long, value_name = "NAME", conflicts_with = "traddr")]
    pub target_policy: Option<PolicyName>,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let advice =
        || format!("'{text}' is not a rate: write requests a second, such as 100000 or 100k");
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1e6),
            None => (text, 1.0),
        },
    };
    let rate = digits.parse::<f64>().map_err(|_| advice())? * factor;
    if (1e-3..=1e9).contains(&rate) { Ok(rate) } else { Err(advice()) }
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
