use super::*;
use crate::disk::harness::{Mock, MockOptions, patterned};
use crate::disk::test_info;
use proptest::prelude::*;
use roadtrain_host_engine::Front;

/// A front that has its own memory, or its own buffers.
struct JobsDriver {
    jobs: DiskJobs<u32>,
    ended: Vec<JobKey>,
}

impl Front for JobsDriver {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(completion) = turn.next_completion() {
            self.ended.extend(self.jobs.complete(completion));
        }
        self.jobs.submit(turn);
    }
}

impl JobsDriver {
    fn new(options: &MockOptions) -> Self {
        let disk = Arc::new(LiveDisk::new(options.info.clone()).unwrap());
        JobsDriver { jobs: DiskJobs::new(disk, LaneId(0), 8 << 20), ended: Vec::new() }
    }

    /// Runs turns until a job ends.
    fn finish(&mut self, mock: &mut Mock) -> JobKey {
        while self.ended.is_empty() {
            mock.turn(self);
        }
        self.ended.pop().unwrap()
    }

    fn start(&mut self, mark: u32, request: DiskRequest, mut data: &[u8]) {
        match self.jobs.start(mark, 0, request) {
            Started::Payload(_, part) => self.jobs.fill(part, |window| {
                let (head, rest) = data.split_at(window.len());
                window.copy_from_slice(head);
                data = rest;
            }),
            Started::Running(_) => {}
            started => panic!("{started:?}"),
        }
        assert!(data.is_empty());
    }

    /// Removes a job; returns the data of a Read.
    fn take(&mut self, job: JobKey) -> Vec<u8> {
        let mut data = Vec::new();
        self.jobs.remove(job, |buffer, range| {
            data.extend_from_slice(&buffer[range]);
            Some(buffer)
        });
        data
    }
}

fn request(op: DiskOp, offset: u64, length: usize) -> DiskRequest {
    DiskRequest { op, offset, length: length as u32, fua: false }
}

#[test]
fn whole_requests_travel_in_their_own_buffer() {
    let options = MockOptions::default();
    let (mut driver, mut mock) = (JobsDriver::new(&options), Mock::new(options, 1));
    let mut buffer = Buffer::alloc(16 << 10);
    let first = buffer.as_ptr();
    buffer[..4096].fill(9);
    for (op, offset) in [(DiskOp::Write, 4096), (DiskOp::Read, 4096), (DiskOp::Read, 8192)] {
        let request = request(op, offset, 4096);
        assert!(driver.jobs.is_whole(&request));
        let job = driver.jobs.start_with(7, 0, request, buffer);
        assert_eq!(driver.finish(&mut mock), job);
        assert_eq!((driver.jobs.job(job).mark, driver.jobs.job(job).status), (7, Status::SUCCESS));
        let mut own = None;
        driver.jobs.remove(job, |buffer, range| {
            assert_eq!(range, if op == DiskOp::Read { 0..4096 } else { 0..0 });
            own = Some(buffer);
            None
        });
        buffer = own.unwrap();
        assert_eq!(buffer.as_ptr(), first);
        let wanted = if offset == 4096 { vec![9; 4096] } else { patterned(8192..8192 + 4096) };
        assert_eq!(buffer[..], wanted);
    }
    assert!(driver.jobs.is_clean());
}

/// Dropped parts leave no buffers, guards or claims behind.
#[test]
fn waiting_jobs_are_dropped_whole() {
    let options = MockOptions { room: 2, ..MockOptions::default() };
    let (mut driver, mut mock) = (JobsDriver::new(&options), Mock::new(options, 4));
    mock.silent = true;
    for mark in [1, 2] {
        driver.start(mark, request(DiskOp::Write, 0, 512), &[1; 512]);
        driver.start(mark, request(DiskOp::Write, 100, 10), &[2; 10]);
        driver.start(mark, request(DiskOp::Write, 1024, 512 << 10), &vec![3; 512 << 10]);
        driver.start(mark, request(DiskOp::Read, 0, 512), &[]);
    }
    (0..100).for_each(|_| mock.turn(&mut driver));
    assert_eq!(mock.submitted.len(), 2);
    // The lane has the first write of the first job, which keeps out its other writes, and its read.
    assert_eq!(driver.jobs.drop_waiting(|mark| *mark == 1), 2);
    assert_eq!(driver.jobs.drop_waiting(|mark| *mark == 2), 3);
    mock.silent = false;
    for _ in 0..2 {
        let job = driver.finish(&mut mock);
        assert_eq!(driver.jobs.job(job).mark, 1);
        driver.take(job);
    }
    assert!(driver.jobs.is_clean());
    assert_eq!(mock.submitted.len(), 2);
    driver.start(3, request(DiskOp::Write, 100, 10), &[4; 10]);
    let job = driver.finish(&mut mock);
    driver.take(job);
    assert!(driver.jobs.is_clean());
}

