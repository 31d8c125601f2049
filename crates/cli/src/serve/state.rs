//! Changes of the state's subsystems, which are persistent.

use crate::config::SubsystemSettings as NewSubsystem;
use crate::control::{ControlRefusal, ExportChange, RefusalReason};
use crate::namespace::{NamespaceKind, NamespaceSettings as NewNamespace};
use crate::rates::RateArgs;
use roadtrain_host_engine::Class;
use roadtrain_manage::model::{
    ClassWord, DeviceKind, ManagedDevice, ManagedModel, RateLimitsSpec, RbdAccess, RbdImageSpec,
    SavedNamespace, SavedSubsystem, new_uuid,
};
use roadtrain_manage::rpc::ManagerSession;
use roadtrain_reactor::metrics::name_in_file;
use roadtrain_store::{OpenError, RemoteContext};
use roadtrain_target_engine::ExportBlocks;
use roadtrain_target_proto::{NAMESPACES_MAX, NamespaceId, NamespaceView};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Suffix of the file with reservations, as for a namespace of the configuration file.
const RESERVATIONS_SUFFIX: &str = ".reservations";

fn invalid(why: impl Display) -> ControlRefusal {
    ControlRefusal::new(RefusalReason::Invalid, why)
}

/// Makes a change of the state's subsystem `nqn`.
///
/// # Errors
/// The change cannot be made.
pub(super) fn edit(
    model: &mut ManagedModel,
    (nqn, change): (&str, ExportChange),
    session: &ManagerSession<'_>,
) -> Result<(), ControlRefusal> {
    use ExportChange as Change;
    match change {
        Change::AddSubsystem { subsystem } => add_subsystem(model, subsystem, session),
        Change::RemoveSubsystem { .. } => remove_subsystem(model, nqn),
        Change::SetSubsystem { serial, model: number, .. } => {
            let subsystem = subsystem(model, nqn)?;
            subsystem.serial = serial.or(subsystem.serial.take());
            subsystem.model = number.or(subsystem.model.take());
            Ok(())
        }
        Change::AddNamespace { namespace, .. } => {
            add_namespace(model, (nqn, namespace), (session, None))
        }
        Change::ReplaceNamespace { namespace, .. } => {
            let nsid = namespace.nsid.ok_or_else(|| invalid("which namespace? Give its nsid"))?;
            let open = model.device(&name_in_file(nqn, nsid)).cloned();
            remove_namespace(model, (nqn, nsid))?;
            add_namespace(model, (nqn, namespace), (session, open.as_ref()))
        }
        Change::RemoveNamespace { nsid, .. } => remove_namespace(model, (nqn, nsid)),
        Change::AllowHost { host, .. } => {
            let is_new = subsystem(model, nqn)?.hosts.insert(host.clone());
            is_new.then_some(()).ok_or_else(|| {
                ControlRefusal::new(RefusalReason::Exists, format!("{host} may use {nqn} already"))
            })
        }
        Change::DisallowHost { host, .. } => {
            let subsystem = subsystem(model, nqn)?;
            subsystem.host_keys.remove(&host);
            let was_there = subsystem.hosts.remove(&host);
            was_there.then_some(()).ok_or_else(|| {
                ControlRefusal::new(
                    RefusalReason::Unknown,
                    format!("{host} is not among the hosts of {nqn}"),
                )
            })
        }
        Change::AllowAnyHost { allow, .. } => {
            subsystem(model, nqn)?.allow_any_host = allow;
            Ok(())
        }
        Change::LimitNamespace { nsid, rates, .. } => {
            let limits = limits(&rates)?;
            let device = subsystem(model, nqn)?.namespaces.iter().find(|one| one.nsid == nsid);
            let device = device.map(|one| one.device.clone());
            model.limits.insert(device.ok_or_else(|| unknown(nqn, nsid))?, limits);
            model.limits.retain(|_, limits| limits.is_limited());
            Ok(())
        }
        Change::LimitHost { host, rates, .. } => {
            let limits = limits(&rates)?;
            let subsystem = subsystem(model, nqn)?;
            subsystem.host_limits.insert(host, limits);
            subsystem.host_limits.retain(|_, limits| limits.is_limited());
            Ok(())
        }
        Change::ResizeNamespace { .. } => {
            Err(invalid("a size is changed by itself: make it a request of its own"))
        }
        Change::Listen { .. } | Change::Unlisten { .. } | Change::SetAna { .. } => {
            Err(invalid("a listener is not of one subsystem"))
        }
    }
}

