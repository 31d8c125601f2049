//! `roadtrain doctor`

use clap::Args;

const EXAMPLES: &str = "\
Each line has the result of a check: ok, advice (it works, and could be better) or problem
(something does not work before this is done), and below it what to do. Nothing is changed. Some
checks need root; a check that could not be made says so.

--json prints a list of objects with check, state (ok, advice, problem), finding and advice (null
where there is nothing to do).

Exit status: 0 when nothing is a problem, 1 otherwise.

Examples:
  roadtrain doctor
  sudo roadtrain doctor --json | jq '.[] | select(.state != \"ok\")'";

/// Options of `roadtrain doctor`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {}
