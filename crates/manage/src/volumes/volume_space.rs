//! Space that volumes occupy: each byte of the file system is counted once.

use super::contents::{CLUSTER_BYTES, Volume, clusters};
use super::store_files::StoreFiles;
use roadtrain_store::{FileExtent, extents};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Space of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeSpace {
    /// Clusters that the volume is counted with.
    pub(crate) clusters: u64,
    /// Bytes that are counted but not allocated yet.
    pub(crate) owed: u64,
}

/// Returns the space of each of `volumes`, in their order. Shared extents count for the oldest snapshot.
pub(crate) fn held(store_files: &StoreFiles, volumes: &[Volume]) -> Vec<VolumeSpace> {
    let mut seen = DisjointRanges::default();
    let mut all = vec![VolumeSpace::default(); volumes.len()];
    let (snapshots, others): (Vec<usize>, Vec<usize>) =
        (0..volumes.len()).partition(|&at| volumes[at].is_read_only());
    for at in snapshots.into_iter().chain(others) {
        let volume = &volumes[at];
        let is_whole = !volume.thin && !volume.snapshot;
        if is_whole && !volume.inflating {
            all[at].clusters = clusters(volume.size);
            continue;
        }
        let is_detaching = volume.detaching && !is_whole;
        let file = store_files.open(volume.uuid);
        if is_detaching {
            let bytes = file.and_then(|file| Ok((content(&file)?, alone(&file, None)?)));
            let (bytes, own) = bytes.unwrap_or((volume.size, 0));
            all[at] = VolumeSpace { clusters: clusters(bytes), owed: bytes.saturating_sub(own) };
            continue;
        }
        let shared = if is_whole { None } else { Some(&mut seen) };
        // A file that cannot be read counts with its full size.
        let bytes = file.and_then(|file| alone(&file, shared)).unwrap_or(volume.size);
        all[at] = match is_whole {
            true => VolumeSpace {
                clusters: clusters(volume.size),
                owed: volume.size.saturating_sub(bytes),
            },
            false => VolumeSpace { clusters: clusters(bytes), owed: 0 },
        };
    }
    all
}

/// Returns the bytes of `file`, including shared ones that are not in `seen` yet; `None`: excluding all shared ones.
pub(crate) fn alone(file: &File, mut seen: Option<&mut DisjointRanges>) -> io::Result<u64> {
    let mut bytes = 0;
    let add = |FileExtent { physical, bytes: length, shared }| {
        bytes += match (shared, &mut seen) {
            (false, _) => length,
            (true, Some(seen)) => seen.insert(physical, physical.saturating_add(length)),
            (true, None) => 0,
        };
    };
    match extents(file, add) {
        Ok(()) => Ok(bytes),
        // File systems that do not report extents share none.
        Err(_) => Ok(file.metadata()?.blocks() * 512),
    }
}

/// Returns the bytes that a copy of `file` takes, shared ones included.
pub(crate) fn content(file: &File) -> io::Result<u64> {
    let mut bytes = 0;
    match extents(file, |extent| bytes += extent.bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Ok(file.metadata()?.blocks() * 512),
    }
}

/// Returns the number of whole clusters in `bytes`.
pub(crate) fn whole_clusters(bytes: u64) -> u64 {
    bytes / CLUSTER_BYTES
}

/// Disjoint ranges, end by begin.
#[derive(Debug, Default)]
pub(crate) struct DisjointRanges(BTreeMap<u64, u64>);

impl DisjointRanges {
    /// Adds a range. Returns how much of it is new.
    fn insert(&mut self, begin: u64, end: u64) -> u64 {
        let (mut from, mut to) = (begin, end);
        let mut new = end.saturating_sub(begin);
        // Walks backwards from the last range that may touch the new one.
        while let Some((&b, &e)) = self.0.range(..=to).next_back() {
            if e < from {
                break;
            }
            new -= e.min(end).saturating_sub(b.max(begin));
            (from, to) = (from.min(b), to.max(e));
            self.0.remove(&b);
        }
        self.0.insert(from, to);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_byte_is_counted_once(ranges in prop::collection::vec((0u64..64, 1u64..16), 0..40)) {
            let (mut known, mut seen) = (DisjointRanges::default(), [false; 80]);
            for (begin, len) in ranges {
                let cells = &mut seen[begin as usize..(begin + len) as usize];
                let new = cells.iter().filter(|cell| !**cell).count();
                cells.fill(true);
                prop_assert_eq!(known.insert(begin, begin + len), new as u64);
            }
            let counted: u64 = known.0.iter().map(|(begin, end)| end - begin).sum();
            prop_assert_eq!(counted, seen.iter().filter(|cell| **cell).count() as u64);
        }
    }
}
