//! What a subsystem has: namespaces, listeners, controllers.

use super::nvmf::{DISCOVERY, addresses, is_same};
use super::place::{self, Address};
use super::transport::check_target;
use super::{Method, Params, change, look, params_of};
use crate::model::{AnaWord, ListenerSpec, NamespaceSpec, SubsystemSpec, parse_uuid, show_uuid};
use crate::rpc::{Manager, Rpc, RpcError};
use roadtrain_target_engine::TlsUse;
use roadtrain_target_proto::ControllerKind;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use tracing::warn;

pub(super) const METHODS: &[Method] = &[
    change("nvmf_subsystem_add_ns", "Shows a device to hosts as a namespace.", add_ns),
    change("nvmf_subsystem_remove_ns", "Removes a namespace; its device stays.", remove_ns),
    change(
        "nvmf_subsystem_add_listener",
        "Lets hosts reach a subsystem at an address.",
        add_listener,
    ),
    change(
        "nvmf_subsystem_remove_listener",
        "Takes that back; connections that are there stay.",
        remove_listener,
    ),
    look("nvmf_subsystem_get_listeners", "Where a subsystem can be reached.", get_listeners),
    change(
        "nvmf_subsystem_listener_set_ana_state",
        "Says how good the path of a listener is.",
        set_ana,
    ),
    change(
        "nvmf_subsystem_set_ns_ana_group",
        "Nothing: the ANA group of a namespace is its NSID, and any other is refused.",
        set_group,
    ),
    look("nvmf_subsystem_get_controllers", "Controllers of a subsystem.", get_controllers),
];

