//! TLS and authentication of a target's hosts.

use super::tls::{HostTlsKeyFile, ListenerTls, TlsMode};
use clap::{Args, ValueEnum};
use roadtrain_proto::security::Hash;
use roadtrain_proto::security::dhchap::DhGroup;
use serde::{Deserialize, Serialize};

/// TLS and authentication of a target's hosts.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Security")]
pub struct SecurityArgs {
    /// TLS 1.3 for connections over TCP: off, allowed (targets only), or required, which is meant without a value.
    /// Keys are pre-shared: it needs --tls-key or --keyring, or --tls allowed and --dhchap-key: such a host may make a
    /// key for TLS by authenticating.
    #[arg(long, value_name = "WHEN", num_args = 0..=1, default_value = "off", default_missing_value = "required")]
    pub tls: TlsMode,
    /// The same for one of the addresses of --traddr (repeatable): ADDRESS=off, ADDRESS=allowed or ADDRESS=required.
    #[arg(long = "tls-at", value_name = "ADDRESS=WHEN")]
    pub tls_at: Vec<ListenerTls>,
    /// Key of the host for TLS. Written HOSTNQN=FILE (repeatable): the host is let in with that key.
    #[arg(long = "tls-key", value_name = "KEY")]
    pub tls_keys: Vec<HostTlsKeyFile>,
    /// Keyring with keys for TLS: one of the kernel, by name or number, or a file with a slash in its name as
    /// `nvme tls-key --export` writes it. Hosts with a key there are let in; the one of nvme-cli is .nvme.
    #[arg(long, value_name = "KEYRING")]
    pub keyring: Option<String>,
    /// Key of the host for authentication (DH-HMAC-CHAP). Written HOSTNQN=FILE (repeatable): a file with one line, or with
    /// two while the key is changed. The host always has to authenticate.
    #[arg(long, value_name = "KEY")]
    pub dhchap_key: Vec<String>,
    /// Key of the target for authentication to the host. Written HOSTNQN=FILE (repeatable), for hosts that request it.
    #[arg(long, value_name = "KEY")]
    pub dhchap_ctrl_key: Vec<String>,
    /// Refuse hosts without a key for authentication. Discovery needs keys, too.
    #[arg(long)]
    pub require_auth: bool,
    /// Hashes that may be used, the best first [default: all].
    #[arg(long, value_name = "HASH", value_delimiter = ',')]
    pub dhchap_hash: Vec<HashName>,
    /// Diffie-Hellman groups that may be used, the best first [default: all, null last].
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    pub dhchap_dhgroup: Vec<DhGroupName>,
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
    /// Returns the hash.
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
pub enum DhGroupName {
    Null,
    Ffdhe2048,
    Ffdhe3072,
    Ffdhe4096,
    Ffdhe6144,
    Ffdhe8192,
}

impl DhGroupName {
    /// Returns the group.
    #[must_use]
    pub fn group(self) -> DhGroup {
        match self {
            DhGroupName::Null => DhGroup::Null,
            DhGroupName::Ffdhe2048 => DhGroup::Ffdhe2048,
            DhGroupName::Ffdhe3072 => DhGroup::Ffdhe3072,
            DhGroupName::Ffdhe4096 => DhGroup::Ffdhe4096,
            DhGroupName::Ffdhe6144 => DhGroup::Ffdhe6144,
            DhGroupName::Ffdhe8192 => DhGroup::Ffdhe8192,
        }
    }
}
