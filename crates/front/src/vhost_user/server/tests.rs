use super::super::guest::{ChainPart, Guest};
use super::super::ring::{QueueSignals, RingSetup};
use super::harness::{Backend, QUEUE_SIZE, VirtualMachine, write_parts};
use super::*;
use crate::disk::DiskInfo;
use crate::disk::harness::{Mock, MockOptions, patterned};
use crate::disk::test_info;
use proptest::prelude::*;
use roadtrain_host_engine::IoOp;
use roadtrain_system::mailbox::mailbox;
use roadtrain_wire::status::Status;
use roadtrain_wire::virtio_blk::{VirtioBlkConfig, feature, operation};
use roadtrain_wire::zerocopy::FromBytes;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress};

const OK: u8 = RequestStatus::Ok as u8;
const FAILED: u8 = RequestStatus::IoError as u8;

fn options(lba_bytes: u32) -> MockOptions {
    let blocks = u64::from((1 << 20) / lba_bytes);
    MockOptions { info: DiskInfo { lba_bytes, blocks, ..test_info() }, ..MockOptions::default() }
}

fn range(operation: u32, sector: u64, sectors: u32) -> [ChainPart; 3] {
    let header = ChainPart::Read(Guest::header(operation, 0));
    [header, ChainPart::Read(Guest::range(sector, sectors, 0)), ChainPart::Write(1)]
}

#[test]
fn every_request_on_every_queue() {
    let backend = Backend::start(options(512), 2);
    let mut machine = VirtualMachine::start(&backend.path, 3);
    for queue in 0..3 {
        let sector = 100 * queue as u64;
        let data: Vec<u8> = (0..5120).map(|at| (at * 7 + queue) as u8).collect();
        assert_eq!(machine.write(queue, sector, &data), OK);
        let read = machine.read((queue + 1) % 3, sector + 1, 4096);
        assert!(read[..4096] == data[512..4608] && read[4096] == OK);
        let flush = [ChainPart::Read(Guest::header(operation::FLUSH, 0)), ChainPart::Write(1)];
        assert_eq!(machine.call(queue, &flush), [OK]);
        assert_eq!(machine.call(queue, &range(operation::WRITE_ZEROES, sector, 3)), [OK]);
        assert_eq!(machine.call(queue, &range(operation::DISCARD, sector + 4, 2)), [OK]);
        let read = machine.read(queue, sector, 3072);
        assert!(read[..1536] == [0; 1536] && read[1536..2048] == data[1536..2048]);
        assert!(read[2048..3072] == [0xdd; 1024]);
        let identify = [
            ChainPart::Read(Guest::header(operation::GET_ID, 0)),
            ChainPart::Write(20),
            ChainPart::Write(1),
        ];
        assert_eq!(machine.call(queue, &identify), [&[b'0', b'7'].repeat(10)[..], &[OK]].concat());
        let unknown = [ChainPart::Read(Guest::header(77, 0)), ChainPart::Write(1)];
        assert_eq!(machine.call(queue, &unknown), [RequestStatus::Unsupported as u8]);
    }
    drop(machine);
    backend.stop();
}

/// Virtio 1.2, 5.2.6.2: a guest that does not take FLUSH cannot request stable writes otherwise.
#[test]
fn writes_of_a_guest_without_flush_are_stable() {
    for (declined, stable) in [(0, false), (feature::FLUSH, true)] {
        let backend = Backend::start(options(4096), 1);
        let mut machine = VirtualMachine::declining(&backend.path, 1, declined);
        assert_eq!(machine.write(0, 0, &[1; 4096]), OK);
        assert_eq!(machine.write(0, 9, &[2; 512]), OK, "a part of a block");
        assert_eq!(machine.call(0, &range(operation::WRITE_ZEROES, 0, 16)), [OK]);
        assert_eq!(machine.read(0, 0, 512)[512], OK);
        drop(machine);
        let submitted = backend.stop();
        let writes = |op| matches!(op, IoOp::Write | IoOp::WriteZeroes { .. });
        let count = submitted.iter().filter(|(op, ..)| writes(*op)).count();
        assert!(count >= 3, "{submitted:?}");
        for (op, _, _, fua, _) in submitted {
            assert_eq!(fua, stable && writes(op), "{op:?}");
        }
    }
}

