//! `roadtrain gateway`, and the options of `serve` that make a target one of a group.

use super::tls::HostKey;
use crate::namespace::NamespaceSpec;
use clap::{Args, Subcommand};
use std::path::PathBuf;

const EXAMPLES: &str = "\
A group's configuration is an object of a pool: all its gateways follow it, within a second or so. A
change is checked, and made as a whole or not at all. Then the command waits until the gateways that
are there have applied it, and says which have not.

Exit status: 0 when it is done, 1 when it failed or a gateway cannot apply it, 2 when the change
makes no sense (nothing is written then), 3 when the cluster cannot be reached.

Examples:
  roadtrain gateway add -p disks -g gates -n nqn.2025-01.io.example:disk --namespace rbd:disks/a
  roadtrain gateway add -p disks -g gates -n nqn.2025-01.io.example:disk \\
      --namespace rbd:disks/b,create=10GiB --allow-host nqn.2025-01.io.example:host7
  roadtrain gateway add -p disks -g gates --dhchap-key nqn.2025-01.io.example:host7=host7.key
  roadtrain gateway show -p disks -g gates
  roadtrain gateway remove -p disks -g gates -n nqn.2025-01.io.example:disk --nsid 2
  roadtrain gateway remove -p disks -g gates -n nqn.2025-01.io.example:disk";

/// Options of `roadtrain gateway`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct GatewayArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: GatewayCommand,
}

/// What can be done with a group.
#[derive(Clone, Debug, Subcommand)]
pub enum GatewayCommand {
    /// Add subsystems, namespaces, hosts and keys.
    #[command(after_help = EXAMPLES)]
    Add(GatewayAddArgs),
    /// Remove a subsystem, a namespace of one, a host, or a gateway that does not come back.
    #[command(after_help = EXAMPLES)]
    Remove(GatewayRemoveArgs),
    /// Show the configuration, which gateways are there, and what they serve.
    #[command(after_help = EXAMPLES)]
    Show(GatewayShowArgs),
}

/// A group, and how to get at it.
#[derive(Args, Clone, Debug)]
pub struct GroupArgs {
    /// Pool with the group's object.
    #[arg(short = 'p', long, value_name = "POOL")]
    pub pool: String,
    /// Name of the group.
    #[arg(short = 'g', long = "gateway-group", value_name = "NAME", visible_alias = "group", value_parser = group_name)]
    pub group: String,
    /// The cluster.
    #[command(flatten)]
    pub ceph: CephArgs,
}

/// How to get at a cluster.
#[derive(Args, Clone, Debug, Default)]
pub struct CephArgs {
    /// Configuration file of the Ceph cluster [default: $CEPH_CONF, or /etc/ceph/ceph.conf].
    #[arg(long, value_name = "FILE", visible_alias = "conf")]
    pub ceph_conf: Option<PathBuf>,
    /// Ceph user, without `client.` [default: admin].
    #[arg(long, value_name = "NAME")]
    pub ceph_id: Option<String>,
    /// File with that user's key [default: as the configuration file says].
    #[arg(long, value_name = "FILE")]
    pub ceph_keyring: Option<PathBuf>,
}

/// Options of `serve` for a gateway of a group.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Gateway group")]
pub struct MemberArgs {
    /// Take subsystems, namespaces, hosts and keys from this group's object in the pool of --pool, and share its images
    /// with its other gateways; see `roadtrain gateway`.
    #[arg(long, value_name = "NAME", requires = "pool", value_parser = group_name, conflicts_with_all = [
        "config", "nqn", "namespaces", "serial", "model", "allow_hosts", "dhchap_key", "dhchap_ctrl_key",
        "require_auth", "tls_keys", "takeover", "print_config", "check_config", "rpc", "rpc_http", "state"])]
    pub gateway_group: Option<String>,
    /// Pool with the group's object.
    #[arg(long, value_name = "POOL", requires = "gateway_group")]
    pub pool: Option<String>,
    /// Name of this gateway in the group, which no other one has, and which it keeps [default: the machine's name].
    #[arg(long, value_name = "NAME", requires = "gateway_group", value_parser = group_name)]
    pub gateway: Option<String>,
    /// The cluster.
    #[command(flatten)]
    pub ceph: CephArgs,
}

