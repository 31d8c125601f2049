//! Options of the floor.

use super::cipher::FloorCipher;
use clap::ValueEnum;
use roadtrain_reactor::tuning;
use serde::Serialize;
use std::time::Duration;

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DataDirection {
    /// Random reads: data from the target to the host
    #[value(name = "randread", alias = "read")]
    Read,
    /// Random writes: data from the host to the target
    #[value(name = "randwrite", alias = "write")]
    Write,
}

/// A workload for the floor.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FloorArgs {
    /// Direction of the data
    #[arg(long, value_enum, default_value = "randread")]
    pub(crate) rw: DataDirection,
    /// Bytes per request (k and m suffixes)
    #[arg(long, default_value = "4k", value_parser = parse_bytes)]
    pub(crate) bs: usize,
    /// Requests in flight
    #[arg(long, default_value_t = 128)]
    pub(crate) depth: usize,
    /// Most requests or answers that one send carries
    #[arg(long, default_value_t = 128)]
    pub(crate) gather: usize,
    /// Seconds to measure, after a warm-up
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,
    /// Seconds of warm-up
    #[arg(long, default_value_t = 0.3)]
    pub(crate) warmup: f64,
    /// Core of the target's thread
    #[arg(long, default_value_t = 1)]
    pub(crate) target_core: usize,
    /// Core of the host's thread
    #[arg(long, default_value_t = 0)]
    pub(crate) host_core: usize,
    /// Both ends spin this long before they sleep
    #[arg(long, default_value_t = 0)]
    pub(crate) spin_us: u64,
    /// Both ends never sleep
    #[arg(long)]
    pub(crate) busy_poll: bool,
    /// Bytes of the target's memory
    #[arg(long, default_value = "1g", value_parser = parse_bytes)]
    pub(crate) memory: usize,
    /// Leave received data where it arrived (a real target or host cannot): what the copy costs
    #[arg(long)]
    pub(crate) no_copy: bool,
    /// Measure afterwards the CPU time of this cipher for the bytes alone, in records as long as the sends make them
    #[arg(long, value_enum, value_name = "CIPHER")]
    pub(crate) seal: Option<FloorCipher>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) knobs: Knobs,
}

/// Departures from the shared tuning, to measure what each choice is worth.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Knobs (defaults: the tuning shared with the product)")]
pub(crate) struct Knobs {
    /// Receive buffer
    #[arg(long, default_value_t = tuning::RX_BUFFER_BYTES, value_parser = parse_bytes)]
    pub(crate) rx_buffer: usize,
    /// A payload missing at least this much is received straight into its place (never: copying out of
    /// the large buffer is as fast for reads and faster for writes, also at 128 KiB)
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true, value_parser = parse_bytes)]
    pub(crate) rx_direct: usize,
    /// Buffer room offered behind a payload that is received in place
    #[arg(long, default_value = "8k", value_parser = parse_bytes)]
    pub(crate) rx_behind: usize,
    /// Cache lines to prefetch of each block
    #[arg(long, default_value_t = tuning::PREFETCH_LINES)]
    pub(crate) prefetch: usize,
    /// SO_SNDBUF (0: the system's own sizing)
    #[arg(long, default_value = "0", value_parser = parse_bytes)]
    pub(crate) sndbuf: usize,
    /// SO_RCVBUF (0: the system's own sizing)
    #[arg(long, default_value = "0", value_parser = parse_bytes)]
    pub(crate) rcvbuf: usize,
    /// Congestion control (default: the shared choice)
    #[arg(long)]
    pub(crate) congestion: Option<String>,
    /// Data memory on ordinary 4 KiB pages
    #[arg(long)]
    pub(crate) small_pages: bool,
}

impl Default for FloorArgs {
    /// As with no option given.
    fn default() -> Self {
        use clap::{Args as _, FromArgMatches as _};
        let matches = Self::augment_args(clap::Command::new("floor")).get_matches_from(["floor"]);
        Self::from_arg_matches(&matches).expect("every option has a default")
    }
}

impl FloorArgs {
    /// Refuses what cannot be run.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.bs >= 512, "--bs is at least 512");
        anyhow::ensure!((1..=65536).contains(&self.depth), "--depth is 1 to 65536");
        anyhow::ensure!((1..=511).contains(&self.gather), "--gather is 1 to 511");
        anyhow::ensure!(self.memory >= self.bs, "--memory holds at least one block");
        anyhow::ensure!(self.knobs.rx_buffer >= 4096, "--rx-buffer is at least 4 KiB");
        Ok(())
    }

    /// How long to measure.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// Parses `4096`, `4k`, `1m`, `1g`.
pub(crate) fn parse_bytes(text: &str) -> Result<usize, String> {
    let lower = text.to_ascii_lowercase();
    let lower = lower.trim_end_matches("ib");
    let (digits, shift) = match lower.as_bytes().last() {
        Some(b'k') => (&lower[..lower.len() - 1], 10),
        Some(b'm') => (&lower[..lower.len() - 1], 20),
        Some(b'g') => (&lower[..lower.len() - 1], 30),
        _ => (lower, 0),
    };
    let number: usize = digits.parse().map_err(|_| format!("not a size: {text}"))?;
    number.checked_shl(shift).filter(|n| n >> shift == number).ok_or("too large".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("4k"), Ok(4096));
        assert_eq!(parse_bytes("1MiB"), Ok(1 << 20));
        assert!(parse_bytes("4x").is_err());
        assert!(parse_bytes("99999999999999999g").is_err());
        assert!(parse_bytes("").is_err());
    }
}
