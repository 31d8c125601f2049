//! Shares of a buffer pool that may wait for hosts: a host that receives Ready to Transfer and sends nothing leaves
//! buffers for the others.
//!
//! A write without in-capsule data gets a buffer first; then the target requests the data with an R2T. From then on the
//! buffer depends on the host. So each lane and each host may have a part of the pool in this state, and all hosts
//! together leave a reserve. Reads and writes with in-capsule data always find buffers there, which return by
//! themselves. A write over the limit waits for its R2T, and nothing else waits behind it. A lane without such a write
//! may have one of any size, as far as the reserve allows.
//!
//! There is one value for each pool. Bytes are counted as the pool counts: in powers of two.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Smallest buffer of a pool, in bytes.
const BUFFER_MIN: usize = 4096;
/// Divisors of the pool: parts for a lane, for a host, and the reserve for commands that wait for no host.
const LANE_PART: usize = 4;
const HOST_PART: usize = 2;
const RESERVE_PART: usize = 8;

/// Returns the bytes of the pool that a buffer of `bytes` occupies.
fn rounded(bytes: u32) -> usize {
    (bytes as usize).next_power_of_two().max(BUFFER_MIN)
}

/// Accounts of a pool's buffers that wait for data.
#[derive(Debug)]
pub struct BufferShares {
    /// Size of the pool in bytes.
    pool: usize,
    /// Bytes that wait for any host.
    total: Rc<Cell<usize>>,
    /// Bytes that wait for each host, by its NQN.
    hosts: RefCell<BTreeMap<Arc<str>, Weak<Cell<usize>>>>,
}

impl BufferShares {
    /// Creates the accounts of a pool of `pool` bytes.
    #[must_use]
    pub fn new(pool: usize) -> Self {
        BufferShares { pool, total: Rc::default(), hosts: RefCell::default() }
    }

    /// Returns the share of a new lane of that host.
    #[must_use]
    pub fn join(&self, hostnqn: &Arc<str>) -> BufferShare {
        let mut hosts = self.hosts.borrow_mut();
        hosts.retain(|_, host| host.strong_count() > 0);
        let known = hosts.get(hostnqn).and_then(Weak::upgrade);
        let host = known.unwrap_or_default();
        hosts.insert(hostnqn.clone(), Rc::downgrade(&host));
        BufferShare { pool: self.pool, total: self.total.clone(), host, own: 0 }
    }

    /// Returns the bytes that wait for any host.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total.get()
    }
}

/// A lane's share. Dropping it releases the bytes counted.
#[derive(Debug)]
pub struct BufferShare {
    pool: usize,
    total: Rc<Cell<usize>>,
    host: Rc<Cell<usize>>,
    own: usize,
}

impl BufferShare {
    /// Counts a buffer of `length` bytes that waits for its data. Returns the bytes it occupies, or `None` if it may
    /// not wait.
    #[inline]
    pub fn try_begin(&mut self, length: u32) -> Option<usize> {
        let bytes = rounded(length);
        self.may_wait(bytes).then(|| {
            self.begin(bytes);
            bytes
        })
    }

    #[inline]
    fn may_wait(&self, bytes: usize) -> bool {
        let fits = |has: usize, limit: usize| has == 0 || has + bytes <= limit;
        fits(self.total.get(), self.pool - self.pool / RESERVE_PART)
            && fits(self.host.get(), self.pool / HOST_PART)
            && fits(self.own, self.pool / LANE_PART)
    }

    /// Counts a buffer that occupies `bytes` of the pool and waits for its data.
    #[inline]
    pub fn begin(&mut self, bytes: usize) {
        self.own += bytes;
        self.total.update(|total| total + bytes);
        self.host.update(|host| host + bytes);
    }

    /// Stops counting a buffer of `bytes`: its data has arrived, or the buffer was released.
    #[inline]
    pub fn end(&mut self, bytes: usize) {
        self.give_back(bytes);
    }

    #[inline]
    fn give_back(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.own, "{bytes} of {} bytes", self.own);
        self.own -= bytes;
        self.total.update(|total| total - bytes);
        self.host.update(|host| host - bytes);
    }
}

impl Drop for BufferShare {
    fn drop(&mut self) {
        self.give_back(self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Begins writes of that many bytes as long as that is allowed. Returns their number.
    fn fill(share: &mut BufferShare, bytes: usize) -> usize {
        let mut count = 0;
        while share.try_begin(bytes as u32).is_some() {
            count += 1;
        }
        count
    }

    fn nqn(number: usize) -> Arc<str> {
        format!("nqn.x:{number}").into()
    }

    #[test]
    fn a_lane_a_host_and_all_hosts_leave_something() {
        let shares = BufferShares::new(64 << 20);
        let mut of_one: Vec<BufferShare> = (0..8).map(|_| shares.join(&nqn(1))).collect();
        let counts: Vec<usize> = of_one.iter_mut().map(|lane| fill(lane, MIB)).collect();
        assert_eq!(counts, [16, 16, 0, 0, 0, 0, 0, 0], "a quarter, and a half");
        let mut others: Vec<BufferShare> = (2..10).map(|host| shares.join(&nqn(host))).collect();
        let counts: Vec<usize> = others.iter_mut().map(|lane| fill(lane, MIB)).collect();
        assert_eq!(counts.iter().sum::<usize>(), 24, "an eighth is left: {counts:?}");
        assert_eq!(shares.total(), 56 << 20);
        others[0].end(MIB);
        assert!(others[7].may_wait(MIB) && !of_one[7].may_wait(4096));
    }

    #[test]
    fn bytes_are_counted_as_the_pool_has_them() {
        let shares = BufferShares::new(16 << 20);
        let mut share = shares.join(&nqn(1));
        assert_eq!(fill(&mut share, 513 << 10), 4, "a buffer of 1 MiB each");
        assert_eq!(fill(&mut share, 1), 0);
        (0..4).for_each(|_| share.end(MIB));
        assert_eq!(fill(&mut share, 1), (4 << 20) / BUFFER_MIN);
    }

    #[test]
    fn a_pool_that_is_small_takes_one_write_after_the_other() {
        let shares = BufferShares::new(2 << 20);
        let (mut one, other) = (shares.join(&nqn(1)), shares.join(&nqn(2)));
        assert!(one.may_wait(MIB));
        one.begin(MIB);
        assert!(!one.may_wait(4096) && !other.may_wait(MIB));
        assert!(other.may_wait(512 << 10), "another host is not held up by that one");
        one.end(MIB);
        assert!(one.may_wait(MIB) && other.may_wait(MIB));
    }

    #[test]
    fn a_lane_that_goes_gives_back_what_it_has() {
        let shares = BufferShares::new(16 << 20);
        let (mut one, mut other) = (shares.join(&nqn(1)), shares.join(&nqn(1)));
        assert_eq!((fill(&mut one, MIB), fill(&mut other, MIB)), (4, 4));
        drop(one);
        assert_eq!(shares.total(), 4 << 20);
        let mut third = shares.join(&nqn(1));
        assert_eq!(fill(&mut third, MIB), 4, "the host's is counted on");
        drop((other, third));
        assert_eq!((shares.total(), shares.join(&nqn(2)).may_wait(MIB)), (0, true));
        assert_eq!(shares.hosts.borrow().len(), 1, "hosts that have gone are forgotten");
    }
}
