//! A reactor's io_uring: a thin layer that never loses an entry, and hides errors that a reactor would ignore.

mod alarm;
mod bell;
mod command;
mod queue;
#[cfg(test)]
mod tests;

use alarm::{Alarms, Need};
pub use bell::EventfdSignaller;
pub use command::UringCommand;
use queue::EntryQueue;

use crate::clock;
use crate::slab::{self, Slab};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::{opcode, types};

/// An entry for the submission queue; build one with [`io_uring::opcode`].
pub type RingSqe = io_uring::squeue::Entry;

/// One completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingCqe {
    /// User data of the entry.
    pub user_data: u64,
    /// Role of the ring when it got the entry.
    pub role: RingRole,
    /// Return value of the system call; errors are negative errno.
    pub result: i32,
    /// `IORING_CQE_F_*`.
    pub flags: u32,
}

/// Role of one of several users of a ring: its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RingRole(pub u32);

impl RingRole {
    /// Role of the ring's owner, usually the only user.
    pub const OWNER: RingRole = RingRole(0);
}

/// Bit in the user data of entries of all roles but the owner's, which users leave 0. The rest of such user data is an
/// index of [`ReactorRing::guests`].
const GUEST: u64 = 1 << 63;

/// Contents of an entry's `user_data`: the kind of object that completed, its index, and the generation that detects
/// late completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserData {
    /// Kind of object, numbered by the reactor.
    pub kind: u8,
    /// Index into the table for that kind.
    pub index: u32,
    /// 24 bits; differs for each use of an index, so that a late completion is recognised.
    pub generation: u32,
}

impl UserData {
    /// Generations wrap here.
    pub const GENERATION_MASK: u32 = slab::GENERATION_MASK;

    /// Packs the fields; only the lower 24 bits of the generation are kept.
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
pub struct ReactorRing {
    queue: Entries,
    /// Role of new entries.
    role: RingRole,
    /// Roles and user data of the entries of other roles than the owner's, until they complete.
    guests: Slab<(RingRole, u64)>,
    alarms: Alarms,
    /// Marker: the kernel accepts entries from the creating thread only.
    not_send: PhantomData<*const ()>,
}

/// Queue by the size of its entries.
enum Entries {
    Narrow(EntryQueue<RingSqe>),
    Wide(EntryQueue<Entry128>),
}

/// Calls the queue of either size.
macro_rules! with {
    ($ring:expr, $queue:ident => $call:expr) => {
        match &mut $ring.queue {
            Entries::Narrow($queue) => $call,
            Entries::Wide($queue) => $call,
        }
    };
}

/// Adds what to change to an error of `io_uring_setup`; the kind stays.
fn explained(error: io::Error) -> io::Error {
    let advice = match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            "the kernel counts io_uring's memory as locked: raise that limit (ulimit -l, LimitMEMLOCK=, \
             --ulimit memlock) to 256 KiB for each reactor of all processes of this user"
        }
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
            "io_uring is forbidden here: let the seccomp profile of the container or service have \
             io_uring_setup, io_uring_enter and io_uring_register, and set kernel.io_uring_disabled=0"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}: {advice}"))
}

impl ReactorRing {
    /// A ring for the calling thread with `entries` submission entries and four times as many for
    /// completions. Older kernels get the same ring without the newer flags.
    ///
    /// # Errors
    /// The kernel's, which say what to change where rings are forbidden or too little memory may be locked.
    pub fn new(entries: u32) -> io::Result<ReactorRing> {
        let queue = EntryQueue::new(entries).map_err(explained)?;
        Ok(ReactorRing::of(Entries::Narrow(queue)))
    }

    /// A ring like [`ReactorRing::new`]'s with entries of 128 bytes, so that it takes [commands](ReactorRing::command), where the
    /// kernel supports it (Linux 5.19), else a usual one.
    pub fn wide(entries: u32) -> io::Result<ReactorRing> {
        match EntryQueue::new(entries) {
            Ok(queue) => Ok(ReactorRing::of(Entries::Wide(queue))),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => ReactorRing::new(entries),
            Err(error) => Err(explained(error)),
        }
    }

    fn of(queue: Entries) -> ReactorRing {
        let (role, guests, alarms) = (RingRole::OWNER, Slab::default(), Alarms::default());
        ReactorRing { queue, role, guests, alarms, not_send: PhantomData }
    }

    /// Sets the role of the entries from now on.
    #[inline]
    pub fn set_role(&mut self, role: RingRole) {
        self.role = role;
    }

    /// Returns the kernel's user data for a new entry of the current role.
    #[inline]
    fn of_role(&mut self, user_data: u64) -> u64 {
        match self.role {
            RingRole::OWNER => user_data,
            role => GUEST | u64::from(self.guests.insert((role, user_data))),
        }
    }

    /// Returns the kernel's user data of an entry of the current role that has not completed; `None`: it has.
    fn pending(&self, user_data: u64) -> Option<u64> {
        match self.role {
            RingRole::OWNER => Some(user_data),
            role => self
                .guests
                .find(|entry| *entry == (role, user_data))
                .map(|at| GUEST | u64::from(at)),
        }
    }

