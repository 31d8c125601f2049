//! Registry of the connections of every host, until nothing of them is left: it decides when a Connect may be accepted.
//!
//! A host that has lost its connections retries its commands over new ones, and then continues. So nothing of the old
//! connections may be executed once the host is back: neither commands in a store, nor received bytes that are still
//! unprocessed. A lost TCP connection is closed. For a lane over Ethernet the target probes the host when it connects a
//! new controller: a host that does not reply has lost the lane. A host that supports Cross-Controller Reset names the
//! controller that it has lost: then no doubt is left ([`HostConnections::has_leftovers_of`]).
//!
//! Commands in a store delay I/O queues only, of the same subsystem. Admin queues transfer no data, and on one of them
//! the host can request the end of its lost controller. Once that reset is complete, nothing delays its new controller:
//! commands in stores of other hosts with its name are not its own.
//!
//! Order of calls: [`HostConnections::admit`] for each Connect. The caller does the work that it returns, and retries the
//! Connect after [`HostConnections::settled`] returns true. [`HostConnections::enter`] when its queue is granted,
//! [`HostConnections::drain`] when the connection has ended with commands in a store, [`HostConnections::leave`] when nothing is
//! left.

use super::{ConnectedQueue, TargetControl, TargetEvent};
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics::{Connect, ConnectData, parse_nqn};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::zerocopy::FromBytes;
use std::collections::HashMap;
use std::sync::Arc;

/// Identifies a connection of a host.
#[derive(Clone, Debug)]
pub struct HostConnection {
    pub hostnqn: Arc<str>,
    number: u64,
}

#[derive(Debug)]
struct ConnectionEntry<C> {
    number: u64,
    subnqn: Arc<str>,
    /// Controller and queue.
    queue: (u16, u16),
    proof: LossEvidence<C>,
    /// True if the control plane closes the connection.
    closes: bool,
    /// True if the connection has ended with commands in a store.
    drains: bool,
}

/// Evidence that shows whether the host has lost the connection.
#[derive(Debug)]
enum LossEvidence<C> {
    /// The state of its socket.
    Connection(C),
    /// A probe of the host.
    Probe(LaneProbe),
    /// None needed: nothing is executed that affects its next connections.
    Harmless,
}

/// State of the probes of a lane.
#[derive(Clone, Copy, Debug)]
struct LaneProbe {
    /// Time of the last probe that the host has confirmed.
    confirmed: Instant,
    /// Time since which a probe is pending.
    pending_since: Option<Instant>,
}

