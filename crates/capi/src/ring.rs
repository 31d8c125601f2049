//! Requests in flight, and completions that the program has not reaped.

use crate::border::{CallError, CallResult, Room};
use crate::disk::{DiskHandle, OpenDisk};
use crate::types::{
    roadtrain_completion, roadtrain_request, ROADTRAIN_DISCARD, ROADTRAIN_FLUSH, ROADTRAIN_FUA,
    ROADTRAIN_READ, ROADTRAIN_URGENT, ROADTRAIN_WRITE, ROADTRAIN_WRITE_ZEROES,
};
use roadtrain_host_engine::{Class, Completer, IoCompletion, IoOp, IoRequest, NamespaceInfo};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::{read, write};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::raw::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const ENTRIES_MAX: u32 = 1 << 16;
/// Most blocks of a Write Zeroes.
const ZERO_BLOCKS_MAX: u64 = 1 << 16;

pub(crate) struct RequestRing {
    open: Arc<OpenDisk>,
    ended: Arc<EndedRequests>,
    /// `ended` as the engine takes it.
    completer: Arc<dyn Completer>,
    entries: u32,
    /// Requests that are submitted and not reaped.
    outstanding: AtomicU32,
    /// True while a call uses the ring.
    is_used: AtomicBool,
}

/// Completions of ended requests. The event is readable while there are some.
struct EndedRequests {
    completions: Mutex<VecDeque<roadtrain_completion>>,
    event: OwnedFd,
}

impl EndedRequests {
    fn lock(&self) -> MutexGuard<'_, VecDeque<roadtrain_completion>> {
        self.completions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes at most `most` completions, in order of arrival; returns their number.
    fn take(&self, most: usize, mut put: impl FnMut(usize, roadtrain_completion)) -> usize {
        let mut completions = self.lock();
        let count = completions.len().min(most);
        for (index, completion) in completions.drain(..count).enumerate() {
            put(index, completion);
        }
        if count > 0 && completions.is_empty() {
            // Under the lock: reading the event must not consume the next completion's signal.
            let _ = read(&self.event, &mut [0; 8]);
        }
        count
    }
}

impl Completer for EndedRequests {
    fn complete(&self, completion: IoCompletion) {
        let IoCompletion { token, status, buffer, latency_ns, .. } = completion;
        drop(buffer); // gives the memory back to the caller
        let (result, status) = (-errno(status), u32::from(status.to_field() >> 1));
        let mut completions = self.lock();
        completions.push_back(roadtrain_completion { token, result, status, latency_ns });
        if completions.len() == 1 {
            // The counter cannot overflow: the event is read before there is another first completion.
            let _ = write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

/// Exclusive use of a ring during a call.
struct RingUse<'a>(&'a RequestRing);

impl Drop for RingUse<'_> {
    fn drop(&mut self) {
        self.0.is_used.store(false, Ordering::Release);
    }
}

impl RequestRing {
    pub(crate) fn new(disk: &DiskHandle, entries: u32) -> CallResult<RequestRing> {
        if !(1..=ENTRIES_MAX).contains(&entries) {
            return Err(CallError::invalid(format!("entries is not in 1 to {ENTRIES_MAX}")));
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event =
            event.map_err(|error| CallError::new(error.raw_os_error(), "no event descriptor"))?;
        let completions = Mutex::new(VecDeque::with_capacity(entries as usize));
        let ended = Arc::new(EndedRequests { completions, event });
        Ok(RequestRing {
            open: disk.0.clone(),
            completer: ended.clone(),
            ended,
            entries,
            outstanding: AtomicU32::new(0),
            is_used: AtomicBool::new(false),
        })
    }

    pub(crate) fn event(&self) -> RawFd {
        self.ended.event.as_raw_fd()
    }

    fn turn(&self) -> CallResult<RingUse<'_>> {
        match self.is_used.swap(true, Ordering::Acquire) {
            false => Ok(RingUse(self)),
            true => Err(CallError::new(libc::EBUSY, "another thread is in this ring")),
        }
    }

    /// # Safety
    /// The requests' data is valid until their completions were reaped; reads have exclusive access to theirs.
    pub(crate) unsafe fn submit(&self, requests: &[roadtrain_request]) -> CallResult<c_int> {
        let _turn = self.turn()?;
        let namespace = self.open.namespace()?;
        let transfer_max = self.open.client.view().info().transfer_bytes_max;
        let room = self.entries - self.outstanding.load(Ordering::Relaxed);
        let mut taken = 0;
        for request in requests.iter().take(room as usize) {
            // SAFETY: guaranteed by the caller.
            let made = match unsafe { made_of(request, &namespace, transfer_max) } {
                Ok(made) => made,
                Err(refusal) if taken == 0 => return Err(refusal),
                Err(_) => break,
            };
            // Counted before it can end.
            self.outstanding.fetch_add(1, Ordering::Relaxed);
            if self.open.client.try_submit(made, &self.completer).is_err() {
                self.outstanding.fetch_sub(1, Ordering::Relaxed);
                break;
            }
            taken += 1;
        }
        Ok(taken)
    }

