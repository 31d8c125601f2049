//! Paths from discovery controllers.

use crate::harness::*;
use roadtrain_host_engine::{HostClient, HostConfig, IoOp, LinkState};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{ConfigOperation, Server, ServerConfig, TargetListener, TlsUse};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Configures a host that gets its paths from the discovery controllers at these addresses.
fn discovering(at: &[SocketAddr]) -> HostConfig {
    let nqn = DISCOVERY_NQN.to_owned();
    let mut discovery = HostConfig { subsystem_nqn: nqn, ..host_config(at[0]) };
    discovery.more_addresses = at[1..].iter().map(|&address| address.into()).collect();
    HostConfig { discovery: Some(Box::new(discovery)), ..host_config(at[0]) }
}

fn routes(client: &HostClient) -> Vec<(String, LinkState)> {
    client.view().routes().into_iter().map(|route| (route.address, route.link.state)).collect()
}

fn all_connected(addresses: &[SocketAddr]) -> Vec<(String, LinkState)> {
    addresses.iter().map(|address| (address.to_string(), LinkState::Connected)).collect()
}

#[test]
fn every_entry_of_the_subsystem_is_a_path() {
    let any = "127.0.0.1:0".parse().unwrap();
    let config =
        ServerConfig { listen: vec![any, any], ..server_config(vec![memory(1, MIB, 512)]) };
    let server = Server::start(config).unwrap();
    let addresses = server.addresses();
    // Each controller knows all paths. Each path appears once although both report it. An unreachable controller does
    // no harm.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for controllers in [&addresses[1..], &addresses[..], &[closed, addresses[0]]] {
        let client = HostClient::connect(discovering(controllers)).unwrap();
        assert_eq!(routes(&client), all_connected(&addresses));
        client.write(1, 0, pattern(4096, 1), false).unwrap();
        assert!(*client.read(1, 0, Buffer::alloc(4096)).unwrap() == *pattern(4096, 1));
    }
    assert_nothing_left(&server);
}

#[test]
fn an_unknown_subsystem_is_an_error() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let nqn = "nqn.2025-01.io.example:other";
    let config = HostConfig { subsystem_nqn: nqn.into(), ..discovering(&server.addresses()) };
    let error = HostClient::connect(config).err().expect("it is unknown").to_string();
    assert!(error.contains(nqn) && error.contains(&address(&server).to_string()), "{error}");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = HostClient::connect(discovering(&[closed]))
        .err()
        .expect("no controller responds")
        .to_string();
    assert!(error.contains("cannot reach"), "{error}");
}

/// Returns a listener with a port of the system's choice.
fn any(portid: u16) -> TargetListener {
    TargetListener {
        portid,
        address: "127.0.0.1:0".parse().unwrap(),
        tls: TlsUse::Off,
        named_only: false,
    }
}

/// Opens another listener. Returns its address.
fn listen(server: &Server, portid: u16) -> SocketAddr {
    server.apply(&[ConfigOperation::Listen(any(portid))]).unwrap();
    *server.addresses().last().unwrap()
}

fn unlisten(server: &Server, portid: u16) {
    server.apply(&[ConfigOperation::Unlisten(any(portid))]).unwrap();
}

/// Paths appear and disappear while writes are in flight: none fails, each completes once, and the last data is stored.
#[test]
fn paths_follow_the_log() {
    const SLOTS: u64 = 64;
    for lanes in [1, 3] {
        let server = serve(vec![memory(1, MIB, 512)]);
        let first = address(&server);
        let mut config = discovering(&[first]);
        (config.lanes, config.cores) = (lanes, reactors(2.min(lanes as usize)));
        let client = HostClient::connect(config).unwrap();
        assert_eq!(routes(&client), all_connected(&[first]));
        let (done, completions) = channel();
        let mut second = None;
        for round in 0..effort(8, 24) {
            for slot in 0..SLOTS {
                let buffer = Some(pattern(4096, round * SLOTS + slot));
                client.submit_to(request(IoOp::Write, slot * 8, 8, buffer, slot), &done);
            }
            match (round % 4, second) {
                (0, _) => second = Some(listen(&server, 2)),
                (2, _) => unlisten(&server, 2),
                _ => {}
            }
            for _ in 0..SLOTS {
                let completion = completions.recv_timeout(LONG).expect("every request ends");
                assert!(completion.status.is_success(), "{}", completion.status);
            }
            let expected = match (round % 4, second) {
                (0 | 1, Some(second)) => all_connected(&[first, second]),
                _ => all_connected(&[first]),
            };
            eventually("the paths are those of the log", || routes(&client) == expected);
            for slot in 0..SLOTS {
                let got = client.read(1, slot * 8, Buffer::alloc(4096)).unwrap();
                assert!(*got == *pattern(4096, round * SLOTS + slot), "round {round}, slot {slot}");
            }
        }
        drop(client);
        assert_nothing_left(&server);
    }
}

/// The first path is removed, too, if there is another one; the last one stays although no log has it.
#[test]
fn the_last_path_stays() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let first = address(&server);
    let client = HostClient::connect(discovering(&[first])).unwrap();
    unlisten(&server, 1);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(routes(&client), all_connected(&[first]));
    client.write(1, 0, pattern(4096, 1), false).unwrap();
    let second = listen(&server, 2);
    eventually("another path takes its place", || routes(&client) == all_connected(&[second]));
    assert!(*client.read(1, 0, Buffer::alloc(4096)).unwrap() == *pattern(4096, 1));
    assert_eq!(client.view().link().state, LinkState::Connected);
    // The slot of the removed path is reused. The connection to the discovery controller outlives its listener.
    let third = listen(&server, 3);
    eventually("both", || routes(&client).len() == 2);
    unlisten(&server, 2);
    eventually("the other one", || routes(&client) == all_connected(&[third]));
    client.write(1, 0, pattern(4096, 2), false).unwrap();
    drop(client);
    assert_nothing_left(&server);
}

#[test]
fn a_discovery_controller_that_is_silent_keeps_no_other_waiting() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let silent: Vec<_> = (0..3).map(|_| silent()).collect();
    let at = silent.iter().map(|(_, at)| *at).chain([address(&server)]).collect::<Vec<_>>();
    let config = discovering(&at);
    let discovery = config.discovery.map(|discovery| Box::new(patient(*discovery)));
    let begun = Instant::now();
    let client = HostClient::connect(HostConfig { discovery, ..config }).unwrap();
    assert_eq!(routes(&client), all_connected(&server.addresses()));
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}
