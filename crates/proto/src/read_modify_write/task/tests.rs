//! Writers of neighbouring logical blocks over a model of a disk, with a crash at each point.

use super::*;
use crate::cases::cases;
use crate::read_modify_write::RmwAdmission;
use proptest::prelude::*;

const LOGICAL: usize = 512;
const PHYSICAL: usize = 4096;
/// Physical blocks of the disk.
const BLOCKS: usize = 80;
/// First logical blocks of the writers' regions, most of them inside a physical block; the last one ends the disk.
const REGIONS: [usize; 9] = [0, 3, 5, 13, 16, 21, 30, 31, BLOCKS * 8];

/// Deterministic random numbers.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

/// Operation on the disk, whose physical blocks change or are read one by one.
#[derive(Debug)]
struct DiskPart {
    writer: usize,
    op: StoreOperation,
    /// Bytes to write, or read so far.
    bytes: Vec<u8>,
    /// Physical blocks that are still to be touched, from the start of the operation.
    left: Vec<usize>,
}

/// Work of a writer.
#[derive(Debug)]
enum WriterWork {
    Idle,
    Waits(RmwPlan),
    Runs(Option<RmwTask>),
}

#[derive(Debug)]
struct Writer {
    work: WriterWork,
    op: StoreOperation,
    data: Vec<u8>,
    bounce: Vec<u8>,
    /// Content of its region, by acknowledged operations.
    model: Vec<u8>,
    /// Content of its region after the operation in flight.
    next: Vec<u8>,
    written: u8,
}

struct DiskModel {
    disk: Vec<u8>,
    parts: Vec<DiskPart>,
    writers: Vec<Writer>,
    admission: RmwAdmission<usize>,
    random: Lcg,
    /// True to treat exclusive claims as shared ones, which loses neighbours.
    is_careless: bool,
}

impl DiskModel {
    fn new(seed: u64, is_careless: bool) -> DiskModel {
        let writer = |region: &[usize]| {
            let model = vec![0; (region[1] - region[0]) * LOGICAL];
            Writer {
                work: WriterWork::Idle,
                op: StoreOperation::Flush,
                data: Vec::new(),
                bounce: Vec::new(),
                next: model.clone(),
                model,
                written: 0,
            }
        };
        DiskModel {
            disk: vec![0; BLOCKS * PHYSICAL],
            parts: Vec::new(),
            writers: REGIONS.windows(2).map(writer).collect(),
            admission: RmwAdmission::new(2 * u64::from(BOUNCE_BYTES_MAX)),
            random: Lcg(seed),
            is_careless,
        }
    }

    /// Starts a random operation of an idle writer on a part of its region.
    fn start(&mut self, index: usize) {
        let (first, end) = (REGIONS[index], REGIONS[index + 1]);
        let from = first + self.random.below(end - first);
        let longest = if self.random.below(4) == 0 { end - from } else { (end - from).min(12) };
        let blocks = 1 + self.random.below(longest);
        let range = ByteRange { offset: (from * LOGICAL) as u64, len: (blocks * LOGICAL) as u64 };
        let writer = &mut self.writers[index];
        let here = (from - first) * LOGICAL..(from - first + blocks) * LOGICAL;
        let (offset, deallocate) = (range.offset, self.random.below(2) == 0);
        writer.data.clear();
        writer.next.copy_from_slice(&writer.model);
        writer.op = match self.random.below(8) {
            0 => StoreOperation::WriteZeroes { range, deallocate },
            1 => StoreOperation::Discard { range },
            2 => StoreOperation::Compare { offset },
            3 => StoreOperation::Read { offset },
            _ => StoreOperation::Write { offset, fua: deallocate },
        };
        match writer.op {
            StoreOperation::WriteZeroes { .. } => writer.next[here].fill(0),
            StoreOperation::Discard { range } => {
                let whole = enclosed(range, PHYSICAL as u64);
                let base = (first * LOGICAL) as u64;
                if whole.len > 0 {
                    let from = (whole.offset - base) as usize;
                    writer.next[from..from + whole.len as usize].fill(0);
                }
            }
            StoreOperation::Compare { .. } => writer.data.extend(&writer.model[here]),
            StoreOperation::Read { .. } => writer.data.resize(here.len(), 0xee),
            _ => {
                writer.written = writer.written % 250 + 1;
                writer.data.resize(here.len(), writer.written);
                writer.next[here].fill(writer.written);
            }
        }
        match RmwPlan::of(&writer.op, writer.data.len() as u64, PHYSICAL as u64) {
            RmwPlan::Nothing => self.acknowledge(index, Ok(())),
            plan @ RmwPlan::Pass(_) => self.run(index, plan),
            plan => {
                let (RmwPlan::Claimed(_, claim) | RmwPlan::Task(_, claim)) = plan else {
                    unreachable!("the others were handled");
                };
                let is_exclusive = claim.is_exclusive && !self.is_careless;
                match self.admission.begin(index, RmwClaim { is_exclusive, ..claim }) {
                    true => self.run(index, plan),
                    false => self.writers[index].work = WriterWork::Waits(plan),
                }
            }
        }
    }

