//! Tests of hosts that vanish without a Leave and reconnect while their commands are in a store.

use super::tests::{HOST, TARGET, in_namespace, ip};
use crate::flaky;
use crate::tests::{LONG, NQN, eventually, make_fifo, read};
use crate::{EtherConfig, Export, Server, ServerConfig, Subsystem};
use roadtrain_ether_port::port::PortConfig;
use roadtrain_host_engine::{EtherAddress, HostClient, HostConfig, HostControlError};
use roadtrain_wire::status::Status;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

fn serve(fifo: &Path, reactors: usize) -> Server {
    let exports = vec![Export::with_store(1, flaky::fifo(fifo))];
    let subsystem = Subsystem { namespaces: exports, ..Subsystem::new(NQN) };
    let mut config = ServerConfig::new(Vec::new(), vec![subsystem]);
    let port = PortConfig::default();
    config.ether = Some(EtherConfig { port, ..EtherConfig::new(vec![TARGET.into()]) });
    config.cores = vec![0; reactors];
    Server::start(config).unwrap()
}

fn host_config(host_nqn: &str) -> HostConfig {
    let address = EtherAddress::new(vec![HOST.into()]);
    let mut config = HostConfig::new(address, NQN, host_nqn, [7; 16]);
    config.connect_timeout = Duration::ZERO;
    config
}

fn connect(host_nqn: &str) -> Result<HostClient, HostControlError> {
    HostClient::connect(host_config(host_nqn))
}

/// Drops the client while its interface is down, so that no Leave reaches the target.
fn vanish(client: HostClient) {
    assert!(ip(&["link", "set", HOST, "down"]));
    drop(client);
    assert!(ip(&["link", "set", HOST, "up"]));
}

/// Otherwise an old write could overtake its retry, or a newer write.
#[test]
fn a_host_that_vanished_waits_for_its_commands() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    in_namespace(|| {
        for reactors in [1, 2] {
            let server = serve(&fifo, reactors);
            let config = HostConfig { timeout: Duration::from_secs(1), ..host_config("nqn.x:h") };
            let client = HostClient::connect(config).unwrap();
            let (done, ended) = channel();
            client.submit_to(read(), &done);
            eventually("the read is in the store", || server.usage().store_commands == 1);
            vanish(client);
            assert!(ended.recv_timeout(LONG).unwrap().status.is(Status::HOST_PATH_ERROR));

            drop(connect("nqn.x:other").expect("others are not concerned"));
            let refused = connect("nqn.x:h").err().expect("its read is not over");
            let HostControlError::Refused { status, .. } = refused else { panic!("{refused}") };
            assert!(status.is(Status::CONNECT_CONTROLLER_BUSY) && !status.is_dnr(), "{status}");
            eventually("the read is still there", || server.usage().store_commands == 1);
            std::fs::write(&fifo, [0; 4096]).unwrap();
            eventually("the read is over", || server.usage().store_commands == 0);
            drop(connect("nqn.x:h").expect("nothing is left"));
        }
    });
}

/// A living host may have several controllers.
#[test]
fn a_host_that_answers_waits_for_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    in_namespace(|| {
        let server = serve(&fifo, 2);
        let client = connect("nqn.x:h").unwrap();
        let (done, ended) = channel();
        client.submit_to(read(), &done);
        eventually("the read is in the store", || server.usage().store_commands == 1);
        for _ in 0..3 {
            drop(connect("nqn.x:h").expect("it has its lanes"));
        }
        std::fs::write(&fifo, [0; 4096]).unwrap();
        assert!(ended.recv_timeout(LONG).unwrap().status.is_success());
    });
}
