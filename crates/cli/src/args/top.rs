//! `roadtrain top`

use super::completion;
use crate::units::parse_seconds;
use clap::Args;
use clap_complete::ArgValueCandidates;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Shows what targets and attachments do, again and again: IOPS, bandwidth, latencies, what is in
flight and how many requests a caravan has, by namespace, host and lane. Processes on this machine
are queried at their control sockets, others at their metrics addresses (--metrics ADDRESS:PORT).

Keys: Tab, left, right or 1 2 3 4 another view (processes, namespaces, hosts, lanes), up, down or
j k select, Enter opens, Esc back, s the next column to sort by, r reverses, p pauses, + - the
interval, ? help, q ends. NO_COLOR takes the colours away.

Exit status: 0 when it ended, 1 when something is not here, 3 when no process replies.

Examples:
  roadtrain top
  roadtrain top target0 --interval 2
  roadtrain top --metrics 192.0.2.7:4430
  roadtrain top --once
  roadtrain top --once --json";

/// Options of `roadtrain top`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// Only these of what runs here: the ID of a target or an attachment, a path, a device, an NQN [default: all].
    #[arg(value_name = "ID|PATH|DEVICE|NQN", add = ArgValueCandidates::new(completion::all_ids))]
    pub names: Vec<String>,
    /// HTTP address of metrics. That of a target or an attachment elsewhere (repeatable); without names nothing else is shown.
    #[arg(long = "metrics", short_alias = 'a', value_name = "ADDRESS:PORT")]
    pub traddr: Vec<String>,
    /// Update interval.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub interval: Duration,
    /// Most namespaces of a process, the busiest first; the others are counted.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub limit: usize,
    /// Take two samples, an interval apart, print what happened in between, and end.
    #[arg(long)]
    pub once: bool,
    /// Draw for so many intervals, and write the last screen as an SVG.
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "once")]
    pub picture: Option<PathBuf>,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse_seconds(text)? {
        interval if interval < Duration::from_millis(100) => Err("at least 0.1 s".into()),
        interval if interval > Duration::from_secs(3600) => Err("at most an hour".into()),
        interval => Ok(interval),
    }
}