/// An access to memory that the frontend has cut is a SIGBUS.
#[test]
fn a_guest_whose_memory_is_cut_loses_only_its_queues() {
    let backend = Backend::start(options(512), 1);
    let mut other = VirtualMachine::start(&backend.other_path, 1);
    for _ in 0..3 {
        let mut machine = VirtualMachine::start(&backend.path, 2);
        assert_eq!(machine.write(0, 0, &[1; 512]), OK);
        machine.lines[0].guest.file.set_len(4096).unwrap();
        for queue in 0..2 {
            machine.lines[queue].kick.write(1).unwrap();
            machine.await_error(queue);
        }
        assert_eq!(other.read(0, 0, 512)[512], OK);
        drop(machine);
    }
    let mut machine = VirtualMachine::start(&backend.path, 1);
    assert_eq!(machine.read(0, 0, 512)[..513], [&[1; 512][..], &[OK]].concat());
    drop((machine, other));
    backend.stop();
}

#[test]
fn sectors_of_larger_blocks_are_patched() {
    let backend = Backend::start(options(4096), 1);
    let mut machine = VirtualMachine::start(&backend.path, 1);
    assert_eq!(machine.write(0, 5, &[1; 1024]), OK);
    assert_eq!(machine.write(0, 7, &[2; 9 * 512]), OK);
    let read = machine.read(0, 4, 13 * 512);
    assert_eq!(read[13 * 512], OK);
    let old = |sector: usize| -> Vec<u8> { patterned(sector * 512..(sector + 1) * 512) };
    assert!(read[..512] == old(4) && read[512..1536] == [1; 1024]);
    assert!(read[1536..12 * 512] == [2; 9 * 512] && read[12 * 512..13 * 512] == old(16));
    drop(machine);
    backend.stop();
}

#[test]
fn failures_and_what_the_disk_does_not_have_are_errors() {
    let fails = Some((8, Status::UNRECOVERED_READ_ERROR));
    let backend = Backend::start(MockOptions { fails, ..options(512) }, 1);
    let mut machine = VirtualMachine::start(&backend.path, 1);
    let read = machine.read(0, 8, 512);
    assert_eq!((read[0], read[512]), (0xee, FAILED), "nothing is written but the status");
    assert_eq!(machine.write(0, 8, &[1; 512]), FAILED);
    assert_eq!(machine.read(0, 2047, 1024)[1024], FAILED);
    assert_eq!(machine.write(0, 9, &[1; 512]), OK);
    backend.disk.remove();
    assert_eq!(machine.read(0, 0, 512)[512], FAILED);
    backend.disk.restore();
    assert_eq!(machine.read(0, 0, 512)[512], OK);
    drop(machine);
    backend.stop();
}

/// As many requests as the queues hold, in any order, repeatedly, on a disk that is patched.
#[test]
fn full_queues_lose_and_mix_nothing() {
    let backend = Backend::start(options(4096), 2);
    let mut machine = VirtualMachine::start(&backend.path, 2);
    for round in 0..40u8 {
        for queue in 0..2 {
            for at in 0..u64::from(QUEUE_SIZE) {
                let sector = 1000 * queue as u64 + 5 * at;
                machine.submit(queue, &write_parts(sector, &[round ^ at as u8; 5 * 512]));
            }
        }
        for queue in 0..2 {
            (0..QUEUE_SIZE).for_each(|_| assert_eq!(machine.wait(queue).1, [OK]));
        }
    }
    let data = backend.data.lock().unwrap().clone();
    for at in 0..2 * usize::from(QUEUE_SIZE) {
        let (queue, at) = (at / usize::from(QUEUE_SIZE), at % usize::from(QUEUE_SIZE));
        let start = (1000 * queue + 5 * at) * 512;
        assert!(data[start..start + 2560] == [39 ^ at as u8; 2560], "{queue} {at}");
    }
    drop(machine);
    backend.stop();
}

