//! A target queue pair that executes commands at once on a disk in memory.

use super::{BLOCK, Delivery, LBA_SHIFT};
use roadtrain_proto::error::QpairError;
use roadtrain_proto::manifest::Manifest;
use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::io::{BlockGeometry, TargetIoCommand};
use roadtrain_target_proto::qpair::{TargetQpair, TargetQpairConfig, TargetRxEvent};
use roadtrain_wire::fabrics::{Connect, cattr};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::collections::HashMap;

const DISK_BYTES: usize = 1 << 20;

pub struct PairTargetEnd {
    pub qpair: TargetQpair,
    pub disk: Vec<u8>,
    /// True if commands are held until [`PairTargetEnd::execute_held`].
    pub hold: bool,
    /// True if the data of writes is delivered in whole blocks.
    pub whole_blocks: bool,
    /// Classes of namespaces.
    pub classes: HashMap<u32, Class>,
    held: Vec<u16>,
    commands: Vec<Option<(Sqe, Vec<u8>)>>,
    inbox: Vec<u8>,
    events: Vec<String>,
}

impl PairTargetEnd {
    pub fn new(config: TargetQpairConfig) -> Self {
        PairTargetEnd {
            qpair: TargetQpair::new(config),
            disk: vec![0; DISK_BYTES],
            hold: false,
            whole_blocks: false,
            classes: HashMap::new(),
            held: Vec::new(),
            commands: Vec::new(),
            inbox: Vec::new(),
            events: Vec::new(),
        }
    }

    pub fn geometry(&self) -> BlockGeometry {
        BlockGeometry {
            lba_shift: LBA_SHIFT,
            blocks: self.disk.len() as u64 / u64::from(BLOCK),
            read_only: false,
            transfer_bytes_max: 128 << 10,
        }
    }

