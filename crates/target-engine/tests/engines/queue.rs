//! Queue mode: usable from any thread, bounded, and without loss at the end.

use crate::harness::*;
use roadtrain_host_engine::{
    Class, Completer, HostClient, IoCompletion, IoOp, IoRequest, LaneReading,
};
use roadtrain_reactor::metrics::Batching;
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

#[test]
fn clients_are_shared_by_threads() {
    let server = serve(vec![memory(1, 16 * MIB, 512)]);
    let mut config = host_config(address(&server));
    (config.lanes, config.cores) = (2, reactors(2));
    let client = HostClient::connect(config).unwrap();
    let threads = (0..8u64).map(|thread| {
        let client = client.clone();
        std::thread::spawn(move || {
            for round in 0..50 {
                let slba = thread * 64;
                client.write(1, slba, pattern(4096, thread * 1000 + round), false).unwrap();
                let got = client.read(1, slba, Buffer::alloc(4096)).unwrap();
                assert!(*got == *pattern(4096, thread * 1000 + round));
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

/// Completions in order of arrival.
struct CompletionLog(std::sync::Mutex<Vec<(u64, Status)>>);

impl Completer for CompletionLog {
    fn complete(&self, completion: IoCompletion) {
        self.0.lock().unwrap().push((completion.token, completion.status));
    }
}

/// One completer receives the completions of many requests, whose data is in memory of the caller.
#[test]
fn a_completer_gets_all_completions() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let client = HostClient::connect(host_config(address(&server))).unwrap();
    let ended = Arc::new(CompletionLog(std::sync::Mutex::default()));
    let completer: Arc<dyn Completer> = ended.clone();
    let mut memory = vec![7u8; 16 * 512];
    memory[3 * 512] = 9;
    for op in [IoOp::Write, IoOp::Read] {
        for (slot, block) in memory.chunks_mut(512).enumerate() {
            let start = std::ptr::NonNull::new(block.as_mut_ptr()).unwrap();
            // SAFETY: the memory is not used before all requests have completed, below.
            let buffer = Some(unsafe { Buffer::foreign(start, 512) });
            let (slba, token) = (slot as u64, slot as u64);
            let (fua, urgent, class) = (false, false, Class::Normal);
            let request =
                IoRequest { op, nsid: 1, slba, blocks: 1, fua, urgent, class, buffer, token };
            client.try_submit(request, &completer).unwrap();
        }
        eventually("all have ended", || ended.0.lock().unwrap().len() == 16);
        let mut all = std::mem::take(&mut *ended.0.lock().unwrap());
        all.sort_by_key(|(token, _)| *token);
        assert!(all.iter().map(|(token, _)| *token).eq(0..16), "each once");
        assert!(all.iter().all(|(_, status)| status.is_success()));
        if op == IoOp::Write {
            memory.fill(0);
        }
    }
    assert!(memory[3 * 512] == 9 && memory[0] == 7 && memory[16 * 512 - 1] == 7);
}

/// Other threads can read the counters of the lanes.
#[test]
fn lanes_are_metered() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let mut config = host_config(address(&server));
    (config.lanes, config.cores) = (2, reactors(2));
    let client = HostClient::connect(config).unwrap();
    for slot in 0..10 {
        client.write(1, slot * 8, pattern(4096, slot), false).unwrap();
    }
    client.flush(1).unwrap();
    client.read(1, 1 << 40, Buffer::alloc(4096)).unwrap_err();
    let sum = |of: fn(&LaneReading) -> u64| client.view().lanes().iter().map(of).sum::<u64>();
    assert_eq!(client.view().lanes().len(), 2);
    eventually("all are counted", || sum(|lane| lane.batching.requests) == 12);
    eventually("and their data", || sum(|lane| lane.batching.data_bytes) == 11 * 4096);
    eventually("the error is counted", || sum(|lane| lane.errors) == 1);
    eventually("nothing is in flight", || sum(|lane| lane.in_flight.into()) == 0);
}

/// Requests submitted on the core of a lane use that lane.
#[test]
fn requests_stay_on_their_core() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return crate::skipped::skipped("a single core");
    }
    let server = serve(vec![memory(1, MIB, 512)]);
    let mut config = host_config(address(&server));
    (config.lanes, config.cores) = (2, vec![0, 1]);
    let client = HostClient::connect(config).unwrap();
    let writer = client.clone();
    let thread = std::thread::spawn(move || {
        roadtrain_reactor::tuning::pin_to_core(1).unwrap();
        for slot in 0..20 {
            writer.write(1, slot * 8, pattern(4096, slot), false).unwrap();
        }
    });
    thread.join().unwrap();
    eventually("all went over the second lane", || {
        client.view().lanes().iter().map(|lane| lane.batching.requests).eq([0, 20])
    });
}

/// Counters of lanes are summed by reactor.
#[test]
fn counters_can_be_read_by_any_thread() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let mut config = host_config(address(&server));
    (config.lanes, config.reactors) = (3, Some(2));
    let client = HostClient::connect(config).unwrap();
    assert_eq!(client.view().affinities().len(), 2);
    for slot in 0..10 {
        client.write(1, slot * 8, pattern(4096, slot), false).unwrap();
    }
    eventually("all are counted", || {
        let reactors = client.view().reactors();
        let sum: Batching = reactors.iter().map(|(reactor, _)| reactor.batching).sum();
        let is_counted = (sum.requests, sum.data_bytes) == (10, 10 * 4096) && sum.sends >= 10;
        is_counted && reactors.iter().any(|(reactor, _)| reactor.waits > 0)
    });
}

#[test]
fn a_full_queue_returns_requests_or_waits() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let mut config = host_config(address(&server));
    config.queue_entries = 4;
    let client = HostClient::connect(config).unwrap();
    // A callback blocks the reactor, so that nothing completes.
    let (held, release) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let barriers = (held.clone(), release.clone());
    client.submit(request(IoOp::Flush, 0, 0, None, 0), move |_| {
        barriers.0.wait();
        barriers.1.wait();
    });
    held.wait();
    let (done, completions) = channel();
    let mut taken = 0;
    let refused = loop {
        match client.try_submit_to(request(IoOp::Flush, 0, 0, None, taken), &done) {
            Ok(()) => taken += 1,
            Err(request) => break request,
        }
    };
    assert_eq!((taken, refused.token), (4, 4));
    let waiter = std::thread::spawn({
        let (client, done) = (client.clone(), done.clone());
        move || client.submit_to(refused, &done)
    });
    release.wait();
    waiter.join().unwrap();
    let mut tokens: Vec<u64> = completions.iter().take(5).map(|c| c.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [0, 1, 2, 3, 4]);
}

