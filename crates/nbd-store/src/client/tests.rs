use super::*;
use proptest::prelude::*;
use roadtrain_store::ByteRange;
use roadtrain_wire::nbd::{Command, SimpleReply, transmission_flag};

fn terms() -> NbdTerms {
    let flags = transmission_flag::SEND_FLUSH | transmission_flag::SEND_FUA;
    NbdTerms { bytes: 1 << 20, flags, bytes_max: 4096, ..NbdTerms::default() }
}

fn client(connections: usize) -> NbdClient<u32> {
    let mut client = NbdClient::new(512);
    client.connected(terms(), connections);
    client
}

fn write(client: &mut NbdClient<u32>, of: u32, fua: bool) {
    let offset = u64::from(of) * 512;
    client.submit(StoreOperation::Write { offset, fua }, Some(Buffer::alloc(512)), of);
}

fn flush(client: &mut NbdClient<u32>, of: u32) {
    client.submit(StoreOperation::Flush, None, of);
}

/// Returns the requests that are sent now.
fn sent(client: &mut NbdClient<u32>) -> Vec<(usize, NbdRequest)> {
    let next = |client: &mut NbdClient<u32>| client.next_request(|_| true);
    std::iter::from_fn(|| next(client).map(|(of, request, _)| (of, request))).collect()
}

fn offsets(requests: &[(usize, NbdRequest)]) -> Vec<u64> {
    requests.iter().map(|(_, request)| request.offset / 512).collect()
}

fn reply(client: &mut NbdClient<u32>, (connection, request): (usize, NbdRequest), errno: Errno) {
    let head = SimpleReply { errno, cookie: request.cookie }.emit();
    let data = match (request.command, errno) {
        (Command::READ, Errno::OK) => vec![0; request.length as usize],
        _ => Vec::new(),
    };
    client.receive(connection, &[&head[..], &data].concat()).unwrap();
}

/// Sends all, and replies to all with success.
fn run(client: &mut NbdClient<u32>) {
    loop {
        let requests = sent(client);
        if requests.is_empty() {
            break;
        }
        requests.into_iter().for_each(|request| reply(client, request, Errno::OK));
    }
}

fn results(client: &mut NbdClient<u32>) -> Vec<(u32, bool)> {
    let next = |client: &mut NbdClient<u32>| client.take_completion();
    let next = std::iter::from_fn(|| next(client));
    next.map(|completion| (completion.of, completion.result.is_ok())).collect()
}

#[test]
fn requests_are_spread_over_the_connections() {
    let mut client = client(3);
    (0..6).for_each(|of| write(&mut client, of, false));
    let requests = sent(&mut client);
    let count = |of| requests.iter().filter(|(connection, _)| *connection == of).count();
    assert_eq!((count(0), count(1), count(2)), (2, 2, 2));
    (0..IN_FLIGHT_MAX as u32 * 3).for_each(|of| write(&mut client, of, false));
    assert_eq!(sent(&mut client).len(), IN_FLIGHT_MAX * 3 - 6);
}

#[test]
fn what_was_sent_is_sent_again_first_and_in_order() {
    let mut client = client(2);
    (0..4).for_each(|of| write(&mut client, of, false));
    let requests = sent(&mut client);
    reply(&mut client, requests[1], Errno::OK);
    write(&mut client, 9, false);
    assert!(!client.disconnected() || client.durability.take_loss(), "write 1 was not flushed");
    assert_eq!(offsets(&sent(&mut client)), [] as [u64; 0], "there is no connection");
    write(&mut client, 10, false);
    client.connected(terms(), 1);
    let again = sent(&mut client);
    assert_eq!(offsets(&again), [0, 2, 3], "new ones wait");
    reply(&mut client, again[0], Errno::OK);
    reply(&mut client, again[2], Errno::OK);
    assert_eq!(offsets(&sent(&mut client)), [] as [u64; 0]);
    reply(&mut client, again[1], Errno::EIO);
    assert_eq!(offsets(&sent(&mut client)), [9, 10], "also if one has failed");
    assert_eq!(results(&mut client), [(1, true), (0, true), (3, true), (2, false)]);
}

/// A second loss while operations are sent again: none is forgotten, or counted twice.
#[test]
fn a_loss_during_the_repetition() {
    let mut client = client(1);
    (0..3).for_each(|of| write(&mut client, of, false));
    let requests = sent(&mut client);
    assert_eq!(requests.len(), 3);
    write(&mut client, 7, false);
    for _ in 0..3 {
        client.disconnected();
        client.connected(terms(), 1);
        assert_eq!(offsets(&sent(&mut client)), [0, 1, 2]);
    }
    client.disconnected();
    client.connected(terms(), 1);
    run(&mut client);
    assert_eq!(results(&mut client), [(0, true), (1, true), (2, true), (7, true)]);
    assert_eq!((client.pending(), client.resent), (0, 0));
}

