//! Directories of users' attachments.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Environment variable with another directory, for tests and to keep attachments apart.
pub(super) const OVERRIDE: &str = "ROADTRAIN_RUNTIME_DIR";

/// Most bytes of an entry: some thousand devices.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Returns `/run/roadtrain` for root, `$XDG_RUNTIME_DIR/roadtrain` for others, and `/tmp/roadtrain-UID` for users
/// without such a directory.
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

/// Returns the directories that this user may read, each with its owner, its own first. Root also reads those of the
/// packaged service, and of users with a session and without one.
pub(super) fn visible() -> Vec<(PathBuf, u32)> {
    let own = of_user();
    let mut all = vec![(own, user_id())];
    let is_named = std::env::var_os(OVERRIDE).is_some_and(|value| !value.is_empty());
    if user_id() == 0 && !is_named {
        all.extend(of_others());
    }
    all
}

fn of_others() -> Vec<(PathBuf, u32)> {
    let in_folder = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let services = in_folder("/run").filter(|entry| name(entry).starts_with("roadtrain-"));
    let sessions = in_folder("/run/user").map(|entry| entry.path().join("roadtrain"));
    let others = in_folder("/tmp").filter(|entry| name(entry).starts_with("roadtrain-"));
    let others = others.filter(|entry| {
        let owner = entry.metadata().map(|of| of.uid());
        owner.is_ok_and(|owner| name(entry) == format!("roadtrain-{owner}"))
    });
    let all = services.chain(others).map(|entry| entry.path()).chain(sessions);
    let owned = all.filter_map(|path| {
        let found = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_dir)?;
        Some((path, found.uid()))
    });
    owned.collect()
}

/// Creates the directory; an existing one must belong to this user and not be writable by others.
pub(super) fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    check(directory, user_id())
}

/// Checks that the directory belongs to `user` and is not writable by others: its content decides which processes are
/// ended and which resources are removed. Root makes changes only in its own.
///
/// # Errors
/// The directory does not exist, or another user could have written its content.
pub(super) fn check(directory: &Path, user: u32) -> io::Result<()> {
    let found = fs::symlink_metadata(directory)?;
    let refused = |text: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    if !found.is_dir() {
        return refused("is not a folder, or a link".to_owned());
    }
    let owner = found.uid();
    if owner != user {
        return refused(format!(
            "belongs to user {owner}, and this is user {user}: act as that user"
        ));
    }
    match found.mode() & 0o022 {
        0 => Ok(()),
        _ => refused("others may write to it: chmod go-w".to_owned()),
    }
}

/// Reads a file of `user`; refuses links, and pipes, which would block the reader.
///
/// # Errors
/// It cannot be read, is too long, or belongs to another user.
pub(super) fn read(path: &Path, user: u32) -> io::Result<Vec<u8>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if found.uid() != user {
        let text = format!("belongs to user {}", found.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if !found.is_file() || found.len() > FILE_BYTES_MAX {
        let text = format!("is no file of at most {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the user of this process.
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
