//! Devices, subsystems and namespaces, by the target's JSON-RPC methods.

use crate::args::{
    CtlArgs, CtlCommand, DeviceCommand, GlobalArgs, NamespaceCommand, RpcSocketArgs,
    SubsystemCommand,
};
use crate::failure::{Failure, Outcome};
use crate::namespace::{Kind, NamespaceSpec};
use crate::output;
use crate::rpc;
use crate::units::show_bytes;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};

/// A target, and how to show what it says.
pub(super) struct Desk<'a> {
    socket: &'a RpcSocketArgs,
    pub(super) json: bool,
}

/// Everything but `ctl ana`, `ctl snapshot` and `ctl trace`.
pub(super) fn run(args: &CtlArgs, global: &GlobalArgs) -> Outcome {
    let desk = Desk { socket: &args.socket, json: global.json };
    match &args.command {
        CtlCommand::Ana { .. } | CtlCommand::Snapshot { .. } | CtlCommand::Trace { .. } => Ok(()), // done elsewhere
        CtlCommand::Device(command) => desk.device(command),
        CtlCommand::Subsystem(command) => desk.subsystem(command),
        CtlCommand::Namespace(command) => desk.namespace(command),
        CtlCommand::Listener(command) => desk.listener(command),
        CtlCommand::Host(command) => desk.host(command),
        CtlCommand::Volume(command) => desk.volume(command),
        CtlCommand::Key(command) => desk.key(command),
        CtlCommand::Cluster(command) => desk.cluster(command),
        CtlCommand::Referral(command) => desk.referral(command),
        CtlCommand::Config(command) => desk.config(command),
        CtlCommand::Connections { nqn } => desk.connections(nqn.as_deref()),
    }
}

