//! A reactor's io_uring: a thin layer that never loses an entry and never fails for reasons that a
//! reactor would only shrug at.

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

/// An entry for the submission queue; build one with [`io_uring::opcode`].
pub type RingSqe = io_uring::squeue::Entry;

/// One completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingCqe {
    /// As given with the entry.
    pub user_data: u64,
    /// What the system call would have returned; errors are negative errno.
    pub result: i32,
    /// `IORING_CQE_F_*`.
    pub flags: u32,
}

/// What a reactor packs into an entry's `user_data`: what kind of thing completed, where it is, and
/// whether it is still the one that was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserData {
    /// The reactor's own numbering.
    pub kind: u8,
    /// Index into the table for that kind.
    pub index: u32,
    /// 24 bits; differs for each use of an index, so that a late completion is recognised.
    pub generation: u32,
}

impl UserData {
    /// Generations wrap here.
    pub const GENERATION_MASK: u32 = (1 << 24) - 1;

    /// Of the generation, only the lower 24 bits survive.
    #[must_use]
    pub const fn pack(self) -> u64 {
        (self.kind as u64) << 56
            | ((self.generation & Self::GENERATION_MASK) as u64) << 32
            | self.index as u64
    }

    /// The inverse of [`pack`](Self::pack).
    #[must_use]
    pub const fn unpack(user_data: u64) -> Self {
        let generation = (user_data >> 32) as u32 & Self::GENERATION_MASK;
        UserData { kind: (user_data >> 56) as u8, index: user_data as u32, generation }
    }
}

/// An io_uring that belongs to the thread that made it.
pub struct Ring {
    uring: IoUring,
    /// Entries that did not fit and that the kernel would not take at once, oldest first.
    overflow: VecDeque<RingSqe>,
    /// The kernel accepts entries from the creating thread only.
    not_send: PhantomData<*const ()>,
}

impl Ring {
    /// A ring for the calling thread with `entries` submission entries and four times as many for
    /// completions. Older kernels get the same ring without the newer flags.
    pub fn new(entries: u32) -> io::Result<Ring> {
        let sq_entries = entries.next_power_of_two();
        let mut uring = Err(io::Error::from_raw_os_error(libc::EINVAL));
        for features in [Features::Deferred, Features::Cooperative, Features::Plain] {
            uring = build(sq_entries, features);
            match &uring {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                _ => break,
            }
        }
        let uring = uring?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring needs Linux 5.11"));
        }
        Ok(Ring { uring, overflow: VecDeque::new(), not_send: PhantomData })
    }

    /// Queues an entry for the next submission. When the queue is full the kernel gets it now; what
    /// it does not take is kept and follows in order.
    ///
    /// # Safety
    /// Everything the entry points to must stay valid until its completion was reaped.
    pub unsafe fn push(&mut self, sqe: &RingSqe) {
        // SAFETY: passed on to our caller.
        if self.overflow.is_empty() && unsafe { self.uring.submission().push(sqe) }.is_ok() {
            return;
        }
        self.overflow.push_back(sqe.clone());
        // An error stays for the next `submit_and_wait`, which meets and reports it again.
        let _ = self.uring.submit();
        self.drain_overflow();
    }

    /// Asks for one completion when `fd` is ready for `events` (`libc::POLLIN` and so on); its
    /// result holds the events that came.
    pub fn poll_add(&mut self, fd: BorrowedFd<'_>, events: i16, user_data: u64) {
        let events = u32::from(events.cast_unsigned());
        let sqe = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), events).build();
        // SAFETY: points to nothing.
        unsafe { self.push(&sqe.user_data(user_data)) };
    }

    /// Ends the poll that was added with `target`: it completes with `-ECANCELED`, this with 0 or,
    /// if it had completed already, `-ENOENT`.
    pub fn poll_remove(&mut self, target: u64, user_data: u64) {
        let sqe = opcode::PollRemove::new(target).build();
        // SAFETY: points to nothing.
        unsafe { self.push(&sqe.user_data(user_data)) };
    }

    /// Asks to stop the request with user data `target`, which completes in any case.
    pub fn cancel(&mut self, target: u64, user_data: u64) {
        let sqe = opcode::AsyncCancel::new(target).build();
        // SAFETY: points to nothing.
        unsafe { self.push(&sqe.user_data(user_data)) };
    }

    /// Completes at once; for waking and for tests.
    pub fn nop(&mut self, user_data: u64) {
        // SAFETY: points to nothing.
        unsafe { self.push(&opcode::Nop::new().build().user_data(user_data)) };
    }

    /// Submits everything and waits for `want` completions, at most `timeout` (`None`: for ever).
    ///
    /// Returns early on a signal. With `want` 0 and nothing to do it makes no system call.
    pub fn submit_and_wait(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        self.drain_overflow();
        while !self.overflow.is_empty() {
            tolerate(self.uring.submit())?;
            let before = self.overflow.len();
            self.drain_overflow();
            if self.overflow.len() == before {
                break; // The kernel takes no more until completions are reaped.
            }
        }
        let want = if self.overflow.is_empty() { want } else { want.min(1) };
        let result = match timeout {
            _ if want == 0 && self.is_quiet() => return Ok(()),
            Some(timeout) if want > 0 => {
                let timespec = types::Timespec::from(timeout);
                let args = types::SubmitArgs::new().timespec(&timespec);
                self.uring.submitter().submit_with_args(want, &args)
            }
            _ => self.uring.submit_and_wait(want),
        };
        tolerate(result)
    }

    /// The oldest completion that was not taken yet; makes no system call.
    #[inline]
    pub fn next_completion(&mut self) -> Option<RingCqe> {
        self.uring.completion().next().map(RingCqe::from)
    }

    /// Appends all completions at hand to `completions`; makes no system call.
    #[inline]
    pub fn reap(&mut self, completions: &mut Vec<RingCqe>) {
        completions.extend(self.uring.completion().map(RingCqe::from));
    }

    /// Whether an enter without waiting would have nothing to do.
    #[inline]
    fn is_quiet(&mut self) -> bool {
        let sq = self.uring.submission();
        sq.is_empty() && !sq.taskrun() && !sq.cq_overflow()
    }

    fn drain_overflow(&mut self) {
        let mut sq = self.uring.submission();
        while let Some(sqe) = self.overflow.front() {
            // SAFETY: whoever pushed it promised validity until completion.
            if unsafe { sq.push(sqe) }.is_err() {
                break;
            }
            self.overflow.pop_front();
        }
    }
}