#[test]
fn a_broken_queue_is_stopped_and_others_are_not() {
    let backend = Backend::start(options(512), 1);
    let mut machine = VirtualMachine::start(&backend.path, 3);
    // A chain without room for the status, after a good one.
    machine.submit(0, &write_parts(0, &[1; 512]));
    machine.submit(0, &[ChainPart::Read(Guest::header(operation::FLUSH, 0))]);
    machine.await_error(0);
    // More chains than the ring holds.
    machine.lines[1].guest.set_avail(QUEUE_SIZE + 1);
    machine.lines[1].kick.write(1).unwrap();
    machine.await_error(1);
    assert_eq!(machine.write(2, 8, &[3; 512]), OK);
    // A reset driver starts anew.
    machine.reset_queue(0);
    assert_eq!(machine.write(0, 16, &[4; 512]), OK);
    assert_eq!(machine.read(2, 16, 512)[..512], [4; 512]);
    drop(machine);
    backend.stop();
}

#[test]
fn a_stopped_queue_goes_on_where_it_was() {
    let backend = Backend::start(options(512), 2);
    let mut machine = VirtualMachine::start(&backend.path, 2);
    for round in 0..3 {
        for sector in 0..8 {
            machine.submit(1, &write_parts(sector, &[round; 512]));
        }
        let base = machine.stop_queue(1);
        // Taken requests are done, the others are left.
        assert_eq!(machine.lines[1].guest.used_index(), base);
        machine.start_queue(1);
        (0..8).for_each(|_| assert_eq!(machine.wait(1).1, [OK]));
    }
    machine.share_memory();
    assert_eq!(machine.read(0, 0, 4096)[..4096], [2; 4096]);
    machine.frontend.set_vring_enable(0, false).unwrap();
    machine.submit(0, &write_parts(0, &[9; 512]));
    assert_eq!(machine.read(1, 0, 512)[..512], [2; 512], "a disabled queue rests");
    machine.frontend.set_vring_enable(0, true).unwrap();
    assert_eq!(machine.wait(0).1, [OK]);
    drop(machine);
    backend.stop();
}

#[test]
fn a_frontend_that_comes_back_finds_its_requests_done_once() {
    let backend = Backend::start(options(512), 2);
    let mut machine = VirtualMachine::start(&backend.path, 2);
    for round in 0..20u8 {
        for at in 0..u64::from(QUEUE_SIZE) {
            machine.submit(0, &write_parts(at, &[round; 512]));
            machine.submit(1, &write_parts(100 + at, &[round; 512]));
        }
        machine = machine.reconnect(&backend.path);
        for queue in 0..2 {
            (0..QUEUE_SIZE).for_each(|_| assert_eq!(machine.wait(queue).1, [OK]));
        }
        let bytes = u32::from(QUEUE_SIZE) * 512;
        assert!(machine.read(0, 100, bytes)[..bytes as usize].iter().all(|&byte| byte == round));
        assert!(machine.read(1, 0, bytes)[..bytes as usize].iter().all(|&byte| byte == round));
    }
    drop(machine);
    backend.stop();
}

#[test]
fn a_new_backend_finishes_what_its_predecessor_had() {
    let first = Backend::start(options(512), 1);
    let mut machine = VirtualMachine::start(&first.path, 2);
    assert_eq!(machine.write(0, 0, &[1; 512]), OK);
    first.stop();
    machine.submit(0, &write_parts(1, &[2; 512]));
    machine.submit(1, &write_parts(2, &[3; 512]));
    let second = Backend::start(options(512), 2);
    let mut machine = machine.reconnect(&second.path);
    assert_eq!((machine.wait(0).1, machine.wait(1).1), (vec![OK], vec![OK]));
    assert!(second.data.lock().unwrap()[512..1536] == [[2; 512], [3; 512]].concat());
    drop(machine);
    second.stop();
}

