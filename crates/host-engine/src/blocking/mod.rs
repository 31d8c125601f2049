//! A queue pair driven by blocking calls: connecting, the admin queue, discovery. Control plane only.

mod ether;
mod near;
mod secure;
mod tcp;

use super::address::Address;
use super::config::{HostConfig, OfferedPsk};
use super::ether::{Found, Survey, Whereabouts};
use super::link::{Link, LinkError};
use super::name::TargetName;
use super::race::first_of;
use super::stopping::{poll, poll_calmly};
use roadtrain_ether_proto::fence::Fence;
use roadtrain_host_proto::qpair::{Config, Data};
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_proto::security::{FrameSecret, TlsPsk};
use roadtrain_proto::time::TimeLimit;
use roadtrain_system::clock;
use roadtrain_system::platform::Route;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::sqe::Sqe;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};
use tcp::TcpWire;
use tracing::debug;

/// Longest wait for a second handshake, where the first one has taken all the time.
const CONNECT_TIME_MIN: Duration = Duration::from_millis(100);

/// Completions that nobody has taken yet, with their slots.
type Completed = Vec<(u16, Cqe)>;

/// A connection whose calls wait.
pub(crate) struct BlockingQpair {
    pub(super) wire: Box<dyn Wire>,
    /// Of the command that a call waits for, of asynchronous events.
    completed: Completed,
    timeout: Duration,
}

/// What it goes over. What a transport has nothing of is left out.
pub(super) trait Wire: Send {
    /// One more connection to where it leads, for lane `number`.
    fn beside(
        &self,
        config: &HostConfig,
        entries: u16,
        number: u16,
    ) -> Result<Box<dyn Wire>, LinkError>;
    fn submit(&mut self, sqe: &Sqe, data: Data) -> Option<u16>;
    /// Sends what waits; `data` is the command's in `slot`.
    fn flush(&mut self, slot: Option<u16>, data: &[u8], timeout: Duration)
    -> Result<(), LinkError>;
    /// Handles what is there, or says that a receive would not wait.
    fn has_input(&mut self, completed: &mut Completed) -> Result<bool, LinkError>;
    /// Waits until something comes and handles it; the data of `slot` goes to `input`. `false`: nothing has come in
    /// time.
    fn receive(
        &mut self,
        deadline: Instant,
        slot: Option<u16>,
        input: &mut [u8],
        completed: &mut Completed,
    ) -> Result<bool, LinkError>;
    /// Waits until something may have come here or at `other`, or time is up.
    fn wait(
        &mut self,
        other: RawFd,
        timeout: Duration,
        completed: &mut Completed,
    ) -> Result<(), LinkError>;
    /// The way it takes.
    fn route(&self) -> Route;
    /// Hands an idle connection over to a lane.
    fn into_link(
        self: Box<Self>,
        in_capsule_bytes: u32,
        policy: PolicyConfig,
    ) -> Result<Link, LinkError>;

    /// Most octets of a command's data, in whole pages.
    fn data_bytes_max(&self) -> u32 {
        u32::MAX
    }

    /// Which target it leads to, if there may be more links to it.
    fn whereabouts(&self, _config: &HostConfig) -> Option<Whereabouts> {
        None
    }

    /// What has become of the target's addresses and of links to them, since it was last asked.
    fn take_survey(&mut self) -> Option<Survey> {
        None
    }

    /// A path to that target was found.
    fn offer(&mut self, _found: &Found) {}

    /// From now on its frames are sealed, and others are dropped.
    fn seal(&mut self, _secret: &FrameSecret) -> Result<(), LinkError> {
        Err(LinkError::Closed) // there are none
    }

    /// The interface by which the target was reached, if it has a link-local address; else 0.
    fn scope(&self) -> u32 {
        0
    }

    /// Ends abruptly: nothing sent before reaches the target's application any more, or the `fence`
    /// will see to it.
    fn reset(self: Box<Self>, _fence: &mut Fence) {} // a socket does it when it is closed

    /// Ends in order, when everything has been answered.
    fn close(self: Box<Self>) {}
}

impl BlockingQpair {
    /// Connects the admin queue, with the PSK that was made for it, if there is one; no call waits longer than
    /// [`HostConfig::timeout`]. Before, the `fence` ends earlier lanes.
    ///
    /// # Errors
    /// No connection, or a peer that does not speak the protocol.
    pub(crate) fn connect_admin(
        config: &HostConfig,
        entries: u16,
        psk: Option<&TlsPsk>,
        fence: &mut Fence,
    ) -> Result<Self, LinkError> {
        let psk = config.psk(psk);
        let wire: Box<dyn Wire> = match &config.address {
            Address::Tcp(address) => {
                Box::new(tcp(*address, config, entries, (config.timeout, None), psk)?)
            }
            Address::Name(name) => Box::new(tcp_by_name(name, config, entries, psk)?),
            Address::Ether(address) => address.connect(config, entries, fence)?,
        };
        Ok(BlockingQpair { wire, completed: Vec::new(), timeout: config.timeout })
    }

    /// Connects the queue pair of lane `number` (over all reactors) to the same target.
    ///
    /// # Errors
    /// As [`BlockingQpair::connect_admin`].
    pub(crate) fn connect_lane(
        &self,
        config: &HostConfig,
        entries: u16,
        number: u16,
    ) -> Result<Self, LinkError> {
        let wire = self.wire.beside(config, entries, number)?;
        Ok(BlockingQpair { wire, completed: Vec::new(), timeout: config.timeout })
    }

