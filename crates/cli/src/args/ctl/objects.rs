//! Objects that hosts see: subsystems, namespaces, listeners, hosts, connections. The options have nvme-cli's names.

use super::super::connect::parse_required;
use super::super::{AnaName, completion};
use crate::namespace::NamespaceSettings;
use crate::rates::RateArgs;
use crate::units::parse_size;
use clap::{ArgAction, Args, Subcommand};
use clap_complete::ArgValueCandidates;
use roadtrain_target_proto::ANA_GROUPS_MAX;

/// The subsystem to work on.
#[derive(Args, Clone, Debug)]
pub struct SubsystemRef {
    /// NQN of the subsystem [default: the only one].
    #[arg(short = 'n', long, value_name = "NQN", add = ArgValueCandidates::new(completion::subsystems))]
    pub nqn: Option<String>,
}

/// The namespace to work on.
#[derive(Args, Clone, Debug)]
pub struct NamespaceRef {
    /// The subsystem.
    #[command(flatten)]
    pub subsystem: SubsystemRef,
    /// Namespace ID.
    #[arg(long, value_name = "N", add = ArgValueCandidates::new(completion::nsids))]
    pub nsid: u32,
}

/// The listener to work on.
#[derive(Args, Clone, Debug)]
pub struct ListenerAddress {
    /// Transport address. With :PORT or without; before :PORT an IPv6 address is in brackets.
    #[arg(short = 'a', long, value_name = "ADDRESS", add = ArgValueCandidates::new(completion::listeners))]
    pub traddr: String,
    /// TCP port [default: 4420].
    #[arg(short = 's', long, value_name = "PORT")]
    pub trsvcid: Option<u16>,
}

/// The host to work on.
#[derive(Args, Clone, Debug)]
pub struct HostRef {
    /// NQN of the host.
    #[arg(short = 'q', long, value_name = "NQN", add = ArgValueCandidates::new(completion::hosts))]
    pub hostnqn: String,
}

/// `roadtrain ctl subsystem`
#[derive(Clone, Debug, Subcommand)]
pub enum SubsystemCommand {
    /// Add a subsystem. It is reached where the target listens, until it gets a listener of its own.
    Add(NewSubsystemArgs),
    /// Change a subsystem; connected hosts see its numbers when they connect again.
    Set {
        /// The subsystem.
        #[command(flatten)]
        subsystem: SubsystemRef,
        /// Serial number of the subsystem, at most 20 characters.
        #[arg(long, value_name = "TEXT")]
        serial: Option<String>,
        /// Model number of the subsystem, at most 40 characters.
        #[arg(long, value_name = "TEXT")]
        model: Option<String>,
        /// Requirements for hosts; of a group of gateways.
        #[command(flatten)]
        require: RequireArgs,
        /// Hosts that may manage its namespaces.
        #[command(flatten)]
        management: ManagementArgs,
    },
    /// Remove a subsystem with its namespaces. Its connections end; its files, images and volumes stay.
    Remove {
        /// NQN of the subsystem.
        #[arg(short = 'n', long, value_name = "NQN", add = ArgValueCandidates::new(completion::subsystems))]
        nqn: String,
    },
    /// List subsystems, each with its owner.
    List {
        /// The subsystem.
        #[command(flatten)]
        subsystem: SubsystemRef,
    },
}

/// A new subsystem.
#[derive(Args, Clone, Debug)]
pub struct NewSubsystemArgs {
    /// NQN of the subsystem.
    #[arg(short = 'n', long, value_name = "NQN")]
    pub nqn: String,
    /// Serial number of the subsystem, at most 20 characters.
    #[arg(long, value_name = "TEXT")]
    pub serial: Option<String>,
    /// Model number of the subsystem, at most 40 characters.
    #[arg(long, value_name = "TEXT")]
    pub model: Option<String>,
    /// NQN of a host that may connect (repeatable) [default: any host].
    #[arg(long = "allow-host", value_name = "NQN", add = ArgValueCandidates::new(completion::hosts))]
    pub allow_hosts: Vec<String>,
    /// Namespace, such as mem:1GiB or file:disk.img,size=2GiB (repeatable). `roadtrain serve --help` has all forms.
    #[arg(long = "namespace", value_name = "SPEC", add = ArgValueCandidates::new(completion::specs))]
    pub namespaces: Vec<NamespaceSettings>,
    /// Requirements for hosts; of a group of gateways.
    #[command(flatten)]
    pub require: RequireArgs,
}

