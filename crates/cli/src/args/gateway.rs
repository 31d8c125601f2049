//! Options of `serve` that make a target a gateway of a group.

use clap::Args;
use std::path::PathBuf;

/// Access to a Ceph cluster.
#[derive(Args, Clone, Debug, Default)]
pub struct CephArgs {
    /// Configuration file of the Ceph cluster [default: $CEPH_CONF, or /etc/ceph/ceph.conf].
    #[arg(long, value_name = "FILE", visible_alias = "conf", global = true)]
    pub ceph_conf: Option<PathBuf>,
    /// Ceph user, without `client.` [default: admin].
    #[arg(long, value_name = "NAME", alias = "user", global = true)]
    pub ceph_id: Option<String>,
    /// File with that user's key [default: as the configuration file says].
    #[arg(long, value_name = "FILE", global = true)]
    pub ceph_keyring: Option<PathBuf>,
}

/// Options of `serve` for a gateway of a group.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Gateway group")]
pub struct MemberArgs {
    /// Group of gateways, whose configuration is in a Ceph cluster. Subsystems, namespaces, hosts and keys are those of
    /// its object in --pool, and its images are shared with its other gateways; `roadtrain ctl --group` changes it.
    #[arg(long = "group", alias = "gateway-group", value_name = "NAME", requires = "pool", value_parser = group_name, conflicts_with_all = [
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

/// Longest name of a group or a gateway.
const NAME_BYTES_MAX: usize = 64;

pub(super) fn group_name(text: &str) -> Result<String, String> {
    is_name(text).then(|| text.to_owned()).ok_or_else(|| {
        format!("a name has 1 to {NAME_BYTES_MAX} letters, digits, '.', '-' and '_'")
    })
}

fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_plain)
}
