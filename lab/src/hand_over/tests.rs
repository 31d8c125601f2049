use super::*;
use roadtrain_host_engine::{Class, HostClient, HostConfig, IoOp, IoRequest};
use roadtrain_store::conformance;
use roadtrain_system::buffer::Buffer;
use std::fs::File;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const MODES: [HandOverMode; 2] = [HandOverMode::Rec, HandOverMode::Base];
const NQN: &str = "nqn.2024-01.test:disk";
const BYTES: usize = 4096;
const LONG: Duration = Duration::from_secs(60);

fn memory(mode: HandOverMode) -> Arc<dyn Store> {
    handed(mode, StoreKind::Memory { size: 16 << 20 })
}

fn handed(mode: HandOverMode, kind: StoreKind) -> Arc<dyn Store> {
    let spec = StoreSpec { kind, lba_bytes: 512, read_only: false };
    let below = roadtrain_store::open(&spec).expect("it opens");
    Arc::new(HandOverStore::new(mode, below).expect("threads start"))
}

/// A file without a name.
fn file(mode: HandOverMode) -> Arc<dyn Store> {
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("roadtrain-hand-over-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    File::create(&path).and_then(|file| file.set_len(16 << 20)).expect("a file");
    let store = handed(mode, StoreKind::File { path: path.clone(), size: None, create: false });
    std::fs::remove_file(&path).expect("it is there");
    store
}

static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

fn ssd(mode: HandOverMode, service: Duration, parallel: u16) -> Arc<dyn Store> {
    Arc::new(SsdStore::new(memory(mode), service, parallel))
}

#[test]
fn it_keeps_a_stores_contract() {
    for mode in MODES {
        conformance::run(|| memory(mode));
        conformance::run(|| file(mode));
        conformance::run(|| ssd(mode, Duration::from_micros(20), 4));
    }
}

fn serve(store: Arc<dyn Store>) -> Server {
    let namespaces = vec![Export::with_store(1, store)];
    let subsystem = Subsystem { namespaces, ..Subsystem::new(NQN) };
    let any = vec!["127.0.0.1:0".parse().expect("an address")];
    let config = ServerConfig { cores: vec![0; 2], ..ServerConfig::new(any, vec![subsystem]) };
    Server::start(config).expect("it starts")
}

fn connect(server: &Server, digests: bool) -> HostClient {
    let mut config = HostConfig::new(server.addresses()[0], NQN, "nqn.x:host", [7; 16]);
    (config.lanes, config.queue_entries) = (3, 64);
    (config.digests.header, config.digests.data) = (digests, digests);
    HostClient::connect(config).expect("it connects")
}

fn pattern(seed: u64) -> Buffer {
    let mut buffer = Buffer::alloc(BYTES);
    for (index, word) in buffer.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(seed << 16 | index as u64).to_le_bytes());
    }
    buffer
}

/// Submits a read or write for each of `slots`, all at once.
fn submit(
    client: &HostClient,
    op: IoOp,
    slots: u64,
) -> Receiver<roadtrain_host_engine::IoCompletion> {
    let (done, completions) = channel();
    for token in 0..slots {
        let seed = if op == IoOp::Write { token } else { !token };
        let (slba, blocks, buffer) = (token * 8, 8, Some(pattern(seed)));
        let (nsid, fua, urgent, class) = (1, false, false, Class::Normal);
        client.submit_to(
            IoRequest { op, nsid, slba, blocks, fua, urgent, class, buffer, token },
            &done,
        );
    }
    completions
}

/// Takes `count` completions, each with its slot's data.
fn collect(completions: &Receiver<roadtrain_host_engine::IoCompletion>, count: usize) {
    let mut seen = vec![false; count];
    for _ in 0..count {
        let completion = completions.recv_timeout(LONG).expect("every request ends");
        assert!(completion.status.is_success(), "{}", completion.status);
        assert!(!std::mem::replace(&mut seen[completion.token as usize], true), "twice");
        let buffer = completion.buffer.expect("it comes back");
        assert!(*buffer == *pattern(completion.token), "slot {}", completion.token);
    }
}

fn eventually(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn many_commands_keep_their_data() {
    const COUNT: usize = 1000;
    let service = Duration::from_micros(200);
    for mode in MODES {
        for store in [memory(mode), file(mode), ssd(mode, service, 16)] {
            let server = serve(store);
            for digests in [false, true] {
                let client = connect(&server, digests);
                collect(&submit(&client, IoOp::Write, COUNT as u64), COUNT);
                collect(&submit(&client, IoOp::Read, COUNT as u64), COUNT);
                client.write_zeroes(1, 0, 8, false).expect("it is done");
                client.flush(1).expect("it is done");
            }
            eventually("everything is given back", || server.usage().connections == 0);
        }
    }
}

#[test]
fn commands_of_a_host_that_is_gone_leave_nothing() {
    for mode in MODES {
        let store = file(mode);
        let server = serve(store.clone());
        for _ in 0..20 {
            let client = connect(&server, false);
            drop(submit(&client, IoOp::Write, 100)); // its commands are at any stage now
            drop(client);
        }
        let usage = || (server.usage().connections, server.usage().store_commands);
        eventually("its commands have ended", || usage() == (0, 0));
        server.stop();
        assert_eq!(Arc::strong_count(&store), 1, "{mode:?}: something is left");
    }
}

#[test]
fn a_target_stops_while_commands_are_under_way() {
    for mode in MODES {
        let server = serve(ssd(mode, Duration::from_secs(1), 1));
        let client = connect(&server, false);
        let completions = submit(&client, IoOp::Write, 100);
        eventually("commands are in the store", || server.usage().store_commands >= 50);
        let begin = Instant::now();
        server.stop();
        // The product abandons a store that does not reply after ten seconds.
        assert!(begin.elapsed() < Duration::from_secs(9), "not {:?}", begin.elapsed());
        drop(completions);
    }
}

#[test]
fn its_target_takes_the_products_options() {
    let line = "roadtrain serve -t ether -a lan0,lan1 -n nqn.x:y --namespace mem:1MiB \
                --namespace ssd:1MiB --cores 1 --policy i10 --no-data-batching --spin-us 20";
    let RoadtrainCommand::Serve(serve) =
        CommandLine::try_parse_from(line.split_whitespace()).expect("it parses").command
    else {
        panic!("serve")
    };
    let config = config(HandOverMode::Base, &serve).expect("it is right");
    assert_eq!(config.cores, [1]);
    assert_eq!(config.subsystems[0].namespaces.len(), 2);
    let ether = config.ether.expect("interfaces");
    assert_eq!(ether.interfaces, ["lan0", "lan1"]);
    assert!(ether.packing.requests && !ether.packing.pieces);
}
