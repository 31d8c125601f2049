//! The server between a fake driver and the mock lane of a memory disk.

#![allow(unsafe_code, reason = "the driver that is played here")]

use super::super::abi::{QUEUE_DEPTH_MAX, QueueOp, RESULT_ABORT, UblkIoCommand, flag, op};
use super::*;
use crate::cases::cases;
use crate::disk::harness::{Mock, MockOptions, patterned};
use crate::disk::{DiskInfo, test_info};
use proptest::prelude::*;
use roadtrain_host_engine::{Interest, IoCompletion, IoOp, IoRequest, UringCommand};
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use zerocopy::FromBytes;

const DEPTH: u16 = 4;
const IO_BYTES: u32 = 64 << 10;

/// A queue and a tag of it.
type At = (u16, u16);

/// Fake driver: keeps tags, copies data into and out of their buffers.
struct UblkDriver {
    descriptors: Arc<File>,
    /// Tags at the driver: the address of their buffer, and their key.
    idle: BTreeMap<At, (u64, u64)>,
    back: VecDeque<(u64, i32)>,
    /// Answered requests: the result, and the data of a read.
    answered: BTreeMap<At, (i32, Vec<u8>)>,
    /// Errno with which it refuses every command.
    refusal: Option<i32>,
}

impl UblkDriver {
    fn new(queues: u16) -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(offset(queues, 0)).unwrap();
        UblkDriver {
            descriptors: Arc::new(file),
            idle: BTreeMap::new(),
            back: VecDeque::new(),
            answered: BTreeMap::new(),
            refusal: None,
        }
    }

    /// Hands a request to a tag that is idle.
    fn submit_request(
        &mut self,
        at: At,
        op_flags: u32,
        start_sector: u64,
        nr_sectors: u32,
        data: &[u8],
    ) {
        let (address, key) = self.idle.remove(&at).expect("the tag is idle");
        // SAFETY: the server lent the buffer, which has room for the largest request.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), address as *mut u8, data.len()) };
        let mut bytes = [op_flags.to_ne_bytes(), nr_sectors.to_ne_bytes()].concat();
        bytes.extend(start_sector.to_ne_bytes());
        bytes.extend(address.to_ne_bytes());
        self.descriptors.write_all_at(&bytes, offset(at.0, at.1)).unwrap();
        self.back.push_back((key, 0));
    }

    fn abort_idle(&mut self) {
        let idle = std::mem::take(&mut self.idle);
        self.back.extend(idle.into_values().map(|(_, key)| (key, RESULT_ABORT)));
    }

    fn command(&mut self, command: &UringCommand, key: u64) {
        let (io, _) = UblkIoCommand::read_from_prefix(&command.payload).unwrap();
        let at = (io.q_id, io.tag);
        assert_eq!(command.fd, std::os::fd::AsRawFd::as_raw_fd(&*self.descriptors));
        if let Some(errno) = self.refusal {
            return self.back.push_back((key, errno));
        }
        assert!(self.idle.insert(at, (io.addr, key)).is_none(), "{at:?} is at the driver");
        if command.op == QueueOp::CommitAndFetch.code(true) {
            let mut data = vec![0; io.result.max(0) as usize];
            // SAFETY: the server lends the buffer with this command.
            unsafe {
                let from = io.addr as *const u8;
                std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), data.len());
            }
            assert!(self.answered.insert(at, (io.result, data)).is_none());
        } else {
            assert_eq!(command.op, QueueOp::Fetch.code(true));
        }
    }
}

fn offset(queue: u16, tag: u16) -> u64 {
    let queue_bytes = (usize::from(QUEUE_DEPTH_MAX) * 24).next_multiple_of(4096);
    (usize::from(queue) * queue_bytes + usize::from(tag) * 24) as u64
}

/// A turn of the mock, with the driver's commands.
struct DriverTurn<'a> {
    turn: &'a mut dyn FrontTurn,
    driver: &'a mut UblkDriver,
    stopped: &'a mut bool,
}

impl FrontTurn for DriverTurn<'_> {
    fn now(&self) -> Instant {
        self.turn.now()
    }
    fn next_completion(&mut self) -> Option<IoCompletion> {
        self.turn.next_completion()
    }
    fn room(&self, lane: LaneId) -> u32 {
        self.turn.room(lane)
    }
    fn submit(&mut self, lane: LaneId, request: IoRequest) -> Result<(), IoRequest> {
        self.turn.submit(lane, request)
    }
    fn watch(&mut self, _: RawFd, _: Interest, _: u64) {}
    fn unwatch(&mut self, _: u64) {}
    fn next_ready(&mut self) -> Option<u64> {
        None
    }
    unsafe fn command(&mut self, command: &UringCommand, key: u64) {
        self.driver.command(command, key);
    }
    fn next_command(&mut self) -> Option<(u64, i32)> {
        self.driver.back.pop_front()
    }
    fn stop(&mut self) {
        *self.stopped = true;
    }
    fn stopping(&self) -> bool {
        self.turn.stopping()
    }
}