impl Desk<'_> {
    pub(super) fn call(&self, method: &str, params: &Value) -> Outcome<Value> {
        rpc::call(self.socket, method, params)
    }

    /// A change: what came of it.
    pub(super) fn change(&self, method: &str, params: &Value, done: &str) -> Outcome {
        let result = self.call(method, params)?;
        if self.json { output::json(&result) } else { output::line(done) }
    }

    pub(super) fn table(&self, head: &[&str], names: &[&str], rows: Vec<Value>) -> Outcome {
        if self.json {
            return output::json(&rows);
        }
        let cell = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Bool(is_so) => (if *is_so { "yes" } else { "no" }).to_owned(),
            Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        let size = |name: &str, value: &Value| match (name, value.as_u64()) {
            ("bytes" | "held" | "free", Some(bytes)) => show_bytes(bytes),
            _ => cell(value),
        };
        let row = |row: &Value| names.iter().map(|name| size(name, &row[name])).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
        output::line(&output::columns(head, &rows))
    }

    fn device(&self, command: &DeviceCommand) -> Outcome {
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
                    // Whatever else it is, the target says why not.
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
                        "name": device["name"], "kind": device["product_name"],
                        "bytes": block * count("num_blocks"), "block": block,
                        "uuid": device["uuid"], "used": device["claimed"],
                    })
                });
                let head = ["NAME", "KIND", "SIZE", "BLOCK", "UUID", "NAMESPACE"];
                self.table(
                    &head,
                    &["name", "kind", "bytes", "block", "uuid", "used"],
                    rows.collect(),
                )
            }
        }
    }

    fn product(&self, name: &str) -> Outcome<String> {
        let devices = self.call("bdev_get_bdevs", &json!({"name": name}))?;
        Ok(devices[0]["product_name"].as_str().unwrap_or_default().to_owned())
    }

    fn resize(&self, name: &str, size: Option<u64>) -> Outcome {
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
                Err(Failure::usage(format!("{name}: give it a size of whole MiB")))
            }
            ("AIO disk", None) => self.change("bdev_aio_rescan", &json!({"name": name}), &done),
            ("URING bdev", None) => self.change("bdev_uring_rescan", &json!({"name": name}), &done),
            ("AIO disk" | "URING bdev", Some(_)) => {
                let hint = "change the size of its file, and leave the size out here";
                Err(Failure::usage(format!("{name}: {hint}")))
            }
            (product, _) => Err(Failure::usage(format!("{name}: a {product} keeps its size"))),
        }
    }

    fn subsystem(&self, command: &SubsystemCommand) -> Outcome {
        match command {
            SubsystemCommand::Add { nqn, serial, model, max_namespaces, any_host, ana } => {
                let mut params =
                    json!({"nqn": nqn, "allow_any_host": any_host, "ana_reporting": ana});
                for (name, value) in [("serial_number", serial), ("model_number", model)] {
                    if let Some(value) = value {
                        params[name] = value.as_str().into();
                    }
                }
                if let Some(count) = max_namespaces {
                    params["max_namespaces"] = (*count).into();
                }
                self.change("nvmf_create_subsystem", &params, &format!("subsystem {nqn}: added"))
            }
            SubsystemCommand::Remove { nqn } => {
                let done = format!("subsystem {nqn}: removed");
                self.change("nvmf_delete_subsystem", &json!({"nqn": nqn}), &done)
            }
            SubsystemCommand::List => {
                let rows = self.subsystems(None)?.into_iter().map(|one| {
                    let count = |name: &str| one[name].as_array().map_or(0, Vec::len);
                    json!({
                        "nqn": one["nqn"], "serial": one["serial_number"], "model": one["model_number"],
                        "namespaces": count("namespaces"), "listeners": count("listen_addresses"),
                        "any_host": one["allow_any_host"], "hosts": count("hosts"),
                    })
                });
                let head =
                    ["NQN", "SERIAL", "MODEL", "NAMESPACES", "LISTENERS", "ANY HOST", "HOSTS"];
                let names =
                    ["nqn", "serial", "model", "namespaces", "listeners", "any_host", "hosts"];
                self.table(&head, &names, rows.collect())
            }
        }
    }

    /// Subsystems but for discovery.
    pub(super) fn subsystems(&self, nqn: Option<&str>) -> Outcome<Vec<Value>> {
        let params = nqn.map_or(Value::Null, |nqn| json!({"nqn": nqn}));
        let all = self.call("nvmf_get_subsystems", &params)?;
        let all = all.as_array().into_iter().flatten();
        Ok(all.filter(|one| one["subtype"] == "NVMe").cloned().collect())
    }

    /// A row for each member of a list that subsystems have.
    pub(super) fn members(&self, nqn: Option<&str>, list: &str) -> Outcome<Vec<Value>> {
        let mut rows = Vec::new();
        for one in self.subsystems(nqn)? {
            for member in one[list].as_array().into_iter().flatten() {
                let mut row = member.clone();
                row["nqn"] = one["nqn"].clone();
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn namespace(&self, command: &NamespaceCommand) -> Outcome {
        match command {
            NamespaceCommand::Add { nqn, device, nsid, uuid, nguid, reservations } => {
                let mut namespace = json!({"bdev_name": device});
                for (name, id) in [("uuid", uuid), ("nguid", nguid)] {
                    if let Some(id) = id {
                        namespace[name] = id.as_str().into();
                    }
                }
                if let Some(file) = reservations {
                    namespace["ptpl_file"] = json!(std::path::absolute(file)?);
                }
                if let Some(nsid) = nsid {
                    namespace["nsid"] = (*nsid).into();
                }
                let params = json!({"nqn": nqn, "namespace": namespace});
                let nsid = self.call("nvmf_subsystem_add_ns", &params)?;
                match self.json {
                    true => output::json(&nsid),
                    false => output::line(&format!("namespace {nsid} of {nqn}: added")),
                }
            }
            NamespaceCommand::Remove { nqn, nsid } => {
                let params = json!({"nqn": nqn, "nsid": nsid});
                let done = format!("namespace {nsid} of {nqn}: removed");
                self.change("nvmf_subsystem_remove_ns", &params, &done)
            }
            NamespaceCommand::Resize { nqn, nsid, size } => {
                self.resize(&self.device_of(nqn, *nsid)?, *size)
            }
            NamespaceCommand::Limit { nqn, nsid, rates } => {
                self.limit_namespace((nqn, *nsid), rates)
            }
            NamespaceCommand::List { nqn } => {
                let rows = self.members(nqn.as_deref(), "namespaces")?;
                let head = ["NQN", "NSID", "DEVICE", "UUID", "NGUID", "LIMITS"];
                let names = ["nqn", "nsid", "bdev_name", "uuid", "nguid", "limits"];
                self.table(&head, &names, self.with_limits(rows))
            }
        }
    }

    /// The name of a namespace's device.
    pub(super) fn device_of(&self, nqn: &str, nsid: u32) -> Outcome<String> {
        let known = self.members(Some(nqn), "namespaces")?;
        let device = known.iter().find(|one| one["nsid"] == nsid);
        let device = device.and_then(|one| one["bdev_name"].as_str());
        let none = || Failure::usage(format!("{nqn} has no namespace {nsid}"));
        device.map(str::to_owned).ok_or_else(none)
    }

    fn connections(&self, nqn: Option<&str>) -> Outcome {
        let mut rows = Vec::new();
        for one in self.subsystems(nqn)? {
            let controllers =
                self.call("nvmf_subsystem_get_controllers", &json!({"nqn": one["nqn"]}))?;
            for controller in controllers.as_array().into_iter().flatten() {
                let mut row = controller.clone();
                row["nqn"] = one["nqn"].clone();
                rows.push(row);
            }
        }
        let head = ["NQN", "HOST", "CONTROLLER", "I/O QUEUES"];
        self.table(&head, &["nqn", "hostnqn", "cntlid", "num_io_qpairs"], rows)
    }
}

/// The call that makes a device.
fn new_device(
    name: &str,
    spec: &NamespaceSpec,
    cluster: Option<&str>,
) -> Outcome<(&'static str, Value)> {
    if cluster.is_some() && spec.kind != Kind::Rbd {
        return Err(Failure::usage(format!("{spec}: --cluster is for images, rbd:POOL/IMAGE")));
    }
    let mut params = json!({"name": name, "block_size": spec.lba});
    if let Some(uuid) = &spec.uuid {
        params["uuid"] = uuid.as_str().into();
    }
    let method = match (spec.kind, spec.size, &spec.path) {
        (Kind::Mem | Kind::Null, Some(size), _) if !spec.read_only => {
            params["num_blocks"] = (size / u64::from(spec.lba)).into();
            if spec.kind == Kind::Mem { "bdev_malloc_create" } else { "bdev_null_create" }
        }
        (Kind::File | Kind::Block, None, Some(path)) => {
            params["filename"] = json!(std::path::absolute(path)?);
            params["readonly"] = spec.read_only.into();
            "bdev_aio_create"
        }
        (Kind::File, Some(size), _) => {
            let hint = format!("make the file first: truncate -s {size} FILE");
            return Err(Failure::usage(format!("{spec}: {hint}")));
        }
        (Kind::Rbd, ..) => {
            name_image(&mut params, spec, cluster)?;
            "bdev_rbd_create"
        }
        _ => {
            let hint = "write mem:, null:, file:, block: or rbd:";
            return Err(Failure::usage(format!("{spec}: {hint}")));
        }
    };
    Ok((method, params))
}

/// What of `spec` can be said of an image.
fn name_image(params: &mut Value, spec: &NamespaceSpec, cluster: Option<&str>) -> Outcome {
    let unfit = |hint: &str| Failure::usage(format!("{spec}: {hint}"));
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

/// An address with a port, or without one, which is `port` then.
pub(super) fn listen_address(text: &str, port: u16) -> Outcome<Value> {
    let address = text.parse::<SocketAddr>();
    let address = address.or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)));
    let address =
        address.map_err(|_| Failure::usage(format!("{text} is no ADDRESS or ADDRESS:PORT")))?;
    let family = if address.is_ipv6() { "ipv6" } else { "ipv4" };
    Ok(json!({
        "trtype": "tcp", "adrfam": family, "traddr": address.ip().to_string(),
        "trsvcid": address.port().to_string(),
    }))
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

    #[test]
    fn addresses_have_a_port_or_the_usual_one() {
        for (text, traddr, port) in [
            ("192.0.2.1", "192.0.2.1", "4420"),
            ("192.0.2.1:8009", "192.0.2.1", "8009"),
            ("2001:db8::1", "2001:db8::1", "4420"),
            ("[2001:db8::1]:8009", "2001:db8::1", "8009"),
        ] {
            let address = listen_address(text, 4420).unwrap();
            assert_eq!((&address["traddr"], &address["trsvcid"]), (&json!(traddr), &json!(port)));
        }
        assert!(listen_address("host", 4420).is_err());
    }
}
