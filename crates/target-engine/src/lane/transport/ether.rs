//! Lane over Ethernet: it sends and receives frames through the ports of the reactor.

mod arrivals;

use super::{Carry, LaneCommands, LaneTransport};
use crate::control::TargetControlPlane;
use crate::ether::damq::LaneDamq;
use crate::ether::ports::{self, PortState};
use crate::lane::data::{LaneExecution, LanePayload, range};
use crate::lane::recording::DepartedCommand;
use crate::lane::{LaneError, LaneResources, TargetLane};
use arrivals::{ArrivedCommand, DataPiece, LastPiece, bytes};
use roadtrain_ether_port::port::Port;
use roadtrain_ether_port::{FrameSeal, RefusalLog, opening, seals};
use roadtrain_ether_proto::OpenFrame;
use roadtrain_ether_proto::channel::ChannelConfig;
use roadtrain_ether_proto::frame_writer::FrameWriter;
use roadtrain_ether_proto::target_queue::{EtherTargetEvent, EtherTargetQpair, HostProbe};
use roadtrain_proto::seal::KeyLimits;
use roadtrain_proto::security::{FrameSecret, SealUse};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::metrics::{Batching, ReactorCells};
use roadtrain_target_proto::host_connections::HostConnection;
use roadtrain_target_proto::service;
use roadtrain_target_proto::session::{ListenerRequirements, TargetConnection};
use roadtrain_wire::ether::setup::{JoinBody, LeaveReason};
use roadtrain_wire::ether::{FrameHeader, FrameType, MacAddress};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Longest wait for the acknowledgement of a lane's last completion.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// Joined link of the lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetLaneLink {
    /// Index of the reactor's port.
    pub(crate) port: usize,
    /// MAC address of the host.
    pub(crate) peer: MacAddress,
    /// Join of the host. A repeated Join gets the same reply.
    pub(crate) join: JoinBody,
    /// First sequence number of the target in this channel.
    pub(crate) first: u32,
}

/// Queue pair, links and data pages.
pub(crate) struct EtherTransport {
    pub(crate) qpair: EtherTargetQpair,
    pub(crate) damq: LaneDamq,
    /// Token that identifies the lane in its frames.
    pub(crate) token: u64,
    /// NQN of the subsystem in the Join.
    pub(crate) nqn: Arc<str>,
    /// Number of slots.
    pub(crate) slots: u16,
    /// Links by number; `None` before the Join.
    links: Vec<Option<TargetLaneLink>>,
    /// Commands of the frame that is being received.
    commands: Vec<ArrivedCommand>,
    /// Number of commands whose completions the host has not acknowledged.
    held: u32,
    /// Keys that seal the frames, if they are sealed.
    seal: Option<Box<FrameSeal>>,
    refusals: RefusalLog,
    /// Time of the last completion, by slot.
    answered: Box<[Instant]>,
    /// Deadline for the acknowledgement of the last completion, after a disconnect.
    ending: Option<Instant>,
    stats: Batching,
}

impl EtherTransport {
    /// Returns the number of lost frames and the port of each link.
    pub(crate) fn lost(&self) -> impl Iterator<Item = (usize, u64)> {
        let lost = |number: usize| Some(self.qpair.end.links.stats(number as u8)?.lost);
        let link = move |(number, link): (usize, &Option<TargetLaneLink>)| {
            Some((link.as_ref()?.port, lost(number)?))
        };
        self.links.iter().enumerate().filter_map(link)
    }
}

/// Parts of a new lane over Ethernet.
pub(crate) struct EtherLaneParts {
    pub(crate) qpair: EtherTargetQpair,
    pub(crate) damq: LaneDamq,
    pub(crate) token: u64,
    pub(crate) nqn: Arc<str>,
    pub(crate) slots: u16,
}

