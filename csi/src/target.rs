//! Objects of a target, and the calls that change them.

use crate::metrics::Metrics;
use crate::names;
use crate::rpc::{self, RpcFailure, RpcPlace};
use crate::settings::TargetSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a cluster: sizes of volumes are multiples of it.
pub(crate) const CLUSTER_BYTES: u64 = 4 << 20;

/// A volume or snapshot of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lvol {
    /// Its UUID.
    pub(crate) uuid: String,
    /// Its name in the store.
    pub(crate) name: String,
    /// Name of its store.
    pub(crate) store: String,
    /// Size in bytes; 0 while its device cannot be used.
    pub(crate) bytes: u64,
    /// True if space is allocated by writes.
    pub(crate) is_thin: bool,
    /// True for a snapshot.
    pub(crate) is_snapshot: bool,
    /// True if it shares blocks with a snapshot.
    pub(crate) is_clone: bool,
    /// Time of its creation in seconds since 1970; 0 if the target does not know it.
    pub(crate) created_unix_seconds: i64,
}

/// A store of a target.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TargetStore {
    /// Its name.
    pub(crate) name: String,
    free_clusters: u64,
    total_data_clusters: u64,
    cluster_size: u64,
}

impl TargetStore {
    /// Free bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_clusters * self.cluster_size
    }

    /// Size in bytes.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.total_data_clusters * self.cluster_size
    }
}

/// A subsystem, as far as the driver uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct VolumeSubsystem {
    /// Its NQN.
    pub(crate) nqn: String,
    /// Hosts that may connect.
    pub(crate) hosts: Vec<AllowedHost>,
    /// Its namespaces.
    pub(crate) namespaces: Vec<SubsystemNamespace>,
    /// Addresses at which it can be reached.
    pub(crate) listen_addresses: Vec<ListenAddress>,
}

/// A host that may connect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct AllowedHost {
    /// Its NQN.
    pub(crate) nqn: String,
    /// Name of its key for authentication.
    pub(crate) dhchap_key: Option<String>,
}

/// A namespace of a subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct SubsystemNamespace {
    /// Name of its device: a volume's is its UUID.
    pub(crate) bdev_name: String,
    /// Its number.
    pub(crate) nsid: u32,
}

/// Address of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ListenAddress {
    /// IP address.
    pub(crate) traddr: String,
    /// TCP port.
    pub(crate) trsvcid: String,
}

/// Names of keys in the keyring of the target that a host needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeKeyNames {
    /// Key of the host for authentication.
    pub(crate) dhchap: Option<String>,
    /// Key of the target for authentication.
    pub(crate) dhchap_ctrl: Option<String>,
    /// Key for TLS.
    pub(crate) tls: Option<String>,
}

#[derive(Deserialize)]
struct LvolRow {
    uuid: String,
    name: String,
    lvs: LvolRowStore,
    is_thin_provisioned: bool,
    is_snapshot: bool,
    is_clone: bool,
    #[serde(default)]
    created_unix_seconds: i64,
}

#[derive(Deserialize)]
struct LvolRowStore {
    name: String,
}

#[derive(Deserialize)]
struct DeviceRow {
    name: String,
    block_size: u64,
    num_blocks: u64,
}

/// A target that the driver manages.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its settings.
    pub(crate) settings: Arc<TargetSettings>,
    place: RpcPlace,
    metrics: Arc<Metrics>,
}

impl Target {
    pub(crate) fn new(settings: TargetSettings, place: RpcPlace, metrics: Arc<Metrics>) -> Target {
        Target { settings: Arc::new(settings), place, metrics }
    }

    async fn call(&self, method: &str, params: Value) -> Result<Value, RpcFailure> {
        let result = rpc::call(&self.place, method, params).await;
        let code = match &result {
            Ok(_) => "0".to_owned(),
            Err(RpcFailure::Refused { code, .. }) => code.to_string(),
            Err(RpcFailure::Unreachable { .. }) => "unreachable".to_owned(),
        };
        self.metrics.target_call(&self.settings.name, method, code);
        tracing::debug!(method, ok = result.is_ok(), "target call");
        result
    }