#[test]
fn dropping_the_last_clone_finishes_what_was_submitted() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(vec![file(1, &directory, 16 * MIB, 512)]);
    let client = connect(&server);
    let ended = Arc::new(AtomicU64::new(0));
    for slot in 0..200u64 {
        let ended = ended.clone();
        let write = request(IoOp::Write, slot * 8, 8, Some(pattern(4096, slot)), slot);
        client.submit(write, move |completion| {
            assert!(completion.status.is_success() && completion.token == slot);
            ended.fetch_add(1, Relaxed);
        });
    }
    drop(client);
    assert_eq!(ended.load(Relaxed), 200);
    assert_nothing_left(&server);
}

#[test]
fn callbacks_may_submit_and_may_hold_the_last_clone() {
    fn again(client: HostClient, left: u32, done: std::sync::mpsc::Sender<()>) {
        if left == 0 {
            drop(client); // the last clone, on the reactor's own thread
            return done.send(()).unwrap();
        }
        let next = client.clone();
        let buffer = Some(Buffer::alloc(512));
        client.submit(request(IoOp::Read, 0, 1, buffer, 0), move |completion| {
            assert!(completion.status.is_success());
            again(next, left - 1, done);
        });
    }
    let server = serve(vec![memory(1, MIB, 512)]);
    let (done, ended) = channel();
    again(connect(&server), 1000, done);
    ended.recv_timeout(LONG).unwrap();
    assert_nothing_left(&server);
}

#[test]
fn a_callback_cannot_wait_and_its_panic_harms_no_other() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let client = connect(&server);
    let (done, ended) = channel();
    let inner = client.clone();
    client.submit(request(IoOp::Flush, 0, 0, None, 0), move |_| {
        let error = inner.read(1, 0, Buffer::alloc(512)).unwrap_err();
        drop(inner);
        done.send((error.status, error.buffer.unwrap().len())).unwrap();
        panic!("this is part of the test");
    });
    let (status, len) = ended.recv_timeout(LONG).unwrap();
    assert!(status.is(Status::COMMAND_SEQUENCE_ERROR) && len == 512);
    client.flush(1).unwrap();
}

#[test]
fn requests_that_make_no_sense_fail_here() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let client = connect(&server);
    let nonsense = [
        request(IoOp::Read, 0, 1, None, 0),
        request(IoOp::Write, 0, 0, Some(Buffer::alloc(512)), 0),
        request(IoOp::Compare, 0, 70_000, Some(Buffer::alloc(512)), 0),
        request(IoOp::Flush, 0, 0, Some(Buffer::alloc(512)), 0),
        request(IoOp::Discard, 0, 0, None, 0),
    ];
    for request in nonsense {
        assert!(client.run(request).unwrap_err().status.is(Status::INVALID_FIELD));
    }
    // Blocks and buffer disagree: the target or the connection reports it, and the client continues.
    assert!(client.run(request(IoOp::Read, 0, 2, Some(Buffer::alloc(512)), 0)).is_err());
    assert!(client.run(request(IoOp::Write, 0, 2, Some(Buffer::alloc(512)), 0)).is_err());
    for (nsid, len) in [(1, 100), (1, 0), (7, 512)] {
        assert_eq!(
            client.read(nsid, 0, Buffer::alloc(len)).unwrap_err().buffer.unwrap().len(),
            len
        );
    }
    client.read(1, 0, Buffer::alloc(512)).unwrap();
}
