//! `roadtrain slow`

use super::completion;
use clap::Args;
use clap_complete::ArgValueCandidates;

const EXAMPLES: &str = "\
Shows the slowest requests of the last seconds, the slowest first: where each was, and for how
long in each stage, in microseconds. The longest stage has a star. A target or attachment keeps the
requests that took longer than 99 of 100, and some others (--slow-over). Where a host's request and
a target's command are one, and both run here, they are shown together.

Stages at a host: lane (waited for a slot), caravan (until it was sent), target (until the first of
the answer), data (until the last). At a target: buffer, data (waited for those), store, caravan
(answered, and not sent), send (until the socket had it).

Exit status: 0 when it was shown, 1 when something is not here or does not answer.

Examples:
  roadtrain slow
  roadtrain slow target0 --count 50
  roadtrain slow -a 192.0.2.7:4420 --json
  roadtrain ctl trace -o slow.json      # the same for https://ui.perfetto.dev";

/// Options of `roadtrain slow`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SlowArgs {
    /// Only these: the ID of a target or an attachment, a path, a device, an NQN [default: all that run here].
    #[arg(value_name = "ID|PATH|DEVICE|NQN", add = ArgValueCandidates::new(completion::all_ids))]
    pub names: Vec<String>,
    /// Transport address. Only attachments with a path to it and targets that listen there, with :PORT or without (repeatable).
    #[arg(short = 'a', long, value_name = "ADDRESS", add = ArgValueCandidates::new(completion::all_addresses))]
    pub traddr: Vec<String>,
    /// Number of requests to show.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub count: usize,
    /// Show sampled requests, too, not only slow ones.
    #[arg(long)]
    pub sampled: bool,
}
