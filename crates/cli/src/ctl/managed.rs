//! Keys, Ceph clusters, referrals, and all that there is in one file, by the target's JSON-RPC methods.

use super::objects::{Desk, listen_address};
use crate::args::{ClusterCommand, ConfigCommand, KeyCommand, ReferralCommand};
use crate::failure::{Failure, Outcome};
use crate::output;
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// That of discovery controllers.
const DISCOVERY_PORT: u16 = 8009;
/// It can be called once, and may have been.
const TRANSPORT: &str = "nvmf_create_transport";

impl Desk<'_> {
    pub(super) fn key(&self, command: &KeyCommand) -> Outcome {
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
                    // One of those who have it is the keyring itself.
                    let hosts = key["refcnt"].as_u64().unwrap_or(1).saturating_sub(1);
                    json!({"name": key["name"], "file": key["path"], "hosts": hosts})
                });
                self.table(&["NAME", "FILE", "HOSTS"], &["name", "file", "hosts"], rows.collect())
            }
        }
    }

    pub(super) fn cluster(&self, command: &ClusterCommand) -> Outcome {
        match command {
            ClusterCommand::Add { name, user, conf, keyring } => {
                let mut params = json!({"name": name});
                if let Some(user) = user {
                    params["user_id"] = user.as_str().into();
                }
                for (name, file) in [("config_file", conf), ("key_file", keyring)] {
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
                        "name": one["cluster_name"], "user": one["user_id"],
                        "conf": one["config_file"], "keyring": one["key_file"],
                    })
                });
                let head = ["NAME", "USER", "CONF", "KEYRING"];
                self.table(&head, &["name", "user", "conf", "keyring"], rows.collect())
            }
        }
    }

    pub(super) fn referral(&self, command: &ReferralCommand) -> Outcome {
        let params = |address: &str| -> Outcome<Value> {
            Ok(json!({"address": listen_address(address, DISCOVERY_PORT)?}))
        };
        match command {
            ReferralCommand::Add { address } => {
                let params = params(address)?;
                let done = format!("referral {address}: added");
                self.change("nvmf_discovery_add_referral", &params, &done)
            }
            ReferralCommand::Remove { address } => {
                let done = format!("referral {address}: removed");
                self.change("nvmf_discovery_remove_referral", &params(address)?, &done)
            }
            ReferralCommand::List => {
                let all = self.call("nvmf_discovery_get_referrals", &Value::Null)?;
                let rows = all.as_array().into_iter().flatten().map(|one| one["address"].clone());
                self.table(&["ADDRESS", "PORT"], &["traddr", "trsvcid"], rows.collect())
            }
        }
    }

    pub(super) fn config(&self, command: &ConfigCommand) -> Outcome {
        match command {
            ConfigCommand::Save { output } => self.save(output.as_deref()),
            ConfigCommand::Load { file } => self.load(file),
        }
    }

    fn save(&self, path: Option<&Path>) -> Outcome {
        let all = self.call("framework_get_subsystems", &Value::Null)?;
        let mut subsystems = Vec::new();
        for one in all.as_array().into_iter().flatten() {
            let name = &one["subsystem"];
            let config = self.call("framework_get_config", &json!({"name": name}))?;
            subsystems.push(json!({"subsystem": name, "config": config}));
        }
        let saved = json!({"subsystems": subsystems});
        let Some(path) = path else { return output::json(&saved) };
        let failed =
            |error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
        let text = serde_json::to_string_pretty(&saved).map_err(std::io::Error::from)?;
        std::fs::write(path, text + "\n").map_err(failed)?;
        match self.json {
            true => output::json(&json!(true)),
            false => output::line(&format!("saved to {}", path.display())),
        }
    }

    fn load(&self, path: &Path) -> Outcome {
        let unfit =
            |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", path.display()));
        let mut text = String::new();
        let read = match path == Path::new("-") {
            true => std::io::stdin().read_to_string(&mut text).map(drop),
            false => std::fs::read_to_string(path).map(|all| text = all),
        };
        read.map_err(|error| unfit(&error))?;
        let saved: Value = serde_json::from_str(&text).map_err(|error| unfit(&error))?;
        let calls = calls(&saved).ok_or_else(|| unfit(&"nobody has saved that"))?;
        let there = self.call("framework_get_config", &json!({"name": "nvmf"}))?;
        let there = there.as_array().into_iter().flatten();
        let has_transport = there.into_iter().any(|call| call["method"] == TRANSPORT);
        let calls: Vec<_> =
            calls.into_iter().filter(|(name, _)| !has_transport || *name != TRANSPORT).collect();
        for (done, (method, params)) in calls.iter().enumerate() {
            self.call(method, params).inspect_err(|_| {
                tracing::warn!("{done} of {} calls were done before this one", calls.len());
            })?;
        }
        match self.json {
            true => output::json(&json!({"calls": calls.len()})),
            false => output::line(&format!("{} calls done", calls.len())),
        }
    }
}

/// The calls of what was saved, in their order; `None`: it was not.
fn calls(saved: &Value) -> Option<Vec<(&str, &Value)>> {
    let mut calls = Vec::new();
    for subsystem in saved["subsystems"].as_array()? {
        // SPDK has null where there is nothing.
        for call in subsystem["config"].as_array().into_iter().flatten() {
            calls.push((call["method"].as_str()?, &call["params"]));
        }
    }
    Some(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_a_list_of_calls() {
        let saved = json!({"subsystems": [
            {"subsystem": "keyring", "config": null},
            {"subsystem": "bdev", "config": [{"method": "a", "params": {"b": 1}}, {"method": "c"}]},
        ]});
        assert_eq!(calls(&saved), Some(vec![("a", &json!({"b": 1})), ("c", &Value::Null)]));
        for odd in [json!([]), json!({"subsystems": [{"config": [{"params": {}}]}]})] {
            assert_eq!(calls(&odd), None, "{odd}");
        }
    }
}
