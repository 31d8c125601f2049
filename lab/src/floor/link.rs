//! The socket and the ways to wait on it.

use super::args::FloorArgs;
use roadtrain_reactor::tuning;
use socket2::SockRef;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// A tuned connection that is waited on by sleeping, by spinning first, or by spinning only.
pub(crate) struct FloorLink {
    stream: TcpStream,
    spin: Duration,
    busy_poll: bool,
    /// System calls of every kind so far.
    pub(crate) syscalls: u64,
}

impl FloorLink {
    /// Tunes an established connection.
    pub(crate) fn new(args: &FloorArgs, stream: TcpStream) -> io::Result<Self> {
        tuning::tune_socket(&stream)?;
        let (socket, knobs) = (SockRef::from(&stream), &args.knobs);
        if knobs.sndbuf > 0 {
            socket.set_send_buffer_size(knobs.sndbuf)?;
        }
        if knobs.rcvbuf > 0 {
            socket.set_recv_buffer_size(knobs.rcvbuf)?;
        }
        if let Some(name) = &knobs.congestion {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        let spin = Duration::from_micros(args.spin_us);
        Ok(Self { stream, spin, busy_poll: args.busy_poll, syscalls: 0 })
    }

    /// Receives into `iov`, waiting for at least one byte; 0 at the end of the stream.
    ///
    /// # Safety
    /// Every segment is memory that may be written and that nothing else uses meanwhile.
    pub(crate) unsafe fn receive(&mut self, iov: &mut [libc::iovec]) -> io::Result<usize> {
        if self.busy_poll || !self.spin.is_zero() {
            let mut since = None;
            loop {
                // SAFETY: the caller's promise.
                match unsafe { self.receive_now(iov) } {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    done => return done,
                }
                if !self.busy_poll && since.get_or_insert_with(Instant::now).elapsed() >= self.spin
                {
                    break;
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.recvmsg(iov, 0) }
    }

    /// Receives into `iov` what is there; `WouldBlock` when that is nothing.
    ///
    /// # Safety
    /// As for [`FloorLink::receive`].
    pub(crate) unsafe fn receive_now(&mut self, iov: &mut [libc::iovec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { self.recvmsg(iov, libc::MSG_DONTWAIT) }
    }

    /// # Safety
    /// As for [`FloorLink::receive`].
    unsafe fn recvmsg(&mut self, iov: &mut [libc::iovec], flags: i32) -> io::Result<usize> {
        let fd = self.stream.as_raw_fd();
        self.syscalls += 1;
        let received = if let [one] = iov {
            // SAFETY: the caller's promise; one segment needs no message header.
            unsafe { libc::recv(fd, one.iov_base, one.iov_len, flags) }
        } else {
            let mut message = message(iov);
            // SAFETY: `message` describes `iov`; the caller's promise.
            unsafe { libc::recvmsg(fd, &mut message, flags) }
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// Sends what the socket takes right now; `WouldBlock` when that is nothing.
    ///
    /// # Safety
    /// Every segment is memory that may be read.
    pub(crate) unsafe fn send_now(&mut self, iov: &mut [libc::iovec]) -> io::Result<usize> {
        let message = message(iov);
        self.syscalls += 1;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: `message` describes `iov`; the caller's promise.
        let sent = unsafe { libc::sendmsg(self.stream.as_raw_fd(), &message, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Waits until the socket can be read or written.
    pub(crate) fn wait_either(&mut self) -> io::Result<()> {
        if self.busy_poll {
            return Ok(());
        }
        let events = libc::POLLIN | libc::POLLOUT;
        let mut poll = libc::pollfd { fd: self.stream.as_raw_fd(), events, revents: 0 };
        self.syscalls += 1;
        // SAFETY: one valid pollfd.
        if unsafe { libc::poll(&mut poll, 1, -1) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Ends both directions, which wakes the peer.
    pub(crate) fn close(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

fn message(iov: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: an all-zero msghdr is valid: no name, no segments, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = iov.as_mut_ptr();
    message.msg_iovlen = iov.len() as _;
    message
}
