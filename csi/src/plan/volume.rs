//! Steps that create a volume or a snapshot.

use crate::names;
use crate::target::Lvol;

/// Volume that is to exist.
#[derive(Clone, Debug)]
pub(crate) struct DesiredVolume<'a> {
    /// Name of the call.
    pub(crate) csi_name: &'a str,
    /// Size in bytes, whole clusters.
    pub(crate) bytes: u64,
    /// Largest size in bytes that is fine as well; 0: any.
    pub(crate) bytes_max: u64,
    /// Store; `None`: any.
    pub(crate) store: Option<&'a str>,
    /// True if space is to be allocated by writes.
    pub(crate) is_thin: bool,
    /// Content that it begins with.
    pub(crate) source: Option<VolumeSource<'a>>,
}

/// Content that a volume begins with, by the UUID of what has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VolumeSource<'a> {
    /// A snapshot.
    Snapshot(&'a str),
    /// Another volume.
    Volume(&'a str),
}

impl<'a> VolumeSource<'a> {
    /// Returns the UUID.
    pub(crate) fn uuid(self) -> &'a str {
        match self {
            VolumeSource::Snapshot(uuid) | VolumeSource::Volume(uuid) => uuid,
        }
    }
}

/// Next step towards a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CreateStep {
    /// Create an empty volume.
    Create {
        /// Its name.
        name: String,
    },
    /// Create a snapshot of the source, for the copy only.
    SnapshotSource {
        /// UUID of the source.
        source: String,
        /// Name of the snapshot.
        name: String,
    },
    /// Create the volume from a snapshot.
    Clone {
        /// UUID of the snapshot.
        snapshot: String,
        /// Name of the volume.
        name: String,
    },
    /// Make it larger: the source is smaller.
    Resize {
        /// UUID of the volume.
        uuid: String,
    },
    /// Give it all its space.
    Inflate {
        /// UUID of the volume.
        uuid: String,
    },
    /// Delete the snapshot that existed for the copy only.
    DeleteCopySnapshot {
        /// UUID of the snapshot.
        uuid: String,
    },
    /// It exists.
    Done(Lvol),
}

/// Reason why what is requested cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlanRefusal {
    /// Something of that name exists and differs.
    Exists(String),
    /// The source does not exist.
    NoSource(String),
    /// A size cannot be had.
    Size(String),
    /// Parameters contradict each other.
    Invalid(String),
}

/// Returns the next step towards `desired` at a target that has `lvols`.
///
/// # Errors
/// It cannot be.
pub(crate) fn next_create_step(
    lvols: &[Lvol],
    desired: &DesiredVolume<'_>,
) -> Result<CreateStep, PlanRefusal> {
    let name = names::volume(desired.csi_name, desired.source.map(VolumeSource::uuid));
    let copy = names::copy(&name);
    let copy = lvols.iter().find(|lvol| lvol.is_snapshot && lvol.name == copy);
    if let Some(found) = lvols.iter().find(|lvol| names::is_volume_of(&lvol.name, desired.csi_name))
    {
        return continue_with(found, &name, copy, desired);
    }
    let Some(source) = desired.source else { return Ok(CreateStep::Create { name }) };
    let is_right = |lvol: &&Lvol| {
        lvol.uuid == source.uuid()
            && lvol.is_snapshot == matches!(source, VolumeSource::Snapshot(_))
            && (names::is_volume(&lvol.name) || names::snapshot_source(&lvol.name).is_some())
    };
    let Some(from) = lvols.iter().find(is_right) else {
        let what = if matches!(source, VolumeSource::Snapshot(_)) { "snapshot" } else { "volume" };
        return Err(PlanRefusal::NoSource(format!("no {what} {}", source.uuid())));
    };
    if let Some(store) = desired.store.filter(|store| *store != from.store) {
        let what = format!("the source is in the store {}, not in {store}", from.store);
        return Err(PlanRefusal::Invalid(format!("{what}: a copy is made in the same store")));
    }
    if desired.bytes < from.bytes {
        let what = format!("the source has {} bytes, more than {}", from.bytes, desired.bytes);
        return Err(PlanRefusal::Size(what));
    }
    Ok(match (source, copy) {
        (VolumeSource::Snapshot(uuid), _) => CreateStep::Clone { snapshot: uuid.to_owned(), name },
        (VolumeSource::Volume(_), Some(copy)) => {
            CreateStep::Clone { snapshot: copy.uuid.clone(), name }
        }
        (VolumeSource::Volume(uuid), None) => {
            CreateStep::SnapshotSource { source: uuid.to_owned(), name: names::copy(&name) }
        }
    })
}