    pub fn receive(
        &mut self,
        now: Instant,
        mut bytes: &[u8],
        delivery: Delivery,
    ) -> Result<(), QpairError> {
        while !bytes.is_empty() {
            let mut length = bytes.len();
            if let Delivery::Pieces(n) = delivery {
                length = length.min(n);
            }
            if let Delivery::Placed(n) = delivery {
                length = length.min(n);
                if let Some((slot, offset, wanted)) = self.qpair.wanted() {
                    assert!(self.inbox.is_empty(), "data is wanted behind unread bytes");
                    length = length.min(wanted as usize);
                    self.data(slot)[offset as usize..][..length].copy_from_slice(&bytes[..length]);
                    self.qpair.placed(&bytes[..length]);
                    if self.whole_blocks {
                        self.events.push(format!("data {offset}+{length}"));
                    }
                    bytes = &bytes[length..];
                    self.poll(now)?;
                    continue;
                }
                // Joins the bytes kept in the inbox with the rest of the block, as the engine does.
                let kept = self.inbox.len();
                if let Some((slot, offset, whole)) = self.qpair.wanted_whole(kept + length)
                    && whole as usize > kept
                {
                    let length = whole as usize - kept;
                    let data = [&std::mem::take(&mut self.inbox)[..], &bytes[..length]].concat();
                    self.data(slot)[offset as usize..][..data.len()].copy_from_slice(&data);
                    self.qpair.placed(&data);
                    self.events.push(format!("data {offset}+{whole}"));
                    bytes = &bytes[length..];
                    self.poll(now)?;
                    continue;
                }
            }
            self.inbox.extend_from_slice(&bytes[..length]);
            bytes = &bytes[length..];
            self.poll(now)?;
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant) -> Result<(), QpairError> {
        let mut at = 0;
        let input = std::mem::take(&mut self.inbox);
        loop {
            let mut filled = Vec::new();
            let fill = |slot, offset, data: &[u8]| filled.push((slot, offset, data.to_vec()));
            let event = self.qpair.poll_rx(now, &input, &mut at, fill);
            for (slot, offset, data) in filled {
                self.events.push(format!("data {offset}+{}", data.len()));
                self.data(slot)[offset as usize..][..data.len()].copy_from_slice(&data);
            }
            let Some(event) = event? else { break };
            self.handle(now, event);
        }
        self.inbox = input[at..].to_vec();
        Ok(())
    }

    fn handle(&mut self, now: Instant, event: TargetRxEvent<'_>) {
        match event {
            TargetRxEvent::Initialized => {}
            TargetRxEvent::Command { slot, sqe, in_capsule_bytes } => {
                self.events.push(format!("command {:#04x}", sqe.opcode));
                if let Some(&class) = self.classes.get(&sqe.nsid.get()) {
                    self.qpair.set_class(slot, class);
                }
                let index = usize::from(slot);
                self.commands.resize(self.commands.len().max(index + 1), None);
                assert!(self.commands[index].is_none(), "the slot is in use");
                self.commands[index] = Some((*sqe, vec![0; in_capsule_bytes as usize]));
                if self.whole_blocks {
                    self.qpair.deliver_whole(slot, BLOCK);
                }
                if in_capsule_bytes == 0 {
                    self.begin(now, slot, sqe);
                }
            }
            TargetRxEvent::SplitBlock { offset, .. } => {
                self.events.push(format!("split from {offset}"));
            }
            TargetRxEvent::DataDone { slot, intact: true } => {
                self.events.push("data done".into());
                self.ready(now, slot);
            }
            TargetRxEvent::DataDone { slot, intact: false } => {
                self.events.push("data done, corrupt".into());
                self.qpair.respond(now, slot, Status::TRANSIENT_TRANSPORT_ERROR, 0);
            }
        }
    }

    fn begin(&mut self, now: Instant, slot: u16, sqe: &Sqe) {
        match TargetIoCommand::parse(sqe, &self.geometry(), 0).map(|c| c.data_out_bytes()) {
            Ok(bytes) if bytes > 0 => {
                self.command(slot).1 = vec![0; bytes as usize];
                self.qpair.request_data(now, slot, bytes);
            }
            _ => self.ready(now, slot),
        }
    }

    fn ready(&mut self, now: Instant, slot: u16) {
        if self.hold {
            self.held.push(slot);
        } else {
            self.execute(now, slot);
        }
    }

    /// Executes the held commands, the last first.
    pub fn execute_held(&mut self, now: Instant) {
        while let Some(slot) = self.held.pop() {
            self.execute(now, slot);
        }
    }

    fn execute(&mut self, now: Instant, slot: u16) {
        let (sqe, data) = self.command(slot).clone();
        if sqe.opcode == opcode::FABRICS {
            let connect = Connect::parse(&sqe);
            if !(1..1024).contains(&connect.sqsize) {
                return self.qpair.respond(now, slot, Status::CONNECT_INVALID_PARAMETERS, 0);
            }
            let flow_control = connect.cattr & cattr::DISABLE_SQ_FLOW_CONTROL == 0;
            let class = Class::from_cattr(connect.cattr);
            self.qpair.set_connected(1, connect.sqsize + 1, flow_control, class);
            return self.qpair.respond(now, slot, Status::SUCCESS, 1);
        }
        let in_capsule = if sqe.sgl.kind == 1 { data.len() as u32 } else { 0 };
        match TargetIoCommand::parse(&sqe, &self.geometry(), in_capsule) {
            Err(status) => self.qpair.respond(now, slot, status, 0),
            Ok(TargetIoCommand::Read { offset, length, .. }) => {
                let from = &self.disk[offset as usize..][..length as usize];
                self.commands[usize::from(slot)] = Some((sqe, from.to_vec()));
                self.qpair.respond_with_data(now, slot, length, 0);
            }
            Ok(TargetIoCommand::Write { offset, length, .. }) => {
                self.disk[offset as usize..][..length as usize].copy_from_slice(&data);
                self.qpair.respond(now, slot, Status::SUCCESS, 0);
            }
            Ok(_) => self.qpair.respond(now, slot, Status::SUCCESS, 0),
        }
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    fn command(&mut self, slot: u16) -> &mut (Sqe, Vec<u8>) {
        self.commands[usize::from(slot)].as_mut().expect("the slot has a command")
    }

    fn data(&mut self, slot: u16) -> &mut Vec<u8> {
        &mut self.command(slot).1
    }

    /// Ends the turn. Returns all bytes that left.
    pub fn send(&mut self, now: Instant) -> Vec<u8> {
        self.qpair.batcher().drained(now);
        self.released().concat()
    }

    /// Returns the caravans released so far.
    pub fn released(&mut self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            let mut caravan = Manifest::default();
            if !self.qpair.poll_tx(&mut caravan) {
                return out;
            }
            let commands = &self.commands;
            out.push(caravan.bytes(|slot| match &commands[usize::from(slot)] {
                Some((_, data)) => &data[..],
                None => &[],
            }));
            self.qpair.sent(|slot, _, _| self.commands[usize::from(slot)] = None);
        }
    }
}