/// What is added.
#[derive(Args, Clone, Debug)]
pub struct GatewayAddArgs {
    /// Where.
    #[command(flatten)]
    pub group: GroupArgs,
    /// NQN of the subsystem, which is made if it is not there.
    #[arg(short = 'n', long, value_name = "NQN", alias = "subnqn")]
    pub nqn: Option<String>,
    /// Its serial number, 1 to 20 characters [default: a random one].
    #[arg(long, value_name = "TEXT", requires = "nqn")]
    pub serial: Option<String>,
    /// Its model number, 1 to 40 characters.
    #[arg(long, value_name = "TEXT", requires = "nqn")]
    pub model: Option<String>,
    /// An image, such as rbd:POOL/IMAGE or rbd:POOL/IMAGE,create=10GiB; `roadtrain serve --help` has the options. Each
    /// gateway has conf, id and keyring of its own. Repeatable.
    #[arg(long = "namespace", value_name = "SPEC", requires = "nqn")]
    pub namespaces: Vec<NamespaceSpec>,
    /// Only hosts with this NQN, and those that were added before, may use the subsystem. Repeatable.
    #[arg(long = "allow-host", value_name = "NQN", requires = "nqn")]
    pub allow_hosts: Vec<String>,
    /// Hosts without a key for authentication may not use the subsystem.
    #[arg(long, requires = "nqn")]
    pub require_auth: bool,
    /// Connections without TLS may not use the subsystem: its gateways need --tls.
    #[arg(long, requires = "nqn")]
    pub require_tls: bool,
    /// Key of a host for authentication (DH-HMAC-CHAP), from a file with one line. Repeatable.
    #[arg(long, value_name = "HOSTNQN=FILE")]
    pub dhchap_key: Vec<HostKey>,
    /// Key by which the target proves who it is to a host that asks for that. Repeatable.
    #[arg(long, value_name = "HOSTNQN=FILE")]
    pub dhchap_ctrl_key: Vec<HostKey>,
    /// Key of a host for TLS, from a file with one line. Repeatable.
    #[arg(long = "tls-key", value_name = "HOSTNQN=FILE")]
    pub tls_keys: Vec<HostKey>,
}

/// What is removed.
#[derive(Args, Clone, Debug)]
pub struct GatewayRemoveArgs {
    /// Where.
    #[command(flatten)]
    pub group: GroupArgs,
    /// NQN of the subsystem: alone, all of it goes. Its images stay.
    #[arg(short = 'n', long, value_name = "NQN", alias = "subnqn")]
    pub nqn: Option<String>,
    /// Namespaces of the subsystem that go. Repeatable.
    #[arg(long, visible_alias = "namespace-id", value_name = "NSID", requires = "nqn")]
    pub nsid: Vec<u32>,
    /// Hosts that may not use the subsystem any more. Repeatable.
    #[arg(long = "allow-host", value_name = "NQN", requires = "nqn")]
    pub allow_hosts: Vec<String>,
    /// Hosts whose keys go, and that no subsystem admits by name any more. Repeatable.
    #[arg(long = "host", value_name = "NQN")]
    pub hosts: Vec<String>,
    /// A gateway that is away, and does not come back. Repeatable.
    #[arg(long = "gateway", value_name = "NAME")]
    pub gateways: Vec<String>,
}

/// What is shown.
#[derive(Args, Clone, Debug)]
pub struct GatewayShowArgs {
    /// Where.
    #[command(flatten)]
    pub group: GroupArgs,
}

/// Longest name of a group or a gateway.
const NAME_BYTES_MAX: usize = 64;

fn group_name(text: &str) -> Result<String, String> {
    is_name(text).then(|| text.to_owned()).ok_or_else(|| {
        format!("a name has 1 to {NAME_BYTES_MAX} letters, digits, '.', '-' and '_'")
    })
}

fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_plain)
}
