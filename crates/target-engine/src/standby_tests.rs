//! Tests of namespaces whose blocks change owners: none waits for another one.

use super::control::poll_owners;
use super::kept_file::KeptPlace;
use super::open_store::OpenStore;
use super::tests::{NQN, eventually};
use super::uncorrectable::{MarkWaiter, Uncorrectable};
use super::{Export, Server, ServerConfig, Subsystem};
use roadtrain_store::{
    BlockOwnership, ByteRange, OpenError, Resize, Store, StoreCompletion, StoreCompletions,
    StoreGeometry, StoreIo, StoreOperation, StoreToken,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_proto::uncorrectable::MarkChange;
use roadtrain_target_proto::{AnaState, HostAuthentication};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Store whose owner the test sets.
#[derive(Debug)]
struct TestOwnerStore {
    number: u128,
    current: Mutex<BlockOwnership>,
    /// True if opening fails.
    is_refused: AtomicBool,
    /// True if opening does not return.
    is_stuck: AtomicBool,
    is_tried: AtomicBool,
    /// Number of queries for the owner.
    owner_queries: AtomicU32,
}

impl TestOwnerStore {
    fn new(number: u128, ownership: BlockOwnership) -> Arc<TestOwnerStore> {
        Arc::new(TestOwnerStore {
            number,
            current: Mutex::new(ownership),
            is_refused: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            is_tried: AtomicBool::new(false),
            owner_queries: AtomicU32::new(0),
        })
    }

    fn become_ours(&self) {
        self.set(BlockOwnership::Ours);
    }

    fn set(&self, ownership: BlockOwnership) {
        *self.current.lock().unwrap() = ownership;
    }
}

impl Store for TestOwnerStore {
    fn geometry(&self) -> StoreGeometry {
        StoreGeometry { lba_shift: 9, blocks: 8, read_only: true, volatile_cache: false }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        Ok(self.number)
    }

    fn submit(
        &self,
        _: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        io.complete(StoreCompletion::new(token, Ok(()), buffer));
    }

    fn ownership(&self) -> BlockOwnership {
        self.owner_queries.fetch_add(1, Ordering::Relaxed);
        *self.current.lock().unwrap()
    }

    fn take_over(&self) -> Result<(), OpenError> {
        self.become_ours();
        Ok(())
    }

    fn plan(&self, _: Option<u64>) -> Result<Resize, OpenError> {
        self.is_tried.store(true, Ordering::Relaxed);
        eventually("it is let go", || !self.is_stuck.load(Ordering::Relaxed));
        let bytes = self.geometry().bytes();
        match self.is_refused.load(Ordering::Relaxed) {
            true => Err(OpenError::Unfenceable),
            false => Ok(Resize::to(bytes, bytes)),
        }
    }
}

fn subsystems(stores: &[Arc<TestOwnerStore>], yields: bool) -> Vec<Subsystem> {
    let export = |(store, nsid): (&Arc<TestOwnerStore>, u32)| {
        let export = Export::with_store(nsid, store.clone());
        Export { yields, ..export }
    };
    let namespaces = stores.iter().zip(1..).map(export).collect();
    vec![Subsystem { namespaces, ..Subsystem::new(NQN) }]
}

fn serve(stores: &[Arc<TestOwnerStore>], yields: bool) -> Server {
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let mut config = ServerConfig::new(listen, subsystems(stores, yields));
    config.cores = vec![0];
    Server::start(config).unwrap()
}

fn states(server: &Server) -> Vec<AnaState> {
    let [subsystem] = &server.view().0.subsystems[..] else { panic!("one subsystem") };
    subsystem.namespaces.iter().map(|namespace| namespace.ana).collect()
}

#[test]
fn one_that_cannot_be_had_keeps_no_other_one_from_being_served() {
    let stores = [1, 2].map(|number| TestOwnerStore::new(number, BlockOwnership::Theirs));
    let server = serve(&stores, false);
    stores[0].is_refused.store(true, Ordering::Relaxed);
    stores.iter().for_each(|store| store.become_ours());
    let (out, here) = (AnaState::Inaccessible, AnaState::Optimized);
    eventually("the second is served", || states(&server) == [out, here]);
    // A retry follows.
    stores[0].is_refused.store(false, Ordering::Relaxed);
    eventually("the first is served", || states(&server) == [here, here]);
    server.stop();
}

/// A target that has just lost the blocks stands by only a moment later.
#[test]
fn one_that_was_just_lost_is_claimed_back() {
    let store = TestOwnerStore::new(1, BlockOwnership::Ours);
    let server = serve(std::slice::from_ref(&store), false);
    store.set(BlockOwnership::Lost);
    std::thread::scope(|scope| {
        let claimed = scope.spawn(|| server.claim(NQN, 1, Duration::from_secs(20)));
        std::thread::sleep(Duration::from_millis(200));
        store.set(BlockOwnership::Theirs);
        assert!(claimed.join().unwrap().unwrap());
    });
    assert_eq!(states(&server), [AnaState::Optimized]);
    server.stop();
}

/// A store that is cut off completes its commands when its owner is queried.
#[test]
fn owners_are_queried_while_another_store_opens() {
    let stores = [1, 2].map(|number| TestOwnerStore::new(number, BlockOwnership::Theirs));
    let server = serve(&stores, false);
    let [opening, other] = &stores;
    opening.is_tried.store(false, Ordering::Relaxed);
    opening.is_stuck.store(true, Ordering::Relaxed);
    opening.become_ours();
    eventually("it is opened", || opening.is_tried.load(Ordering::Relaxed));
    let queries = || other.owner_queries.load(Ordering::Relaxed);
    let before = queries();
    eventually("the other one is queried", || queries() > before + 3);
    opening.is_stuck.store(false, Ordering::Relaxed);
    server.stop();
}

/// A namespace of a new share that cannot be opened stays inaccessible, and a retry follows.
#[test]
fn a_share_is_followed_though_one_of_it_cannot_be_had() {
    let stores = [1, 2].map(|number| TestOwnerStore::new(number, BlockOwnership::Free));
    let server = serve(&stores, true);
    stores[0].is_refused.store(true, Ordering::Relaxed);
    stores[1].become_ours();
    server.follow(&subsystems(&stores, false), &HostAuthentication::default()).unwrap();
    assert_eq!(states(&server), [AnaState::Inaccessible, AnaState::Optimized]);
    stores[0].is_refused.store(false, Ordering::Relaxed);
    stores[0].become_ours();
    eventually("all is served", || states(&server) == [AnaState::Optimized; 2]);
    server.stop();
}

/// An image that was opened exclusively sends no heartbeat, and cannot be taken over.
#[cfg(feature = "rbd")]
#[test]
fn an_image_is_opened_anew_to_be_shared() {
    use roadtrain_store::{RbdImage, StoreKind};
    let image = |shared, id: &str| {
        let id = Some(id.to_owned());
        StoreKind::Rbd(RbdImage { image: "disk".into(), shared, id, ..RbdImage::default() })
    };
    let is_alike = |a: (bool, &str), b: (bool, &str)| {
        super::stores::is_alike(&image(a.0, a.1), &image(b.0, b.1))
    };
    assert!(is_alike((true, "a"), (true, "a")) && is_alike((false, "a"), (false, "a")));
    assert!(!is_alike((false, "a"), (true, "a")));
    assert!(!is_alike((true, "a"), (true, "b")), "other rights");
    // A shared image also suits one target alone. Opened exclusively, it would find its own lock.
    assert!(is_alike((true, "a"), (false, "a")) && is_alike((false, "a"), (false, "b")));
}

/// A replaced store may still have commands of hosts: it completes them when its owner is queried.
#[test]
fn the_owner_of_a_replaced_store_is_queried_while_it_is_used() {
    let store = TestOwnerStore::new(5, BlockOwnership::Ours);
    let marks = Uncorrectable::open(&KeptPlace::NextToStore, None, &*store).unwrap();
    let open = Arc::new(OpenStore::new(store.clone(), marks));
    let before = store.owner_queries.load(Ordering::Relaxed);
    let mut polled = Vec::new();
    poll_owners(&mut polled, std::slice::from_ref(&open));
    poll_owners(&mut polled, &[]);
    assert_eq!((store.owner_queries.load(Ordering::Relaxed) - before, polled.len()), (2, 1));
    drop(open);
    poll_owners(&mut polled, &[]);
    assert_eq!((store.owner_queries.load(Ordering::Relaxed) - before, polled.len()), (2, 0));
}

/// The file of marks belongs to the owner of the blocks.
#[test]
fn marks_of_blocks_that_another_one_has_are_not_saved() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("marks");
    let store = TestOwnerStore::new(6, BlockOwnership::Ours);
    let marks = Uncorrectable::open(&KeptPlace::File(path.clone()), None, &*store).unwrap();
    let open = Arc::new(OpenStore::new(store.clone(), marks));
    let mark = |offset| {
        let (sender, answer) = std::sync::mpsc::channel();
        let completions = StoreCompletions::new(move |completion| sender.send(completion).is_ok());
        let waiter = MarkWaiter { token: StoreToken::new(1, 1), completions };
        let change = MarkChange::Mark(ByteRange { offset, len: 512 });
        Uncorrectable::change(&open, change, Some(waiter));
        (answer.recv().unwrap().result.is_ok(), std::fs::read(&path).unwrap_or_default())
    };
    let (is_saved, ours) = mark(0);
    assert!(is_saved && !ours.is_empty());
    for ownership in [BlockOwnership::Lost, BlockOwnership::CutOff] {
        store.set(ownership);
        assert_eq!(mark(1024), (false, ours.clone()), "{ownership:?}");
    }
    store.set(BlockOwnership::Ours);
    assert!(mark(1024).0);
}
