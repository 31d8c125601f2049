//! A host's connection: queue pair, received bytes, the caravan in flight, and the data of commands.

use crate::disk::BLOCK_BYTES;
use crate::ends::{ConnEnd, ConnId, ConnectionArrival, ConnectionLost};
use crate::network::Network;
use crate::plan::SimPlan;
use crate::request::LoadRequest;
use crate::transport::{CompletedCommand, QueueOpening, SimHostEnd};
use crate::wire::TcpWire;
use roadtrain_host_proto::qpair::{CommandTransfer, HostQpair, HostQpairConfig, HostRxEvent};
use roadtrain_host_proto::requests::RequestQueue;
use roadtrain_proto::manifest::Manifest;
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;

/// Host end of a connection.
pub struct TcpHostEnd {
    conn: ConnId,
    wire: TcpWire,
    /// Queue pair.
    pub qpair: HostQpair,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    buffers: Vec<Vec<u8>>,
    placed: bool,
    caravan_parts: usize,
}

/// Queue of a lane: the link holds the request's buffer while its command is in flight.
impl RequestQueue<LoadRequest> for TcpHostEnd {
    fn room(&self) -> u32 {
        self.qpair.room()
    }

    fn in_flight(&self) -> u32 {
        self.qpair.in_flight()
    }

    fn submit(&mut self, now: Instant, request: &mut LoadRequest) -> Option<u16> {
        let slot = match &request.compare {
            Some(compare) => {
                let sqes = (compare, &request.sqe);
                self.qpair.submit_fused(now, sqes, BLOCK_BYTES as u32, request.urgency)?
            }
            None => self.qpair.submit(now, &request.sqe, request.data, request.urgency)?,
        };
        self.buffers[usize::from(slot)] = std::mem::take(&mut request.buffer);
        Some(slot)
    }
}

impl TcpHostEnd {
    /// Returns its connection.
    pub fn id(&self) -> ConnId {
        self.conn
    }

    /// Connects to a target.
    pub fn new(
        (now, queue): (Instant, QueueOpening),
        config: HostQpairConfig,
        network: &mut Network,
        plan: &SimPlan,
        placed: bool,
    ) -> Self {
        let conn = network.connect(now, queue.target, queue.hostid);
        TcpHostEnd {
            conn,
            wire: TcpWire::new(plan, conn, ConnEnd::Host),
            qpair: HostQpair::new(now, config),
            inbox: Vec::new(),
            outbox: Vec::new(),
            buffers: vec![Vec::new(); config.queue_entries.into()],
            placed,
            caravan_parts: plan.caravan_parts,
        }
    }

    fn poll(
        &mut self,
        now: Instant,
        completed: &mut Vec<CompletedCommand>,
    ) -> Result<(), ConnectionLost> {
        let mut at = 0;
        let input = std::mem::take(&mut self.inbox);
        loop {
            let buffers = &mut self.buffers;
            let fill = |slot, offset, data: &[u8]| place(buffers, slot, offset, data);
            let event =
                self.qpair.poll_rx(now, &input, &mut at, fill).map_err(|_| ConnectionLost)?;
            let Some(event) = event else { break };
            match event {
                HostRxEvent::Ready => {}
                HostRxEvent::Complete { slot, cqe, data_intact } => {
                    let data = self.take_buffer(slot);
                    completed.push(CompletedCommand { slot, cqe, data_intact, data });
                }
            }
        }
        self.inbox = input[at..].to_vec();
        Ok(())
    }
}

/// Copies data to its destination in a command's buffer.
fn place(buffers: &mut [Vec<u8>], slot: u16, offset: u32, data: &[u8]) {
    buffers[usize::from(slot)][offset as usize..][..data.len()].copy_from_slice(data);
}

impl SimHostEnd for TcpHostEnd {
    type Network = Network;

    fn opened(&self) -> Option<u32> {
        Some(u32::MAX)
    }

    fn set_policy(&mut self, policy: PolicyConfig) {
        self.qpair.set_policy(policy);
    }

    fn cid(&self, slot: u16) -> u16 {
        self.qpair.cid(slot)
    }

    fn deadline(&mut self) -> Option<Instant> {
        self.qpair.batcher().deadline().into_iter().chain(self.wire.deadline()).min()
    }

    fn run(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: CommandTransfer,
        buffer: Vec<u8>,
    ) -> Option<u16> {
        let slot = self.qpair.submit(now, sqe, data, Urgency::Urgent)?;
        self.buffers[usize::from(slot)] = buffer;
        Some(slot)
    }

    fn take_buffer(&mut self, slot: u16) -> Vec<u8> {
        std::mem::take(&mut self.buffers[usize::from(slot)])
    }

    fn receive(
        &mut self,
        now: Instant,
        network: &mut Network,
        completed: &mut Vec<CompletedCommand>,
    ) -> Result<(), ConnectionLost> {
        while let Some(arrival) = network.receive(now, self.conn, ConnEnd::Host) {
            let ConnectionArrival::Bytes(bytes) = arrival else { return Err(ConnectionLost) };
            let bytes = self.wire.receive(now, bytes);
            let mut bytes = &bytes[..];
            while !bytes.is_empty() {
                let wanted = self.qpair.wanted().filter(|_| self.placed);
                if let Some((slot, offset, length)) = wanted {
                    let (data, rest) = bytes.split_at(bytes.len().min(length as usize));
                    place(&mut self.buffers, slot, offset, data);
                    self.qpair.placed(data);
                    bytes = rest;
                } else {
                    let length = if self.placed { bytes.len().min(24) } else { bytes.len() };
                    self.inbox.extend_from_slice(&bytes[..length]);
                    bytes = &bytes[length..];
                }
                self.poll(now, completed)?;
            }
        }
        if self.wire.ends() { Err(ConnectionLost) } else { Ok(()) }
    }

    fn end_turn(&mut self, now: Instant, network: &mut Network) {
        self.qpair.batcher().expire(now);
        self.qpair.batcher().drained(now);
        loop {
            let sent = self.wire.send(now, network, &self.outbox);
            self.outbox.drain(..sent);
            let mut caravan = Manifest::with_capacity(self.caravan_parts);
            if !self.outbox.is_empty() || !self.qpair.poll_tx(&mut caravan) {
                break;
            }
            self.outbox = caravan.bytes(|slot| &self.buffers[usize::from(slot)]);
        }
        assert!(!self.qpair.has_tx() || !self.outbox.is_empty(), "released work is left behind");
        let batcher = self.qpair.batcher();
        let held = batcher.backlog().requests > 0;
        assert!(!held || batcher.deadline().is_some_and(|at| at > now), "held work has no wake-up");
    }

    fn close(&mut self, now: Instant, network: &mut Network, orderly: bool) {
        self.wire.close(now, network, orderly);
    }
}
