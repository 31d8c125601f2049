//! `roadtrain ctl`

use super::{
    AnaName, AnaPort, ClusterCommand, ConfigCommand, DeviceCommand, HostCommand, KeyCommand,
    ListenerCommand, NO_HEADING, NamespaceCommand, ReferralCommand, RpcSocketArgs,
    SubsystemCommand, VolumeCommand, known, local,
};
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Connected hosts are told. ana, snapshot and trace are for every target, and take --id. What ana sets
is not written to the configuration file: a reload or a restart goes back to what the file says. All
others are for a target with --rpc, and what they make is kept when it has --state.

Exit status: 0 when it is done, 1 when the target or what keeps the blocks refuses, 2 when it makes
no sense, 3 when no target answers.

Examples:
  roadtrain ctl device add disk file:/srv/images/disk.img
  roadtrain ctl subsystem add nqn.2025-01.io.example:disk --any-host
  roadtrain ctl namespace add nqn.2025-01.io.example:disk disk
  roadtrain ctl listener add nqn.2025-01.io.example:disk 192.0.2.1:4420
  roadtrain ctl host allow nqn.2025-01.io.example:disk nqn.2025-01.io.example:host7
  roadtrain ctl host limit nqn.2025-01.io.example:disk nqn.2025-01.io.example:host7 --iops 1000
  roadtrain ctl namespace limit nqn.2025-01.io.example:disk 1 --write-bandwidth 100MiB --burst 1s
  roadtrain ctl key add host7 /srv/keys/host7.key
  roadtrain ctl volume create vols/disk 10GiB --thin
  roadtrain ctl volume snapshot vols/disk before-upgrade
  roadtrain ctl connections --json
  roadtrain ctl config save -o backup.json
  roadtrain ctl ana --listener 192.0.2.1:4420 inaccessible
  roadtrain ctl ana --listener '[2001:db8::1]:4420' optimized --id target0
  roadtrain ctl snapshot create 1 before-upgrade
  roadtrain ctl snapshot list 1 --json
  roadtrain ctl snapshot rollback 1 before-upgrade   # when no host is connected
  roadtrain ctl trace -o slow.json             # all that run here, attachments, too";

/// Options of `roadtrain ctl`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CtlArgs {
    /// What to tell it.
    #[command(subcommand)]
    pub command: CtlCommand,
    /// Whom to tell, but for ana, snapshot and trace.
    #[command(flatten)]
    pub socket: RpcSocketArgs,
    /// For ana, snapshot and trace: the target's name, for trace also an attachment's, as `roadtrain status` shows it
    /// [default: the one with that listener, or the only one; for trace all].
    #[arg(long, value_name = "NAME", global = true, help_heading = NO_HEADING, add = ArgValueCandidates::new(local::ids))]
    pub id: Option<String>,
}

/// What a target can be told while it runs.
#[derive(Clone, Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, and it lives as long as the program")]
pub enum CtlCommand {
    /// Say how good the path to the namespaces is that a listener gives (asymmetric namespace access).
    Ana {
        /// The listener: ADDRESS:PORT (an IPv6 address in brackets), or ether; one address of a listener that has all
        /// will do.
        #[arg(long, value_name = "ADDRESS:PORT", add = ArgValueCandidates::new(local::listeners))]
        listener: AnaPort,
        /// Its state.
        state: AnaName,
    },
    /// Devices: what blocks are kept in.
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Subsystems.
    #[command(subcommand)]
    Subsystem(SubsystemCommand),
    /// Namespaces: devices as hosts see them.
    #[command(subcommand)]
    Namespace(NamespaceCommand),
    /// Where subsystems can be reached.
    #[command(subcommand)]
    Listener(ListenerCommand),
    /// Who may use subsystems.
    #[command(subcommand)]
    Host(HostCommand),
    /// Volumes: disks that a store is cut into, their snapshots and clones.
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Keys of hosts, for authentication and TLS.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Ceph clusters, whose images are devices.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Other discovery controllers.
    #[command(subcommand)]
    Referral(ReferralCommand),
    /// All that was made here, in one file.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show who is connected.
    Connections {
        /// NQN of a subsystem [default: all].
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: Option<String>,
    },
    /// Make, list, clone, remove or go back to snapshots of a namespace, where what keeps its blocks has snapshots.
    Snapshot {
        /// What to do.
        #[command(subcommand)]
        action: SnapshotCommand,
        /// The subsystem [default: the only one].
        #[arg(
            short = 'n', long, value_name = "NQN", alias = "subnqn", global = true, help_heading = NO_HEADING,
            add = ArgValueCandidates::new(local::subsystems),
        )]
        nqn: Option<String>,
    },
    /// Write what was recorded of slow requests as a trace, for ui.perfetto.dev or chrome://tracing.
    Trace {
        /// File [default: stdout].
        #[arg(short = 'o', long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// A snapshot of a namespace.
#[derive(Args, Clone, Debug)]
pub struct SnapshotName {
    /// Namespace ID.
    #[arg(add = ArgValueCandidates::new(local::nsids))]
    pub nsid: u32,
    /// Name of the snapshot.
    #[arg(add = ArgValueCandidates::new(local::snapshots))]
    pub name: String,
}

/// What can be done with snapshots.
#[derive(Clone, Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Make a snapshot of the namespace as it is; what hosts keep in their caches is not in it.
    Create(SnapshotName),
    /// List the namespace's snapshots.
    List {
        /// Namespace ID.
        #[arg(add = ArgValueCandidates::new(local::nsids))]
        nsid: u32,
    },
    /// Have a snapshot stay: it cannot be removed, and clones of it can be made.
    Protect(SnapshotName),
    /// Let a snapshot be removed; clones of it must be gone.
    Unprotect(SnapshotName),
    /// Make a disk of its own that begins as the snapshot is.
    Clone {
        /// The snapshot.
        #[command(flatten)]
        from: SnapshotName,
        /// Where it is to be: for an image of a Ceph cluster POOL/IMAGE or IMAGE, of the same cluster.
        to: String,
    },
    /// Make the namespace what it was. Refused while hosts are connected.
    Rollback(SnapshotName),
    /// Remove a snapshot.
    Remove(SnapshotName),
}
