use super::*;
use crate::stability::Stability;
use crate::uncorrectable::ByteExtents;
use roadtrain_proto::time::Instant;
use std::cell::RefCell;
use std::rc::Rc;

const GEOMETRY: BlockGeometry =
    BlockGeometry { lba_shift: 9, blocks: 1024, read_only: false, transfer_bytes_max: 1 << 20 };
const NOW: Instant = Instant(0);
const BAD: Result<(), Status> = Err(Status::WRITE_FAULT.dnr());
const ABORTED: Result<(), Status> = Err(Status::ABORT_REQUESTED);

/// Flushes of a store that loses unflushed writes, with a record of the waiters woken.
#[derive(Default)]
struct VolatileFlushes {
    stability: RefCell<Stability<u32>>,
    woken: RefCell<Vec<(u32, Wake)>>,
}

impl Flushes for VolatileFlushes {
    fn epoch(&self) -> Epoch {
        self.stability.borrow().epoch()
    }

    fn begin(&self, user: &StoreUser) -> FlushTicket {
        self.stability.borrow_mut().begin(NOW, user)
    }

    fn ended(&self, flushed: Flushed) {
        self.woken.borrow_mut().extend(self.stability.borrow_mut().ended(flushed));
    }

    fn settle(&self, ticket: FlushTicket, flushed: Flushed) -> bool {
        self.stability.borrow_mut().settle(NOW, ticket, flushed)
    }
}

/// A store; without `VolatileFlushes` no write is lost. It has marks, and marks that a restart may find besides.
#[derive(Default)]
struct TaskDisk(Option<VolatileFlushes>, RefCell<ByteExtents>, RefCell<ByteExtents>);

impl TaskStore for TaskDisk {
    type TaskFlushes = VolatileFlushes;

    fn flushes(&self) -> Option<&VolatileFlushes> {
        self.0.as_ref()
    }

    fn is_marked(&self, range: &ByteRange) -> bool {
        self.1.borrow().touch(range)
    }

    fn is_to_clear(&self, range: &ByteRange) -> bool {
        self.is_marked(range) || self.2.borrow().touch(range)
    }
}

fn volatile() -> Rc<TaskDisk> {
    Rc::new(TaskDisk(Some(VolatileFlushes::default()), RefCell::default(), RefCell::default()))
}

fn user(cntlid: u16) -> Arc<StoreUser> {
    Arc::new(StoreUser { cntlid, hostid: [cntlid as u8; 16], hostnqn: "host".into() })
}

type TestTask = CommandTask<Rc<TaskDisk>, Vec<u8>>;

fn task(
    command: &TargetIoCommand,
    disk: &Rc<TaskDisk>,
    buffer: Option<Vec<u8>>,
) -> Result<TestTask, Status> {
    let of = Some(&user(1)).cloned();
    let task = CommandTask::execute(command, (disk.clone(), &GEOMETRY), buffer, of.as_ref());
    task.map_err(|outcome| outcome.result.err().unwrap_or(Status::SUCCESS))
}

fn join(number: u32) -> impl Fn(&VolatileFlushes) -> bool {
    move |shared| shared.stability.borrow_mut().join(number)
}

/// Runs all parts, which end with `results`. Returns the operations and the task's own result.
fn run(
    task: &mut TestTask,
    results: &[Result<(), Status>],
) -> (Vec<StoreOperation>, Result<(), Status>) {
    let (mut ops, mut results) = (Vec::new(), results.iter());
    loop {
        let TaskStep::Submit(op, buffer) = task.begin(join(1)) else {
            panic!("no exclusive access is needed")
        };
        ops.push(op);
        let result = results.next().copied().unwrap_or(Ok(()));
        if let Some(outcome) = task.ended(result, buffer, false) {
            assert!(outcome.buffer.is_some() || !matches!(op, StoreOperation::Read { .. }));
            return (ops, outcome.result);
        }
    }
}

const READ: TargetIoCommand = TargetIoCommand::Read { offset: 512, length: 512, fua: true };
const ZEROES: TargetIoCommand =
    TargetIoCommand::WriteZeroes { offset: 0, length: 512, deallocate: false, fua: true };

