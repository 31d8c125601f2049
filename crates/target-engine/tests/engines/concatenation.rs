//! Secure channel concatenation: a host authenticates in the clear, and reconnects with TLS and the generated PSK.

use crate::harness::*;
use crate::proxy::Proxy;
use roadtrain_host_engine::{
    HostClient, HostConfig, HostControlError, HostTls, LinkError, LinkState,
};
use roadtrain_proto::security::dhchap::{self, AuthOffer, DhGroup, DhchapKeys};
use roadtrain_proto::security::{DhchapKey, Hash, TlsKeys};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Server, ServerConfig, TlsConfig, TlsUse};
use roadtrain_target_proto::HostAuthentication;
use roadtrain_wire::auth::Explanation;
use std::collections::BTreeMap;
use std::net::SocketAddr;

const SECURED: &str = "nqn.2024-01.test:secured";

fn key(byte: u8) -> Option<DhchapKey> {
    Some(DhchapKey::new(Some(Hash::Sha256), &[byte; 32]).unwrap())
}

fn host_key(byte: u8) -> DhchapKeys {
    DhchapKeys { host: key(byte), controller: None }
}

/// Keys of the host (1) and the target (2).
fn authentication(offer: AuthOffer) -> HostAuthentication {
    let keys = DhchapKeys { host: key(1), controller: key(2) };
    let keys = BTreeMap::from([(HOST_NQN.to_owned(), keys)]);
    HostAuthentication {
        offer,
        keys,
        tls_at: [SECURED.to_owned()].into(),
        ..HostAuthentication::default()
    }
}

fn configured(tls: TlsUse, offer: AuthOffer) -> ServerConfig {
    let tls = TlsConfig { tls, at: BTreeMap::new(), keys: TlsKeys::default() };
    let config = server_config(vec![memory(1, 32 * MIB, 512)]);
    let mut secured = subsystem(vec![memory(1, MIB, 512)]);
    secured.nqn = SECURED.to_owned();
    let subsystems = [config.subsystems.clone(), vec![secured]].concat();
    let authentication = authentication(offer);
    ServerConfig { tls: Some(tls), subsystems, authentication, ..config }
}

fn start(tls: TlsUse) -> Server {
    Server::start(configured(tls, AuthOffer::default())).unwrap()
}

fn host(address: SocketAddr, keys: DhchapKeys) -> HostConfig {
    HostConfig { keys, tls: Some(HostTls::concatenated()), ..host_config(address) }
}

fn data_passes(client: &HostClient) {
    client.write(1, 0, pattern(128 << 10, 1), false).unwrap();
    let read = client.read(1, 0, Buffer::alloc(128 << 10)).unwrap();
    assert!(*read == *pattern(128 << 10, 1));
}

fn refusal(config: HostConfig) -> dhchap::AuthHostError {
    match HostClient::connect(config) {
        Err(HostControlError::Authentication { error, .. }) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is let in"),
    }
}

/// In either suite, with and without the target's proof.
#[test]
fn everything_goes_over_tls_with_the_psk_that_was_made() {
    for hash in [Hash::Sha256, Hash::Sha384] {
        let offer = AuthOffer { hashes: vec![hash], groups: vec![DhGroup::Ffdhe2048] };
        let server = Server::start(configured(TlsUse::Allowed, offer)).unwrap();
        for controller in [None, key(2)] {
            let proxy = Proxy::new(address(&server), Vec::new());
            let keys = DhchapKeys { host: key(1), controller };
            let config = HostConfig { lanes: 2, ..host(proxy.address, keys) };
            let client = HostClient::connect(config).unwrap();
            data_passes(&client);
            assert_eq!(proxy.kinds(), [PLAIN, TLS, TLS, TLS]);
            // The plain connection ends after authentication: it carries no command.
            let said = proxy.sent(0).len();
            assert!(said < 4096, "{said} bytes");
        }
        assert_nothing_left(&server);
    }
}

/// First bytes of connections: an ICReq, or a TLS record.
const PLAIN: u8 = 0;
const TLS: u8 = 0x16;

