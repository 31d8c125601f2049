//! The journal of a state file: changes of devices and namespaces after the file was written.
//!
//! A target with thousands of objects would write megabytes at each change. So it appends the change to a journal
//! beside the file, one line of JSON, and writes the whole file again after many changes. The first line names the
//! file that the changes follow, by a digest: a journal of an earlier file is ignored.

use super::changes::differing;
use super::device::DeviceSpec;
use super::{ManagedModel, SavedModel, SavedNamespace, SavedSubsystem};
use roadtrain_proto::digest::digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most objects of one change in a journal.
const CHANGED_MAX: usize = 256;

/// First line of a journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JournalHead {
    /// Digest of the state file, in hexadecimal digits.
    pub(super) follows: String,
}

/// A namespace in a journal, with the NQN of its subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JournaledNamespace {
    nqn: String,
    #[serde(flatten)]
    namespace: SavedNamespace,
}

/// A change of the state: a line of a journal. Removals come first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StateChange {
    /// NQNs and NSIDs of removed namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    namespaces_removed: Vec<(String, u32)>,
    /// Names of removed devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices_removed: Vec<String>,
    /// New devices, after all others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<DeviceSpec>,
    /// New namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    namespaces: Vec<JournaledNamespace>,
    /// Paths outside of `file_roots` that the owner of the process has opened.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    owner_paths: BTreeSet<PathBuf>,
}

impl StateChange {
    /// Returns the change between a model and its changed copy; `None` if anything but devices and namespaces has
    /// changed, or too much.
    #[must_use]
    pub fn between(
        old: &ManagedModel,
        new: &ManagedModel,
        roots: &[PathBuf],
    ) -> Option<StateChange> {
        let are_volumes_there = !old.lvstores.is_empty() || !new.lvstores.is_empty();
        if are_volumes_there || !is_same_beside(old, new) {
            return None;
        }
        let (gone, come) = differing(&old.devices, &new.devices, Arc::ptr_eq);
        let is_last = come.is_empty()
            || new.devices.last().zip(come.last()).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        if !is_last || gone.len() + come.len() > CHANGED_MAX {
            return None;
        }
        let mut change = StateChange {
            devices_removed: gone.iter().map(|device| device.name.clone()).collect(),
            devices: come.iter().map(|device| device.spec()).collect::<Option<_>>()?,
            ..StateChange::default()
        };
        for (was, is) in old.subsystems.iter().zip(&new.subsystems) {
            let (gone, come) = differing(&was.namespaces, &is.namespaces, PartialEq::eq);
            let nqn = || is.nqn.clone();
            change.namespaces_removed.extend(gone.iter().map(|one| (nqn(), one.nsid)));
            let come = come.iter().cloned();
            change
                .namespaces
                .extend(come.map(|namespace| JournaledNamespace { nqn: nqn(), namespace }));
        }
        let is_small = change.namespaces_removed.len() + change.namespaces.len() <= CHANGED_MAX;
        change.owner_paths = change.added().with_owner_paths(roots).owner_paths;
        is_small.then_some(change)
    }

    /// Returns the added objects as a state, whose paths are checked as those of any state.
    fn added(&self) -> SavedModel {
        let all = self.namespaces.iter().map(|one| SavedSubsystem {
            nqn: one.nqn.clone(),
            namespaces: vec![one.namespace.clone()],
            ..SavedSubsystem::default()
        });
        let (devices, subsystems) = (self.devices.clone(), all.collect());
        SavedModel { devices, subsystems, ..SavedModel::default() }
    }

    /// True if nothing has changed.
    pub(super) fn is_empty(&self) -> bool {
        *self == StateChange::default()
    }

    /// Applies the change.
    ///
    /// # Errors
    /// The object that is not there, or is there already.
    fn apply(self, state: &mut SavedModel) -> Result<(), String> {
        let subsystem = |all: &'_ mut Vec<SavedSubsystem>, nqn: &str| {
            let at = all.iter().position(|one| one.nqn == *nqn);
            at.ok_or_else(|| format!("there is no subsystem {nqn}"))
        };
        for (nqn, nsid) in &self.namespaces_removed {
            let at = subsystem(&mut state.subsystems, nqn)?;
            let namespaces = &mut state.subsystems[at].namespaces;
            let at = namespaces.iter().position(|one| one.nsid == *nsid);
            namespaces.remove(at.ok_or_else(|| format!("{nqn} has no namespace {nsid}"))?);
        }
        for name in &self.devices_removed {
            let at = state.devices.iter().position(|device| device.name == *name);
            state.devices.remove(at.ok_or_else(|| format!("there is no device {name}"))?);
        }
        state.devices.extend(self.devices);
        for JournaledNamespace { nqn, namespace } in self.namespaces {
            let at = subsystem(&mut state.subsystems, &nqn)?;
            let namespaces = &mut state.subsystems[at].namespaces;
            match namespaces.binary_search_by_key(&namespace.nsid, |one| one.nsid) {
                Ok(_) => return Err(format!("{nqn} has namespace {} already", namespace.nsid)),
                Err(at) => namespaces.insert(at, namespace),
            }
        }
        state.owner_paths.extend(self.owner_paths);
        Ok(())
    }
}

/// True if the models differ at most in devices and in namespaces of subsystems.
fn is_same_beside(old: &ManagedModel, new: &ManagedModel) -> bool {
    let are_same = |one: &SavedSubsystem, other: &SavedSubsystem| {
        let plain = |of: &SavedSubsystem| of.without_namespaces();
        plain(one) == plain(other)
    };
    let keys = old.keys.iter().zip(&new.keys).all(|(a, b)| Arc::ptr_eq(a, b));
    let subsystems = old.subsystems.iter().zip(&new.subsystems).all(|(a, b)| are_same(a, b));
    keys && subsystems
        && old.keys.len() == new.keys.len()
        && old.subsystems.len() == new.subsystems.len()
        && old.has_tcp == new.has_tcp
        && old.rbd_clusters == new.rbd_clusters
        && old.limits == new.limits
        && old.referrals == new.referrals
}

/// Returns a digest as hexadecimal digits.
pub(super) fn hex(digest: u128) -> String {
    format!("{digest:032x}")
}

/// Returns the path of a state file's journal.
pub(super) fn journal_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".journal");
    name.into()
}

/// Applies the journal of the state file with this text. A journal of another text is ignored, and so is a last line
/// without an end: its change was not reported as done.
///
/// # Errors
/// The line that cannot be applied.
pub(super) fn replay(text: &str, journal: &str, state: &mut SavedModel) -> Result<(), String> {
    let whole = |line: &str| line.strip_suffix('\n').map(str::to_owned);
    let mut lines = journal.split_inclusive('\n').filter_map(whole);
    let head = lines.next().and_then(|line| serde_json::from_str::<JournalHead>(&line).ok());
    if head.is_none_or(|head| head.follows != hex(digest(&[text.as_bytes()]))) {
        return Ok(());
    }
    for (number, line) in (2..).zip(lines) {
        let change = serde_json::from_str::<StateChange>(&line).map_err(|error| error.to_string());
        let applied = change.and_then(|change| change.apply(state));
        applied.map_err(|why| format!("line {number} of its journal: {why}"))?;
    }
    Ok(())
}
