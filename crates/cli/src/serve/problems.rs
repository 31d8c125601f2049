//! Problems of a target's blocks that hosts may not have noticed yet.

use roadtrain_manage::model::ManagedModel;
use roadtrain_store::StoreKind;
use roadtrain_target_engine::{Export, ExportBlocks};
use roadtrain_target_proto::TargetConfig;
use std::collections::HashMap;
use std::path::Path;

/// Lists files that are smaller than their namespaces: another program has truncated them.
pub(super) fn truncated(
    exports: &TargetConfig<Export>,
    seen: &TargetConfig,
    model: &ManagedModel,
) -> Vec<String> {
    let mut problems = Vec::new();
    let files = files(exports, model);
    for subsystem in &seen.subsystems {
        let nqn = &subsystem.nqn;
        for namespace in &subsystem.namespaces {
            let Some(path) = files.get(&(nqn.as_str(), namespace.nsid)) else { continue };
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

/// Returns the files of the namespaces that are stored in one, by NQN and NSID.
fn files<'a>(
    exports: &'a TargetConfig<Export>,
    model: &'a ManagedModel,
) -> HashMap<(&'a str, u32), &'a Path> {
    let (claims, devices): (HashMap<_, _>, _) = (model.claims().collect(), model.devices_by_name());
    let file_of = |nqn: &'a str, export: &'a Export| match &export.blocks {
        ExportBlocks::Spec(spec) => match &spec.kind {
            StoreKind::File { path, .. } => Some(Path::new(path)),
            _ => None,
        },
        ExportBlocks::Store(_) => devices.get(claims.get(&(nqn, export.nsid))?)?.file.as_deref(),
    };
    let exports = exports.subsystems.iter().flat_map(|subsystem| {
        subsystem.namespaces.iter().map(|export| (subsystem.nqn.as_str(), export))
    });
    let files =
        exports.filter_map(|(nqn, export)| Some(((nqn, export.nsid), file_of(nqn, export)?)));
    files.collect()
}
