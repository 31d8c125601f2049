//! The two ends of a lane, each a queue pair at a port.

use super::{CostStep, StepTimes, now};
use anyhow::{Context, bail, ensure};
use roadtrain_ether_port::port::{Port, PortConfig, PortKind};
use roadtrain_ether_proto::channel::ChannelConfig;
use roadtrain_ether_proto::frame_writer::FrameWriter;
use roadtrain_ether_proto::links::LaneLinks;
use roadtrain_ether_proto::{Item, Packing, host_queue as host, target_queue as target};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::{PolicyConfig, PolicyKind, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{FrameHeader, MacAddress, PAGE_BYTES, parse};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;

const HOST_SOCKET: u16 = 0x0101;
const TARGET_SOCKET: u16 = 0x0202;
const HOST_TOKEN: u64 = 0x1111_0000_0000_0001;
const TARGET_TOKEN: u64 = 0x2222_0000_0000_0002;
const SLOTS: u16 = 128;
const PAGES: u32 = 4096;
const PIECE_BYTES: u16 = PAGE_BYTES as u16;
const FRAME_BYTES: u16 = 9000;
const WINDOW: u16 = 1024;
/// Far beyond the caches, as the target's memory is.
const MEMORY_BYTES: usize = 64 << 20;
const ETHERNET_BYTES: usize = 14;
/// Most reads of the ring for a frame that was just sent; more of them mean a fault.
const READS_MAX: usize = 10_000_000;

/// A port, and where its frames go.
struct CostEnd {
    port: Port,
    peer: MacAddress,
}

/// Frames whose payload is part of `data`.
struct PayloadFrames<'a> {
    end: &'a mut CostEnd,
    data: &'a [u8],
}

impl FrameWriter for PayloadFrames<'_> {
    fn has_room(&self, _link: u8) -> bool {
        self.end.port.has_room()
    }

    fn begin(&mut self, _link: u8) {
        self.end.port.begin();
    }

    fn bytes(&mut self, length: usize) -> &mut [u8] {
        self.end.port.bytes(length)
    }

    fn payload(&mut self, _slot: u16, offset: u32, length: u32) {
        let data = &self.data[offset as usize..][..length as usize];
        // SAFETY: the data stays where it is until the port is flushed.
        unsafe { self.end.port.payload(data.as_ptr(), data.len()) };
    }

    fn end(&mut self, header: FrameHeader) {
        self.end.port.end(self.end.peer, header);
    }
}

impl CostEnd {
    fn new(interface: &str, socket_number: u16) -> anyhow::Result<Self> {
        let config = PortConfig { kind: PortKind::Packet, ..PortConfig::default() };
        let port = Port::open(interface, socket_number, &config).context("open a port")?;
        Ok(Self { port, peer: MacAddress::default() })
    }

    fn send(&mut self) -> anyhow::Result<()> {
        let sent = self.port.flush()?;
        ensure!(sent.refused == 0, "the kernel has refused a frame");
        Ok(())
    }

    /// Shows the frame that has been sent to this end.
    fn take(&mut self, mut show: impl FnMut(&[u8])) -> anyhow::Result<()> {
        for _ in 0..READS_MAX {
            if self.port.receive(1, &mut show) > 0 {
                return Ok(());
            }
        }
        bail!("a frame was lost")
    }
}

fn links(own: u64, peer: u64, socket_number: u16, peer_socket_number: u16) -> LaneLinks<Item> {
    let mut links = LaneLinks::new(own, peer, socket_number);
    let channel = ChannelConfig {
        link: 0,
        first_tx: 1,
        first_rx: 1,
        window: WINDOW,
        frame_bytes: FRAME_BYTES,
    };
    links.add(Instant(now()), &channel, peer_socket_number);
    links
}

/// Random places in a large memory, page by page.
fn place(number: usize) -> usize {
    let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    mixed as usize % (MEMORY_BYTES / PAGE_BYTES) * PAGE_BYTES
}

pub(super) struct CostHost {
    end: CostEnd,
    qpair: host::EtherHostQpair,
    /// The callers' buffers.
    memory: Vec<u8>,
    place: usize,
}

impl CostHost {
    pub(super) fn new(interface: &str) -> anyhow::Result<Self> {
        let config = host::EtherHostConfig {
            queue_entries: SLOTS,
            pages: PAGES,
            piece_bytes: PIECE_BYTES,
            data_bytes_max: 1 << 20,
            policy: PolicyConfig::of(PolicyKind::None),
            packing: Packing::default(),
            body_crc: false,
        };
        let links = links(HOST_TOKEN, TARGET_TOKEN, HOST_SOCKET, TARGET_SOCKET);
        Ok(Self {
            end: CostEnd::new(interface, HOST_SOCKET)?,
            qpair: host::EtherHostQpair::new(config, links),
            memory: vec![1; MEMORY_BYTES],
            place: 0,
        })
    }

    /// Each learns the other's address.
    pub(super) fn meet(&mut self, target: &mut CostTarget) {
        self.end.peer = target.end.port.mac();
        target.end.peer = self.end.port.mac();
    }