#[test]
fn force_unit_access_is_a_flush_before_or_after_where_something_can_be_lost() {
    let range = ByteRange { offset: 0, len: 512 };
    let (read, zeroes) = (
        StoreOperation::Read { offset: 512 },
        StoreOperation::WriteZeroes { range, deallocate: false },
    );
    let buffer = || Some(vec![0; 512]);
    for (command, parts) in
        [(READ, [StoreOperation::Flush, read]), (ZEROES, [zeroes, StoreOperation::Flush])]
    {
        let with = |results: &[_]| {
            let disk = volatile();
            run(&mut task(&command, &disk, buffer()).unwrap(), results)
        };
        assert_eq!(with(&[]), (parts.to_vec(), Ok(())));
        assert_eq!(with(&[BAD]), (parts[..1].to_vec(), BAD), "the other one does not follow");
        assert_eq!(with(&[Ok(()), BAD]), (parts.to_vec(), BAD));
        let mut there = task(&command, &Rc::default(), buffer()).unwrap();
        let own = if command == READ { read } else { zeroes };
        assert_eq!(run(&mut there, &[]), (vec![own], Ok(())));
    }
}

fn ranges(ranges: &[(u32, u64)]) -> Vec<u8> {
    let entry = |&(blocks, slba): &(u32, u64)| {
        [&[0; 4][..], &blocks.to_le_bytes(), &slba.to_le_bytes()].concat()
    };
    ranges.iter().flat_map(entry).collect()
}

fn discard(
    disk: &Rc<TaskDisk>,
    list: &[(u32, u64)],
    count: u32,
    deallocate: bool,
) -> Result<TestTask, Status> {
    let data_bytes = list.len() as u32 * DSM_RANGE_BYTES;
    let command = TargetIoCommand::DatasetManagement { ranges: count, data_bytes, deallocate };
    task(&command, disk, Some(ranges(list)))
}

#[test]
fn ranges_are_discarded_one_after_the_other_until_one_fails() {
    let disk = volatile();
    let list = [(0, 7), (2, 8), (0, 9), (1, 1023), (1, 1024)];
    let part = |slba: u64, blocks: u64| StoreOperation::Discard {
        range: ByteRange { offset: slba * 512, len: blocks * 512 },
    };
    let all = vec![part(8, 2), part(1023, 1)];
    assert_eq!(run(&mut discard(&disk, &list, 4, true).unwrap(), &[]), (all, Ok(())));
    let failed = run(&mut discard(&disk, &list, 4, true).unwrap(), &[BAD]);
    assert_eq!(failed, (vec![part(8, 2)], BAD));
    assert_eq!(discard(&disk, &list, 4, false).err(), Some(Status::SUCCESS), "a hint");
    assert_eq!(discard(&disk, &list[..1], 1, true).err(), Some(Status::SUCCESS), "nothing");
    let outside = Some(Status::LBA_OUT_OF_RANGE.dnr());
    assert_eq!(discard(&disk, &list, 5, true).err(), outside);
    assert_eq!(discard(&disk, &[(2, u64::MAX)], 1, true).err(), outside);
}

#[test]
fn a_status_query_takes_its_buffer_along() {
    let range = ByteRange { offset: 512, len: 1024 };
    let mut query = TestTask::block_status(Rc::default(), range, Some(vec![7; 64]));
    let TaskStep::Submit(op, buffer) = query.begin(join(1)) else {
        panic!("no exclusive access is needed")
    };
    assert_eq!(
        (op, buffer.as_ref().map(Vec::len)),
        (StoreOperation::QueryAllocation { range }, Some(64))
    );
    assert!(query.changes().is_none());
    let outcome = query.ended(Ok(()), buffer, false).expect("that was all");
    assert!(outcome.result.is_ok() && outcome.buffer == Some(vec![7; 64]));
}

#[test]
fn every_store_is_flushed_and_the_first_failure_is_reported() {
    let stores = vec![Rc::default(), volatile(), Rc::default()];
    let mut all = TestTask::flush_all(stores, None).ok().unwrap();
    let other = Err(Status::INTERNAL_ERROR);
    assert_eq!(run(&mut all, &[Ok(()), BAD, other]), (vec![StoreOperation::Flush; 3], BAD));
    assert!(TestTask::flush_all(Vec::new(), None).is_err_and(|none| none.result.is_ok()));
}