fn remove_subsystem(model: &mut ManagedModel, nqn: &str) -> Result<(), ControlRefusal> {
    let all = subsystem(model, nqn)?.namespaces.iter().map(|one| one.nsid);
    for nsid in all.collect::<Vec<_>>() {
        remove_namespace(model, (nqn, nsid))?;
    }
    model.subsystems.retain(|one| one.nqn != nqn);
    Ok(())
}

fn unknown(nqn: &str, nsid: u32) -> ControlRefusal {
    ControlRefusal::new(RefusalReason::Unknown, format!("{nqn} has no namespace {nsid}"))
}

fn limits(rates: &RateArgs) -> Result<RateLimitsSpec, ControlRefusal> {
    let limits = rates.limits().map_err(invalid)?;
    limits.check().map_err(invalid)?;
    Ok(limits)
}

fn subsystem<'a>(
    model: &'a mut ManagedModel,
    nqn: &str,
) -> Result<&'a mut SavedSubsystem, ControlRefusal> {
    let known = model.subsystem_mut(nqn);
    known.ok_or_else(|| {
        ControlRefusal::new(RefusalReason::Unknown, format!("there is no subsystem {nqn}"))
    })
}

fn add_subsystem(
    model: &mut ManagedModel,
    new: NewSubsystem,
    session: &ManagerSession<'_>,
) -> Result<(), ControlRefusal> {
    let nqn = new.nqn.clone();
    if new.require_auth || new.require_tls {
        let hint = "require_auth and require_tls are set in the configuration file";
        return Err(invalid(format!("subsystem {nqn}: {hint}")));
    }
    if model.subsystem(&nqn).is_some() {
        return Err(ControlRefusal::new(
            RefusalReason::Exists,
            format!("subsystem {nqn} exists already"),
        ));
    }
    let rates = new.host_rates.iter();
    let host_limits = rates.map(|(host, rates)| Ok((host.clone(), limits(rates)?)));
    let host_limits = host_limits.collect::<Result<_, ControlRefusal>>()?;
    if !new.ana_groups.is_empty() {
        return Err(invalid("ana_groups is for the configuration file: use `ctl listener set`"));
    }
    model.subsystems.push(SavedSubsystem {
        nqn: nqn.clone(),
        serial: new.serial,
        model: new.model,
        max_namespaces: NAMESPACES_MAX,
        allow_any_host: new.allow_hosts.is_none(),
        hosts: new.allow_hosts.unwrap_or_default(),
        ana_reporting: true,
        host_limits,
        all_listeners: true,
        ..SavedSubsystem::default()
    });
    for namespace in new.namespaces {
        add_namespace(model, (&nqn, namespace), (session, None))?;
    }
    Ok(())
}

