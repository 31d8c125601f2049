//! In-band authentication over loopback: accepted hosts, refused hosts, and the errors of both sides.

use crate::harness::*;
use crate::peer::{RawPeer, raw};
use roadtrain_host_engine::{HostClient, HostConfig, HostControlError, LinkState, discover};
use roadtrain_proto::security::dhchap::{self, AuthOffer, DhGroup, DhchapKeys};
use roadtrain_proto::security::{DhchapKey, Hash};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Server, ServerConfig, TlsUse};
use roadtrain_target_proto::HostAuthentication;
use roadtrain_wire::auth::Explanation;
use roadtrain_wire::fabrics::{Connect, ConnectData, DISCOVERY_NQN, Property, property};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;
use std::collections::BTreeMap;

fn key(byte: u8) -> Option<DhchapKey> {
    Some(DhchapKey::new(Some(Hash::Sha256), &[byte; 32]).unwrap())
}

/// Keys of the host (1) and the target (2).
fn both() -> DhchapKeys {
    DhchapKeys { host: key(1), controller: key(2) }
}

fn authentication(required: bool, offer: AuthOffer) -> HostAuthentication {
    let keys = BTreeMap::from([(HOST_NQN.to_owned(), both())]);
    HostAuthentication { required, offer, keys, ..HostAuthentication::default() }
}

fn start(required: bool, offer: AuthOffer, reactor_count: usize) -> Server {
    let config = server_config(vec![memory(1, MIB, 512)]);
    let authentication = authentication(required, offer);
    let cores = reactors(reactor_count);
    Server::start(ServerConfig { authentication, cores, ..config }).unwrap()
}

fn config(server: &Server, keys: DhchapKeys) -> HostConfig {
    HostConfig { keys, lanes: 2, ..host_config(address(server)) }
}

fn refusal(config: HostConfig) -> dhchap::AuthHostError {
    match HostClient::connect(config) {
        Err(HostControlError::Authentication { error, .. }) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is let in"),
    }
}

/// One-sided and mutual authentication, with and without Diffie-Hellman. The tests of the state machines cover every
/// hash and group.
#[test]
fn hosts_with_the_right_keys_are_let_in() {
    for group in [DhGroup::Null, DhGroup::Ffdhe2048] {
        let server = start(true, AuthOffer { hashes: vec![Hash::Sha384], groups: vec![group] }, 2);
        for controller in [None, key(2)] {
            let keys = DhchapKeys { host: key(1), controller };
            let client = HostClient::connect(config(&server, keys)).unwrap();
            client.write(1, 0, pattern(4096, 1), false).unwrap();
            let read = client.read(1, 0, Buffer::alloc(4096)).unwrap();
            assert!(*read == *pattern(4096, 1));
        }
        assert_nothing_left(&server);
    }
}

#[test]
fn wrong_and_missing_keys_are_refused_by_the_side_that_has_the_other() {
    let server = start(false, AuthOffer::default(), 1);
    let refused = |keys| refusal(config(&server, keys));
    let wrong = DhchapKeys { host: key(9), controller: None };
    assert_eq!(refused(wrong), dhchap::AuthHostError::Refused(Explanation::Failed));
    assert_eq!(refused(DhchapKeys::default()), dhchap::AuthHostError::NoKey);
    let other_target = refused(DhchapKeys { host: key(1), controller: key(9) });
    assert!(
        matches!(other_target, dhchap::AuthHostError::Refuses(Explanation::Failed, _)),
        "{other_target}"
    );
    assert_nothing_left(&server);
}

/// A peer that knows the name and controller of a host, but has no key, cannot shut the controller down.
#[test]
fn an_unauthenticated_peer_cannot_shut_a_controller_down() {
    const SHUTDOWN: u32 = 1 << 14;
    let server = start(true, AuthOffer::default(), 2);
    let client = HostClient::connect(config(&server, both())).unwrap();
    let cntlid = client.view().info().cntlid;
    // A queue of the host's controller, and another controller.
    for (qid, cntlid) in [(7, cntlid), (0, 0xffff)] {
        let socket = std::net::TcpStream::connect(address(&server)).unwrap();
        let mut peer = RawPeer { socket, digests: raw::PLAIN };
        peer.send(&raw::icreq());
        peer.next().unwrap();
        let connect = Connect { recfmt: 0, qid, sqsize: 7, cattr: 0, kato_ms: 0 };
        let data = ConnectData::new([7; 16], cntlid, NQN, HOST_NQN);
        peer.send(&raw::command(1, connect.emit(), data.as_bytes(), raw::PLAIN));
        assert!(peer.completion(1).is_success(), "it must authenticate then");
        let shutdown = Property::set(property::CC, SHUTDOWN);
        peer.send(&raw::command(2, shutdown, &[], raw::PLAIN));
        assert_eq!(peer.completion(2), Status::AUTHENTICATION_REQUIRED.dnr());
        client.write(1, 0, pattern(4096, 1), false).unwrap();
    }
    drop(client);
    assert_nothing_left(&server);
}

