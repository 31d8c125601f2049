//! A target's connection: queue pair, received octets, the caravan under way, and the commands' data.

use crate::network::{Arrival, ConnId, End, Lost, Network};
use crate::plan::Plan;
use roadtrain_proto::manifest::Manifest;
use roadtrain_proto::target::io::IoCommand;
use roadtrain_proto::target::presence::Presence;
use roadtrain_proto::target::qpair::{Qpair, RxEvent};
use roadtrain_proto::target::session::{Request, Session, Settings};
use roadtrain_proto::target::stability::Mark;
use roadtrain_proto::target::{Connected, NamespaceTable};
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::sync::Arc;

/// A command with all its data.
pub struct Command {
    /// Its slot.
    pub slot: u16,
    /// An I/O command, or why it cannot be one; `None` on the admin queue and for fabrics commands.
    pub io: Option<Result<IoCommand, Status>>,
}

struct Slot {
    sqe: Sqe,
    data: Vec<u8>,
    io: Option<Result<IoCommand, Status>>,
}

/// A connection.
pub struct Lane {
    /// The queue pair.
    pub qpair: Qpair,
    /// What may be done.
    pub session: Session,
    /// Of an I/O queue: what it has written and nobody has flushed.
    pub mark: Option<Arc<Mark>>,
    /// Namespaces for its I/O commands.
    pub table: Arc<NamespaceTable>,
    inbox: Vec<u8>,
    /// The rest of the caravan that is being sent.
    outbox: Vec<u8>,
    slots: Vec<Option<Slot>>,
    placed: bool,
    caravan_parts: usize,
}

impl Lane {
    /// A connection just accepted; with `placed` data goes straight into its place.
    pub fn new(plan: &Plan, placed: bool) -> Self {
        Lane {
            qpair: Qpair::new(plan.target),
            session: Session::new(Settings::default()),
            mark: None,
            table: Arc::default(),
            inbox: Vec::new(),
            outbox: Vec::new(),
            slots: Vec::new(),
            placed,
            caravan_parts: plan.caravan_parts,
        }
    }

    /// Connect has succeeded.
    pub fn connected(&mut self, connected: Connected, presence: Presence) {
        let Connected { qid, entries, sq_flow_control, class, .. } = connected;
        self.qpair.set_connected(qid, entries, sq_flow_control, class);
        self.session.connected(connected, presence);
    }

    /// Commands that are complete with what has arrived; `Err` when the connection is over.
    pub fn receive(&mut self, now: Instant, arrival: Arrival) -> Result<Vec<Command>, Lost> {
        let Arrival::Octets(octets) = arrival else { return Err(Lost) };
        let (mut octets, mut commands) = (&octets[..], Vec::new());
        while !octets.is_empty() {
            let wanted = self.qpair.wanted().filter(|_| self.placed);
            if let Some((slot, offset, length)) = wanted {
                let (data, rest) = octets.split_at(octets.len().min(length as usize));
                self.data_mut(slot)[offset as usize..][..data.len()].copy_from_slice(data);
                self.qpair.placed(data);
                octets = rest;
            } else {
                // While placing, no more than a header at once, so that data is wanted.
                let length = if self.placed { octets.len().min(24) } else { octets.len() };
                self.inbox.extend_from_slice(&octets[..length]);
                octets = &octets[length..];
            }
            self.poll(now, &mut commands)?;
        }
        Ok(commands)
    }

    fn poll(&mut self, now: Instant, commands: &mut Vec<Command>) -> Result<(), Lost> {
        let mut at = 0;
        let input = std::mem::take(&mut self.inbox);
        while let Some(event) = self.qpair.poll_rx(now, &input, &mut at).map_err(|_| Lost)? {
            match event {
                RxEvent::Initialized => self.session.initialized(),
                RxEvent::Command { slot, sqe, in_capsule_bytes } => {
                    commands.extend(self.begin(now, slot, sqe, in_capsule_bytes));
                }
                RxEvent::Data { slot, offset, start, length } => {
                    let data = &input[start..start + length as usize];
                    self.data_mut(slot)[offset as usize..][..data.len()].copy_from_slice(data);
                }
                RxEvent::SplitBlock { .. } => {} // a slot has room for all its data
                RxEvent::DataDone { slot, intact } => {
                    let io = self.slot_mut(slot).io;
                    if intact {
                        commands.push(Command { slot, io });
                    } else {
                        self.qpair.respond(now, slot, Status::TRANSIENT_TRANSPORT_ERROR, 0);
                    }
                }
            }
        }
        self.inbox = input[at..].to_vec();
        Ok(())
    }