    /// Runs an operation that is admitted.
    fn run(&mut self, index: usize, plan: RmwPlan) {
        let writer = &mut self.writers[index];
        match plan {
            RmwPlan::Nothing => unreachable!("acknowledged at once"),
            RmwPlan::Pass(op) | RmwPlan::Claimed(op, _) => {
                writer.work = WriterWork::Runs(None);
                let bytes = writer.data.clone();
                self.submit(index, op, bytes);
            }
            RmwPlan::Task(mut task, _) => {
                writer.bounce = vec![0xdd; task.bounce_bytes() as usize];
                let step = task.begin(&mut writer.bounce, &writer.data);
                writer.work = WriterWork::Runs(Some(task));
                self.take(index, step);
            }
        }
    }

    fn take(&mut self, index: usize, step: RmwStep) {
        let bounce = |range: ByteRange| self.writers[index].bounce[..range.len as usize].to_vec();
        match step {
            RmwStep::Read(range) => {
                let bytes = bounce(range);
                self.submit(index, StoreOperation::Read { offset: range.offset }, bytes);
            }
            RmwStep::Write(range, fua) => {
                let bytes = bounce(range);
                let op = StoreOperation::Write { offset: range.offset, fua };
                self.submit(index, op, bytes);
            }
            RmwStep::WriteZeroes(range, deallocate) => {
                let op = StoreOperation::WriteZeroes { range, deallocate };
                self.submit(index, op, Vec::new());
            }
            RmwStep::Done(result) => self.acknowledge(index, result),
        }
    }

    fn submit(&mut self, writer: usize, op: StoreOperation, bytes: Vec<u8>) {
        let range = range_of(&op, &bytes);
        let physical = PHYSICAL as u64;
        assert_eq!((range.offset % physical, range.len % physical), (0, 0), "{op:?}");
        let left = (0..range.len as usize / PHYSICAL).collect();
        self.parts.push(DiskPart { writer, op, bytes, left });
    }

    fn acknowledge(&mut self, index: usize, result: Result<(), Status>) {
        assert_eq!(result, Ok(()), "{:?}", self.writers[index].op);
        let writer = &mut self.writers[index];
        writer.work = WriterWork::Idle;
        writer.model.copy_from_slice(&writer.next);
        if let StoreOperation::Read { offset } = writer.op {
            let at = offset as usize - REGIONS[index] * LOGICAL;
            assert!(writer.data == writer.model[at..at + writer.data.len()], "a read of {index}");
        }
        let mut admitted = Vec::new();
        self.admission.end(index, &mut admitted);
        for next in admitted {
            let work = std::mem::replace(&mut self.writers[next].work, WriterWork::Idle);
            let WriterWork::Waits(plan) = work else { panic!("{next} did not wait") };
            self.run(next, plan);
        }
    }

