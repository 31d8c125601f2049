//! s2n-tls between two buffers. Only this module passes pointers to it.

use s2n_tls::connection::Connection;
use s2n_tls::error::Error;
use std::ffi::{c_int, c_void};
use std::task::Poll;
use zeroize::Zeroizing;

/// Buffers of a connection; the library's callbacks use only one of them at a time.
#[derive(Default)]
struct LibraryBuffers {
    incoming: Vec<u8>,
    /// Bytes of `incoming` that the library has read.
    read: usize,
    outgoing: Vec<u8>,
}

/// A connection of the library, with its input and output.
pub(super) struct Pipes {
    /// The connection, dropped before the buffers to which it points.
    connection: Box<Connection>,
    /// Pointer from `Box::into_raw`: only a callback or a method of this type uses it, one at a time.
    buffers: *mut LibraryBuffers,
}

// SAFETY: only this value uses the buffers, and the library's connection may move between threads.
unsafe impl Send for Pipes {}

impl Drop for Pipes {
    fn drop(&mut self) {
        let _ = self.connection.set_waker(None);
        // SAFETY: made by `Box::into_raw`, freed once. The connection does no I/O when it is dropped after this.
        drop(unsafe { Box::from_raw(self.buffers) });
    }
}

/// # Safety
/// `context` is the buffers of the calling connection, and `data` holds `length` bytes.
unsafe extern "C" fn receive(context: *mut c_void, data: *mut u8, length: u32) -> c_int {
    // SAFETY: by this function's contract; the caller of the library has no reference to the buffers.
    let buffers = unsafe { &mut *context.cast::<LibraryBuffers>() };
    let unread = &buffers.incoming[buffers.read..];
    let count = unread.len().min(length as usize).min(c_int::MAX as usize);
    if count == 0 {
        // SAFETY: the calling thread's own.
        unsafe { *libc::__errno_location() = libc::EAGAIN };
        return -1;
    }
    // SAFETY: `data` holds them, by this function's contract.
    unsafe { data.copy_from_nonoverlapping(unread.as_ptr(), count) };
    buffers.read += count;
    count as c_int
}

/// # Safety
/// `context` is the buffers of the calling connection, and `data` has `length` bytes.
unsafe extern "C" fn send(context: *mut c_void, data: *const u8, length: u32) -> c_int {
    // SAFETY: as in `receive`.
    let buffers = unsafe { &mut *context.cast::<LibraryBuffers>() };
    let length = length.min(c_int::MAX as u32);
    // SAFETY: by this function's contract.
    buffers
        .outgoing
        .extend_from_slice(unsafe { std::slice::from_raw_parts(data, length as usize) });
    length as c_int
}

impl Pipes {
    pub(super) fn new(connection: Connection) -> Self {
        let buffers = Box::into_raw(Box::<LibraryBuffers>::default());
        let mut pipes = Pipes { connection: Box::new(connection), buffers };
        let context = buffers.cast();
        // SAFETY: the buffers live as long as `Pipes`, and so longer than any call into the connection.
        let set = unsafe {
            pipes
                .connection
                .set_receive_callback(Some(receive))
                .and_then(|c| c.set_send_callback(Some(send)))
                .and_then(|c| c.set_receive_context(context))
                .and_then(|c| c.set_send_context(context))
                .map(drop)
        };
        debug_assert!(set.is_ok(), "a new connection takes callbacks");
        pipes
    }

    fn buffers(&mut self) -> &mut LibraryBuffers {
        // SAFETY: valid until dropped; with `&mut self` the library does not run.
        unsafe { &mut *self.buffers }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffers().incoming.extend_from_slice(bytes);
    }

    pub(super) fn outgoing(&mut self) -> &mut Vec<u8> {
        &mut self.buffers().outgoing
    }

    /// Takes the input that the library has not read.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        let buffers = self.buffers();
        let rest = buffers.incoming.split_off(buffers.read);
        buffers.incoming.clear();
        buffers.read = 0;
        rest
    }

    pub(super) fn negotiate(&mut self) -> Poll<Result<(), Error>> {
        self.connection.poll_negotiate().map_ok(drop)
    }

    /// Returns the alert that the peer has sent.
    pub(super) fn alert(&self) -> Option<u8> {
        self.connection.alert()
    }

    /// Returns the identity of the negotiated key; empty when there is none.
    pub(super) fn identity(&self) -> Result<Vec<u8>, Error> {
        let mut identity = vec![0; self.connection.negotiated_psk_identity_length()?];
        if !identity.is_empty() {
            self.connection.negotiated_psk_identity(&mut identity)?;
        }
        Ok(identity)
    }

    /// Serializes the connection with its secrets. It cannot be used after that.
    pub(super) fn serialize(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut serialized = Zeroizing::new(vec![0; self.connection.serialization_length()?]);
        self.connection.serialize(&mut serialized)?;
        Ok(serialized)
    }
}
