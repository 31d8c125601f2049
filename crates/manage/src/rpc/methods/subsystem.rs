//! Namespaces, listeners and controllers of a subsystem.

use super::devices::of_file;
use super::nvmf::{DISCOVERY, addresses, is_same};
use super::place::{self, Address};
use super::transport::check_target;
use super::{Method, MethodParams, change, params_of, query};
use crate::model::{
    AnaWord, ClassWord, ManagedDevice, ManagedModel, SavedListener, SavedNamespace, SavedSubsystem,
    parse_uuid, show_uuid,
};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use roadtrain_target_engine::{
    AnaListener, AnaState, ConfigError, ConfigOperation, Export, Subsystem, TargetListener, TlsUse,
};
use roadtrain_target_proto::{ANA_GROUPS_MAX, ControllerKind, NamespaceView};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
        "Reverts that; existing connections stay.",
        remove_listener,
    ),
    query("nvmf_subsystem_get_listeners", "Where a subsystem can be reached.", get_listeners),
    change(
        "nvmf_subsystem_listener_set_ana_state",
        "Says how good the path of a listener is.",
        set_ana,
    ),
    query("nvmf_subsystem_get_controllers", "Controllers of a subsystem.", get_controllers),
];

/// Edits a subsystem of the state. One of the configuration file is changed by the operations that `file` returns,
/// until the next reload. `refused` makes the reply if the target refuses the change.
pub(super) fn edit(
    manager: &ManagerSession<'_>,
    (nqn, tgt_name): (&str, Option<&str>),
    (refused, file): (
        impl Fn(ConfigError) -> RpcError,
        impl FnOnce(&Subsystem) -> Rpc<Vec<ConfigOperation<Export>>>,
    ),
    edit: impl FnOnce(&mut SavedSubsystem) -> Rpc<Value>,
) -> Rpc<Value> {
    check_target(tgt_name)?;
    if let Some(subsystem) = manager.file_subsystem(nqn) {
        return of_file(manager, refused, file(&subsystem)?);
    }
    manager.change(refused, |model| {
        let subsystem = model.subsystem_mut(nqn);
        edit(subsystem.ok_or_else(|| RpcError::params(format!("no subsystem {nqn}")))?)
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddNamespaceParams {
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
    /// Priority class of requests without one; not of SPDK.
    class: Option<ClassWord>,
    /// File for marks of Write Uncorrectable, or `none`; not of SPDK.
    uncorrectable: Option<PathBuf>,
}

/// Files of a new namespace, which the caller may use.
struct NamespaceFiles {
    reservations: Option<PathBuf>,
    uncorrectable: Option<PathBuf>,
}

impl NewNamespace {
    /// Checks that the caller may use the files.
    fn files(&self, manager: &ManagerSession<'_>) -> Rpc<NamespaceFiles> {
        let file = |name, path: &Option<PathBuf>| {
            path.as_deref().map(|path| kept_file(manager, (name, path))).transpose()
        };
        Ok(NamespaceFiles {
            reservations: file("ptpl_file", &self.ptpl_file)?,
            uncorrectable: match &self.uncorrectable {
                Some(path) if path == SavedNamespace::NOWHERE => Some(path.clone()),
                given => file("uncorrectable", given)?,
            },
        })
    }

    /// Returns the namespace as the state has it. Without an ANA group it has one by itself, as far as there are enough.
    fn saved(
        &self,
        nsid: u32,
        device: &ManagedDevice,
        files: NamespaceFiles,
    ) -> Rpc<SavedNamespace> {
        let own_group = if nsid <= ANA_GROUPS_MAX { nsid } else { NamespaceView::ALL.ana_group };
        let NamespaceFiles { reservations, uncorrectable } = files;
        let saved = SavedNamespace {
            uuid: self.uuid.clone(),
            nguid: self.nguid.clone(),
            reservations,
            uncorrectable,
            class: self.class,
            hosts: (self.no_auto_visible == Some(true)).then(BTreeSet::new),
            ana_group: self.anagrpid.filter(|group| *group != 0).unwrap_or(own_group),
            ..SavedNamespace::new(nsid, &*device.name)
        };
        saved.check_device(device).map_err(RpcError::params)?;
        Ok(saved)
    }
}

fn add_ns(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let AddNamespaceParams { nqn, namespace: new, tgt_name } = params_of(&params)?;
    check_target(tgt_name.as_deref())?;
    let bad = |what: &str| Err(RpcError::params(what));
    let is_none = |id: &Option<String>| id.as_deref().is_some_and(|id| parse_uuid(id).is_none());
    if is_none(&new.uuid) || is_none(&new.nguid) {
        return bad("uuid and nguid have 32 hexadecimal digits, not all zeroes");
    }
    if new.eui64.is_some() || new.hide_metadata == Some(true) {
        return bad("no eui64 and hide_metadata here");
    }
    let files = new.files(manager)?;
    let file = manager.file_subsystem(&nqn);
    let done = manager.change_with(RpcError::params, |model, operations| {
        let device = unused_device(model, &new.bdev_name)?;
        if let Some(subsystem) = &file {
            let used: BTreeSet<u32> = subsystem.namespaces.iter().map(|one| one.nsid).collect();
            let is_free = |nsid: &u32| !used.contains(nsid);
            let nsid = new.nsid.filter(|nsid| *nsid != 0).or_else(|| (1..).find(is_free));
            let nsid = nsid.unwrap_or_default();
            let namespace = new.saved(nsid, &device, files)?.export(model);
            let namespace = namespace.ok_or_else(|| RpcError::params("it has no device"))?;
            operations.push(ConfigOperation::AddNamespace { nqn: nqn.clone(), namespace });
            model.lent.insert(device.name.clone(), (nqn.clone(), nsid));
            return Ok(json!(nsid));
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
        subsystem.namespaces.push(new.saved(nsid, &device, files)?);
        subsystem.namespaces.sort_by_key(|namespace| namespace.nsid);
        Ok(json!(nsid))
    });
    done.map(|(result, _)| result)
}

/// Returns the device of that name, alias or UUID, if neither a namespace nor a store of volumes has it.
fn unused_device(model: &ManagedModel, name: &str) -> Rpc<Arc<ManagedDevice>> {
    let device = model.device(name);
    let device = device.ok_or_else(|| RpcError::params(format!("no device {name}")))?;
    let name = &device.name;
    if let Some((other, nsid)) = model.claim(name) {
        return Err(RpcError::params(format!("{name} is namespace {nsid} of {other}")));
    }
    match model.lvstore_on(name) {
        Some(lvstore) => Err(RpcError::params(format!("{name} has the store {}", lvstore.name))),
        None => Ok(device.clone()),
    }
}

/// Resolves the path of a file that may be new. Its folder has to be one that RPC may use.
fn kept_file(manager: &ManagerSession<'_>, (what, path): (&str, &Path)) -> Rpc<PathBuf> {
    let (folder, name) = (path.parent(), path.file_name());
    let (Some(folder), Some(name)) = (folder, name) else {
        return Err(RpcError::params(format!("{what} {}", path.display())));
    };
    Ok(manager.allowed(folder)?.join(name))
}

fn remove_ns(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RemoveNamespaceParams {
        nqn: String,
        nsid: u32,
        tgt_name: Option<String>,
    }
    let RemoveNamespaceParams { nqn, nsid, tgt_name } = params_of(&params)?;
    check_target(tgt_name.as_deref())?;
    let is_of_file = manager.file_subsystem(&nqn).is_some();
    let done = manager.change_with(RpcError::params, |model, operations| {
        if is_of_file {
            model.lent.retain(|_, place| *place != (nqn.clone(), nsid));
            operations.push(ConfigOperation::RemoveNamespace { nqn, nsid });
            return Ok(json!(true));
        }
        let subsystem = model.subsystem_mut(&nqn);
        let subsystem = subsystem.ok_or_else(|| RpcError::params(format!("no subsystem {nqn}")))?;
        let at = subsystem.namespaces.iter().position(|namespace| namespace.nsid == nsid);
        subsystem.namespaces.remove(at.ok_or_else(|| RpcError::params(format!("no nsid {nsid}")))?);
        Ok(json!(true))
    });
    done.map(|(result, _)| result)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddListenerParams {
    nqn: String,
    listen_address: Address,
    tgt_name: Option<String>,
    secure_channel: Option<bool>,
    ana_state: Option<AnaWord>,
    sock_impl: Option<String>,
}

fn add_listener(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let requested: AddListenerParams = params_of(&params)?;
    let secure = requested.secure_channel == Some(true);
    let listener = SavedListener { secure, ..requested.listen_address.listener()? };
    if !secure && requested.sock_impl.as_deref() == Some("ssl") {
        return Err(RpcError::params("sock_impl ssl needs secure_channel"));
    }
    if requested.nqn == DISCOVERY {
        return discovery_listener(manager, &listener);
    }
    let ana = requested.ana_state.unwrap_or_default();
    let of_file = |subsystem: &Subsystem| {
        let (mut all, address) = (listeners_of_file(manager, subsystem), socket(&listener)?);
        if all.contains_key(&address) {
            return Err(RpcError::params("it listens there already"));
        }
        check_security(manager, &listener)?;
        all.insert(address, ana.into());
        let nqn = subsystem.nqn.clone();
        let mut operations = listen(manager, (address, listener.tls()));
        operations.push(ConfigOperation::SetListeners { nqn, listeners: Some(all) });
        Ok(operations)
    };
    let whole = (&*requested.nqn, requested.tgt_name.as_deref());
    edit(manager, whole, (RpcError::params, of_file), |subsystem| {
        check_security(manager, &listener)?;
        if subsystem.listeners.iter().any(|other| is_same(other, &listener)) {
            return Err(RpcError::params("it listens there already"));
        }
        if ana != AnaWord::Optimized && !subsystem.ana_reporting {
            return Err(RpcError::params("ana_state needs a subsystem with ana_reporting"));
        }
        subsystem.listeners.push(SavedListener { ana, ..listener.clone() });
        Ok(json!(true))
    })
}

fn socket(listener: &SavedListener) -> Rpc<SocketAddr> {
    listener.address().ok_or_else(|| RpcError::params("traddr"))
}

/// Returns the listeners of a subsystem of the configuration file: its own, or all addresses of the file.
fn listeners_of_file(
    manager: &ManagerSession<'_>,
    subsystem: &Subsystem,
) -> BTreeMap<SocketAddr, AnaState> {
    let (seen, _) = manager.server().view();
    let shared = seen.listeners.iter().filter(|one| !one.named_only);
    let shared = shared.map(|one| (one.address, AnaState::Optimized));
    subsystem.listeners.clone().unwrap_or_else(|| shared.collect())
}

/// Returns the operation that opens a listener at an address, if there is none yet.
fn listen(
    manager: &ManagerSession<'_>,
    (address, tls): (SocketAddr, TlsUse),
) -> Vec<ConfigOperation<Export>> {
    let exports = manager.server().exports();
    let is_there = manager.server().addresses().contains(&address);
    let is_free = |id: &u16| exports.listeners.iter().all(|listener| listener.portid != *id);
    let portid = (1..=u16::MAX).find(is_free).filter(|_| !is_there);
    let listener = |portid| TargetListener { portid, address, tls, named_only: true };
    portid.map(|portid| ConfigOperation::Listen(listener(portid))).into_iter().collect()
}

/// Checks that all subsystems at the address agree on TLS.
fn check_security(manager: &ManagerSession<'_>, listener: &SavedListener) -> Rpc<()> {
    let (address, model) = (listener.address(), manager.model());
    let there = model.addresses().into_iter().find(|(one, _)| Some(*one) == address);
    if there.is_some_and(|(_, tls)| tls != listener.tls()) {
        return Err(RpcError::params(
            "another subsystem has that address, with another secure_channel",
        ));
    }
    // The view has the ports that the system has chosen.
    let (seen, _) = manager.server().view();
    let mut of_file = seen.listeners.iter().filter(|one| !one.named_only);
    match of_file.find(|one| Some(one.address) == address) {
        Some(one) if listener.secure && one.tls != TlsUse::Required => Err(RpcError::params(
            "that address is of the configuration file, which does not require TLS there",
        )),
        _ => Ok(()),
    }
}

/// Replies to a listener for the discovery service, which every listener serves.
fn discovery_listener(manager: &ManagerSession<'_>, listener: &SavedListener) -> Rpc<Value> {
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
struct RemoveListenerParams {
    nqn: String,
    listen_address: Address,
    tgt_name: Option<String>,
}

fn remove_listener(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let RemoveListenerParams { nqn, listen_address, tgt_name } = params_of(&params)?;
    let listener = listen_address.listener()?;
    let of_file = |subsystem: &Subsystem| {
        let mut all = listeners_of_file(manager, subsystem);
        let removed = all.remove(&socket(&listener)?);
        removed.ok_or_else(|| RpcError::params("it does not listen there"))?;
        let nqn = subsystem.nqn.clone();
        Ok(vec![ConfigOperation::SetListeners { nqn, listeners: Some(all) }])
    };
    edit(manager, (&nqn, tgt_name.as_deref()), (RpcError::params, of_file), |subsystem| {
        let at = subsystem.listeners.iter().position(|other| is_same(other, &listener));
        subsystem.listeners.remove(at.ok_or_else(|| RpcError::params("it does not listen there"))?);
        Ok(json!(true))
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubsystemNameParams {
    nqn: String,
    tgt_name: Option<String>,
}

impl SubsystemNameParams {
    /// Checks that the subsystem exists.
    fn check(&self, manager: &ManagerSession<'_>) -> Rpc<()> {
        check_target(self.tgt_name.as_deref())?;
        let exports = manager.server().exports();
        let is_there = exports.subsystems.iter().any(|subsystem| subsystem.nqn == self.nqn);
        match is_there || self.nqn == DISCOVERY {
            true => Ok(()),
            false => Err(RpcError::params(format!("no subsystem {}", self.nqn))),
        }
    }
}

fn get_listeners(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let named: SubsystemNameParams = params_of(&params)?;
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
            let listener = spec.listeners.get(at);
            let groups: BTreeSet<u32> = spec.namespaces.iter().map(|one| one.ana_group).collect();
            let of = |group| listener.map(|listener| listener.ana_of(group)).unwrap_or_default();
            let states = groups.into_iter();
            let states = states.map(|group| json!({"ana_group": group, "ana_state": of(group)}));
            shown["ana_states"] = states.collect();
        }
        shown
    });
    Ok(Value::Array(shown.collect()))
}

fn set_ana(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SetAnaStateParams {
        nqn: String,
        listen_address: Address,
        ana_state: AnaWord,
        anagrpid: Option<u32>,
        tgt_name: Option<String>,
    }
    let SetAnaStateParams { nqn, listen_address, ana_state, anagrpid, tgt_name } =
        params_of(&params)?;
    let listener = listen_address.listener()?;
    let group = anagrpid.filter(|group| *group != 0);
    let of_file = |subsystem: &Subsystem| {
        let (mut all, address) = (listeners_of_file(manager, subsystem), socket(&listener)?);
        let known = all.get_mut(&address);
        let known = known.ok_or_else(|| RpcError::params("it does not listen there"))?;
        let (nqn, at) = (subsystem.nqn.clone(), AnaListener::Tcp(address));
        let set = |group, state| ConfigOperation::SetGroupAna {
            nqn: nqn.clone(),
            group,
            listener: at,
            state,
        };
        if let Some(group) = group {
            return Ok(vec![set(group, Some(ana_state.into()))]);
        }
        *known = ana_state.into();
        let own = subsystem.ana_groups.iter().filter(|(_, states)| states.get(at).is_some());
        let mut operations: Vec<_> = own.map(|(group, _)| set(*group, None)).collect();
        let (nqn, listeners) = (nqn.clone(), Some(all));
        operations.push(ConfigOperation::SetListeners { nqn, listeners });
        Ok(operations)
    };
    edit(manager, (&nqn, tgt_name.as_deref()), (RpcError::params, of_file), |subsystem| {
        if !subsystem.ana_reporting {
            return Err(RpcError::new(-32603, "error setting ANA state: -22", "no ana_reporting"));
        }
        let known = subsystem.listeners.iter_mut().find(|other| is_same(other, &listener));
        let known = known.ok_or_else(|| RpcError::params("it does not listen there"))?;
        known.set_ana(group, ana_state);
        Ok(json!(true))
    })
}

fn get_controllers(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let named: SubsystemNameParams = params_of(&params)?;
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
