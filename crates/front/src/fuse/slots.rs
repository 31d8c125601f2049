//! The memory of requests: each slot has a header and a payload, both shared with the kernel.
//!
//! A slot belongs to the ring or to the device. A ring slot's memory is registered: the kernel puts a request in and
//! takes the reply out. A device slot's request is read into it, and its reply written from it. The header is laid out
//! as [`RingHeader`] in both cases, so that other modules need not distinguish them.

use super::device::FuseDevice;
use super::tree::{FuseWork, TRANSFER_BYTES_MAX};
use roadtrain_host_engine::UringCommand as Command;
use roadtrain_system::buffer::{Arena, Buffer};
use roadtrain_wire::fuse::{
    FuseRingCommand, InHeader, Opcode, OutHeader, RingEntry, RingHeader, ring_op,
};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::RawFd;

/// Bytes of a slot's payload.
pub(super) const PAYLOAD_BYTES: usize = TRANSFER_BYTES_MAX as usize;
/// Bytes from one header to the next.
const STRIDE_BYTES: usize = 512;
/// Offset, behind the header, of the two iovecs that describe a slot's memory to the kernel.
const PIECES_OFFSET: usize = 320;
const ARGS_BYTES: usize = 128;
/// Bytes of the arguments of Read and Write, which are read between the header and the payload.
const FRONT_ARGS_BYTES: usize = 40;

/// Origin of a slot's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotOrigin {
    /// `/dev/fuse`.
    Device,
    /// The ring's queue of this number.
    Ring(u16),
}

struct FuseSlot {
    origin: SlotOrigin,
    /// Payload buffer; `None` while the lane has it.
    payload: Option<Buffer>,
    /// Disk work of the slot's request.
    work: Option<FuseWork>,
}

/// All slots of a reactor.
pub(super) struct FuseSlots {
    headers: Buffer,
    slots: Vec<FuseSlot>,
    /// Slots of the device without a request.
    free: Vec<usize>,
}

impl FuseSlots {
    /// Makes `device_slots` slots for the device and `depth` for each of `queues`.
    ///
    /// # Errors
    /// Fails without address space. Memory is mapped, not touched: unused slots take none.
    pub(super) fn new(device_slots: usize, queues: &[u16], depth: usize) -> io::Result<Self> {
        let device = std::iter::repeat_n(SlotOrigin::Device, device_slots);
        let of_queue = |&queue| std::iter::repeat_n(SlotOrigin::Ring(queue), depth);
        let origins = device.chain(queues.iter().flat_map(of_queue));
        let payloads = Arena::new(device_slots + queues.len() * depth, PAYLOAD_BYTES)?;
        let slot = |(origin, payload)| FuseSlot { origin, payload: Some(payload), work: None };
        let slots: Vec<FuseSlot> = origins.zip(payloads).map(slot).collect();
        let headers = Buffer::alloc(slots.len() * STRIDE_BYTES);
        Ok(FuseSlots { headers, slots, free: (0..device_slots).rev().collect() })
    }

