//! Compare and Write with disturbances: a lost connection, a reservation that is acquired while it waits, and several
//! paths.

use crate::harness::*;
use crate::proxy::Proxy;
use roadtrain_host_engine::{
    AcquireAction, ChangePersistence, HostClient, HostConfig, HostReservations, IoOp, IoRequest,
    PathPolicy, RegisterAction, ReservationType,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Server, ServerConfig};
use roadtrain_wire::status::Status;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

const BLOCK: usize = 512;
const AT: u64 = 5;

/// Starts a slow store with `service` for each operation, two reactors and two listeners.
fn serve_slowly(service: Duration) -> Server {
    let any = "127.0.0.1:0".parse().unwrap();
    let config = server_config(vec![ssd(1, MIB, BLOCK as u32, service, 8)]);
    Server::start(ServerConfig { listen: vec![any, any], cores: reactors(2), ..config }).unwrap()
}

fn config(address: SocketAddr, host: u8) -> HostConfig {
    let mut config = host_config(address);
    (config.host_nqn, config.host_id) = (format!("{HOST_NQN}{host}"), [host; 16]);
    config.keep_alive = Duration::from_secs(1);
    config
}

fn bytes(byte: u8) -> [u8; BLOCK] {
    [byte; BLOCK]
}

fn read(client: &HostClient) -> u8 {
    let block = client.read(1, AT, Buffer::alloc(BLOCK)).unwrap();
    assert!(block.iter().all(|byte| *byte == block[0]), "half of a write");
    block[0]
}

/// Starts a Compare and Write from `old` to `new`. The receiver gets its status.
fn swap(client: &HostClient, old: u8, new: u8) -> Receiver<Status> {
    let mut buffer = Buffer::alloc(2 * BLOCK);
    buffer[..BLOCK].fill(old);
    buffer[BLOCK..].fill(new);
    let swap: IoRequest = request(IoOp::CompareAndWrite, AT, 1, Some(buffer), 0);
    let (done, end) = channel();
    client.submit(swap, move |completion| done.send(completion.status).unwrap());
    end
}

/// The pair is in the store when its connection is lost. The host gets an unknown outcome only when that cannot change
/// any more, so that a read then shows it.
#[test]
fn an_unknown_outcome_is_reported_once_it_cannot_change_any_more() {
    const SLOW: Duration = Duration::from_millis(600);
    let lose = |is_silent| {
        let server = serve_slowly(SLOW);
        let proxies: Vec<Proxy> =
            server.addresses().iter().map(|&address| Proxy::new(address, vec![])).collect();
        let client = HostClient::connect(config(proxies[0].address, 1)).unwrap();
        let other = HostClient::connect(config(proxies[1].address, 2)).unwrap();
        let end = swap(&client, 0, 7);
        eventually("the store has it", || server.usage().store_commands == 1);
        // It is counted slightly before it can no longer be cancelled.
        sleep(SLOW / 6);
        assert_eq!(server.usage().store_commands, 1);
        let since = Instant::now();
        match is_silent {
            true => proxies[0].freeze(),
            false => (0..proxies[0].joined()).for_each(|number| proxies[0].cut(number)),
        }
        let status = end.recv_timeout(LONG).unwrap();
        assert!(status.is(Status::HOST_ABORTED), "silent {is_silent}: {status}");
        assert!(since.elapsed() > SLOW, "it was executed after {:?}", since.elapsed());
        let now = read(&client);
        assert_eq!(now, 7, "it was in the store, which executes it");
        assert_eq!(read(&other), now);
        client.compare_and_write(1, AT, &bytes(7), &bytes(8)).unwrap();
        assert_eq!(read(&other), 8);
        drop((client, other));
    };
    scope(|cases| {
        for is_silent in [false, true] {
            cases.spawn(move || lose(is_silent));
        }
    });
}

/// With two paths the pair is not retried on the other one. Its effect is visible when the host gets the status.
#[test]
fn a_pair_of_a_lost_path_is_not_tried_over_another_one() {
    const SLOW: Duration = Duration::from_millis(300);
    let server = serve_slowly(SLOW);
    let proxies: Vec<Proxy> =
        server.addresses().iter().map(|&address| Proxy::new(address, vec![])).collect();
    let mut several = config(proxies[0].address, 1);
    several.more_addresses = vec![proxies[1].address.into()];
    several.path_policy = PathPolicy::RoundRobin;
    let client = HostClient::connect(several).unwrap();
    let value = |round: u8| round * 2 + 1;
    for round in 0..effort(2, 4) as u8 {
        let before = read(&client);
        let end = swap(&client, before, value(round));
        let mut ended = None;
        eventually("the store has it, or had it", || {
            ended = end.try_recv().ok();
            ended.is_some() || server.usage().store_commands == 1
        });
        // One of the paths has it.
        let path = &proxies[usize::from(round % 2)];
        path.cut(path.joined() - 1);
        let status = ended.unwrap_or_else(|| end.recv_timeout(LONG).unwrap());
        assert!(status.is_success() || status.is(Status::HOST_ABORTED), "round {round}: {status}");
        // A second execution would compare with its own data. A command that is counted in the store may still be
        // cancelled.
        let now = read(&client);
        let was_given_up = !status.is_success() && now == before;
        assert!(now == value(round) || was_given_up, "round {round}: {status}: {now}");
        sleep(SLOW * 3);
        assert_eq!(read(&client), now, "it was executed again");
    }
    drop(client);
}

/// A pair that waits for another one on the same block is refused if a reservation was acquired meanwhile.
#[test]
fn waiting_pairs_are_refused_after_a_reservation() {
    // A host connects and acquires a reservation before the first pair ends.
    let server = serve_slowly(Duration::from_millis(1500));
    let host = |host| HostConfig { keep_alive: LONG, ..config(address(&server), host) };
    let client = |number| HostClient::connect(host(number)).unwrap();
    let (first, second) = (client(1), client(2));
    let begun = swap(&first, 0, 1);
    eventually("the store has it", || server.usage().store_commands == 1);
    let waits = swap(&second, 1, 2);
    eventually("it waits", || server.usage().store_commands == 2);
    let mut owner = HostReservations::connect(&host(3)).unwrap();
    owner.register(1, (RegisterAction::Register, false), ChangePersistence::Keep, (0, 3)).unwrap();
    let kind = ReservationType::WriteExclusive;
    owner.acquire(1, AcquireAction::Acquire, kind, (3, 0)).unwrap();
    let begun = begun.recv_timeout(LONG).unwrap();
    assert!(begun.is_success(), "it had begun: {begun}");
    let waited = waits.recv_timeout(LONG).unwrap();
    assert!(waited.is(Status::RESERVATION_CONFLICT), "it had not begun: {waited}");
    assert_eq!(read(&first), 1);
}
