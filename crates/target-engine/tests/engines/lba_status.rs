//! Get LBA Status at a running target: of files, and of stores that do not respond.

use crate::harness::*;
use crate::peer::{EngineHarness, RawPeer, raw};
use roadtrain_host_engine::{
    AdminConnection, Allocation, AllocationQuery, Front, FrontTurn, HostController, RANGES_MAX,
};
use roadtrain_store::{
    OpenError, Store, StoreCompletion, StoreCompletions, StoreContinuation, StoreGeometry, StoreIo,
    StoreOperation as StoreOp, StoreToken,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Server};
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, Connect, ConnectData, Property, property};
use roadtrain_wire::lba_status::{GetLbaStatus, action, condition, list_bytes, parse_list};
use roadtrain_wire::pdu::PduType;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;
use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time limit of a store.
const PATIENCE: Duration = Duration::from_secs(1);
const GET: GetLbaStatus =
    GetLbaStatus { slba: 0, blocks: None, bytes: list_bytes(8) as u64, action: action::ALLOCATED };

/// Store whose block status queries never complete unless cancelled. Other operations complete immediately. It counts
/// the queries.
#[derive(Debug, Default)]
struct StuckStore(AtomicUsize);

struct StuckQuery(Mutex<Option<Buffer>>, StoreCompletions);

impl StoreContinuation for StuckQuery {
    fn answered(&self, completion: StoreCompletion, io: &mut StoreIo<'_>) {
        io.complete(completion);
    }

    fn cancel(&self, token: StoreToken) {
        if let Some(buffer) = self.0.lock().unwrap().take() {
            self.1.send(StoreCompletion::new(token, Err(Status::ABORT_REQUESTED), Some(buffer)));
        }
    }
}

impl Store for StuckStore {
    fn geometry(&self) -> StoreGeometry {
        StoreGeometry { lba_shift: 9, blocks: MIB / 512, read_only: false, volatile_cache: false }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        Ok(0x57)
    }

    fn submit(&self, op: StoreOp, buffer: Option<Buffer>, token: StoreToken, io: &mut StoreIo<'_>) {
        if let StoreOp::QueryAllocation { .. } = op {
            self.0.fetch_add(1, SeqCst);
            let stuck = Arc::new(StuckQuery(Mutex::new(buffer), io.completions()));
            let _ = io.then(token, stuck);
        } else {
            io.complete(StoreCompletion::new(token, Ok(()), buffer));
        }
    }

    fn reports_allocation(&self) -> bool {
        true
    }
}

fn stuck() -> Export {
    stuck_in(&Arc::default())
}

fn stuck_in(store: &Arc<StuckStore>) -> Export {
    Export::with_store(1, store.clone())
}

/// Returns the extents of a list, as first block and number of blocks, and its condition.
fn read(list: &[u8]) -> (Vec<(u64, u64)>, u8) {
    let (head, descriptors) = parse_list(list).unwrap();
    let blocks = descriptors.iter().map(|d| (d.dslba.get(), u64::from(d.nlb.get()) + 1));
    (blocks.collect(), head.condition)
}

fn get_status(admin: &mut AdminConnection, get: GetLbaStatus, nsid: u32) -> (Vec<(u64, u64)>, u8) {
    let mut list = vec![0xee; get.bytes as usize];
    admin.run("Get LBA Status", &get.emit(nsid), &[], &mut list).unwrap();
    read(&list)
}