/// Does `edit` with a subsystem that RPC has made. `refused` is for what the target cannot do.
pub(super) fn edit<T>(
    manager: &Manager,
    (nqn, tgt_name): (&str, Option<&str>),
    refused: impl Fn(String) -> RpcError,
    edit: impl FnOnce(&mut SubsystemSpec) -> Rpc<T>,
) -> Rpc<T> {
    check_target(tgt_name)?;
    manager.check_owner(nqn)?;
    manager.change(refused, |model| {
        let subsystem = model.subsystem_mut(nqn);
        edit(subsystem.ok_or_else(|| RpcError::params(format!("no subsystem {nqn}")))?)
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddNamespace {
    nqn: String,
    namespace: NewNamespace,
    tgt_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewNamespace {
    bdev_name: String,
    nsid: Option<u32>,
    uuid: Option<String>,
    nguid: Option<String>,
    eui64: Option<String>,
    anagrpid: Option<u32>,
    no_auto_visible: Option<bool>,
    hide_metadata: Option<bool>,
    ptpl_file: Option<PathBuf>,
}

fn add_ns(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    let AddNamespace { nqn, namespace: new, tgt_name } = params_of(&params)?;
    check_target(tgt_name.as_deref())?;
    manager.check_owner(&nqn)?;
    let bad = |what: &str| Err(RpcError::params(what));
    let is_none = |id: &Option<String>| id.as_deref().is_some_and(|id| parse_uuid(id).is_none());
    if is_none(&new.uuid) || is_none(&new.nguid) {
        return bad("uuid and nguid have 32 hexadecimal digits, not all zeroes");
    }
    if new.eui64.is_some() || [new.no_auto_visible, new.hide_metadata].contains(&Some(true)) {
        return bad("no eui64, no_auto_visible and hide_metadata here");
    }
    let reservations =
        new.ptpl_file.as_deref().map(|path| reservation_file(manager, path)).transpose()?;
    manager.change(RpcError::params, |model| {
        let device = model.device(&new.bdev_name).map(|device| device.name.clone());
        let Some(device) = device else {
            return Err(RpcError::params(format!("no device {}", new.bdev_name)));
        };
        if let Some((other, nsid)) = model.claim(&device) {
            return Err(RpcError::params(format!("{device} is namespace {nsid} of {other}")));
        }
        if let Some(lvstore) = model.lvstore_on(&device) {
            return Err(RpcError::params(format!("{device} has the store {}", lvstore.name)));
        }
        let subsystem = model.subsystem_mut(&nqn);
        let subsystem = subsystem.ok_or_else(|| RpcError::params(format!("no subsystem {nqn}")))?;
        let most = subsystem.max_namespaces;
        let nsid = match new.nsid {
            None | Some(0) => subsystem.free_nsid(),
            Some(nsid) => (nsid <= most).then_some(nsid),
        };
        let nsid = nsid.ok_or_else(|| RpcError::params(format!("max_namespaces is {most}")))?;
        if subsystem.namespaces.iter().any(|other| other.nsid == nsid) {
            return Err(RpcError::params(format!("nsid {nsid} is taken")));
        }
        if new.anagrpid.is_some_and(|group| group != 0 && group != nsid) {
            return Err(RpcError::params("the ANA group of a namespace is its nsid"));
        }
        let (uuid, nguid) = (new.uuid.clone(), new.nguid.clone());
        subsystem.namespaces.push(NamespaceSpec { nsid, device, uuid, nguid, reservations });
        subsystem.namespaces.sort_by_key(|namespace| namespace.nsid);
        Ok(json!(nsid))
    })
}

/// The folder of a file that may be new has to be one that RPC may use.
fn reservation_file(manager: &Manager, path: &std::path::Path) -> Rpc<PathBuf> {
    let (folder, name) = (path.parent(), path.file_name());
    let (Some(folder), Some(name)) = (folder, name) else {
        return Err(RpcError::params(format!("ptpl_file {}", path.display())));
    };
    Ok(manager.allowed(folder)?.join(name))
}

fn remove_ns(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        nqn: String,
        nsid: u32,
        tgt_name: Option<String>,
    }
    let Asked { nqn, nsid, tgt_name } = params_of(&params)?;
    edit(manager, (&nqn, tgt_name.as_deref()), RpcError::params, |subsystem| {
        let at = subsystem.namespaces.iter().position(|namespace| namespace.nsid == nsid);
        subsystem.namespaces.remove(at.ok_or_else(|| RpcError::params(format!("no nsid {nsid}")))?);
        Ok(json!(true))
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddListener {
    nqn: String,
    listen_address: Address,
    tgt_name: Option<String>,
    secure_channel: Option<bool>,
    ana_state: Option<AnaWord>,
    sock_impl: Option<String>,
}

fn add_listener(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    let asked: AddListener = params_of(&params)?;
    let secure = asked.secure_channel == Some(true);
    let listener = ListenerSpec { secure, ..asked.listen_address.listener()? };
    if !secure && asked.sock_impl.as_deref() == Some("ssl") {
        return Err(RpcError::params("sock_impl ssl needs secure_channel"));
    }
    if asked.nqn == DISCOVERY {
        return discovery_listener(manager, &listener);
    }
    edit(manager, (&asked.nqn, asked.tgt_name.as_deref()), RpcError::params, |subsystem| {
        check_security(manager, &listener)?;
        if subsystem.listeners.iter().any(|other| is_same(other, &listener)) {
            return Err(RpcError::params("it listens there already"));
        }
        let ana = asked.ana_state.unwrap_or_default();
        if ana != AnaWord::Optimized && !subsystem.ana_reporting {
            return Err(RpcError::params("ana_state needs a subsystem with ana_reporting"));
        }
        subsystem.listeners.push(ListenerSpec { ana, ..listener });
        Ok(json!(true))
    })
}

/// An address asks the same of all subsystems that are there.
fn check_security(manager: &Manager, listener: &ListenerSpec) -> Rpc<()> {
    let (address, model) = (listener.address(), manager.model());
    let there = model.addresses().into_iter().find(|(one, _)| Some(*one) == address);
    if there.is_some_and(|(_, tls)| tls != listener.tls()) {
        return Err(RpcError::params(
            "another subsystem has that address, with another secure_channel",
        ));
    }
    // With the ports that the system has chosen.
    let (seen, _) = manager.server().view();
    let mut of_file = seen.listeners.iter().filter(|one| !one.named_only);
    match of_file.find(|one| Some(one.address) == address) {
        Some(one) if listener.secure && one.tls != TlsUse::Required => Err(RpcError::params(
            "that address is of the configuration file, which does not require TLS there",
        )),
        _ => Ok(()),
    }
}

/// The discovery service is at every listener.
fn discovery_listener(manager: &Manager, listener: &ListenerSpec) -> Rpc<Value> {
    let is_there =
        manager.server().addresses().into_iter().any(|one| Some(one) == listener.address());
    match is_there {
        true => {
            warn!("nvmf_subsystem_add_listener: the discovery service is at every listener");
            Ok(json!(true))
        }
        false => {
            Err(RpcError::params("discovery is where subsystems are: add a listener to one first"))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoveListener {
    nqn: String,
    listen_address: Address,
    tgt_name: Option<String>,
}

fn remove_listener(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    let RemoveListener { nqn, listen_address, tgt_name } = params_of(&params)?;
    let listener = listen_address.listener()?;
    edit(manager, (&nqn, tgt_name.as_deref()), RpcError::params, |subsystem| {
        let at = subsystem.listeners.iter().position(|other| is_same(other, &listener));
        subsystem.listeners.remove(at.ok_or_else(|| RpcError::params("it does not listen there"))?);
        Ok(json!(true))
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    nqn: String,
    tgt_name: Option<String>,
}

impl Named {
    /// Whether there is such a subsystem.
    fn check(&self, manager: &Manager) -> Rpc<()> {
        check_target(self.tgt_name.as_deref())?;
        let exports = manager.server().exports();
        let is_there = exports.subsystems.iter().any(|subsystem| subsystem.nqn == self.nqn);
        match is_there || self.nqn == DISCOVERY {
            true => Ok(()),
            false => Err(RpcError::params(format!("no subsystem {}", self.nqn))),
        }
    }
}

fn get_listeners(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    let named: Named = params_of(&params)?;
    named.check(manager)?;
    let model = manager.model();
    let spec = model.subsystem(&named.nqn);
    let (seen, _) = manager.server().view();
    let addresses = match named.nqn == DISCOVERY {
        true => seen.listeners.iter().map(|one| place::show(one.address)).collect(),
        false => addresses(spec, &seen.listeners),
    };
    let shown = addresses.into_iter().enumerate().map(|(at, address)| {
        let mut shown = json!({"address": address});
        if let Some(spec) = spec.filter(|spec| spec.ana_reporting) {
            let ana = spec.listeners.get(at).map(|listener| listener.ana).unwrap_or_default();
            let groups = spec
                .namespaces
                .iter()
                .map(|namespace| json!({"ana_group": namespace.nsid, "ana_state": ana}));
            shown["ana_states"] = groups.collect();
        }
        shown
    });
    Ok(Value::Array(shown.collect()))
}

fn set_ana(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        nqn: String,
        listen_address: Address,
        ana_state: AnaWord,
        anagrpid: Option<u32>,
        tgt_name: Option<String>,
    }
    let Asked { nqn, listen_address, ana_state, anagrpid, tgt_name } = params_of(&params)?;
    let listener = listen_address.listener()?;
    if anagrpid.is_some_and(|group| group != 0) {
        return Err(RpcError::params(
            "a listener has one state for all groups: leave anagrpid out",
        ));
    }
    edit(manager, (&nqn, tgt_name.as_deref()), RpcError::params, |subsystem| {
        if !subsystem.ana_reporting {
            return Err(RpcError::new(-32603, "error setting ANA state: -22", "no ana_reporting"));
        }
        let known = subsystem.listeners.iter_mut().find(|other| is_same(other, &listener));
        known.ok_or_else(|| RpcError::params("it does not listen there"))?.ana = ana_state;
        Ok(json!(true))
    })
}

/// Each namespace is a group of its own, so that it can go elsewhere by itself.
fn set_group(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        nqn: String,
        nsid: u32,
        anagrpid: u32,
        tgt_name: Option<String>,
    }
    let Asked { nqn, nsid, anagrpid, tgt_name } = params_of(&params)?;
    check_target(tgt_name.as_deref())?;
    manager.check_owner(&nqn)?;
    let model = manager.model();
    let subsystem = model.subsystem(&nqn);
    let subsystem = subsystem.ok_or_else(|| RpcError::params(format!("no subsystem {nqn}")))?;
    if !subsystem.namespaces.iter().any(|namespace| namespace.nsid == nsid) {
        return Err(RpcError::params(format!("no nsid {nsid}")));
    }
    match anagrpid == nsid {
        true => Ok(json!(true)),
        false => Err(RpcError::params(format!(
            "anagrpid {anagrpid}: the ANA group of a namespace is its nsid, {nsid}"
        ))),
    }
}

fn get_controllers(manager: &Manager, params: Params<'_>) -> Rpc<Value> {
    let named: Named = params_of(&params)?;
    named.check(manager)?;
    let (_, controllers) = manager.server().view();
    let own = controllers.iter().filter(|controller| *controller.subnqn == *named.nqn);
    let shown = own.map(|controller| {
        let kind = match controller.kind {
            ControllerKind::Io => "io",
            ControllerKind::Discovery => "discovery",
        };
        json!({
            "cntlid": controller.cntlid, "cntrltype": kind, "hostnqn": *controller.hostnqn,
            "hostid": show_uuid(&controller.hostid), "num_io_qpairs": controller.io_queues,
        })
    });
    Ok(Value::Array(shown.collect()))
}
