//! Several paths to the same namespaces: the loss of one goes unnoticed, and nothing is executed twice.

use crate::harness::*;
use crate::proxy::Proxy;
use roadtrain_host_engine::{HostClient, HostConfig, IoOp, LinkState, PathPolicy, PathReport};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Server, ServerConfig};
use roadtrain_wire::status::Status;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Starts a target with two listeners.
fn serve_twice(exports: Vec<Export>) -> Server {
    let any = "127.0.0.1:0".parse().unwrap();
    let config = ServerConfig { listen: vec![any, any], ..server_config(exports) };
    Server::start(config).unwrap()
}

/// Configures a host with a path through each proxy.
fn host(proxies: &[Proxy]) -> HostConfig {
    let mut config = host_config(proxies[0].address);
    config.more_addresses = proxies[1..].iter().map(|proxy| proxy.address.into()).collect();
    config.keep_alive = KEEP_ALIVE;
    config
}

fn proxies(server: &Server) -> Vec<Proxy> {
    server.addresses().iter().map(|&address| Proxy::new(address, vec![])).collect()
}

fn states(client: &HostClient) -> Vec<LinkState> {
    client.view().routes().iter().map(|route| route.link.state).collect()
}

const BOTH: [LinkState; 2] = [LinkState::Connected; 2];

#[test]
fn requests_take_all_paths_by_every_policy() {
    let server = serve_twice(vec![memory(1, 16 * MIB, 512)]);
    for policy in [PathPolicy::Latency, PathPolicy::RoundRobin, PathPolicy::QueueDepth] {
        for lanes in [1, 3] {
            let proxies = proxies(&server);
            let mut config = HostConfig { path_policy: policy, ..host(&proxies) };
            (config.lanes, config.cores) = (lanes, reactors(2.min(lanes as usize)));
            let client = HostClient::connect(config).unwrap();
            eventually("both are there", || states(&client) == BOTH);
            let (done, completions) = channel();
            for slot in 0..200 {
                let buffer = Some(pattern(4096, slot));
                client.submit_to(request(IoOp::Write, slot * 8, 8, buffer, slot), &done);
            }
            for _ in 0..200 {
                assert!(completions.recv_timeout(LONG).unwrap().status.is_success());
            }
            for slot in 0..200 {
                let got = client.read(1, slot * 8, Buffer::alloc(4096)).unwrap();
                assert!(*got == *pattern(4096, slot), "slot {slot}");
            }
            eventually("the counters follow", || {
                client.view().routes().iter().map(|route| route.requests).sum::<u64>() >= 400
            });
            let routes = client.view().routes();
            // The latency policy distributes by measured times; tests in `proto` check its shares with a simulated
            // clock.
            let least = if policy == PathPolicy::Latency { 1 } else { 10 };
            assert!(routes.iter().all(|route| route.requests >= least), "{policy:?}: {routes:?}");
            let bytes: u64 = routes.iter().map(|route| route.data_bytes).sum();
            assert_eq!(bytes, 400 * 4096, "{policy:?}: {routes:?}");
            let is_calm = |route: &PathReport| (route.losses, route.waiting) == (0, 0);
            assert!(routes.iter().all(is_calm), "{policy:?}: {routes:?}");
            let in_flight =
                || client.view().routes().iter().map(|route| route.in_flight).sum::<u32>();
            eventually("nothing is under way", || in_flight() == 0);
            drop(client);
        }
    }
    assert_nothing_left(&server);
}

/// Number of times that `survives` writes and reads everything.
const ROUNDS: u64 = 40;

/// Writes and reads while `happens` disturbs: no request fails, each completes once, and the last data is stored.
/// Returns the longest latency.
fn survives(client: &HostClient, mut happens: impl FnMut(u64)) -> Duration {
    const SLOTS: u64 = 64;
    let (done, completions) = channel();
    let mut longest = Duration::ZERO;
    for round in 0..ROUNDS {
        for slot in 0..SLOTS {
            let buffer = Some(pattern(4096, round * SLOTS + slot));
            client.submit_to(request(IoOp::Write, slot * 8, 8, buffer, slot), &done);
        }
        happens(round);
        let mut seen = [false; SLOTS as usize];
        for _ in 0..SLOTS {
            let completion = completions.recv_timeout(LONG).expect("every request ends");
            assert!(completion.status.is_success(), "{}", completion.status);
            assert!(!std::mem::replace(&mut seen[completion.token as usize], true), "twice");
            longest = Duration::from_nanos(completion.latency_ns).max(longest);
        }
        for slot in 0..SLOTS {
            let got = client.read(1, slot * 8, Buffer::alloc(4096)).unwrap();
            assert!(*got == *pattern(4096, round * SLOTS + slot), "round {round}, slot {slot}");
        }
    }
    assert!(completions.try_recv().is_err(), "more completions than requests");
    longest
}