#[test]
fn reads_do_not_hold_others() {
    let mut client = client(1);
    let read = StoreOperation::Read { offset: 0 };
    client.submit(read, Some(Buffer::alloc(512)), 1);
    assert_eq!(sent(&mut client).len(), 1);
    client.disconnected();
    client.connected(terms(), 1);
    write(&mut client, 2, false);
    assert_eq!(offsets(&sent(&mut client)), [0, 2]);
}

#[test]
fn unflushed_writes_fail_one_flush_after_a_loss() {
    let mut client = client(1);
    write(&mut client, 1, false);
    run(&mut client);
    client.disconnected();
    client.connected(terms(), 1);
    flush(&mut client, 2);
    flush(&mut client, 3);
    run(&mut client);
    assert_eq!(results(&mut client), [(1, true), (2, false), (3, true)]);
    // A flushed or forced write is not lost.
    write(&mut client, 4, false);
    run(&mut client);
    flush(&mut client, 5);
    run(&mut client);
    write(&mut client, 6, true);
    run(&mut client);
    client.disconnected();
    client.connected(terms(), 1);
    flush(&mut client, 7);
    run(&mut client);
    assert_eq!(results(&mut client), [(4, true), (5, true), (6, true), (7, true)]);
}

/// A flush whose reply is missing fails if it was for writes; the server that replies next may be a new one.
#[test]
fn a_flush_in_flight_during_a_loss() {
    let mut client = client(1);
    write(&mut client, 1, false);
    run(&mut client);
    flush(&mut client, 2);
    assert_eq!(sent(&mut client).len(), 1);
    client.disconnected();
    client.connected(terms(), 1);
    run(&mut client);
    assert_eq!(results(&mut client), [(1, true), (2, false)]);
    flush(&mut client, 3);
    assert_eq!(sent(&mut client).len(), 1);
    client.disconnected();
    client.connected(terms(), 1);
    run(&mut client);
    assert_eq!(results(&mut client), [(3, true)], "nothing was written meanwhile");
}

/// Writes that complete while a flush is in flight are not covered by it.
#[test]
fn a_flush_covers_what_was_completed_before() {
    let mut client = client(1);
    flush(&mut client, 1);
    let pending = sent(&mut client);
    write(&mut client, 2, false);
    run(&mut client);
    reply(&mut client, pending[0], Errno::OK);
    assert!(client.disconnected(), "the write may be lost");
}

#[test]
fn a_failed_forced_write_does_not_hide_the_loss_of_others() {
    let mut client = client(1);
    write(&mut client, 1, false);
    run(&mut client);
    write(&mut client, 2, true);
    let requests = sent(&mut client);
    reply(&mut client, requests[0], Errno::EIO);
    flush(&mut client, 3);
    flush(&mut client, 4);
    run(&mut client);
    assert_eq!(results(&mut client), [(1, true), (2, false), (3, false), (4, true)]);
}

#[test]
fn a_server_that_shuts_down_gets_the_request_again() {
    let mut client = client(1);
    write(&mut client, 1, false);
    let requests = sent(&mut client);
    let head = SimpleReply { errno: Errno::ESHUTDOWN, cookie: requests[0].1.cookie }.emit();
    let error = client.receive(0, &head).unwrap_err().to_string();
    assert!(error.contains("shuts down"), "{error}");
    client.disconnected();
    client.connected(terms(), 1);
    run(&mut client);
    assert_eq!(results(&mut client), [(1, true)]);
}

#[test]
fn without_a_server_all_end() {
    let mut client = client(1);
    write(&mut client, 1, false);
    assert_eq!(sent(&mut client).len(), 1);
    write(&mut client, 2, false);
    client.disconnected();
    client.fail_all();
    let next = client.take_completion().unwrap();
    assert_eq!((next.of, next.result), (1, Err(Status::INTERNAL_ERROR.dnr())), "it was sent");
    let next = client.take_completion().unwrap();
    assert_eq!((next.of, next.result), (2, Err(Status::ANA_INACCESSIBLE)), "it was not");
    assert_eq!((client.pending(), client.resent), (0, 0));
}

/// A host, a client and a server in memory, which a crash takes back to what was flushed.
struct CrashModel {
    client: NbdClient<u32>,
    blocks: [u8; 8],
    stable: [u8; 8],
    /// Block and value of each operation; block 8: a flush.
    values: Vec<(usize, u8)>,
    in_flight: Vec<(usize, NbdRequest, u32)>,
    /// Last acknowledged values; `None`: not promised.
    written: [Option<u8>; 8],
    /// Flushes, and what was written before.
    covered: Vec<(u32, [Option<u8>; 8])>,
    /// Blocks with a write in flight, whose value is open.
    dirty: [bool; 8],
    completed: usize,
}

