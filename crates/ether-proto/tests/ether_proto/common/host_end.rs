//! A host queue pair with a buffer for each slot.

use super::{BLOCK, Delivery, PairSetup};
use roadtrain_host_proto::qpair::{CommandTransfer, HostQpair, HostQpairConfig, HostRxEvent};
use roadtrain_proto::error::QpairError;
use roadtrain_proto::manifest::Manifest;
use roadtrain_proto::policy::Urgency;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::fabrics::{Connect, ConnectData, cattr};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::zerocopy::IntoBytes;

/// A completed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCompletion {
    pub slot: u16,
    pub cqe: Cqe,
    pub data_intact: bool,
    pub data: Vec<u8>,
}

pub struct PairHostEnd {
    pub qpair: HostQpair,
    pub data: Vec<Vec<u8>>,
    inbox: Vec<u8>,
    done: Vec<HostCompletion>,
}

impl PairHostEnd {
    pub fn new(now: Instant, config: HostQpairConfig) -> Self {
        let qpair = HostQpair::new(now, config);
        PairHostEnd { qpair, data: vec![Vec::new(); 1024], inbox: Vec::new(), done: Vec::new() }
    }

    pub fn submit(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: CommandTransfer,
        buffer: Vec<u8>,
    ) -> u16 {
        self.submit_as(now, sqe, data, buffer, Urgency::Normal)
    }

    pub fn submit_as(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: CommandTransfer,
        buffer: Vec<u8>,
        urgency: Urgency,
    ) -> u16 {
        let slot = self.qpair.submit(now, sqe, data, urgency).expect("the queue has room");
        self.data[usize::from(slot)] = buffer;
        slot
    }

    pub fn connect(&mut self, now: Instant, setup: &PairSetup) -> u16 {
        let flow_control = if setup.sq_flow_control { 0 } else { cattr::DISABLE_SQ_FLOW_CONTROL };
        let (sqsize, cattr) = (setup.entries - 1, flow_control | setup.class.to_cattr());
        let connect = Connect { recfmt: 0, qid: 1, sqsize, cattr, kato_ms: 0 };
        let data = ConnectData::new([7; 16], 1, "nqn.2026-11.test:s", "nqn.2026-11.test:h");
        let bytes = data.as_bytes().to_vec();
        let sqe = connect.emit();
        self.submit_as(now, &sqe, CommandTransfer::Out(bytes.len() as u32), bytes, Urgency::Urgent)
    }

    pub fn read(&mut self, now: Instant, slba: u64, blocks: u32) -> u16 {
        let length = blocks * BLOCK;
        let sqe = Sqe::rw(opcode::READ, 1, slba, blocks);
        self.submit(now, &sqe, CommandTransfer::In(length), vec![0; length as usize])
    }

    pub fn write(&mut self, now: Instant, slba: u64, data: Vec<u8>) -> u16 {
        let length = data.len() as u32;
        let sqe = Sqe::rw(opcode::WRITE, 1, slba, length / BLOCK);
        self.submit(now, &sqe, CommandTransfer::Out(length), data)
    }

    pub fn flush(&mut self, now: Instant) -> u16 {
        let sqe = Sqe::new(opcode::FLUSH, 1);
        self.submit_as(now, &sqe, CommandTransfer::None, Vec::new(), Urgency::Urgent)
    }

    /// Ends the turn. Returns all bytes that a doorbell has released.
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
            out.push(caravan.bytes(|slot| &self.data[usize::from(slot)]));
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
                    let into = &mut self.data[usize::from(slot)][offset as usize..][..length];
                    into.copy_from_slice(&bytes[..length]);
                    self.qpair.placed(&bytes[..length]);
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
        loop {
            let data = &mut self.data;
            let fill = |slot, offset, from: &[u8]| {
                data[usize::from(slot)][offset as usize..][..from.len()].copy_from_slice(from);
            };
            let Some(event) = self.qpair.poll_rx(now, &self.inbox, &mut at, fill)? else { break };
            match event {
                HostRxEvent::Ready => {}
                HostRxEvent::Complete { slot, cqe, data_intact } => {
                    let data = std::mem::take(&mut self.data[usize::from(slot)]);
                    self.done.push(HostCompletion { slot, cqe, data_intact, data });
                }
            }
        }
        self.inbox.drain(..at);
        Ok(())
    }

    pub fn take_completions(&mut self) -> Vec<HostCompletion> {
        std::mem::take(&mut self.done)
    }
}