    /// Touches a physical block of a random operation, or completes it.
    fn proceed(&mut self) {
        let at = self.random.below(self.parts.len());
        let part = &mut self.parts[at];
        if !part.left.is_empty() {
            let block = part.left.swap_remove(self.random.below(part.left.len()));
            let range = range_of(&part.op, &part.bytes);
            let from = range.offset as usize + block * PHYSICAL;
            let place = &mut self.disk[from..from + PHYSICAL];
            let bytes = block * PHYSICAL..(block + 1) * PHYSICAL;
            match part.op {
                StoreOperation::Read { .. } => part.bytes[bytes].copy_from_slice(place),
                StoreOperation::Write { .. } => place.copy_from_slice(&part.bytes[bytes]),
                StoreOperation::Compare { .. } => assert!(*place == part.bytes[bytes], "compare"),
                _ => place.fill(0),
            }
            return;
        }
        let DiskPart { writer: index, bytes, .. } = self.parts.swap_remove(at);
        let writer = &mut self.writers[index];
        let WriterWork::Runs(task) = &mut writer.work else { panic!("{index} does not run") };
        let step = match task {
            Some(task) => {
                writer.bounce[..bytes.len()].copy_from_slice(&bytes);
                task.advance(Ok(()), &mut writer.bounce, &mut writer.data)
            }
            None => {
                writer.data = bytes;
                RmwStep::Done(Ok(()))
            }
        };
        self.take(index, step);
    }

    /// Returns a logical block that is neither as acknowledged nor as the operation in flight leaves it.
    fn torn(&self) -> Option<usize> {
        let mut all = self.writers.iter().zip(REGIONS).flat_map(|(writer, first)| {
            let blocks = writer.model.chunks(LOGICAL).zip(writer.next.chunks(LOGICAL));
            (first..).zip(blocks)
        });
        let is_torn = |(block, (old, new)): &(usize, (&[u8], &[u8]))| {
            let found = &self.disk[block * LOGICAL..(block + 1) * LOGICAL];
            found != *old && found != *new
        };
        all.find(is_torn).map(|(block, _)| block)
    }
}

fn range_of(op: &StoreOperation, bytes: &[u8]) -> ByteRange {
    match *op {
        StoreOperation::Read { offset }
        | StoreOperation::Compare { offset }
        | StoreOperation::Write { offset, .. } => ByteRange { offset, len: bytes.len() as u64 },
        StoreOperation::WriteZeroes { range, .. } | StoreOperation::Discard { range } => range,
        _ => unreachable!("no other operation is submitted"),
    }
}

/// Runs random operations. A crash at any point leaves what the disk has then.
fn run(seed: u64, steps: usize, is_careless: bool) -> Result<(), String> {
    let mut model = DiskModel::new(seed, is_careless);
    for step in 0..steps {
        let index = model.random.below(model.writers.len());
        match model.writers[index].work {
            WriterWork::Idle if model.random.below(3) > 0 => model.start(index),
            _ if !model.parts.is_empty() => model.proceed(),
            _ => {}
        }
        if let Some(block) = model.torn() {
            return Err(format!("step {step}: logical block {block} is torn or lost"));
        }
    }
    while !model.parts.is_empty() {
        model.proceed();
    }
    assert!(model.admission.is_empty(), "an operation was never admitted");
    model.torn().map_or(Ok(()), |block| Err(format!("block {block} at the end")))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(200), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn neighbours_are_never_lost_wherever_it_ends(seed in any::<u64>()) {
        prop_assert_eq!(run(seed, 400, false), Ok(()));
    }
}

/// The check can fail: without exclusive claims, neighbours overwrite each other.
#[test]
fn a_read_modify_write_that_is_not_alone_is_found() {
    let is_found = |seed| matches!(std::panic::catch_unwind(|| run(seed, 400, true)), Ok(Err(_)));
    assert!((0..20).any(is_found));
}

#[test]
fn whole_physical_blocks_pass_as_they_are() {
    let range = ByteRange { offset: 8192, len: 4096 };
    let plan = |op: StoreOperation, bytes| RmwPlan::of(&op, bytes, 4096);
    for op in [StoreOperation::Read { offset: 8192 }, StoreOperation::Compare { offset: 0 }] {
        assert!(matches!(plan(op, 4096), RmwPlan::Pass(passed) if passed == op));
    }
    assert!(matches!(plan(StoreOperation::Flush, 0), RmwPlan::Pass(_)));
    let write = StoreOperation::Write { offset: 8192, fua: true };
    let shared = RmwClaim { range, is_exclusive: false, bytes: 0 };
    assert!(
        matches!(plan(write, 4096), RmwPlan::Claimed(op, claim) if (op, claim) == (write, shared))
    );
    assert!(matches!(plan(StoreOperation::Read { offset: 512 }, 0), RmwPlan::Nothing));
}