#[test]
fn what_was_cancelled_begins_nothing_more() {
    let disk = volatile();
    let list = [(1, 1), (1, 3)];
    for mut task in [discard(&disk, &list, 2, true).unwrap(), task(&ZEROES, &disk, None).unwrap()] {
        assert!(matches!(task.begin(join(1)), TaskStep::Submit(..)));
        task.cancel();
        let outcome = task.ended(Ok(()), None, false).expect("no other part");
        assert_eq!(outcome.result, ABORTED);
    }
    let mut last = task(&TargetIoCommand::Flush, &disk, None).unwrap();
    assert!(matches!(last.begin(join(1)), TaskStep::Submit(..)));
    last.cancel();
    assert_eq!(last.ended(Ok(()), None, false).unwrap().result, Ok(()), "that was all");
}

#[test]
fn a_flush_beside_another_waits_for_the_next_one() {
    let disk = volatile();
    let shared = disk.flushes().unwrap();
    let woken = || shared.woken.take();
    let flush = || task(&TargetIoCommand::Flush, &disk, None).unwrap();
    let (mut first, mut second, mut third) = (flush(), flush(), flush());
    assert!(matches!(first.begin(join(1)), TaskStep::Submit(StoreOperation::Flush, None)));
    assert!(matches!(second.begin(join(2)), TaskStep::Wait));
    assert!(matches!(third.begin(join(3)), TaskStep::Wait));
    assert_eq!(first.ended(Ok(()), None, false).unwrap().result, Ok(()));
    assert_eq!(woken(), [(2, Wake::Lead)]);
    // The waiter that has to flush was aborted: the next one does it.
    second.cancel();
    let TaskStep::Ended(aborted) = second.woken(Wake::Lead) else { panic!("nothing is begun") };
    assert_eq!(second.ended(aborted, None, false).unwrap().result, ABORTED);
    assert_eq!(woken(), [(3, Wake::Lead)]);
    assert!(matches!(third.woken(Wake::Lead), TaskStep::Submit(StoreOperation::Flush, None)));
    let mut fourth = flush();
    let mut fifth = flush();
    assert!(matches!(fourth.begin(join(4)), TaskStep::Wait));
    assert!(matches!(fifth.begin(join(5)), TaskStep::Wait));
    assert_eq!(third.ended(BAD, None, false).unwrap().result, BAD);
    assert_eq!(woken(), [(4, Wake::Lead)]);
    assert!(matches!(fourth.woken(Wake::Lead), TaskStep::Submit(StoreOperation::Flush, None)));
    assert_eq!(fourth.ended(BAD, None, false).unwrap().result, BAD);
    let [(5, wake @ Wake::Ended(Flushed::Failed))] = woken()[..] else { panic!("it has shared") };
    let TaskStep::Ended(result) = fifth.woken(wake) else { panic!("it has ended") };
    assert_eq!(fifth.ended(result, None, false).unwrap().result, Err(LOST));
}

#[test]
fn a_read_that_brings_no_buffer_back_fails() {
    let command = TargetIoCommand::Read { offset: 0, length: 512, fua: false };
    let mut read = task(&command, &Rc::default(), Some(vec![0; 512])).unwrap();
    assert!(matches!(
        read.begin(|_| true),
        TaskStep::Submit(StoreOperation::Read { offset: 0 }, Some(_))
    ));
    let outcome = read.ended(Ok(()), None, false).unwrap();
    assert_eq!(outcome.result, Err(Status::INTERNAL_ERROR));
}

