use super::*;
use crate::fuse::device::Kernel;
use roadtrain_wire::fuse::{ReadIn, WriteIn};

fn header(opcode: Opcode, unique: u64) -> InHeader {
    InHeader { opcode: opcode.0, unique, nodeid: 2, ..InHeader::default() }
}

#[test]
fn a_write_is_read_with_its_payload_apart() {
    let (kernel, device) = Kernel::new();
    let mut slots = FuseSlots::new(2, &[], 0).unwrap();
    let write = WriteIn { offset: 512, size: 3000, ..WriteIn::default() };
    let data: Vec<u8> = (0..3000).map(|at| (at % 251) as u8).collect();
    kernel.send_request(&[header(Opcode::WRITE, 9).as_bytes(), write.as_bytes(), &data]);
    let slot = slots.receive(&device).unwrap().unwrap();
    assert_eq!((slots.header(slot).unique, slots.origin(slot)), (9, SlotOrigin::Device));
    let (args, payload) = slots.args_and_room(slot);
    let (args, _) = WriteIn::read_from_prefix(args).unwrap();
    assert_eq!((args.offset, args.size), (512, 3000));
    assert_eq!(payload[..3000], data);
    assert_eq!(payload.as_ptr().addr() % 4096, 0, "as the lane wants it");
    assert!(slots.receive(&device).unwrap().is_none(), "nothing more is there");
    slots.send(slot, &device, Ok(8)).unwrap();
    let (answer, bytes) = kernel.answer();
    assert_eq!((answer.unique, answer.error, answer.len), (9, 0, 24));
    assert_eq!(bytes, data[..8]);
}

#[test]
fn long_arguments_come_in_one_piece() {
    let (kernel, device) = Kernel::new();
    let mut slots = FuseSlots::new(1, &[], 0).unwrap();
    let args: Vec<u8> = (1..=88).collect();
    kernel.send_request(&[header(Opcode::SETATTR, 1).as_bytes(), &args]);
    let slot = slots.receive(&device).unwrap().unwrap();
    assert_eq!(slots.args_and_room(slot).0[..88], args);
    assert!(!slots.has_free());
    slots.send(slot, &device, Err(libc::EPERM)).unwrap();
    assert_eq!(kernel.answer().0.error, -libc::EPERM);
    assert!(slots.has_free());
}

#[test]
fn a_ring_slot_registers_its_memory() {
    let mut slots = FuseSlots::new(1, &[3, 5], 2).unwrap();
    assert_eq!(slots.len(), 5);
    let origins: Vec<_> = (0..5).map(|slot| slots.origin(slot)).collect();
    assert_eq!(origins[..2], [SlotOrigin::Device, SlotOrigin::Ring(3)]);
    assert_eq!(origins[2..], [SlotOrigin::Ring(3), SlotOrigin::Ring(5), SlotOrigin::Ring(5)]);
    let command = slots.registration(3, 77).unwrap();
    assert_eq!((command.fd, command.op, command.length), (77, ring_op::REGISTER, 2));
    let (own, _) = FuseRingCommand::read_from_prefix(&command.payload).unwrap();
    assert_eq!(own, FuseRingCommand { qid: 5, ..FuseRingCommand::default() });
    let at = 3 * STRIDE_BYTES + PIECES_OFFSET;
    let pieces = <[usize; 4]>::read_from_bytes(&slots.headers[at..at + 32]).unwrap();
    let start = slots.headers.as_ptr().addr();
    assert_eq!(pieces[..2], [start + 3 * STRIDE_BYTES, 288]);
    assert_eq!(pieces[2..], [slots.payload(3).as_ptr().addr(), PAYLOAD_BYTES]);
    assert_eq!(command.address as usize, start + at);
    assert!(slots.registration(0, 77).is_none(), "the device's");
}

#[test]
fn a_reply_is_put_where_the_kernel_reads_it() {
    let mut slots = FuseSlots::new(0, &[1], 1).unwrap();
    let entry_before = RingEntry { commit_id: 42, payload_size: 5, ..RingEntry::default() };
    slots.headers[..40].copy_from_slice(header(Opcode::READ, 42).as_bytes());
    let read = ReadIn { size: 4096, ..ReadIn::default() };
    slots.headers[128..168].copy_from_slice(read.as_bytes());
    slots.headers[256..288].copy_from_slice(entry_before.as_bytes());
    slots.arrive(0);
    let command = slots.commit(0, 7, Ok(4096)).unwrap();
    assert_eq!((command.op, command.length), (ring_op::COMMIT_AND_FETCH, 0));
    let (own, _) = FuseRingCommand::read_from_prefix(&command.payload).unwrap();
    assert_eq!((own.commit_id, own.qid), (42, 1));
    let (out, _) = OutHeader::read_from_prefix(&slots.headers).unwrap();
    assert_eq!((out.unique, out.error, out.len), (42, 0, 4112));
    let entry = RingEntry::read_from_bytes(&slots.headers[256..288]).unwrap();
    assert_eq!(entry, RingEntry { payload_size: 4096, ..entry_before });
    // The lane has the payload: the kernel gets nothing.
    let payload = slots.take_payload(0).unwrap();
    assert!(!slots.has_payload(0) && slots.commit(0, 7, Err(libc::EIO)).is_none());
    slots.put_payload(0, payload);
    slots.commit(0, 7, Err(libc::EIO)).unwrap();
    let (out, _) = OutHeader::read_from_prefix(&slots.headers).unwrap();
    assert_eq!((out.error, out.len), (-libc::EIO, 16));
}

#[test]
fn a_name_that_comes_as_payload_is_an_argument() {
    let mut slots = FuseSlots::new(0, &[0], 1).unwrap();
    slots.headers[..40].copy_from_slice(header(Opcode::LOOKUP, 1).as_bytes());
    slots.payload(0)[..8].copy_from_slice(b"nvme0n1\0");
    slots.arrive(0);
    assert_eq!(slots.args_and_room(0).0[..8], *b"nvme0n1\0");
}