    pub(crate) fn reap(
        &self,
        mut room: Room<roadtrain_completion>,
        timeout_ms: c_int,
    ) -> CallResult<c_int> {
        let _turn = self.turn()?;
        if room.len() == 0 {
            return Ok(0);
        }
        let mut count = self.take(&mut room);
        if count == 0 && timeout_ms != 0 && self.outstanding.load(Ordering::Relaxed) > 0 {
            self.wait(timeout_ms)?;
            count = self.take(&mut room);
        }
        Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
    }

    fn take(&self, room: &mut Room<roadtrain_completion>) -> usize {
        let count = self.ended.take(room.len(), |index, completion| room.put(index, completion));
        self.outstanding.fetch_sub(count as u32, Ordering::Relaxed);
        count
    }

    /// Waits for the event. A signal ends the wait, too.
    fn wait(&self, timeout_ms: c_int) -> CallResult {
        let timeout = u32::try_from(timeout_ms).ok().map(|ms| Timespec {
            tv_sec: i64::from(ms / 1000),
            tv_nsec: i64::from(ms % 1000) * 1_000_000,
        });
        let mut event = [PollFd::new(&self.ended.event, PollFlags::IN)];
        match poll(&mut event, timeout.as_ref()) {
            Ok(_) => Ok(()),
            Err(error) => Err(CallError::new(error.raw_os_error(), "interrupted")),
        }
    }

    /// Waits until no request is in flight, and drops the completions.
    pub(crate) fn finish(&self) -> CallResult {
        let _turn = self.turn()?;
        loop {
            let ended = self.ended.take(usize::MAX, |_, _| {}) as u32;
            if self.outstanding.fetch_sub(ended, Ordering::Relaxed) == ended {
                return Ok(());
            }
            let _ = self.wait(-1);
        }
    }
}

/// Converts a request to the engine's.
///
/// # Safety
/// The data is valid until the request has ended; a read has exclusive access to it.
unsafe fn made_of(
    request: &roadtrain_request,
    namespace: &NamespaceInfo,
    transfer_max: u32,
) -> CallResult<IoRequest> {
    let roadtrain_request { op, flags, offset, length, data, token } = *request;
    let block = u64::from(namespace.block_bytes);
    let op = match op {
        ROADTRAIN_READ => IoOp::Read,
        ROADTRAIN_WRITE => IoOp::Write,
        ROADTRAIN_FLUSH => IoOp::Flush,
        ROADTRAIN_DISCARD => IoOp::Discard,
        ROADTRAIN_WRITE_ZEROES => IoOp::WriteZeroes { deallocate: false },
        _ => return Err(CallError::invalid(format!("op {op} is not an operation"))),
    };
    if flags & !(ROADTRAIN_FUA | ROADTRAIN_URGENT) != 0 {
        return Err(CallError::invalid(format!("flags {flags:#x} has bits that mean nothing")));
    }
    let has_data = matches!(op, IoOp::Read | IoOp::Write);
    if has_data == data.is_null() {
        let text = if has_data { "data is NULL" } else { "data is not NULL: this op has none" };
        return Err(CallError::invalid(text));
    }
    if !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
        return Err(CallError::invalid(format!("offset or length is not a multiple of {block}")));
    }
    if (length == 0) != matches!(op, IoOp::Flush) || (length == 0 && offset != 0) {
        return Err(CallError::invalid("length is 0, or a flush has an offset or a length"));
    }
    let most = match op {
        IoOp::Read | IoOp::Write => u64::from(transfer_max),
        IoOp::WriteZeroes { .. } => ZERO_BLOCKS_MAX * block,
        _ => u64::from(u32::MAX) * block,
    };
    if length > most {
        return Err(CallError::invalid(format!("length {length} is more than {most}")));
    }
    let end = namespace.blocks.saturating_mul(block);
    if offset.checked_add(length).is_none_or(|last| last > end) {
        return Err(CallError::new(libc::ERANGE, format!("{offset} and {length} is beyond {end}")));
    }
    let buffer = NonNull::new(data).map(|data| {
        // SAFETY: guaranteed by the caller; a transfer's length fits.
        unsafe { Buffer::foreign(data, length as u32) }
    });
    Ok(IoRequest {
        op,
        nsid: namespace.nsid,
        slba: offset / block,
        blocks: (length / block) as u32,
        fua: flags & ROADTRAIN_FUA != 0,
        urgent: flags & ROADTRAIN_URGENT != 0,
        class: Class::Normal,
        buffer,
        token,
    })
}