/// Returns the next step of a volume that exists.
fn continue_with(
    found: &Lvol,
    name: &str,
    copy: Option<&Lvol>,
    desired: &DesiredVolume<'_>,
) -> Result<CreateStep, PlanRefusal> {
    let csi_name = desired.csi_name;
    if found.name != name {
        let what = format!("the volume {csi_name} exists, with another source");
        return Err(PlanRefusal::Exists(what));
    }
    if let Some(store) = desired.store.filter(|store| *store != found.store) {
        let what = format!("the volume {csi_name} exists, in the store {}", found.store);
        return Err(PlanRefusal::Exists(format!("{what}, not in {store}")));
    }
    let is_over = desired.bytes_max != 0 && found.bytes > desired.bytes_max;
    let is_small = found.bytes < desired.bytes;
    if is_over || (is_small && desired.source.is_none()) {
        let what = format!("the volume {csi_name} exists, with {} bytes", found.bytes);
        return Err(PlanRefusal::Exists(what));
    }
    let uuid = || found.uuid.clone();
    Ok(match copy {
        _ if is_small => CreateStep::Resize { uuid: uuid() },
        _ if desired.source.is_some() && !desired.is_thin && found.is_clone => {
            CreateStep::Inflate { uuid: uuid() }
        }
        Some(copy) => CreateStep::DeleteCopySnapshot { uuid: copy.uuid.clone() },
        None => CreateStep::Done(found.clone()),
    })
}

/// Next step towards a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotStep {
    /// Create it.
    Create {
        /// Its name.
        name: String,
    },
    /// It exists.
    Done(Lvol),
}

/// Returns the next step towards the snapshot `csi_name` of the volume `source`.
///
/// # Errors
/// There is no such volume, or a snapshot of another volume has that name.
pub(crate) fn next_snapshot_step(
    lvols: &[Lvol],
    csi_name: &str,
    source: &str,
) -> Result<SnapshotStep, PlanRefusal> {
    let name = names::snapshot(csi_name, source);
    if let Some(found) = lvols.iter().find(|lvol| names::is_snapshot_of(&lvol.name, csi_name)) {
        return match found.name == name {
            true => Ok(SnapshotStep::Done(found.clone())),
            false => {
                Err(PlanRefusal::Exists(format!("the snapshot {csi_name} is of another volume")))
            }
        };
    }
    match lvols.iter().any(|lvol| lvol.uuid == source && !lvol.is_snapshot) {
        true => Ok(SnapshotStep::Create { name }),
        false => Err(PlanRefusal::NoSource(format!("no volume {source}"))),
    }
}

/// Rounds a size up to whole clusters.
///
/// # Errors
/// It exceeds `bytes_max` then (0: no limit), or what can be counted.
pub(crate) fn whole_clusters(bytes: u64, bytes_max: u64) -> Result<u64, PlanRefusal> {
    let cluster = crate::target::CLUSTER_BYTES;
    let whole = bytes.max(1).checked_next_multiple_of(cluster);
    match whole.filter(|whole| i64::try_from(*whole).is_ok()) {
        Some(whole) if bytes_max == 0 || whole <= bytes_max => Ok(whole),
        _ => Err(PlanRefusal::Size(format!(
            "no size between {bytes} and {bytes_max} bytes is a multiple of {cluster}"
        ))),
    }
}

#[cfg(test)]
mod tests;