/// Server, driver and lane.
struct UblkHarness {
    mock: Mock,
    driver: UblkDriver,
    server: UblkServer,
    shared: Arc<UblkShared>,
    stopped: bool,
}

impl UblkHarness {
    fn new(options: MockOptions, queues: u16, seed: u64) -> Self {
        let driver = UblkDriver::new(queues);
        let disk = Arc::new(LiveDisk::new(options.info.clone()).unwrap());
        let shared = Arc::<UblkShared>::default();
        let tags = |queue| {
            Tags::new(Arc::clone(&driver.descriptors), queue, DEPTH, IO_BYTES, true).unwrap()
        };
        let queues = (0..queues).map(tags).collect();
        let server =
            UblkServer::new(disk, Arc::clone(&shared), queues, IO_BYTES, options.lanes.max(1));
        let mut harness =
            UblkHarness { mock: Mock::new(options, seed), driver, server, shared, stopped: false };
        harness.turn();
        harness
    }

    fn turn(&mut self) {
        struct Adapter<'a>(&'a mut UblkServer, &'a mut UblkDriver, &'a mut bool);
        impl Front for Adapter<'_> {
            fn turn(&mut self, turn: &mut dyn FrontTurn) {
                self.0.turn(&mut DriverTurn { turn, driver: self.1, stopped: self.2 });
            }
        }
        self.mock.turn(&mut Adapter(&mut self.server, &mut self.driver, &mut self.stopped));
    }

    /// Runs turns until `at` is answered.
    fn answer(&mut self, at: At) -> (i32, Vec<u8>) {
        for _ in 0..10_000 {
            if let Some(answer) = self.driver.answered.remove(&at) {
                return answer;
            }
            self.turn();
        }
        panic!("{at:?} is never answered");
    }

    fn call(&mut self, op_flags: u32, sector: u64, sectors: u32, data: &[u8]) -> (i32, Vec<u8>) {
        self.driver.submit_request((0, 0), op_flags, sector, sectors, data);
        self.answer((0, 0))
    }
}

fn harness(options: MockOptions) -> UblkHarness {
    UblkHarness::new(options, 1, 1)
}

#[test]
fn every_tag_is_fetched_once() {
    let harness = UblkHarness::new(MockOptions::default(), 2, 1);
    assert_eq!(harness.driver.idle.len(), 2 * usize::from(DEPTH));
}

#[test]
fn the_tags_own_buffer_goes_through_the_lane() {
    let mut harness = harness(MockOptions::default());
    let (address, _) = harness.driver.idle[&(0, 1)];
    harness.driver.submit_request((0, 1), op::WRITE, 8, 16, &[7; 8192]);
    while harness.mock.in_flight.is_empty() {
        harness.turn();
    }
    let buffer = harness.mock.in_flight[0].buffer.as_ref().unwrap();
    assert_eq!((buffer.as_ptr() as u64, buffer.len()), (address, 8192));
    assert_eq!(harness.answer((0, 1)).0, 8192);
    assert_eq!(harness.driver.idle[&(0, 1)].0, address, "and is the tag's again");
    assert_eq!(harness.mock.disk.lock().unwrap()[4096..12_288], [7; 8192]);
}

#[test]
fn each_operation_reaches_the_lane_as_requested() {
    let mut harness = harness(MockOptions::default());
    let expected = patterned(512..1536);
    assert_eq!(harness.call(op::READ, 1, 2, &[]), (1024, expected));
    assert_eq!(harness.call(op::WRITE | flag::FUA, 1, 1, &[1; 512]).0, 512);
    assert_eq!(harness.call(op::FLUSH, 0, 0, &[]), (0, vec![]));
    assert_eq!(harness.call(op::DISCARD, 0, 2048, &[]), (0, vec![]));
    assert_eq!(harness.call(op::WRITE_ZEROES | flag::NO_UNMAP, 4, 2, &[]), (0, vec![]));
    let submitted: Vec<_> = harness.mock.submitted.iter().map(|a| (a.0, a.1, a.2, a.3)).collect();
    let expected = [
        (IoOp::Read, 1, 2, false),
        (IoOp::Write, 1, 1, true),
        (IoOp::Flush, 0, 0, false),
        (IoOp::Discard, 0, 2048, false),
        (IoOp::WriteZeroes { deallocate: false }, 4, 2, false),
    ];
    assert_eq!(submitted, expected);
}

