//! An operation in flight at librbd, which completes it on a thread of its own.

use super::image::OpenImage;
use super::in_flight::OperationTicket;
use super::library::CephHandle;
use crate::zeroes::compare;
use crate::{ByteRange, StoreCompletion, StoreCompletions, StoreOperation, StoreToken};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// State that has to stay until librbd is done with it, even if its submitter is gone.
pub(super) struct RbdOperation {
    op: StoreOperation,
    token: StoreToken,
    buffer: Option<Buffer>,
    /// Stored data of a Compare, whose expected data is in the buffer.
    stored: Vec<u8>,
    completions: StoreCompletions,
    /// Entry among the operations in flight, if it may be completed before librbd completes it.
    ticket: Option<OperationTicket>,
    /// The image, which stays open until then.
    image: Arc<OpenImage>,
}

impl RbdOperation {
    pub(super) fn new(
        (op, buffer): (StoreOperation, Option<Buffer>),
        token: StoreToken,
        completions: StoreCompletions,
        image: Arc<OpenImage>,
    ) -> RbdOperation {
        let stored = match (op, &buffer) {
            (StoreOperation::Compare { .. }, Some(buffer)) => vec![0; buffer.len()],
            _ => Vec::new(),
        };
        RbdOperation { op, token, buffer, stored, completions, ticket: None, image }
    }

    /// Submits it. If that fails it completes at once.
    pub(super) fn begin(mut self) {
        if let Some(in_flight) = self.image.in_flight() {
            self.ticket = in_flight.enter(self.token, &self.completions);
            if self.ticket.is_none() {
                let refused = Err(Status::ANA_INACCESSIBLE);
                self.completions.send(StoreCompletion::new(self.token, refused, self.buffer));
                return;
            }
        }
        let rbd = self.image.rbd();
        let handle = self.image.handle();
        let this = Box::into_raw(Box::new(self));
        let mut completion = null_mut();
        // SAFETY: `this` is given back once, by `ended`, or below if librbd has not taken it.
        let mut result =
            unsafe { (rbd.rbd_aio_create_completion)(this.cast(), ended, &mut completion) };
        if result >= 0 {
            // SAFETY: it is ours until librbd has taken it.
            result = unsafe { Self::submit(this, handle, completion) };
            if result >= 0 {
                return;
            }
            // SAFETY: librbd does not call back for a refused operation.
            unsafe { (rbd.rbd_aio_release)(completion) };
        }
        // SAFETY: as above: it has no other owner.
        unsafe { Box::from_raw(this) }.answer(result as isize);
    }

    /// # Safety
    /// `this` and its memory have to stay until the end, and have no other user before.
    unsafe fn submit(this: *mut RbdOperation, image: CephHandle, completion: CephHandle) -> c_int {
        let place = |bytes: &mut [u8]| (bytes.as_mut_ptr().cast(), bytes.len());
        // librbd may complete it, which frees it, before its function returns: no reference to it is left by then.
        let (rbd, op, (buffer, length), (stored, stored_length)) = {
            // SAFETY: guaranteed by the caller, and librbd does not have it yet.
            let this = unsafe { &mut *this };
            let buffer = place(this.buffer.as_deref_mut().unwrap_or_default());
            (this.image.rbd(), this.op, buffer, place(&mut this.stored))
        };
        // SAFETY: the image is open, and the memory stays, as the caller guarantees.
        unsafe {
            match op {
                StoreOperation::Read { offset } => {
                    (rbd.rbd_aio_read)(image, offset, length, buffer, completion)
                }
                StoreOperation::Compare { offset } => {
                    (rbd.rbd_aio_read)(image, offset, stored_length, stored, completion)
                }
                // Without a cache a completed write is on stable storage.
                StoreOperation::Write { offset, fua: _ } => {
                    (rbd.rbd_aio_write)(image, offset, length, buffer.cast_const(), completion)
                }
                StoreOperation::Flush => (rbd.rbd_aio_flush)(image, completion),
                StoreOperation::Discard { range: ByteRange { offset, len } } => {
                    (rbd.rbd_aio_discard)(image, offset, len, completion)
                }
                StoreOperation::WriteZeroes { range: ByteRange { offset, len }, deallocate } => {
                    let flags = if deallocate { 0 } else { super::library::KEEP_SPACE };
                    (rbd.rbd_aio_write_zeroes)(image, offset, len as usize, completion, flags, 0)
                }
                // Only for other stores; allocation queries do not come here.
                StoreOperation::ReadInPlace { .. }
                | StoreOperation::QueryAllocation { .. }
                | StoreOperation::CompareAndWrite { .. }
                | StoreOperation::WriteUncorrectable { .. } => -libc::EINVAL,
            }
        }
    }

    /// Completes it: librbd returns a negative errno, or the number of bytes read.
    fn answer(self, value: isize) {
        let RbdOperation { op, token, mut buffer, stored, completions, ticket, image } = self;
        let status = |errno| image.status(errno, &op);
        let failure = (value < 0).then(|| status((-value) as c_int));
        if let (Some(ticket), Some(in_flight)) = (ticket, image.in_flight())
            && !in_flight.leave(ticket)
        {
            buffer
                .into_iter()
                .for_each(|buffer| _ = completions.send(StoreCompletion::late(buffer)));
            return;
        }
        let wanted = match op {
            StoreOperation::Read { .. } | StoreOperation::Compare { .. } => {
                buffer.as_ref().map_or(0, |b| b.len())
            }
            _ => 0,
        };
        let result = match (op, &mut buffer) {
            _ if let Some(status) = failure => Err(status),
            // librbd cuts off the part beyond the image's end without an error.
            _ if (value as usize) < wanted => Err(Status::LBA_OUT_OF_RANGE.dnr()),
            (StoreOperation::Compare { .. }, Some(expected)) => {
                compare(expected, |at| stored.as_ptr().wrapping_add(at))
            }
            _ => Ok(()),
        };
        completions.send(StoreCompletion::new(token, result, buffer));
    }
}

/// Handles the end of an operation; librbd calls this on one of its threads.
unsafe extern "C" fn ended(completion: CephHandle, this: *mut c_void) {
    // SAFETY: `begin` has passed the pointer, which comes back once.
    let this = unsafe { Box::from_raw(this.cast::<RbdOperation>()) };
    let rbd = this.image.rbd();
    // SAFETY: the completion is librbd's, and has ended; it is not used after that.
    let value = unsafe {
        let value = (rbd.rbd_aio_get_return_value)(completion);
        (rbd.rbd_aio_release)(completion);
        value
    };
    this.answer(value);
}
