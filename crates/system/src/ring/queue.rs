//! The kernel's two queues for entries of one size, and the overflow.

use super::{RingCqe, RingRole};
use io_uring::squeue::EntryMarker;
use io_uring::{IoUring, cqueue, types};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// Maximum system calls that follow a wait to have the kernel's completion work run.
const WORK_ENTERS_MAX: u32 = 64;

pub(super) struct EntryQueue<S: EntryMarker> {
    uring: IoUring<S>,
    /// Entries that did not fit and that the kernel would not take at once, oldest first.
    overflow: VecDeque<S>,
}

impl<S: EntryMarker> EntryQueue<S> {
    pub(super) fn new(entries: u32) -> io::Result<Self> {
        let sq_entries = entries.next_power_of_two();
        let mut uring = Err(io::Error::from_raw_os_error(libc::EINVAL));
        for features in [RingFeatures::Deferred, RingFeatures::Cooperative, RingFeatures::Plain] {
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
        Ok(EntryQueue { uring, overflow: VecDeque::new() })
    }

    /// # Safety
    /// As [`ReactorRing::push`](super::ReactorRing::push).
    pub(super) unsafe fn push(&mut self, sqe: &S) {
        // SAFETY: passed on to our caller.
        if self.overflow.is_empty() && unsafe { self.uring.submission().push(sqe) }.is_ok() {
            return;
        }
        self.overflow.push_back(sqe.clone());
        // An error stays for the next `submit_and_wait`, which meets and reports it again.
        let _ = self.uring.submit();
        self.drain_overflow();
    }

    pub(super) fn submit_and_wait(
        &mut self,
        want: usize,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
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
        tolerate(result)?;
        self.run_all_work()
    }

    /// Has the kernel run the remaining completion work. One enter runs no more than a few dozen items, but completes
    /// at once all submitted entries that are ready. Descriptors that are always ready would overtake the others.
    fn run_all_work(&mut self) -> io::Result<()> {
        for _ in 0..WORK_ENTERS_MAX {
            if !self.uring.submission().taskrun() {
                break;
            }
            tolerate(self.uring.submit())?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn next_completion(&mut self) -> Option<RingCqe> {
        self.uring.completion().next().map(RingCqe::from)
    }

    /// True if an enter without waiting would have nothing to do.
    #[inline]
    fn is_quiet(&mut self) -> bool {
        let sq = self.uring.submission();
        sq.is_empty() && !sq.taskrun() && !sq.cq_overflow()
    }

    fn drain_overflow(&mut self) {
        let mut sq = self.uring.submission();
        while let Some(sqe) = self.overflow.front() {
            // SAFETY: the caller of `push` promised validity until completion.
            if unsafe { sq.push(sqe) }.is_err() {
                break;
            }
            self.overflow.pop_front();
        }
    }
}

impl From<cqueue::Entry> for RingCqe {
    #[inline]
    fn from(cqe: cqueue::Entry) -> Self {
        let role = RingRole::OWNER;
        RingCqe { user_data: cqe.user_data(), role, result: cqe.result(), flags: cqe.flags() }
    }
}

#[derive(Clone, Copy)]
enum RingFeatures {
    /// Linux 6.1: completion work runs only on request.
    Deferred,
    /// Linux 5.19: completion work does not interrupt the thread.
    Cooperative,
    Plain,
}

fn build<S: EntryMarker>(sq_entries: u32, features: RingFeatures) -> io::Result<IoUring<S>> {
    let mut builder = IoUring::<S>::builder();
    builder.setup_cqsize(sq_entries.saturating_mul(4)).setup_clamp();
    match features {
        RingFeatures::Deferred => {
            builder.setup_submit_all().setup_coop_taskrun().setup_taskrun_flag();
            builder.setup_single_issuer().setup_defer_taskrun();
        }
        RingFeatures::Cooperative => {
            builder.setup_submit_all().setup_coop_taskrun().setup_taskrun_flag();
        }
        RingFeatures::Plain => {}
    }
    builder.build(sq_entries)
}

/// Tolerates results that are not errors to a reactor: a timeout, a signal, or a kernel that wants completions reaped
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
