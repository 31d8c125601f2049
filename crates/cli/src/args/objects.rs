//! What `roadtrain ctl` makes, changes and removes.

use super::known;
use crate::namespace::NamespaceSpec;
use crate::units::parse_size;
use clap::Subcommand;
use clap_complete::ArgValueCandidates;

/// `roadtrain ctl device`
#[derive(Clone, Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, and it lives as long as the program")]
pub enum DeviceCommand {
    /// Make a device.
    Add {
        /// Its name.
        name: String,
        /// Such as mem:1GiB, null:1TiB,lba=4096, file:/srv/disk.img or block:/dev/sdb (options: lba, ro, uuid).
        spec: NamespaceSpec,
    },
    /// Remove a device, its namespace first; its file stays.
    Remove {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(known::devices))]
        name: String,
    },
    /// Give a null device another size, or look at the size of a file or block device again.
    Resize {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(known::devices))]
        name: String,
        /// Of a null device.
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
        /// Of a null device.
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
        #[arg(long, conflicts_with = "host")]
        any: bool,
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
    /// Show hosts that are named.
    List {
        /// NQN of a subsystem [default: all].
        #[arg(add = ArgValueCandidates::new(known::subsystems))]
        nqn: Option<String>,
    },
}
