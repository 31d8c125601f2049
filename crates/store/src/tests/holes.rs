//! Allocated parts of real files.

use super::*;
use roadtrain_system::ring::UserData;
use roadtrain_wire::lba_status::{condition, list_bytes, parse_list};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, channel};

/// A store with the receiver of its completions.
struct HolesHarness {
    store: Arc<dyn Store>,
    ring: ReactorRing,
    executor: StoreExecutor,
    from_threads: Receiver<StoreCompletion>,
}

impl HolesHarness {
    fn new(spec: &StoreSpec) -> HolesHarness {
        let (sender, from_threads) = channel();
        let completions = StoreCompletions::new(move |completion| sender.send(completion).is_ok());
        let (ring, executor) = (ReactorRing::new(8).unwrap(), StoreExecutor::new(completions));
        HolesHarness { store: open(spec).unwrap(), ring, executor, from_threads }
    }

    fn run(&mut self, op: StoreOperation, buffer: Option<Buffer>) -> Option<Buffer> {
        self.store.submit(op, buffer, StoreToken::new(1, 1), &mut self.executor.io(&mut self.ring));
        loop {
            if let Some(completion) = self.executor.next(&mut self.ring) {
                assert_eq!(completion.result, Ok(()), "{op:?}");
                return completion.buffer;
            }
            self.ring.submit_and_wait(1, Some(Duration::from_micros(200))).unwrap();
            while let Some(cqe) = self.ring.next_completion() {
                let index = UserData::unpack(cqe.user_data).index;
                self.executor.resume(&mut self.ring, index, cqe.result);
            }
            if let Ok(completion) = self.from_threads.try_recv() {
                self.executor.complete(completion);
            }
        }
    }

    fn write(&mut self, offset: u64, len: u64) {
        self.run(StoreOperation::Write { offset, fua: false }, Some(filled(len, 7)));
    }

    /// Returns the allocated ranges in bytes from `offset` on (from, to), and the condition at the end of the list.
    fn query(&mut self, offset: u64, len: u64, room: usize) -> (Vec<(u64, u64)>, u8) {
        let range = ByteRange { offset, len };
        let list = self.run(
            StoreOperation::QueryAllocation { range },
            Some(filled(list_bytes(room) as u64, 0xee)),
        );
        let list = list.unwrap();
        let (head, descriptors) = parse_list(&list).unwrap();
        let bytes = |blocks: u64| blocks << self.store.geometry().lba_shift;
        let ranges = descriptors
            .iter()
            .map(|d| (d.dslba.get(), d.dslba.get() + u64::from(d.nlb.get()) + 1))
            .map(|(from, to)| (bytes(from), bytes(to)));
        (ranges.collect(), head.condition)
    }

    fn allocated(&mut self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let (ranges, condition) = self.query(offset, len, 255);
        assert_eq!(condition, condition::COMPLETE);
        ranges
    }
}

/// True if the file system of a folder makes holes of 64 KiB, and reports them.
fn reports_holes(folder: &Path) -> bool {
    let file = std::fs::File::create(folder.join("probe")).unwrap();
    file.set_len(MIB).unwrap();
    file.write_all_at(&[7; 4096], 512 * KIB).unwrap();
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0));
    data == Ok(512 * KIB)
}

#[test]
fn written_ranges_are_allocated_and_discarded_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    if !reports_holes(folder.path()) {
        return skipped("holes of files", "the file system reports none");
    }
    for lba_bytes in [512, 4096] {
        let path = folder.path().join(format!("disk{lba_bytes}"));
        let mut disk = HolesHarness::new(&file(path, Some(16 * MIB), lba_bytes));
        assert!(disk.store.reports_allocation());
        assert_eq!(disk.allocated(0, 16 * MIB), []);
        // None of them is on stable storage, and the page cache may have some.
        disk.write(MIB, 64 * KIB);
        disk.write(16 * MIB - 64 * KIB, 64 * KIB);
        disk.write(4 * MIB, 256 * KIB);
        let end = (16 * MIB - 64 * KIB, 16 * MIB);
        let written = [(MIB, MIB + 64 * KIB), (4 * MIB, 4 * MIB + 256 * KIB), end];
        assert_eq!(disk.allocated(0, 16 * MIB), written);
        assert_eq!(
            disk.allocated(MIB + 4096, 4096),
            [(MIB + 4096, MIB + 8192)],
            "cut to the range"
        );
        assert_eq!(disk.allocated(2 * MIB, MIB), []);
        let range = ByteRange { offset: 4 * MIB + 64 * KIB, len: 64 * KIB };
        disk.run(StoreOperation::Discard { range }, None);
        let split = [(4 * MIB, 4 * MIB + 64 * KIB), (4 * MIB + 128 * KIB, 4 * MIB + 256 * KIB)];
        assert_eq!(disk.allocated(4 * MIB, MIB), split);
        // Zeroes that are kept occupy space.
        let range = ByteRange { offset: 8 * MIB, len: 64 * KIB };
        disk.run(StoreOperation::WriteZeroes { range, deallocate: true }, None);
        assert_eq!(disk.allocated(8 * MIB, MIB), []);
        assert_eq!(disk.query(0, 16 * MIB, 1), (vec![written[0]], condition::NO_ROOM));
        assert_eq!(disk.query(0, 16 * MIB, 0), (vec![], condition::NO_ROOM));
    }
}

#[test]
fn a_hole_that_is_smaller_than_a_block_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let bytes = std::fs::File::create(&path).unwrap();
    bytes.set_len(MIB).unwrap();
    bytes.write_all_at(&[7; 1000], 5 * 4096 + 3000).unwrap();
    let mut disk = HolesHarness::new(&file(path, None, 4096));
    assert_eq!(disk.store.geometry().bytes(), MIB);
    let allocated = disk.allocated(0, MIB);
    assert!(allocated.iter().any(|&(from, to)| from <= 5 * 4096 && to >= 6 * 4096));
    assert!(allocated.iter().all(|&(from, to)| from % 4096 == 0 && to % 4096 == 0 && to <= MIB));
}

#[test]
fn a_store_on_top_reports_what_the_one_below_reports() {
    let null = open(&null(MIB)).unwrap();
    assert!(null.reports_allocation());
    let ssd = SsdStore::new(null, Duration::ZERO, 1);
    assert!(ssd.reports_allocation());
    assert!(!open(&memory(MIB, 512)).unwrap().reports_allocation());
}
