//! Devices.

use super::target::ControlledTarget;
use crate::args::DeviceCommand;
use crate::failure::{CommandFailure, CommandResult};
use crate::namespace::{NamespaceKind, NamespaceSettings};
use serde_json::{Value, json};

impl ControlledTarget {
    pub(super) fn device(&self, command: &DeviceCommand) -> CommandResult {
        match command {
            DeviceCommand::Add { name, spec, cluster } => {
                let (method, params) = new_device(name, spec, cluster.as_deref())?;
                self.change(method, &params, &format!("device {name}: added"))
            }
            DeviceCommand::Remove { name } => {
                let method = match self.product(name)?.as_str() {
                    "Malloc disk" => "bdev_malloc_delete",
                    "Null disk" => "bdev_null_delete",
                    "URING bdev" => "bdev_uring_delete",
                    "Ceph Rbd Disk" => "bdev_rbd_delete",
                    // For any other product, the target refuses with its reason.
                    _ => "bdev_aio_delete",
                };
                self.change(method, &json!({"name": name}), &format!("device {name}: removed"))
            }
            DeviceCommand::Resize { name, size } => self.resize(name, *size),
            DeviceCommand::List => {
                let devices = self.call("bdev_get_bdevs", &Value::Null)?;
                let rows = devices.as_array().into_iter().flatten().map(|device| {
                    let count = |name: &str| device[name].as_u64().unwrap_or(0);
                    let block = count("block_size");
                    json!({
                        "name": device["name"], "product": device["product_name"],
                        "capacity_bytes": block * count("num_blocks"), "block_bytes": block,
                        "uuid": device["uuid"], "used": device["claimed"],
                    })
                });
                let names = ["name", "product", "capacity_bytes", "block_bytes", "uuid", "used"];
                self.table(&names, rows.collect())
            }
        }
    }

    fn product(&self, name: &str) -> CommandResult<String> {
        let devices = self.call("bdev_get_bdevs", &json!({"name": name}))?;
        Ok(devices[0]["product_name"].as_str().unwrap_or_default().to_owned())
    }

    fn resize(&self, name: &str, size: Option<u64>) -> CommandResult {
        let done = format!("device {name}: resized");
        match (self.product(name)?.as_str(), size) {
            (product @ ("Null disk" | "Ceph Rbd Disk"), Some(size))
                if size.is_multiple_of(1 << 20) =>
            {
                let is_null = product == "Null disk";
                let method = if is_null { "bdev_null_resize" } else { "bdev_rbd_resize" };
                self.change(method, &json!({"name": name, "new_size": size >> 20}), &done)
            }
            ("Null disk" | "Ceph Rbd Disk", _) => {
                Err(CommandFailure::usage(format!("{name}: give it a size of whole MiB")))
            }
            ("AIO disk", None) => self.change("bdev_aio_rescan", &json!({"name": name}), &done),
            ("URING bdev", None) => self.change("bdev_uring_rescan", &json!({"name": name}), &done),
            ("AIO disk" | "URING bdev", Some(_)) => {
                let hint = "change the size of its file, and leave the size out here";
                Err(CommandFailure::usage(format!("{name}: {hint}")))
            }
            (product, _) => {
                Err(CommandFailure::usage(format!("{name}: a {product} keeps its size")))
            }
        }
    }
}

/// Returns the call that creates a device.
fn new_device(
    name: &str,
    spec: &NamespaceSettings,
    cluster: Option<&str>,
) -> CommandResult<(&'static str, Value)> {
    if cluster.is_some() && spec.kind != NamespaceKind::Rbd {
        return Err(CommandFailure::usage(format!(
            "{spec}: --cluster is for images, rbd:POOL/IMAGE"
        )));
    }
    let mut params = json!({"name": name, "block_size": spec.lba});
    if let Some(uuid) = &spec.uuid {
        params["uuid"] = uuid.as_str().into();
    }
    let method = match (spec.kind, spec.size, &spec.path) {
        (NamespaceKind::Mem | NamespaceKind::Null, Some(size), _) if !spec.read_only => {
            params["num_blocks"] = (size / u64::from(spec.lba)).into();
            if spec.kind == NamespaceKind::Mem { "bdev_malloc_create" } else { "bdev_null_create" }
        }
        (NamespaceKind::File | NamespaceKind::Block, None, Some(path)) => {
            params["filename"] = json!(std::path::absolute(path)?);
            params["readonly"] = spec.read_only.into();
            "bdev_aio_create"
        }
        (NamespaceKind::File, Some(size), _) => {
            let hint = format!("make the file first: truncate -s {size} FILE");
            return Err(CommandFailure::usage(format!("{spec}: {hint}")));
        }
        (NamespaceKind::Rbd, ..) => {
            name_image(&mut params, spec, cluster)?;
            "bdev_rbd_create"
        }
        _ => {
            let hint = "write mem:, null:, file:, block: or rbd:";
            return Err(CommandFailure::usage(format!("{spec}: {hint}")));
        }
    };
    Ok((method, params))
}

/// Adds the parameters of the image of `spec`.
fn name_image(
    params: &mut Value,
    spec: &NamespaceSettings,
    cluster: Option<&str>,
) -> CommandResult {
    let unfit = |hint: &str| CommandFailure::usage(format!("{spec}: {hint}"));
    if spec.conf.is_some() || spec.keyring.is_some() {
        return Err(unfit(
            "name its cluster with --cluster; `roadtrain ctl cluster add` takes both",
        ));
    }
    if spec.create.is_some() {
        return Err(unfit("make the image first, with `rbd create`"));
    }
    let image = spec.image.as_deref().and_then(|image| image.split_once('/'));
    let (pool, image) = image.ok_or_else(|| unfit("write rbd:POOL/IMAGE"))?;
    params["pool_name"] = pool.into();
    params["rbd_name"] = image.into();
    params["read_only"] = spec.read_only.into();
    for (name, value) in [("user_id", spec.id.as_deref()), ("cluster_name", cluster)] {
        if let Some(value) = value {
            params[name] = value.into();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_a_device() {
        let call = |spec: &str, cluster| new_device("d", &spec.parse().unwrap(), cluster);
        let (method, params) = call("rbd:pool/image,lba=4096,ro", Some("c")).unwrap();
        assert_eq!(method, "bdev_rbd_create");
        let expected = json!({
            "name": "d", "block_size": 4096, "pool_name": "pool", "rbd_name": "image",
            "read_only": true, "cluster_name": "c",
        });
        assert_eq!(params, expected);
        let (_, params) = call("rbd:pool/image,id=tenant", None).unwrap();
        assert_eq!(params["user_id"], "tenant");
        for odd in ["rbd:pool/image,conf=/etc/a.conf", "rbd:pool/image,create=1GiB", "ssd:1MiB"] {
            assert!(call(odd, None).is_err(), "{odd}");
        }
        assert!(call("mem:1MiB", Some("c")).is_err());
    }
}
