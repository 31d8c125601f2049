//! The target: lanes with their damqs, and the disk behind them.

use super::host::{DATA_BYTES_MAX, Proposal, describe, first_seq};
use super::net::{Net, Packet};
use super::plan::{Plan, Sabotage, Sending};
use crate::disk::{BLOCK_BYTES, SimDisk};
use crate::execution::{read_bytes, work};
use crate::network::End;
use crate::rng::Rng;
use roadtrain_proto::ether::channel::{ChannelConfig, WINDOW};
use roadtrain_proto::ether::frame_writer::MemoryWriter;
use roadtrain_proto::ether::links::Links;
use roadtrain_proto::ether::target::{Config, Qpair, RxEvent};
use roadtrain_proto::policy::Class;
use roadtrain_proto::target::io::{Geometry, IoCommand};
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::Reason;
use roadtrain_wire::ether::{PAGE_BYTES, parse};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;
use std::ops::Range;

/// What the target answers to a proposal.
pub struct Joined {
    /// Its token.
    pub token: u64,
    /// Its socket number.
    pub socket_number: u16,
    /// Its first SEQ of each link.
    pub firsts: Vec<u32>,
    /// Numbers that it has room for.
    pub window: u16,
}

/// A command with all its data.
struct Command {
    slot: u16,
    sqe: Sqe,
    /// Its data in the damq.
    place: Range<usize>,
}

struct Lane {
    qpair: Qpair,
    socket_number: u16,
    damq: Vec<u8>,
    /// Data of reads, until the host has it.
    data: Vec<Option<Vec<u8>>>,
}

/// A task of the disk: which command's, and the data that must stay where it is.
struct Owner {
    token: u64,
    slot: u16,
    place: Range<usize>,
    data: Vec<u8>,
}

/// The target.
pub struct Target {
    plan: Plan,
    rng: Rng,
    lanes: BTreeMap<u64, Lane>,
    disk: SimDisk,
    owners: BTreeMap<u64, Owner>,
    down_until: Option<Instant>,
}

impl Target {
    /// A target without lanes.
    #[must_use]
    pub fn new(plan: &Plan, disk: SimDisk, rng: Rng) -> Self {
        Target {
            plan: plan.clone(),
            rng,
            lanes: BTreeMap::new(),
            disk,
            owners: BTreeMap::new(),
            down_until: None,
        }
    }

    /// Makes a lane, in place of an old one. `None`: not now.
    pub fn join(&mut self, now: Instant, old: Option<u64>, host: &Proposal) -> Option<Joined> {
        if self.down_until.is_some() {
            return None;
        }
        if self.plan.sabotage != Some(Sabotage::NoFence) {
            // The fence: the old lane takes nothing more, and what it has started must have ended.
            old.map(|old| self.lanes.remove(&old));
            let is_orphan = |owner: &Owner| !self.lanes.contains_key(&owner.token);
            if self.owners.values().any(is_orphan) {
                return None;
            }
        }
        let rng = &mut self.rng;
        let joined = Joined {
            token: rng.bits(),
            socket_number: rng.between(1, 0xffff) as u16,
            firsts: self.plan.links.iter().map(|_| first_seq(rng)).collect(),
            window: rng.pick(&[1, 64, WINDOW as u16]),
        };
        self.lanes.insert(joined.token, Lane::new(now, &self.plan, host, &joined));
        Some(joined)
    }

    /// Whether it knows that token; `None`: nobody answers.
    #[must_use]
    pub fn knows(&self, token: u64) -> Option<bool> {
        self.down_until.is_none().then(|| self.lanes.contains_key(&token))
    }

