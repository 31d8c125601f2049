//! Devices.

use super::target::ControlledTarget;
use crate::args::DeviceCommand;
use crate::failure::{CommandFailure, CommandResult};
use crate::namespace::{NamespaceKind, NamespaceSettings};
use roadtrain_manage::model::SsdPace;
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
                    "Emulated SSD" => "roadtrain_ssd_delete",
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
    check_options(name, spec)?;
    let mut params = json!({"name": name, "block_size": spec.lba});
    if let Some(uuid) = &spec.uuid {
        params["uuid"] = uuid.as_str().into();
    }
    let method = match (spec.kind, spec.size, &spec.path) {
        (kind @ (NamespaceKind::Mem | NamespaceKind::Ssd | NamespaceKind::Null), Some(size), _) => {
            params["num_blocks"] = (size / u64::from(spec.lba)).into();
            match kind {
                NamespaceKind::Mem => "bdev_malloc_create",
                NamespaceKind::Null => "bdev_null_create",
                _ => {
                    let SsdPace { service_us, parallel } = spec.pace();
                    params["service_us"] = service_us.into();
                    params["parallel"] = parallel.into();
                    "roadtrain_ssd_create"
                }
            }
        }
        (NamespaceKind::File | NamespaceKind::Block, size, Some(path)) => {
            params["filename"] = json!(std::path::absolute(path)?);
            params["readonly"] = spec.read_only.into();
            if let Some(size) = size {
                params["size"] = size.into();
            }
            "bdev_aio_create"
        }
        (NamespaceKind::Rbd, ..) => {
            name_image(&mut params, spec, cluster)?;
            "bdev_rbd_create"
        }
        _ => {
            let hint = "write mem:, ssd:, null:, file:, block: or rbd:";
            return Err(CommandFailure::usage(format!("{spec}: {hint}")));
        }
    };
    Ok((method, params))
}

/// Refuses options that a device does not have, and names the command that takes them.
fn check_options(name: &str, spec: &NamespaceSettings) -> CommandResult {
    let unfit = |hint: String| Err(CommandFailure::usage(format!("{spec}: {hint}")));
    let of_namespace = [
        ("standby", spec.standby),
        ("nsid", spec.nsid.is_some()),
        ("nguid", spec.nguid.is_some()),
        ("class", spec.class.is_some()),
        ("a limit", !spec.rates.is_empty()),
        ("reservations", spec.reservations.is_some()),
        ("uncorrectable", spec.uncorrectable.is_some()),
        ("host or hidden", spec.hosts.is_some()),
        ("ana-group", spec.ana_group.is_some()),
    ];
    if let Some((option, _)) = of_namespace.iter().find(|(_, is_given)| *is_given) {
        // A device that exists is open: it cannot stand by.
        let blocks = if spec.standby { "SPEC".to_owned() } else { format!("device:{name},...") };
        return unfit(format!(
            "{option} is of a namespace, not of a device: leave it out here, and give it to `roadtrain ctl namespace \
             add {blocks}`"
        ));
    }
    let begins_empty =
        matches!(spec.kind, NamespaceKind::Mem | NamespaceKind::Ssd | NamespaceKind::Null);
    if spec.read_only && begins_empty {
        return unfit("it begins empty, so it is for writing: leave ro out".to_owned());
    }
    Ok(())
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
    if let Some(file) = &spec.passphrase_file {
        params["passphrase_file"] = json!(std::path::absolute(file)?);
    }
    for (name, value) in [
        ("user_id", spec.id.as_deref()),
        ("cluster_name", cluster),
        ("passphrase_key", spec.passphrase_key.as_deref()),
    ] {
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
        let (_, params) = call("rbd:pool/image,passphrase-file=/srv/key", None).unwrap();
        assert_eq!(params["passphrase_file"], "/srv/key");
        let (_, params) = call("rbd:pool/image,passphrase-key=disks-a", None).unwrap();
        assert_eq!(params["passphrase_key"], "disks-a");
        for odd in ["rbd:pool/image,conf=/etc/a.conf", "rbd:pool/image,create=1GiB"] {
            assert!(call(odd, None).is_err(), "{odd}");
        }
        assert!(call("mem:1MiB", Some("c")).is_err());
    }

    #[test]
    fn a_device_has_all_options_or_refuses_them() {
        let call = |spec: &str| new_device("d", &spec.parse().unwrap(), None);
        let (method, params) = call("file:/srv/a.img,size=1MiB,lba=4096").unwrap();
        assert_eq!(method, "bdev_aio_create");
        let expected = json!({
            "name": "d", "block_size": 4096, "filename": "/srv/a.img", "readonly": false,
            "size": 1 << 20,
        });
        assert_eq!(params, expected);
        assert!(call("block:/dev/x").unwrap().1.get("size").is_none());
        let (method, params) = call("ssd:1MiB,service-us=20").unwrap();
        assert_eq!(method, "roadtrain_ssd_create");
        let expected = json!({
            "name": "d", "block_size": 512, "num_blocks": 2048, "service_us": 20, "parallel": 64,
        });
        assert_eq!(params, expected);
        for (spec, why) in [
            ("mem:1MiB,nsid=2", "nsid is of a namespace"),
            ("file:/srv/a.img,nguid=0123456789abcdef0123456789abcdef", "nguid is of a namespace"),
            ("null:1MiB,class=bulk", "class is of a namespace"),
            ("mem:1MiB,iops=100", "a limit is of a namespace"),
            ("block:/dev/x,reservations=/srv/r", "reservations is of a namespace"),
            ("block:/dev/x,uncorrectable=none", "uncorrectable is of a namespace"),
            ("block:/dev/x,standby", "standby is of a namespace"),
            ("block:/dev/x,standby", "`roadtrain ctl namespace add SPEC`"),
            ("null:1MiB,class=bulk", "`roadtrain ctl namespace add device:d,...`"),
            ("mem:1MiB,hidden", "host or hidden is of a namespace"),
            ("mem:1MiB,ana-group=3", "ana-group is of a namespace"),
            ("mem:1MiB,ro", "leave ro out"),
            ("ssd:1MiB,ro", "leave ro out"),
        ] {
            let failure = call(spec).unwrap_err();
            assert!(failure.message.contains(why), "{spec}: {}", failure.message);
        }
    }
}
