//! Objects other than subsystems: devices, keys, Ceph clusters, referrals, gateways, the whole configuration.

use super::super::completion;
use crate::namespace::NamespaceSettings;
use crate::units::parse_size;
use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use std::path::PathBuf;

/// `roadtrain ctl device`
#[derive(Clone, Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, and it lives as long as the program")]
pub enum DeviceCommand {
    /// Add a device; `ctl namespace add device:NAME` shows it to hosts.
    Add {
        /// Its name.
        name: String,
        /// Such as mem:1GiB, ssd:1GiB,service-us=100, null:1TiB,lba=4096, file:/srv/disk.img,size=2GiB, block:/dev/sdb or
        /// rbd:POOL/IMAGE (options: lba, ro, uuid, size of a file that is to be made, service-us and parallel of an ssd,
        /// and id of an image; `ctl namespace add` takes the others).
        #[arg(value_name = "SPEC")]
        spec: NamespaceSettings,
        /// The Ceph cluster of an image, by the name of `ctl cluster add`.
        #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(completion::clusters))]
        cluster: Option<String>,
    },
    /// Remove a device, its namespace first; its file stays.
    Remove {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(completion::devices))]
        name: String,
    },
    /// Give a null device or an image another size, or read the size of a file or block device again.
    Resize {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(completion::devices))]
        name: String,
        /// New size of a null device or an image, which can only grow.
        #[arg(value_parser = parse_size)]
        size: Option<u64>,
    },
    /// List devices.
    List,
}

/// `roadtrain ctl key`
#[derive(Clone, Debug, Subcommand)]
pub enum KeyCommand {
    /// Read a key, and give it a name.
    Add {
        /// Its name.
        name: String,
        /// Its file, which no other user may read.
        file: PathBuf,
    },
    /// Forget a key that no host has; its file stays.
    Remove {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(completion::keys))]
        name: String,
    },
    /// List the names of keys.
    List,
}

/// `roadtrain ctl cluster`
#[derive(Clone, Debug, Subcommand)]
pub enum ClusterCommand {
    /// Give a Ceph cluster a name.
    Add {
        /// Its name; --ceph-conf, --ceph-id and --ceph-keyring say what it stands for.
        name: String,
    },
    /// Forget a Ceph cluster that no device uses.
    Remove {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(completion::clusters))]
        name: String,
    },
    /// List Ceph clusters that have a name.
    List,
}

/// `roadtrain ctl referral`
#[derive(Clone, Debug, Subcommand)]
pub enum ReferralCommand {
    /// Refer hosts to another discovery controller.
    Add {
        /// Transport address. With :PORT or without; before :PORT an IPv6 address is in brackets.
        #[arg(short = 'a', long, value_name = "ADDRESS")]
        traddr: String,
        /// TCP port [default: 8009].
        #[arg(short = 's', long, value_name = "PORT")]
        trsvcid: Option<u16>,
    },
    /// Refer hosts to it no more.
    Remove {
        /// Transport address. With :PORT or without; before :PORT an IPv6 address is in brackets.
        #[arg(short = 'a', long, value_name = "ADDRESS", add = ArgValueCandidates::new(completion::referrals))]
        traddr: String,
        /// TCP port [default: 8009].
        #[arg(short = 's', long, value_name = "PORT")]
        trsvcid: Option<u16>,
    },
    /// List other discovery controllers.
    List,
}

/// `roadtrain ctl gateway`
#[derive(Clone, Debug, Subcommand)]
pub enum GatewayCommand {
    /// Show the gateways of a group, what they serve, and its configuration.
    List,
    /// Forget a gateway that is down and does not come back.
    Remove {
        /// Its name.
        name: String,
    },
}

/// `roadtrain ctl config`
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print what is served now, as a configuration file of `roadtrain serve`, without keys.
    Show,
    /// Show what a reload would change, and what is both in the file and in the state.
    Diff,
    /// Write what is served now, with keys, to a file that `roadtrain serve --config` takes.
    Save {
        /// File [default: stdout].
        #[arg(short = 'o', long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write the state instead, in the format of SPDK's save_config.
        #[arg(long)]
        spdk: bool,
    },
    /// Make the subsystems of a configuration file, or those of an SPDK save_config file, in addition to the present
    /// ones.
    Load {
        /// File; - is stdin.
        file: PathBuf,
    },
    /// Read the configuration file again, as at SIGHUP.
    Reload,
}
