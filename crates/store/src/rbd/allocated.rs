//! Allocated parts of an image and its parent: whole objects, by the object map if there is one.

use super::image::OpenImage;
use crate::allocation_queries::AllocationReport;
use crate::{ByteRange, StoreOperation};
use roadtrain_wire::status::Status;
use std::ffi::{c_int, c_void};
use std::ptr::null;

/// Bytes queried by one call: without an object map each object of them is queried.
const PIECE_BYTES: u64 = 1 << 30;
/// Largest object, in bytes. librbd before 1.17 reports a range wrongly that begins inside an object, even one of the
/// parent image (tracker.ceph.com, 53784).
const OBJECT_BYTES_MAX: u64 = 32 << 20;

/// Queries the range from its start on. Waits for the cluster.
///
/// Earlier writes are included: librbd flushes first, and marks an object in its map before it writes it.
pub(super) fn find(image: &OpenImage, found: &mut AllocationReport<'_>) -> Result<(), Status> {
    let (mut at, end) = found.bounds();
    // Extents of a striped image would be out of order.
    if !image.has_plain_layout() {
        found.add(at, end - at);
        return Ok(());
    }
    while at < end && found.has_time(at) {
        let begin = at - at % OBJECT_BYTES_MAX;
        let piece = ByteRange { offset: begin, len: (end - begin).min(PIECE_BYTES) };
        let mut extents = extents(image, piece)?;
        extents.sort_unstable();
        if !extents.into_iter().all(|(offset, len)| found.add(offset, len)) {
            return Ok(());
        }
        at = begin + piece.len;
    }
    Ok(())
}

type DiffExtents = Vec<(u64, u64)>;

fn extents(image: &OpenImage, ByteRange { offset, len }: ByteRange) -> Result<DiffExtents, Status> {
    let mut extents = DiffExtents::new();
    let place: *mut DiffExtents = &mut extents;
    let with_parent = 1;
    let whole_objects = 1;
    // SAFETY: the image is open; `note` is called only during this call, and has exclusive access to the place.
    let result = unsafe {
        (image.rbd().rbd_diff_iterate2)(
            image.handle(),
            null(),
            offset,
            len,
            with_parent,
            whole_objects,
            note,
            place.cast(),
        )
    };
    match result {
        0.. => Ok(extents),
        errno => Err(image
            .status(-errno, &StoreOperation::QueryAllocation { range: ByteRange { offset, len } })),
    }
}

/// Records an extent; librbd calls this for each.
unsafe extern "C" fn note(offset: u64, len: usize, exists: c_int, extents: *mut c_void) -> c_int {
    if exists != 0 {
        // SAFETY: the pointer comes from `extents`, and has no other user meanwhile.
        unsafe { &mut *extents.cast::<DiffExtents>() }.push((offset, len as u64));
    }
    0
}