#[test]
fn files_report_allocated_blocks_and_memory_reports_all() {
    let directory = tempfile::tempdir().unwrap();
    let exports = vec![file(1, &directory, 64 * MIB, 4096), memory(2, MIB, 512)];
    let server = serve(exports);
    let client = connect(&server);
    client.write(1, 256, pattern(65536, 1), false).unwrap();
    let mut admin = AdminConnection::connect(&host_config(address(&server))).unwrap();
    let complete = condition::COMPLETE;
    // A file system without holes reports everything as allocated.
    let (ranges, condition) = get_status(&mut admin, GET, 1);
    let covers = |&(slba, blocks): &(u64, u64)| slba <= 256 && slba + blocks >= 272;
    assert!(ranges.iter().any(covers) && condition == complete, "{ranges:?}");
    let part = GetLbaStatus { slba: 260, blocks: Some(2), ..GET };
    assert_eq!(get_status(&mut admin, part, 1), (vec![(260, 2)], complete));
    assert_eq!(get_status(&mut admin, GET, 2), (vec![(0, 2048)], complete));
    let short = GetLbaStatus { bytes: 8, ..GET };
    assert_eq!(get_status(&mut admin, short, 2), (vec![], condition::NO_ROOM));
    let mut head = [0xee; 4];
    let sqe = GetLbaStatus { bytes: 4, ..GET }.emit(2);
    admin.run("Get LBA Status", &sqe, &[], &mut head).unwrap();
    assert_eq!(head, [0; 4], "the number of descriptors, and nothing else");
    drop((client, admin));
    assert_nothing_left(&server);
}

#[test]
fn a_store_that_does_not_respond_has_a_time_limit_and_delays_no_other() {
    let server = serve(vec![stuck()]);
    let client = connect(&server);
    let mut admin = AdminConnection::connect(&host_config(address(&server))).unwrap();
    // Number of other commands served meanwhile: few on a stalled machine, but not every time.
    let served = (0..3).map(|_| {
        let begun = Instant::now();
        let (list, elapsed, flushes) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let list = get_status(&mut admin, GET, 1);
                (list, begun.elapsed())
            });
            let mut flushes = 0;
            while !waiting.is_finished() {
                client.flush(1).unwrap();
                flushes += 1;
            }
            let (list, elapsed) = waiting.join().unwrap();
            (list, elapsed, flushes)
        });
        assert_eq!(list, (vec![(0, 2048)], condition::COMPLETE), "all counts as allocated");
        assert!((PATIENCE..PATIENCE * 10).contains(&elapsed), "{elapsed:?}");
        flushes
    });
    assert!(served.into_iter().any(|flushes| flushes > 10), "the reactor waits, too");
    drop((client, admin));
    assert_nothing_left(&server);
}

/// Connects an admin queue by hand, and enables its controller.
fn admin_queue(harness: &EngineHarness) -> RawPeer {
    let mut peer = harness.ready(raw::PLAIN);
    let connect = Connect { recfmt: 0, qid: 0, sqsize: 31, cattr: 0, kato_ms: 0 };
    let data = ConnectData::new([9; 16], CNTLID_DYNAMIC, NQN, "nqn.2024-01.test:other");
    peer.send(&raw::command(1, connect.emit(), data.as_bytes(), raw::PLAIN));
    assert!(peer.completion(1).is_success());
    let enable = Property::set(property::CC, 0x0046_0061);
    peer.send(&raw::command(2, enable, &[], raw::PLAIN));
    assert!(peer.completion(2).is_success());
    peer
}

#[test]
fn block_status_queries_of_a_queue_are_bounded() {
    let harness = EngineHarness::with(server_config(vec![memory(2, MIB, 512), stuck()]));
    let mut peer = admin_queue(&harness);
    let all = (0..10).flat_map(|cid| raw::command(cid, GET.emit(1), &[], raw::PLAIN));
    peer.send(&all.collect::<Vec<u8>>());
    for _ in 0..6 {
        assert_eq!(peer.any_completion().1, Status::COMMAND_INTERRUPTED);
    }
    for _ in 0..4 {
        let (kind, pdu) = peer.next().unwrap();
        assert_eq!(kind, PduType::C2hData as u8);
        assert_eq!(read(&pdu[24..]), (vec![(0, 2048)], condition::COMPLETE));
        assert!(peer.any_completion().1.is_success());
    }
    // Further queries are possible.
    peer.send(&raw::command(7, GET.emit(2), &[], raw::PLAIN));
    assert_eq!(peer.next().unwrap().0, PduType::C2hData as u8);
    drop(peer);
    assert_eq!(harness.client.view().info().namespaces.len(), 2);
}