/// Hosts that may manage the namespaces of a subsystem by NVMe commands.
#[derive(Args, Clone, Debug, Default)]
pub struct ManagementArgs {
    /// NQN of a host that may create, delete, attach and detach namespaces (repeatable).
    #[arg(long = "administrator", value_name = "NQN", requires = "namespace_store",
        conflicts_with_all = ["serial", "model"], add = ArgValueCandidates::new(completion::hosts))]
    pub administrators: Vec<String>,
    /// Store of volumes in which administrators create namespaces.
    #[arg(long, value_name = "NAME", requires = "administrators")]
    pub namespace_store: Option<String>,
    /// Let no host manage namespaces. Those that hosts have created stay.
    #[arg(long, conflicts_with_all = ["administrators", "serial", "model"])]
    pub no_administrators: bool,
}

impl ManagementArgs {
    /// True if one of the options is given.
    pub(crate) fn is_given(&self) -> bool {
        self.no_administrators || self.namespace_store.is_some()
    }
}

/// Requirements for the hosts of a subsystem. A target has them from its configuration file.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct RequireArgs {
    /// Refuse hosts without a key for authentication. With --group.
    #[arg(long)]
    pub require_auth: bool,
    /// Refuse connections without TLS. With --group, whose gateways need --tls.
    #[arg(long)]
    pub require_tls: bool,
}

/// `roadtrain ctl namespace`
#[derive(Clone, Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, and it lives as long as the program")]
pub enum NamespaceCommand {
    /// Add a namespace.
    Add {
        /// The subsystem.
        #[command(flatten)]
        subsystem: SubsystemRef,
        /// Namespace ID [default: the first free one].
        #[arg(long, value_name = "N")]
        nsid: Option<u32>,
        /// As for `roadtrain serve --namespace`, with all its stores and options, such as file:/srv/b.img,size=100GiB or
        /// ssd:1GiB,class=bulk; or device:NAME for a device or volume that is there.
        #[arg(value_name = "SPEC", add = ArgValueCandidates::new(completion::specs))]
        namespace: NamespaceSettings,
    },
    /// Put another store under an NSID: hosts see one namespace go, and another come. With the same file or device only
    /// the options change.
    Replace {
        /// The namespace.
        #[command(flatten)]
        namespace: NamespaceRef,
        /// As for `ctl namespace add`.
        #[arg(value_name = "SPEC", add = ArgValueCandidates::new(completion::specs))]
        spec: NamespaceSettings,
    },
    /// Remove a namespace; its file, image or volume stays.
    Remove {
        /// The namespace.
        #[command(flatten)]
        namespace: NamespaceRef,
    },
    /// Give a namespace another size, or that of its file or device.
    Resize {
        /// The namespace.
        #[command(flatten)]
        namespace: NamespaceRef,
        /// New size [default: that of its file or device].
        #[arg(value_parser = parse_size)]
        size: Option<u64>,
    },
    /// Limit what a namespace does in a second, for all its hosts together; without an option it is not limited.
    Limit {
        /// The namespace.
        #[command(flatten)]
        namespace: NamespaceRef,
        /// Limits.
        #[command(flatten)]
        rates: RateArgs,
    },
    /// Serve a namespace that stands by: its blocks are taken away from the target that has them, which cannot write them
    /// any more.
    Claim {
        /// The namespace.
        #[command(flatten)]
        namespace: NamespaceRef,
    },
    /// Show a namespace to one more host, or to all.
    ShowTo {
        /// The namespace.
        #[command(flatten)]
        namespace: NamespaceRef,
        /// The hosts.
        #[command(flatten)]
        hosts: SeeingHosts,
    },
    /// Hide a namespace from a host, or from all: for such a host it does not exist.
    HideFrom {
        /// The namespace.
        #[command(flatten)]
        namespace: NamespaceRef,
        /// The hosts.
        #[command(flatten)]
        hosts: SeeingHosts,
    },
    /// Move a namespace to another ANA group.
    AnaGroup {
        /// The namespace.
        #[command(flatten)]
        namespace: NamespaceRef,
        /// The group, 1 to 512.
        #[arg(value_name = "GROUP", value_parser = clap::value_parser!(u32).range(1..=i64::from(ANA_GROUPS_MAX)))]
        ana_group: u32,
    },
    /// List namespaces, each with its owner.
    List {
        /// The subsystem.
        #[command(flatten)]
        subsystem: SubsystemRef,
    },
    /// Snapshots of a namespace, as `roadtrain ctl snapshot`.
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
}