    fn begin(&mut self, now: Instant, slot: u16, sqe: Sqe, in_capsule: u32) -> Option<Command> {
        self.session.heard();
        let is_io = self.session.request(&sqe) == Request::Io;
        let io = is_io.then(|| match self.table.get(sqe.nsid.get()) {
            Some(geometry) => IoCommand::parse(&sqe, geometry, in_capsule),
            None => Err(Status::INVALID_NAMESPACE.dnr()),
        });
        let out = io.and_then(Result::ok).map_or(0, |io| io.data_out_bytes());
        let data = vec![0; in_capsule.max(out) as usize];
        let index = usize::from(slot);
        self.slots.resize_with(self.slots.len().max(index + 1), || None);
        let old = self.slots[index].replace(Slot { sqe, data, io });
        assert!(old.is_none(), "the slot of a command in execution was used again");
        match (in_capsule, out) {
            (0, 0) => return Some(Command { slot, io }),
            (0, _) => self.qpair.request_data(now, slot, out),
            _ => {} // its data follows
        }
        None
    }

    fn slot_mut(&mut self, slot: u16) -> &mut Slot {
        self.slots[usize::from(slot)].as_mut().expect("the slot has a command")
    }

    fn data_mut(&mut self, slot: u16) -> &mut Vec<u8> {
        &mut self.slot_mut(slot).data
    }

    /// Data of a command.
    pub fn data(&self, slot: u16) -> &[u8] {
        self.slots[usize::from(slot)].as_ref().map_or(&[], |slot| &slot.data)
    }

    /// The command.
    pub fn sqe(&self, slot: u16) -> Sqe {
        self.slots[usize::from(slot)].as_ref().map_or(Sqe::default(), |slot| slot.sqe)
    }

    /// Controller and queue.
    pub fn ids(&self) -> Option<(u16, u16)> {
        self.session.queue().map(|connected| (connected.cntlid, connected.qid))
    }

    /// Answers without data.
    pub fn respond(&mut self, now: Instant, slot: u16, status: Status, result: u64) {
        self.qpair.respond(now, slot, status, result);
    }

    /// A command has been executed; data, if any, goes to the host.
    pub fn finish(&mut self, now: Instant, slot: u16, result: Result<Vec<u8>, Status>) {
        match result {
            Ok(data) if !data.is_empty() => {
                let length = data.len() as u32;
                *self.data_mut(slot) = data;
                self.qpair.respond_with_data(now, slot, length, 0);
            }
            Ok(_) => self.qpair.respond(now, slot, Status::SUCCESS, 0),
            Err(status) => self.qpair.respond(now, slot, status, 0),
        }
    }

    /// The turn is over: sends what may be sent.
    pub fn end_turn(&mut self, now: Instant, conn: ConnId, network: &mut Network) {
        self.session.tell_traffic();
        self.qpair.batcher().expire(now);
        self.qpair.batcher().drained(now);
        loop {
            let sent = network.send(now, conn, End::Target, &self.outbox);
            self.outbox.drain(..sent);
            if !self.outbox.is_empty() {
                return;
            }
            self.qpair.sent(|slot| self.slots[usize::from(slot)] = None);
            let mut caravan = Manifest::with_room(self.caravan_parts);
            if !self.qpair.poll_tx(&mut caravan) {
                break;
            }
            let slots = &self.slots;
            self.outbox = caravan.octets(|slot| match &slots[usize::from(slot)] {
                Some(slot) => &slot.data,
                None => &[],
            });
        }
        assert!(!self.qpair.has_tx(), "released work is left behind");
        let batcher = self.qpair.batcher();
        let has_wake_up = batcher.deadline().is_some_and(|deadline| deadline > now);
        assert!(batcher.backlog().requests == 0 || has_wake_up, "held work without a wake-up");
    }
}
