//! Volumes and their stores.

use super::target::ControlledTarget;
use crate::args::{StoreCommand, VolumeCommand};
use crate::failure::{CommandFailure, CommandResult};
use crate::output;
use serde_json::{Value, json};

impl ControlledTarget {
    pub(super) fn volume(&self, command: &VolumeCommand) -> CommandResult {
        match command {
            VolumeCommand::Create { volume, size, thin } => {
                let (store, name) = volume.split_once('/').ok_or_else(|| {
                    CommandFailure::usage(format!("{volume}: write STORE/NAME, such as vols/disk"))
                })?;
                let params = json!({
                    "lvs_name": store, "lvol_name": name, "size": size, "thin_provision": thin,
                });
                self.made("bdev_lvol_create", &params, &format!("volume {volume}"))
            }
            VolumeCommand::Snapshot { volume, name } => {
                let params = json!({"lvol_name": volume, "snapshot_name": name});
                self.made("bdev_lvol_snapshot", &params, &format!("snapshot {name} of {volume}"))
            }
            VolumeCommand::Clone { snapshot, name } => {
                let params = json!({"snapshot_name": snapshot, "clone_name": name});
                self.made("bdev_lvol_clone", &params, &format!("volume {name} of {snapshot}"))
            }
            VolumeCommand::Inflate { volume } => {
                let done = format!("volume {volume}: inflated, or being copied");
                self.change("bdev_lvol_inflate", &json!({"name": volume}), &done)
            }
            VolumeCommand::Resize { volume, size } => {
                let params = json!({"name": volume, "size": size});
                self.change("bdev_lvol_resize", &params, &format!("volume {volume}: resized"))
            }
            VolumeCommand::Rename { volume, name } => {
                let params = json!({"old_name": volume, "new_name": name});
                self.change("bdev_lvol_rename", &params, &format!("volume {volume}: now {name}"))
            }
            VolumeCommand::Delete { volume, force } => {
                let mut params = json!({"name": volume});
                if *force {
                    params["force"] = true.into();
                }
                self.change("bdev_lvol_delete", &params, &format!("volume {volume}: deleted"))
            }
            VolumeCommand::List { store } => self.volumes(store.as_deref()),
        }
    }

    pub(super) fn store(&self, command: &StoreCommand) -> CommandResult {
        match command {
            StoreCommand::Create { name, place } => {
                let params = json!({"lvs_name": name, "bdev_name": place});
                self.made("bdev_lvol_create_lvstore", &params, &format!("store {name}"))
            }
            StoreCommand::Delete { name, force } => {
                let mut params = json!({"lvs_name": name});
                if *force {
                    params["force"] = true.into();
                }
                let done = format!("store {name}: deleted");
                self.change("bdev_lvol_delete_lvstore", &params, &done)
            }
            StoreCommand::List => self.stores(),
        }
    }

    /// Creates an object with a UUID.
    fn made(&self, method: &str, params: &Value, what: &str) -> CommandResult {
        let uuid = self.call_for(what, method, params)?;
        match (self.json, uuid.as_str()) {
            (false, Some(uuid)) => output::line(&format!("{what}: made, {uuid}")),
            _ => output::json(&uuid),
        }
    }

    fn volumes(&self, store: Option<&str>) -> CommandResult {
        let params = store.map_or(Value::Null, |store| json!({"lvs_name": store}));
        let volumes = self.call("bdev_lvol_get_lvols", &params)?;
        let devices = self.call("bdev_get_bdevs", &Value::Null)?;
        let device = |uuid: &Value| devices.as_array()?.iter().find(|one| one["name"] == *uuid);
        let rows = volumes.as_array().into_iter().flatten().map(|volume| {
            let own = device(&volume["uuid"]).cloned().unwrap_or_default();
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            let kind = match (&volume["is_snapshot"], &volume["is_thin_provisioned"]) {
                (Value::Bool(true), _) => "snapshot",
                (_, Value::Bool(true)) => "thin",
                _ => "thick",
            };
            json!({
                "name": volume["alias"], "kind": kind,
                "capacity_bytes": number(&own["block_size"]) * number(&own["num_blocks"]),
                "held_bytes": number(&volume["num_allocated_clusters"]) << 22,
                "parent": own["driver_specific"]["lvol"]["base_snapshot"],
                "used": own["claimed"], "uuid": volume["uuid"],
            })
        });
        let names = ["name", "kind", "capacity_bytes", "held_bytes", "parent", "used", "uuid"];
        self.table(&names, rows.collect())
    }

    fn stores(&self) -> CommandResult {
        let stores = self.call("bdev_lvol_get_lvstores", &Value::Null)?;
        let rows = stores.as_array().into_iter().flatten().map(|store| {
            let bytes = |name: &str| {
                let number = |name: &str| store[name].as_u64().unwrap_or(0);
                number(name) * number("cluster_size")
            };
            json!({
                "name": store["name"], "capacity_bytes": bytes("total_data_clusters"),
                "free_bytes": bytes("free_clusters"), "place": store["base_bdev"], "uuid": store["uuid"],
                // Numbers for programs, percent for people.
                "copies": if self.json { copy_reports(&store["copies"]) } else { copies(&store["copies"]) },
            })
        });
        let names = ["name", "capacity_bytes", "free_bytes", "place", "uuid", "copies"];
        self.table(&names, rows.collect())
    }
}

/// Formats the progress of copies for programs.
fn copy_reports(reported: &Value) -> Value {
    let report = |one: &Value| {
        json!({
            "name": one["lvol_name"], "copied_bytes": one["copied_bytes"],
            "total_bytes": one["total_bytes"],
        })
    };
    reported.as_array().map(|all| all.iter().map(report).collect::<Vec<_>>()).into()
}

/// Formats the progress of copies in percent.
fn copies(reported: &Value) -> Value {
    let copy = |one: &Value| {
        let bytes = |name: &str| one[name].as_u64().unwrap_or(0);
        let percent =
            (bytes("copied_bytes") * 100).checked_div(bytes("total_bytes")).unwrap_or(100);
        format!("{} {percent} %", one["lvol_name"].as_str().unwrap_or_default())
    };
    let all = reported.as_array().map(|all| all.iter().map(copy).collect::<Vec<_>>().join(", "));
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_of_copies_is_in_percent() {
        let reported = json!([
            {"lvol_name": "a", "copied_bytes": 1, "total_bytes": 3},
            {"lvol_name": "b", "copied_bytes": 0, "total_bytes": 0},
        ]);
        assert_eq!(copies(&reported), "a 33 %, b 100 %");
        assert_eq!(copies(&Value::Null), Value::Null);
    }
}