    async fn read<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Value,
    ) -> Result<T, RpcFailure> {
        let result = self.call(method, params).await?;
        serde_json::from_value(result).map_err(|error| RpcFailure::Unreachable {
            place: self.place.to_string(),
            reason: format!("{method}: unknown form of reply: {error}"),
        })
    }

    /// Checks that the target replies.
    pub(crate) async fn probe(&self) -> Result<(), RpcFailure> {
        self.call("spdk_get_version", json!({})).await.map(drop)
    }

    /// Returns the stores that the driver may use.
    pub(crate) async fn stores(&self) -> Result<Vec<TargetStore>, RpcFailure> {
        let all: Vec<TargetStore> = self.read("bdev_lvol_get_lvstores", json!({})).await?;
        let is_ours = |store: &TargetStore| self.settings.stores.contains(&store.name);
        Ok(all.into_iter().filter(is_ours).collect())
    }

    /// Returns the volumes and snapshots of these stores, those of others as well that have an owner of their own.
    pub(crate) async fn lvols(&self) -> Result<Vec<Lvol>, RpcFailure> {
        let rows: Vec<LvolRow> = self.read("bdev_lvol_get_lvols", json!({})).await?;
        let devices: Vec<DeviceRow> = self.read("bdev_get_bdevs", json!({})).await?;
        let sizes: HashMap<&str, u64> = devices
            .iter()
            .map(|row| (row.name.as_str(), row.block_size * row.num_blocks))
            .collect();
        let is_ours = |row: &LvolRow| self.settings.stores.contains(&row.lvs.name);
        // One without a size was deleted between the two calls.
        let lvol = |row: LvolRow| {
            Some(Lvol {
                bytes: sizes.get(row.uuid.as_str()).copied()?,
                uuid: row.uuid,
                name: row.name,
                store: row.lvs.name,
                is_thin: row.is_thin_provisioned,
                is_snapshot: row.is_snapshot,
                is_clone: row.is_clone,
                created_unix_seconds: row.created_unix_seconds,
            })
        };
        Ok(rows.into_iter().filter(is_ours).filter_map(lvol).collect())
    }

    /// Returns the volume or snapshot with this UUID.
    pub(crate) async fn lvol(&self, uuid: &str) -> Result<Option<Lvol>, RpcFailure> {
        Ok(self.lvols().await?.into_iter().find(|lvol| lvol.uuid == uuid))
    }

    /// Creates a volume.
    pub(crate) async fn create_lvol(
        &self,
        store: &str,
        name: &str,
        bytes: u64,
        is_thin: bool,
    ) -> Result<(), RpcFailure> {
        let params = json!({"lvs_name": store, "lvol_name": name, "size_in_mib": bytes >> 20,
            "thin_provision": is_thin});
        self.call("bdev_lvol_create", params).await.map(drop)
    }

    /// Creates a snapshot of a volume.
    pub(crate) async fn snapshot(&self, uuid: &str, name: &str) -> Result<(), RpcFailure> {
        let params = json!({"lvol_name": uuid, "snapshot_name": name});
        self.call("bdev_lvol_snapshot", params).await.map(drop)
    }

    /// Creates a volume that begins as a snapshot.
    pub(crate) async fn clone_snapshot(&self, uuid: &str, name: &str) -> Result<(), RpcFailure> {
        let params = json!({"snapshot_name": uuid, "clone_name": name});
        self.call("bdev_lvol_clone", params).await.map(drop)
    }

    /// Gives a volume all its space.
    pub(crate) async fn inflate(&self, uuid: &str) -> Result<(), RpcFailure> {
        self.call("bdev_lvol_inflate", json!({"name": uuid})).await.map(drop)
    }

    /// Makes a volume larger.
    pub(crate) async fn resize(&self, uuid: &str, bytes: u64) -> Result<(), RpcFailure> {
        let params = json!({"name": uuid, "size_in_mib": bytes >> 20});
        self.call("bdev_lvol_resize", params).await.map(drop)
    }

    /// Deletes a volume or snapshot; one that does not exist is deleted.
    pub(crate) async fn delete_lvol(&self, uuid: &str) -> Result<(), RpcFailure> {
        match self.call("bdev_lvol_delete", json!({"name": uuid})).await {
            Err(failure) if !failure.is_absence() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Returns the subsystems of volumes of the driver, by the UUIDs of the volumes.
    pub(crate) async fn subsystems(&self) -> Result<HashMap<String, VolumeSubsystem>, RpcFailure> {
        let all: Vec<VolumeSubsystem> = self.read("nvmf_get_subsystems", json!({})).await?;
        let own = |subsystem: VolumeSubsystem| {
            let uuid = names::subsystem_volume(&subsystem.nqn)?.to_owned();
            Some((uuid, subsystem))
        };
        Ok(all.into_iter().filter_map(own).collect())
    }

    /// Returns a volume's subsystem.
    pub(crate) async fn subsystem(
        &self,
        uuid: &str,
    ) -> Result<Option<VolumeSubsystem>, RpcFailure> {
        let params = json!({"nqn": names::subsystem(uuid)});
        match self.read::<Vec<VolumeSubsystem>>("nvmf_get_subsystems", params).await {
            Ok(found) => Ok(found.into_iter().next()),
            Err(failure) if failure.is_absence() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Creates a volume's subsystem, to which no host may connect.
    pub(crate) async fn create_subsystem(&self, uuid: &str) -> Result<(), RpcFailure> {
        let params = json!({"nqn": names::subsystem(uuid), "serial_number": names::serial(uuid),
            "model_number": "Roadtrain CSI", "max_namespaces": 1});
        self.call("nvmf_create_subsystem", params).await.map(drop)
    }

    /// Deletes a volume's subsystem; its connections end.
    pub(crate) async fn delete_subsystem(&self, uuid: &str) -> Result<(), RpcFailure> {
        let params = json!({"nqn": names::subsystem(uuid)});
        self.call("nvmf_delete_subsystem", params).await.map(drop)
    }

    /// Shows the volume as namespace 1 of its subsystem.
    pub(crate) async fn add_namespace(&self, uuid: &str) -> Result<(), RpcFailure> {
        let params = json!({"nqn": names::subsystem(uuid),
            "namespace": {"bdev_name": uuid, "nsid": 1, "uuid": uuid}});
        self.call("nvmf_subsystem_add_ns", params).await.map(drop)
    }

    /// Lets hosts reach the subsystem at an address.
    pub(crate) async fn add_listener(&self, uuid: &str, address: &str) -> Result<(), RpcFailure> {
        let (traddr, trsvcid) = crate::settings::split_address(address);
        let adrfam = if traddr.contains(':') { "IPv6" } else { "IPv4" };
        let params = json!({"nqn": names::subsystem(uuid), "secure_channel": self.settings.tls,
            "listen_address": {"trtype": "TCP", "adrfam": adrfam, "traddr": traddr, "trsvcid": trsvcid}});
        self.call("nvmf_subsystem_add_listener", params).await.map(drop)
    }

    /// Lets a host connect, with these keys.
    pub(crate) async fn add_host(
        &self,
        uuid: &str,
        host: &str,
        keys: &NodeKeyNames,
    ) -> Result<(), RpcFailure> {
        let mut params = json!({"nqn": names::subsystem(uuid), "host": host});
        let pairs = [
            ("dhchap_key", &keys.dhchap),
            ("dhchap_ctrlr_key", &keys.dhchap_ctrl),
            ("psk", &keys.tls),
        ];
        for (name, key) in pairs {
            if let Some(key) = key {
                params[name] = json!(key);
            }
        }
        self.call("nvmf_subsystem_add_host", params).await.map(drop)
    }

    /// Lets a host connect no more; its connections end.
    pub(crate) async fn remove_host(&self, uuid: &str, host: &str) -> Result<(), RpcFailure> {
        let params = json!({"nqn": names::subsystem(uuid), "host": host});
        self.call("nvmf_subsystem_remove_host", params).await.map(drop)
    }

    /// Returns the names of the keys in the keyring.
    pub(crate) async fn keys(&self) -> Result<Vec<String>, RpcFailure> {
        let rows: Vec<Value> = self.read("keyring_get_keys", json!({})).await?;
        Ok(rows.iter().filter_map(|row| row["name"].as_str().map(str::to_owned)).collect())
    }

    /// Adds a key to the keyring; `path` is its file on the machine of the target.
    pub(crate) async fn add_key(&self, name: &str, path: &str) -> Result<(), RpcFailure> {
        let params = json!({"name": name, "path": path});
        self.call("keyring_file_add_key", params).await.map(drop)
    }

    /// Removes a key from the keyring; a key that does not exist is removed.
    pub(crate) async fn remove_key(&self, name: &str) -> Result<(), RpcFailure> {
        match self.call("keyring_file_remove_key", json!({"name": name})).await {
            Err(RpcFailure::Refused { code: -126 | -2, .. }) => Ok(()),
            other => other.map(drop),
        }
    }
}