/// A host that requires proof from the target refuses one that does not authenticate.
#[test]
fn a_target_that_does_not_authenticate_is_refused() {
    let server = serve(vec![memory(1, MIB, 512)]);
    assert_eq!(refusal(config(&server, both())), dhchap::AuthHostError::AuthNotRequired);
    // A host that only offers its own proof needs no authentication.
    let keys = DhchapKeys { host: key(1), controller: None };
    assert!(HostClient::connect(config(&server, keys)).is_ok());
}

/// Where authentication is required, hosts without a key get the same error as those with a wrong one, and discovery is
/// refused, too.
#[test]
fn hosts_that_are_not_known_are_not_let_in_where_it_is_required() {
    let stranger = |server: &Server, keys| {
        let host_nqn = "nqn.2024-01.test:stranger".to_owned();
        HostConfig { host_nqn, ..config(server, keys) }
    };
    let open = start(false, AuthOffer::default(), 1);
    assert!(HostClient::connect(stranger(&open, DhchapKeys::default())).is_ok());
    let server = start(true, AuthOffer::default(), 1);
    let keys = || DhchapKeys { host: key(1), controller: None };
    let failed = dhchap::AuthHostError::Refused(Explanation::Failed);
    assert_eq!(refusal(stranger(&server, keys())), failed);
    let discovery = |config: HostConfig| {
        discover(&HostConfig { subsystem_nqn: DISCOVERY_NQN.to_owned(), lanes: 0, ..config })
    };
    assert!(discovery(stranger(&server, keys())).is_err());
    assert!(discovery(config(&server, DhchapKeys::default())).is_err());
    let (_, entries) = discovery(config(&server, keys())).unwrap();
    assert!(entries.iter().any(|entry| entry.subnqn() == Some(NQN)));
}

/// Sixteen hosts at once, with all powers computed by one thread.
#[test]
fn many_hosts_authenticate_at_once() {
    let server =
        start(true, AuthOffer { groups: vec![DhGroup::Ffdhe2048], ..AuthOffer::default() }, 2);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| drop(HostClient::connect(config(&server, both())).unwrap()));
        }
    });
    assert_nothing_left(&server);
}

/// A key changes in four steps: old, both, both, new. The host can connect after each. When its key is removed, the
/// host is disconnected; others stay.
#[test]
fn a_key_is_changed_while_the_host_has_one_or_the_other() {
    const OTHER: &str = "nqn.2024-01.test:other";
    let server = start(true, AuthOffer::default(), 2);
    let is_let_in = |byte| HostClient::connect(config(&server, host(byte))).is_ok();
    let set = |keys: &[(&str, u8)], former: Option<u8>| {
        let keys = keys.iter().map(|(nqn, byte)| ((*nqn).to_owned(), host(*byte)));
        let former = former.map(|byte| (HOST_NQN.to_owned(), key(byte).unwrap()));
        let authentication = HostAuthentication {
            keys: keys.collect(),
            former: former.into_iter().collect(),
            ..authentication(true, AuthOffer::default())
        };
        let subsystems = [subsystem(vec![memory(1, MIB, 512)])];
        let listen = ["127.0.0.1:0".parse().unwrap()];
        server
            .reconfigure(
                &listen,
                &subsystems,
                &authentication,
                (TlsUse::Off, &BTreeMap::new()),
                &Default::default(),
            )
            .unwrap();
    };
    assert!(is_let_in(1) && !is_let_in(5));
    set(&[(HOST_NQN, 5), (OTHER, 7)], Some(1));
    assert!(is_let_in(1) && is_let_in(5) && !is_let_in(7));
    set(&[(HOST_NQN, 5), (OTHER, 7)], None);
    assert!(!is_let_in(1) && is_let_in(5));
    let (host_nqn, host_id) = (OTHER.to_owned(), [9; 16]);
    let stays = HostConfig { host_nqn, host_id, ..config(&server, host(7)) };
    let stays = HostClient::connect(stays).unwrap();
    let goes = HostClient::connect(config(&server, host(5))).unwrap();
    set(&[(OTHER, 7)], None);
    eventually("it is sent away", || goes.view().link().state != LinkState::Connected);
    stays.write(1, 0, pattern(4096, 3), false).unwrap();
}

fn host(byte: u8) -> DhchapKeys {
    DhchapKeys { host: key(byte), controller: None }
}
