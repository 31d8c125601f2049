//! The connections of every host, until nothing of them is left: when a Connect may be answered.
//!
//! A host that has lost its connections tries its commands again over new ones, and then goes on. So nothing of the old
//! connections may be executed once the host is back: neither commands in a store, nor octets that were received but
//! not looked at. A TCP connection that is lost has hung up; for a lane over Ethernet the host is asked when it
//! connects a new controller, and one that does not answer has lost it. A host that knows Cross-Controller Reset names
//! the controller that it has lost: then no doubt is left ([`Presences::remains_of`]).
//!
//! Commands in a store hold up I/O queues only, of the same subsystem: admin queues move no data, and by one of them the
//! host can have its lost controller ended. Once that reset is complete, nothing holds up its new controller: what others
//! with its name have in stores is not its own.
//!
//! Order of calls: [`Presences::admit`] for each Connect. What it wants to be done first is done, and the Connect is
//! tried again after [`Presences::settled`] has said so. [`Presences::enter`] when its queue is granted,
//! [`Presences::drain`] when the connection is over with commands in a store, [`Presences::leave`] when nothing is left.

use super::{Connected, Target, TargetEvent};
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics::{Connect, ConnectData, parse_nqn};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::zerocopy::FromBytes;
use std::collections::HashMap;
use std::sync::Arc;

/// Names a connection of a host.
#[derive(Clone, Debug)]
pub struct Presence {
    pub hostnqn: Arc<str>,
    number: u64,
}

#[derive(Debug)]
struct Entry<C> {
    number: u64,
    subnqn: Arc<str>,
    /// Controller and queue.
    queue: (u16, u16),
    proof: Proof<C>,
    /// The control plane has it closed.
    closes: bool,
    /// The connection is over, but commands are in a store.
    drains: bool,
}

/// How it is known whether the host has lost the connection.
#[derive(Debug)]
enum Proof<C> {
    /// By its socket.
    Connection(C),
    /// By asking the host.
    Asked(Question),
    /// Nothing is executed that matters to its next connections.
    Harmless,
}

/// Whether the host still has a lane.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// It was there when it was asked then.
    proven: Instant,
    /// It is being asked since then.
    asked: Option<Instant>,
}

