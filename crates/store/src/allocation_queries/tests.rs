use super::*;
use crate::{OpenError, Store, StoreExecutor, StoreGeometry, StoreOperation};
use roadtrain_system::ring::ReactorRing;
use roadtrain_wire::lba_status::{LbaStatusDescriptor, list_bytes, parse_list};
use std::sync::mpsc::{Receiver, Sender, channel};

const RANGE: ByteRange = ByteRange { offset: 4096, len: 64 << 10 };

/// Returns the report of a query that has found these bytes, in blocks of 512 or of 4096 bytes.
fn found(lba_shift: u8, room: usize, parts: &[(u64, u64)]) -> (Vec<(u64, u64)>, u8) {
    let mut list = vec![0; list_bytes(room)];
    let later = Instant::now() + Duration::from_secs(3600);
    let mut found = AllocationReport::new(&mut list, RANGE, lba_shift, later);
    for &(offset, len) in parts {
        if !found.add(offset, len) {
            break;
        }
    }
    found.end();
    read(&list)
}

fn read(list: &[u8]) -> (Vec<(u64, u64)>, u8) {
    let (head, descriptors) = parse_list(list).unwrap();
    let blocks = |d: &LbaStatusDescriptor| (d.dslba.get(), u64::from(d.nlb.get()) + 1);
    (descriptors.iter().map(blocks).collect(), head.condition)
}

#[test]
fn a_block_is_allocated_if_an_byte_of_it_is() {
    let complete = |blocks: &[(u64, u64)]| (blocks.to_vec(), condition::COMPLETE);
    assert_eq!(found(9, 4, &[]), complete(&[]));
    assert_eq!(found(9, 4, &[(5119, 2)]), complete(&[(9, 2)]));
    assert_eq!(found(12, 4, &[(8191, 2)]), complete(&[(1, 2)]));
    assert_eq!(
        found(12, 4, &[(4097, 1), (4099, 1), (8192, 1)]),
        complete(&[(1, 2)]),
        "reported once"
    );
    assert_eq!(found(12, 4, &[(0, 1 << 40)]), complete(&[(1, 16)]), "cut to the range");
    assert_eq!(found(9, 4, &[(0, 4096), (69632, 1), (u64::MAX, 9)]), complete(&[]), "outside");
    let two = [(4096, 512), (8192, 512)];
    assert_eq!(found(9, 1, &two), (vec![(8, 1)], condition::NO_ROOM));
    assert_eq!(found(9, 2, &two), complete(&[(8, 1), (16, 1)]));
}

#[test]
fn a_query_that_takes_too_long_reports_how_far_it_has_come() {
    let mut list = vec![0; list_bytes(2)];
    let mut found = AllocationReport::new(&mut list, RANGE, 9, Instant::now());
    assert!(found.add(4096, 512) && !found.has_time(40960));
    found.end();
    assert_eq!(read(&list), (vec![(8, 1), (80, 1)], condition::UNSPECIFIED));
    let mut list = vec![0; list_bytes(0)];
    let mut found = AllocationReport::new(&mut list, RANGE, 9, Instant::now());
    assert!(!found.has_time(40960));
    found.end();
    assert_eq!(read(&list), (vec![], condition::NO_ROOM));
}

/// A store whose queries wait until the test releases them.
#[derive(Debug)]
struct GatedStore {
    queries: StoreAllocationQueries,
    gate: Arc<Mutex<Receiver<()>>>,
}

impl Store for GatedStore {
    fn geometry(&self) -> StoreGeometry {
        StoreGeometry { lba_shift: 9, blocks: 1 << 20, read_only: false, volatile_cache: false }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        Ok(1)
    }

    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        let StoreOperation::QueryAllocation { range } = op else { panic!("{op:?}") };
        let gate = self.gate.clone();
        self.queries.begin((range, 9), buffer, token, io, move |found| {
            lock(&gate).recv().map_err(|_| Status::INTERNAL_ERROR)?;
            found.add(4096, 512);
            Ok(())
        });
    }
}

struct QueryHarness {
    store: GatedStore,
    executor: StoreExecutor,
    ring: ReactorRing,
    elsewhere: Receiver<StoreCompletion>,
}

impl QueryHarness {
    /// Makes a harness; each message to the sender releases one query.
    fn new() -> (QueryHarness, Sender<()>) {
        let (go, gate) = channel();
        let (sender, elsewhere) = channel();
        let completions = StoreCompletions::new(move |completion| sender.send(completion).is_ok());
        let store = GatedStore {
            queries: StoreAllocationQueries::default(),
            gate: Arc::new(Mutex::new(gate)),
        };
        let (executor, ring) = (StoreExecutor::new(completions), ReactorRing::new(4).unwrap());
        (QueryHarness { store, executor, ring, elsewhere }, go)
    }

    fn begin(&mut self, number: u32) -> StoreToken {
        let token = StoreToken::new(number, 1);
        let work =
            (StoreOperation::QueryAllocation { range: RANGE }, Some(Buffer::alloc(list_bytes(4))));
        self.store.submit(work.0, work.1, token, &mut self.executor.io(&mut self.ring));
        token
    }

    fn answer(&mut self) -> (StoreToken, Result<Vec<(u64, u64)>, Status>) {
        let completion = self.elsewhere.recv_timeout(Duration::from_secs(60)).unwrap();
        self.executor.complete(completion);
        let completion = self.executor.next(&mut self.ring).expect("it is the caller's");
        let list = completion.buffer.expect("it comes back");
        (completion.token, completion.result.map(|()| read(&list).0))
    }
}

#[test]
fn queries_run_in_order_and_none_is_lost() {
    let (mut harness, go) = QueryHarness::new();
    let tokens = [1, 2, 3].map(|number| harness.begin(number));
    for token in tokens {
        go.send(()).unwrap();
        assert_eq!(harness.answer(), (token, Ok(vec![(8, 1)])));
    }
    // The thread has ended, or is about to.
    let token = harness.begin(4);
    go.send(()).unwrap();
    assert_eq!(harness.answer(), (token, Ok(vec![(8, 1)])));
    let token = harness.begin(5);
    drop(go);
    assert_eq!(harness.answer(), (token, Err(Status::INTERNAL_ERROR)));
}

#[test]
fn a_cancelled_query_ends_at_once() {
    let (mut harness, go) = QueryHarness::new();
    let [first, second, third] = [1, 2, 3].map(|number| harness.begin(number));
    for token in [second, first] {
        harness.executor.cancel(&mut harness.ring, token);
        assert_eq!(harness.answer(), (token, Err(Status::ABORT_REQUESTED)));
        harness.executor.cancel(&mut harness.ring, token);
    }
    // The first one, if it was started, and the third one; the second one never starts.
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert_eq!(harness.answer(), (third, Ok(vec![(8, 1)])));
    assert!(harness.elsewhere.recv_timeout(Duration::from_millis(20)).is_err());
}

#[test]
fn more_than_can_wait_are_refused() {
    let (mut harness, go) = QueryHarness::new();
    let begun = WAITING_MAX as u32 + 2;
    (0..begun).for_each(|number| _ = harness.begin(number));
    let (_, result) = harness.answer();
    assert_eq!(result, Err(Status::COMMAND_INTERRUPTED));
    drop(go);
}
