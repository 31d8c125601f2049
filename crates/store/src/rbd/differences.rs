//! Differences of an image since a snapshot.

use super::cluster::c_text;
use super::image::OpenImage;
use crate::differences::DifferenceList;
use crate::{DifferencesQuery, DiskDifferences, SnapshotError};
use std::ffi::{c_int, c_void};

/// Bytes of one call: whole objects, as librbd before 1.17 reports a range wrongly that begins inside one.
const PIECE_BYTES: u64 = 256 << 20;

/// Returns the ranges in which `image`, of `to_bytes`, differs from its snapshot `from`. Waits for the cluster.
pub(super) fn find(
    image: &OpenImage,
    (from, from_bytes): (&str, u64),
    to_bytes: u64,
    query: DifferencesQuery,
) -> Result<DiskDifferences, SnapshotError> {
    let mut list = DifferenceList::new(query, from_bytes, to_bytes);
    if query.offset >= to_bytes {
        return Ok(list.end());
    }
    // Ranges of a striped image would be out of order, those of an encrypted one are of the image as it is stored.
    if !image.has_plain_layout() || image.is_encrypted() {
        list.add(query.offset, to_bytes - query.offset, false);
        return Ok(list.end());
    }
    let mut piece = query.offset - query.offset % PIECE_BYTES;
    while piece < to_bytes {
        let end = to_bytes.min(piece + PIECE_BYTES);
        for (offset, bytes, is_zero) in changes(image, from, (piece, end))? {
            let (start, stop) = (offset.max(query.offset), offset.saturating_add(bytes).min(end));
            if start < stop && !list.add(start, stop - start, is_zero) {
                return Ok(list.end());
            }
        }
        piece = end;
    }
    Ok(list.end())
}

/// Ranges: offset, length, and true for zeroes.
type Changes = Vec<(u64, u64, bool)>;

fn changes(
    image: &OpenImage,
    from: &str,
    (start, end): (u64, u64),
) -> Result<Changes, SnapshotError> {
    let from = c_text(from).map_err(|failure| SnapshotError::Refused(failure.to_string()))?;
    let mut changes = Changes::new();
    let place: *mut Changes = &mut changes;
    let with_parent = 1;
    let whole_objects = 0;
    // SAFETY: the image is open, the name ends with NUL; `note` is called only during this call, and has exclusive
    // access to the place.
    let result = unsafe {
        (image.rbd().rbd_diff_iterate2)(
            image.handle(),
            from.as_ptr(),
            start,
            end - start,
            with_parent,
            whole_objects,
            note,
            place.cast(),
        )
    };
    if result < 0 {
        let why = std::io::Error::from_raw_os_error(-result);
        return Err(SnapshotError::Failed(format!("the cluster lists no differences: {why}")));
    }
    changes.sort_unstable();
    Ok(changes)
}

/// Records a range; librbd calls this for each.
unsafe extern "C" fn note(offset: u64, len: usize, exists: c_int, changes: *mut c_void) -> c_int {
    // SAFETY: the pointer comes from `changes`, and has no other user meanwhile.
    unsafe { &mut *changes.cast::<Changes>() }.push((offset, len as u64, exists == 0));
    0
}