    /// One turn: everything that has arrived or ended by now.
    pub fn turn(&mut self, now: Instant, net: &mut Net) {
        let arrived = net.receive(now, End::Target);
        if self.down_until.is_some_and(|until| until <= now) {
            self.down_until = None;
        }
        if self.down_until.is_some() {
            return;
        }
        for (_, packet) in arrived {
            if let Packet::Frame(octets) = packet {
                self.receive(now, &octets);
            }
        }
        for done in self.disk.advance(now) {
            let Some(owner) = self.owners.remove(&done.task) else { continue };
            if let Some(lane) = self.lanes.get_mut(&owner.token) {
                assert!(
                    lane.damq[owner.place] == owner.data,
                    "a write's pages were used again before it was done"
                );
                lane.finish(now, owner.slot, done.result.map_err(|()| Status::INTERNAL_ERROR));
            }
        }
        for lane in self.lanes.values_mut() {
            lane.send(now, self.plan.target, net);
        }
        self.lanes.retain(|_, lane| lane.qpair.ended().is_none());
    }

    fn receive(&mut self, now: Instant, octets: &[u8]) {
        let frame = parse(octets).ok();
        let lane = frame.and_then(|(header, ..)| {
            let lane = self.lanes.get_mut(&header.token.get())?;
            (lane.socket_number == header.socket_number.get()).then_some(lane)
        });
        let (Some((header, kind, body)), Some(lane)) = (frame, lane) else {
            return;
        };
        let Lane { qpair, damq, data, .. } = lane;
        let mut commands = Vec::new();
        qpair.receive(now, &header, kind, body, &mut |event| match event {
            RxEvent::Data { place, start, length, .. } => {
                let length = length as usize;
                damq[place as usize..][..length].copy_from_slice(&body[start..][..length]);
            }
            RxEvent::Command { slot, sqe, place, data_bytes, .. } => {
                let place = place as usize..place as usize + data_bytes as usize;
                commands.push(Command { slot, sqe, place });
            }
            RxEvent::Released { slot } => data[usize::from(slot)] = None,
        });
        for command in commands {
            self.execute(now, header.token.get(), command);
        }
    }

    fn execute(&mut self, now: Instant, token: u64, command: Command) {
        let forgets = self.plan.sabotage == Some(Sabotage::ForgottenCommand) && self.rng.chance(1);
        let Some(lane) = self.lanes.get_mut(&token).filter(|_| !forgets) else { return };
        let Command { slot, sqe, place } = command;
        let blocks = if sqe.nsid.get() == 1 { self.plan.blocks } else { 0 };
        let geometry =
            Geometry { lba_shift: 9, blocks, read_only: false, transfer_bytes_max: DATA_BYTES_MAX };
        if blocks == 0 {
            return lane.qpair.respond(now, slot, Status::INVALID_NAMESPACE.dnr(), 0);
        }
        let data = lane.damq[place.clone()].to_vec();
        let io = match IoCommand::parse(&sqe, &geometry, data.len() as u32) {
            Ok(io) => io,
            Err(status) => return lane.qpair.respond(now, slot, status, 0),
        };
        match work(&io, sqe.nsid.get(), &data) {
            Some(work) => {
                let task = self.disk.start(now, work);
                self.owners.insert(task, Owner { token, slot, place, data });
            }
            None => lane.finish(now, slot, Ok(vec![0; read_bytes(&io)])),
        }
    }

    /// The process ends, with `power_loss` the machine: nothing is remembered but the disk.
    pub fn crash(&mut self, now: Instant, power_loss: bool, until: Instant) {
        self.lanes.clear();
        // What has not ended by now ends with the process.
        self.disk.advance(now);
        self.disk.abandon();
        if power_loss {
            self.disk.lose_power();
        }
        self.owners.clear();
        self.down_until = Some(until);
    }

    /// The target ends a lane.
    pub fn leave(&mut self) {
        let number = self.rng.below(self.lanes.len().max(1) as u64) as usize;
        if let Some(lane) = self.lanes.values_mut().nth(number) {
            lane.qpair.leave(Reason::Shutdown);
        }
    }

