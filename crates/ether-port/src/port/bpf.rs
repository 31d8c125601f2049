//! The bpf(2) calls that a port needs.

use super::sys::check;
use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

// Commands.
const MAP_CREATE: c_int = 0;
const MAP_UPDATE_ELEM: c_int = 2;
const PROG_LOAD: c_int = 5;
const LINK_CREATE: c_int = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// Flag: the program may get frames whose bytes lie in several buffers.
const HAS_FRAGMENTS: u32 = 1 << 5;

/// Attach mode: the driver runs the program.
pub(super) const IN_DRIVER: u32 = 1 << 2;
/// Attach mode: the kernel runs the program before the network stack.
pub(super) const BEFORE_STACK: u32 = 1 << 1;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
struct PortProgLoad {
    kind: u32,
    instructions: u32,
    program: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PortLinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// # Safety
/// `attributes` are the command's, and what they point to is valid.
unsafe fn bpf<T: Copy>(command: c_int, attributes: &T) -> io::Result<c_int> {
    let (place, length) = (ptr::from_ref(attributes), mem::size_of::<T>());
    // SAFETY: the kernel reads `length` bytes at `place`; the rest is the caller's promise.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, place, length) } as c_int)
}

/// # Safety
/// As for [`bpf`]; the command returns a descriptor.
unsafe fn bpf_fd<T: Copy>(command: c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise; a descriptor that was just made has no other owner.
    unsafe { Ok(OwnedFd::from_raw_fd(bpf(command, attributes)?)) }
}

/// Makes a map from queues to AF_XDP sockets.
pub(super) fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    let create = MapCreate {
        kind: MAP_TYPE_XSKMAP,
        key_bytes: 4,
        value_bytes: 4,
        entries: queues,
        flags: 0,
    };
    // SAFETY: points to no memory.
    unsafe { bpf_fd(MAP_CREATE, &create) }
}

/// Sets a queue's socket.
pub(super) fn set_socket(map: &OwnedFd, queue: u32, socket: &OwnedFd) -> io::Result<()> {
    let value = socket.as_raw_fd();
    let update = MapUpdate {
        map: map.as_raw_fd() as u32,
        key: (&raw const queue) as u64,
        value: (&raw const value) as u64,
        ..MapUpdate::default()
    };
    // SAFETY: key and value are four bytes each, as the map was made.
    unsafe { bpf(MAP_UPDATE_ELEM, &update) }.map(drop)
}

/// Loads a program for received frames.
pub(super) fn load(program: &[u64]) -> io::Result<OwnedFd> {
    let license = c"Apache-2.0";
    let load = PortProgLoad {
        kind: PROG_TYPE_XDP,
        instructions: program.len() as u32,
        program: program.as_ptr() as u64,
        license: license.as_ptr() as u64,
        flags: HAS_FRAGMENTS,
        attach_type: ATTACH_TYPE_XDP,
        ..PortProgLoad::default()
    };
    // SAFETY: the program has that many instructions of eight bytes; the license is a string.
    unsafe { bpf_fd(PROG_LOAD, &load) }
}

/// Attaches a program to an interface, until the result is dropped.
pub(super) fn attach(program: &OwnedFd, interface: i32, mode: u32) -> io::Result<OwnedFd> {
    let create = PortLinkCreate {
        program: program.as_raw_fd() as u32,
        interface: interface as u32,
        attach_type: ATTACH_TYPE_XDP,
        flags: mode,
    };
    // SAFETY: points to no memory.
    unsafe { bpf_fd(LINK_CREATE, &create) }
}
