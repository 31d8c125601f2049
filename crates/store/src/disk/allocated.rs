//! What is allocated of a file, as its file system tells. A block device has no holes, as far as can be told.

use crate::look_ups::Found;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;

/// Looks for data from the start of the range on. What the file system does not say counts as allocated. Waits for it.
///
/// What was written before is data, also while the file system has not written it.
pub(super) fn look(file: &File, found: &mut Found<'_>) {
    let (mut at, end) = found.bounds();
    while at < end && found.has_time(at) {
        // Nobody uses the file position: all I/O names its offset.
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.max(at),
            Err(Errno::NXIO) => return, // there is none any more
            Err(_) => at,
        };
        if data >= end {
            return;
        }
        let hole = seek(file, SeekFrom::Hole(data)).ok();
        let hole = hole.filter(|&hole| hole > data).unwrap_or(end);
        if !found.add(data, hole - data) {
            return;
        }
        at = hole;
    }
}