    /// Every lane says that it has so much room.
    pub fn set_credits(&mut self, now: Instant, credits: u16) {
        let lanes = self.lanes.values_mut();
        lanes.for_each(|lane| lane.qpair.links_mut().set_credits(now, credits));
    }

    /// A link's carrier has come or gone.
    pub fn set_carrier(&mut self, now: Instant, link: u8, has_carrier: bool) {
        let lanes = self.lanes.values_mut();
        lanes.for_each(|lane| lane.qpair.links_mut().set_carrier(now, link, has_carrier));
    }

    /// When something is due.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        if self.down_until.is_some() {
            return self.down_until;
        }
        let lanes = self.lanes.values().filter_map(|lane| lane.qpair.deadline());
        lanes.chain(self.disk.next_at()).min()
    }

    /// For the report of a failure.
    #[must_use]
    pub fn state(&self) -> String {
        let lanes: Vec<String> =
            self.lanes.values().map(|lane| describe(lane.qpair.links())).collect();
        lanes.join("; ")
    }

    /// Commands that have not been answered, data that is kept, and tasks.
    #[must_use]
    pub fn held(&self) -> (u32, usize, usize) {
        let commands = self.lanes.values().map(|lane| lane.qpair.in_flight()).sum();
        let kept = self.lanes.values().flat_map(|lane| &lane.data).flatten().count();
        (commands, kept, self.owners.len())
    }
}

impl Lane {
    fn new(now: Instant, plan: &Plan, host: &Proposal, ours: &Joined) -> Self {
        let mut links = Links::new(ours.token, host.token, ours.socket_number);
        for (link, link_plan) in (0..).zip(&plan.links) {
            let config = ChannelConfig {
                link,
                first_tx: ours.firsts[usize::from(link)],
                first_rx: host.firsts[usize::from(link)],
                window: WINDOW as u16,
                frame_bytes: link_plan.frame_bytes,
            };
            assert!(links.add(now, &config, host.socket_number));
        }
        let slots = plan.queue_entries - 1;
        let Sending { policy, packing, .. } = plan.target;
        let config = Config {
            slots,
            pages: plan.pages,
            piece_bytes: plan.piece_bytes,
            data_bytes_max: DATA_BYTES_MAX,
            policy,
            packing,
            body_crc: plan.body_crc,
        };
        let mut qpair = Qpair::new(config, links);
        qpair.set_connected(1, plan.queue_entries, true, Class::Normal);
        Lane {
            qpair,
            socket_number: ours.socket_number,
            damq: vec![0xdd; plan.pages as usize * PAGE_BYTES],
            data: vec![None; usize::from(slots)],
        }
    }

    /// A command has been executed; data, if any, goes to the host.
    fn finish(&mut self, now: Instant, slot: u16, result: Result<Vec<u8>, Status>) {
        match result {
            Ok(data) if !data.is_empty() => {
                assert_eq!(data.len() % BLOCK_BYTES, 0);
                let length = data.len() as u32;
                let old = self.data[usize::from(slot)].replace(data);
                assert!(old.is_none(), "a slot's data was not released");
                self.qpair.respond_with_data(now, slot, length, 0);
            }
            Ok(_) => self.qpair.respond(now, slot, Status::SUCCESS, 0),
            Err(status) => self.qpair.respond(now, slot, status, 0),
        }
    }

    /// Sends what may be sent.
    fn send(&mut self, now: Instant, sending: Sending, net: &mut Net) {
        let Lane { qpair, data, .. } = self;
        qpair.expire(now);
        qpair.batcher().drained(now);
        loop {
            let mut writer = MemoryWriter::new(sending.frames_per_send, |slot, out, offset| {
                let data = data[usize::from(slot)].as_ref().expect("data is kept until released");
                out.copy_from_slice(&data[offset as usize..][..out.len()]);
            });
            if !qpair.poll_tx(now, &mut writer) {
                break;
            }
            net.send_frames(now, End::Target, writer.frames);
        }
        assert!(!qpair.has_tx(now), "what may leave is left behind");
    }
}