impl From<io_uring::cqueue::Entry> for RingCqe {
    #[inline]
    fn from(cqe: io_uring::cqueue::Entry) -> Self {
        RingCqe { user_data: cqe.user_data(), result: cqe.result(), flags: cqe.flags() }
    }
}

#[derive(Clone, Copy)]
enum Features {
    /// Linux 6.1: completion work runs only when we ask for it.
    Deferred,
    /// Linux 5.19: completion work does not interrupt us.
    Cooperative,
    Plain,
}

fn build(sq_entries: u32, features: Features) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(sq_entries.saturating_mul(4)).setup_clamp();
    match features {
        Features::Deferred => {
            builder.setup_submit_all().setup_coop_taskrun().setup_taskrun_flag();
            builder.setup_single_issuer().setup_defer_taskrun();
        }
        Features::Cooperative => {
            builder.setup_submit_all().setup_coop_taskrun().setup_taskrun_flag();
        }
        Features::Plain => {}
    }
    builder.build(sq_entries)
}

/// Not errors to a reactor: time is up, a signal came, or the kernel wants completions reaped
/// first.
fn tolerate(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const A_WHILE: Option<Duration> = Some(Duration::from_secs(10));

    fn collect(ring: &mut Ring, count: usize) -> Vec<RingCqe> {
        let mut got = Vec::new();
        while got.len() < count {
            ring.submit_and_wait(1, A_WHILE).unwrap();
            let before = got.len();
            ring.reap(&mut got);
            assert!(got.len() > before, "{before} of {count} completions came");
        }
        got
    }

    #[test]
    fn user_data_packs() {
        for (kind, index, generation) in
            [(0, 0, 0), (255, u32::MAX, UserData::GENERATION_MASK), (1, 2, 3)]
        {
            let data = UserData { kind, index, generation };
            assert_eq!(UserData::unpack(data.pack()), data);
        }
        let wrapped = UserData { kind: 7, index: 8, generation: UserData::GENERATION_MASK + 2 };
        assert_eq!(UserData::unpack(wrapped.pack()), UserData { generation: 1, ..wrapped });
    }

    #[test]
    fn a_full_queue_loses_nothing() {
        let mut ring = Ring::new(4).unwrap();
        (0..1000).for_each(|i| ring.nop(i));
        let got = collect(&mut ring, 1000);
        let order: Vec<u64> = got.iter().map(|c| c.user_data).collect();
        assert_eq!(order, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_time_out_is_no_error() {
        let mut ring = Ring::new(4).unwrap();
        ring.submit_and_wait(1, Some(Duration::from_millis(1))).unwrap();
        ring.submit_and_wait(0, None).unwrap();
        assert_eq!(ring.next_completion(), None);
    }

    #[test]
    fn poll_fires_once_and_can_be_removed() {
        let mut ring = Ring::new(4).unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        ring.poll_add(far.as_fd(), libc::POLLIN, 1);
        ring.submit_and_wait(0, None).unwrap();
        near.write_all(b"x").unwrap();
        let ready = collect(&mut ring, 1)[0];
        assert_eq!((ready.user_data, ready.result & i32::from(libc::POLLIN)), (1, 1));

        ring.poll_add(near.as_fd(), libc::POLLIN, 2);
        ring.poll_remove(2, 3);
        ring.poll_remove(99, 4);
        let mut results: Vec<_> =
            collect(&mut ring, 3).iter().map(|c| (c.user_data, c.result)).collect();
        results.sort_unstable();
        assert_eq!(results, [(2, -libc::ECANCELED), (3, 0), (4, -libc::ENOENT)]);
    }

    #[test]
    fn a_bad_entry_fails_alone() {
        let mut ring = Ring::new(8).unwrap();
        let bad = opcode::Fsync::new(types::Fd(-1)).build().user_data(1);
        ring.nop(0);
        // SAFETY: points to nothing.
        unsafe { ring.push(&bad) };
        ring.nop(2);
        let mut results: Vec<_> =
            collect(&mut ring, 3).iter().map(|c| (c.user_data, c.result)).collect();
        results.sort_unstable();
        assert_eq!(results, [(0, 0), (1, -libc::EBADF), (2, 0)]);
    }

    #[test]
    fn cancel_ends_a_poll() {
        let mut ring = Ring::new(4).unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        ring.poll_add(near.as_fd(), libc::POLLIN, 1);
        ring.cancel(1, 2);
        let mut results: Vec<_> =
            collect(&mut ring, 2).iter().map(|c| (c.user_data, c.result)).collect();
        results.sort_unstable();
        assert_eq!(results, [(1, -libc::ECANCELED), (2, 0)]);
    }
}