/// Neither side continues without the required security: at a target without TLS, or one without plain connections.
#[test]
fn no_side_falls_back() {
    let plain = start(TlsUse::Off);
    let channel = dhchap::AuthHostError::Refused(Explanation::SecureChannel);
    assert_eq!(refusal(host(address(&plain), host_key(1))), channel);
    let required = start(TlsUse::Required);
    let refused = HostClient::connect(host(address(&required), host_key(1))).err().unwrap();
    assert!(
        matches!(refused, HostControlError::Unreachable { source: LinkError::PlainClosed, .. }),
        "{refused}"
    );
    assert_nothing_left(&plain);
    assert_nothing_left(&required);
}

/// A subsystem that requires TLS accepts plain connections only for concatenation.
#[test]
fn a_subsystem_may_require_it() {
    let server = start(TlsUse::Allowed);
    let at = |config| HostConfig { subsystem_nqn: SECURED.to_owned(), ..config };
    data_passes(&HostClient::connect(at(host(address(&server), host_key(1)))).unwrap());
    let plain = |keys| at(HostConfig { keys, ..host_config(address(&server)) });
    assert_eq!(refusal(plain(host_key(1))), dhchap::AuthHostError::SecureChannel);
    assert_eq!(refusal(plain(DhchapKeys::default())), dhchap::AuthHostError::SecureChannel);
    // The other subsystem accepts both.
    let open = HostConfig { keys: host_key(1), ..host_config(address(&server)) };
    data_passes(&HostClient::connect(open).unwrap());
    // A host without authentication generates no PSK.
    let host_nqn = "nqn.2024-01.test:stranger".to_owned();
    let stranger = HostConfig { host_nqn, ..host(address(&server), host_key(1)) };
    assert_eq!(refusal(stranger), dhchap::AuthHostError::NoChannel);
    let without = start(TlsUse::Off);
    let refused = at(HostConfig { keys: host_key(1), ..host_config(address(&without)) });
    let refused = HostClient::connect(refused).err().unwrap();
    assert!(matches!(refused, HostControlError::Refused { .. }), "{refused}");
    assert_nothing_left(&server);
}

/// While the target knows the PSK, the host reconnects with it; otherwise it generates another one.
#[test]
fn connections_are_made_anew_with_the_psk_or_with_another_one() {
    let server = start(TlsUse::Allowed);
    let proxy = Proxy::new(address(&server), Vec::new());
    let mut config = host(proxy.address, host_key(1));
    // Limit of one MiB in each direction.
    config.tls = Some(HostTls { blocks_max: (1 << 20) / 16, ..HostTls::concatenated() });
    let client = HostClient::connect(config).unwrap();
    let renew = || {
        let before = client.view().link();
        for _ in 0..40 {
            data_passes(&client);
        }
        eventually("it is connected", || client.view().link().state == LinkState::Connected);
        assert!(client.view().link().since > before.since, "it was not connected anew");
    };
    renew();
    let kinds = proxy.kinds();
    assert_eq!(kinds[0], PLAIN);
    assert!(kinds.len() >= 5 && kinds[1..].iter().all(|&kind| kind == TLS), "{kinds:?}");
    // The host's key changes and its former key stays valid, but the PSK of the former key does not.
    let subsystems = server.exports().subsystems.clone();
    let authentication = HostAuthentication {
        keys: BTreeMap::from([(HOST_NQN.to_owned(), host_key(5))]),
        former: BTreeMap::from([(HOST_NQN.to_owned(), key(1).unwrap())]),
        ..authentication(AuthOffer::default())
    };
    let listen = ["127.0.0.1:0".parse().unwrap()];
    server
        .reconfigure(
            &listen,
            &subsystems,
            &authentication,
            (TlsUse::Allowed, &BTreeMap::new()),
            &Default::default(),
        )
        .unwrap();
    renew();
    let plain = proxy.kinds().iter().filter(|&&kind| kind == PLAIN).count();
    assert_eq!(plain, 2, "{:?}", proxy.kinds());
}
