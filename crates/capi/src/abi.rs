//! The functions of the header with their handles. This module only checks pointers.

use crate::border::{self, enter};
use crate::disk::DiskHandle;
use crate::ring::RequestRing;
use crate::types::{
    roadtrain_completion, roadtrain_info, roadtrain_options, roadtrain_request,
    ROADTRAIN_API_VERSION,
};
use std::os::raw::{c_char, c_int};

/// A namespace of a connected controller.
pub struct roadtrain_disk(pub(crate) DiskHandle);

/// Requests in flight, and completions that the program has not reaped.
pub struct roadtrain_ring(pub(crate) RequestRing);

/// Returns the version of the library's interface: at least the ROADTRAIN_API_VERSION that a program was built with.
#[no_mangle]
pub extern "C" fn roadtrain_api_version() -> u32 {
    ROADTRAIN_API_VERSION
}

/// Returns the text of the last error of the calling thread; never NULL, valid until the next call of this thread.
#[no_mangle]
pub extern "C" fn roadtrain_error() -> *const c_char {
    border::last_error()
}

/// Connects to a namespace. -EINVAL: invalid option; -ENODEV: no such namespace; -ECONNREFUSED: no connection; -EACCES:
/// the target refuses this host.
///
/// # Safety
/// `options` points to options of the size that they declare, with strings that end with NUL; `disk` to a pointer.
#[no_mangle]
pub unsafe extern "C" fn roadtrain_open(
    options: *const roadtrain_options,
    disk: *mut *mut roadtrain_disk,
) -> c_int {
    enter(|| {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { border::place(disk, "disk") }?;
        *place = std::ptr::null_mut();
        // SAFETY: likewise.
        let options = unsafe { border::sized(options, "options") }?;
        // SAFETY: likewise.
        let opened = unsafe { DiskHandle::open(options) }?;
        *place = Box::into_raw(Box::new(roadtrain_disk(opened)));
        Ok(0)
    })
}

/// Closes a disk's connection. -EBUSY: the disk still has a ring.
///
/// # Safety
/// `disk` comes from roadtrain_open, and has no user any more, on any thread.
#[no_mangle]
pub unsafe extern "C" fn roadtrain_close(disk: *mut roadtrain_disk) -> c_int {
    enter(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { border::shared(disk, "disk") }?.0.check_unused()?;
        // SAFETY: the pointer comes from Box::into_raw, and is not used after this.
        drop(unsafe { Box::from_raw(disk) });
        Ok(0)
    })
}

/// Returns the properties of a disk. -ENODEV: the namespace is gone.
///
/// # Safety
/// `disk` comes from roadtrain_open; `info` points to as many bytes as its size declares.
#[no_mangle]
pub unsafe extern "C" fn roadtrain_disk_info(
    disk: *const roadtrain_disk,
    info: *mut roadtrain_info,
) -> c_int {
    enter(|| {
        // SAFETY: guaranteed by the caller.
        let disk = unsafe { border::shared(disk, "disk") }?;
        // SAFETY: likewise.
        unsafe { border::sized(info.cast_const(), "info") }?;
        // SAFETY: likewise; it is large enough.
        unsafe { info.write(disk.0.info()?) };
        Ok(0)
    })
}

/// Makes a ring for up to `entries` requests (1 to 65536) that are not reaped yet.
///
/// # Safety
/// `disk` comes from roadtrain_open; `ring` points to a pointer.
#[no_mangle]
pub unsafe extern "C" fn roadtrain_ring_new(
    disk: *const roadtrain_disk,
    entries: u32,
    ring: *mut *mut roadtrain_ring,
) -> c_int {
    enter(|| {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { border::place(ring, "ring") }?;
        *place = std::ptr::null_mut();
        // SAFETY: likewise.
        let disk = unsafe { border::shared(disk, "disk") }?;
        *place = Box::into_raw(Box::new(roadtrain_ring(RequestRing::new(&disk.0, entries)?)));
        Ok(0)
    })
}

/// Waits until all requests of a ring have ended, drops their completions, and frees it.
///
/// # Safety
/// `ring` comes from roadtrain_ring_new, and has no user any more, on any thread.
#[no_mangle]
pub unsafe extern "C" fn roadtrain_ring_free(ring: *mut roadtrain_ring) -> c_int {
    enter(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { border::shared(ring, "ring") }?.0.finish()?;
        // SAFETY: the pointer comes from Box::into_raw, and is not used after this.
        drop(unsafe { Box::from_raw(ring) });
        Ok(0)
    })
}

/// Returns an event descriptor that is readable while there are completions, for poll and epoll. The ring owns it: the
/// program must not read or close it.
///
/// # Safety
/// `ring` comes from roadtrain_ring_new.
#[no_mangle]
pub unsafe extern "C" fn roadtrain_ring_fd(ring: *const roadtrain_ring) -> c_int {
    // SAFETY: guaranteed by the caller.
    enter(|| Ok(unsafe { border::shared(ring, "ring") }?.0.event()))
}

/// Submits up to `count` requests in order. Returns the number of accepted ones, which is smaller when the ring is
/// full. An invalid request is not accepted: if it is the first, returns -EINVAL, or -ERANGE if it is outside the disk.
///
/// # Safety
/// `ring` comes from roadtrain_ring_new; `requests` points to `count` requests, whose data is as the header requires.
#[no_mangle]
pub unsafe extern "C" fn roadtrain_submit(
    ring: *mut roadtrain_ring,
    requests: *const roadtrain_request,
    count: u32,
) -> c_int {
    enter(|| {
        // SAFETY: guaranteed by the caller.
        let ring = unsafe { border::shared(ring, "ring") }?;
        // SAFETY: likewise.
        let requests = unsafe { border::slice(requests, count, "requests") }?;
        // SAFETY: likewise, for their data.
        unsafe { ring.0.submit(requests) }
    })
}

/// Takes up to `count` completions, and waits for the first of them for `timeout_ms`: 0 does not wait, -1 waits for
/// ever. Returns their number: 0 after the timeout, or if no request is in flight.
///
/// # Safety
/// `ring` comes from roadtrain_ring_new; `completions` points to room for `count`.
#[no_mangle]
pub unsafe extern "C" fn roadtrain_reap(
    ring: *mut roadtrain_ring,
    completions: *mut roadtrain_completion,
    count: u32,
    timeout_ms: c_int,
) -> c_int {
    enter(|| {
        // SAFETY: guaranteed by the caller.
        let ring = unsafe { border::shared(ring, "ring") }?;
        // SAFETY: likewise.
        let room = unsafe { border::room(completions, count, "completions") }?;
        ring.0.reap(room, timeout_ms)
    })
}
