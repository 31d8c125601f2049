//! Changes of namespaces that hosts request by NVMe commands: each is a change of the state, complete or not at all.

use super::error::RpcError;
use super::manager::Manager;
use crate::model::{
    DeviceKind, LvStore, ManagedDevice, ManagedModel, RemovedDevice, SavedNamespace,
    SavedSubsystem, new_uuid, show_uuid,
};
use crate::volumes::{Deletion, Uuid, VolumeError};
use roadtrain_target_proto::NamespaceRequest;
use roadtrain_wire::status::Status;
use std::collections::BTreeSet;
use std::sync::Arc;
use tracing::{info, warn};

/// Reason why a request of a host is refused: the status for the host, and a text for the log.
#[derive(Debug)]
struct NamespaceRefusal(Status, String);

impl From<VolumeError> for NamespaceRefusal {
    fn from(error: VolumeError) -> Self {
        let status = match error {
            VolumeError::NoSpace { .. } | VolumeError::Invalid(_) => {
                Status::NAMESPACE_INSUFFICIENT_CAPACITY.dnr()
            }
            VolumeError::Busy(_) => Status::COMMAND_INTERRUPTED,
            _ => Status::INTERNAL_ERROR,
        };
        NamespaceRefusal(status, error.to_string())
    }
}

/// Busy objects and failed writes: a retry may succeed.
impl From<RpcError> for NamespaceRefusal {
    fn from(error: RpcError) -> Self {
        let is_busy = error.code == RpcError::busy("").code;
        let status = if is_busy { Status::COMMAND_INTERRUPTED } else { Status::INTERNAL_ERROR };
        NamespaceRefusal(status, error.message)
    }
}

fn refused(status: Status, why: impl Into<String>) -> NamespaceRefusal {
    NamespaceRefusal(status.dnr(), why.into())
}

/// Returns the refusal of a change of a namespace that has gone meanwhile.
fn gone(nqn: &str) -> NamespaceRefusal {
    refused(Status::INVALID_FIELD, format!("{nqn} has no such namespace"))
}

impl Manager {
    /// Executes a host's request for a change of the namespaces of subsystem `nqn`. Returns DW0 of the completion: the
    /// NSID of a new namespace, else 0. The state file has the change by then.
    ///
    /// # Errors
    /// The status for the host. Nothing has changed, except namespaces that a delete of all has deleted before the first
    /// that failed.
    pub fn execute_namespace_request(
        &self,
        nqn: &str,
        request: &NamespaceRequest,
    ) -> Result<u32, Status> {
        let done = match request {
            NamespaceRequest::Create { blocks, lba_shift, ana_group } => {
                self.create_namespace(nqn, (*blocks, *lba_shift), *ana_group)
            }
            NamespaceRequest::Delete { nsid } => self.delete_namespaces(nqn, *nsid).map(|()| 0),
            NamespaceRequest::Attach { nsid, hosts } => {
                let attach = |_: &SavedSubsystem, seen: Option<&BTreeSet<String>>| match seen {
                    Some(seen) => Ok(Some(seen | hosts)),
                    None => Ok(None),
                };
                self.set_hosts(nqn, *nsid, attach).map(|()| 0)
            }
            NamespaceRequest::Detach { nsid, hosts } => {
                let detach = |subsystem: &SavedSubsystem, seen: Option<&BTreeSet<String>>| {
                    let all = (!subsystem.allow_any_host).then_some(&subsystem.hosts);
                    let why = "any host sees it: there is no list of the others";
                    let seen = seen.or(all);
                    let seen = seen.ok_or_else(|| refused(Status::CONTROLLER_LIST_INVALID, why))?;
                    Ok(Some(seen - hosts))
                };
                self.set_hosts(nqn, *nsid, detach).map(|()| 0)
            }
        };
        match &done {
            Ok(_) => info!("{nqn}: a host's request was executed: {request:?}"),
            Err(NamespaceRefusal(status, why)) => {
                warn!("{nqn}: a host's request was refused ({status}): {request:?}: {why}");
            }
        }
        done.map_err(|NamespaceRefusal(status, _)| status)
    }

    /// Returns the store in which hosts create namespaces of a subsystem.
    fn namespace_store(&self, nqn: &str) -> Result<Arc<LvStore>, NamespaceRefusal> {
        let model = self.model();
        let name = model.subsystem(nqn).and_then(|one| one.namespace_store.clone());
        let store = name.and_then(|name| model.lvstore(&name).cloned());
        let why = "it has no store of volumes for namespaces of hosts";
        store.ok_or_else(|| refused(Status::INVALID_OPCODE, why))
    }

    /// Creates a volume and a namespace of it that no host sees. Returns the NSID.
    fn create_namespace(
        &self,
        nqn: &str,
        (blocks, lba_shift): (u64, u8),
        ana_group: u32,
    ) -> Result<u32, NamespaceRefusal> {
        let lvstore = self.namespace_store(nqn)?;
        if lvstore.store.lba() != 1 << lba_shift {
            return Err(refused(Status::INVALID_FORMAT, "the store has blocks of another size"));
        }
        let why = "it is too large";
        let bytes = blocks.checked_mul(1 << lba_shift);
        let bytes = bytes.ok_or_else(|| refused(Status::NAMESPACE_INSUFFICIENT_CAPACITY, why))?;
        let random = new_uuid().map_err(RpcError::internal)?;
        let name = format!("namespace-{}", show_uuid(&random));
        let uuid = lvstore.store.create(&name, bytes, false)?;
        let added = self.add_volume(nqn, (&lvstore, uuid), ana_group);
        added.inspect_err(|_| drop(lvstore.store.delete(uuid)))
    }

