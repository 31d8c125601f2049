//! Where a user's attachments are written down.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Names another folder, for tests and for whoever wants attachments kept apart.
pub(super) const OVERRIDE: &str = "ROADTRAIN_RUNTIME_DIR";

/// `/run/roadtrain` for root, `$XDG_RUNTIME_DIR/roadtrain` for others, and `/tmp/roadtrain-UID` for those who
/// have no such folder.
pub(super) fn of_user() -> PathBuf {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = named(OVERRIDE) {
        return directory;
    }
    match user_id() {
        0 => PathBuf::from("/run/roadtrain"),
        uid => named("XDG_RUNTIME_DIR").map_or_else(
            || PathBuf::from(format!("/tmp/roadtrain-{uid}")),
            |directory| directory.join("roadtrain"),
        ),
    }
}

/// Makes the folder; one that is there must be this user's, and nobody else may write to it.
pub(super) fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = fs::symlink_metadata(directory)?;
    if !found.is_dir() || found.uid() != user_id() || found.mode() & 0o022 != 0 {
        let text = "is not this user's own folder, or others may write to it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

fn user_id() -> u32 {
    // SAFETY: has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn folders_of_others_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        make(&path).unwrap();
        make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make(&path).is_err(), "anybody may write");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(make(&link).is_err(), "a link may lead anywhere");
    }
}
