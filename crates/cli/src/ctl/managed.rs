//! Keys, Ceph clusters, referrals.

use super::hosts::listen_address;
use super::target::ControlledTarget;
use crate::args::{CephArgs, ClusterCommand, KeyCommand, ReferralCommand};
use crate::failure::CommandResult;
use serde_json::{Value, json};

/// Default port of discovery controllers.
const DISCOVERY_PORT: u16 = 8009;

impl ControlledTarget {
    pub(super) fn key(&self, command: &KeyCommand) -> CommandResult {
        match command {
            KeyCommand::Add { name, file } => {
                let params = json!({"name": name, "path": std::path::absolute(file)?});
                self.change("keyring_file_add_key", &params, &format!("key {name}: added"))
            }
            KeyCommand::Remove { name } => {
                let done = format!("key {name}: removed");
                self.change("keyring_file_remove_key", &json!({"name": name}), &done)
            }
            KeyCommand::List => {
                let keys = self.call("keyring_get_keys", &Value::Null)?;
                let rows = keys.as_array().into_iter().flatten().map(|key| {
                    // The keyring itself counts as one reference.
                    let hosts = key["refcnt"].as_u64().unwrap_or(1).saturating_sub(1);
                    json!({"name": key["name"], "file": key["path"], "host_count": hosts})
                });
                self.table(&["name", "file", "host_count"], rows.collect())
            }
        }
    }

    pub(super) fn cluster(&self, command: &ClusterCommand, ceph: &CephArgs) -> CommandResult {
        match command {
            ClusterCommand::Add { name } => {
                let CephArgs { ceph_conf, ceph_id, ceph_keyring } = ceph;
                let mut params = json!({"name": name});
                if let Some(user) = ceph_id {
                    params["user_id"] = user.as_str().into();
                }
                for (name, file) in [("config_file", ceph_conf), ("key_file", ceph_keyring)] {
                    if let Some(file) = file {
                        params[name] = json!(std::path::absolute(file)?);
                    }
                }
                self.change("bdev_rbd_register_cluster", &params, &format!("cluster {name}: added"))
            }
            ClusterCommand::Remove { name } => {
                let done = format!("cluster {name}: removed");
                self.change("bdev_rbd_unregister_cluster", &json!({"name": name}), &done)
            }
            ClusterCommand::List => {
                let all = self.call("bdev_rbd_get_clusters_info", &Value::Null)?;
                let rows = all.as_array().into_iter().flatten().map(|one| {
                    json!({
                        "name": one["cluster_name"], "ceph_id": one["user_id"],
                        "ceph_conf": one["config_file"], "ceph_keyring": one["key_file"],
                    })
                });
                self.table(&["name", "ceph_id", "ceph_conf", "ceph_keyring"], rows.collect())
            }
        }
    }

    pub(super) fn referral(&self, command: &ReferralCommand) -> CommandResult {
        let params = |address: &str, port: Option<u16>| -> CommandResult<Value> {
            Ok(json!({"address": listen_address(address, port, DISCOVERY_PORT)?}))
        };
        match command {
            ReferralCommand::Add { traddr, trsvcid } => {
                let params = params(traddr, *trsvcid)?;
                let done = format!("referral {traddr}: added");
                self.change("nvmf_discovery_add_referral", &params, &done)
            }
            ReferralCommand::Remove { traddr, trsvcid } => {
                let done = format!("referral {traddr}: removed");
                self.change("nvmf_discovery_remove_referral", &params(traddr, *trsvcid)?, &done)
            }
            ReferralCommand::List => {
                let all = self.call("nvmf_discovery_get_referrals", &Value::Null)?;
                let rows = all.as_array().into_iter().flatten().map(|one| {
                    let address = &one["address"];
                    let lower = |name: &str| address[name].as_str().map(str::to_lowercase);
                    json!({
                        "transport": lower("trtype"), "adrfam": lower("adrfam"),
                        "traddr": address["traddr"], "trsvcid": address["trsvcid"],
                    })
                });
                self.table(&["traddr", "trsvcid"], rows.collect())
            }
        }
    }
}
