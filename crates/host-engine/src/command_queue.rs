//! Queue pair whose commands run one by one, by blocking calls: the admin queue, and queues that are being connected.
//! It uses a [`QpairLink`], as a lane of a reactor does.

mod pending;
#[cfg(test)]
mod tests;

use super::ether::{FoundPath, HostFrame, Ports, Survey};
use super::link::{LaneShared, LinkError, QpairLink};
use super::stopping;
use pending::PendingCommands;
use roadtrain_ether_proto::fence::Fence;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_proto::security::FrameSecret;
use roadtrain_reactor::connection::RxBuffer;
use roadtrain_system::clock;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::sqe::Sqe;
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Bytes received at once.
const RX_BYTES: usize = 64 << 10;
/// Completions handled before more is received.
const BATCH: usize = 64;
/// Maximum receives of a turn, so that a peer that sends without end does not block it.
const RECEIVES_MAX: usize = 16;
/// Maximum frames taken from a port at once.
const FRAMES: usize = 64;

/// Connected queue pair.
pub(crate) struct CommandQueue {
    /// Connection; `None` once handed over to a lane.
    link: Option<QpairLink>,
    commands: PendingCommands,
    shared: LaneShared,
    rx: RxBuffer,
    /// True if the last turn has left data to receive.
    has_more: bool,
    /// Reason for the end of the connection, reported after the completions that came before.
    ended: Option<LinkError>,
    timeout: Duration,
}

impl CommandQueue {
    /// Creates the queue of a new connection with its `ports`, if it has any. No call waits longer than `timeout`.
    ///
    /// # Errors
    /// The system has no memory.
    pub(super) fn new(link: QpairLink, ports: Ports, timeout: Duration) -> io::Result<Self> {
        Ok(CommandQueue {
            link: Some(link),
            commands: PendingCommands::default(),
            shared: LaneShared::new(ports, Default::default(), Default::default()),
            rx: RxBuffer::small(RX_BYTES)?,
            has_more: false,
            ended: None,
            timeout,
        })
    }

    /// Waits until commands may be sent, for at most `within`.
    ///
    /// # Errors
    /// The connection fails.
    pub(super) fn await_ready(&mut self, within: Duration) -> Result<(), LinkError> {
        let deadline = Instant::now() + within;
        loop {
            self.turn()?;
            if self.link.as_ref().is_some_and(QpairLink::is_ready) {
                return Ok(());
            }
            if !self.sleep_until(deadline)? {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
    }

    /// Returns its socket, if it has one of its own.
    pub(crate) fn fd(&self) -> Option<RawFd> {
        self.link.as_ref().and_then(QpairLink::fd)
    }

    /// Returns the maximum bytes of a command's data, in whole pages.
    pub(crate) fn data_bytes_max(&self) -> u32 {
        self.link.as_ref().map_or(0, QpairLink::data_bytes_max)
    }

    /// Returns the reply timeout.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sets the reply timeout.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    // ---- Commands ----

    /// Runs a command: sends `out`, waits for the completion and for `bytes_in` bytes of data.
    ///
    /// # Errors
    /// The connection fails; an error status is not an error here.
    pub(crate) fn command(
        &mut self,
        sqe: &Sqe,
        out: &[u8],
        bytes_in: u32,
    ) -> Result<(Cqe, Vec<u8>), LinkError> {
        let slot = self.submit(sqe, out, bytes_in)?;
        let deadline = Instant::now() + self.timeout;
        loop {
            let turned = self.turn();
            if let Some(completed) = self.commands.take(slot) {
                self.ended = turned.err();
                return Ok((completed.cqe, completed.input));
            }
            turned?;
            if !self.sleep_until(deadline)? {
                let text = format!("no answer within {} s", self.timeout.as_secs_f64());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text).into());
            }
        }
    }

    /// Sends a command without waiting for its completion: see [`CommandQueue::next_event`].
    ///
    /// # Errors
    /// The connection fails.
    pub(crate) fn post(&mut self, sqe: &Sqe) -> Result<u16, LinkError> {
        let slot = self.submit(sqe, &[], 0)?;
        self.turn()?;
        Ok(slot)
    }

    /// Returns the next completion of a posted command, if there is one; does not wait.
    ///
    /// # Errors
    /// The connection fails.
    pub(crate) fn next_event(&mut self) -> Result<Option<(u16, Cqe)>, LinkError> {
        let turned = self.turn();
        if let Some(completed) = self.commands.take_first() {
            self.ended = turned.err();
            return Ok(Some((completed.slot, completed.cqe)));
        }
        turned.map(|()| None)
    }

    /// Waits until there is a completion or a change of links, `other` is readable, or the timeout passes.
    ///
    /// # Errors
    /// The connection fails.
    pub(crate) fn wait(&mut self, other: RawFd, timeout: Duration) -> Result<(), LinkError> {
        let end = Instant::now() + timeout;
        loop {
            let turned = self.turn();
            if self.commands.has_completed() {
                self.ended = turned.err();
                return Ok(());
            }
            turned?;
            let left = stopping::limit(end.saturating_duration_since(Instant::now()));
            if self.link.as_ref().is_some_and(QpairLink::has_news) || left.is_zero() {
                return Ok(());
            }
            if self.sleep(Some(other), left)? {
                return Ok(());
            }
        }
    }