#[test]
fn a_changed_size_is_reported() {
    let backend = Backend::start(options(512), 1);
    let mut machine = VirtualMachine::start(&backend.path, 1);
    let (mut near, far) = UnixStream::pair().unwrap();
    machine.frontend.set_backend_request_fd(&far).unwrap();
    let capacity = |machine: &mut VirtualMachine| {
        VirtioBlkConfig::read_from_bytes(&machine.config()).unwrap().capacity.get()
    };
    assert_eq!(capacity(&mut machine), 2048);
    backend.disk.resize(4096);
    near.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut message = [0; 12];
    near.read_exact(&mut message).unwrap();
    assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(capacity(&mut machine), 4096);
    assert_eq!(machine.read(0, 2047, 512)[512], OK);
    drop(machine);
    backend.stop();
}

#[test]
fn read_only_disks_say_so() {
    let info = DiskInfo { read_only: true, ..test_info() };
    let backend = Backend::start(MockOptions { info, ..MockOptions::default() }, 1);
    let mut machine = VirtualMachine::start(&backend.path, 1);
    assert_ne!(machine.frontend.get_features().unwrap() & 1 << 5, 0);
    assert_eq!(machine.write(0, 0, &[1; 512]), FAILED);
    assert_eq!(machine.read(0, 0, 512)[512], OK);
    drop(machine);
    backend.stop();
}

/// Two machines with a namespace each, on the same reactors.
#[test]
fn namespaces_have_queues_of_their_own() {
    let backend = Backend::start(options(512), 2);
    let mut machine = VirtualMachine::start(&backend.path, 2);
    let mut other = VirtualMachine::start(&backend.other_path, 3);
    for round in 0..20u8 {
        for queue in 0..2 {
            for at in 0..u64::from(QUEUE_SIZE) {
                machine.submit(queue, &write_parts(at, &[round; 512]));
                other.submit(queue, &write_parts(at, &[0xee; 512]));
            }
        }
        for queue in 0..2 {
            (0..QUEUE_SIZE).for_each(|_| assert_eq!(machine.wait(queue).1, [OK]));
            (0..QUEUE_SIZE).for_each(|_| assert_eq!(other.wait(queue).1, [FAILED], "read-only"));
        }
        assert_eq!(other.read(2, 3, 512)[..512], [round; 512]);
    }
    // One stops, the queues of the other continue.
    drop(machine);
    let mut machine = VirtualMachine::start(&backend.path, 1);
    assert_eq!(machine.write(0, 3, &[77; 512]), OK);
    assert_eq!(other.read(2, 3, 512)[..512], [77; 512]);
    drop((machine, other));
    backend.stop();
}