    /// Makes an empty set.
    pub(super) fn none() -> Self {
        FuseSlots { headers: Buffer::alloc(0), slots: Vec::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn origin(&self, slot: usize) -> SlotOrigin {
        self.slots[slot].origin
    }

    /// True if a slot of the device holds no request.
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Reads a request from the device into a free slot. Returns `None` if no request is pending.
    pub(super) fn receive(&mut self, device: &FuseDevice) -> io::Result<Option<usize>> {
        let Some(&slot) = self.free.last() else { return Ok(None) };
        let header = &mut self.headers[slot * STRIDE_BYTES..][..STRIDE_BYTES];
        let (in_out, args) = header.split_at_mut(RingHeader::OP_IN_OFFSET);
        let (front_args, more_args) = args[..ARGS_BYTES].split_at_mut(FRONT_ARGS_BYTES);
        let payload = self.slots[slot].payload.get_or_insert_with(|| Buffer::alloc(PAYLOAD_BYTES));
        payload.set_len(PAYLOAD_BYTES);
        let in_header = &mut in_out[..size_of::<InHeader>()];
        if device.receive([&mut *in_header, front_args, payload].map(IoSliceMut::new))? == 0 {
            return Ok(None);
        }
        self.free.pop();
        let request = InHeader::read_from_bytes(in_header).unwrap_or_default();
        if !is_read_or_write(request.opcode()) {
            more_args.copy_from_slice(&payload[..more_args.len()]);
        }
        Ok(Some(slot))
    }

    /// Prepares a slot of the ring into which the kernel has put a request.
    pub(super) fn arrive(&mut self, slot: usize) {
        let Some(payload) = &mut self.slots[slot].payload else { return };
        payload.set_len(PAYLOAD_BYTES);
        // A LOOKUP's name comes as payload over io_uring.
        if self.header(slot).opcode() == Opcode::LOOKUP
            && let Some(payload) = &self.slots[slot].payload
        {
            let at = slot * STRIDE_BYTES + RingHeader::OP_IN_OFFSET;
            self.headers[at..][..ARGS_BYTES].copy_from_slice(&payload[..ARGS_BYTES]);
        }
    }

    /// Returns the request's header.
    pub(super) fn header(&self, slot: usize) -> InHeader {
        let header = &self.headers[slot * STRIDE_BYTES..][..size_of::<InHeader>()];
        InHeader::read_from_bytes(header).unwrap_or_default()
    }

    /// Returns the request's arguments, and the buffer for data of the reply.
    pub(super) fn args_and_room(&mut self, slot: usize) -> (&[u8], &mut [u8]) {
        let args = &self.headers[slot * STRIDE_BYTES + RingHeader::OP_IN_OFFSET..][..ARGS_BYTES];
        let room = self.slots[slot].payload.as_deref_mut().unwrap_or_default();
        (args, room)
    }

    /// Returns the payload of a Write, or the buffer for the data of a Read.
    pub(super) fn payload(&mut self, slot: usize) -> &mut [u8] {
        self.slots[slot].payload.as_deref_mut().unwrap_or_default()
    }

    /// Takes the payload buffer out, for the lane.
    pub(super) fn take_payload(&mut self, slot: usize) -> Option<Buffer> {
        self.slots[slot].payload.take()
    }

    /// True if the slot has its payload buffer.
    pub(super) fn has_payload(&self, slot: usize) -> bool {
        self.slots[slot].payload.is_some()
    }

    /// Puts the payload buffer back from the lane.
    pub(super) fn put_payload(&mut self, slot: usize, mut payload: Buffer) {
        payload.set_len(PAYLOAD_BYTES);
        self.slots[slot].payload = Some(payload);
    }

    /// Returns the disk work of the request.
    pub(super) fn work(&mut self, slot: usize) -> &mut Option<FuseWork> {
        &mut self.slots[slot].work
    }

    /// Answers the request of a device slot with an errno or bytes of the payload, and frees the slot.
    pub(super) fn send(
        &mut self,
        slot: usize,
        device: &FuseDevice,
        result: Result<usize, i32>,
    ) -> io::Result<()> {
        let header = self.out_header(slot, result);
        let bytes = result.unwrap_or(0);
        let data = self.slots[slot].payload.as_deref().unwrap_or_default();
        let data = data.get(..bytes).unwrap_or_default();
        let sent = device.send([header.as_bytes(), data].map(IoSlice::new));
        self.release(slot);
        sent
    }

    /// Frees a device slot without a reply.
    pub(super) fn release(&mut self, slot: usize) {
        self.free.push(slot);
    }

    /// Returns the command that registers a ring slot with the kernel.
    pub(super) fn registration(&mut self, slot: usize, fd: RawFd) -> Option<Command> {
        let payload = self.slots[slot].payload.as_mut()?.as_mut_ptr().expose_provenance();
        let header = self.headers.as_mut_ptr().expose_provenance() + slot * STRIDE_BYTES;
        let pieces = [header, size_of::<RingHeader>(), payload, PAYLOAD_BYTES];
        let at = slot * STRIDE_BYTES + PIECES_OFFSET;
        self.headers[at..][..size_of_val(&pieces)].copy_from_slice(pieces.as_bytes());
        let address = (header + PIECES_OFFSET) as u64;
        let command = self.command(slot, fd, ring_op::REGISTER, 0)?;
        Some(Command { address, length: 2, ..command })
    }

    /// Puts the reply into a ring slot and returns the command that commits it. Returns `None` if the payload buffer is
    /// lost: the kernel must not access its address then.
    pub(super) fn commit(
        &mut self,
        slot: usize,
        fd: RawFd,
        result: Result<usize, i32>,
    ) -> Option<Command> {
        self.slots[slot].payload.as_ref()?;
        let out = self.out_header(slot, result);
        let header = &mut self.headers[slot * STRIDE_BYTES..][..size_of::<RingHeader>()];
        header[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        let entry = &mut header[RingHeader::ENTRY_OFFSET..];
        let entry_before = RingEntry::read_from_bytes(entry).ok()?;
        let payload_size = result.unwrap_or(0) as u32;
        entry.copy_from_slice(RingEntry { payload_size, ..entry_before }.as_bytes());
        self.command(slot, fd, ring_op::COMMIT_AND_FETCH, entry_before.commit_id)
    }

    fn command(&self, slot: usize, fd: RawFd, op: u32, commit_id: u64) -> Option<Command> {
        let SlotOrigin::Ring(qid) = self.slots[slot].origin else { return None };
        let own = FuseRingCommand { commit_id, qid, ..FuseRingCommand::default() };
        let mut payload = [0; 80];
        payload[..size_of::<FuseRingCommand>()].copy_from_slice(own.as_bytes());
        Some(Command { fd, op, address: 0, length: 0, payload })
    }

    fn out_header(&self, slot: usize, result: Result<usize, i32>) -> OutHeader {
        let bytes = size_of::<OutHeader>() + result.unwrap_or(0);
        let error = result.err().map_or(0, |errno| -errno);
        OutHeader { len: bytes as u32, error, unique: self.header(slot).unique }
    }
}

fn is_read_or_write(opcode: Opcode) -> bool {
    opcode == Opcode::READ || opcode == Opcode::WRITE
}

#[cfg(test)]
mod tests;
