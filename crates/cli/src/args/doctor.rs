//! `roadtrain doctor`

use super::completion;
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCandidates;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Each line has the result of a check: ok, advice (it works, and could be better) or problem
(something does not work before this is done), and below it what to do. Nothing is changed. Some
checks need root; a check that could not be made says so.

--json prints a list of objects with check, state (ok, advice, problem), finding and advice (null
where there is nothing to do).

With --for HOST it checks a configuration, or a target that runs here, against what is publicly
known of that host: esxi (VMware ESXi), windows (the initiator of Windows Server), kernel (Linux),
spdk. Each result says what the host needs, where that is written, and whether it was tried with
this host; unknown is what no public source says. --json has requirement, tried and source as well.

Exit status: 0 when nothing is a problem, 1 otherwise.

Examples:
  roadtrain doctor
  roadtrain doctor --for esxi --config serve.toml
  roadtrain doctor --for kernel --id disks
  sudo roadtrain doctor --json | jq '.[] | select(.state != \"ok\")'";

/// Options of `roadtrain doctor`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Check a target for hosts of this maker, instead of this machine.
    #[arg(long = "for", value_name = "WHAT", value_enum)]
    pub host: Option<ForeignHost>,
    /// Configuration file. The one of `serve` to check.
    #[arg(long, value_name = "FILE", requires = "host", conflicts_with = "id")]
    pub config: Option<PathBuf>,
    /// Name of a target or an attachment on this machine. The running target to check [default: the only one].
    #[arg(long, value_name = "ID", requires = "host", add = ArgValueCandidates::new(completion::ids))]
    pub id: Option<String>,
}

/// Host of another maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ForeignHost {
    /// VMware ESXi.
    Esxi,
    /// The initiator of Windows Server.
    Windows,
    /// Linux.
    Kernel,
    /// SPDK's bdev_nvme.
    Spdk,
}
