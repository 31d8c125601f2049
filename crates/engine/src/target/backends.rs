//! The open backends of all exports, and what a new configuration changes about them.

use super::server::{Export, ServerError, Subsystem, namespace_config, subsystem_config};
use crate::backend::{Backend, BackendKind, BackendSpec, OpenError};
use roadtrain_proto::policy::Class;
use roadtrain_proto::target::{NamespaceConfig, SubsystemConfig};
use std::collections::HashMap;
use std::sync::Arc;

/// A namespace's backend, and what lanes have to know besides.
#[derive(Clone)]
pub(super) struct Open {
    spec: BackendSpec,
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

    /// How many namespaces were of another class in `old`.
    pub(super) fn reclassed(&self, old: &Backends) -> usize {
        let is_other =
            |(key, new): (_, &Open)| old.open.get(key).is_some_and(|open| open.class != new.class);
        self.open.iter().filter(|&open| is_other(open)).count()
    }

    /// Makes the open backends those of `subsystems`: what stays the same stays open, also when only its size
    /// differs. Returns what the control plane is to say about them.
    ///
    /// # Errors
    /// The first backend that cannot be had; nothing has changed then but sizes that grew.
    pub(super) fn open(
        &mut self,
        subsystems: &[Subsystem],
    ) -> Result<Vec<SubsystemConfig>, ServerError> {
        let mut next = HashMap::new();
        let mut configs = Vec::new();
        for subsystem in subsystems {
            let mut namespaces = Vec::new();
            for export in &subsystem.exports {
                let (open, config) = self.open_one(&subsystem.nqn, export)?;
                next.insert((subsystem.nqn.clone(), export.nsid), open);
                namespaces.push(config);
            }
            configs.push(subsystem_config(subsystem, namespaces));
        }
        self.open = next;
        Ok(configs)
    }

    fn open_one(&self, nqn: &str, export: &Export) -> Result<(Open, NamespaceConfig), ServerError> {
        let failed =
            |source| ServerError::Backend { nqn: nqn.to_owned(), nsid: export.nsid, source };
        let known = self.open.get(&(nqn.to_owned(), export.nsid));
        let backend = match known.filter(|open| is_same_place(&open.spec, &export.backend)) {
            Some(open) => {
                adapt(&open.backend, &export.backend).map_err(failed)?;
                open.backend.clone()
            }
            None => Arc::new(Backend::open(&export.backend).map_err(failed)?),
        };
        let config = namespace_config(export, &backend.geometry());
        Ok((Open { spec: export.backend.clone(), backend, class: export.class }, config))
    }
}

/// Whether two specifications name the same blocks, perhaps of another size.
fn is_same_place(a: &BackendSpec, b: &BackendSpec) -> bool {
    let same_kind = match (&a.kind, &b.kind) {
        (BackendKind::Memory { .. }, BackendKind::Memory { .. }) => true,
        (
            BackendKind::Ssd { service: a, parallel: m, .. },
            BackendKind::Ssd { service: b, parallel: n, .. },
        ) => (a, m) == (b, n),
        (BackendKind::Null { .. }, BackendKind::Null { .. }) => true,
        (BackendKind::File { path: a, .. }, BackendKind::File { path: b, .. }) => a == b,
        (BackendKind::Block { path: a }, BackendKind::Block { path: b }) => a == b,
        _ => false,
    };
    same_kind && a.lba_bytes == b.lba_bytes && a.read_only == b.read_only
}

/// Gives an open backend the size that `spec` says, or that its file has by now.
fn adapt(backend: &Backend, spec: &BackendSpec) -> Result<(), OpenError> {
    let size = match spec.kind {
        BackendKind::Memory { size }
        | BackendKind::Ssd { size, .. }
        | BackendKind::Null { size } => Some(size),
        BackendKind::File { size, .. } => size,
        BackendKind::Block { .. } => None,
        #[cfg(test)]
        BackendKind::Fifo { .. } => None,
    };
    match size {
        Some(size) if size != backend.geometry().bytes() => backend.resize(size).map(|_| ()),
        Some(_) => Ok(()),
        None => {
            // What cannot be looked at keeps the size it had.
            let _ = backend.refresh();
            Ok(())
        }
    }
}
