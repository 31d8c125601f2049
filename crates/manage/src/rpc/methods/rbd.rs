//! Images of Ceph clusters.

use super::devices::{add, block_size_of, check_standby, delete, find, refused, resize, uuid_of};
use super::{Method, MethodParams, change, device_params, query};
use crate::model::{DeviceKind, ManagedDevice, ManagedModel, RbdAccess, RbdCluster, RbdImageSpec};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

pub(super) const METHODS: &[Method] = &[
    change("bdev_rbd_register_cluster", "Gives a Ceph cluster a name.", register),
    change("bdev_rbd_unregister_cluster", "Takes that back; no device may use it.", unregister),
    query("bdev_rbd_get_clusters_info", "Ceph clusters that have a name.", clusters),
    change("bdev_rbd_create", "Makes a device of an image of a Ceph cluster.", create),
    change(
        "bdev_rbd_delete",
        "Removes such a device, its namespace first; the image stays.",
        remove,
    ),
    change("bdev_rbd_resize", "Makes its image larger; hosts are notified.", grow),
];

/// Returns a file that RPC may open, if one is named.
fn file(manager: &ManagerSession<'_>, path: Option<&Path>) -> Rpc<Option<PathBuf>> {
    path.map(|path| manager.allowed(path)).transpose()
}

fn no_options(given: Option<&Map<String, Value>>) -> Rpc<()> {
    match given.is_some_and(|options| !options.is_empty()) {
        true => Err(RpcError::invalid("no options here: write them to a config_file")),
        false => Ok(()),
    }
}

fn register(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RegisterClusterParams {
        name: String,
        user_id: Option<String>,
        config_param: Option<Map<String, Value>>,
        config_file: Option<PathBuf>,
        key_file: Option<PathBuf>,
        #[allow(dead_code, reason = "librbd's threads are where the system puts them")]
        core_mask: Option<String>,
    }
    let requested: RegisterClusterParams = device_params(&params)?;
    no_options(requested.config_param.as_ref())?;
    let access = RbdAccess {
        id: requested.user_id,
        conf: file(manager, requested.config_file.as_deref())?,
        keyring: file(manager, requested.key_file.as_deref())?,
    };
    let name = requested.name;
    if name.is_empty() || name.len() > 255 || name.contains(char::is_control) {
        return Err(RpcError::invalid(format!("name {name:?}: use 1 to 255 bytes")));
    }
    manager.change(RpcError::internal, |model| {
        if model.rbd_cluster(&name).is_some() {
            return Err(RpcError::exists(format!("cluster {name}")));
        }
        model.rbd_clusters.push(RbdCluster { name: name.clone(), access });
        Ok(json!(name))
    })
}

fn unregister(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct UnregisterClusterParams {
        name: String,
    }
    let UnregisterClusterParams { name } = device_params(&params)?;
    manager.change(RpcError::internal, |model| {
        cluster(model, &name)?;
        if let Some(device) = model.device_of_cluster(&name) {
            return Err(RpcError::busy(format!("device {device} is of it: delete that first")));
        }
        model.rbd_clusters.retain(|cluster| cluster.name != name);
        Ok(json!(true))
    })
}

fn cluster<'a>(model: &'a ManagedModel, name: &str) -> Rpc<&'a RbdCluster> {
    model.rbd_cluster(name).ok_or_else(|| RpcError::no_file(format!("no cluster {name}")))
}

