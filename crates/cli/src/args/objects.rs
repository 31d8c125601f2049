//! What `roadtrain ctl` makes, changes and removes.

use super::known;
use crate::namespace::NamespaceSpec;
use crate::rates::RateArgs;
use crate::units::parse_size;
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCandidates;
use std::path::PathBuf;

/// `roadtrain ctl device`
#[derive(Clone, Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, and it lives as long as the program")]
pub enum DeviceCommand {
    /// Make a device.
    Add {
        /// Its name.
        name: String,
        /// Such as mem:1GiB, null:1TiB,lba=4096, file:/srv/disk.img, block:/dev/sdb or rbd:POOL/IMAGE (options: lba, ro,
        /// uuid, and id of an image).
        spec: NamespaceSpec,
        /// The Ceph cluster of an image, by the name that it has here.
        #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(known::clusters))]
        cluster: Option<String>,
    },
    /// Remove a device, its namespace first; its file stays.
    Remove {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(known::devices))]
        name: String,
    },
    /// Give a null device or an image of a Ceph cluster another size, or look at the size of a file or block device again.
    Resize {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(known::devices))]
        name: String,
        /// Of a null device or an image, which can only grow.
        #[arg(value_parser = parse_size)]
        size: Option<u64>,
    },
    /// Show devices.
    List,
}

/// `roadtrain ctl subsystem`
#[derive(Clone, Debug, Subcommand)]
pub enum SubsystemCommand {
    /// Make a subsystem, which no host may use yet.
    Add {
        /// Its NQN.
        nqn: String,
        /// Serial number, at most 20 characters.
        #[arg(long)]
        serial: Option<String>,
        /// Model number, at most 40 characters.
        #[arg(long)]
        model: Option<String>,
        /// Most namespaces [default: 32].
        #[arg(long, value_name = "N")]
        max_namespaces: Option<u32>,
        /// Let any host use it.
        #[arg(long)]
        any_host: bool,
        /// Its listeners may have ANA states of their own.
        #[arg(long)]
        ana: bool,
    },
    /// Remove a subsystem; its connections end, its devices stay.
    Remove {
        /// Its NQN.
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: String,
    },
    /// Show subsystems.
    List,
}

/// `roadtrain ctl namespace`
#[derive(Clone, Debug, Subcommand)]
pub enum NamespaceCommand {
    /// Show a device to hosts.
    Add {
        /// NQN of the subsystem.
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: String,
        /// Name of the device.
        #[arg(add = ArgValueCandidates::new(known::devices))]
        device: String,
        /// Namespace ID [default: the first that is free].
        #[arg(long)]
        nsid: Option<u32>,
        /// What hosts know it by [default: the device's UUID].
        #[arg(long)]
        uuid: Option<String>,
        /// The same as 32 hexadecimal digits [default: made of the UUID].
        #[arg(long)]
        nguid: Option<String>,
        /// File for reservations that persist through power loss, below file_roots.
        #[arg(long, value_name = "FILE")]
        reservations: Option<PathBuf>,
    },
    /// Let a namespace do so much in a second, whoever uses it; without an option it is not limited.
    Limit {
        /// NQN of the subsystem.
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: String,
        /// Namespace ID.
        #[arg(add = ArgValueCandidates::new(known::nsids))]
        nsid: u32,
        /// So much.
        #[command(flatten)]
        rates: RateArgs,
    },
    /// Remove a namespace; its device stays.
    Remove {
        /// NQN of the subsystem.
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: String,
        /// Namespace ID.
        #[arg(add = ArgValueCandidates::new(known::nsids))]
        nsid: u32,
    },
    /// The same as `ctl device resize` for its device.
    Resize {
        /// NQN of the subsystem.
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: String,
        /// Namespace ID.
        #[arg(add = ArgValueCandidates::new(known::nsids))]
        nsid: u32,
        /// Of a null device or an image, which can only grow.
        #[arg(value_parser = parse_size)]
        size: Option<u64>,
    },
    /// Show namespaces.
    List {
        /// NQN of a subsystem [default: all].
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: Option<String>,
    },
}