    /// Cancels all polls of the current role. Their completions come as usual, and so do those of these requests, with
    /// `user_data`.
    pub fn cancel_polls(&mut self, user_data: u64) {
        let own = self.guests.iter().filter(|(_, (role, _))| *role == self.role);
        let polls: Vec<u32> = own.map(|(at, _)| at).collect();
        for at in polls {
            let user_data = self.of_role(user_data);
            let sqe = opcode::PollRemove::new(GUEST | u64::from(at)).build();
            // SAFETY: points to nothing.
            unsafe { self.push_entry(&sqe.user_data(user_data)) };
        }
    }

    /// Queues an entry for the next submission. When the queue is full, the kernel gets the queue now; entries that it
    /// does not take are kept and follow in order.
    ///
    /// # Safety
    /// All memory the entry points to must stay valid until its completion was reaped.
    pub unsafe fn push(&mut self, sqe: &RingSqe) {
        if self.role != RingRole::OWNER {
            let user_data = self.of_role(sqe.get_user_data());
            // SAFETY: passed on to our caller.
            return unsafe { self.push_entry(&sqe.clone().user_data(user_data)) };
        }
        // SAFETY: passed on to our caller.
        unsafe { self.push_entry(sqe) };
    }

    /// # Safety
    /// As [`ReactorRing::push`].
    unsafe fn push_entry(&mut self, sqe: &RingSqe) {
        match &mut self.queue {
            // SAFETY: passed on to our caller.
            Entries::Narrow(queue) => unsafe { queue.push(sqe) },
            // SAFETY: as above.
            Entries::Wide(queue) => unsafe { queue.push(&sqe.clone().into()) },
        }
    }

    /// Queues a command as [`ReactorRing::push`] does an entry. False: the entries are not wide enough.
    ///
    /// # Safety
    /// All memory the command points to must stay valid until its completion was reaped, and beyond if the driver
    /// requires it.
    #[must_use]
    pub unsafe fn command(&mut self, command: &UringCommand, user_data: u64) -> bool {
        if matches!(self.queue, Entries::Narrow(_)) {
            return false;
        }
        let user_data = self.of_role(user_data);
        let Entries::Wide(queue) = &mut self.queue else { return false };
        // SAFETY: passed on to our caller.
        unsafe { queue.push(&command.entry(user_data)) };
        true
    }

    /// Polls for one completion when `fd` is ready for `events` (`libc::POLLIN` and so on); its result holds the
    /// events.
    pub fn poll_add(&mut self, fd: BorrowedFd<'_>, events: i16, user_data: u64) {
        let events = u32::from(events.cast_unsigned());
        let sqe = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), events).build();
        // SAFETY: points to nothing.
        unsafe { self.push(&sqe.user_data(user_data)) };
    }

    /// Cancels the poll that was added with `target`: it completes with `-ECANCELED`, this request with 0 or, if the
    /// poll had completed already, `-ENOENT`. Another role than the owner's gets no completion in the latter case.
    pub fn poll_remove(&mut self, target: u64, user_data: u64) {
        let Some(target) = self.pending(target) else { return };
        let sqe = opcode::PollRemove::new(target).build();
        // SAFETY: points to nothing.
        unsafe { self.push(&sqe.user_data(user_data)) };
    }

    /// Requests to stop the request with user data `target`, which completes in any case.
    pub fn cancel(&mut self, target: u64, user_data: u64) {
        let Some(target) = self.pending(target) else { return };
        let sqe = opcode::AsyncCancel::new(target).build();
        // SAFETY: points to nothing.
        unsafe { self.push(&sqe.user_data(user_data)) };
    }

    /// Queues an entry that completes at once; for waking and for tests.
    pub fn nop(&mut self, user_data: u64) {
        // SAFETY: points to nothing.
        unsafe { self.push(&opcode::Nop::new().build().user_data(user_data)) };
    }

    /// Submits everything and waits for `want` completions, at most `timeout` (`None`: for ever).
    ///
    /// Returns early on a signal. With `want` 0 and nothing to do it makes no system call.
    pub fn submit_and_wait(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        with!(self, queue => queue.submit_and_wait(want, timeout))
    }

    /// Submits everything and waits for a completion, at most `timeout` (`None`: for ever). For callers that wait very
    /// often: it may return earlier without a completion.
    pub fn submit_and_sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero()) else {
            return self.submit_and_wait(1, timeout);
        };
        match self.alarms.until(clock::now() + timeout) {
            Need::Nothing => {}
            // SAFETY: it points into the alarms, which stay while the ring does and are not changed until it completes.
            Need::Entry(entry) => unsafe { self.push(&entry) },
            Need::Timer => return self.submit_and_wait(1, Some(timeout)),
        }
        self.submit_and_wait(1, None)
    }

    /// Returns the oldest completion that was not taken yet; makes no system call.
    #[inline]
    pub fn next_completion(&mut self) -> Option<RingCqe> {
        loop {
            let mut completion = with!(self, queue => queue.next_completion())?;
            if completion.user_data != alarm::USER_DATA {
                if completion.user_data & GUEST != 0 {
                    let index = (completion.user_data & !GUEST) as u32;
                    let Some((role, user_data)) = self.guests.take(index) else { continue };
                    (completion.role, completion.user_data) = (role, user_data);
                }
                return Some(completion);
            }
            self.alarms.rung();
        }
    }

    /// Appends all available completions to `completions`; makes no system call.
    #[inline]
    pub fn reap(&mut self, completions: &mut Vec<RingCqe>) {
        completions.extend(std::iter::from_fn(|| self.next_completion()));
    }
}