impl CrashModel {
    fn new() -> CrashModel {
        CrashModel {
            client: client(2),
            blocks: [0; 8],
            stable: [0; 8],
            values: Vec::new(),
            in_flight: Vec::new(),
            written: [None; 8],
            covered: Vec::new(),
            dirty: [false; 8],
            completed: 0,
        }
    }

    fn lose(&mut self) {
        self.in_flight.clear();
        self.client.disconnected();
        self.client.connected(terms(), 2);
    }

    /// Submits an operation, or loses connection or server.
    fn begin(&mut self, what: u8, block: usize, value: u8) {
        let of = self.values.len() as u32;
        match what {
            0..=2 if !self.dirty[block] => {
                self.dirty[block] = true;
                self.values.push((block, value));
                let mut buffer = Buffer::alloc(512);
                buffer.fill(value);
                let op = StoreOperation::Write { offset: block as u64 * 512, fua: false };
                self.client.submit(op, Some(buffer), of);
            }
            3 => {
                self.covered.push((of, self.written));
                self.values.push((8, 0));
                self.client.submit(StoreOperation::Flush, None, of);
            }
            4 => self.lose(),
            5 => {
                self.blocks = self.stable;
                self.lose();
            }
            _ => {}
        }
        while let Some(next) = self.client.next_request(|_| true) {
            self.in_flight.push(next);
        }
    }

    /// Has the server execute a request in flight. Without a reply the connection ends.
    fn execute(&mut self, number: usize, has_reply: bool) {
        if self.in_flight.is_empty() {
            return;
        }
        let (connection, request, operation) = self.in_flight.remove(number % self.in_flight.len());
        match request.command {
            Command::FLUSH => self.stable = self.blocks,
            _ => {
                let value = self.client.payload(operation).unwrap()[0];
                self.blocks[request.offset as usize / 512] = value;
            }
        }
        match has_reply {
            true => reply(&mut self.client, (connection, request), Errno::OK),
            false => self.lose(),
        }
    }

    fn check_completions(&mut self) -> Result<(), TestCaseError> {
        while let Some(completion) = self.client.take_completion() {
            self.completed += 1;
            let (block, value) = self.values[completion.of as usize];
            if block < 8 {
                prop_assert!(completion.result.is_ok());
                (self.written[block], self.dirty[block]) = (Some(value), false);
                continue;
            }
            if completion.result.is_err() {
                // The hosts know that what they have written may be lost.
                self.written = [None; 8];
                self.covered.iter_mut().for_each(|(_, before)| *before = [None; 8]);
                continue;
            }
            let flush = self.covered.iter().find(|(of, _)| *of == completion.of);
            for (block, value) in flush.unwrap().1.iter().enumerate() {
                let Some(value) = value else { continue };
                let is_newer = self.written[block] != Some(*value) || self.dirty[block];
                prop_assert!(is_newer || self.stable[block] == *value, "block {} is lost", block);
            }
        }
        Ok(())
    }
}

proptest! {
    /// Any operations, replies in any order, losses of connections and crashes of the server: each operation ends once, and
    /// a successful flush means that what was written before is stable, unless a flush has failed since.
    #[test]
    fn flushes_never_hide_lost_writes(
        steps in prop::collection::vec((0u8..8, 0usize..8, 1u8..255), 1..200),
    ) {
        let mut model = CrashModel::new();
        for (what, block, value) in steps {
            model.begin(what, block, value);
            if what != 4 && what != 5 {
                model.execute(block, value > 20);
            }
            model.check_completions()?;
        }
        model.client.disconnected();
        model.client.fail_all();
        model.completed += results(&mut model.client).len();
        prop_assert_eq!(model.completed, model.values.len());
        prop_assert_eq!((model.client.pending(), model.client.resent), (0, 0));
    }
}

/// An operation of several requests continues where it was, before new ones.
#[test]
fn operations_of_several_requests_stay_in_their_place() {
    let mut client = client(1);
    let range = ByteRange { offset: 0, len: 16384 };
    client.submit(StoreOperation::WriteZeroes { range, deallocate: true }, None, 1);
    let first = sent(&mut client);
    assert_eq!(first[0].1.length, 4096, "zeroes as data");
    reply(&mut client, first[0], Errno::OK);
    client.disconnected();
    write(&mut client, 9, false);
    client.connected(terms(), 1);
    let again = sent(&mut client);
    assert_eq!(offsets(&again), [8], "it continues, and others wait");
    run(&mut client);
    reply(&mut client, again[0], Errno::OK);
    run(&mut client);
    assert_eq!(results(&mut client), [(1, true), (9, true)]);
}
