//! Queues of requests over io_uring: the kernel has one for each possible CPU and uses that of the CPU on which the
//! request is made.

use roadtrain_host_engine::ReactorInfo;
use std::io;

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// Requests of all queues together, unless there are very many queues.
const DEPTH_ALL: usize = 1024;
const DEPTH_MIN: usize = 4;
const DEPTH_MAX: usize = 64;

/// Returns the number of queues that the kernel uses.
pub(super) fn count() -> io::Result<usize> {
    let text = std::fs::read_to_string(POSSIBLE)?;
    let last = last_of(&text);
    last.map(|last| last + 1).ok_or_else(|| io::Error::other(format!("{POSSIBLE}: {text}")))
}

/// Parses the last number of a list like `0-3,8`.
fn last_of(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

/// Returns the depth of each of `count` queues.
pub(super) fn depth(count: usize) -> usize {
    (DEPTH_ALL / count.max(1)).clamp(DEPTH_MIN, DEPTH_MAX)
}

/// Returns the queues of a reactor: that of its own core, and its share of the queues without a reactor on their core.
/// `cores` are those of all reactors, in order; empty if none is pinned.
pub(super) fn of(reactor: ReactorInfo, cores: &[usize], count: usize) -> Vec<u16> {
    let owner = |queue: usize| {
        let own = cores.iter().take(reactor.count).position(|&core| core == queue);
        own.unwrap_or(queue % reactor.count.max(1))
    };
    (0..count).filter(|&queue| owner(queue) == reactor.index).map(|queue| queue as u16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(cores: &[usize], reactors: usize, count: usize) -> Vec<Vec<u16>> {
        let reactor = |index| ReactorInfo { index, count: reactors, lanes: 1, core: None };
        (0..reactors).map(|index| of(reactor(index), cores, count)).collect()
    }

    #[test]
    fn each_queue_is_one_reactors() {
        assert_eq!(all(&[], 1, 3), [vec![0, 1, 2]]);
        assert_eq!(all(&[1, 0], 2, 2), [[1], [0]]);
        assert_eq!(all(&[2, 3], 2, 4), [vec![0, 2], vec![1, 3]]);
        assert_eq!(all(&[5], 1, 2), [[0, 1]]);
        for (cores, reactors, count) in [(vec![3, 7, 1], 3, 8), (vec![0; 4], 4, 2)] {
            let mut queues = all(&cores, reactors, count).concat();
            queues.sort_unstable();
            assert_eq!(queues, (0..count as u16).collect::<Vec<_>>());
        }
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(last_of("0\n"), Some(0));
        assert_eq!(last_of("0-1\n"), Some(1));
        assert_eq!(last_of("0-3,8-11"), Some(11));
        assert_eq!(last_of(""), None);
        assert!(count().unwrap() >= 1);
    }

    #[test]
    fn many_queues_are_shallow() {
        assert_eq!((depth(1), depth(2), depth(64), depth(4096)), (64, 64, 16, 4));
    }
}
