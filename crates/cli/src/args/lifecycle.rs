//! Options of `detach` and `status`.

use super::completion;
use crate::units::parse_seconds;
use clap::Args;
use clap_complete::ArgValueCandidates;
use std::time::Duration;

const DETACH_USAGE: &str = "roadtrain detach [OPTIONS] <ID|PATH|DEVICE|NQN>... | --all";

const DETACH_EXAMPLES: &str = "\
Stops the attachment's process: requests in flight are completed first. If the target hangs, they
fail after 3 s, and `lost:` says so. When the end takes too long, or at SIGINT, the process is
killed, and what it has left is removed. What processes have left that were killed before is
removed, too, also of targets.

Exit status: 0 when everything has ended in order, 1 when something had to be killed, is still
there, was lost, or is not attached at all.

Examples:
  roadtrain detach nbd0
  roadtrain detach /mnt/rt
  roadtrain detach nqn.2025-01.io.example:disk --timeout 5
  roadtrain detach --all";

/// Options of `roadtrain detach`.
#[derive(Args, Clone, Debug)]
#[command(after_help = DETACH_EXAMPLES, override_usage = DETACH_USAGE)]
pub struct DetachArgs {
    /// Attachment to detach: its ID, a path, a device, or an NQN (all attachments of that subsystem).
    #[arg(
        value_name = "ID|PATH|DEVICE|NQN",
        required_unless_present = "all",
        add = ArgValueCandidates::new(completion::detachable_ids)
    )]
    pub names: Vec<String>,
    /// All attachments of this user here, and what killed targets have left.
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// Time limit of a clean end; 0 kills at once.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    pub timeout: Duration,
}

const STATUS_EXAMPLES: &str = "\
Shows attachments, then targets with their subsystems, namespaces and controllers. IOPS and
bandwidth are those of the last ten seconds; with --watch, those since the last update. A line
`problem` says what needs a person: a path that is not live, a namespace that the target has no
more, requests that failed in that time. Root sees what every user has; killed processes are shown
as gone until `roadtrain detach` or the next start removes what they have left.

Exit status: 0 when all is well, 1 when something is gone, silent, or has a problem, or when
nothing is called so, 3 when an attachment has no connection to its target.

Examples:
  roadtrain status
  roadtrain status fuse0 --json
  roadtrain status target0
  roadtrain status -a 192.0.2.7:4420 --json
  roadtrain status --prometheus > roadtrain.new && mv roadtrain.new roadtrain.prom
  roadtrain status /dev/ublkb0 --watch=5";

/// Options of `roadtrain status`.
#[derive(Args, Clone, Debug)]
#[command(after_help = STATUS_EXAMPLES)]
pub struct StatusArgs {
    /// Only these: an ID, a path, a device, or the NQN of attachments [default: all].
    #[arg(value_name = "ID|PATH|DEVICE|NQN", add = ArgValueCandidates::new(completion::all_ids))]
    pub names: Vec<String>,
    /// Transport address. Only attachments with a path to it and targets that listen there, with :PORT or without (repeatable).
    #[arg(short = 'a', long, value_name = "ADDRESS", add = ArgValueCandidates::new(completion::all_addresses))]
    pub traddr: Vec<String>,
    /// As metrics for Prometheus, for node_exporter's textfile collector: all counters of all that run here.
    #[arg(long, conflicts_with = "watch")]
    pub prometheus: bool,
    /// Repeat until interrupted; with --json one line each time.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "1", value_parser = parse_seconds)]
    pub watch: Option<Duration>,
}
