//! Where a user's attachments are written down.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
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
    check(directory)
}

/// Whether the folder is this user's, and nobody else may write to it: what is in it decides which processes are ended
/// and what is removed. Root has no reason to believe others either.
///
/// # Errors
/// It is not there, or somebody else could have written what is in it.
pub(super) fn check(directory: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(directory)?;
    let refused = |text: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    if !found.is_dir() {
        return refused("is not a folder, or a link".to_owned());
    }
    let (owner, own) = (found.uid(), user_id());
    if owner != own {
        return refused(format!(
            "belongs to user {owner}, and this is user {own}: act as that user"
        ));
    }
    match found.mode() & 0o022 {
        0 => Ok(()),
        _ => refused("others may write to it: chmod go-w".to_owned()),
    }
}

/// Reads a file of this user's; a link is none.
///
/// # Errors
/// It cannot be read, or is somebody else's.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    let owner = file.metadata()?.uid();
    if owner != user_id() {
        let text = format!("is of user {owner}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let mut octets = Vec::new();
    file.read_to_end(&mut octets)?;
    Ok(octets)
}

/// The user of this process.
pub(super) fn user_id() -> u32 {
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
