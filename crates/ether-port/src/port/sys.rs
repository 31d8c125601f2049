//! The system calls of ports: sockets and their options, interfaces asked by name, mappings.

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

/// A socket that needs no protocol's hook yet: nothing arrives before it is bound.
pub(super) fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

/// Sets an option whose value is plain octets.
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

/// Reads an option into `value`, which any octets are valid for.
pub(super) fn get_option<T: Plain>(fd: &OwnedFd, level: c_int, option: c_int) -> io::Result<T> {
    // SAFETY: all octets are valid for plain types, zeroes as well.
    let mut value: T = unsafe { mem::zeroed() };
    let mut length = mem::size_of::<T>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: the kernel writes at most `length` octets, which `value` has.
    let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, place, &mut length) };
    check(rc)?;
    Ok(value)
}

/// Types that any octets are valid for.
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

/// An interface's request with its name filled in; `None` when no interface can be called so.
fn request(name: &str) -> Option<libc::ifreq> {
    // SAFETY: an all-zero request is valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return None;
    }
    for (place, octet) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = octet as libc::c_char;
    }
    Some(request)
}

fn ask(fd: &OwnedFd, name: &str, what: libc::c_ulong) -> io::Result<libc::ifreq> {
    let no_device = || io::Error::from_raw_os_error(libc::ENODEV);
    let mut request = request(name).ok_or_else(no_device)?;
    // SAFETY: these requests read the name and fill the union, both within `request`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), what as _, &raw mut request) })?;
    Ok(request)
}

/// The interface's number.
pub(super) fn index(fd: &OwnedFd, name: &str) -> io::Result<i32> {
    let index = netdevice::name_to_index(fd, name)?;
    Ok(i32::try_from(index).unwrap_or(i32::MAX))
}

/// Octets of a frame behind Ethernet's header.
pub(super) fn mtu(fd: &OwnedFd, name: &str) -> io::Result<usize> {
    let request = ask(fd, name, libc::SIOCGIFMTU)?;
    // SAFETY: the request filled in this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// Flags: `IFF_*`.
pub(super) fn flags(fd: &OwnedFd, name: &str) -> io::Result<c_int> {
    let request = ask(fd, name, libc::SIOCGIFFLAGS)?;
    // SAFETY: the request filled in this member.
    Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// The hardware's kind (`ARPHRD_*`) and address.
pub(super) fn address(fd: &OwnedFd, name: &str) -> io::Result<(u16, [u8; 6])> {
    let request = ask(fd, name, libc::SIOCGIFHWADDR)?;
    // SAFETY: the request filled in this member.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut octets = [0; 6];
    for (octet, given) in octets.iter_mut().zip(address.sa_data) {
        *octet = given as u8;
    }
    Ok((address.sa_family, octets))
}

/// `ethtool_channels`: the command; most of rx, tx, other, combined; then those in use.
type Channels = [u32; 9];

/// How many receive queues the interface uses; `None` when its driver does not say.
pub(super) fn queues(fd: &OwnedFd, name: &str) -> Option<u32> {
    const GET_CHANNELS: u32 = 0x3c;
    let mut channels: Channels = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    ethtool(fd, name, &mut channels)?;
    Some(channels[5].saturating_add(channels[8])).filter(|&queues| queues > 0)
}

/// Sets how many queues it uses in each direction; whether it can.
#[cfg(test)]
pub(super) fn set_queues(fd: &OwnedFd, name: &str, queues: u32) -> bool {
    const SET_CHANNELS: u32 = 0x3d;
    ethtool(fd, name, &mut [SET_CHANNELS, 0, 0, 0, 0, queues, queues, 0, 0]).is_some()
}

fn ethtool(fd: &OwnedFd, name: &str, channels: &mut Channels) -> Option<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = ptr::from_mut(channels).cast();
    // SAFETY: the request points to `ethtool_channels`, which the kernel reads or fills.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    (rc == 0).then_some(())
}

/// Takes the error that a socket keeps.
pub(super) fn take_error(fd: &OwnedFd) -> Option<io::Error> {
    socket_error(fd).ok()?.err().map(io::Error::from)
}

/// Has the kernel look at what an AF_XDP socket wants sent.
pub(super) fn wake_send(fd: &OwnedFd) -> io::Result<()> {
    Ok(send(fd, &[], SendFlags::DONTWAIT).map(drop)?)
}

/// Has the kernel look at the memory that an AF_XDP socket gave it. It may do so later instead.
pub(super) fn wake_receive(fd: &OwnedFd) {
    let _ = recv(fd, &mut [0; 0], RecvFlags::DONTWAIT);
}

/// A descriptor that is ready (POLLIN) while one of these is.
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

// SAFETY: a mapping belongs to no thread; access is through raw pointers whose users answer for it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `length` octets of a socket from `offset` on.
    pub(super) fn of(fd: &OwnedFd, length: usize, offset: i64) -> io::Result<Mapping> {
        Mapping::new(length, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    /// New memory of `length` octets, followed by those of `mirrored` a second time. All are whole pages.
    pub(super) fn mirrored(length: usize, mirrored: Range<usize>) -> io::Result<Mapping> {
        let fd = memfd_create("umem", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, length as u64)?;
        let nowhere = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let all = Mapping::new(length + mirrored.len(), nowhere, -1, 0)?;
        let place = |at: usize, length: usize, offset: usize| {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: takes the place of a part of `all`, which nobody uses yet.
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
        // SAFETY: a new mapping at a place that the kernel chooses.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, access, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, length })
    }

    /// The first octet.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Octets.
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
