//! The open backends of all exports, and what a new configuration changes about them.

use super::server::{Export, ServerError, Subsystem, namespace_config, subsystem_config};
use crate::backend::{Backend, BackendKind, BackendSpec, OpenError, Place, Resize};
use roadtrain_proto::policy::Class;
use roadtrain_proto::target::{NamespaceConfig, NamespaceId, SubsystemConfig};
use std::collections::HashMap;
use std::mem::discriminant;
use std::sync::Arc;
use tracing::warn;

/// A namespace's backend, and what lanes have to know besides.
#[derive(Clone)]
pub(super) struct Open {
    spec: BackendSpec,
    place: Option<Place>,
    pub(super) backend: Arc<Backend>,
    pub(super) class: Option<Class>,
}

/// Backends by subsystem NQN and NSID.
#[derive(Clone, Default)]
pub(super) struct Backends {
    open: HashMap<(String, u32), Open>,
}

impl Backends {
    /// The backend of a namespace.
    pub(super) fn get(&self, nqn: &str, nsid: u32) -> Option<&Open> {
        self.open.get(&(nqn.to_owned(), nsid))
    }

    /// All of them: subsystem NQN, NSID, backend.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, u32, &Arc<Backend>)> {
        self.open.iter().map(|((nqn, nsid), open)| (nqn.as_str(), *nsid, &open.backend))
    }

    /// How many namespaces were of another class in `old`.
    pub(super) fn reclassed(&self, old: &Backends) -> usize {
        let is_other =
            |(key, new): (_, &Open)| old.open.get(key).is_some_and(|open| open.class != new.class);
        self.open.iter().filter(|&open| is_other(open)).count()
    }

    /// Opens what `subsystems` name and is not open yet, and checks everything, without changing anything that
    /// hosts see. Takes no lock, and as long as opening takes.
    ///
    /// # Errors
    /// The first backend that cannot be had; nothing has changed then.
    pub(super) fn prepare(&self, subsystems: &[Subsystem]) -> Result<Prepared, ServerError> {
        let mut prepared = Prepared::default();
        for subsystem in subsystems {
            let mut namespaces = Vec::new();
            for export in &subsystem.exports {
                let config = prepared.add(self, &subsystem.nqn, export).map_err(|source| {
                    ServerError::Backend { nqn: subsystem.nqn.clone(), nsid: export.nsid, source }
                })?;
                namespaces.push(config);
            }
            prepared.configs.push(subsystem_config(subsystem, namespaces));
        }
        Ok(prepared)
    }

    /// What is open already of what `spec` names: the same blocks, perhaps of another size or by another name.
    fn find(&self, nqn: &str, nsid: u32, spec: &BackendSpec) -> Option<Arc<Backend>> {
        let alike = |open: &Open| {
            discriminant(&open.spec.kind) == discriminant(&spec.kind)
                && (open.spec.lba_bytes, open.spec.read_only) == (spec.lba_bytes, spec.read_only)
        };
        let known = self.get(nqn, nsid).filter(|open| alike(open));
        if let Some(place) = Place::of(spec) {
            let there = |open: &&Open| alike(open) && open.place == Some(place);
            let found = known.filter(there).or_else(|| self.open.values().find(there));
            return found.map(|open| open.backend.clone());
        }
        let known = known.filter(|open| is_alike(&open.spec.kind, &spec.kind))?;
        if let BackendKind::File { path, .. } | BackendKind::Block { path } = &spec.kind {
            warn!(path = %path.display(), "is gone; its blocks are there until the target ends");
        }
        Some(known.backend.clone())
    }
}

/// What a new configuration needs, open and checked. Dropping it leaves everything as it was.
#[derive(Default)]
pub(super) struct Prepared {
    next: Backends,
    /// What the control plane is to say.
    pub(super) configs: Vec<SubsystemConfig>,
    /// What was not open before.
    opened: Vec<Arc<Backend>>,
    resizes: Vec<(Arc<Backend>, Resize)>,
}

