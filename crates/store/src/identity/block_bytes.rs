//! Block size of a regular file, kept in an extended attribute.
//!
//! Partition tables and file systems count in blocks: content that was written in blocks of 4096 bytes is garbage in
//! blocks of 512. The block size belongs to the content, so a copy that took the attribute along keeps it, while it
//! gets an identity of its own. Older files have none until they are served for writing. Block devices have none.

use crate::OpenError;
use crate::open_error::BLOCK_BYTES_ATTRIBUTE as NAME;
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use tracing::info;

/// Refuses a block size that differs from the one that the file was served with before. Changes nothing.
///
/// # Errors
/// The attribute names another block size.
pub(crate) fn check(path: &Path, file: &File, lba_bytes: u32) -> Result<(), OpenError> {
    match read(file) {
        Some(kept) if kept != lba_bytes => {
            Err(OpenError::OtherBlockBytes { path: path.into(), kept, lba_bytes })
        }
        _ => Ok(()),
    }
}

/// Keeps the block size of a file that has none yet; returns true if it was written now.
///
/// # Errors
/// The attribute names another block size.
pub(crate) fn keep(path: &Path, file: &File, lba_bytes: u32) -> Result<bool, OpenError> {
    check(path, file, lba_bytes)?;
    if read(file).is_some() {
        return Ok(false);
    }
    match fsetxattr(file, NAME, lba_bytes.to_string().as_bytes(), XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(error) => {
            info!(path = %path.display(), "its block size is not kept: no extended attribute: {error}");
            Ok(false)
        }
    }
}

/// Removes an attribute that [`keep`] has written, for a file that is not served after all.
pub(crate) fn forget(path: &Path, file: &File) {
    match fremovexattr(file, NAME) {
        Ok(()) | Err(Errno::NODATA) => {}
        Err(error) => {
            tracing::warn!(path = %path.display(), "cannot remove its attribute {NAME} again: {error}");
        }
    }
}

/// The attribute's value; `None` for none, and for one that is not a block size.
fn read(file: &File) -> Option<u32> {
    let mut bytes = [0u8; 16];
    let length = fgetxattr(file, NAME, &mut bytes).ok()?;
    let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
    text.parse().ok().filter(|kept| matches!(kept, 512 | 4096))
}