/// The system reports a failure once: if the write forced itself, the report could go to it while the flush of another
/// host succeeds.
#[test]
fn a_write_that_the_store_has_not_forced_takes_turns_with_flushes() {
    let disk = volatile();
    let shared = disk.flushes().unwrap();
    let write_of = |fua| TargetIoCommand::Write { offset: 0, length: 512, fua };
    let begin = |fua| {
        let mut write = task(&write_of(fua), &disk, Some(vec![0; 512])).unwrap();
        let TaskStep::Submit(op, buffer) = write.begin(join(1)) else { panic!("a write") };
        assert_eq!(op, StoreOperation::Write { offset: 0, fua });
        (write, buffer)
    };
    // A forced write of the store, and one without force, need no flush.
    let (mut write, buffer) = begin(true);
    assert_eq!(write.ended(Ok(()), buffer, false).unwrap().result, Ok(()));
    let (mut write, buffer) = begin(true);
    assert_eq!(write.ended(BAD, buffer, true).unwrap().result, BAD, "there is nothing to flush");

    // Another host's flush is running, and fails: earlier writes may be lost.
    let other = user(2);
    let flush = || {
        let whose = (disk.clone(), &GEOMETRY);
        let flush =
            CommandTask::<_, Vec<u8>>::execute(&TargetIoCommand::Flush, whose, None, Some(&other));
        flush.ok().unwrap()
    };
    let mark = shared.stability.borrow_mut().enter(NOW, &other);
    mark.wrote(shared.stability.borrow().epoch());
    let (mut write, buffer) = begin(true);
    let mut flushes = flush();
    assert!(matches!(flushes.begin(join(2)), TaskStep::Submit(StoreOperation::Flush, None)));
    assert!(write.ended(Ok(()), buffer, true).is_none());
    assert!(matches!(write.begin(join(3)), TaskStep::Wait));
    assert_eq!(flushes.ended(BAD, None, false).unwrap().result, BAD);
    assert_eq!(shared.woken.take(), [(3, Wake::Lead)]);
    assert!(matches!(write.woken(Wake::Lead), TaskStep::Submit(StoreOperation::Flush, None)));
    let outcome = write.ended(Ok(()), None, false).expect("that was all");
    assert_eq!((outcome.result, outcome.buffer.is_some()), (Err(LOST), true));

    // The write's own flush fails: the other host is notified.
    mark.wrote(shared.stability.borrow().epoch());
    let (mut write, buffer) = begin(true);
    assert!(write.ended(Ok(()), buffer, true).is_none());
    assert_eq!(run(&mut write, &[BAD]), (vec![StoreOperation::Flush], BAD));
    assert_eq!(run(&mut flush(), &[]), (vec![StoreOperation::Flush], Err(LOST)));
    assert_eq!(run(&mut flush(), &[]), (vec![StoreOperation::Flush], Ok(())));
}

/// The flush of another command fails between the two parts, and the zeroes may be lost.
#[test]
fn a_forced_write_fails_after_an_earlier_failed_flush() {
    let disk = volatile();
    let mut zeroes = task(&ZEROES, &disk, None).unwrap();
    assert!(matches!(
        zeroes.begin(join(1)),
        TaskStep::Submit(StoreOperation::WriteZeroes { .. }, None)
    ));
    let mut flush = task(&TargetIoCommand::Flush, &disk, None).unwrap();
    assert_eq!(run(&mut flush, &[BAD]).1, BAD);
    assert!(zeroes.ended(Ok(()), None, false).is_none());
    assert_eq!(run(&mut zeroes, &[]), (vec![StoreOperation::Flush], Err(LOST)));
}