fn clusters(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct GetClustersParams {
        name: Option<String>,
    }
    let GetClustersParams { name } = device_params(&params)?;
    let model = manager.model();
    let view = |cluster: &RbdCluster| {
        let RbdAccess { id, conf, keyring } = &cluster.access;
        json!({
            "cluster_name": cluster.name, "user_id": id, "config_file": conf, "key_file": keyring,
        })
    };
    match name {
        Some(name) => Ok(json!([view(cluster(&model, &name)?)])),
        None => Ok(model.rbd_clusters.iter().map(view).collect()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateRbdBdevParams {
    name: Option<String>,
    user_id: Option<String>,
    pool_name: String,
    rbd_name: String,
    block_size: u32,
    config: Option<Map<String, Value>>,
    cluster_name: Option<String>,
    uuid: Option<String>,
    read_only: Option<bool>,
    /// True to wait while another target has the image; not of SPDK.
    standby: Option<bool>,
    /// File with the passphrase of an encrypted image; not of SPDK.
    passphrase_file: Option<PathBuf>,
    /// The same as a key of the kernel's keyrings; not of SPDK.
    passphrase_key: Option<String>,
}

impl CreateRbdBdevParams {
    /// Returns the named image.
    fn image(&self, model: &ManagedModel) -> Rpc<RbdImageSpec> {
        no_options(self.config.as_ref())?;
        let is_odd = |name: &str| name.is_empty() || name.contains(['/', '@', '\0']);
        if is_odd(&self.pool_name) || is_odd(&self.rbd_name) {
            return Err(RpcError::invalid("pool_name and rbd_name are plain names"));
        }
        let access = match (&self.cluster_name, &self.user_id) {
            (Some(_), Some(_)) => {
                return Err(RpcError::invalid("user_id is the cluster's: leave one of both out"));
            }
            (Some(name), None) => cluster(model, name)?.access.clone(),
            (None, id) => RbdAccess { id: id.clone(), ..RbdAccess::default() },
        };
        if self.passphrase_file.is_some() && self.passphrase_key.is_some() {
            return Err(RpcError::invalid(
                "passphrase_file and passphrase_key: leave one of both out",
            ));
        }
        Ok(RbdImageSpec {
            pool: self.pool_name.clone(),
            image: self.rbd_name.clone(),
            cluster: self.cluster_name.clone(),
            access,
            passphrase_file: self.passphrase_file.clone(),
            passphrase_key: self.passphrase_key.clone(),
        })
    }
}

fn create(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let new: CreateRbdBdevParams = device_params(&params)?;
    let (model, uuid) = (manager.model(), uuid_of(new.uuid.as_deref())?);
    let mut image = new.image(&model)?;
    image.passphrase_file = file(manager, image.passphrase_file.as_deref())?;
    let lba = block_size_of(Some(new.block_size))?;
    let free = || (0_u32..).map(|n| format!("Ceph{n}")).find(|one| model.device(one).is_none());
    let name = new.name.or_else(free).unwrap_or_default();
    if model.device(&name).is_some() {
        return Err(RpcError::exists(name));
    }
    // Opens it before the change: an unresponsive cluster must not block other changes.
    let read_only = new.read_only.unwrap_or(false);
    check_standby(new.standby, read_only)?;
    let (named, kind) = (name.clone(), DeviceKind::Rbd(image.clone()));
    let device = match new.standby {
        Some(true) => ManagedDevice::stand_by((named, Some(uuid)), kind, (lba, read_only)),
        _ => ManagedDevice::open((named, uuid), kind, (lba, 0, read_only)),
    };
    let device = device.map_err(|error| refused(&error))?;
    add(manager, Some(name), uuid, |_| {
        // The cluster may have been removed meanwhile.
        image
            .cluster
            .as_deref()
            .map_or(Ok(()), |name| cluster(&manager.model(), name).map(drop))?;
        Ok(device)
    })
}

fn is_image(kind: &DeviceKind) -> bool {
    matches!(kind, DeviceKind::Rbd(_))
}

fn remove(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    delete(manager, params, is_image)
}

fn grow(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ResizeRbdBdevParams {
        name: String,
        new_size: u64,
    }
    let ResizeRbdBdevParams { name, new_size } = device_params(&params)?;
    let device = find(manager, &name, is_image)?;
    let bytes = new_size.checked_mul(1 << 20).filter(|bytes| *bytes > 0);
    let bytes = bytes.ok_or_else(|| RpcError::invalid(format!("new_size {new_size}")))?;
    resize(manager, &device, Some(bytes))
}

/// Returns the parameters that register a cluster again.
pub(super) fn cluster_params(cluster: &RbdCluster) -> Value {
    let mut params = json!({"name": cluster.name});
    let RbdAccess { id, conf, keyring } = &cluster.access;
    for (name, value) in
        [("user_id", json!(id)), ("config_file", json!(conf)), ("key_file", json!(keyring))]
    {
        if !value.is_null() {
            params[name] = value;
        }
    }
    params
}

/// Returns the parameters that name an image.
pub(super) fn params(image: &RbdImageSpec) -> Value {
    let mut params = json!({"pool_name": image.pool, "rbd_name": image.image});
    match (&image.cluster, &image.access.id) {
        (Some(cluster), _) => params["cluster_name"] = cluster.as_str().into(),
        (None, Some(id)) => params["user_id"] = id.as_str().into(),
        (None, None) => {}
    }
    if let Some(file) = &image.passphrase_file {
        params["passphrase_file"] = json!(file);
    }
    if let Some(key) = &image.passphrase_key {
        params["passphrase_key"] = key.as_str().into();
    }
    params
}

/// Returns the shown form of an image.
pub(super) fn show(image: &RbdImageSpec) -> Value {
    let mut shown = params(image);
    if let Some(id) = &image.access.id {
        shown["user_id"] = id.as_str().into();
    }
    if let Some(conf) = &image.access.conf {
        shown["config_file"] = json!(conf);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_reached_as_its_cluster_is() {
        let access = RbdAccess { id: Some("tenant".into()), ..RbdAccess::default() };
        let cluster = RbdCluster { name: "c".into(), access: access.clone() };
        let model = ManagedModel { rbd_clusters: vec![cluster], ..ManagedModel::default() };
        let new = |more: Value| {
            let mut params = json!({"pool_name": "p", "rbd_name": "i", "block_size": 512});
            params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<CreateRbdBdevParams>(params).unwrap().image(&model)
        };
        let image = new(json!({"cluster_name": "c"})).unwrap();
        assert_eq!((&image.access, image.cluster.as_deref()), (&access, Some("c")));
        assert_eq!(params(&image), json!({"pool_name": "p", "rbd_name": "i", "cluster_name": "c"}));
        // The names of file and key are shown and kept: what they have never is.
        for more in [json!({"passphrase_file": "/srv/key"}), json!({"passphrase_key": "disks-a"})] {
            let image = new(more.clone()).unwrap();
            let mut expected = json!({"pool_name": "p", "rbd_name": "i"});
            expected.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!((params(&image), show(&image)), (expected.clone(), expected));
        }
        for (odd, code) in [
            (json!({"cluster_name": "none"}), -2),
            (json!({"cluster_name": "c", "user_id": "u"}), -22),
            (json!({"rbd_name": "a/b"}), -22),
            (json!({"config": {"a": "b"}}), -22),
            (json!({"passphrase_file": "/k", "passphrase_key": "k"}), -22),
        ] {
            assert_eq!(new(odd.clone()).unwrap_err().code, code, "{odd}");
        }
    }
}
