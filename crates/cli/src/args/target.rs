//! `roadtrain target`

use super::{NO_HEADING, local};
use crate::namespace::NamespaceSpec;
use crate::rates::RateArgs;
use crate::units::parse_size;
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;

const EXAMPLES: &str = "\
Each change is checked, and made as a whole or not at all. Connected hosts are told. The change is
not written to the configuration file: a reload or a restart goes back to what the file says.

Exit status: 0 when it is done, 1 when it failed (a file, device or address cannot be opened),
2 when the change makes no sense, 3 when no target answers.

Examples:
  roadtrain target add-namespace file:/srv/b.img,size=100GiB
  roadtrain target resize-namespace 2 200GiB
  roadtrain target remove-namespace 2 -n nqn.2025-01.io.example:disk
  roadtrain target claim-namespace 1           # of an image that another gateway serves
  roadtrain target allow-host nqn.2025-01.io.example:host7
  roadtrain target limit-namespace 2 --iops 5000 --bandwidth 100MiB --burst 1s
  roadtrain target limit-host nqn.2025-01.io.example:host7 --write-iops 1000
  roadtrain target listen -a 192.0.2.8 -s 4420
  roadtrain target add-subsystem -n nqn.2025-01.io.example:other --namespace mem:1GiB
  roadtrain target reload --id target0 --json
  roadtrain target upgrade                    # after a new version was installed";

/// Options of `roadtrain target`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TargetArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TargetCommand,
    /// The target's name, as `roadtrain status` shows it [default: the only one].
    #[arg(long, value_name = "NAME", global = true, help_heading = NO_HEADING, add = ArgValueCandidates::new(local::ids))]
    pub id: Option<String>,
    /// The subsystem [default: the only one].
    #[arg(
        short = 'n', long, value_name = "NQN", alias = "subnqn", global = true, help_heading = NO_HEADING,
        add = ArgValueCandidates::new(local::subsystems),
    )]
    pub nqn: Option<String>,
}

/// What a target can be told.
#[derive(Clone, Debug, Subcommand)]
pub enum TargetCommand {
    /// Read the configuration file again, as at SIGHUP.
    Reload,
    /// Start the program anew, as it was started, with --takeover: a new version goes on, in the same service of systemd.
    Upgrade,
    /// Listen at one more address.
    Listen(ListenArgs),
    /// Listen no longer at an address; its connections stay.
    Unlisten(ListenArgs),
    /// Add a subsystem with the NQN of -n.
    AddSubsystem(AddSubsystemArgs),
    /// Remove the subsystem of -n with its namespaces; its hosts are disconnected, its files stay.
    RemoveSubsystem,
    /// Give a subsystem another serial or model number; connected hosts see it when they connect again.
    SetSubsystem(NumberArgs),
    /// Add a namespace; `roadtrain serve --help` says what SPEC is.
    AddNamespace {
        /// Such as file:/srv/b.img,size=100GiB or mem:1GiB,nsid=3.
        #[arg(value_name = "SPEC")]
        namespace: NamespaceSpec,
    },
    /// Put another store under an NSID (nsid=N in SPEC); hosts see one namespace go, and another come.
    ReplaceNamespace {
        /// Such as file:/srv/b.img,nsid=3.
        #[arg(value_name = "SPEC")]
        namespace: NamespaceSpec,
    },
    /// Remove a namespace; its file stays.
    RemoveNamespace {
        /// Namespace ID.
        #[arg(add = ArgValueCandidates::new(local::nsids))]
        nsid: u32,
    },
    /// Give a namespace another size, or look at its file or device again.
    ResizeNamespace {
        /// Namespace ID.
        #[arg(add = ArgValueCandidates::new(local::nsids))]
        nsid: u32,
        /// Its new size [default: that of its file or device].
        #[arg(value_parser = parse_size)]
        size: Option<u64>,
    },
    /// Let a namespace do so much in a second, whoever uses it; without an option it is not limited.
    LimitNamespace {
        /// Namespace ID.
        #[arg(add = ArgValueCandidates::new(local::nsids))]
        nsid: u32,
        /// So much.
        #[command(flatten)]
        rates: RateArgs,
    },
    /// Let a host do so much in a second with all namespaces of a subsystem; without an option it is not limited.
    LimitHost {
        /// Its NQN.
        host: String,
        /// So much.
        #[command(flatten)]
        rates: RateArgs,
    },
    /// Serve a namespace that stands by: its blocks are taken away from the target that has them, which cannot write them
    /// any more.
    ClaimNamespace {
        /// Namespace ID.
        #[arg(add = ArgValueCandidates::new(local::nsids))]
        nsid: u32,
    },
    /// Let a host connect.
    AllowHost {
        /// Its NQN.
        host: String,
    },
    /// Refuse a host from now on, and end its connections.
    DisallowHost {
        /// Its NQN.
        host: String,
    },
    /// Let any host connect.
    AllowAnyHost,
    /// Let only the hosts of allow-host connect, and end the connections of all others.
    DisallowAnyHost,
}

/// An address of a listener.
#[derive(Args, Clone, Debug)]
pub struct ListenArgs {
    /// Address or name, IPv4 or IPv6.
    #[arg(short = 'a', long, value_name = "ADDRESS")]
    pub traddr: String,
    /// TCP port; listening on 0 takes a free one.
    #[arg(short = 's', long, value_name = "PORT", default_value_t = 4420)]
    pub trsvcid: u16,
}

/// What a subsystem tells its hosts about itself.
#[derive(Args, Clone, Debug)]
pub struct NumberArgs {
    /// Serial number, at most 20 characters.
    #[arg(long)]
    pub serial: Option<String>,
    /// Model number, at most 40 characters.
    #[arg(long)]
    pub model: Option<String>,
}

/// A new subsystem.
#[derive(Args, Clone, Debug)]
pub struct AddSubsystemArgs {
    /// Its numbers.
    #[command(flatten)]
    pub numbers: NumberArgs,
    /// NQN of a host that may connect [default: any host]. Repeatable.
    #[arg(long = "allow-host", value_name = "NQN")]
    pub allow_hosts: Vec<String>,
    /// A namespace; `roadtrain serve --help` says what SPEC is. Repeatable.
    #[arg(long = "namespace", value_name = "SPEC")]
    pub namespaces: Vec<NamespaceSpec>,
}