    /// Adds a new volume as a device, and a namespace of it.
    fn add_volume(
        &self,
        nqn: &str,
        (lvstore, uuid): (&LvStore, Uuid),
        ana_group: u32,
    ) -> Result<u32, NamespaceRefusal> {
        let lost = || RpcError::busy(format!("volume {uuid} is gone"));
        let volume = lvstore.store.volume(uuid).ok_or_else(lost)?;
        let device = lvstore.device(&volume).map_err(RpcError::internal)?;
        let mut has_nsids = true;
        let done = self.change(RpcError::internal, |model| {
            // The store may have been renamed or removed since.
            let lvstore = model.lvstore_with(&lvstore.store).cloned().ok_or_else(lost)?;
            let (name, aliases) = (device.name.clone(), vec![lvstore.alias(&volume.name)]);
            model.devices.push(Arc::new(ManagedDevice { aliases, ..device }));
            model.order_volumes(&lvstore);
            let subsystem = model.subsystem_mut(nqn).ok_or_else(lost)?;
            let nsid = subsystem.free_nsid();
            has_nsids = nsid.is_some();
            let nsid = nsid.ok_or_else(|| RpcError::params("no NSID is free"))?;
            subsystem.namespaces.push(SavedNamespace {
                hosts: Some(BTreeSet::new()),
                ana_group,
                ..SavedNamespace::new(nsid, name)
            });
            subsystem.namespaces.sort_by_key(|one| one.nsid);
            Ok(nsid)
        });
        done.map_err(|error| match has_nsids {
            true => error.into(),
            false => refused(Status::NAMESPACE_ID_UNAVAILABLE, error.message),
        })
    }

    /// Deletes a namespace, or all, with their volumes.
    fn delete_namespaces(&self, nqn: &str, nsid: Option<u32>) -> Result<(), NamespaceRefusal> {
        let lvstore = self.namespace_store(nqn)?;
        let model = self.model();
        let subsystem = model.subsystem(nqn).ok_or_else(|| gone(nqn))?;
        let all = subsystem.namespaces.iter();
        let named = all.filter(|one| nsid.is_none_or(|nsid| one.nsid == nsid));
        let volumes = named.map(|one| {
            let foreign = || {
                let why = format!("namespace {} is no volume of {}", one.nsid, lvstore.name);
                refused(Status::ACCESS_DENIED, why)
            };
            volume_of(&model, &lvstore, &one.device).ok_or_else(foreign)
        });
        let volumes: Vec<Uuid> = volumes.collect::<Result<_, _>>()?;
        if volumes.is_empty() && nsid.is_some() {
            return Err(gone(nqn));
        }
        // All refusals come before hosts lose anything, and they lose the namespaces before their blocks are deleted.
        let deletions = volumes.iter().map(|uuid| lvstore.store.begin_delete(*uuid));
        let deletions: Vec<Deletion<'_>> = deletions.collect::<Result<_, _>>()?;
        let removed: Vec<RemovedDevice> = self.change(RpcError::internal, |model| {
            Ok(volumes.iter().map(|uuid| model.remove_device(&uuid.to_string())).collect())
        })?;
        let mut ends = deletions.into_iter().zip(removed);
        while let Some((deletion, own)) = ends.next() {
            let Err(error) = deletion.end() else { continue };
            let rest: Vec<RemovedDevice> = ends.map(|(_, removed)| removed).collect();
            self.change(RpcError::internal, |model| {
                [own].into_iter().chain(rest).for_each(|removed| model.put_back(removed));
                Ok(())
            })?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Sets the hosts that see a namespace to the result of `next`, of those that saw it; `None`: all.
    fn set_hosts(
        &self,
        nqn: &str,
        nsid: u32,
        next: impl FnOnce(
            &SavedSubsystem,
            Option<&BTreeSet<String>>,
        ) -> Result<Option<BTreeSet<String>>, NamespaceRefusal>,
    ) -> Result<(), NamespaceRefusal> {
        let mut refusal = None;
        let done = self.change(RpcError::internal, |model| {
            let subsystem = model.subsystem_mut(nqn);
            let found = subsystem.and_then(|one| {
                let at = one.namespaces.iter().position(|namespace| namespace.nsid == nsid)?;
                Some((one, at))
            });
            let hosts = match &found {
                Some((one, at)) => next(one, one.namespaces[*at].hosts.as_ref()),
                None => Err(gone(nqn)),
            };
            match (found, hosts) {
                (Some((one, at)), Ok(hosts)) => one.namespaces[at].hosts = hosts,
                (_, Err(why)) => {
                    let error = RpcError::params(&why.1);
                    refusal = Some(why);
                    return Err(error);
                }
                (None, Ok(_)) => {}
            }
            Ok(())
        });
        done.map_err(|error| refusal.unwrap_or_else(|| error.into()))
    }
}

/// Returns the volume of the store that a device is.
fn volume_of(model: &ManagedModel, lvstore: &LvStore, device: &str) -> Option<Uuid> {
    match &model.device(device)?.kind {
        DeviceKind::Volume(volume) if Arc::ptr_eq(&volume.store, &lvstore.store) => {
            Some(volume.uuid)
        }
        _ => None,
    }
}
