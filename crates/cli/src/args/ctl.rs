//! `roadtrain ctl`: one tree of nouns and verbs for all objects of a running target.

mod bitmaps;
mod managed;
mod objects;
mod volumes;

pub use bitmaps::BitmapCommand;
pub use managed::{
    ClusterCommand, ConfigCommand, DeviceCommand, GatewayCommand, KeyCommand, ReferralCommand,
};
pub use objects::{
    ConnectionCommand, HostCommand, HostKeyArgs, HostRef, ListenerAddress, ListenerCommand,
    ManagementArgs, NamespaceCommand, NamespaceRef, NewSubsystemArgs, RequireArgs, SeeingHosts,
    SnapshotCommand, SnapshotRef, SubsystemCommand, SubsystemRef,
};
pub use volumes::{StoreCommand, VolumeCommand};

use super::completion;
use super::gateway::{CephArgs, group_name};
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use std::path::PathBuf;

const EXAMPLES: &str = "\
A change is checked, and made as a whole or not at all. Connected hosts see it at once. What the
configuration file has may be changed, too: that holds until the next reload. All else is kept
where the target has --state. `list` shows the owner of each object: file, state or group.

Exit status: 0 when it is done, 1 when the target or what keeps the blocks refuses, 2 when it makes
no sense, 3 when no target answers.

Examples:
  roadtrain ctl subsystem add -n nqn.2025-01.io.example:disk --namespace mem:1GiB
  roadtrain ctl namespace add -n nqn.2025-01.io.example:disk file:/srv/b.img,size=100GiB
  roadtrain ctl namespace resize --nsid 2 200GiB
  roadtrain ctl namespace remove -n nqn.2025-01.io.example:disk --nsid 2
  roadtrain ctl namespace limit --nsid 1 --write-bandwidth 100MiB --burst 1s
  roadtrain ctl namespace snapshot create --nsid 1 before-upgrade
  roadtrain ctl snapshot diff --nsid 1 before-upgrade after-upgrade --json
  roadtrain ctl --id nbd0 bitmap start daily   # an increment of a backup begins
  roadtrain ctl listener add -a 192.0.2.8 -s 4420
  roadtrain ctl listener set -a 192.0.2.1 --ana inaccessible
  roadtrain ctl host allow -q nqn.2025-01.io.example:host7
  roadtrain ctl host limit -q nqn.2025-01.io.example:host7 --iops 1000
  roadtrain ctl volume create vols/disk 10GiB --thin
  roadtrain ctl namespace add device:vols/disk
  roadtrain ctl key add host7 /srv/keys/host7.key
  roadtrain ctl connection list --json
  roadtrain ctl config diff
  roadtrain ctl config reload --id target0
  roadtrain ctl upgrade                        # after a new version was installed
  roadtrain ctl trace -o slow.json             # slow requests of all that run here
  roadtrain ctl rpc nvmf_get_subsystems
  roadtrain ctl --group gates --pool disks namespace add -n nqn.2025-01.io.example:disk rbd:disks/a";

/// Options of `roadtrain ctl`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CtlArgs {
    /// Noun.
    #[command(subcommand)]
    pub command: CtlCommand,
    /// The target to change.
    #[command(flatten)]
    pub target: CtlTarget,
}

/// The target to change: a process on this machine, or a group of gateways.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which target")]
pub struct CtlTarget {
    /// Name of a target or an attachment on this machine [default: the only target].
    #[arg(long, value_name = "ID", global = true, add = ArgValueCandidates::new(completion::ids))]
    pub id: Option<String>,
    /// Unix socket for JSON-RPC requests. Named instead of the target, as its `serve --rpc` has it.
    #[arg(long = "rpc", value_name = "FILE", global = true, conflicts_with = "id")]
    pub socket: Option<PathBuf>,
    /// Group of gateways, whose configuration is in a Ceph cluster. All its gateways follow what is changed.
    #[arg(long, value_name = "NAME", global = true, value_parser = group_name)]
    pub group: Option<String>,
    /// Pool with the group's object.
    #[arg(long, value_name = "POOL", global = true)]
    pub pool: Option<String>,
    /// The cluster.
    #[command(flatten)]
    pub ceph: CephArgs,
}

/// Nouns of a running target.
#[derive(Clone, Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, and it lives as long as the program")]
pub enum CtlCommand {
    /// Subsystems.
    #[command(subcommand)]
    Subsystem(SubsystemCommand),
    /// Namespaces: disks as hosts see them, and their snapshots.
    #[command(subcommand)]
    Namespace(NamespaceCommand),
    /// Snapshots of a namespace that is an image of a Ceph cluster; differences of those and of volumes' snapshots.
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Dirty bitmaps of an attachment with --dirty-bitmap, for increments of a backup.
    #[command(subcommand)]
    Bitmap(BitmapCommand),
    /// Addresses at which hosts connect.
    #[command(subcommand)]
    Listener(ListenerCommand),
    /// Hosts that may connect, their keys and limits.
    #[command(subcommand)]
    Host(HostCommand),
    /// Hosts that are connected.
    #[command(subcommand)]
    Connection(ConnectionCommand),
    /// Volumes: disks in a store, their snapshots and clones.
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Stores of volumes.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Devices: blocks that can be shown as a namespace.
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Keys of hosts, for authentication and TLS.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Ceph clusters, whose images are devices.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Other discovery controllers.
    #[command(subcommand)]
    Referral(ReferralCommand),
    /// Gateways of a group.
    #[command(subcommand)]
    Gateway(GatewayCommand),
    /// The configuration as a whole: show, compare, save, load, reload.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Start the program anew, as it was started, with --takeover: a new version continues in the same service of
    /// systemd.
    Upgrade,
    /// Write slow requests as a trace, for ui.perfetto.dev or chrome://tracing.
    Trace {
        /// File [default: stdout].
        #[arg(short = 'o', long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Call one JSON-RPC method, and print its result.
    Rpc {
        /// Method, such as nvmf_get_subsystems; rpc_get_methods lists all.
        #[arg(add = ArgValueCandidates::new(completion::methods))]
        method: String,
        /// Its parameters, an object in JSON [default: none].
        #[arg(value_name = "JSON")]
        params: Option<String>,
    },
}
