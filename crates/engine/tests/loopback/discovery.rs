//! Paths that discovery controllers know.

use crate::harness::*;
use roadtrain_engine::buffer::Buffer;
use roadtrain_engine::host::{Client, HostConfig, LinkState};
use roadtrain_engine::target::{Server, ServerConfig};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use std::net::SocketAddr;

/// A host that asks the discovery controllers at those addresses for the paths.
fn discovering(at: &[SocketAddr]) -> HostConfig {
    let nqn = DISCOVERY_NQN.to_owned();
    let mut discovery = HostConfig { subsystem_nqn: nqn, ..host_config(at[0]) };
    discovery.more_addresses = at[1..].iter().map(|&address| address.into()).collect();
    HostConfig { discovery: Some(Box::new(discovery)), ..host_config(at[0]) }
}

fn routes(client: &Client) -> Vec<(String, LinkState)> {
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
    // Either knows all; asked twice, each is there once. One that is not there is no harm.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for asked in [&addresses[1..], &addresses[..], &[closed, addresses[0]]] {
        let client = Client::connect(discovering(asked)).unwrap();
        assert_eq!(routes(&client), all_connected(&addresses));
        client.write(1, 0, pattern(4096, 1), false).unwrap();
        assert!(*client.read(1, 0, Buffer::alloc(4096)).unwrap() == *pattern(4096, 1));
    }
    assert_nothing_left(&server);
}

#[test]
fn a_subsystem_that_nobody_knows_is_an_error() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let nqn = "nqn.2025-01.io.example:other";
    let config = HostConfig { subsystem_nqn: nqn.into(), ..discovering(&server.addresses()) };
    let error = Client::connect(config).err().expect("nobody knows it").to_string();
    assert!(error.contains(nqn) && error.contains(&address(&server).to_string()), "{error}");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Client::connect(discovering(&[closed])).err().expect("nobody there").to_string();
    assert!(error.contains("cannot reach"), "{error}");
}