impl Prepared {
    fn add(
        &mut self,
        old: &Backends,
        nqn: &str,
        export: &Export,
    ) -> Result<NamespaceConfig, OpenError> {
        let spec = &export.backend;
        let backend = match old.find(nqn, export.nsid, spec) {
            Some(backend) => backend,
            None => {
                let opened = Arc::new(Backend::open(spec)?);
                self.opened.push(opened.clone());
                opened
            }
        };
        let place = backend.place();
        self.check_alone(place, spec)?;
        let resize = backend.plan(spec)?;
        let geometry = backend.planned(&resize);
        self.resizes.push((backend.clone(), resize));
        let store = match (export.uuid, export.nguid) {
            (None, None) => backend.identity()?,
            _ => 0, // the configuration says who it is
        };
        let id = NamespaceId::choose(export.uuid, export.nguid, store);
        let open = Open { spec: spec.clone(), place, backend, class: export.class };
        self.next.open.insert((nqn.to_owned(), export.nsid), open);
        Ok(namespace_config(export, id, &geometry))
    }

    /// Blocks that are written have one export. Locks say so where a file is opened twice.
    fn check_alone(&self, place: Option<Place>, spec: &BackendSpec) -> Result<(), OpenError> {
        let (BackendKind::File { path, .. } | BackendKind::Block { path }) = &spec.kind else {
            return Ok(());
        };
        let mut shared = self.next.open.values().filter(|open| open.place == place);
        if place.is_some() && shared.any(|open| !(open.spec.read_only && spec.read_only)) {
            return Err(OpenError::InUse { path: path.clone() });
        }
        Ok(())
    }

    /// Does the last that can fail. Nobody sees it yet.
    ///
    /// # Errors
    /// The first file that does not grow.
    pub(super) fn stage(&mut self) -> Result<(), OpenError> {
        self.resizes.iter_mut().try_for_each(|(backend, resize)| backend.stage(resize))
    }

    /// What is to be open.
    pub(super) fn backends(&self) -> Backends {
        self.next.clone()
    }

    /// Makes `open` what was prepared, at once. What has to be done later, and may take its time, is returned.
    pub(super) fn switch(mut self, open: &mut Backends) -> Switched {
        self.opened.clear(); // they stay
        let resizes = std::mem::take(&mut self.resizes);
        resizes.iter().for_each(|(backend, resize)| backend.switch(resize));
        let old = std::mem::replace(open, std::mem::take(&mut self.next));
        Switched { resizes, _old: old }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.resizes.iter().for_each(|(backend, resize)| backend.unstage(resize));
        self.opened.iter().for_each(|backend| backend.undo_opening());
    }
}

/// A new configuration is in force. Dropping this gives back what it does not need: not while others wait.
pub(super) struct Switched {
    resizes: Vec<(Arc<Backend>, Resize)>,
    _old: Backends,
}

impl Drop for Switched {
    fn drop(&mut self) {
        self.resizes.iter().for_each(|(backend, resize)| backend.settle(resize));
    }
}

/// Whether two kinds name the same blocks where these have no place that can be looked at.
fn is_alike(a: &BackendKind, b: &BackendKind) -> bool {
    match (a, b) {
        (BackendKind::Memory { .. }, BackendKind::Memory { .. })
        | (BackendKind::Null { .. }, BackendKind::Null { .. }) => true,
        (
            BackendKind::Ssd { service: a, parallel: m, .. },
            BackendKind::Ssd { service: b, parallel: n, .. },
        ) => (a, m) == (b, n),
        (BackendKind::File { path: a, .. }, BackendKind::File { path: b, .. })
        | (BackendKind::Block { path: a }, BackendKind::Block { path: b }) => a == b,
        #[cfg(test)]
        (BackendKind::Fifo { path: a, .. }, BackendKind::Fifo { path: b, .. }) => a == b,
        _ => false,
    }
}