#[test]
fn a_path_that_is_cut_again_and_again_is_not_noticed() {
    let server = serve_twice(vec![memory(1, MIB, 512)]);
    let proxies = proxies(&server);
    let client = HostClient::connect(host(&proxies)).unwrap();
    survives(&client, |round| {
        let path = &proxies[(round % 2) as usize];
        if round % 4 < 2 {
            path.cut(path.joined() - 1);
        }
    });
    eventually("both are back", || states(&client) == BOTH);
    let routes = client.view().routes();
    assert!(routes.iter().all(|route| route.losses > 0), "{routes:?}");
    drop(client);
    assert_nothing_left(&server);
}

/// Writes continue on the other path as soon as the target reports there that the controller of the first has ended.
#[test]
fn writes_of_a_silent_path_go_on_when_the_other_path_has_fenced_them() {
    let server = serve_twice(vec![memory(1, MIB, 512)]);
    let proxies = proxies(&server);
    let config = HostConfig { path_policy: PathPolicy::RoundRobin, ..host(&proxies) };
    let client = HostClient::connect(config).unwrap();
    let longest = survives(&client, |round| {
        if round == 10 {
            proxies[0].freeze_all();
        }
    });
    println!("longest pause of a write, keep-alive timeout {KEEP_ALIVE:?}: {longest:?}");
    // Silence is detected within one keep-alive timeout. Without the fence, writes would wait for three more.
    assert!(longest < KEEP_ALIVE * 3, "{longest:?}");
    assert_eq!(states(&client)[1], LinkState::Connected);
    assert_ne!(states(&client)[0], LinkState::Connected);
    assert_eq!(client.view().link().state, LinkState::Connected, "one is enough");
}

/// The end of a connection is detected immediately, and its address need not come back.
#[test]
fn writes_of_a_path_that_is_gone_wait_for_no_keep_alive() {
    let server = serve_twice(vec![memory(1, MIB, 512)]);
    let proxies = proxies(&server);
    let config = HostConfig {
        path_policy: PathPolicy::RoundRobin,
        keep_alive: KEEP_ALIVE * 10,
        ..host(&proxies)
    };
    let client = HostClient::connect(config).unwrap();
    let longest = survives(&client, |round| {
        if round == 10 {
            proxies[0].kill();
        }
    });
    println!("longest pause of a write when a connection ends: {longest:?}");
    assert!(longest < KEEP_ALIVE * 5, "{longest:?}");
    assert_ne!(states(&client)[0], LinkState::Connected);
    proxies[0].revive();
    eventually("both are back", || states(&client) == BOTH);
}

/// Another process does not know the commands that its neighbor may still execute.
#[test]
fn writes_of_a_silent_path_to_another_process_wait_until_it_must_have_noticed() {
    let serve = |min, max| {
        let uuid = Some([7; 16]);
        let mut config = server_config(vec![Export { uuid, ..memory(1, MIB, 512) }]);
        (config.limits.cntlid_min, config.limits.cntlid_max) = (min, max);
        Server::start(config).unwrap()
    };
    let servers = [serve(1, 99), serve(100, 199)];
    let to = |server: &Server| Proxy::new(address(server), vec![]);
    let proxies = [to(&servers[0]), to(&servers[1])];
    let config = HostConfig { path_policy: PathPolicy::RoundRobin, ..host(&proxies) };
    let client = HostClient::connect(config).unwrap();
    proxies[0].freeze_all();
    let (done, completions) = channel();
    for slot in 0..8 {
        let buffer = Some(pattern(512, slot));
        client.submit_to(request(IoOp::Write, slot, 1, buffer, slot), &done);
    }
    let ended = (0..8).map(|_| completions.recv_timeout(LONG).expect("every request ends"));
    let ended: Vec<_> = ended.inspect(|ended| assert!(ended.status.is_success())).collect();
    let longest = ended.iter().map(|ended| Duration::from_nanos(ended.latency_ns)).max().unwrap();
    // Three keep-alive timeouts after the loss: the target counts traffic.
    assert!(longest >= KEEP_ALIVE * 3, "{longest:?}: writes were tried again too early");
    assert!(longest < LONG, "{longest:?}");
}

