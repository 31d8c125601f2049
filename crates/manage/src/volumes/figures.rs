//! What volumes hold: each octet of the file system is counted once.

use super::contents::{CLUSTER_BYTES, Volume, clusters};
use super::home::Home;
use roadtrain_store::{Extent, extents};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// What a volume holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Clusters that it is counted with.
    pub(crate) clusters: u64,
    /// Octets that it is counted with and does not have yet.
    pub(crate) owed: u64,
}

/// What each of `volumes` holds, in their order. What several share is the oldest snapshot's.
pub(crate) fn held(home: &Home, volumes: &[Volume]) -> Vec<Held> {
    let mut seen = Ranges::default();
    let mut all = vec![Held::default(); volumes.len()];
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
        let file = home.open(volume.uuid);
        if is_detaching {
            let bytes = file.and_then(|file| Ok((content(&file)?, alone(&file, None)?)));
            let (bytes, own) = bytes.unwrap_or((volume.size, 0));
            all[at] = Held { clusters: clusters(bytes), owed: bytes.saturating_sub(own) };
            continue;
        }
        let shared = if is_whole { None } else { Some(&mut seen) };
        // What cannot be looked at holds what it may hold.
        let bytes = file.and_then(|file| alone(&file, shared)).unwrap_or(volume.size);
        all[at] = match is_whole {
            true => {
                Held { clusters: clusters(volume.size), owed: volume.size.saturating_sub(bytes) }
            }
            false => Held { clusters: clusters(bytes), owed: 0 },
        };
    }
    all
}

/// Octets that `file` has, with the shared ones that are not in `seen` yet; `None`: without any shared ones.
pub(crate) fn alone(file: &File, mut seen: Option<&mut Ranges>) -> io::Result<u64> {
    let mut bytes = 0;
    let add = |Extent { physical, bytes: length, shared }| {
        bytes += match (shared, &mut seen) {
            (false, _) => length,
            (true, Some(seen)) => seen.insert(physical, physical.saturating_add(length)),
            (true, None) => 0,
        };
    };
    match extents(file, add) {
        Ok(()) => Ok(bytes),
        // Nothing is shared in file systems that do not tell extents.
        Err(_) => Ok(file.metadata()?.blocks() * 512),
    }
}

/// What a copy of `file` takes, whatever it shares.
pub(crate) fn content(file: &File) -> io::Result<u64> {
    let mut bytes = 0;
    match extents(file, |extent| bytes += extent.bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Ok(file.metadata()?.blocks() * 512),
    }
}

/// Clusters of so many octets that are whole.
pub(crate) fn whole_clusters(bytes: u64) -> u64 {
    bytes / CLUSTER_BYTES
}

/// Ranges that do not touch, by their begin.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range, and says how much of it is new.
    fn insert(&mut self, begin: u64, end: u64) -> u64 {
        let (mut from, mut to) = (begin, end);
        let mut new = end.saturating_sub(begin);
        // From the last one that may touch backwards.
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
        fn each_octet_is_counted_once(ranges in prop::collection::vec((0u64..64, 1u64..16), 0..40)) {
            let (mut known, mut seen) = (Ranges::default(), [false; 80]);
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
