//! A target's connection: queue pair, received octets, the caravan under way, and the commands in execution.

use crate::execution::{Env, Execution, Namespace, Pool, Stores};
use crate::network::{Arrival, ConnId, End, Lost, Network};
use crate::plan::Plan;
use roadtrain_proto::manifest::Manifest;
use roadtrain_proto::target::execution::{Data, Payload};
use roadtrain_proto::target::presence::Presence;
use roadtrain_proto::target::qpair::{Qpair, RxEvent};
use roadtrain_proto::target::session::{Session, Settings};
use roadtrain_proto::target::stability::Mark;
use roadtrain_proto::target::{Connected, NamespaceTable, Target as Control};
use roadtrain_proto::time::Instant;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// A connection.
pub struct Lane {
    /// The queue pair.
    pub qpair: Qpair,
    /// What may be done.
    pub session: Session,
    /// Its commands.
    pub execution: Execution,
    /// Of an I/O queue: what it has written and nobody has flushed.
    pub mark: Option<Arc<Mark>>,
    /// Namespaces for its I/O commands.
    namespaces: HashMap<u32, Rc<Namespace>>,
    /// Received, and not looked at.
    input: Vec<u8>,
    /// Of that, what the queue pair is offered, from `at` on.
    offered: Vec<u8>,
    at: usize,
    /// The rest of the caravan that is being sent.
    outbox: Vec<u8>,
    placed: bool,
    caravan_parts: usize,
    /// With so many octets unsent nothing is received.
    unsent_max: usize,
}

impl Lane {
    /// A connection just accepted; with `placed` data goes straight into its place.
    pub fn new(plan: &Plan, placed: bool) -> Self {
        Lane {
            qpair: Qpair::new(plan.target),
            session: Session::new(Settings::default()),
            execution: Execution::default(),
            mark: None,
            namespaces: HashMap::new(),
            input: Vec::new(),
            offered: Vec::new(),
            at: 0,
            outbox: Vec::new(),
            placed,
            caravan_parts: plan.caravan_parts,
            unsent_max: plan.pool_bytes / 4,
        }
    }

    /// Connect has succeeded.
    pub fn connected(&mut self, connected: Connected, presence: Presence) {
        let Connected { qid, entries, sq_flow_control, class, .. } = connected;
        self.qpair.set_connected(qid, entries, sq_flow_control, class);
        self.session.connected(connected, presence);
    }

    /// The namespaces of its subsystem are others.
    pub fn refresh(&mut self, table: Option<&NamespaceTable>, stores: &Stores) {
        let namespace = |(nsid, geometry): (u32, &_)| {
            let (geometry, mark) = (*geometry, self.mark.clone().filter(|_| nsid == 1));
            let stability = stores.stability.clone();
            (nsid, Rc::new(Namespace { nsid, geometry, mark, stability }))
        };
        self.namespaces = table.iter().flat_map(|table| table.iter()).map(namespace).collect();
    }