#[test]
fn the_target_does_not_wait_for_queries_of_a_closed_queue() {
    let store = Arc::<StuckStore>::default();
    let harness = EngineHarness::with(server_config(vec![stuck_in(&store)]));
    let mut given_up_after = (1..4).map(|queries| {
        let mut peer = admin_queue(&harness);
        peer.send(&raw::command(3, GET.emit(1), &[], raw::PLAIN));
        eventually("the store has it", || store.0.load(SeqCst) == queries);
        let gone = Instant::now();
        drop(peer);
        eventually("it is given up", || harness.server.usage().store_commands == 0);
        gone.elapsed()
    });
    // Not every time on a stalled machine.
    assert!(given_up_after.any(|time| time < PATIENCE), "it was waited for");
    drop(admin_queue(&harness)); // the same host can connect again
}

#[test]
fn a_namespace_may_go_meanwhile() {
    let store = Arc::<StuckStore>::default();
    let server = serve(vec![stuck_in(&store)]);
    let mut admin = AdminConnection::connect(&host_config(address(&server))).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| get_status(&mut admin, GET, 1));
        eventually("the store has it", || store.0.load(SeqCst) == 1);
        server.reload(&[subsystem(Vec::new())]).unwrap();
        assert_eq!(waiting.join().unwrap(), (vec![(0, 2048)], condition::COMPLETE));
    });
    let mut list = [0; 4096];
    let sqe = GetLbaStatus { bytes: 4096, ..GET }.emit(1);
    admin.run("Get LBA Status", &sqe, &[], &mut list).unwrap_err();
}

/// Front that sends the queries of a test.
struct AllocationFront {
    queries: Receiver<AllocationQuery>,
    results: Sender<AllocationReply>,
    number: u64,
}

impl Front for AllocationFront {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        while let Ok(query) = self.queries.try_recv() {
            self.number += 1;
            if !turn.query_allocation(query, self.number) {
                self.results.send((self.number, None)).unwrap();
            }
        }
        while let Some(found) = turn.next_allocation() {
            self.results.send(found).unwrap();
        }
        if turn.stopping() {
            turn.stop();
        }
    }

    fn deadline(&self) -> Option<roadtrain_proto::time::Instant> {
        Some(roadtrain_proto::time::Instant(0)) // run again immediately
    }
}

/// Number of a query, and its result.
type AllocationReply = (u64, Option<Allocation>);

/// Connects a controller with such a front.
fn connect_allocation_front(
    server: &Server,
) -> (HostController, Sender<AllocationQuery>, Receiver<AllocationReply>) {
    let (query_sender, queries) = channel();
    let (results, answers) = channel();
    let mut queries = Some(queries);
    let controller = HostController::connect(host_config(address(server)), |_, _| {
        let queries = queries.take().expect("one reactor");
        Box::new(AllocationFront { queries, results: results.clone(), number: 0 })
    });
    (controller.unwrap(), query_sender, answers)
}

const QUERY: AllocationQuery =
    AllocationQuery { nsid: 1, slba: 8, blocks: 100, ranges: RANGES_MAX };

#[test]
fn fronts_get_allocated_blocks_or_no_result() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let (controller, query_sender, answers) = connect_allocation_front(&server);

    query_sender.send(QUERY).unwrap();
    let all = Allocation { known: 8..108, allocated: iter::once(8..108).collect() };
    assert_eq!(answers.recv_timeout(LONG).unwrap(), (1, Some(all)));
    query_sender.send(AllocationQuery { nsid: 9, ..QUERY }).unwrap();
    query_sender.send(AllocationQuery { slba: 4000, ..QUERY }).unwrap();
    for number in [2, 3] {
        assert_eq!(answers.recv_timeout(LONG).unwrap(), (number, None));
    }
    // The target ends: earlier and later queries all get a result.
    drop(server);
    for number in 4..20 {
        query_sender.send(QUERY).unwrap();
        assert_eq!(answers.recv_timeout(LONG).unwrap().0, number);
    }
    controller.stop();
    controller.join();
}