    /// The interface by which the target was reached, if it has a link-local address; else 0.
    pub(crate) fn scope(&self) -> u32 {
        self.wire.scope()
    }

    /// Longest wait for an answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sets it from now on.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
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
        self.wire.flush(Some(slot), out, self.timeout)?;
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some(at) = self.completed.iter().position(|&(number, _)| number == slot) {
                return Ok(self.completed.swap_remove(at).1);
            }
            self.receive(deadline, Some(slot), input)?;
            self.wire.flush(Some(slot), out, self.timeout)?; // data that the target has asked for
        }
    }

    /// Sends a command without waiting for its completion: see [`BlockingQpair::next_event`].
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn post(&mut self, sqe: &Sqe) -> Result<u16, LinkError> {
        let slot = self.submit(sqe, Data::None)?;
        self.wire.flush(None, &[], self.timeout)?;
        Ok(slot)
    }

    /// The next completion of a posted command, if one has come; does not wait.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn next_event(&mut self) -> Result<Option<(u16, Cqe)>, LinkError> {
        if self.wire.has_input(&mut self.completed)? {
            self.receive(Instant::now() + self.timeout, None, &mut [])?;
        }
        Ok(self.completed.pop())
    }

    /// Waits until something may have come here or at `other`, or time is up.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn wait(&mut self, other: RawFd, timeout: Duration) -> Result<(), LinkError> {
        self.wire.wait(other, timeout, &mut self.completed)
    }

    fn submit(&mut self, sqe: &Sqe, data: Data) -> Result<u16, LinkError> {
        let full = || io::Error::other("admin queue full");
        Ok(self.wire.submit(sqe, data).ok_or_else(full)?)
    }

    fn receive(
        &mut self,
        deadline: Instant,
        slot: Option<u16>,
        input: &mut [u8],
    ) -> Result<(), LinkError> {
        if self.wire.receive(deadline, slot, input, &mut self.completed)? {
            return Ok(());
        }
        let text = format!("no answer within {:?}", self.timeout);
        Err(io::Error::new(io::ErrorKind::TimedOut, text).into())
    }
}

/// The first address of a name that answers. One that is silent keeps the others waiting for a moment only.
fn tcp_by_name(
    name: &TargetName,
    config: &HostConfig,
    entries: u16,
    psk: Option<OfferedPsk>,
) -> Result<TcpWire, LinkError> {
    let addresses = name.addresses(config.timeout)?;
    let connect = |address: &SocketAddr| {
        let wire = tcp(*address, config, entries, (config.timeout, None), psk.clone());
        wire.map_err(|error| format!("{address}: {error}"))
    };
    match first_of(&addresses, connect) {
        Ok((at, wire)) => {
            name.connected(addresses[at]);
            Ok(wire)
        }
        Err(failures) => Err(LinkError::Nowhere(failures.join("; "))),
    }
}

/// A connection whose packets are processed on `core`, if that can be had. A target that does not know the identity of
/// its PSK may know the same key by the other one.
fn tcp(
    address: SocketAddr,
    config: &HostConfig,
    entries: u16,
    (timeout, core): (Duration, Option<usize>),
    psk: Option<OfferedPsk>,
) -> Result<TcpWire, LinkError> {
    let begun = Instant::now();
    let qpair = Config {
        digests: config.digests,
        queue_entries: entries,
        in_capsule_bytes: 0,
        policy: PolicyConfig::none(),
    };
    let (psk, other) = match psk {
        Some(OfferedPsk { psk, other, blocks_max }) => {
            let only = |psk| OfferedPsk { psk, other: None, blocks_max };
            (Some(only(psk)), other.map(only))
        }
        None => (None, None),
    };
    let wire = match (TcpWire::connect(address, qpair, (timeout, core), psk), other) {
        (Err(error), Some(other)) if error.may_know_another_identity() => {
            let left = timeout.saturating_sub(begun.elapsed()).max(CONNECT_TIME_MIN);
            debug!(%address, %error, identity = other.psk.identity, "TLS: another identity is offered");
            TcpWire::connect(address, qpair, (left, core), Some(other))?
        }
        (wire, _) => wire?,
    };
    wire.watch_peer(config.io_timeout)?;
    Ok(wire)
}

/// Waits for the target, by `wait`, which takes of the limit what it lasts; what we do meanwhile takes nothing.
fn waiting<T>(limit: &mut TimeLimit, wait: impl FnOnce(Duration) -> T) -> T {
    let now = clock::now();
    limit.begin(now);
    let waited = wait(limit.left(now));
    limit.end(clock::now());
    waited
}

/// Waits until one of `fds` is readable; `false` when time is up, or the controller is to end (`stopping`).
///
/// # Errors
/// The system call's, except interruption, which counts as time being up.
pub(crate) fn wait_readable(fds: &[RawFd], timeout: Duration) -> io::Result<bool> {
    let mut polls: Vec<libc::pollfd> =
        fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    poll(&mut polls, timeout)
}

/// The same, and nothing shortens it.
///
/// # Errors
/// As [`wait_readable`].
pub(crate) fn wait_calmly(fd: RawFd, timeout: Duration) -> io::Result<bool> {
    poll_calmly(&mut [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }], timeout)
}

/// Waits until `fd` can be written to.
fn wait_writable(fd: RawFd, timeout: Duration) -> io::Result<()> {
    let mut polls = [libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }];
    match poll(&mut polls, timeout)? {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::TimedOut, "the target does not take data")),
    }
}