/// Whether a Connect may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Nothing stands against it.
    Go,
    /// Lanes of the host have not noticed that they are lost: end them without executing more, and try again then.
    /// The host has given up the I/O queues of these controllers ([`Target::end_queues`]).
    Sweep(&'a str, Vec<u16>),
    /// Ask the host for its lanes, then try again.
    Ask(&'a str),
    /// Try again when [`Presences::settled`] says so.
    Wait,
    /// Commands of the host's lost connections to this subsystem are in a store: the host is to try again.
    Busy(&'a str),
}

/// What is left of connections that a host has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remains {
    Nothing,
    /// Lanes that have not noticed yet.
    Lanes,
    /// Lanes that are being closed.
    Closing,
    /// Lanes that the host may have lost: it is to be asked, or is being asked.
    Doubtful,
}

/// All of them. `C` names a connection that can be looked at; those named here are open: a connection leaves before
/// it is closed.
#[derive(Debug)]
pub struct Presences<C> {
    hosts: HashMap<Arc<str>, Vec<Entry<C>>>,
    last: u64,
    /// Somebody waits to be tried again.
    is_waited_for: bool,
}

impl<C> Default for Presences<C> {
    fn default() -> Self {
        Presences { hosts: HashMap::new(), last: 0, is_waited_for: false }
    }
}

impl<C: Copy> Presences<C> {
    /// Whether the Connect `sqe` with `data`, which came at `since`, may be answered. `any_lost` says whether the host
    /// has ended one of its connections, though what it sent before may be unread; `has_ended_lost` whether a controller
    /// has had the one ended that its host had lost ([`Target::has_ended_lost`]).
    pub fn admit<'a>(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: &'a [u8],
        since: Instant,
        any_lost: impl Fn(&[C]) -> bool,
        has_ended_lost: impl Fn(u16) -> bool,
    ) -> Verdict<'a> {
        let data = ConnectData::ref_from_bytes(data).ok();
        let hostnqn = data.and_then(|data| parse_nqn(&data.hostnqn)).unwrap_or_default();
        // A host has its lanes when it goes on with a controller.
        let is_admin = Connect::parse(sqe).qid == 0;
        let asked_since = if is_admin { since } else { Instant::default() };
        let subnqn = data.and_then(|data| parse_nqn(&data.subnqn)).unwrap_or_default();
        let has_ended = data.is_some_and(|data| has_ended_lost(data.cntlid.get()));
        if !is_admin && !has_ended && self.has_commands(hostnqn, subnqn) {
            return Verdict::Busy(hostnqn);
        }
        let verdict = match self.remains(hostnqn, asked_since, &any_lost) {
            Remains::Nothing => return Verdict::Go,
            Remains::Lanes if is_admin => Verdict::Sweep(hostnqn, self.lost(hostnqn, any_lost)),
            Remains::Lanes => Verdict::Sweep(hostnqn, Vec::new()),
            Remains::Closing => Verdict::Wait,
            Remains::Doubtful if self.ask(now, hostnqn, since) => Verdict::Ask(hostnqn),
            Remains::Doubtful => Verdict::Wait,
        };
        self.wait();
        verdict
    }

    /// Somebody waits, for this or for the end of commands in a store: [`Presences::settled`] will say so.
    pub fn wait(&mut self) {
        self.is_waited_for = true;
    }

    /// After something has changed: whether those who wait are to try again.
    #[must_use]
    pub fn settled(&mut self) -> bool {
        core::mem::take(&mut self.is_waited_for)
    }

    /// A queue was granted: its host has proved who it is, or need not. Without a connection of its own the host is
    /// asked.
    pub fn enter(
        &mut self,
        now: Instant,
        connected: &Connected,
        connection: Option<C>,
    ) -> Presence {
        let (hostnqn, queue) = (&connected.hostnqn, (connected.cntlid, connected.qid));
        self.last += 1;
        let proof = match (connection, connected.qid) {
            (Some(connection), _) => Proof::Connection(connection),
            (None, 0) => Proof::Harmless,
            (None, _) => Proof::Asked(Question { proven: now, asked: None }),
        };
        let (number, subnqn) = (self.last, connected.subnqn.clone());
        let (closes, drains) = (false, false);
        let entry = Entry { number, subnqn, queue, proof, closes, drains };
        self.hosts.entry(hostnqn.clone()).or_default().push(entry);
        Presence { hostnqn: hostnqn.clone(), number: self.last }
    }

    fn find(&mut self, presence: &Presence) -> Option<&mut Entry<C>> {
        let mut present = self.hosts.get_mut(&presence.hostnqn).into_iter().flatten();
        present.find(|entry| entry.number == presence.number)
    }

    /// The next thing that `target` wants done, also as nothing is left of connections. From then on nobody is let in
    /// before the connections that it closes have gone, whatever they have received.
    pub fn next_event(&mut self, target: &mut Target) -> Option<TargetEvent> {
        let event = target.poll_event().or_else(|| {
            target.settle_resets(|hostnqn, cntlid| self.remains_of(hostnqn, cntlid));
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

    /// Whether anything is left of that host's controller that may still be executed.
    #[must_use]
    pub fn remains_of(&self, hostnqn: &str, cntlid: u16) -> bool {
        let present = self.hosts.get(hostnqn);
        present.is_some_and(|present| present.iter().any(|entry| entry.queue.0 == cntlid))
    }

    /// The same of whatever host's: its identifier is not another one's before nothing is left.
    #[must_use]
    pub fn remains_of_any(&self, cntlid: u16) -> bool {
        self.hosts.values().flatten().any(|entry| entry.queue.0 == cntlid)
    }

    /// The connection is over; commands are in a store.
    pub fn drain(&mut self, presence: &Presence) {
        if let Some(entry) = self.find(presence) {
            entry.drains = true;
        }
    }

    /// Nothing is left of it.
    pub fn leave(&mut self, presence: &Presence) {
        if let Some(present) = self.hosts.get_mut(&presence.hostnqn) {
            present.retain(|entry| entry.number != presence.number);
            if present.is_empty() {
                self.hosts.remove(&presence.hostnqn);
            }
        }
    }

    /// Asks the host for its lanes of which it has not said since then that it has them. Whether there are any that it
    /// is not being asked for.
    fn ask(&mut self, now: Instant, hostnqn: &str, since: Instant) -> bool {
        let mut has_new = false;
        for entry in self.hosts.get_mut(hostnqn).into_iter().flatten() {
            if let Proof::Asked(question) = &mut entry.proof
                && question.proven < since
                && question.asked.is_none()
            {
                question.asked = Some(now);
                has_new = true;
            }
        }
        has_new
    }

    /// The host has the lane, as it was asked.
    pub fn answered(&mut self, presence: &Presence) {
        if let Some(entry) = self.find(presence)
            && let Proof::Asked(question) = &mut entry.proof
            && let Some(asked) = question.asked.take()
        {
            question.proven = asked;
        }
    }

    /// Controllers of which the host has ended a connection. A host that loses one ends them all, and the target may not
    /// have heard of the others: the network can lose a reset.
    fn lost(&self, hostnqn: &str, any_lost: impl Fn(&[C]) -> bool) -> Vec<u16> {
        let present = self.hosts.get(hostnqn).into_iter().flatten();
        let lost = present.filter_map(|entry| match entry.proof {
            Proof::Connection(connection) => any_lost(&[connection]).then_some(entry.queue.0),
            _ => None,
        });
        let mut lost: Vec<u16> = lost.collect();
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    /// Whether commands of the host's lost connections to the subsystem are in a store.
    fn has_commands(&self, hostnqn: &str, subnqn: &str) -> bool {
        let mut present = self.hosts.get(hostnqn).into_iter().flatten();
        present.any(|entry| entry.drains && *entry.subnqn == *subnqn)
    }

    /// What is left of connections that the host, which connects since then, has lost, and that may execute more.
    fn remains(&self, hostnqn: &str, since: Instant, any_lost: impl Fn(&[C]) -> bool) -> Remains {
        let present = self.hosts.get(hostnqn).into_iter().flatten();
        let present: Vec<&Entry<C>> = present.filter(|entry| !entry.drains).collect();
        let connection = |entry: &&Entry<C>| match entry.proof {
            Proof::Connection(connection) => Some(connection),
            _ => None,
        };
        let is_doubtful = |entry: &&Entry<C>| match entry.proof {
            Proof::Asked(question) => question.proven < since,
            _ => false,
        };
        let connections: Vec<C> = present.iter().filter_map(connection).collect();
        match any_lost(&connections) {
            true => Remains::Lanes,
            false if present.iter().any(|entry| entry.closes) => Remains::Closing,
            false if present.iter().any(is_doubtful) => Remains::Doubtful,
            false => Remains::Nothing,
        }
    }

    /// Connections of which something is left.
    #[must_use]
    pub fn count(&self) -> usize {
        self.hosts.values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ControllerKind;
    use crate::connected::Claim;
    use core::time::Duration;
    use roadtrain_proto::policy::Class;

    const NOW: Instant = Instant(1_000_000_000);
    const HOST: &str = "nqn.x:h";
    /// A controller of [`HOST`] that has had the lost one ended.
    const ENDED: u16 = 9;

    fn second(n: u64) -> Instant {
        NOW + Duration::from_secs(n)
    }

    /// A queue of [`HOST`].
    fn queue(cntlid: u16, qid: u16) -> Connected {
        Connected {
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
            asked: None,
            context: [0; 32],
            shared: Arc::default(),
            result: 0,
            claim: Claim::default(),
        }
    }

    /// A Connect of `host`, with the connections that it has lost; "ended" and "elsewhere" are [`HOST`] with [`ENDED`], and at
    /// another subsystem.
    fn connect(
        presences: &mut Presences<u32>,
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
    fn lost_connections_are_swept_then_waited_for() {
        let mut presences = Presences::default();
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[]), "Go");
        let presence = presences.enter(NOW, &queue(1, 1), Some(7));
        let stays = presences.enter(NOW, &queue(1, 2), Some(8));
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[]), "Go");
        assert!(!presences.settled(), "nobody waits");
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[7]), format!("Sweep({HOST:?}, [1])"));
        assert!(presences.settled());
        // It goes on with a controller, perhaps that one.
        assert_eq!(connect(&mut presences, HOST, 3, NOW, &[7]), format!("Sweep({HOST:?}, [])"));
        assert!(presences.settled());
        assert!(!presences.settled(), "told once");
        assert_eq!(connect(&mut presences, "nqn.x:other", 0, NOW, &[7]), "Go");
        presences.drain(&presence);
        assert_eq!(connect(&mut presences, HOST, 1, NOW, &[7]), format!("Busy({HOST:?})"));
        // What is closed already may be in a store for ever.
        presences.close((1, 1));
        for (host, qid) in [(HOST, 0), ("elsewhere", 0), ("elsewhere", 1), ("ended", 1)] {
            assert_eq!(connect(&mut presences, host, qid, NOW, &[7]), "Go", "{host} {qid}");
        }
        assert!(presences.remains_of(HOST, 1));
        presences.leave(&presence);
        assert_eq!(connect(&mut presences, HOST, 1, NOW, &[7]), "Go");
        presences.leave(&stays);
        assert_eq!(presences.count(), 0);
    }

    /// A reactor may be slow to close what the control plane has given up, and execute more of it meanwhile.
    #[test]
    fn nobody_is_let_in_before_what_is_to_be_closed_has_gone() {
        let mut presences = Presences::default();
        let closing = presences.enter(NOW, &queue(1, 1), Some(7));
        let other = presences.enter(NOW, &queue(2, 1), Some(8));
        presences.close((1, 2));
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[]), "Go");
        presences.close((1, 1));
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[]), "Wait");
        assert!(presences.settled() && presences.remains_of(HOST, 1));
        assert!(!presences.remains_of(HOST, 3) && !presences.remains_of("nqn.x:other", 1));
        assert!(presences.remains_of_any(1) && !presences.remains_of_any(3));
        presences.leave(&closing);
        assert!(!presences.remains_of(HOST, 1) && presences.remains_of(HOST, 2));
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[]), "Go");
        presences.leave(&other);
        assert_eq!(presences.count(), 0);
    }

    #[test]
    fn who_does_not_answer_has_lost_its_lane() {
        let mut presences = Presences::<u32>::default();
        presences.enter(NOW, &queue(1, 0), None);
        let presence = presences.enter(NOW, &queue(1, 1), None);
        assert_eq!(connect(&mut presences, HOST, 0, NOW, &[]), "Go");
        // It goes on with its controller: it has its lanes.
        assert_eq!(connect(&mut presences, HOST, 2, second(1), &[]), "Go");
        assert_eq!(connect(&mut presences, HOST, 0, second(1), &[]), format!("Ask({HOST:?})"));
        assert_eq!(connect(&mut presences, HOST, 0, second(1), &[]), "Wait");
        presences.answered(&presence);
        assert!(presences.settled());
        assert_eq!(connect(&mut presences, HOST, 0, second(1), &[]), "Go");
        // That was no answer to a later question.
        assert_eq!(connect(&mut presences, HOST, 0, second(2), &[]), format!("Ask({HOST:?})"));
        presences.drain(&presence);
        assert_eq!(connect(&mut presences, HOST, 0, second(2), &[]), "Go");
        assert_eq!(connect(&mut presences, HOST, 1, second(2), &[]), format!("Busy({HOST:?})"));
        presences.leave(&presence);
        assert_eq!(connect(&mut presences, HOST, 0, second(2), &[]), "Go");
    }
}
