//! Whole frames at an interface, through a packet socket.

use anyhow::{Context, ensure};
use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

/// The kernel's notes on a frame whose checksum or segments it has put off: before each frame.
pub(crate) const NOTES_BYTES: usize = 10;
/// Notes and the largest frame, of many segments.
pub(crate) const FRAME_BYTES_MAX: usize = 68 << 10;
const BUFFER_BYTES: libc::c_int = 8 << 20;

/// Sees all that arrives at an interface, and sends there.
#[derive(Debug)]
pub(crate) struct InterfaceSocket(OwnedFd);

impl InterfaceSocket {
    /// Opens one, in the calling thread's network namespace.
    pub(crate) fn open(interface: &str) -> anyhow::Result<Self> {
        let index = index(interface)?;
        let (kind, protocol) =
            (libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, u16::to_be(3));
        // SAFETY: no pointers are involved.
        let fd =
            check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) }).context("a packet socket")?;
        // SAFETY: the call has just made this descriptor for us.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        set(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32)?;
        set(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER_BYTES)?;
        set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &BUFFER_BYTES)?;
        // SAFETY: all-zero is a valid value of both.
        let (mut address, mut membership) =
            unsafe { (mem::zeroed::<libc::sockaddr_ll>(), mem::zeroed::<libc::packet_mreq>()) };
        membership.mr_ifindex = index as libc::c_int;
        membership.mr_type = libc::PACKET_MR_PROMISC as u16;
        set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as libc::c_int;
        let length = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address has the given length.
        check(unsafe { libc::bind(fd, (&raw const address).cast(), length) })
            .with_context(|| format!("listen at {interface}"))?;
        Ok(Self(socket))
    }

    /// The next frame with its notes, if there is one.
    pub(crate) fn receive(&self, frame: &mut [u8]) -> anyhow::Result<Option<usize>> {
        // SAFETY: the buffer has the given length.
        let length =
            unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        if length >= 0 {
            return Ok(Some(length as usize));
        }
        match io::Error::last_os_error() {
            // An interface that goes down reports it once.
            e if e.raw_os_error() == Some(libc::ENETDOWN) => Ok(None),
            e if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            e => Err(e).context("receive a frame"),
        }
    }

    /// Sends a frame; one that cannot be sent is lost, as on any link. Notes come first here, too.
    pub(crate) fn send(&self, frame: &[u8]) {
        // SAFETY: the buffer has the given length.
        unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    }
}

fn set<T>(fd: RawFd, level: libc::c_int, option: libc::c_int, value: &T) -> anyhow::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the value has the given length.
    check(unsafe { libc::setsockopt(fd, level, option, ptr::from_ref(value).cast(), length) })
        .context("set up a packet socket")?;
    Ok(())
}

/// Waits until a frame has come, but not longer than `limit`.
pub(crate) fn wait(sockets: &[InterfaceSocket; 2], limit: Duration) -> anyhow::Result<()> {
    let poll = |socket: &InterfaceSocket| libc::pollfd {
        fd: socket.0.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polls = [poll(&sockets[0]), poll(&sockets[1])];
    let limit = libc::timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
    // SAFETY: there are two structures, and they and the time live as long as the call.
    let result = unsafe { libc::ppoll(polls.as_mut_ptr(), 2, &limit, ptr::null()) };
    match check(result) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e.into()),
        _ => Ok(()),
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The number of an interface of the calling thread's network namespace.
pub(crate) fn index(interface: &str) -> anyhow::Result<u32> {
    let name = CString::new(interface).context("an interface's name")?;
    // SAFETY: the name ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    ensure!(index > 0, "no interface {interface}");
    Ok(index)
}