#[test]
fn a_discard_is_of_the_whole_physical_blocks_inside() {
    let plan = |offset, len| {
        let range = ByteRange { offset, len };
        match RmwPlan::of(&StoreOperation::Discard { range }, 0, 4096) {
            RmwPlan::Claimed(StoreOperation::Discard { range }, _) => {
                Some((range.offset, range.len))
            }
            _ => None,
        }
    };
    assert_eq!(plan(512, 4096), None);
    assert_eq!(plan(4096, 4096), Some((4096, 4096)));
    assert_eq!(plan(512, 12288), Some((4096, 8192)));
    assert_eq!(plan(1024, 512), None);
}

fn task(op: StoreOperation, bytes: u64) -> (RmwTask, RmwClaim) {
    match RmwPlan::of(&op, bytes, 4096) {
        RmwPlan::Task(task, claim) => (task, claim),
        plan => panic!("{plan:?}"),
    }
}

#[test]
fn a_long_write_is_made_piece_by_piece_and_read_only_at_its_ends() {
    let bytes = u64::from(BOUNCE_BYTES_MAX) * 2;
    let (mut task, claim) = task(StoreOperation::Write { offset: 512, fua: true }, bytes);
    assert_eq!(
        (claim.range, claim.is_exclusive),
        (ByteRange { offset: 0, len: bytes + 4096 }, true)
    );
    assert_eq!(claim.bytes, BOUNCE_BYTES_MAX);
    let mut bounce = vec![0; claim.bytes as usize];
    let mut data = vec![7; bytes as usize];
    let piece = |at: u64, len: u64| ByteRange { offset: at * u64::from(BOUNCE_BYTES_MAX), len };
    let whole = u64::from(BOUNCE_BYTES_MAX);
    assert_eq!(task.begin(&mut bounce, &data), RmwStep::Read(piece(0, whole)));
    for step in [
        RmwStep::Write(piece(0, whole), true),
        RmwStep::Write(piece(1, whole), true),
        RmwStep::Read(piece(2, 4096)),
        RmwStep::Write(piece(2, 4096), true),
        RmwStep::Done(Ok(())),
    ] {
        assert_eq!(task.advance(Ok(()), &mut bounce, &mut data), step);
    }
}

#[test]
fn a_write_fails_when_its_neighbours_cannot_be_read() {
    for (op, expected) in [
        (StoreOperation::Write { offset: 512, fua: false }, Status::WRITE_FAULT),
        (StoreOperation::Read { offset: 512 }, Status::UNRECOVERED_READ_ERROR),
        (StoreOperation::Compare { offset: 512 }, Status::UNRECOVERED_READ_ERROR),
    ] {
        let (mut task, claim) = task(op, 512);
        let (mut bounce, mut data) = (vec![0; claim.bytes as usize], vec![0; 512]);
        assert!(matches!(task.begin(&mut bounce, &data), RmwStep::Read(_)));
        let failed = Err(Status::UNRECOVERED_READ_ERROR);
        let step = task.advance(failed, &mut bounce, &mut data);
        assert_eq!(step, RmwStep::Done(Err(expected)), "{op:?}");
    }
}

#[test]
fn a_compare_is_of_its_own_bytes_only() {
    let (mut task, _) = task(StoreOperation::Compare { offset: 1024 }, 512);
    let (mut bounce, mut data) = (vec![1; 4096], vec![2; 512]);
    bounce[1024..1536].fill(2);
    task.begin(&mut bounce, &data);
    assert_eq!(task.clone().advance(Ok(()), &mut bounce, &mut data), RmwStep::Done(Ok(())));
    bounce[1535] = 3;
    let differs = RmwStep::Done(Err(Status::COMPARE_FAILURE.dnr()));
    assert_eq!(task.advance(Ok(()), &mut bounce, &mut data), differs);
}
