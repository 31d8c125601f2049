//! Devices, subsystems, and what these have, by the target's JSON-RPC methods.

use crate::args::{
    CtlArgs, CtlCommand, DeviceCommand, GlobalArgs, HostCommand, ListenerCommand, NamespaceCommand,
    RpcSocketArgs, SubsystemCommand,
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

/// Everything but `ctl ana` and `ctl snapshot`.
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
            DeviceCommand::Add { name, spec } => self.add_device(name, spec),
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

    fn add_device(&self, name: &str, spec: &NamespaceSpec) -> Outcome {
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
            _ => return Err(Failure::usage(format!("{spec}: write mem:, null:, file: or block:"))),
        };
        self.change(method, &params, &format!("device {name}: added"))
    }

    fn resize(&self, name: &str, size: Option<u64>) -> Outcome {
        let done = format!("device {name}: resized");
        match (self.product(name)?.as_str(), size) {
            ("Null disk", Some(size)) if size.is_multiple_of(1 << 20) => {
                let params = json!({"name": name, "new_size": size >> 20});
                self.change("bdev_null_resize", &params, &done)
            }
            ("Null disk", _) => Err(Failure::usage(format!("{name}: give it a size of whole MiB"))),
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
    fn subsystems(&self, nqn: Option<&str>) -> Outcome<Vec<Value>> {
        let params = nqn.map_or(Value::Null, |nqn| json!({"nqn": nqn}));
        let all = self.call("nvmf_get_subsystems", &params)?;
        let all = all.as_array().into_iter().flatten();
        Ok(all.filter(|one| one["subtype"] == "NVMe").cloned().collect())
    }

    /// A row for each member of a list that subsystems have.
    fn members(&self, nqn: Option<&str>, list: &str) -> Outcome<Vec<Value>> {
        let mut rows = Vec::new();
        for one in self.subsystems(nqn)? {
            for member in one[list].as_array().into_iter().flatten() {
                let mut row = member.clone();
                if list == "hosts" {
                    row["host"] = member["nqn"].clone();
                }
                row["nqn"] = one["nqn"].clone();
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn namespace(&self, command: &NamespaceCommand) -> Outcome {
        match command {
            NamespaceCommand::Add { nqn, device, nsid } => {
                let mut namespace = json!({"bdev_name": device});
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
                let known = self.members(Some(nqn), "namespaces")?;
                let device = known.iter().find(|one| one["nsid"] == *nsid);
                let device = device.and_then(|one| one["bdev_name"].as_str());
                let none = || Failure::usage(format!("{nqn} has no namespace {nsid}"));
                self.resize(device.ok_or_else(none)?, *size)
            }
            NamespaceCommand::List { nqn } => {
                let rows = self.members(nqn.as_deref(), "namespaces")?;
                let head = ["NQN", "NSID", "DEVICE", "UUID", "NGUID"];
                self.table(&head, &["nqn", "nsid", "bdev_name", "uuid", "nguid"], rows)
            }
        }
    }

    fn listener(&self, command: &ListenerCommand) -> Outcome {
        match command {
            ListenerCommand::Add { nqn, address } => {
                let params = json!({"nqn": nqn, "listen_address": listen_address(address)?});
                let done = format!("listener {address} of {nqn}: added");
                self.change("nvmf_subsystem_add_listener", &params, &done)
            }
            ListenerCommand::Remove { nqn, address } => {
                let params = json!({"nqn": nqn, "listen_address": listen_address(address)?});
                let done = format!("listener {address} of {nqn}: removed");
                self.change("nvmf_subsystem_remove_listener", &params, &done)
            }
            ListenerCommand::List { nqn } => {
                let rows = self.members(nqn.as_deref(), "listen_addresses")?;
                self.table(&["NQN", "ADDRESS", "PORT"], &["nqn", "traddr", "trsvcid"], rows)
            }
        }
    }

    fn host(&self, command: &HostCommand) -> Outcome {
        let any = |nqn: &str, allow: bool, done: &str| {
            let params = json!({"nqn": nqn, "allow_any_host": allow});
            self.change("nvmf_subsystem_allow_any_host", &params, done)
        };
        match command {
            HostCommand::Allow { nqn, host: Some(host), .. } => {
                let done = format!("host {host} of {nqn}: allowed");
                self.change("nvmf_subsystem_add_host", &json!({"nqn": nqn, "host": host}), &done)
            }
            HostCommand::Allow { nqn, host: None, .. } => any(nqn, true, "any host allowed"),
            HostCommand::Deny { nqn, host: Some(host), .. } => {
                let done = format!("host {host} of {nqn}: not allowed any more");
                self.change("nvmf_subsystem_remove_host", &json!({"nqn": nqn, "host": host}), &done)
            }
            HostCommand::Deny { nqn, host: None, .. } => {
                any(nqn, false, "only named hosts allowed")
            }
            HostCommand::List { nqn } => {
                let rows = self.members(nqn.as_deref(), "hosts")?;
                self.table(&["NQN", "HOST"], &["nqn", "host"], rows)
            }
        }
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

/// An address with or without a port.
fn listen_address(text: &str) -> Outcome<Value> {
    let address = text.parse::<SocketAddr>();
    let address = address.or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 4420)));
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
    fn addresses_have_a_port_or_the_usual_one() {
        for (text, traddr, port) in [
            ("192.0.2.1", "192.0.2.1", "4420"),
            ("192.0.2.1:8009", "192.0.2.1", "8009"),
            ("2001:db8::1", "2001:db8::1", "4420"),
            ("[2001:db8::1]:8009", "2001:db8::1", "8009"),
        ] {
            let address = listen_address(text).unwrap();
            assert_eq!((&address["traddr"], &address["trsvcid"]), (&json!(traddr), &json!(port)));
        }
        assert!(listen_address("host").is_err());
    }
}
