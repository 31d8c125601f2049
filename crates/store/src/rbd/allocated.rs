//! What is allocated of an image, and of what it was cloned from: whole objects, by the object map where there is one.

use super::image::Image;
use crate::look_ups::Found;
use crate::{ByteRange, Op};
use roadtrain_wire::status::Status;
use std::ffi::{c_int, c_void};
use std::ptr::null;

/// Octets that are looked at with one call: without an object map each object of them is asked for.
const PIECE_BYTES: u64 = 1 << 30;
/// The largest object. A range that begins inside of one was told wrongly by librbd before 1.17, also where the object is
/// that of the image that this one was cloned from (tracker.ceph.com, 53784).
const OBJECT_BYTES_MAX: u64 = 32 << 20;

/// Looks from the start of the range on. Waits for the cluster.
///
/// What was written before is told: librbd flushes first, and marks an object in its map before it writes it.
pub(super) fn look(image: &Image, found: &mut Found<'_>) -> Result<(), Status> {
    let (mut at, end) = found.bounds();
    // Its extents would not be in the order in which they are told.
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

type Extents = Vec<(u64, u64)>;

fn extents(image: &Image, ByteRange { offset, len }: ByteRange) -> Result<Extents, Status> {
    let mut extents = Extents::new();
    let place: *mut Extents = &mut extents;
    let with_parent = 1;
    let whole_objects = 1;
    // SAFETY: the image is open; nobody calls `note` any more when this returns, and it has the place for itself.
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
        errno => Err(image.status(-errno, &Op::LookUp { range: ByteRange { offset, len } })),
    }
}

/// Called by librbd for each extent.
unsafe extern "C" fn note(offset: u64, len: usize, exists: c_int, extents: *mut c_void) -> c_int {
    if exists != 0 {
        // SAFETY: it is what `extents` has given, and nobody else uses it meanwhile.
        unsafe { &mut *extents.cast::<Extents>() }.push((offset, len as u64));
    }
    0
}
