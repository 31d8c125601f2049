//! Allocated ranges of a file, as its file system reports them. Block devices report no holes.

use crate::allocation_queries::AllocationReport;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;

/// Searches data from the start of the range on. Parts without a report count as allocated. Blocks the thread.
///
/// Written blocks count as data, even before the file system has written them back.
pub(super) fn find(file: &File, found: &mut AllocationReport<'_>) {
    let (mut at, end) = found.bounds();
    while at < end && found.has_time(at) {
        // The file position is not used otherwise: all I/O has an explicit offset.
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.max(at),
            Err(Errno::NXIO) => return, // no more data
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
