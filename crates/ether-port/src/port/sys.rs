//! System calls of ports: sockets and their options, queries of interfaces by name, mappings.

use rustix::event::epoll;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::sockopt::socket_error;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send,
    socket_with,
};
use std::ffi::c_int;
use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};

/// Opens a raw socket without a protocol: no frame arrives before it is bound.
pub(super) fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

/// Sets an option whose value is plain bytes.
pub(super) fn set_option<T: Copy>(
    fd: &OwnedFd,
    level: c_int,
    option: c_int,
    value: &T,
) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `value`, which the kernel only reads.
    let rc = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, ptr::from_ref(value).cast(), length)
    };
    check(rc).map(drop)
}

/// Reads an option into a value for which any bytes are valid.
pub(super) fn get_option<T: Plain>(fd: &OwnedFd, level: c_int, option: c_int) -> io::Result<T> {
    // SAFETY: all bytes are valid for plain types, zeroes as well.
    let mut value: T = unsafe { mem::zeroed() };
    let mut length = mem::size_of::<T>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: the kernel writes at most `length` bytes, which `value` has.
    let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, place, &mut length) };
    check(rc)?;
    Ok(value)
}

/// Types for which any bytes are valid.
///
/// # Safety
/// No references, no niches.
pub(super) unsafe trait Plain: Copy {}
// SAFETY: numbers only.
unsafe impl Plain for c_int {}
// SAFETY: numbers only.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: numbers only.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: numbers only.
unsafe impl Plain for libc::xdp_mmap_offsets {}

/// Binds to an address of the socket's family.
pub(super) fn bind<T: Copy>(fd: &OwnedFd, address: &T) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `address`, which the kernel only reads.
    check(unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(address).cast(), length) }).map(drop)
}

/// Returns an interface request with the name filled in; `None` if no interface can have the name.
fn request(name: &str) -> Option<libc::ifreq> {
    // SAFETY: an all-zero request is valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return None;
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    Some(request)
}

fn query(fd: &OwnedFd, name: &str, what: libc::c_ulong) -> io::Result<libc::ifreq> {
    let no_device = || io::Error::from_raw_os_error(libc::ENODEV);
    let mut request = request(name).ok_or_else(no_device)?;
    // SAFETY: these requests read the name and fill the union, both within `request`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), what as _, &raw mut request) })?;
    Ok(request)
}

/// Returns the interface's index.
pub(super) fn index(fd: &OwnedFd, name: &str) -> io::Result<i32> {
    let index = netdevice::name_to_index(fd, name)?;
    Ok(i32::try_from(index).unwrap_or(i32::MAX))
}

/// Returns the most bytes of a frame behind Ethernet's header.
pub(super) fn mtu(fd: &OwnedFd, name: &str) -> io::Result<usize> {
    let request = query(fd, name, libc::SIOCGIFMTU)?;
    // SAFETY: the request filled in this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// Returns the flags: `IFF_*`.
pub(super) fn flags(fd: &OwnedFd, name: &str) -> io::Result<c_int> {
    let request = query(fd, name, libc::SIOCGIFFLAGS)?;
    // SAFETY: the request filled in this member.
    Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// Returns the hardware's type (`ARPHRD_*`) and address.
pub(super) fn address(fd: &OwnedFd, name: &str) -> io::Result<(u16, [u8; 6])> {
    let request = query(fd, name, libc::SIOCGIFHWADDR)?;
    // SAFETY: the request filled in this member.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut bytes = [0; 6];
    for (byte, given) in bytes.iter_mut().zip(address.sa_data) {
        *byte = given as u8;
    }
    Ok((address.sa_family, bytes))
}

/// `ethtool_channels`: the command; maxima of rx, tx, other, combined; then those in use.
type EthtoolChannels = [u32; 9];

/// Returns the number of receive queues in use; `None` if the driver does not report it.
pub(super) fn queues(fd: &OwnedFd, name: &str) -> Option<u32> {
    const GET_CHANNELS: u32 = 0x3c;
    let mut channels: EthtoolChannels = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    ethtool(fd, name, &mut channels)?;
    Some(channels[5].saturating_add(channels[8])).filter(|&queues| queues > 0)
}

/// Sets the number of queues in each direction. True if that worked.
#[cfg(test)]
pub(super) fn set_queues(fd: &OwnedFd, name: &str, queues: u32) -> bool {
    const SET_CHANNELS: u32 = 0x3d;
    ethtool(fd, name, &mut [SET_CHANNELS, 0, 0, 0, 0, queues, queues, 0, 0]).is_some()
}

fn ethtool(fd: &OwnedFd, name: &str, channels: &mut EthtoolChannels) -> Option<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = ptr::from_mut(channels).cast();
    // SAFETY: the request points to `ethtool_channels`, which the kernel reads or fills.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    (rc == 0).then_some(())
}

/// Takes the pending error of a socket.
pub(super) fn take_error(fd: &OwnedFd) -> Option<io::Error> {
    socket_error(fd).ok()?.err().map(io::Error::from)
}

/// Makes the kernel send the frames in an AF_XDP socket's ring.
pub(super) fn wake_send(fd: &OwnedFd) -> io::Result<()> {
    Ok(send(fd, &[], SendFlags::DONTWAIT).map(drop)?)
}

/// Makes the kernel use the memory in an AF_XDP socket's fill ring. It may do so later instead.
pub(super) fn wake_receive(fd: &OwnedFd) {
    let _ = recv(fd, &mut [0; 0], RecvFlags::DONTWAIT);
}

/// Returns a descriptor that is ready (POLLIN) while one of these is.
pub(super) fn any_of<'a>(fds: impl Iterator<Item = &'a OwnedFd>) -> io::Result<OwnedFd> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in fds {
        epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(all)
}

/// Memory shared with the kernel.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping belongs to no thread; access is through raw pointers whose users guarantee validity.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `length` bytes of a socket from `offset` on.
    pub(super) fn of(fd: &OwnedFd, length: usize, offset: i64) -> io::Result<Mapping> {
        Mapping::new(length, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    /// Maps new memory of `length` bytes, followed by those of `mirrored` a second time. All are whole pages.
    pub(super) fn mirrored(length: usize, mirrored: Range<usize>) -> io::Result<Mapping> {
        let fd = memfd_create("umem", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, length as u64)?;
        let nowhere = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let all = Mapping::new(length + mirrored.len(), nowhere, -1, 0)?;
        let place = |at: usize, length: usize, offset: usize| {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: replaces a part of `all`, which has no user yet.
            let at = unsafe {
                let at = all.base.add(at).as_ptr().cast();
                libc::mmap(at, length, access, flags, fd.as_raw_fd(), offset as i64)
            };
            if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
        };
        place(0, length, 0)?;
        place(length, mirrored.len(), mirrored.start)?;
        Ok(all)
    }

    fn new(length: usize, flags: c_int, fd: RawFd, offset: i64) -> io::Result<Mapping> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, access, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, length })
    }

    /// Returns the address of the first byte.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length in bytes.
    pub(super) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `new`, unmapped once, and its users are gone.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

pub(super) fn check(rc: c_int) -> io::Result<c_int> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}
