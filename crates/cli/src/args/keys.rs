//! `roadtrain keys`

use clap::{Args, Subcommand, ValueEnum};
use roadtrain_proto::security::Hash;

const KEYS_EXAMPLES: &str = "\
Keys are lines NVMeTLSkey-1:.. for TLS and DHHC-1:.. for authentication (DH-HMAC-CHAP), as nvme-cli
writes and reads them. Both ends need the same line. Keep it in a file of mode 0600.

Examples:
  (umask 077; roadtrain keys tls > host.tls)
  (umask 077; roadtrain keys dhchap > host.key)
  roadtrain keys show host.key
  roadtrain keys show host.tls --hostnqn nqn.2025-01.io.example:host \\
      --nqn nqn.2025-01.io.example:disk";

/// `roadtrain keys`
#[derive(Args, Clone, Debug)]
#[command(after_help = KEYS_EXAMPLES)]
pub struct KeysArgs {
    /// Action.
    #[command(subcommand)]
    pub command: KeysCommand,
}

/// Operations on keys.
#[derive(Clone, Debug, Subcommand)]
pub enum KeysCommand {
    /// Print a new key for TLS.
    Tls(TlsKeyArgs),
    /// Print a new key for authentication.
    Dhchap(DhchapKeyArgs),
    /// Check a key, and show what is derived of it.
    Show(ShowKeyArgs),
}

const TLS_EXAMPLES: &str = "\
Examples:
  (umask 077; roadtrain keys tls > host.tls)
  roadtrain keys tls --hmac sha384";

/// `roadtrain keys tls`
#[derive(Args, Clone, Debug)]
#[command(after_help = TLS_EXAMPLES)]
pub struct TlsKeyArgs {
    /// Hash of the key. sha256 goes with AES-128-GCM, sha384 with AES-256-GCM.
    #[arg(short = 'm', long, value_name = "HASH", default_value = "sha256")]
    pub hmac: TlsHash,
    /// Bytes of the key in hexadecimal; others can see them on a command line. As many as the hash has [default: random].
    #[arg(short = 's', long, value_name = "HEX")]
    pub secret: Option<String>,
}

/// The hashes of keys for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsHash {
    /// SHA-256.
    #[value(alias = "1")]
    Sha256,
    /// SHA-384.
    #[value(alias = "2")]
    Sha384,
}

impl TlsHash {
    /// Returns the hash.
    #[must_use]
    pub fn hash(self) -> Hash {
        match self {
            TlsHash::Sha256 => Hash::Sha256,
            TlsHash::Sha384 => Hash::Sha384,
        }
    }
}

const DHCHAP_EXAMPLES: &str = "\
Examples:
  (umask 077; roadtrain keys dhchap > host.key)
  roadtrain keys dhchap --hmac sha512
  roadtrain keys dhchap --hmac sha256 --hostnqn nqn.2025-01.io.example:host";

/// `roadtrain keys dhchap`
#[derive(Args, Clone, Debug)]
#[command(after_help = DHCHAP_EXAMPLES)]
pub struct DhchapKeyArgs {
    /// Hash of the key. Both ends bind the key to its owner's NQN by it; none: they use it as it is.
    #[arg(short = 'm', long, value_name = "HASH", default_value = "sha256", alias = "hash")]
    pub hmac: DhchapHash,
    /// NQN of the host. The key is printed transformed for it, as by nvme gen-dhchap-key [default: not transformed].
    #[arg(short = 'q', long, value_name = "NQN", alias = "host-nqn", conflicts_with = "nqn")]
    pub hostnqn: Option<String>,
    /// NQN of the subsystem. The same for the key of a target [default: not transformed].
    #[arg(short = 'n', long, value_name = "NQN", alias = "subnqn")]
    pub nqn: Option<String>,
    /// Bytes of the key in hexadecimal; others can see them on a command line. 32, 48 or 64 of them [default: random].
    #[arg(short = 's', long, value_name = "HEX")]
    pub secret: Option<String>,
}

/// The hashes of keys for authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DhchapHash {
    /// SHA-256.
    #[value(alias = "1")]
    Sha256,
    /// SHA-384.
    #[value(alias = "2")]
    Sha384,
    /// SHA-512.
    #[value(alias = "3")]
    Sha512,
    /// None: the key is used as it is.
    #[value(alias = "0")]
    None,
}

impl DhchapHash {
    /// Returns the hash; `None` for a key that is used as it is.
    #[must_use]
    pub fn hash(self) -> Option<Hash> {
        match self {
            DhchapHash::Sha256 => Some(Hash::Sha256),
            DhchapHash::Sha384 => Some(Hash::Sha384),
            DhchapHash::Sha512 => Some(Hash::Sha512),
            DhchapHash::None => None,
        }
    }
}

const SHOW_EXAMPLES: &str = "\
A TLS key with --hostnqn and --nqn shows the identity of its PSK, and with --reveal the PSK.
A key for authentication shows with --reveal what it is transformed to, for the NQNs given.

Examples:
  roadtrain keys show host.key
  roadtrain keys show host.tls --hostnqn nqn.2025-01.io.example:host \\
      --nqn nqn.2025-01.io.example:disk --reveal";

/// `roadtrain keys show`
#[derive(Args, Clone, Debug)]
#[command(after_help = SHOW_EXAMPLES)]
pub struct ShowKeyArgs {
    /// The key, or a file with its line (- for stdin); others can see a key on a command line.
    #[arg(value_name = "FILE|KEY")]
    pub key: String,
    /// NQN of the host.
    #[arg(short = 'q', long, value_name = "NQN", alias = "host-nqn")]
    pub hostnqn: Option<String>,
    /// NQN of the subsystem.
    #[arg(short = 'n', long, value_name = "NQN", alias = "subnqn")]
    pub nqn: Option<String>,
    /// Version of the identity; 0 is obsolete.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub identity: u8,
    /// Derive as libnvme before 1.16 does.
    #[arg(long)]
    pub compat: bool,
    /// Show the secret that is derived, in hexadecimal.
    #[arg(long)]
    pub reveal: bool,
}
