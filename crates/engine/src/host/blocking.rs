//! A queue pair driven by blocking calls: connecting, the admin queue, discovery. Control plane only.

use super::lane::{Link, LinkError};
use crate::connection::Connection;
use crate::gather::{Gather, Sent};
use crate::platform::Route;
use crate::{clock, digest, tuning};
use roadtrain_proto::caravan::Caravan;
use roadtrain_proto::host::qpair::{Config, Data, Qpair, RxEvent};
use roadtrain_proto::policy::Urgency;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::sqe::Sqe;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

const RX_BYTES: usize = 64 << 10;

/// A connection whose calls wait.
pub(crate) struct BlockingQpair {
    socket: Socket,
    qpair: Qpair,
    gather: Gather,
    rx: Vec<u8>,
    filled: usize,
    /// Completions of commands that nobody waits for in a call: asynchronous events.
    events: Vec<(u16, Cqe)>,
    timeout: Duration,
}

struct Filler<'a> {
    gather: &'a mut Gather,
    slot: Option<u16>,
    data: &'a [u8],
}

impl Caravan for Filler<'_> {
    fn has_room(&self) -> bool {
        self.gather.has_room()
    }

    fn header(&mut self, length: usize) -> &mut [u8] {
        self.gather.header(length)
    }

    fn payload(&mut self, slot: u16, offset: u32, length: u32, digest: bool) {
        debug_assert_eq!(Some(slot), self.slot, "only the command waited for has data");
        let data = &self.data[offset as usize..][..length as usize];
        // SAFETY: `data` is borrowed for as long as the caravan is sent.
        unsafe { self.gather.payload(data.as_ptr(), data.len()) };
        if digest {
            self.gather.header(4).copy_from_slice(&digest::crc32c(data).to_le_bytes());
        }
    }
}

