//! Keys of nodes: of a Secret, for the keyring of the target.
//!
//! A Secret of `ControllerPublishVolume` names keys that the target has (`dhchap-key-name` and so on). With `--key-dir` it
//! may have the keys themselves (`dhchap-key` and so on): they are written to files there, which the target reads.

use super::status_of;
use crate::node::attach::{remove as remove_file, write_private};
use crate::target::{NodeKeyNames, Target};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use tonic::Status;

const KINDS: [&str; 3] = ["dhchap-key", "dhchap-ctrl-key", "tls-key"];

/// Name of a key of a node for a volume; another content has another name.
fn key_name(uuid: &str, node: &str, kind: &str, content: &str) -> String {
    format!("{}-{}", prefix(uuid, node, kind), short_digest(content))
}

fn prefix(uuid: &str, node: &str, kind: &str) -> String {
    format!("csi-{uuid}-{}-{kind}", short_digest(node))
}

fn short_digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the names of the keys that the node needs; the target has them then.
///
/// # Errors
/// A key cannot be given to the target.
pub(super) async fn provide(
    target: &Target,
    uuid: &str,
    node: &str,
    secrets: &HashMap<String, String>,
) -> Result<NodeKeyNames, Status> {
    let mut names = [None, None, None];
    for (kind, name) in KINDS.into_iter().zip(&mut names) {
        *name = secrets.get(&format!("{kind}-name")).cloned();
        let content = secrets.get(kind).map(|key| key.trim()).filter(|_| name.is_none());
        let Some(content) = content else { continue };
        let Some(folder) = &target.settings.key_dir else {
            let what = format!("the Secret has {kind}: the driver has no --key-dir");
            return Err(Status::invalid_argument(format!("{what}, so give {kind}-name")));
        };
        let key = key_name(uuid, node, kind, content);
        give(target, folder, &key, content).await?;
        *name = Some(key);
    }
    let [dhchap, dhchap_ctrl, tls] = names;
    if target.settings.tls && tls.is_none() && dhchap.is_none() {
        let what = "the target takes connections with TLS only";
        return Err(Status::invalid_argument(format!(
            "{what}: the Secret needs tls-key or tls-key-name"
        )));
    }
    Ok(NodeKeyNames { dhchap, dhchap_ctrl, tls })
}

/// Gives a key to the target: a file first, then its name.
async fn give(target: &Target, folder: &Path, key: &str, content: &str) -> Result<(), Status> {
    let path = folder.join(key);
    let failed = |error: std::io::Error| Status::internal(format!("{}: {error}", path.display()));
    let known = target.keys().await.map_err(|failure| status_of(&failure))?;
    if !path.exists() {
        write_private(&path, content.as_bytes()).map_err(failed)?;
    }
    if known.iter().any(|name| name == key) {
        return Ok(());
    }
    let shown = path.display().to_string();
    target.add_key(key, &shown).await.map_err(|failure| status_of(&failure))
}

/// Removes the keys that a node, or each node, had for a volume.
///
/// # Errors
/// The target does not reply, or a file cannot be removed.
pub(super) async fn remove(target: &Target, uuid: &str, node: Option<&str>) -> Result<(), Status> {
    let Some(folder) = &target.settings.key_dir else { return Ok(()) };
    let own = match node {
        Some(node) => KINDS.map(|kind| prefix(uuid, node, kind)).to_vec(),
        None => vec![format!("csi-{uuid}-")],
    };
    let is_own = |name: &str| own.iter().any(|prefix| name.starts_with(prefix));
    for name in target.keys().await.map_err(|failure| status_of(&failure))? {
        if is_own(&name) {
            target.remove_key(&name).await.map_err(|failure| status_of(&failure))?;
        }
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_own(&entry.file_name().to_string_lossy())) {
        remove_file(&entry.path())
            .map_err(|error| Status::internal(format!("{}: {error}", entry.path().display())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_keys() {
        let name = key_name("u", "nqn.a:h", "dhchap-key", "DHHC-1:x");
        assert!(name.starts_with(&prefix("u", "nqn.a:h", "dhchap-key")) && !name.contains("DHHC"));
        assert!(!name.starts_with(&prefix("u", "nqn.a:i", "dhchap-key")));
        assert!(!name.starts_with(&prefix("u", "nqn.a:h", "dhchap-ctrl-key")));
        assert_ne!(name, key_name("u", "nqn.a:h", "dhchap-key", "DHHC-1:y"));
    }
}