/// Writes the frames of a lane into the ports of its links.
struct Filler<'a> {
    ports: &'a mut [Port],
    links: &'a [Option<TargetLaneLink>],
    execution: &'a mut LaneExecution,
    stats: &'a mut Batching,
    cells: &'a ReactorCells,
    seal: Option<&'a mut FrameSeal>,
    /// Port of the frame that is being built. The following fields describe that frame, too.
    port: usize,
    peer: MacAddress,
    bytes: usize,
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
        (self.bytes, self.records) = (0, 0);
        self.ports[self.port].begin();
    }

    fn bytes(&mut self, length: usize) -> &mut [u8] {
        (self.bytes, self.records) = (self.bytes + length, self.records + 1);
        self.ports[self.port].bytes(length)
    }

    fn payload(&mut self, slot: u16, offset: u32, length: u32) {
        self.bytes += length as usize;
        let port = &mut self.ports[self.port];
        match range(self.execution.data_mut(slot), offset, length) {
            // SAFETY: `range` checked the bounds. The slot keeps its data until it is released, and ports are
            // flushed before any is.
            Some(start) => unsafe { port.payload(start, length as usize) },
            None => {
                debug_assert!(false, "a response without its data");
                port.bytes(length as usize).fill(0);
            }
        }
    }

    fn end(&mut self, header: FrameHeader) {
        if header.kind == FrameType::Cargo as u8 {
            self.stats.caravans += 1;
            self.stats.caravan_bytes += self.bytes as u64;
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

impl EtherTransport {
    /// Creates the lane of `join`. The caller adds its links.
    pub(crate) fn new(now: Instant, join: &JoinBody, parts: EtherLaneParts) -> Self {
        let EtherLaneParts { mut qpair, damq, token, nqn, slots } = parts;
        qpair.record_sign_of_life(now);
        EtherTransport {
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

    /// True if the frames are sealed, so that only the host can create them.
    pub(crate) fn is_sealed(&self) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.is_on())
    }

    /// Returns the link of that number, if it was joined.
    pub(crate) fn link(&self, link: u8) -> Option<TargetLaneLink> {
        self.links.get(usize::from(link)).copied().flatten()
    }

    /// Returns the joined links with their numbers.
    pub(crate) fn links(&self) -> impl Iterator<Item = (u8, TargetLaneLink)> {
        (0..).zip(&self.links).filter_map(|(number, link)| Some((number, (*link)?)))
    }

    /// Adds a link whose host listens at `socket_number`. Returns false if the link exists.
    pub(crate) fn add_link(
        &mut self,
        now: Instant,
        link: TargetLaneLink,
        config: &ChannelConfig,
        socket_number: u16,
    ) -> bool {
        let Some(place @ None) = self.links.get_mut(usize::from(config.link)) else { return false };
        *place = Some(link);
        self.qpair.end.links.add(now, config, socket_number)
    }

    /// Applies the states of the ports, one for each port. A link is down if its port takes only smaller frames than
    /// before.
    pub(crate) fn set_states(&mut self, now: Instant, states: &[PortState]) {
        for (number, link) in (0..).zip(&self.links) {
            if let Some(state) = link.and_then(|link| states.get(link.port)) {
                let links = &mut self.qpair.end.links;
                let fits = links.frame_bytes(number) <= state.frame_bytes;
                links.set_carrier(now, number, state.has_carrier && fits);
            }
        }
    }

    /// Moves the link to another port of the target or to another address of the host.
    pub(crate) fn move_link(&mut self, number: u8, port: usize, peer: MacAddress) {
        if let Some(Some(link)) = self.links.get_mut(usize::from(number)) {
            (link.port, link.peer) = (port, peer);
        }
    }

    /// Notes the time at which a command completes.
    pub(in crate::lane) fn note_answer(&mut self, now: Instant, slot: u16) {
        self.answered[usize::from(slot)] = now;
    }

    /// Lends data that the host has placed.
    fn lend(&self, place: u64, data_bytes: u32) -> LanePayload<'static> {
        let lent = if data_bytes > 0 { self.damq.lend(place, data_bytes) } else { None };
        lent.map_or(LanePayload::OnRequest, LanePayload::Here)
    }
}

impl Carry for EtherTransport {
    /// Rejects the command: data comes with its command or not at all.
    fn request_data(&mut self, now: Instant, slot: u16, _bytes: u32) {
        self.qpair.respond(now, slot, Status::DATA_SGL_LENGTH_INVALID.dnr(), 0);
    }

    /// Returns the slot. Commands come with their data.
    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)> {
        Some((self.qpair.slot_of(cid)?, false))
    }

    fn awaits_data(&mut self, _slot: u16) -> bool {
        false
    }

    fn ring_due(&mut self, now: Instant) {
        self.qpair.end.expire(now);
    }

    /// Builds the frames that may leave. Flushes ports that are full now, the others later.
    fn flush(
        &mut self,
        (execution, _): LaneCommands<'_>,
        shared: &mut LaneResources,
    ) -> Result<(), LaneError> {
        let LaneResources { ports, now, meters, number, .. } = shared;
        if ports.is_empty() {
            return Ok(()); // the ports are receiving: lanes with new frames end their turn afterwards
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
                bytes: 0,
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

    /// Notifies the host over each link that the lane ends.
    fn hang_up(&mut self, commands: LaneCommands<'_>, shared: &mut LaneResources) {
        self.qpair.end.leave(self.qpair.end.ended().unwrap_or(LeaveReason::Shutdown));
        let _ = self.flush(commands, shared); // cannot fail here
        // Frames that were built before refer to data that is released now.
        shared.ports.iter_mut().for_each(ports::flush);
    }

    /// Keeps the lane until the host has acknowledged the completion.
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
        self.qpair.host.is_over(now).then_some("its host has reconnected")
    }

    /// Derives the keys for sealed frames after authentication. A frame that the host has sealed shows that it has the
    /// keys.
    fn seal(&mut self, secret: &FrameSecret) -> Result<(), LaneError> {
        let links = &self.qpair.end.links;
        let keys = secret.keys(links.peer_token(), links.token());
        let seal = FrameSeal::target(&keys, KeyLimits::TARGET);
        let seal = seal.map_err(|_| LaneError::Ended("frames cannot be sealed: AES-GCM"))?;
        self.qpair.end.prove_leave(seal.proofs());
        self.seal = Some(Box::new(seal));
        Ok(())
    }

    fn place(&mut self, now: Instant, payload: LanePayload<'_>) -> LanePayload<'static> {
        let LanePayload::InFrame { bytes, place } = payload else {
            return payload.without_frame();
        };
        let placed = self.damq.put(now, place, bytes);
        debug_assert!(placed, "the queue pair checks places");
        self.lend(place, bytes.len() as u32)
    }
}

impl TargetLane {
    /// Creates a lane over Ethernet; `peer` names the host in logs.
    pub(crate) fn over_ether(
        id: (u32, u32),
        peer: String,
        ether: EtherTransport,
        seals: SealUse,
    ) -> Self {
        let mut session = TargetConnection::new(ListenerRequirements {
            seals,
            ..ListenerRequirements::default()
        });
        session.initialized(); // the Join replaces the initialization
        TargetLane::new(id, peer, LaneTransport::Ether(Box::new(ether)), session)
    }

    /// Returns the Ethernet part of the lane, if it has one.
    pub(crate) fn ether(&self) -> Option<&EtherTransport> {
        match &self.transport {
            LaneTransport::Ether(ether) => Some(ether),
            LaneTransport::Tcp(_) => None,
        }
    }

    /// Returns the Ethernet part of the lane, if it has one.
    pub(crate) fn ether_mut(&mut self) -> Option<&mut EtherTransport> {
        match &mut self.transport {
            LaneTransport::Ether(ether) => Some(ether),
            LaneTransport::Tcp(_) => None,
        }
    }

    /// Probes the host of the lane when a host connects with that NQN. Returns true if a probe must be sent now.
    /// Reports the result immediately or when the reply arrives.
    pub(crate) fn probe_host(
        &mut self,
        now: Instant,
        control: &TargetControlPlane,
        hostnqn: &str,
    ) -> bool {
        let is_its = |presence: &&HostConnection| *presence.hostnqn == *hostnqn;
        let Some(presence) = self.session.presence().filter(is_its) else {
            return false;
        };
        let LaneTransport::Ether(ether) = &mut self.transport else { return false };
        let EtherTargetQpair { end, host, .. } = &mut ether.qpair;
        let outcome = host.probe(now, &mut end.links);
        if outcome == HostProbe::Harmless {
            control.answered(presence);
        }
        outcome == HostProbe::Now
    }

    /// Reports that the host has the lane, once it has answered a probe.
    fn report_answer(&mut self, control: &TargetControlPlane) {
        if let LaneTransport::Ether(ether) = &mut self.transport
            && ether.qpair.host.has_replied(&ether.qpair.end.links)
        {
            self.session.presence().into_iter().for_each(|presence| control.answered(presence));
        }
    }

    /// Logs frames that other parties have sent, if the next log line is due.
    pub(crate) fn log_refusals(&mut self, now: Instant) {
        let LaneTransport::Ether(ether) = &mut self.transport else { return };
        if ether.seal.is_some()
            && let Some(count) = ether.refusals.due(now, &ether.qpair.end.rejected)
        {
            warn!(peer = %self.peer, count, "frames that the host has not sealed were dropped");
        }
    }

    /// Handles a frame of the lane. `is_off_link` is true if it comes from another address than the link's; then it is
    /// valid only if it proves that the host is there now. Returns true if the frame is valid. The caller ends the
    /// lane's turn, which sends.
    pub(crate) fn take_frame(
        &mut self,
        shared: &mut LaneResources,
        frame: (&FrameHeader, FrameType, &[u8]),
        is_off_link: bool,
    ) -> Result<bool, LaneError> {
        let is_sealed = self.ether().is_some_and(|ether| ether.seal.is_some());
        opening(is_sealed, |out| self.open_frame(shared, frame, is_off_link, out))
    }

    /// Opens and handles a frame. `out` receives the opened body. The first sealed frame shows that the host has the
    /// keys, too.
    fn open_frame(
        &mut self,
        shared: &mut LaneResources,
        (header, kind, body): (&FrameHeader, FrameType, &[u8]),
        is_off_link: bool,
        out: &mut [u8],
    ) -> Result<bool, LaneError> {
        let LaneTransport::Ether(ether) = &mut self.transport else { return Ok(false) };
        let EtherTransport { seal, qpair, .. } = &mut **ether;
        let opened = qpair.open(shared.now, seal.as_deref_mut(), (header, kind, body), out);
        let Some(OpenFrame { body, is_first, is_sign_of_life }) = opened else { return Ok(false) };
        if is_off_link && !is_sign_of_life {
            return Ok(false);
        }
        if is_first && self.session.sealed() {
            info!(peer = %self.peer, "authenticated; frames are sealed");
            if service::grant(&mut self.lend(shared)).is_err() {
                return Err(LaneError::Ended("refused after its authentication"));
            }
        }
        self.take_opened(shared, header, kind, body).map(|()| true)
    }

    fn take_opened(
        &mut self,
        shared: &mut LaneResources,
        header: &FrameHeader,
        kind: FrameType,
        body: &[u8],
    ) -> Result<(), LaneError> {
        let LaneTransport::Ether(ether) = &mut self.transport else { return Ok(()) };
        let (execution, meter, now) = (&mut self.execution, &mut self.meter, shared.now);
        let EtherTransport { qpair, damq, commands, held, stats, answered, .. } = &mut **ether;
        let mut last = LastPiece::default();
        qpair.receive(now, header, kind, body, &mut |event| match event {
            EtherTargetEvent::Data { slot, place, start, length } => {
                if let Some(before) = last.replace(DataPiece { slot, place, start, length }) {
                    before.put(now, damq, body);
                }
            }
            EtherTargetEvent::Command { slot, sqe, place, data_bytes, .. } => {
                *held += 1;
                let start = last.take_whole(slot, data_bytes);
                commands.push(ArrivedCommand { slot, sqe, place, data_bytes, start });
            }
            EtherTargetEvent::Released { slot } => {
                (*held, stats.requests) = (held.saturating_sub(1), stats.requests + 1);
                let recorder = &mut shared.recorder;
                // The departure time of its frames is unknown: they may have left more than once.
                let answered = answered[usize::from(slot)];
                let departed =
                    DepartedCommand { slot, cid: slot, answered, caravan: answered, sent: now };
                let is_sample = recorder.until_sample(now) == 1;
                recorder.ended(1);
                if is_sample {
                    departed.record((execution, meter), recorder, true);
                }
                let slow_before = recorder.slow_before(now);
                if meter.end((&shared.meters, shared.number), (now, slow_before), slot) {
                    departed.record((execution, meter), recorder, false);
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
        self.report_answer(&shared.control);
        self.take_commands(shared, body)
    }

    fn take_commands(&mut self, shared: &mut LaneResources, body: &[u8]) -> Result<(), LaneError> {
        let LaneTransport::Ether(ether) = &mut self.transport else { return Ok(()) };
        let mut commands = std::mem::take(&mut ether.commands);
        for command in commands.drain(..) {
            self.take_command(shared, command, body)?;
        }
        if let LaneTransport::Ether(ether) = &mut self.transport {
            ether.commands = commands;
        }
        Ok(())
    }

    fn take_command(
        &mut self,
        shared: &mut LaneResources,
        command: ArrivedCommand,
        body: &[u8],
    ) -> Result<(), LaneError> {
        let ArrivedCommand { slot, mut sqe, place, data_bytes, start } = command;
        if brings_data(&sqe) {
            sqe.set_in_capsule(data_bytes); // even if it brings none
        }
        let payload = match start {
            Some(start) => LanePayload::InFrame { bytes: bytes(body, start, data_bytes), place },
            None => {
                self.ether().map_or(LanePayload::OnRequest, |ether| ether.lend(place, data_bytes))
            }
        };
        self.handle_command(shared, slot, &sqe, payload)
    }
}

/// True if the command transfers data to the controller: bit 0 of its opcode, or of FCTYPE for fabrics commands.
fn brings_data(sqe: &Sqe) -> bool {
    let direction = if sqe.opcode == opcode::FABRICS { sqe.fctype() } else { sqe.opcode };
    direction & 1 != 0
}