impl BlockingQpair {
    /// Connects the socket and initialises the NVMe/TCP connection; no call waits longer than `timeout`.
    ///
    /// # Errors
    /// No connection, or a peer that does not speak NVMe/TCP.
    pub(crate) fn connect(
        address: SocketAddr,
        config: Config,
        timeout: Duration,
    ) -> Result<Self, LinkError> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        tuning::tune_socket(&socket)?;
        socket.connect_timeout(&address.into(), timeout)?;
        socket.set_nonblocking(false)?;
        let mut connection = BlockingQpair {
            socket,
            qpair: Qpair::new(clock::now(), config),
            gather: Gather::default(),
            rx: vec![0; RX_BYTES],
            filled: 0,
            events: Vec::new(),
            timeout,
        };
        connection.flush(None, &[])?;
        let deadline = Instant::now() + timeout;
        while !connection.qpair.is_ready() {
            connection.receive(deadline, None, &mut [])?;
        }
        Ok(connection)
    }

    /// The queue pair.
    pub(crate) fn qpair(&mut self) -> &mut Qpair {
        &mut self.qpair
    }

    /// Runs a command: sends `out`, receives into `input`, waits for the completion.
    ///
    /// # Errors
    /// The connection's; a status that is an error is not one.
    pub(crate) fn command(
        &mut self,
        sqe: &Sqe,
        out: &[u8],
        input: &mut [u8],
    ) -> Result<Cqe, LinkError> {
        let data = match (out.len(), input.len()) {
            (0, 0) => Data::None,
            (0, length) => Data::In(length as u32),
            (length, _) => Data::Out(length as u32),
        };
        let slot = self.submit(sqe, data)?;
        self.flush(Some(slot), out)?;
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some(at) = self.events.iter().position(|&(number, _)| number == slot) {
                return Ok(self.events.swap_remove(at).1);
            }
            self.receive(deadline, Some(slot), input)?;
            self.flush(Some(slot), out)?; // H2CData, if an R2T came
        }
    }

    /// Sends a command without waiting for its completion: see [`BlockingQpair::next_event`].
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn post(&mut self, sqe: &Sqe) -> Result<u16, LinkError> {
        let slot = self.submit(sqe, Data::None)?;
        self.flush(None, &[])?;
        Ok(slot)
    }

    /// The next completion of a posted command, if one has come; does not wait.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn next_event(&mut self) -> Result<Option<(u16, Cqe)>, LinkError> {
        if self.events.is_empty() && wait_readable(&[self.fd()], Duration::ZERO)? {
            self.receive(Instant::now() + self.timeout, None, &mut [])?;
        }
        Ok(self.events.pop())
    }

    fn submit(&mut self, sqe: &Sqe, data: Data) -> Result<u16, LinkError> {
        let full = || io::Error::other("admin queue full");
        let slot = self.qpair.submit(clock::now(), sqe, data, Urgency::Urgent);
        Ok(slot.ok_or_else(full)?)
    }

    fn flush(&mut self, slot: Option<u16>, data: &[u8]) -> Result<(), LinkError> {
        self.qpair.batcher().drained(clock::now());
        while self.qpair.has_tx() {
            self.qpair.poll_tx(&mut Filler { gather: &mut self.gather, slot, data });
            let mut calls = 0;
            while self.gather.send(self.socket.as_raw_fd(), &mut calls)? == Sent::Blocked {
                wait_writable(self.socket.as_raw_fd(), self.timeout)?;
            }
            self.gather.clear();
        }
        Ok(())
    }

    /// Waits for octets and handles them; the data of `slot` goes to `input`.
    fn receive(
        &mut self,
        deadline: Instant,
        slot: Option<u16>,
        input: &mut [u8],
    ) -> Result<(), LinkError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !wait_readable(&[self.fd()], left)? {
            let text = format!("no answer within {:?}", self.timeout);
            return Err(io::Error::new(io::ErrorKind::TimedOut, text).into());
        }
        let got = (&self.socket).read(&mut self.rx[self.filled..])?;
        if got == 0 {
            return Err(LinkError::Closed);
        }
        self.filled += got;
        let mut at = 0;
        let received = &self.rx[..self.filled];
        while let Some(event) = self.qpair.poll_rx(clock::now(), received, &mut at)? {
            match event {
                RxEvent::Ready => {}
                RxEvent::Data { slot: number, offset, start, length } => {
                    let data = &received[start..start + length as usize];
                    if Some(number) == slot {
                        input[offset as usize..][..data.len()].copy_from_slice(data);
                    }
                }
                RxEvent::Complete { slot, cqe, .. } => self.events.push((slot, cqe)),
            }
        }
        self.rx.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }

    /// The socket, to be waited for.
    #[must_use]
    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The way it takes.
    #[must_use]
    pub(crate) fn route(&self) -> Route {
        Route::of(&self.socket)
    }

    /// Hands an idle connection over to a lane.
    pub(crate) fn into_link(self) -> Result<Link, LinkError> {
        self.socket.set_nonblocking(true)?;
        let mut connection = Connection::new(OwnedFd::from(self.socket));
        connection.keep(&self.rx[..self.filled]);
        Ok(Link { connection, qpair: self.qpair })
    }

    /// Closes abruptly: nothing sent before reaches the target's application any more.
    pub(crate) fn reset(self) {
        let _ = self.socket.set_linger(Some(Duration::ZERO));
    }
}

/// Waits until one of `fds` is readable; `false` when time is up.
///
/// # Errors
/// The system call's, except interruption, which counts as time being up.
pub(crate) fn wait_readable(fds: &[RawFd], timeout: Duration) -> io::Result<bool> {
    let mut polls: Vec<libc::pollfd> =
        fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    poll(&mut polls, timeout)
}

fn wait_writable(fd: RawFd, timeout: Duration) -> io::Result<()> {
    let mut polls = [libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }];
    match poll(&mut polls, timeout)? {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::TimedOut, "the target does not take data")),
    }
}

fn poll(polls: &mut [libc::pollfd], timeout: Duration) -> io::Result<bool> {
    let ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: `polls` is a valid array of that length.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, ms) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted => Ok(false),
            _ => Err(error),
        };
    }
    Ok(ready > 0)
}