    /// Its commands, and what they are executed with.
    pub fn parts<'a>(
        &'a mut self,
        now: Instant,
        conn: ConnId,
        stores: &'a mut Stores,
        control: &'a mut Control,
    ) -> (&'a mut Execution, Env<'a>) {
        let Lane { qpair, session, execution, namespaces, .. } = self;
        (execution, Env { now, conn, qpair, session, namespaces, stores, control })
    }

    /// Whether it takes what arrives: not while it waits for a buffer, or for its host to take answers.
    pub fn listens(&self) -> bool {
        let is_deaf = self.execution.unsent() >= self.unsent_max && !self.outbox.is_empty();
        !self.execution.is_stalled() && !is_deaf
    }

    /// Takes what has arrived; [`Lane::handle`] looks at it.
    pub fn receive(&mut self, arrival: Arrival) -> Result<(), Lost> {
        let Arrival::Octets(octets) = arrival else { return Err(Lost) };
        self.input.extend(octets);
        Ok(())
    }

    /// Handles what has arrived, as far as that is possible now, or until an admin command is to be executed
    /// (`Some`). `Err` when the connection is over.
    pub fn handle(
        &mut self,
        now: Instant,
        conn: ConnId,
        stores: &mut Stores,
        control: &mut Control,
    ) -> Result<Option<u16>, Lost> {
        while !self.execution.is_stalled() {
            let event = self.qpair.poll_rx(now, &self.offered, &mut self.at).map_err(|_| Lost)?;
            let Some(event) = event else {
                if self.input.is_empty() {
                    break;
                }
                self.offer();
                continue;
            };
            let (execution, mut env) = self.parts(now, conn, stores, control);
            let admin = match event {
                RxEvent::Initialized => {
                    self.session.initialized();
                    None
                }
                RxEvent::Command { slot, sqe, in_capsule_bytes } => {
                    let payload = match in_capsule_bytes {
                        0 => Payload::Asked,
                        bytes => Payload::Follows(bytes),
                    };
                    execution.command(&mut env, slot, &sqe, payload)
                }
                RxEvent::Data { slot, offset, start, length } => {
                    if let Data::Buffer(buffer) = self.execution.data_mut(slot) {
                        let data = &self.offered[start..start + length as usize];
                        buffer[offset as usize..][..data.len()].copy_from_slice(data);
                    }
                    None
                }
                RxEvent::SplitBlock { slot, offset } => {
                    execution.split_block(&mut env, slot, offset);
                    None
                }
                RxEvent::DataDone { slot, intact } => execution.data_done(&mut env, slot, intact),
            };
            if admin.is_some() {
                return Ok(admin);
            }
        }
        Ok(None)
    }

    /// Puts what comes next into its place, if it is placed and there is one, or before the queue pair.
    fn offer(&mut self) {
        let wanted = self.qpair.wanted().filter(|_| self.placed);
        if let Some((slot, offset, length)) = wanted
            && let Data::Buffer(buffer) = self.execution.data_mut(slot)
        {
            let length = self.input.len().min(length as usize);
            let data: Vec<u8> = self.input.drain(..length).collect();
            buffer[offset as usize..][..length].copy_from_slice(&data);
            return self.qpair.placed(&data);
        }
        // While placing, no more than a header at once, so that data is wanted.
        let length = if self.placed { self.input.len().min(24) } else { self.input.len() };
        self.offered.drain(..std::mem::take(&mut self.at));
        self.offered.extend(self.input.drain(..length));
    }

    /// Controller and queue.
    pub fn ids(&self) -> Option<(u16, u16)> {
        self.session.queue().map(|connected| (connected.cntlid, connected.qid))
    }

    /// The turn is over: sends what may be sent.
    pub fn end_turn(&mut self, now: Instant, conn: ConnId, network: &mut Network, pool: &mut Pool) {
        self.session.tell_traffic();
        self.qpair.batcher().expire(now);
        self.qpair.batcher().drained(now);
        loop {
            let sent = network.send(now, conn, End::Target, &self.outbox);
            self.outbox.drain(..sent);
            if !self.outbox.is_empty() {
                return;
            }
            self.qpair.sent(|slot| self.execution.release(slot, |buffer| pool.give(buffer)));
            let mut caravan = Manifest::with_room(self.caravan_parts);
            if !self.qpair.poll_tx(&mut caravan) {
                break;
            }
            self.outbox = caravan.octets(|slot| match self.execution.data(slot) {
                Data::Buffer(buffer) => buffer,
                _ => &[],
            });
        }
        assert!(!self.qpair.has_tx(), "released work is left behind");
        let batcher = self.qpair.batcher();
        let has_wake_up = batcher.deadline().is_some_and(|deadline| deadline > now);
        assert!(batcher.backlog().requests == 0 || has_wake_up, "held work without a wake-up");
    }
}