/// `roadtrain ctl listener`
#[derive(Clone, Debug, Subcommand)]
pub enum ListenerCommand {
    /// Let hosts reach a subsystem at an address.
    Add {
        /// NQN of the subsystem.
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: String,
        /// ADDRESS or ADDRESS:PORT (an IPv6 address with a port in brackets) [port: 4420].
        address: String,
        /// Take only connections with TLS.
        #[arg(long)]
        tls: bool,
        /// How good its path is, of a subsystem that was made with --ana [default: optimized].
        #[arg(long, value_name = "STATE")]
        ana: Option<PathState>,
    },
    /// Say how good the path of a listener is, for a subsystem that was made with --ana. It is kept.
    Ana {
        /// NQN of the subsystem.
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: String,
        /// As for add.
        #[arg(add = ArgValueCandidates::new(known::listeners))]
        address: String,
        /// Its state.
        state: PathState,
    },
    /// Take that back; connections that are there stay.
    Remove {
        /// NQN of the subsystem.
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: String,
        /// As for add.
        #[arg(add = ArgValueCandidates::new(known::listeners))]
        address: String,
    },
    /// Show listeners.
    List {
        /// NQN of a subsystem [default: all].
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: Option<String>,
    },
}

/// `roadtrain ctl host`
#[derive(Clone, Debug, Subcommand)]
pub enum HostCommand {
    /// Let a host, or any, use a subsystem.
    Allow {
        /// NQN of the subsystem.
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: String,
        /// NQN of the host.
        #[arg(required_unless_present = "any")]
        host: Option<String>,
        /// Any host.
        #[arg(long, conflicts_with_all = ["host", "dhchap_key", "psk"])]
        any: bool,
        /// With which the host proves who it is.
        #[command(flatten)]
        keys: AuthenticationKeys,
        /// Name of its key for TLS.
        #[arg(long, value_name = "KEY", add = ArgValueCandidates::new(known::keys))]
        psk: Option<String>,
    },
    /// Give a host other keys for authentication, or none; one that is connected stays.
    SetKeys {
        /// NQN of the subsystem.
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: String,
        /// NQN of the host.
        #[arg(add = ArgValueCandidates::new(known::hosts))]
        host: String,
        /// Which.
        #[command(flatten)]
        keys: AuthenticationKeys,
    },
    /// Let a host do so much in a second with all namespaces of a subsystem; without an option it is not limited.
    Limit {
        /// NQN of the subsystem.
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: String,
        /// NQN of the host, which need not be among those that are named.
        #[arg(add = ArgValueCandidates::new(known::hosts))]
        host: String,
        /// So much.
        #[command(flatten)]
        rates: RateArgs,
    },
    /// Take that back; connections end.
    Deny {
        /// NQN of the subsystem.
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: String,
        /// NQN of the host.
        #[arg(required_unless_present = "any", add = ArgValueCandidates::new(known::hosts))]
        host: Option<String>,
        /// All but those that are named.
        #[arg(long, conflicts_with = "host")]
        any: bool,
    },
    /// Show hosts that are named or limited.
    List {
        /// NQN of a subsystem [default: all].
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: Option<String>,
    },
}

/// Names of a host's keys for authentication.
#[derive(Args, Clone, Debug)]
pub struct AuthenticationKeys {
    /// Name of the key with which the host proves who it is.
    #[arg(long, value_name = "KEY", add = ArgValueCandidates::new(known::keys))]
    pub dhchap_key: Option<String>,
    /// Name of the key with which the target proves who it is.
    #[arg(long, value_name = "KEY", requires = "dhchap_key", add = ArgValueCandidates::new(known::keys))]
    pub dhchap_ctrlr_key: Option<String>,
}

/// How good the path of a listener is, as far as it can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathState {
    /// As good as can be.
    Optimized,
    /// Used by hosts that have no optimized one.
    NonOptimized,
    /// Used by nobody.
    Inaccessible,
}
