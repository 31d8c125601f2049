//! A lane over Ethernet: its frames come and go by the reactor's ports.

mod arrivals;

use super::{Carry, Commands, Transport};
use crate::control::Control;
use crate::ether::damq::Damq;
use crate::ether::ports::{self, PortState};
use crate::lane::data::{Execution, Payload, range};
use crate::lane::recording::Left;
use crate::lane::{LaneError, Shared, TargetLane};
use arrivals::{Command, LastPiece, Piece, octets};
use roadtrain_ether_port::port::Port;
use roadtrain_ether_port::{FrameSeal, RefusalLog, opening, seals};
use roadtrain_ether_proto::OpenFrame;
use roadtrain_ether_proto::channel::ChannelConfig;
use roadtrain_ether_proto::frame_writer::FrameWriter;
use roadtrain_ether_proto::target_queue::{Asked, Qpair, RxEvent};
use roadtrain_proto::seal::Limits;
use roadtrain_proto::security::{FrameSecret, SealUse};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::metrics::{Batching, ReactorCells};
use roadtrain_target_proto::presence::Presence;
use roadtrain_target_proto::service;
use roadtrain_target_proto::session::{Session, Settings};
use roadtrain_wire::ether::setup::{Join, Reason};
use roadtrain_wire::ether::{FrameHeader, FrameType, MacAddress};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Longest wait for the acknowledgement of a lane's last answer.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// A link of the lane, as it was joined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Which of the reactor's ports.
    pub(crate) port: usize,
    /// The host's address.
    pub(crate) peer: MacAddress,
    /// What the host has said, to be told the same when it says it again.
    pub(crate) join: Join,
    /// Our first number in its channel.
    pub(crate) first: u32,
}

/// Queue pair, links and data pages.
pub(crate) struct Ether {
    pub(crate) qpair: Qpair,
    pub(crate) damq: Damq,
    /// What the lane's frames name it by.
    pub(crate) token: u64,
    /// The subsystem that it was made for.
    pub(crate) nqn: Arc<str>,
    /// Slots of the lane.
    pub(crate) slots: u16,
    /// By number; `None` until it was joined.
    links: Vec<Option<Link>>,
    /// Commands of the frame that is being received.
    commands: Vec<Command>,
    /// Commands whose responses the host may not have.
    held: u32,
    /// What its frames are sealed with, if they are.
    seal: Option<Box<FrameSeal>>,
    refusals: RefusalLog,
    /// By slot, when the last command was answered.
    answered: Box<[Instant]>,
    /// The host has disconnected: until when its acknowledgement is waited for.
    ending: Option<Instant>,
    stats: Batching,
}

impl Ether {
    /// Frames given up, with the port of each link.
    pub(crate) fn lost(&self) -> impl Iterator<Item = (usize, u64)> {
        let lost = |number: usize| Some(self.qpair.end.links.stats(number as u8)?.lost);
        let link = move |(number, link): (usize, &Option<Link>)| {
            Some((link.as_ref()?.port, lost(number)?))
        };
        self.links.iter().enumerate().filter_map(link)
    }
}

/// What a lane over Ethernet is made of.
pub(crate) struct EtherLane {
    pub(crate) qpair: Qpair,
    pub(crate) damq: Damq,
    pub(crate) token: u64,
    pub(crate) nqn: Arc<str>,
    pub(crate) slots: u16,
}

/// A lane's frames, put into the ports of its links.
struct Filler<'a> {
    ports: &'a mut [Port],
    links: &'a [Option<Link>],
    execution: &'a mut Execution,
    stats: &'a mut Batching,
    cells: &'a ReactorCells,
    seal: Option<&'a mut FrameSeal>,
    /// Of the frame that is being built.
    port: usize,
    peer: MacAddress,
    octets: usize,
    records: u64,
}

