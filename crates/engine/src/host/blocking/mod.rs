//! A queue pair driven by blocking calls: connecting, the admin queue, discovery. Control plane only.

mod tcp;

use super::address::Address;
use super::link::{Link, LinkError};
use crate::clock;
use crate::platform::Route;
use roadtrain_proto::host::qpair::{Config, Data};
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::sqe::Sqe;
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};
use tcp::TcpWire;

/// A connection whose calls wait.
pub(crate) struct BlockingQpair {
    wire: Wire,
    /// Completions that nobody has taken yet: of the command that a call waits for, of asynchronous events.
    completed: Vec<(u16, Cqe)>,
    timeout: Duration,
}

/// What it goes over.
enum Wire {
    Tcp(TcpWire),
}

/// Calls the transport's.
macro_rules! each {
    ($wire:expr, $w:ident => $call:expr) => {
        match $wire {
            Wire::Tcp($w) => $call,
        }
    };
}

impl BlockingQpair {
    /// Connects and initialises the connection; no call waits longer than `timeout`.
    ///
    /// # Errors
    /// No connection, or a peer that does not speak the protocol.
    pub(crate) fn connect(
        address: &Address,
        config: Config,
        timeout: Duration,
    ) -> Result<Self, LinkError> {
        let wire = match address {
            Address::Tcp(address) => Wire::Tcp(TcpWire::connect(*address, config, timeout)?),
        };
        Ok(BlockingQpair { wire, completed: Vec::new(), timeout })
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
            if let Some(at) = self.completed.iter().position(|&(number, _)| number == slot) {
                return Ok(self.completed.swap_remove(at).1);
            }
            self.receive(deadline, Some(slot), input)?;
            self.flush(Some(slot), out)?; // data that the target has asked for
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
        if self.completed.is_empty() && each!(&self.wire, wire => wire.has_input())? {
            self.receive(Instant::now() + self.timeout, None, &mut [])?;
        }
        Ok(self.completed.pop())
    }

    /// Waits until something may have come here or at `other`, or time is up.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn wait(&mut self, other: RawFd, timeout: Duration) -> Result<(), LinkError> {
        each!(&mut self.wire, wire => wire.wait(other, timeout))
    }

    fn submit(&mut self, sqe: &Sqe, data: Data) -> Result<u16, LinkError> {
        let full = || io::Error::other("admin queue full");
        let (now, urgency) = (clock::now(), Urgency::Urgent);
        let slot = each!(&mut self.wire, wire => wire.qpair.submit(now, sqe, data, urgency));
        Ok(slot.ok_or_else(full)?)
    }

    /// Sends what waits; `data` is the command's in `slot`.
    fn flush(&mut self, slot: Option<u16>, data: &[u8]) -> Result<(), LinkError> {
        each!(&mut self.wire, wire => wire.flush(slot, data, self.timeout))
    }

    /// Waits until something comes and handles it; the data of `slot` goes to `input`.
    fn receive(
        &mut self,
        deadline: Instant,
        slot: Option<u16>,
        input: &mut [u8],
    ) -> Result<(), LinkError> {
        let completed = &mut self.completed;
        match each!(&mut self.wire, wire => wire.receive(deadline, slot, input, completed))? {
            true => Ok(()),
            false => {
                let text = format!("no answer within {:?}", self.timeout);
                Err(io::Error::new(io::ErrorKind::TimedOut, text).into())
            }
        }
    }

    /// The way it takes.
    #[must_use]
    pub(crate) fn route(&self) -> Route {
        each!(&self.wire, wire => wire.route())
    }

    /// Hands an idle connection over to a lane.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn into_link(
        self,
        in_capsule_bytes: u32,
        policy: PolicyConfig,
    ) -> Result<Link, LinkError> {
        match self.wire {
            Wire::Tcp(wire) => wire.into_link(in_capsule_bytes, policy),
        }
    }

    /// Ends abruptly: nothing sent before reaches the target's application any more.
    pub(crate) fn reset(self) {
        each!(self.wire, wire => wire.reset());
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

/// Waits until one of `polls` is ready; `false` when time is up.
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