/// Hosts to show a namespace to, or to hide it from.
#[derive(Args, Clone, Debug)]
#[group(required = true)]
pub struct SeeingHosts {
    /// NQN of the host.
    #[arg(value_name = "HOSTNQN", add = ArgValueCandidates::new(completion::hosts))]
    pub hostnqn: Option<String>,
    /// All hosts that may use the subsystem.
    #[arg(long)]
    pub all_hosts: bool,
}

/// A snapshot of a namespace.
#[derive(Args, Clone, Debug)]
pub struct SnapshotRef {
    /// The namespace.
    #[command(flatten)]
    pub namespace: NamespaceRef,
    /// Name of the snapshot.
    #[arg(add = ArgValueCandidates::new(completion::snapshots))]
    pub name: String,
}

/// `roadtrain ctl namespace snapshot`
#[derive(Clone, Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Make a snapshot of the namespace as it is, without what hosts keep in their caches.
    Create(SnapshotRef),
    /// List the namespace's snapshots.
    List {
        /// The namespace.
        #[command(flatten)]
        namespace: NamespaceRef,
    },
    /// Protect a snapshot from removal, so that clones of it can be made.
    Protect(SnapshotRef),
    /// Let a snapshot be removed; clones of it must be gone.
    Unprotect(SnapshotRef),
    /// Make a disk of its own that begins as the snapshot is.
    Clone {
        /// The snapshot.
        #[command(flatten)]
        from: SnapshotRef,
        /// The new disk: for an image of a Ceph cluster POOL/IMAGE or IMAGE, of the same cluster.
        to: String,
    },
    /// Make the namespace what it was. Refused while hosts are connected.
    Rollback(SnapshotRef),
    /// Remove a snapshot.
    Remove(SnapshotRef),
    /// List the ranges in which a newer snapshot may differ: what an increment of a backup needs.
    Diff {
        /// The older snapshot.
        #[command(flatten)]
        from: SnapshotRef,
        /// The newer snapshot [default: the namespace as it is].
        #[arg(value_name = "TO", add = ArgValueCandidates::new(completion::snapshots))]
        to: Option<String>,
    },
}

/// `roadtrain ctl listener`
#[derive(Clone, Debug, Subcommand)]
pub enum ListenerCommand {
    /// Listen at one more address.
    Add {
        /// NQN of the subsystem. Only this one is reached there, and at no address that it has not [default: all that have
        /// no listener of their own].
        #[arg(short = 'n', long, value_name = "NQN", add = ArgValueCandidates::new(completion::subsystems))]
        nqn: Option<String>,
        /// The address; without -n it may be a name.
        #[command(flatten)]
        address: ListenerAddress,
        /// TLS 1.3 for connections over TCP: off, allowed (targets only), or required, which is meant without a value.
        /// For the subsystem of -n, off or required.
        #[arg(long, requires = "nqn", value_name = "WHEN", action = ArgAction::Set, num_args = 0..=1,
            default_value = "off", default_missing_value = "required", value_parser = parse_required)]
        tls: bool,
        /// ANA state of the paths through a listener [default: optimized].
        #[arg(long, value_name = "STATE")]
        ana: Option<AnaName>,
    },
    /// Set the ANA state of the paths through a listener; for -a ether those over Ethernet.
    Set {
        /// NQN of the subsystem. Only for this one, which has the listener for itself.
        #[arg(short = 'n', long, value_name = "NQN", add = ArgValueCandidates::new(completion::subsystems))]
        nqn: Option<String>,
        /// The address.
        #[command(flatten)]
        address: ListenerAddress,
        /// ANA state of the paths through a listener.
        #[arg(long, value_name = "STATE")]
        ana: AnaName,
        /// Only for the namespaces of this ANA group; without it for all groups.
        #[arg(long, value_name = "GROUP", requires = "nqn",
            value_parser = clap::value_parser!(u32).range(1..=i64::from(ANA_GROUPS_MAX)))]
        ana_group: Option<u32>,
    },
    /// Listen no longer at an address; its connections stay.
    Remove {
        /// NQN of the subsystem. Only this one is not reached there any more.
        #[arg(short = 'n', long, value_name = "NQN", add = ArgValueCandidates::new(completion::subsystems))]
        nqn: Option<String>,
        /// The address.
        #[command(flatten)]
        address: ListenerAddress,
    },
    /// List listeners of subsystems.
    List {
        /// The subsystem.
        #[command(flatten)]
        subsystem: SubsystemRef,
    },
}

