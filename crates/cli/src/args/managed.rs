//! What `roadtrain ctl` makes and removes that is not of one subsystem: keys, Ceph clusters, referrals, everything.

use super::known;
use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use std::path::PathBuf;

/// `roadtrain ctl key`
#[derive(Clone, Debug, Subcommand)]
pub enum KeyCommand {
    /// Have the target read a key, and give it a name.
    Add {
        /// Its name.
        name: String,
        /// Its file, which nobody else may read, below file_roots.
        file: PathBuf,
    },
    /// Forget a key that no host has; its file stays.
    Remove {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(known::keys))]
        name: String,
    },
    /// Show the names of keys.
    List,
}

/// `roadtrain ctl cluster`
#[derive(Clone, Debug, Subcommand)]
pub enum ClusterCommand {
    /// Give a Ceph cluster a name.
    Add {
        /// Its name.
        name: String,
        /// Ceph user whose rights are used, without `client.` [default: admin].
        #[arg(long = "user", value_name = "NAME")]
        user: Option<String>,
        /// The cluster's configuration file, below file_roots [default: Ceph's].
        #[arg(long, value_name = "FILE")]
        conf: Option<PathBuf>,
        /// File with the user's key, below file_roots [default: as the configuration file says].
        #[arg(long, value_name = "FILE")]
        keyring: Option<PathBuf>,
    },
    /// Take that back; no device may use it.
    Remove {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(known::clusters))]
        name: String,
    },
    /// Show Ceph clusters that have a name.
    List,
}

/// `roadtrain ctl referral`
#[derive(Clone, Debug, Subcommand)]
pub enum ReferralCommand {
    /// Refer hosts to another discovery controller.
    Add {
        /// ADDRESS or ADDRESS:PORT (an IPv6 address with a port in brackets) [port: 8009].
        address: String,
    },
    /// Refer hosts to it no more.
    Remove {
        /// As for add.
        #[arg(add = ArgValueCandidates::new(known::referrals))]
        address: String,
    },
    /// Show other discovery controllers.
    List,
}

/// `roadtrain ctl config`
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Write down what makes again what was made here, in the format of SPDK's save_config.
    Save {
        /// File [default: stdout].
        #[arg(short = 'o', long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Make what was saved, at a target that has none of it; it stops where the target refuses.
    Load {
        /// File; - is stdin.
        file: PathBuf,
    },
}