/// Adds a namespace with the blocks of `new`; without an NSID it gets the first free one. `open` is the device that it
/// replaces.
fn add_namespace(
    model: &mut ManagedModel,
    (nqn, new): (&str, NewNamespace),
    (session, open): (&ManagerSession<'_>, Option<&Arc<ManagedDevice>>),
) -> Result<(), ControlRefusal> {
    let known = subsystem(model, nqn)?;
    let most = known.max_namespaces;
    let nsid = new.nsid.or_else(|| known.free_nsid()).filter(|nsid| (1..=most).contains(nsid));
    let nsid = nsid.ok_or_else(|| invalid(format!("{nqn} has at most {most} namespaces")))?;
    if known.namespaces.iter().any(|one| one.nsid == nsid) {
        let message = format!("namespace {nsid} of {nqn} exists already");
        return Err(ControlRefusal::new(RefusalReason::Exists, message));
    }
    let device = device_for(model, (nqn, nsid), &new, (session, open))?;
    let limits = limits(&new.rates)?;
    if limits.is_limited() {
        model.limits.insert(device.clone(), limits);
    }
    let saved = SavedNamespace {
        reservations: reservation_file(&new, session)?,
        ..saved_namespace((nsid, &device), new, (model, session))?
    };
    let namespaces = &mut subsystem(model, nqn)?.namespaces;
    namespaces.push(saved);
    namespaces.sort_by_key(|one| one.nsid);
    Ok(())
}

/// Returns the namespace with the blocks of `device`, as the state has it, without a file for reservations.
pub(super) fn saved_namespace(
    (nsid, device): (u32, &str),
    new: NewNamespace,
    (model, session): (&ManagedModel, &ManagerSession<'_>),
) -> Result<SavedNamespace, ControlRefusal> {
    let unknown = || ControlRefusal::new(RefusalReason::Unknown, format!("no device {device}"));
    let device = model.device(device).ok_or_else(unknown)?;
    let NamespaceView { hosts, ana_group } = new.view();
    let class = new.class.map(|class| ClassWord::from(Class::from(class)));
    let uncorrectable = match new.uncorrectable {
        Some(file) if *file != *SavedNamespace::NOWHERE => Some(session.allowed_new(&file)?),
        given => given,
    };
    let (uuid, mut nguid) = (new.uuid, new.nguid);
    if device.standby.is_some() && uuid.is_none() && nguid.is_none() {
        // Every target that names no identity shows the one of the blocks.
        nguid = Some(nguid_of_blocks(device)?);
    }
    let plain = SavedNamespace::new(nsid, &*device.name);
    let saved = SavedNamespace { uuid, nguid, class, uncorrectable, hosts, ana_group, ..plain };
    saved.check_device(device).map_err(invalid)?;
    Ok(saved)
}

/// Returns the NGUID that follows from the blocks of a device.
fn nguid_of_blocks(device: &ManagedDevice) -> Result<String, ControlRefusal> {
    let identity = device.store.identity();
    let identity = identity.map_err(|error| ControlRefusal::new(RefusalReason::Store, error))?;
    let nguid = NamespaceId::choose(None, None, identity).nguid;
    Ok(format!("{:032x}", u128::from_be_bytes(nguid)))
}

/// Returns the file for persistent reservations: the named one, or one in the directory of the blocks' file.
fn reservation_file(
    new: &NewNamespace,
    session: &ManagerSession<'_>,
) -> Result<Option<PathBuf>, ControlRefusal> {
    let file = match (&new.reservations, &new.path) {
        (Some(file), _) if file.as_os_str() == "none" => return Ok(None),
        (Some(file), _) => file.clone(),
        (None, Some(path)) if new.kind == NamespaceKind::File && !new.read_only => {
            let mut file = path.clone().into_os_string();
            file.push(RESERVATIONS_SUFFIX);
            file.into()
        }
        _ => return Ok(None),
    };
    Ok(Some(session.allowed_new(&file)?))
}

/// Returns the name of the device of `new`: an existing one, or one that is named after its namespace and removed with
/// it. `open` was the device of that namespace before: it stays if it has the same blocks.
pub(super) fn device_for(
    model: &mut ManagedModel,
    (nqn, nsid): (&str, u32),
    new: &NewNamespace,
    (session, open): (&ManagerSession<'_>, Option<&Arc<ManagedDevice>>),
) -> Result<String, ControlRefusal> {
    let Some(name) = &new.device else {
        let (name, kind) = (name_in_file(nqn, nsid), device_kind(new, session)?);
        let open = open.filter(|open| has_blocks_of(open, (new, &kind)));
        let device = match open {
            Some(open) => with_settings(open, new)?,
            None => open_device(&name, new, kind, &model.remote.context)?,
        };
        model.devices.push(Arc::new(device));
        return Ok(name);
    };
    let device = model.device(name).map(|device| device.name.clone());
    let device = device
        .ok_or_else(|| ControlRefusal::new(RefusalReason::Unknown, format!("no device {name}")))?;
    if let Some((other, nsid)) = model.claim(&device) {
        return Err(ControlRefusal::new(
            RefusalReason::Exists,
            format!("{name} is namespace {nsid} of {other}"),
        ));
    }
    match model.lvstore_on(&device) {
        Some(store) => Err(invalid(format!("{name} has the store of volumes {}", store.name))),
        None => Ok(device),
    }
}

/// True if `open` has the file, device or image that `new` names, in the same way. One that stands by has no blocks.
fn has_blocks_of(open: &ManagedDevice, (new, kind): (&NewNamespace, &DeviceKind)) -> bool {
    let geometry = open.store.geometry();
    // The block size of blocks over the network is their own.
    let is_remote = matches!(kind, DeviceKind::Remote(_));
    open.kind == *kind
        && !kind.is_memory()
        && (is_remote || geometry.lba_bytes() == new.lba)
        && geometry.read_only == new.read_only
        && !(open.standby.is_some() || new.standby)
}

/// Returns the open device with the identity of `new`, if that names one.
fn with_settings(
    open: &ManagedDevice,
    new: &NewNamespace,
) -> Result<ManagedDevice, ControlRefusal> {
    let bytes = open.store.geometry().bytes();
    if new.size.is_some_and(|size| size != bytes) {
        let hint = "leave size out here, and use `roadtrain ctl namespace resize`";
        return Err(invalid(format!("{} has {bytes} bytes: {hint}", open.location())));
    }
    let [uuid, nguid] = new.ids().map_err(invalid)?;
    let uuid = uuid.or(nguid).unwrap_or(open.uuid);
    Ok(ManagedDevice { uuid, ..open.with_aliases(Vec::new()) })
}

/// Returns the kind of device for the blocks of `new`.
fn device_kind(
    new: &NewNamespace,
    session: &ManagerSession<'_>,
) -> Result<DeviceKind, ControlRefusal> {
    Ok(match new.kind {
        NamespaceKind::Mem => DeviceKind::Malloc,
        NamespaceKind::Ssd => DeviceKind::Ssd(new.pace()),
        NamespaceKind::Null => DeviceKind::Null,
        NamespaceKind::File | NamespaceKind::Block => {
            let path = session.allowed_new(new.path.as_deref().unwrap_or(Path::new("")))?;
            DeviceKind::Aio(path)
        }
        NamespaceKind::Rbd => {
            let image = new.image.as_deref().and_then(|image| image.split_once('/'));
            let (pool, image) = image.ok_or_else(|| invalid("write rbd:POOL/IMAGE"))?;
            let allowed = |path: &Option<PathBuf>| {
                path.as_deref().map(|path| session.allowed(path)).transpose()
            };
            let (conf, keyring) = (allowed(&new.conf)?, allowed(&new.keyring)?);
            let access = RbdAccess { id: new.id.clone(), conf, keyring };
            DeviceKind::Rbd(RbdImageSpec {
                pool: pool.into(),
                image: image.into(),
                cluster: None,
                access,
                passphrase_file: allowed(&new.passphrase_file)?,
                passphrase_key: new.passphrase_key.clone(),
            })
        }
        NamespaceKind::Nvme | NamespaceKind::Nbd => {
            let files = new.connect_files();
            files.iter().try_for_each(|file| session.allowed(file).map(drop))?;
            DeviceKind::Remote(new.remote_blocks().map_err(invalid)?)
        }
        NamespaceKind::Device => return Err(invalid("a device is open already")),
    })
}

/// Opens the blocks of `new`; creates a file or image with `size` or `create`.
fn open_device(
    name: &str,
    new: &NewNamespace,
    kind: DeviceKind,
    context: &RemoteContext,
) -> Result<ManagedDevice, ControlRefusal> {
    let failed = |error: OpenError| ControlRefusal::new(RefusalReason::Store, error);
    match &kind {
        DeviceKind::Aio(path) => make(new, Some(path.clone()))?,
        _ => make(new, None)?,
    }
    let [uuid, nguid] = new.ids().map_err(invalid)?;
    let given = uuid.or(nguid);
    if new.standby {
        let shape = (new.lba, new.read_only);
        return ManagedDevice::stand_by((name.to_owned(), given), kind, shape).map_err(failed);
    }
    let uuid = given.map_or_else(new_uuid, Ok);
    let uuid = uuid.map_err(|error| ControlRefusal::new(RefusalReason::Failed, error))?;
    let shape = (new.lba, new.size.unwrap_or(0), new.read_only);
    let device = ManagedDevice::open_for((name.to_owned(), uuid), kind, shape, context);
    let device = device.map_err(failed)?;
    // Blocks over the network may have a UUID, which hosts see at every target.
    let uuid = given.or(device.store.identifiers().uuid).unwrap_or(uuid);
    Ok(ManagedDevice { uuid, ..device })
}

/// Creates a missing file or image, if its size is given.
fn make(new: &NewNamespace, path: Option<PathBuf>) -> Result<(), ControlRefusal> {
    if new.size.is_none() && new.create.is_none() {
        return Ok(());
    }
    let wanted = NewNamespace { nsid: Some(1), path, device: None, ..new.clone() };
    let ExportBlocks::Spec(spec) = wanted.export().map_err(invalid)?.blocks else { return Ok(()) };
    match roadtrain_store::open(&spec) {
        // It is there, and another process has it.
        Err(OpenError::InUse { .. } | OpenError::Taken { .. }) if new.standby => Ok(()),
        made => made.map(drop).map_err(|error| ControlRefusal::new(RefusalReason::Store, error)),
    }
}

fn remove_namespace(
    model: &mut ManagedModel,
    (nqn, nsid): (&str, u32),
) -> Result<(), ControlRefusal> {
    let namespaces = &mut subsystem(model, nqn)?.namespaces;
    let at = namespaces.iter().position(|one| one.nsid == nsid);
    let removed = namespaces.remove(at.ok_or_else(|| unknown(nqn, nsid))?);
    if removed.device == name_in_file(nqn, nsid) {
        drop(model.remove_device(&removed.device));
    }
    Ok(())
}