/// `roadtrain ctl host`
#[derive(Clone, Debug, Subcommand)]
pub enum HostCommand {
    /// Let a host, or any host, connect.
    Allow {
        /// The subsystem.
        #[command(flatten)]
        subsystem: SubsystemRef,
        /// NQN of the host.
        #[arg(short = 'q', long, value_name = "NQN", required_unless_present = "any",
            add = ArgValueCandidates::new(completion::hosts))]
        hostnqn: Option<String>,
        /// Any host.
        #[arg(long, conflicts_with_all = ["hostnqn", "dhchap_key", "tls_key"])]
        any: bool,
        /// Its keys.
        #[command(flatten)]
        keys: HostKeyArgs,
        /// Key of the host for TLS. The name of a key, with --group its file.
        #[arg(long, value_name = "KEY", add = ArgValueCandidates::new(completion::keys))]
        tls_key: Option<String>,
    },
    /// Refuse a host, or all that are not named, and end their connections.
    Deny {
        /// The subsystem; with --group and without it the host's keys go as well.
        #[command(flatten)]
        subsystem: SubsystemRef,
        /// NQN of the host.
        #[arg(short = 'q', long, value_name = "NQN", required_unless_present = "any",
            add = ArgValueCandidates::new(completion::hosts))]
        hostnqn: Option<String>,
        /// Any host. Those that are named stay.
        #[arg(long, conflicts_with = "hostnqn")]
        any: bool,
    },
    /// Give a host other keys for authentication, or none; a connected host stays.
    Keys {
        /// The subsystem.
        #[command(flatten)]
        subsystem: SubsystemRef,
        /// The host.
        #[command(flatten)]
        host: HostRef,
        /// Its keys.
        #[command(flatten)]
        keys: HostKeyArgs,
        /// Key of the host for TLS. Its file, with --group.
        #[arg(long, value_name = "KEY", add = ArgValueCandidates::new(completion::keys))]
        tls_key: Option<String>,
    },
    /// Limit what a host does in a second with all namespaces of a subsystem; without an option it is not limited.
    Limit {
        /// The subsystem.
        #[command(flatten)]
        subsystem: SubsystemRef,
        /// The host.
        #[command(flatten)]
        host: HostRef,
        /// Limits.
        #[command(flatten)]
        rates: RateArgs,
    },
    /// List hosts that are named or limited.
    List {
        /// The subsystem.
        #[command(flatten)]
        subsystem: SubsystemRef,
    },
}

/// Keys of a host for authentication: names of `ctl key add`; with --group files, which are read here.
#[derive(Args, Clone, Debug, Default)]
pub struct HostKeyArgs {
    /// Key of the host for authentication (DH-HMAC-CHAP). The name of a key, with --group its file.
    #[arg(long, value_name = "KEY", add = ArgValueCandidates::new(completion::keys))]
    pub dhchap_key: Option<String>,
    /// Key of the target for authentication to the host. The name of a key, with --group its file.
    #[arg(long, value_name = "KEY", requires = "dhchap_key", add = ArgValueCandidates::new(completion::keys))]
    pub dhchap_ctrl_key: Option<String>,
}

/// `roadtrain ctl connection`
#[derive(Clone, Debug, Subcommand)]
pub enum ConnectionCommand {
    /// List hosts that are connected.
    List {
        /// The subsystem.
        #[command(flatten)]
        subsystem: SubsystemRef,
    },
}