impl FrameWriter for Filler<'_> {
    fn has_room(&self, link: u8) -> bool {
        let link = self.links.get(usize::from(link)).copied().flatten();
        link.is_some_and(|link| self.ports.get(link.port).is_some_and(Port::has_room))
    }

    fn begin(&mut self, link: u8) {
        if let Some(Some(link)) = self.links.get(usize::from(link)) {
            (self.port, self.peer) = (link.port, link.peer); // `has_room` has found it
        }
        (self.octets, self.records) = (0, 0);
        self.ports[self.port].begin();
    }

    fn octets(&mut self, length: usize) -> &mut [u8] {
        (self.octets, self.records) = (self.octets + length, self.records + 1);
        self.ports[self.port].octets(length)
    }

    fn payload(&mut self, slot: u16, offset: u32, length: u32) {
        self.octets += length as usize;
        let port = &mut self.ports[self.port];
        match range(self.execution.data_mut(slot), offset, length) {
            // SAFETY: `range` checked the bounds. The slot keeps its data until it is released, and ports are
            // flushed before any is.
            Some(start) => unsafe { port.payload(start, length as usize) },
            None => {
                debug_assert!(false, "a response without its data");
                port.octets(length as usize).fill(0);
            }
        }
    }

    fn end(&mut self, header: FrameHeader) {
        if header.kind == FrameType::Cargo as u8 {
            self.stats.caravans += 1;
            self.stats.caravan_bytes += self.octets as u64;
            self.stats.caravan_requests += self.records;
            self.cells.caravan(self.records);
        }
        let port = &mut self.ports[self.port];
        match &mut self.seal {
            Some(seal) if seal.is_on() && seals(&header) => {
                port.end_sealed(self.peer, header, seal);
            }
            _ => port.end(self.peer, header),
        }
    }
}

impl Ether {
    /// A lane that `join` asks for; its links are to be added.
    pub(crate) fn new(now: Instant, join: &Join, parts: EtherLane) -> Self {
        let EtherLane { mut qpair, damq, token, nqn, slots } = parts;
        qpair.hear_host(now);
        Ether {
            qpair,
            damq,
            token,
            nqn,
            slots,
            links: vec![None; usize::from(join.links)],
            commands: Vec::new(),
            held: 0,
            seal: None,
            refusals: RefusalLog::default(),
            answered: vec![Instant::default(); usize::from(slots)].into_boxed_slice(),
            ending: None,
            stats: Batching::default(),
        }
    }

    /// Whether its frames are sealed: only its host can make them.
    pub(crate) fn is_sealed(&self) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.is_on())
    }

    /// The link of that number, if it was joined.
    pub(crate) fn link(&self, link: u8) -> Option<Link> {
        self.links.get(usize::from(link)).copied().flatten()
    }

    /// Links that were joined, with their numbers.
    pub(crate) fn links(&self) -> impl Iterator<Item = (u8, Link)> {
        (0..).zip(&self.links).filter_map(|(number, link)| Some((number, (*link)?)))
    }

    /// Adds a link whose host listens at `socket_number`; `false` if it is there.
    pub(crate) fn add_link(
        &mut self,
        now: Instant,
        link: Link,
        config: &ChannelConfig,
        socket_number: u16,
    ) -> bool {
        let Some(place @ None) = self.links.get_mut(usize::from(config.link)) else { return false };
        *place = Some(link);
        self.qpair.end.links.add(now, config, socket_number)
    }

    /// Interfaces have come, gone or changed: one for each port. One that takes only smaller frames than it did is of
    /// no use to a link.
    pub(crate) fn set_states(&mut self, now: Instant, states: &[PortState]) {
        for (number, link) in (0..).zip(&self.links) {
            if let Some(state) = link.and_then(|link| states.get(link.port)) {
                let links = &mut self.qpair.end.links;
                let fits = links.frame_bytes(number) <= state.frame_bytes;
                links.set_carrier(now, number, state.has_carrier && fits);
            }
        }
    }

    /// The link of that number leads to another of our ports, or to another address of the host.
    pub(crate) fn move_link(&mut self, number: u8, port: usize, peer: MacAddress) {
        if let Some(Some(link)) = self.links.get_mut(usize::from(number)) {
            (link.port, link.peer) = (port, peer);
        }
    }

    /// A command is answered.
    pub(in crate::lane) fn note_answer(&mut self, now: Instant, slot: u16) {
        self.answered[usize::from(slot)] = now;
    }

    /// Data that the host has placed.
    fn lend(&self, place: u64, data_bytes: u32) -> Payload<'static> {
        let lent = if data_bytes > 0 { self.damq.lend(place, data_bytes) } else { None };
        lent.map_or(Payload::Asked, Payload::Here)
    }
}