/// Decision on a Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectAdmission<'a> {
    /// Accept the Connect.
    Accept,
    /// Close stale lanes of the host, which have not noticed their loss, without executing more; then retry. The host
    /// has dropped the I/O queues of these controllers ([`TargetControl::end_queues`]).
    CloseStale(&'a str, Vec<u16>),
    /// Probe the host for its lanes, then retry.
    Probe(&'a str),
    /// Retry once [`HostConnections::settled`] returns true.
    Wait,
    /// Refuse: commands of the host's lost connections to this subsystem are in a store, and the host has to retry.
    Busy(&'a str),
}

/// Leftovers of connections that a host has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StaleConnections {
    Nothing,
    /// Lanes that have not noticed their loss.
    Lanes,
    /// Lanes that are being closed.
    Closing,
    /// Lanes that the host may have lost: they have to be probed, or are being probed.
    Doubtful,
}

/// All connections of all hosts. `C` identifies a connection whose state can be checked. Those in the registry are
/// open: a connection leaves before it is closed.
#[derive(Debug)]
pub struct HostConnections<C> {
    hosts: HashMap<Arc<str>, Vec<ConnectionEntry<C>>>,
    last: u64,
    /// True if a Connect waits for its retry.
    is_waited_for: bool,
}

impl<C> Default for HostConnections<C> {
    fn default() -> Self {
        HostConnections { hosts: HashMap::new(), last: 0, is_waited_for: false }
    }
}

impl<C: Copy> HostConnections<C> {
    /// Decides on the Connect `sqe` with `data`, which arrived at `since`. `any_lost` is true if the host has closed
    /// one of its connections, though earlier data may be unread. `has_ended_lost` is true for a controller that has
    /// reset the one that its host had lost ([`TargetControl::has_ended_lost`]).
    pub fn admit<'a>(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: &'a [u8],
        since: Instant,
        any_lost: impl Fn(&[C]) -> bool,
        has_ended_lost: impl Fn(u16) -> bool,
    ) -> ConnectAdmission<'a> {
        let data = ConnectData::ref_from_bytes(data).ok();
        let hostnqn = data.and_then(|data| parse_nqn(&data.hostnqn)).unwrap_or_default();
        // A host that connects a further queue of a controller still has its lanes.
        let is_admin = Connect::parse(sqe).qid == 0;
        let probed_since = if is_admin { since } else { Instant::default() };
        let subnqn = data.and_then(|data| parse_nqn(&data.subnqn)).unwrap_or_default();
        let has_ended = data.is_some_and(|data| has_ended_lost(data.cntlid.get()));
        if !is_admin && !has_ended && self.has_commands(hostnqn, subnqn) {
            return ConnectAdmission::Busy(hostnqn);
        }
        let admission = match self.stale_connections(hostnqn, probed_since, &any_lost) {
            StaleConnections::Nothing => return ConnectAdmission::Accept,
            StaleConnections::Lanes if is_admin => {
                ConnectAdmission::CloseStale(hostnqn, self.lost(hostnqn, any_lost))
            }
            StaleConnections::Lanes => ConnectAdmission::CloseStale(hostnqn, Vec::new()),
            StaleConnections::Closing => ConnectAdmission::Wait,
            StaleConnections::Doubtful if self.begin_probe(now, hostnqn, since) => {
                ConnectAdmission::Probe(hostnqn)
            }
            StaleConnections::Doubtful => ConnectAdmission::Wait,
        };
        self.wait();
        admission
    }

    /// Notes that a Connect waits, for this or for the end of commands in a store: [`HostConnections::settled`] returns true
    /// next.
    pub fn wait(&mut self) {
        self.is_waited_for = true;
    }

    /// Returns true if waiting Connects have to be retried. To call after a change.
    #[must_use]
    pub fn settled(&mut self) -> bool {
        core::mem::take(&mut self.is_waited_for)
    }

    /// Adds a granted queue, whose host is authenticated or need not be. Without a `connection` of its own it is
    /// probed.
    pub fn enter(
        &mut self,
        now: Instant,
        connected: &ConnectedQueue,
        connection: Option<C>,
    ) -> HostConnection {
        let (hostnqn, queue) = (&connected.hostnqn, (connected.cntlid, connected.qid));
        self.last += 1;
        let proof = match (connection, connected.qid) {
            (Some(connection), _) => LossEvidence::Connection(connection),
            (None, 0) => LossEvidence::Harmless,
            (None, _) => LossEvidence::Probe(LaneProbe { confirmed: now, pending_since: None }),
        };
        let (number, subnqn) = (self.last, connected.subnqn.clone());
        let (closes, drains) = (false, false);
        let entry = ConnectionEntry { number, subnqn, queue, proof, closes, drains };
        self.hosts.entry(hostnqn.clone()).or_default().push(entry);
        HostConnection { hostnqn: hostnqn.clone(), number: self.last }
    }

    fn find(&mut self, presence: &HostConnection) -> Option<&mut ConnectionEntry<C>> {
        let mut present = self.hosts.get_mut(&presence.hostnqn).into_iter().flatten();
        present.find(|entry| entry.number == presence.number)
    }

    /// Returns the next event of `target`, and completes resets as leftovers vanish. From then on no Connect of the
    /// host is accepted before the closed connections have left, whatever they have received.
    pub fn next_event(&mut self, target: &mut TargetControl) -> Option<TargetEvent> {
        let event = target.poll_event().or_else(|| {
            target.settle_resets(|hostnqn, cntlid| self.has_leftovers_of(hostnqn, cntlid));
            target.poll_event()
        })?;
        if let TargetEvent::Close { cntlid, qid, .. } = event {
            self.close((cntlid, qid));
        }
        Some(event)
    }

    fn close(&mut self, queue: (u16, u16)) {
        for entry in self.hosts.values_mut().flatten() {
            entry.closes |= entry.queue == queue;
        }
    }

    /// True if the host's controller has leftovers that may still execute commands.
    #[must_use]
    pub fn has_leftovers_of(&self, hostnqn: &str, cntlid: u16) -> bool {
        let present = self.hosts.get(hostnqn);
        present.is_some_and(|present| present.iter().any(|entry| entry.queue.0 == cntlid))
    }

    /// True if a controller of any host with that identifier has leftovers: the identifier is not reused before.
    #[must_use]
    pub fn any_has_leftovers_of(&self, cntlid: u16) -> bool {
        self.hosts.values().flatten().any(|entry| entry.queue.0 == cntlid)
    }

    /// Records that the connection has ended with commands in a store.
    pub fn drain(&mut self, presence: &HostConnection) {
        if let Some(entry) = self.find(presence) {
            entry.drains = true;
        }
    }

    /// Removes a connection of which nothing is left.
    pub fn leave(&mut self, presence: &HostConnection) {
        if let Some(present) = self.hosts.get_mut(&presence.hostnqn) {
            present.retain(|entry| entry.number != presence.number);
            if present.is_empty() {
                self.hosts.remove(&presence.hostnqn);
            }
        }
    }

    /// Marks the host's lanes as being probed, except those confirmed since `since`. Returns true if there is any that
    /// was not being probed.
    fn begin_probe(&mut self, now: Instant, hostnqn: &str, since: Instant) -> bool {
        let mut has_new = false;
        for entry in self.hosts.get_mut(hostnqn).into_iter().flatten() {
            if let LossEvidence::Probe(probe) = &mut entry.proof
                && probe.confirmed < since
                && probe.pending_since.is_none()
            {
                probe.pending_since = Some(now);
                has_new = true;
            }
        }
        has_new
    }

    /// Records that the host has confirmed the lane, as of the time of the probe.
    pub fn answered(&mut self, presence: &HostConnection) {
        if let Some(entry) = self.find(presence)
            && let LossEvidence::Probe(probe) = &mut entry.proof
            && let Some(pending_since) = probe.pending_since.take()
        {
            probe.confirmed = pending_since;
        }
    }

    /// Returns the controllers of which the host has closed a connection. A host that loses one closes them all, and
    /// the target may not have noticed the others: the network can lose a reset.
    fn lost(&self, hostnqn: &str, any_lost: impl Fn(&[C]) -> bool) -> Vec<u16> {
        let present = self.hosts.get(hostnqn).into_iter().flatten();
        let lost = present.filter_map(|entry| match entry.proof {
            LossEvidence::Connection(connection) => {
                any_lost(&[connection]).then_some(entry.queue.0)
            }
            _ => None,
        });
        let mut lost: Vec<u16> = lost.collect();
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    /// True if commands of the host's lost connections to the subsystem are in a store.
    fn has_commands(&self, hostnqn: &str, subnqn: &str) -> bool {
        let mut present = self.hosts.get(hostnqn).into_iter().flatten();
        present.any(|entry| entry.drains && *entry.subnqn == *subnqn)
    }

    /// Returns the leftovers that may still execute commands, of connections that the host has lost; it connects since
    /// `since`.
    fn stale_connections(
        &self,
        hostnqn: &str,
        since: Instant,
        any_lost: impl Fn(&[C]) -> bool,
    ) -> StaleConnections {
        let present = self.hosts.get(hostnqn).into_iter().flatten();
        let present: Vec<&ConnectionEntry<C>> = present.filter(|entry| !entry.drains).collect();
        let connection = |entry: &&ConnectionEntry<C>| match entry.proof {
            LossEvidence::Connection(connection) => Some(connection),
            _ => None,
        };
        let is_doubtful = |entry: &&ConnectionEntry<C>| match entry.proof {
            LossEvidence::Probe(probe) => probe.confirmed < since,
            _ => false,
        };
        let connections: Vec<C> = present.iter().filter_map(connection).collect();
        match any_lost(&connections) {
            true => StaleConnections::Lanes,
            false if present.iter().any(|entry| entry.closes) => StaleConnections::Closing,
            false if present.iter().any(is_doubtful) => StaleConnections::Doubtful,
            false => StaleConnections::Nothing,
        }
    }

    /// Returns the number of connections with leftovers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.hosts.values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ControllerKind;
    use crate::connected::QueueClaim;
    use core::time::Duration;
    use roadtrain_proto::policy::Class;

    const NOW: Instant = Instant(1_000_000_000);
    const HOST: &str = "nqn.x:h";
    /// A controller of [`HOST`] that has reset the lost one.
    const ENDED: u16 = 9;

    fn second(n: u64) -> Instant {
        NOW + Duration::from_secs(n)
    }

    /// Returns a queue of [`HOST`].
    fn queue(cntlid: u16, qid: u16) -> ConnectedQueue {
        ConnectedQueue {
            cntlid,
            qid,
            entries: 2,
            sq_flow_control: false,
            class: Class::Normal,
            kind: ControllerKind::Io,
            keep_alive: Duration::ZERO,
            subnqn: "nqn.x:s".into(),
            hostnqn: HOST.into(),
            hostid: [1; 16],
            other_hostid: None,
            requirement: None,
            context: [0; 32],
            shared: Arc::default(),
            result: 0,
            claim: QueueClaim::default(),
        }
    }

    /// Returns the verdict for a Connect of `host`, with the connections that it has lost. "ended" and "elsewhere" are
    /// [`HOST`] with [`ENDED`], and at another subsystem.
    fn connect(
        presences: &mut HostConnections<u32>,
        host: &str,
        qid: u16,
        at: Instant,
        lost: &[u32],
    ) -> String {
        let sqe = Connect { recfmt: 0, qid, sqsize: 1, cattr: 0, kato_ms: 0 }.emit();
        let (host, cntlid, subsystem) = match host {
            "ended" => (HOST, ENDED, "nqn.x:s"),
            "elsewhere" => (HOST, 0, "nqn.x:t"),
            host => (host, 0, "nqn.x:s"),
        };
        let data = ConnectData::new([1; 16], cntlid, subsystem, host);
        let data = roadtrain_wire::zerocopy::IntoBytes::as_bytes(&data);
        let any_lost = |all: &[u32]| all.iter().any(|connection| lost.contains(connection));
        format!("{:?}", presences.admit(at, &sqe, data, at, any_lost, |cntlid| cntlid == ENDED))
    }

    #[test]
    fn lost_connections_are_closed_then_waited_for() {
        let mut presences = HostConnections::default();
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[]), "Accept");
        let presence = presences.enter(NOW, &queue(1, 1), Some(7));
        let stays = presences.enter(NOW, &queue(1, 2), Some(8));
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[]), "Accept");
        assert!(!presences.settled(), "no Connect waits");
        assert_eq!(
            connect(&mut presences, HOST, 0, NOW, &[7]),
            format!("CloseStale({HOST:?}, [1])")
        );
        assert!(presences.settled());
        // The host continues with a controller, perhaps the lost one.
        assert_eq!(
            connect(&mut presences, HOST, 3, NOW, &[7]),
            format!("CloseStale({HOST:?}, [])")
        );
        assert!(presences.settled());
        assert!(!presences.settled(), "once");
        assert_eq!(connect(&mut presences, "nqn.x:other", 0, NOW, &[7]), "Accept");
        presences.drain(&presence);
        assert_eq!(connect(&mut presences, HOST, 1, NOW, &[7]), format!("Busy({HOST:?})"));
        // A closed connection may have commands in a store forever.
        presences.close((1, 1));
        for (host, qid) in [(HOST, 0), ("elsewhere", 0), ("elsewhere", 1), ("ended", 1)] {
            assert_eq!(connect(&mut presences, host, qid, NOW, &[7]), "Accept", "{host} {qid}");
        }
        assert!(presences.has_leftovers_of(HOST, 1));
        presences.leave(&presence);
        assert_eq!(connect(&mut presences, HOST, 1, NOW, &[7]), "Accept");
        presences.leave(&stays);
        assert_eq!(presences.count(), 0);
    }

    /// A reactor may be slow to close connections, and execute more commands meanwhile.
    #[test]
    fn no_connect_is_accepted_before_closed_connections_have_left() {
        let mut presences = HostConnections::default();
        let closing = presences.enter(NOW, &queue(1, 1), Some(7));
        let other = presences.enter(NOW, &queue(2, 1), Some(8));
        presences.close((1, 2));
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[]), "Accept");
        presences.close((1, 1));
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[]), "Wait");
        assert!(presences.settled() && presences.has_leftovers_of(HOST, 1));
        assert!(
            !presences.has_leftovers_of(HOST, 3) && !presences.has_leftovers_of("nqn.x:other", 1)
        );
        assert!(presences.any_has_leftovers_of(1) && !presences.any_has_leftovers_of(3));
        presences.leave(&closing);
        assert!(!presences.has_leftovers_of(HOST, 1) && presences.has_leftovers_of(HOST, 2));
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[]), "Accept");
        presences.leave(&other);
        assert_eq!(presences.count(), 0);
    }

    #[test]
    fn a_host_that_does_not_reply_has_lost_its_lane() {
        let mut presences = HostConnections::<u32>::default();
        presences.enter(NOW, &queue(1, 0), None);
        let presence = presences.enter(NOW, &queue(1, 1), None);
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[]), "Accept");
        // A host that continues with its controller has its lanes.
        assert_eq!(connect(&mut presences, HOST, 2, second(1), &[]), "Accept");
        assert_eq!(connect(&mut presences, HOST, 0, second(1), &[]), format!("Probe({HOST:?})"));
        assert_eq!(connect(&mut presences, HOST, 0, second(1), &[]), "Wait");
        presences.answered(&presence);
        assert!(presences.settled());
        assert_eq!(connect(&mut presences, HOST, 0, second(1), &[]), "Accept");
        // The confirmation does not count for a later probe.
        assert_eq!(connect(&mut presences, HOST, 0, second(2), &[]), format!("Probe({HOST:?})"));
        presences.drain(&presence);
        assert_eq!(connect(&mut presences, HOST, 0, second(2), &[]), "Accept");
        assert_eq!(connect(&mut presences, HOST, 1, second(2), &[]), format!("Busy({HOST:?})"));
        presences.leave(&presence);
        assert_eq!(connect(&mut presences, HOST, 0, second(2), &[]), "Accept");
    }
}
