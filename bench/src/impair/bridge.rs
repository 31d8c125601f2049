//! Moves frames between two interfaces by this process.

use super::line::{Counts, Line};
use super::{Impairment, index};
use anyhow::Context;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

/// The kernel's notes on a frame whose checksum or segments it has put off; they pass with the frame.
const NOTES_BYTES: usize = 10;
/// With the notes: addresses and type are never damaged.
const KEPT_BYTES: usize = NOTES_BYTES + 14;
const FRAME_BYTES_MAX: usize = 68 << 10;
/// Frames taken from one side at a time.
const BATCH: usize = 64;
const BUFFER_BYTES: libc::c_int = 8 << 20;
/// How often somebody looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Both ways between two interfaces.
#[derive(Debug)]
pub(super) struct Bridge {
    sockets: [OwnedFd; 2],
    impairment: Impairment,
}

impl Bridge {
    /// Opens it, in the calling thread's network namespace.
    pub(super) fn new(one: &str, other: &str, impairment: Impairment) -> anyhow::Result<Self> {
        Ok(Self { sockets: [open(one)?, open(other)?], impairment })
    }

    /// Passes frames until `ended`; gives what has become of them, by the side they came from.
    pub(super) fn run(&self, ended: impl Fn() -> bool) -> anyhow::Result<[Counts; 2]> {
        let mut lines = [Line::new(self.impairment, 1), Line::new(self.impairment.back(), 2)];
        while !ended() {
            self.turn(&mut lines)?;
        }
        Ok(lines.map(|line| line.counts))
    }

    fn turn(&self, lines: &mut [Line; 2]) -> anyhow::Result<()> {
        let sockets = &self.sockets;
        let due = lines.iter().filter_map(Line::due).min();
        let now = Instant::now();
        wait(sockets, due.map_or(LOOK, |due| due.saturating_duration_since(now).min(LOOK)))?;
        let mut frame = [0; FRAME_BYTES_MAX];
        for side in 0..2 {
            for _ in 0..BATCH {
                let Some(length) = receive(&sockets[side], &mut frame)? else { break };
                lines[side].put(Instant::now(), &frame[..length], KEPT_BYTES);
            }
            let now = Instant::now();
            while let Some(frame) = lines[side].take(now) {
                send(&sockets[1 - side], &frame);
            }
        }
        Ok(())
    }
}

/// A socket that sees all that arrives at an interface, and sends there.
fn open(interface: &str) -> anyhow::Result<OwnedFd> {
    let index = index(interface)?;
    let (kind, protocol) =
        (libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, u16::to_be(3));
    // SAFETY: no pointers are involved.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) }).context("a packet socket")?;
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
    // SAFETY: the address is as long as is said.
    check(unsafe { libc::bind(fd, (&raw const address).cast(), length) })
        .with_context(|| format!("listen at {interface}"))?;
    Ok(socket)
}

fn set<T>(fd: RawFd, level: libc::c_int, option: libc::c_int, value: &T) -> anyhow::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is as long as is said.
    check(unsafe { libc::setsockopt(fd, level, option, ptr::from_ref(value).cast(), length) })
        .context("set up a packet socket")?;
    Ok(())
}

/// Waits until a frame has come, but not longer than `limit`.
fn wait(sockets: &[OwnedFd; 2], limit: Duration) -> anyhow::Result<()> {
    let poll = |socket: &OwnedFd| libc::pollfd {
        fd: socket.as_raw_fd(),
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

/// The next frame with its notes, if there is one.
fn receive(socket: &OwnedFd, frame: &mut [u8]) -> anyhow::Result<Option<usize>> {
    // SAFETY: the buffer is as long as is said.
    let length =
        unsafe { libc::recv(socket.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
    if length >= 0 {
        return Ok(Some(length as usize));
    }
    match io::Error::last_os_error() {
        // An interface that goes down says so once.
        e if e.raw_os_error() == Some(libc::ENETDOWN) => Ok(None),
        e if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        e => Err(e).context("receive a frame"),
    }
}

/// What cannot be sent is lost, as on any link.
fn send(socket: &OwnedFd, frame: &[u8]) {
    // SAFETY: the buffer is as long as is said.
    unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