/// Returns a Copy of two ranges, of six blocks and of one, with a buffer of four.
fn copy(disk: &Rc<TaskDisk>, fua: bool) -> TestTask {
    let mut list = vec![0; 2048];
    for (entry, (slba, blocks)) in
        list.as_chunks_mut::<32>().0.iter_mut().zip([(10u64, 6u16), (3, 1)])
    {
        entry[8..16].copy_from_slice(&slba.to_le_bytes());
        entry[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
    }
    let command = TargetIoCommand::Copy { offset: 100 << 9, ranges: 2, data_bytes: 64, fua };
    task(&command, disk, Some(list)).unwrap()
}

#[test]
fn a_copy_reads_and_writes_by_turns_and_gives_its_buffer_back() {
    for fua in [false, true] {
        let mut task = copy(&volatile(), fua);
        let mut parts = Vec::new();
        let outcome = loop {
            let TaskStep::Submit(op, buffer) = task.begin(join(1)) else {
                panic!("no exclusive access is needed")
            };
            let bytes = buffer.as_ref().map_or(0, Vec::len) as u64;
            assert_eq!(task.changes(), op.changed(bytes), "the range that others must not write");
            parts.push((op, bytes >> 9));
            if let Some(outcome) = task.ended(Ok(()), buffer, false) {
                break outcome;
            }
        };
        assert_eq!((outcome.result, outcome.copied), (Ok(()), 0));
        assert_eq!(outcome.buffer.map(|buffer| buffer.len()), Some(2048));
        let read = |lba: u64| StoreOperation::Read { offset: lba << 9 };
        let write = |lba: u64| StoreOperation::Write { offset: lba << 9, fua };
        let expected = [
            (read(10), 4),
            (write(100), 4),
            (read(14), 2),
            (write(104), 2),
            (read(3), 1),
            (write(106), 1),
        ];
        assert_eq!(parts, expected);
    }
}

#[test]
fn pieces_of_a_copy_that_the_store_has_not_forced_are_flushed() {
    let mut task = copy(&volatile(), true);
    let mut parts = Vec::new();
    let outcome = loop {
        let TaskStep::Submit(op, buffer) = task.begin(join(1)) else {
            panic!("no exclusive access is needed")
        };
        parts.push(op.changes() || matches!(op, StoreOperation::Flush));
        if let Some(outcome) = task.ended(Ok(()), buffer, op.changes()) {
            break outcome;
        }
    };
    assert_eq!((outcome.result, outcome.buffer.map(|buffer| buffer.len())), (Ok(()), Some(2048)));
    assert_eq!(parts, [false, true, true].repeat(3));
}

#[test]
fn a_copy_that_fails_or_is_aborted_goes_no_further() {
    for (parts, copied) in [(0, 0), (1, 0), (3, 0), (4, 1), (5, 1)] {
        for is_aborted in [false, true] {
            let mut task = copy(&volatile(), false);
            let mut outcome = None;
            for part in 0..=parts {
                let TaskStep::Submit(_, buffer) = task.begin(join(1)) else {
                    panic!("no exclusive access is needed")
                };
                let is_last = part == parts;
                if is_last && is_aborted {
                    task.cancel();
                }
                let result = if is_last && !is_aborted { BAD } else { Ok(()) };
                assert!(outcome.is_none(), "it goes on");
                outcome = task.ended(result, buffer, false);
            }
            let Some(outcome) = outcome else { panic!("it goes on after part {parts}") };
            assert_eq!(outcome.buffer.map(|buffer| buffer.len()), Some(2048));
            if parts == 5 && is_aborted {
                assert_eq!(outcome.result, Ok(()), "all was done");
                continue;
            }
            assert_eq!(outcome.result, if is_aborted { ABORTED } else { BAD });
            // A range whose last piece was written counts as copied, even if nothing more begins.
            let whole = u16::from(parts == 3 && is_aborted);
            assert_eq!(outcome.copied, copied + whole, "after part {parts}");
        }
    }
}

/// Marks `count` blocks from `first` on.
fn marked(disk: Rc<TaskDisk>, first: u64, count: u64) -> Rc<TaskDisk> {
    disk.1.borrow_mut().insert(&blocks(first, count));
    disk
}

fn blocks(first: u64, count: u64) -> ByteRange {
    ByteRange { offset: first << 9, len: count << 9 }
}

/// One step of a command.
#[derive(Debug, PartialEq, Eq)]
enum TaskAction {
    Op(StoreOperation),
    Alone(ByteRange),
    Mark(MarkChange),
}

/// Runs a command; the part with number `fails` fails. Returns its steps and its result.
fn done(mut task: TestTask, fails: usize) -> (Vec<TaskAction>, Result<(), Status>) {
    let mut all = Vec::new();
    loop {
        let (part, buffer) = match task.begin(join(1)) {
            TaskStep::Submit(op, buffer) => (TaskAction::Op(op), buffer),
            TaskStep::Mark(change) => (TaskAction::Mark(change), None),
            TaskStep::Exclude(range) => {
                assert!(task.is_exclusive() && task.changes().is_none(), "it waits for itself");
                all.push(TaskAction::Alone(range));
                task.excluded(Ok(()));
                continue;
            }
            TaskStep::Ended(result) => {
                let outcome = task.ended(result, None, false).expect("nothing follows");
                return (all, outcome.result);
            }
            TaskStep::Wait => panic!("no other command flushes"),
        };
        let result = if all.len() == fails { BAD } else { Ok(()) };
        all.push(part);
        if let Some(outcome) = task.ended(result, buffer, false) {
            return (all, outcome.result);
        }
    }
}

const NEVER: usize = usize::MAX;

#[test]
fn what_is_marked_is_not_read() {
    let (length, fua) = (1024, false);
    let at = |slba: u64| {
        let offset = slba << 9;
        [
            TargetIoCommand::Read { offset, length, fua },
            TargetIoCommand::Compare { offset, length, fua },
            TargetIoCommand::Verify { offset, length, fua },
        ]
    };
    let bad = Err(Status::UNRECOVERED_READ_ERROR.dnr());
    for (slba, result) in [(2, Ok(())), (3, bad), (4, bad), (5, bad), (6, Ok(()))] {
        for command in at(slba) {
            let disk = marked(volatile(), 4, 2);
            let (all, ended) = done(task(&command, &disk, Some(vec![0; 1024])).unwrap(), NEVER);
            assert_eq!((ended, all.len()), (result, usize::from(result.is_ok())), "{command:?}");
        }
    }
    // The mark was set while the flush was running.
    let disk = volatile();
    let mut read = task(&READ, &disk, Some(vec![0; 512])).unwrap();
    assert!(matches!(read.begin(join(1)), TaskStep::Submit(StoreOperation::Flush, None)));
    marked(disk, 1, 1);
    assert!(read.ended(Ok(()), None, false).is_none());
    assert_eq!(done(read, NEVER), (vec![], bad));
}

#[test]
fn a_copy_from_what_is_marked_ends_there() {
    let (all, result) = done(copy(&marked(volatile(), 15, 1), false), NEVER);
    let read = TaskAction::Op(StoreOperation::Read { offset: 10 << 9 });
    let write = TaskAction::Op(StoreOperation::Write { offset: 100 << 9, fua: false });
    assert_eq!((all, result), (vec![read, write], Err(Status::UNRECOVERED_READ_ERROR.dnr())));
}

#[test]
fn marking_is_done_alone() {
    let command = TargetIoCommand::WriteUncorrectable { offset: 4 << 9, length: 1024 };
    let task = || task(&command, &volatile(), None).unwrap();
    let parts =
        || vec![TaskAction::Alone(blocks(4, 2)), TaskAction::Mark(MarkChange::Mark(blocks(4, 2)))];
    assert_eq!(done(task(), NEVER), (parts(), Ok(())));
    assert_eq!(done(task(), 1), (parts(), BAD), "it could not be saved");
    let conflict = Err(Status::RESERVATION_CONFLICT.dnr());
    let mut late = task();
    assert!(matches!(late.begin(join(1)), TaskStep::Exclude(_)));
    late.excluded(conflict);
    assert_eq!(done(late, NEVER), (vec![], conflict));
}

#[test]
fn what_was_marked_is_good_when_it_is_stable() {
    let (offset, fua) = (4 << 9, false);
    let write = TargetIoCommand::Write { offset, length: 1024, fua };
    let zeroes = TargetIoCommand::WriteZeroes { offset, length: 1024, deallocate: false, fua };
    let alone = || TaskAction::Alone(blocks(4, 2));
    let cleared = || TaskAction::Mark(MarkChange::Clear(blocks(4, 2)));
    let written = |fua| TaskAction::Op(StoreOperation::Write { offset, fua });
    let zeroed =
        || TaskAction::Op(StoreOperation::WriteZeroes { range: blocks(4, 2), deallocate: false });
    let flushed = || TaskAction::Op(StoreOperation::Flush);
    let run = |command, disk: Rc<TaskDisk>, fails| {
        done(task(command, &disk, Some(vec![0; 1024])).unwrap(), fails)
    };
    for disk in [|| marked(volatile(), 5, 9), || marked(volatile(), 0, 5)] {
        assert_eq!(run(&write, disk(), NEVER), (vec![alone(), written(true), cleared()], Ok(())));
        assert_eq!(run(&write, disk(), 1), (vec![alone(), written(true)], BAD));
        assert_eq!(run(&write, disk(), 2), (vec![alone(), written(true), cleared()], BAD));
        let parts = vec![alone(), zeroed(), flushed(), cleared()];
        assert_eq!(run(&zeroes, disk(), NEVER), (parts, Ok(())));
        let parts = vec![alone(), zeroed(), flushed()];
        assert_eq!(run(&zeroes, disk(), 2), (parts, BAD), "the mark stays");
    }
    let there = || marked(Rc::default(), 4, 1);
    assert_eq!(run(&zeroes, there(), NEVER), (vec![alone(), zeroed(), cleared()], Ok(())));
    let beside = || marked(volatile(), 6, 9);
    assert_eq!(run(&write, beside(), NEVER), (vec![written(false)], Ok(())));
}

#[test]
fn a_copy_to_what_is_marked_clears_all_of_it_at_the_end() {
    let disk = || marked(volatile(), 106, 1);
    let (all, result) = done(copy(&disk(), false), NEVER);
    let (first, last) = (all.first(), all.last());
    assert_eq!(first, Some(&TaskAction::Alone(blocks(100, 7))));
    assert_eq!(last, Some(&TaskAction::Mark(MarkChange::Clear(blocks(100, 7)))));
    assert!(all.contains(&TaskAction::Op(StoreOperation::Write { offset: 100 << 9, fua: true })));
    assert_eq!((all.len(), result), (8, Ok(())));
    let (all, result) = done(copy(&disk(), false), 5);
    assert_eq!((all.len(), result), (6, BAD), "it was copied in part, and its marks stay");
}

#[test]
fn what_is_marked_is_not_compared_and_written() {
    let (offset, length, fua) = (4 << 9, 512, false);
    let compare = TargetIoCommand::Compare { offset, length, fua };
    let write = TargetIoCommand::Write { offset, length, fua };
    let place = (marked(volatile(), 4, 1), &GEOMETRY);
    let buffers = (vec![0; 512], vec![0; 512]);
    let task = CommandTask::compare_and_write((&compare, &write), place, buffers);
    let bad = Err(Status::UNRECOVERED_READ_ERROR.dnr());
    assert_eq!(done(task.unwrap(), NEVER), (vec![TaskAction::Alone(blocks(4, 1))], bad));
}

/// After a failed save the marks at the next start of the target are not known.
#[test]
fn what_may_be_marked_is_cleared_by_compare_and_write() {
    let (offset, length, fua) = (4 << 9, 512, false);
    let compare = TargetIoCommand::Compare { offset, length, fua };
    let write = TargetIoCommand::Write { offset, length, fua };
    let disk = volatile();
    disk.2.borrow_mut().insert(&blocks(4, 1));
    let begun = |disk: &Rc<TaskDisk>| {
        let buffers = (vec![0; 512], vec![0; 512]);
        CommandTask::compare_and_write((&compare, &write), (disk.clone(), &GEOMETRY), buffers)
            .unwrap()
    };
    let compared = || {
        vec![TaskAction::Alone(blocks(4, 1)), TaskAction::Op(StoreOperation::Compare { offset })]
    };
    let cleared = [
        TaskAction::Op(StoreOperation::Write { offset, fua: true }),
        TaskAction::Mark(MarkChange::Clear(blocks(4, 1))),
    ];
    let all = compared().into_iter().chain(cleared).collect();
    assert_eq!(done(begun(&disk), NEVER), (all, Ok(())));
    assert_eq!(done(begun(&disk), 1), (compared(), BAD), "nothing was written");
}

#[test]
fn what_is_marked_is_no_hole() {
    let disk = marked(volatile(), 4, 2);
    for (first, is_queried) in [(0, true), (3, false), (5, false), (6, true)] {
        let range = blocks(first, 2);
        let (all, ended) =
            done(CommandTask::block_status(disk.clone(), range, Some(vec![0; 64])), NEVER);
        let queried = vec![TaskAction::Op(StoreOperation::QueryAllocation { range })];
        assert_eq!(all, if is_queried { queried } else { Vec::new() }, "{first}");
        assert_eq!(ended.is_ok(), is_queried, "its caller takes that for allocated");
    }
}