/// A frontend that never ends its message does not block the stop.
#[test]
fn a_message_without_end_is_not_waited_for() {
    let backend = Backend::start(options(512), 1);
    let mut stream = UnixStream::connect(&backend.path).unwrap();
    // The header of a message of 4096 bytes, which come one by one.
    stream.write_all(&[5, 0, 0, 0, 1, 0, 0, 0, 0, 16, 0, 0]).unwrap();
    let drip = std::thread::spawn(move || {
        while stream.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    backend.stop();
    drip.join().unwrap();
}

#[test]
fn nonsense_ends_a_connection_and_not_the_backend() {
    let backend = Backend::start(options(512), 1);
    for nonsense in [&[0xff; 64][..], &[0; 12], &[5, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255]] {
        let mut stream = UnixStream::connect(&backend.path).unwrap();
        stream.write_all(nonsense).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let ended = stream.read(&mut [0; 64]);
        assert!(!matches!(ended, Ok(1..)), "{ended:?}");
    }
    // Rings outside the memory, a size that is no power of two, queues that do not exist.
    let machine = VirtualMachine::start(&backend.path, 1);
    assert!(machine.frontend.set_vring_num(0, 24).is_err());
    let machine = machine.reconnect(&backend.path);
    assert!(machine.frontend.set_vring_kick(200, &machine.lines[0].kick).is_err());
    let mut machine = machine.reconnect(&backend.path);
    assert_eq!(machine.write(0, 0, &[1; 512]), OK);
    drop(machine);
    backend.stop();
}

/// Returns the setup of a queue of `guest`, without kicks or signals.
fn setup(guest: &Guest) -> Box<RingSetup> {
    Box::new(RingSetup {
        index: 0,
        size: guest.size(),
        descriptors: guest.table(),
        available: guest.avail_ring(),
        used: guest.used_ring(),
        base: 0,
        event_idx: true,
        write_through: false,
        kick: File::open("/dev/null").unwrap(),
        signals: QueueSignals::default(),
        memory: guest.memory().clone(),
        inflight: None,
    })
}

/// No successor starts until the requests of an abandoned queue have ended, which may write late.
#[test]
fn nothing_starts_before_orphans_have_ended() {
    let orphans = OrphanCount::default();
    let (outbox, inbox) = mailbox().unwrap();
    let disk = Arc::new(LiveDisk::new(test_info()).unwrap());
    let served = VhostDisk { disk, orphans: orphans.clone() };
    let mut server = VhostServer::new(std::iter::once(served), 1, inbox);
    let mut mock = Mock::new(MockOptions::default(), 1);
    let mut guest = Guest::new(QUEUE_SIZE);
    let head = guest.lay_chain(&write_parts(0, &[1; 512]));
    guest.offer(head);
    orphans.store(1, Ordering::Relaxed);
    outbox.send(QueueOrder { disk: 0, kind: OrderKind::Start(setup(&guest)) });
    (0..50).for_each(|_| mock.turn(&mut server));
    assert!(mock.submitted.is_empty());
    assert!(server.deadline().is_some(), "it checks again by itself");
    orphans.store(0, Ordering::Relaxed);
    while mock.in_flight.is_empty() {
        mock.turn(&mut server);
    }
    // Its successor takes the same request again, after the first has ended.
    outbox.send(QueueOrder { disk: 0, kind: OrderKind::Start(setup(&guest)) });
    while guest.used_index() == 0 {
        assert!(mock.in_flight.len() <= 1);
        mock.turn(&mut server);
    }
    assert_eq!(mock.submitted.len(), 2);
    assert_eq!(orphans.load(Ordering::Relaxed), 0);
}

/// A target that does not answer blocks neither a queue nor the reactor; a successor waits for it.
#[test]
fn a_silent_target_is_not_waited_for_without_end() {
    let (outbox, inbox) = mailbox().unwrap();
    let disk = Arc::new(LiveDisk::new(test_info()).unwrap());
    let orphans = OrphanCount::default();
    let served = VhostDisk { disk, orphans: orphans.clone() };
    let mut server = VhostServer::new(std::iter::once(served), 1, inbox);
    let mut mock = Mock::new(MockOptions::default(), 1);
    mock.silent = true;
    let mut guest = Guest::new(QUEUE_SIZE);
    let head = guest.lay_chain(&write_parts(0, &[1; 512]));
    guest.offer(head);
    outbox.send(QueueOrder { disk: 0, kind: OrderKind::Start(setup(&guest)) });
    let (reply, answer) = sync_channel(1);
    while mock.in_flight.is_empty() {
        mock.turn(&mut server);
    }
    outbox.send(QueueOrder { disk: 0, kind: OrderKind::Stop { queue: 0, reply } });
    let stopped = (0..200_000).find_map(|_| {
        mock.turn(&mut server);
        answer.try_recv().ok()
    });
    assert_eq!((stopped, orphans.load(Ordering::Relaxed)), (Some(1), 1));
    let head = guest.lay_chain(&write_parts(1, &[2; 512]));
    guest.offer(head);
    outbox.send(QueueOrder {
        disk: 0,
        kind: OrderKind::Start(Box::new(RingSetup { base: 1, ..*setup(&guest) })),
    });
    (0..50).for_each(|_| mock.turn(&mut server));
    assert_eq!((mock.submitted.len(), guest.used_index()), (1, 0));
    mock.silent = false;
    while guest.used_index() == 0 {
        mock.turn(&mut server);
    }
    assert_eq!((mock.submitted.len(), orphans.load(Ordering::Relaxed)), (2, 0));
    mock.silent = true;
    let head = guest.lay_chain(&write_parts(1, &[2; 512]));
    guest.offer(head);
    while mock.in_flight.is_empty() {
        mock.turn(&mut server);
    }
    mock.stopping.store(true, Ordering::Relaxed);
    let ends = (0..200_000).any(|_| {
        mock.turn(&mut server);
        mock.stopped
    });
    assert!(ends && mock.watches.is_empty());
}

/// Address of headers that hostile chains may refer to.
const HEADERS: u64 = 0x30000;

/// Descriptors, some of which make requests.
fn descriptors() -> impl Strategy<Value = Vec<Descriptor>> {
    let place = prop_oneof![
        6 => (0u64..16).prop_map(|at| (HEADERS + 16 * at, 16)),
        3 => (0u64..64, 1u32..5).prop_map(|(at, sectors)| (0x40000 + 512 * at, 512 * sectors)),
        2 => (0u64..64).prop_map(|at| (0x50000 + at, 1)),
        1 => (any::<u64>(), any::<u32>()),
    ];
    let flags = prop_oneof![4 => 0u16..4, 1 => 0u16..8];
    let next = prop_oneof![8 => 0..QUEUE_SIZE, 1 => any::<u16>()];
    let one = (place, flags, next)
        .prop_map(|((address, length), flags, next)| Descriptor::new(address, length, flags, next));
    proptest::collection::vec(one, usize::from(QUEUE_SIZE))
}

fn headers() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let operation = prop_oneof![0u32..2, Just(4), Just(8), Just(11), Just(13), any::<u32>()];
    let sector = prop_oneof![8 => 0u64..2050, 1 => any::<u64>()];
    let one = (operation, sector).prop_map(|(operation, sector)| Guest::header(operation, sector));
    proptest::collection::vec(one, 16)
}

proptest! {
    /// For any memory of a guest: nothing panics, no more requests are in flight than the queue holds, and the queue
    /// can be stopped.
    #[test]
    fn hostile_queues_are_served_or_stopped(
        descriptors in descriptors(),
        headers in headers(),
        heads in proptest::collection::vec(0..QUEUE_SIZE + 1, usize::from(QUEUE_SIZE)),
        steps in proptest::collection::vec(0u16..6, 1..8),
        seed in any::<u32>(),
    ) {
        let (outbox, inbox) = mailbox().unwrap();
        let disk = Arc::new(LiveDisk::new(test_info()).unwrap());
        let served = VhostDisk { disk, orphans: OrphanCount::default() };
        let mut server = VhostServer::new(std::iter::once(served), 1, inbox);
        let mut mock = Mock::new(MockOptions::default(), seed.into());
        let guest = Guest::new(QUEUE_SIZE);
        for (at, header) in headers.iter().enumerate() {
            guest.memory().write_slice(header, GuestAddress(HEADERS + 16 * at as u64)).unwrap();
        }
        for (at, descriptor) in descriptors.into_iter().enumerate() {
            guest.put(guest.table(), at as u16, descriptor);
        }
        for (at, head) in heads.iter().enumerate() {
            let slot = guest.avail_ring().0 + 4 + 2 * at as u64;
            guest.memory().write_obj(*head, GuestAddress(slot)).unwrap();
        }
        outbox.send(QueueOrder { disk: 0, kind: OrderKind::Start(setup(&guest)) });
        let mut available = 0u16;
        for step in steps {
            available = available.wrapping_add(step);
            guest.set_avail(available);
            for _ in 0..10 {
                mock.turn(&mut server);
                prop_assert!(server.pending.len() <= usize::from(QUEUE_SIZE));
            }
        }
        let (reply, answer) = sync_channel(1);
        outbox.send(QueueOrder { disk: 0, kind: OrderKind::Stop { queue: 0, reply } });
        let stopped = (0..10_000).find_map(|_| {
            mock.turn(&mut server);
            answer.try_recv().ok()
        });
        prop_assert!(stopped.is_some());
        prop_assert!(server.is_clean());
    }
}