#[test]
fn only_whole_blocks_within_the_limit_are_whole() {
    let mut info = test_info();
    (info.lba_bytes, info.max_transfer_bytes) = (4096, 10_000);
    let driver = JobsDriver::new(&MockOptions { info, ..MockOptions::default() });
    let is_whole = |op, offset, length| driver.jobs.is_whole(&request(op, offset, length));
    assert_eq!(driver.jobs.whole_bytes_max(), 8192);
    for op in [DiskOp::Read, DiskOp::Write] {
        assert!(is_whole(op, 0, 4096) && is_whole(op, 1 << 40, 8192));
        assert!(!is_whole(op, 0, 0) && !is_whole(op, 0, 512) && !is_whole(op, 512, 4096));
        assert!(!is_whole(op, 0, 12_288));
    }
    assert!(!is_whole(DiskOp::Discard, 0, 4096) && !is_whole(DiskOp::Flush, 0, 4096));
}

#[test]
fn a_patch_and_a_whole_write_of_the_same_stripe_do_not_meet() {
    let options = MockOptions { room: 64, ..MockOptions::default() };
    let (mut driver, mut mock) = (JobsDriver::new(&options), Mock::new(options, 2));
    for round in 0..50u8 {
        driver.start(0, request(DiskOp::Write, 100, 10), &[round; 10]);
        let mut buffer = Buffer::alloc(512);
        buffer.fill(round);
        driver.jobs.start_with(1, 0, request(DiskOp::Write, 512, 512), buffer);
        for _ in 0..2 {
            let job = driver.finish(&mut mock);
            assert_eq!(driver.jobs.job(job).status, Status::SUCCESS);
            driver.take(job);
        }
        let disk = mock.disk.lock().unwrap();
        assert_eq!(disk[100..110], [round; 10]);
        assert_eq!(disk[512..1024], [round; 512]);
        assert_eq!(disk[110..512], patterned(110..512));
    }
}

#[test]
fn a_failure_is_the_whole_jobs_and_comes_once() {
    let fails = Some((256, Status::HOST_PATH_ERROR));
    let options = MockOptions { fails, ..MockOptions::default() };
    let (mut driver, mut mock) = (JobsDriver::new(&options), Mock::new(options, 3));
    driver.start(5, request(DiskOp::Read, 0, 1 << 20), &[]);
    let job = driver.finish(&mut mock);
    assert_eq!(driver.jobs.job(job).status, Status::HOST_PATH_ERROR);
    driver.take(job);
    assert!(driver.jobs.is_clean() && driver.ended.is_empty());
}

#[test]
fn without_memory_nothing_is_begun() {
    let options = MockOptions::default();
    let mut driver = JobsDriver::new(&options);
    driver.jobs.set_buffer_bytes_max(2 << 20);
    let mut held: Vec<_> = std::iter::from_fn(|| driver.jobs.pool.take(1 << 20)).collect();
    let read = request(DiskOp::Read, 0, 4096);
    assert_eq!(driver.jobs.start(0, 0, read), Started::NoBuffers);
    // Buffers given back by a failed start are no reason to try it again.
    let given = driver.jobs.given();
    driver.jobs.give(held.pop().unwrap());
    assert_eq!(driver.jobs.given(), given + 1);
    let large = request(DiskOp::Read, 0, 4 << 20);
    assert_eq!(driver.jobs.start(0, 0, large), Started::NoBuffers);
    assert_eq!(driver.jobs.given(), given + 1);
    held.into_iter().for_each(|buffer| driver.jobs.give(buffer));
    assert!(matches!(driver.jobs.start(0, 0, read), Started::Running(_)));
}

proptest! {
    #[test]
    fn the_disk_is_as_if_requests_came_one_by_one(
        steps in prop::collection::vec((0u8..4, 0u64..60_000, 1usize..300_000), 1..12), seed: u64,
    ) {
        let mut info = test_info();
        info.max_transfer_bytes = 64 << 10;
        let options = MockOptions { info, ..MockOptions::default() };
        let (mut driver, mut mock) = (JobsDriver::new(&options), Mock::new(options, seed >> 1));
        let mut model = patterned(0..1 << 20);
        for (round, (kind, offset, length)) in steps.into_iter().enumerate() {
            let range = offset as usize..offset as usize + length;
            let op = match kind {
                0 => DiskOp::Read,
                1 => DiskOp::Write,
                2 => DiskOp::WriteZeroes { deallocate: round % 2 == 0 },
                _ => DiskOp::Flush,
            };
            let data = vec![round as u8; if op == DiskOp::Write { length } else { 0 }];
            driver.start(round as u32, request(op, offset, length), &data);
            let job = driver.finish(&mut mock);
            prop_assert_eq!(driver.jobs.job(job).status, Status::SUCCESS);
            prop_assert_eq!(driver.jobs.job(job).mark, round as u32);
            let found = driver.take(job);
            match op {
                DiskOp::Read => prop_assert!(found == model[range]),
                DiskOp::Write => model[range].copy_from_slice(&data),
                DiskOp::WriteZeroes { .. } => model[range].fill(0),
                _ => {}
            }
        }
        prop_assert!(*mock.disk.lock().unwrap() == model);
        prop_assert!(driver.jobs.is_clean());
    }
}