/// At the end of the host, requests of a lost path also continue on the other one.
#[test]
fn what_a_silent_path_has_is_brought_to_the_target_at_the_end() {
    let server = serve_twice(vec![memory(1, MIB, 512)]);
    for is_noticed in [false, true] {
        let proxies = proxies(&server);
        let config = HostConfig { path_policy: PathPolicy::RoundRobin, ..host(&proxies) };
        let client = HostClient::connect(config).unwrap();
        proxies[0].freeze_all();
        let (done, completions) = channel();
        for slot in 0..8 {
            let buffer = Some(pattern(512, slot + 100));
            client.submit_to(request(IoOp::Write, slot, 1, buffer, slot), &done);
        }
        if is_noticed {
            eventually("it is noticed", || states(&client) != BOTH);
        }
        let (since, view) = (Instant::now(), client.view().clone());
        drop(client);
        println!("the end has taken {:?}", since.elapsed());
        for _ in 0..8 {
            let ended = completions.try_recv().expect("every request has ended");
            assert!(ended.status.is_success(), "{}: {:?}", ended.status, view.lost());
        }
        assert_eq!(view.lost(), Vec::<String>::new());
        assert!(since.elapsed() < KEEP_ALIVE * 8, "{:?}", since.elapsed());
    }
}

#[test]
fn reads_of_a_silent_path_do_not_wait_for_its_fence() {
    let server = serve_twice(vec![memory(1, MIB, 512)]);
    let proxies = proxies(&server);
    let config = HostConfig { path_policy: PathPolicy::RoundRobin, ..host(&proxies) };
    let client = HostClient::connect(config).unwrap();
    proxies[0].freeze_all();
    let since = Instant::now();
    for slot in 0..4 {
        client.read(1, slot, Buffer::alloc(512)).unwrap();
    }
    assert!(since.elapsed() < KEEP_ALIVE * 3, "{:?}", since.elapsed());
}

#[test]
fn requests_fail_when_all_paths_have_been_lost_for_the_loss_timeout() {
    let server = serve_twice(vec![memory(1, MIB, 512)]);
    let mut config = host_config(server.addresses()[0]);
    config.more_addresses = vec![server.addresses()[1].into()];
    config.controller_loss_timeout = Some(Duration::from_millis(300));
    config.lanes = 2;
    let client = HostClient::connect(config).unwrap();
    server.stop();
    let error = client.write(1, 0, pattern(4096, 1), false).unwrap_err();
    assert!(error.status.is(Status::HOST_PATH_ERROR), "{error}");
    eventually("both are lost", || states(&client) == [LinkState::Failing; 2]);
    assert!(client.flush(1).unwrap_err().status.is(Status::HOST_PATH_ERROR));
    assert_eq!(client.view().link().state, LinkState::Failing);
}

#[test]
fn a_host_begins_with_the_paths_that_are_there() {
    let server = serve_twice(vec![memory(1, MIB, 512)]);
    let mut config = host_config("127.0.0.1:1".parse().unwrap());
    config.more_addresses = vec![address(&server).into()];
    config.keep_alive = KEEP_ALIVE;
    let client = HostClient::connect(config).unwrap();
    let gone = states(&client)[0];
    assert_eq!((gone, states(&client)[1]), (LinkState::Reconnecting, LinkState::Connected));
    client.write(1, 0, pattern(4096, 1), false).unwrap();
    assert!(*client.read(1, 0, Buffer::alloc(4096)).unwrap() == *pattern(4096, 1));
    let error = client.view().routes()[0].link.error.clone().unwrap();
    assert!(error.contains("cannot reach 127.0.0.1:1"), "{error}");
}

#[test]
fn paths_that_lead_to_other_namespaces_are_refused() {
    let (one, other) = (serve(vec![memory(1, MIB, 512)]), serve(vec![memory(1, MIB, 512)]));
    let mut config = host_config(address(&one));
    config.more_addresses = vec![address(&other).into()];
    let error = HostClient::connect(config).map(drop).unwrap_err().to_string();
    let (one_at, other_at) = (address(&one), address(&other));
    let said = format!("namespace 1 at {other_at} is another one than at {one_at}");
    assert!(error.contains(&said), "{error}");
    assert_nothing_left(&one);
    assert_nothing_left(&other);
}

/// The host starts with the paths that respond, and tries the others meanwhile.
#[test]
fn paths_that_are_silent_keep_no_other_waiting() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let silent: Vec<_> = (0..3).map(|_| silent()).collect();
    let more = silent[1..].iter().map(|(_, at)| (*at).into());
    let more_addresses = more.chain([address(&server).into()]).collect();
    let begun = Instant::now();
    let config = HostConfig { more_addresses, ..patient(host_config(silent[0].1)) };
    let client = HostClient::connect(config).unwrap();
    client.write(1, 0, pattern(4096, 1), false).unwrap();
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    assert_eq!(states(&client)[3], LinkState::Connected);
}