/// Converts a status to the errno of the kernel's block devices; 0 for success.
fn errno(status: Status) -> c_int {
    let is = |list: &[Status]| list.iter().any(|one| status.is(*one));
    match status {
        _ if status.is_success() => 0,
        _ if is(&[Status::INVALID_OPCODE, Status::INVALID_COMMAND_SET]) => libc::EOPNOTSUPP,
        _ if is(&[Status::INVALID_NAMESPACE, Status::NAMESPACE_NOT_READY]) => libc::ENODEV,
        _ if status.is(Status::NAMESPACE_WRITE_PROTECTED) => libc::EROFS,
        _ if status.is(Status::ACCESS_DENIED) => libc::EACCES,
        _ if status.is(Status::INVALID_FIELD) => libc::EINVAL,
        _ if status.is(Status::LBA_OUT_OF_RANGE) => libc::ERANGE,
        _ if status.is(Status::CAPACITY_EXCEEDED) => libc::ENOSPC,
        _ if status.is(Status::RESERVATION_CONFLICT) => libc::EBADE,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMESPACE: NamespaceInfo = NamespaceInfo {
        nsid: 7,
        blocks: 1000,
        block_bytes: 512,
        read_only: false,
        deallocated_reads_zero: true,
        nguid: [0; 16],
        uuid: [0; 16],
        eui64: [0; 8],
        preferred_write_blocks: 1,
        preferred_discard_blocks: 1,
        optimal_write_blocks: 1,
        write_verifier: None,
        ana_group: 0,
    };

    fn made(op: u32, flags: u32, offset: u64, length: u64, data: *mut u8) -> CallResult<IoRequest> {
        let request = roadtrain_request { op, flags, offset, length, data, token: 5 };
        // SAFETY: the data is not accessed.
        unsafe { made_of(&request, &NAMESPACE, 8192) }
    }

    #[test]
    fn requests_become_the_engines() {
        let mut data = [0; 1024];
        let write = made(ROADTRAIN_WRITE, ROADTRAIN_FUA, 1024, 1024, data.as_mut_ptr()).unwrap();
        assert_eq!((write.op, write.nsid, write.slba, write.blocks), (IoOp::Write, 7, 2, 2));
        assert!(write.fua && !write.urgent && write.token == 5);
        assert_eq!(write.buffer.unwrap().as_ptr(), data.as_ptr());
        let null = std::ptr::null_mut();
        assert_eq!(made(ROADTRAIN_FLUSH, 0, 0, 0, null).unwrap().blocks, 0);
        assert_eq!(made(ROADTRAIN_DISCARD, 0, 0, 512_000, null).unwrap().blocks, 1000);
    }

    /// A thread that waits for the last completions must notice each that comes while others are taken.
    #[test]
    fn no_completion_is_missed_while_others_are_taken() {
        const COUNT: u64 = 200_000;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let ended = EndedRequests { completions: Mutex::default(), event };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for token in 0..COUNT {
                    let (status, op) = (Status::SUCCESS, IoOp::Flush);
                    ended.complete(IoCompletion { token, op, status, buffer: None, latency_ns: 0 });
                }
            });
            let mut left = COUNT as usize;
            while left > 0 {
                let mut event = [PollFd::new(&ended.event, PollFlags::IN)];
                let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
                assert_eq!(poll(&mut event, Some(&patience)), Ok(1), "{left} are not reported");
                left -= ended.take(usize::MAX, |_, _| {});
            }
        });
    }

    #[test]
    fn invalid_requests_are_refused() {
        let mut byte = 0;
        let (null, data) = (std::ptr::null_mut(), std::ptr::from_mut(&mut byte));
        for (op, flags, offset, length, data, wanted) in [
            (99, 0, 0, 512, data, libc::EINVAL),
            (ROADTRAIN_READ, 8, 0, 512, data, libc::EINVAL),
            (ROADTRAIN_READ, 0, 0, 512, null, libc::EINVAL),
            (ROADTRAIN_FLUSH, 0, 0, 0, data, libc::EINVAL),
            (ROADTRAIN_FLUSH, 0, 512, 0, null, libc::EINVAL),
            (ROADTRAIN_FLUSH, 0, 0, 512, null, libc::EINVAL),
            (ROADTRAIN_READ, 0, 100, 512, data, libc::EINVAL),
            (ROADTRAIN_READ, 0, 0, 100, data, libc::EINVAL),
            (ROADTRAIN_READ, 0, 0, 0, data, libc::EINVAL),
            (ROADTRAIN_READ, 0, 0, 8192 + 512, data, libc::EINVAL),
            (ROADTRAIN_READ, 0, 512_000, 512, data, libc::ERANGE),
            (ROADTRAIN_WRITE, 0, u64::MAX - 511, 512, data, libc::ERANGE),
            (ROADTRAIN_DISCARD, 0, 511_488, 1024, null, libc::ERANGE),
        ] {
            let refusal = made(op, flags, offset, length, data).unwrap_err();
            assert_eq!(refusal.errno, wanted, "{op} {flags} {offset} {length}: {}", refusal.text);
        }
    }
}