    fn submit(&mut self, sqe: &Sqe, out: &[u8], bytes_in: u32) -> Result<u16, LinkError> {
        let data = match (out.len(), bytes_in) {
            (0, 0) => CommandTransfer::None,
            (0, bytes) => CommandTransfer::In(bytes),
            (bytes, _) => CommandTransfer::Out(bytes as u32),
        };
        let link = self.link.as_mut().ok_or(LinkError::Closed)?;
        let slot = link.submit(clock::now(), sqe, data, Urgency::Urgent);
        let slot = slot.ok_or_else(|| io::Error::other("admin queue full"))?;
        self.commands.begin(slot, out.to_vec(), vec![0; bytes_in as usize]);
        Ok(slot)
    }

    // ---- Turns ----

    /// Processes received data and sends queued data, including a H2CTermReq to a peer that violates the protocol.
    fn turn(&mut self) -> Result<(), LinkError> {
        if let Some(error) = self.ended.take() {
            return Err(error);
        }
        self.shared.now = clock::now();
        let received = self.receive();
        let sent = self.send();
        received.and(sent)
    }

    fn receive(&mut self) -> Result<(), LinkError> {
        self.receive_frames();
        let CommandQueue { link: Some(link), commands, shared, rx, has_more, .. } = self else {
            return Err(LinkError::Closed);
        };
        *has_more = false;
        for _ in 0..RECEIVES_MAX {
            let (received, mut rest) = link.receive(commands, rx, RX_BYTES)?;
            while let Some(bytes) = rest {
                rest = link.parse(commands, shared, bytes, BATCH)?;
            }
            if !received.any {
                return Ok(());
            }
        }
        *has_more = true;
        Ok(())
    }

    fn receive_frames(&mut self) {
        let CommandQueue { link: Some(link), commands, shared, .. } = self else { return };
        let LaneShared { ports, now, completions, recorder, .. } = shared;
        let mut deliver = |received: &HostFrame<'_>| {
            link.receive_frame(*now, received, commands, completions, recorder);
        };
        for port in 0..ports.len() {
            let full = |_: &usize| ports.receive(port, FRAMES, &mut deliver) == FRAMES;
            (0..RECEIVES_MAX).take_while(full).for_each(drop);
        }
    }

    fn send(&mut self) -> Result<(), LinkError> {
        let CommandQueue { link: Some(link), commands, shared, .. } = self else {
            return Err(LinkError::Closed);
        };
        link.resume()?;
        link.check_carriers(shared);
        let ended = link.end_turn(shared);
        let flushed = link.flush(commands, shared);
        shared.ports.flush();
        if !link.is_blocked() {
            commands.forget_sent();
        }
        ended.and(flushed)
    }

    /// Waits for an event. False if the deadline has passed.
    fn sleep_until(&mut self, deadline: Instant) -> io::Result<bool> {
        let left = stopping::limit(deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(false);
        }
        self.sleep(None, left)?;
        Ok(true)
    }

    /// Waits until the connection or `other` is readable, or a timer of the link is due. True if `other` is readable.
    fn sleep(&mut self, other: Option<RawFd>, timeout: Duration) -> io::Result<bool> {
        let Some(link) = &mut self.link else { return Ok(false) };
        let due = link.deadline().map(|at| at.since(clock::now()));
        let wait = due.map_or(timeout, |due| due.min(timeout));
        let wait = if self.has_more { Duration::ZERO } else { wait };
        let Some(fd) = link.fd() else { return self.shared.ports.wait(other, wait) };
        let blocked = if link.is_blocked() { libc::POLLOUT } else { 0 };
        let watch = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut polls = vec![watch(fd, libc::POLLIN | blocked)];
        polls.extend(other.map(|fd| watch(fd, libc::POLLIN)));
        stopping::poll(&mut polls, wait)?;
        Ok(polls.get(1).is_some_and(|poll| poll.revents != 0))
    }

    // ---- Ethernet ----

    /// Takes the changes of the target's addresses and of links to them.
    pub(crate) fn take_survey(&mut self) -> Option<Survey> {
        self.link.as_mut()?.take_survey()
    }

    /// Adds a path to the target, if the queue has no such path.
    pub(crate) fn offer(&mut self, found: &FoundPath) {
        if let Some(link) = &mut self.link {
            link.offer(clock::now(), found);
        }
    }

    /// Seals its frames from now on, and drops frames that are not sealed.
    ///
    /// # Errors
    /// The transport has no frames, or the cipher fails.
    pub(crate) fn seal(&mut self, secret: &FrameSecret) -> Result<(), LinkError> {
        self.link.as_mut().ok_or(LinkError::Closed)?.seal(secret)
    }

    // ---- The end ----

    /// Hands an idle connection over to a lane. No data may be in the send buffer, as this queue owns it.
    ///
    /// # Errors
    /// The connection is gone, or its commands completed before they were sent.
    pub(crate) fn into_link(
        mut self,
        in_capsule_bytes: u32,
        policy: PolicyConfig,
    ) -> Result<QpairLink, LinkError> {
        if self.link.as_ref().is_some_and(QpairLink::is_blocked) {
            return Err(LinkError::Nonsense("answers to commands that it has not received"));
        }
        let mut link = self.link.take().ok_or(LinkError::Closed)?;
        link.begin(in_capsule_bytes, policy);
        Ok(link)
    }

    /// Ends the connection abruptly: no data sent before reaches the target's application any more, or the `fence`
    /// ensures it.
    pub(crate) fn reset(self, fence: &mut Fence) {
        self.link.iter().filter_map(QpairLink::earlier).for_each(|lane| fence.add(lane));
    }

    /// Closes the connection normally, once all commands have completed.
    pub(crate) fn close(mut self) {
        if let Some(link) = &mut self.link {
            link.close();
        }
    }
}

impl Drop for CommandQueue {
    fn drop(&mut self) {
        if let Some(mut link) = self.link.take() {
            self.shared.now = clock::now();
            link.end(&mut self.shared);
        }
    }
}