#[test]
fn an_invalid_request_fails_and_its_tag_continues() {
    let fails = Some((3, Status::UNRECOVERED_READ_ERROR));
    let mut harness = harness(MockOptions { fails, ..MockOptions::default() });
    assert_eq!(harness.call(op::READ, 3, 1, &[]).0, -libc::EIO);
    assert_eq!(harness.call(op::READ, 2048, 1, &[]).0, -libc::EINVAL, "beyond the end");
    assert_eq!(harness.call(op::WRITE, 2047, 2, &[0; 1024]).0, -libc::ENOSPC);
    assert_eq!(harness.call(op::READ, 0, 129, &[]).0, -libc::EINVAL, "larger than the buffer");
    assert_eq!(harness.call(9, 0, 1, &[]).0, -libc::EOPNOTSUPP);
    assert_eq!(harness.call(op::READ, 2, 1, &[]).0, 512);
    let mut fixed = self::harness(MockOptions {
        info: DiskInfo { read_only: true, ..test_info() },
        ..MockOptions::default()
    });
    assert_eq!(fixed.call(op::WRITE, 0, 1, &[0; 512]).0, -libc::EROFS);
}

#[test]
fn it_ends_when_the_driver_has_no_more_requests() {
    let mut harness = UblkHarness::new(MockOptions::default(), 2, 3);
    harness.driver.submit_request((1, 2), op::WRITE, 0, 8, &[1; 4096]);
    harness.driver.abort_idle();
    while harness.driver.answered.is_empty() {
        assert!(!harness.stopped, "a request is in flight");
        harness.turn();
    }
    assert!(!harness.stopped, "a tag is still at the driver");
    harness.driver.abort_idle();
    harness.turn();
    assert!(harness.stopped);
    assert!(harness.shared.refusal().is_none());
}

#[test]
fn a_stopping_server_ends_at_its_deadline() {
    let mut harness = harness(MockOptions::default());
    harness.mock.stopping.store(true, std::sync::atomic::Ordering::Relaxed);
    harness.turn();
    assert!(!harness.stopped);
    assert!(harness.server.deadline().is_some(), "it checks again by itself");
    harness.shared.end_at(Instant(0));
    harness.turn();
    assert!(harness.stopped);
}

#[test]
fn a_refusal_of_the_driver_is_reported() {
    let mut harness = harness(MockOptions::default());
    harness.driver.refusal = Some(-libc::EINVAL);
    harness.driver.submit_request((0, 0), op::FLUSH, 0, 0, &[]);
    (0..100).for_each(|_| harness.turn());
    assert_eq!(harness.shared.refusal().unwrap().raw_os_error(), Some(libc::EINVAL));
}

/// One request in a tag's own part of the disk, in units of 4 KiB: operation, offset, length.
type TagStep = (u8, u64, u32);

/// Runs the tags' steps concurrently; each tag sees only its own writes.
fn run_steps(lba_bytes: u32, seed: u64, steps: &[(u16, TagStep)]) {
    let info = DiskInfo { lba_bytes, blocks: (1 << 20) / u64::from(lba_bytes), ..test_info() };
    let mut harness = UblkHarness::new(MockOptions { info, ..MockOptions::default() }, 2, seed);
    let mut model = patterned(0..1 << 20);
    let mut expected: BTreeMap<At, (i32, Vec<u8>)> = BTreeMap::new();
    for (number, &(tag, (kind, offset, length))) in steps.iter().enumerate() {
        let at = (tag / DEPTH, tag % DEPTH);
        if let Some(answer) = expected.remove(&at) {
            assert_eq!(harness.answer(at), answer);
        }
        // Parts of 128 KiB that do not begin at large blocks: neighbours share some.
        let start = (u64::from(tag) * 31 + offset) * 4096;
        let range = start as usize..start as usize + length as usize * 4096;
        let (sector, sectors) = (start / 512, length * 8);
        let data = vec![number as u8; range.len()];
        let answer = match kind {
            0 => {
                harness.driver.submit_request(at, op::READ, sector, sectors, &[]);
                (range.len() as i32, model[range].to_vec())
            }
            1 => {
                harness.driver.submit_request(at, op::WRITE, sector, sectors, &data);
                model[range].copy_from_slice(&data);
                (data.len() as i32, data)
            }
            _ => {
                harness.driver.submit_request(at, op::WRITE_ZEROES, sector, sectors, &[]);
                model[range].fill(0);
                (0, vec![])
            }
        };
        expected.insert(at, answer);
        harness.turn();
    }
    for (at, answer) in expected {
        assert_eq!(harness.answer(at), answer);
    }
    assert!(*harness.mock.disk.lock().unwrap() == model);
    assert!(harness.server.jobs.is_clean());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]
    #[test]
    fn tags_keep_their_data(
        lba_shift in 9u32..=16,
        seed: u64,
        steps in prop::collection::vec((0u16..8, (0u8..3, 0u64..16, 1u32..=16)), 1..60),
    ) {
        run_steps(1 << lba_shift, seed % 1000, &steps);
    }
}
