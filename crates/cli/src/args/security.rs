//! Whom a target believes.

use super::tls::{HostKey, TlsAt, TlsMode};
use clap::{Args, ValueEnum};
use roadtrain_proto::security::Hash;
use roadtrain_proto::security::dhchap::Group;
use serde::{Deserialize, Serialize};

/// Whom a target believes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Security")]
pub struct SecurityArgs {
    /// Whether connections over TCP are secured by TLS 1.3 with pre-shared keys; needs --tls-key or --keyring, or --tls
    /// allowed and --dhchap-key: such a host may make a key for TLS by authenticating.
    #[arg(long, value_name = "WHEN", default_value = "off")]
    pub tls: TlsMode,
    /// The same for one of the addresses of --traddr (repeatable): ADDRESS=off, ADDRESS=allowed or ADDRESS=required.
    #[arg(long = "tls-at", value_name = "ADDRESS=WHEN")]
    pub tls_at: Vec<TlsAt>,
    /// A host that is let in with TLS, and the file with its key (repeatable).
    #[arg(long = "tls-key", value_name = "HOSTNQN=FILE")]
    pub tls_keys: Vec<HostKey>,
    /// Hosts that are let in with TLS: those that have keys in a keyring of the kernel (by name or number, as .nvme), or
    /// in a file with a slash in its name as `nvme tls-key --export` writes it.
    #[arg(long, value_name = "KEYRING")]
    pub keyring: Option<String>,
    /// Key of a host for authentication (DH-HMAC-CHAP), a file with one line, or with two while the key is changed
    /// (repeatable): the host is always asked for it.
    #[arg(long, value_name = "HOSTNQN=FILE")]
    pub dhchap_key: Vec<String>,
    /// Key by which the target proves who it is to a host that asks for that (repeatable).
    #[arg(long, value_name = "HOSTNQN=FILE")]
    pub dhchap_ctrl_key: Vec<String>,
    /// Refuse hosts without a key; discovery asks for keys, too.
    #[arg(long)]
    pub require_auth: bool,
    /// Hashes that may be used, the best first [default: all].
    #[arg(long, value_name = "HASH", value_delimiter = ',')]
    pub dhchap_hash: Vec<HashName>,
    /// Diffie-Hellman groups that may be used, the best first [default: all, null last].
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    pub dhchap_dhgroup: Vec<GroupName>,
}

/// A hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are the hashes' own")]
pub enum HashName {
    Sha256,
    Sha384,
    Sha512,
}

impl HashName {
    /// The hash.
    #[must_use]
    pub fn hash(self) -> Hash {
        match self {
            HashName::Sha256 => Hash::Sha256,
            HashName::Sha384 => Hash::Sha384,
            HashName::Sha512 => Hash::Sha512,
        }
    }
}

/// A Diffie-Hellman group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are the groups' own")]
pub enum GroupName {
    Null,
    Ffdhe2048,
    Ffdhe3072,
    Ffdhe4096,
    Ffdhe6144,
    Ffdhe8192,
}

impl GroupName {
    /// The group.
    #[must_use]
    pub fn group(self) -> Group {
        match self {
            GroupName::Null => Group::Null,
            GroupName::Ffdhe2048 => Group::Ffdhe2048,
            GroupName::Ffdhe3072 => Group::Ffdhe3072,
            GroupName::Ffdhe4096 => Group::Ffdhe4096,
            GroupName::Ffdhe6144 => Group::Ffdhe6144,
            GroupName::Ffdhe8192 => Group::Ffdhe8192,
        }
    }
}