impl Carry for Ether {
    /// Data comes with its command, or there is none.
    fn request_data(&mut self, now: Instant, slot: u16, _bytes: u32) {
        self.qpair.respond(now, slot, Status::DATA_SGL_LENGTH_INVALID.dnr(), 0);
    }

    /// Commands come with their data.
    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)> {
        Some((self.qpair.slot_of(cid)?, false))
    }

    fn awaits_data(&mut self, _slot: u16) -> bool {
        false
    }

    fn ring_due(&mut self, now: Instant) {
        self.qpair.end.expire(now);
    }

    /// Builds what may leave; ports that are full are flushed, the others later.
    fn flush(
        &mut self,
        (execution, _): Commands<'_>,
        shared: &mut Shared,
    ) -> Result<(), LaneError> {
        let Shared { ports, now, meters, number, .. } = shared;
        if ports.is_empty() {
            return Ok(()); // they are receiving: lanes that hear something end their turn after that
        }
        loop {
            let mut filler = Filler {
                ports,
                links: &self.links,
                execution,
                stats: &mut self.stats,
                cells: meters.reactor(*number),
                seal: self.seal.as_deref_mut(),
                port: 0,
                peer: MacAddress::default(),
                octets: 0,
                records: 0,
            };
            if !self.qpair.poll_tx(*now, &mut filler) {
                return Ok(());
            }
            ports.iter_mut().filter(|port| !port.has_room()).for_each(ports::flush);
        }
    }

    fn deadline(&mut self) -> Option<Instant> {
        [self.qpair.end.deadline(), self.ending, self.qpair.host.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    fn batching(&self) -> Batching {
        self.stats.with_doorbells(self.qpair.end.doorbells())
    }

    /// Tells the host that the lane ends, over each link.
    fn hang_up(&mut self, commands: Commands<'_>, shared: &mut Shared) {
        self.qpair.end.leave(self.qpair.end.ended().unwrap_or(Reason::Shutdown));
        let _ = self.flush(commands, shared); // which cannot fail
        // What was built before names data that goes back now.
        shared.ports.iter_mut().for_each(ports::flush);
    }

    /// The lane ends when the host has the answer.
    fn ends_at_once(&mut self, now: Instant) -> bool {
        self.ending.get_or_insert(now + LAST_ANSWER);
        false
    }

    fn is_over(&self, now: Instant) -> Option<&'static str> {
        if self.ending.is_some_and(|until| self.held == 0 || until <= now) {
            return Some("disconnected by the host");
        }
        if self.seal.as_ref().is_some_and(|seal| seal.is_used_up()) {
            return Some("the keys that seal its frames are used up");
        }
        self.qpair.host.is_over(now).then_some("its host connects again")
    }

    /// The host has proved who it is. What it has sealed says that it knows.
    fn seal(&mut self, secret: &FrameSecret) -> Result<(), LaneError> {
        let links = &self.qpair.end.links;
        let keys = secret.keys(links.peer_token(), links.token());
        let seal = FrameSeal::target(&keys, Limits::TARGET);
        let seal = seal.map_err(|_| LaneError::Ended("frames cannot be sealed: AES-GCM"))?;
        self.qpair.end.prove_leave(seal.proofs());
        self.seal = Some(Box::new(seal));
        Ok(())
    }

    fn place(&mut self, now: Instant, payload: Payload<'_>) -> Payload<'static> {
        let Payload::InFrame { octets, place } = payload else { return payload.without_frame() };
        let placed = self.damq.put(now, place, octets);
        debug_assert!(placed, "the queue pair checks places");
        self.lend(place, octets.len() as u32)
    }
}

impl TargetLane {
    /// A lane over Ethernet; `peer` names the host in logs.
    pub(crate) fn over_ether(id: (u32, u32), peer: String, ether: Ether, seals: SealUse) -> Self {
        let mut session = Session::new(Settings { seals, ..Settings::default() });
        session.initialized(); // its host has joined
        TargetLane::new(id, peer, Transport::Ether(Box::new(ether)), session)
    }

    /// What it has of a lane over Ethernet, if it is one.
    pub(crate) fn ether(&self) -> Option<&Ether> {
        match &self.transport {
            Transport::Ether(ether) => Some(ether),
            Transport::Tcp(_) => None,
        }
    }

    /// As [`TargetLane::ether`].
    pub(crate) fn ether_mut(&mut self) -> Option<&mut Ether> {
        match &mut self.transport {
            Transport::Ether(ether) => Some(ether),
            Transport::Tcp(_) => None,
        }
    }

    /// A host connects: is this its lane, and does it still have it? Whether it is asked now; what it says is told at
    /// once or when it has come.
    pub(crate) fn ask(&mut self, now: Instant, control: &Control, hostnqn: &str) -> bool {
        let is_its = |presence: &&Presence| *presence.hostnqn == *hostnqn;
        let Some(presence) = self.session.presence().filter(is_its) else {
            return false;
        };
        let Transport::Ether(ether) = &mut self.transport else { return false };
        let Qpair { end, host, .. } = &mut ether.qpair;
        let asked = host.ask(now, &mut end.links);
        if asked == Asked::Harmless {
            control.answered(presence);
        }
        asked == Asked::Now
    }

    /// Tells that the host has the lane, if it was asked and has answered.
    fn hear_answer(&mut self, control: &Control) {
        if let Transport::Ether(ether) = &mut self.transport
            && ether.qpair.host.is_answered(&ether.qpair.end.links)
        {
            self.session.presence().into_iter().for_each(|presence| control.answered(presence));
        }
    }

    /// Tells the log of frames that somebody else has sent, if it is time.
    pub(crate) fn tell_refusals(&mut self, now: Instant) {
        let Transport::Ether(ether) = &mut self.transport else { return };
        if ether.seal.is_some()
            && let Some(count) = ether.refusals.due(now, &ether.qpair.end.rejected)
        {
            warn!(peer = %self.peer, count, "frames that the host has not sealed were dropped");
        }
    }

    /// A frame of the lane, over one of its links; `is_astray`: from somewhere else, so it counts only if it says that
    /// the host is there now. Whether it counts. Nothing is sent: the lane's turn has to be ended.
    pub(crate) fn take_frame(
        &mut self,
        shared: &mut Shared,
        frame: (&FrameHeader, FrameType, &[u8]),
        is_astray: bool,
    ) -> Result<bool, LaneError> {
        let is_sealed = self.ether().is_some_and(|ether| ether.seal.is_some());
        opening(is_sealed, |out| self.open_frame(shared, frame, is_astray, out))
    }

    /// The same, with a place to open the body to. The first sealed frame says that the host has the keys, too.
    fn open_frame(
        &mut self,
        shared: &mut Shared,
        (header, kind, body): (&FrameHeader, FrameType, &[u8]),
        is_astray: bool,
        out: &mut [u8],
    ) -> Result<bool, LaneError> {
        let Transport::Ether(ether) = &mut self.transport else { return Ok(false) };
        let Ether { seal, qpair, .. } = &mut **ether;
        let opened = qpair.open(shared.now, seal.as_deref_mut(), (header, kind, body), out);
        let Some(OpenFrame { body, is_first, is_sign_of_life }) = opened else { return Ok(false) };
        if is_astray && !is_sign_of_life {
            return Ok(false);
        }
        if is_first && self.session.sealed() {
            info!(peer = %self.peer, "authenticated; frames are sealed");
            if service::grant(&mut self.lend(shared)).is_err() {
                return Err(LaneError::Ended("refused, though it has proved who it is"));
            }
        }
        self.take_opened(shared, header, kind, body).map(|()| true)
    }

    fn take_opened(
        &mut self,
        shared: &mut Shared,
        header: &FrameHeader,
        kind: FrameType,
        body: &[u8],
    ) -> Result<(), LaneError> {
        let Transport::Ether(ether) = &mut self.transport else { return Ok(()) };
        let (execution, meter, now) = (&mut self.execution, &mut self.meter, shared.now);
        let Ether { qpair, damq, commands, held, stats, answered, .. } = &mut **ether;
        let mut last = LastPiece::default();
        qpair.receive(now, header, kind, body, &mut |event| match event {
            RxEvent::Data { slot, place, start, length } => {
                if let Some(before) = last.replace(Piece { slot, place, start, length }) {
                    before.put(now, damq, body);
                }
            }
            RxEvent::Command { slot, sqe, place, data_bytes, .. } => {
                *held += 1;
                let start = last.take_whole(slot, data_bytes);
                commands.push(Command { slot, sqe, place, data_bytes, start });
            }
            RxEvent::Released { slot } => {
                (*held, stats.requests) = (held.saturating_sub(1), stats.requests + 1);
                let recorder = &mut shared.recorder;
                // When its frames left is not known: they may have left more than once.
                let answered = answered[usize::from(slot)];
                let left = Left { slot, cid: slot, answered, caravan: answered, sent: now };
                let is_sample = recorder.until_sample(now) == 1;
                recorder.ended(1);
                if is_sample {
                    left.record((execution, meter), recorder, true);
                }
                let slow_before = recorder.slow_before(now);
                if meter.end((&shared.meters, shared.number), (now, slow_before), slot) {
                    left.record((execution, meter), recorder, false);
                }
                execution.release(slot, |buffer| shared.pool.give(buffer));
            }
        });
        if let Some(piece) = last.take() {
            piece.put(now, damq, body);
        }
        if let Some(broken) = ether.qpair.end.broken() {
            return Err(LaneError::Broken(broken.to_string()));
        }
        if ether.qpair.end.ended().is_some() {
            return Err(LaneError::Closed);
        }
        self.hear_answer(&shared.control);
        self.take_commands(shared, body)
    }

    fn take_commands(&mut self, shared: &mut Shared, body: &[u8]) -> Result<(), LaneError> {
        let Transport::Ether(ether) = &mut self.transport else { return Ok(()) };
        let mut commands = std::mem::take(&mut ether.commands);
        for command in commands.drain(..) {
            self.take_command(shared, command, body)?;
        }
        if let Transport::Ether(ether) = &mut self.transport {
            ether.commands = commands;
        }
        Ok(())
    }

    fn take_command(
        &mut self,
        shared: &mut Shared,
        command: Command,
        body: &[u8],
    ) -> Result<(), LaneError> {
        let Command { slot, mut sqe, place, data_bytes, start } = command;
        if brings_data(&sqe) {
            sqe.set_in_capsule(data_bytes); // even if it brings none
        }
        let payload = match start {
            Some(start) => Payload::InFrame { octets: octets(body, start, data_bytes), place },
            None => self.ether().map_or(Payload::Asked, |ether| ether.lend(place, data_bytes)),
        };
        self.handle_command(shared, slot, &sqe, payload)
    }
}

/// Bit 0 of an opcode (of FCTYPE for fabrics) says that data goes to the controller.
fn brings_data(sqe: &Sqe) -> bool {
    let direction = if sqe.opcode == opcode::FABRICS { sqe.fctype() } else { sqe.opcode };
    direction & 1 != 0
}
