//! Problems of a target's blocks that hosts may not have noticed yet.

use roadtrain_manage::model::ManagedModel;
use roadtrain_store::StoreKind;
use roadtrain_target_engine::{Export, ExportBlocks};
use roadtrain_target_proto::TargetConfig;
use std::path::{Path, PathBuf};

/// Lists files that are smaller than their namespaces: another program has truncated them.
pub(super) fn truncated(
    exports: &TargetConfig<Export>,
    seen: &TargetConfig,
    model: &ManagedModel,
) -> Vec<String> {
    let mut problems = Vec::new();
    for subsystem in &seen.subsystems {
        let nqn = &subsystem.nqn;
        for namespace in &subsystem.namespaces {
            let Some(path) = file_of(exports, (nqn, namespace.nsid), model) else { continue };
            let bytes = namespace.blocks << namespace.lba_shift;
            match path.metadata().map(|metadata| metadata.len()) {
                Ok(length) if length < bytes => problems.push(format!(
                    "namespace {} of {nqn} has {bytes} bytes, but its file {} has {length}: was it truncated?",
                    namespace.nsid,
                    path.display(),
                )),
                _ => {}
            }
        }
    }
    problems
}

/// Returns the file of a namespace, if it is stored in one.
fn file_of(
    exports: &TargetConfig<Export>,
    (nqn, nsid): (&str, u32),
    model: &ManagedModel,
) -> Option<PathBuf> {
    let subsystem = exports.subsystems.iter().find(|one| one.nqn == nqn)?;
    let export = subsystem.namespaces.iter().find(|one| one.nsid == nsid)?;
    match &export.blocks {
        ExportBlocks::Spec(spec) => match &spec.kind {
            StoreKind::File { path, .. } => Some(Path::new(path).to_owned()),
            _ => None,
        },
        ExportBlocks::Store(_) => {
            let claim = model.claims().find(|(place, _)| *place == (nqn, nsid));
            model.device(claim?.1)?.file.clone()
        }
    }
}