    pub(super) fn submit(&mut self, number: usize, reads: bool) -> anyhow::Result<()> {
        let bytes = PAGE_BYTES as u32;
        let (opcode, data) = match reads {
            true => (opcode::READ, CommandTransfer::In(bytes)),
            false => (opcode::WRITE, CommandTransfer::Out(bytes)),
        };
        self.place = place(number + MEMORY_BYTES);
        let sqe = Sqe::rw(opcode, 1, number as u64, 8);
        let at = Instant(now());
        self.qpair.submit(at, &sqe, data, Urgency::Normal).context("no room for a request")?;
        Ok(())
    }

    pub(super) fn pack(&mut self) {
        let at = Instant(now());
        self.qpair.batcher().drained(at);
        let data = &self.memory[self.place..][..PAGE_BYTES];
        self.qpair.poll_tx(at, &mut PayloadFrames { end: &mut self.end, data });
    }

    pub(super) fn send(&mut self) -> anyhow::Result<()> {
        self.end.send()
    }

    /// Takes the answer; whether the request is complete.
    pub(super) fn receive(&mut self, steps: &mut StepTimes) -> anyhow::Result<bool> {
        let Self { end, qpair, memory, place } = self;
        let mut is_complete = false;
        end.take(|frame| {
            let Ok((header, kind, body)) = parse(&frame[ETHERNET_BYTES..]) else { return };
            steps.end(CostStep::HostTakes);
            qpair.receive(Instant(now()), &header, kind, body, &mut |event| match event {
                host::EtherHostEvent::Data { offset, start, length, .. } => {
                    let (at, length) = (*place + offset as usize, length as usize);
                    memory[at..][..length].copy_from_slice(&body[start..][..length]);
                }
                host::EtherHostEvent::Complete { data_intact, .. } => is_complete = data_intact,
            });
            steps.end(CostStep::HostHandles);
        })?;
        Ok(is_complete)
    }
}

pub(super) struct CostTarget {
    end: CostEnd,
    qpair: target::EtherTargetQpair,
    damq: Vec<u8>,
    memory: Vec<u8>,
    place: usize,
}

/// A command that is there with its data.
#[derive(Clone, Copy)]
pub(super) struct ReceivedCommand {
    slot: u16,
    /// In the damq.
    place: usize,
    number: usize,
}

impl CostTarget {
    pub(super) fn new(interface: &str) -> anyhow::Result<Self> {
        let config = target::EtherTargetConfig {
            slots: SLOTS,
            pages: PAGES,
            piece_bytes: PIECE_BYTES,
            data_bytes_max: 1 << 20,
            policy: PolicyConfig::of(PolicyKind::None),
            packing: Packing::default(),
            body_crc: false,
        };
        let links = links(TARGET_TOKEN, HOST_TOKEN, TARGET_SOCKET, HOST_SOCKET);
        let mut qpair = target::EtherTargetQpair::new(config, links);
        qpair.set_connected(1, SLOTS, false, Default::default());
        Ok(Self {
            end: CostEnd::new(interface, TARGET_SOCKET)?,
            qpair,
            damq: vec![1; PAGES as usize * PAGE_BYTES],
            memory: vec![2; MEMORY_BYTES],
            place: 0,
        })
    }

    /// Takes the command, and its data to the damq.
    pub(super) fn receive(&mut self, steps: &mut StepTimes) -> anyhow::Result<ReceivedCommand> {
        let Self { end, qpair, damq, .. } = self;
        let mut command = None;
        end.take(|frame| {
            let Ok((header, kind, body)) = parse(&frame[ETHERNET_BYTES..]) else { return };
            steps.end(CostStep::TargetTakes);
            qpair.receive(Instant(now()), &header, kind, body, &mut |event| match event {
                target::EtherTargetEvent::Data { place, start, length, .. } => {
                    let (place, length) = (place as usize, length as usize);
                    damq[place..][..length].copy_from_slice(&body[start..][..length]);
                }
                target::EtherTargetEvent::Command { slot, sqe, place, .. } => {
                    let number = sqe.slba() as usize;
                    command = Some(ReceivedCommand { slot, place: place as usize, number });
                }
                target::EtherTargetEvent::Released { .. } => {}
            });
            steps.end(CostStep::TargetHandles);
        })?;
        command.context("a frame without a command")
    }

    /// Executes the command as a namespace in memory does, and completes it.
    pub(super) fn answer(&mut self, command: ReceivedCommand, reads: bool) {
        let at = Instant(now());
        self.place = place(command.number);
        if reads {
            self.qpair.respond_with_data(at, command.slot, PAGE_BYTES as u32, 0);
            return;
        }
        let data = &self.damq[command.place..][..PAGE_BYTES];
        self.memory[self.place..][..PAGE_BYTES].copy_from_slice(data);
        self.qpair.respond(at, command.slot, Status::SUCCESS, 0);
    }

    pub(super) fn pack(&mut self) {
        let at = Instant(now());
        self.qpair.batcher().drained(at);
        let data = &self.memory[self.place..][..PAGE_BYTES];
        self.qpair.poll_tx(at, &mut PayloadFrames { end: &mut self.end, data });
    }

    pub(super) fn send(&mut self) -> anyhow::Result<()> {
        self.end.send()
    }
}
