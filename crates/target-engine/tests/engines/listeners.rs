//! Listeners that are opened and closed while the target runs.

use crate::harness::*;
use roadtrain_host_engine::{HostClient, HostConfig, discover};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{
    ConfigError, ConfigObject, ConfigOperation, Server, TargetListener, TlsUse,
};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, TcpStream};

fn at(portid: u16, address: &str) -> TargetListener {
    TargetListener {
        portid,
        address: address.parse().unwrap(),
        tls: TlsUse::Off,
        named_only: false,
    }
}

/// Returns the addresses in the discovery log.
fn discovered(server: &Server) -> BTreeSet<SocketAddr> {
    let own = *server.addresses().last().unwrap();
    let nqn = DISCOVERY_NQN.to_owned();
    let (_, entries) = discover(&HostConfig { subsystem_nqn: nqn, ..host_config(own) }).unwrap();
    let address = |ip: &str, port: &str| format!("{ip}:{port}").parse().unwrap();
    entries.iter().map(|entry| address(entry.traddr(), entry.trsvcid())).collect()
}

fn assert_whole(client: &HostClient, seed: u64) {
    client.write(1, 0, pattern(4096, seed), false).unwrap();
    assert!(*client.read(1, 0, Buffer::alloc(4096)).unwrap() == *pattern(4096, seed));
}

/// Connections of a closed listener stay, with one and with several reactors. The discovery log has the open listeners.
#[test]
fn listeners_come_and_go() {
    for count in [1, 3] {
        let mut config = server_config(vec![memory(1, MIB, 512)]);
        config.cores = reactors(count);
        let server = Server::start(config).unwrap();
        let first = address(&server);
        let client = connect(&server);

        let changes = server.apply(&[ConfigOperation::Listen(at(2, "127.0.0.2:0"))]).unwrap();
        let second = server.addresses()[1];
        assert_eq!(changes[0].to_string(), format!("listener {second}: added"));
        assert_eq!(discovered(&server), BTreeSet::from([first, second]));
        assert_whole(&HostClient::connect(host_config(second)).unwrap(), 1);

        server.apply(&[ConfigOperation::Unlisten(at(1, "127.0.0.1:0"))]).unwrap();
        assert!(TcpStream::connect(first).is_err(), "closed when the answer is there");
        assert_eq!(discovered(&server), BTreeSet::from([second]));
        assert_whole(&client, 2);

        // The port is free again, and the address can be opened any number of times.
        for round in 3..20 {
            let again = ConfigOperation::Listen(TargetListener {
                portid: 1,
                address: first,
                tls: TlsUse::Off,
                named_only: false,
            });
            server.apply(&[again]).unwrap();
            assert_whole(&HostClient::connect(host_config(first)).unwrap(), round);
            server
                .apply(&[ConfigOperation::Unlisten(TargetListener {
                    portid: 1,
                    address: first,
                    tls: TlsUse::Off,
                    named_only: false,
                })])
                .unwrap();
            assert!(TcpStream::connect(first).is_err());
        }
        drop(client);
        assert_nothing_left(&server);
    }
}

#[test]
fn an_address_that_cannot_be_had_refuses_the_whole_change() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let other = TcpListener::bind("127.0.0.3:0").unwrap();
    let (before, taken) = (server.addresses(), other.local_addr().unwrap());
    let namespace =
        ConfigOperation::AddNamespace { nqn: NQN.into(), namespace: memory(2, MIB, 512) };
    let free = ConfigOperation::Listen(at(2, "127.0.0.2:0"));
    let refused = ConfigOperation::Listen(TargetListener {
        portid: 3,
        address: taken,
        tls: TlsUse::Off,
        named_only: false,
    });
    let error = server.apply(&[namespace, free, refused]).unwrap_err();
    assert!(
        matches!(&error, ConfigError::Listen { place: ConfigObject::Listener(at), .. } if *at == taken),
        "{error}"
    );
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    assert_eq!((server.addresses(), server.view().0.subsystems[0].namespaces.len()), (before, 1));
    let twice = ConfigOperation::Listen(TargetListener {
        portid: 2,
        address: address(&server),
        tls: TlsUse::Off,
        named_only: false,
    });
    let place = ConfigObject::Listener(address(&server));
    // Configured as port 0, so only the system knows that it is in use.
    assert!(matches!(server.apply(&[twice]), Err(ConfigError::Listen { .. })));
    let none = ConfigOperation::Unlisten(TargetListener {
        portid: 1,
        address: address(&server),
        tls: TlsUse::Off,
        named_only: false,
    });
    assert_eq!(server.apply(&[none]), Err(ConfigError::Unknown(place)));
    assert_whole(&connect(&server), 1);
}

/// A list of addresses keeps existing listeners, with the port that the system has chosen.
#[test]
fn a_configuration_keeps_the_listeners_that_it_names() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let first = address(&server);
    let exports = || [subsystem(vec![memory(1, MIB, 512)])];
    let any = |ips: &[&str]| -> Vec<SocketAddr> {
        ips.iter().map(|ip| format!("{ip}:0").parse().unwrap()).collect()
    };
    let set = |ips: &[&str]| {
        server
            .reconfigure(
                &any(ips),
                &exports(),
                &Default::default(),
                (TlsUse::Off, &BTreeMap::new()),
                &Default::default(),
            )
            .unwrap()
            .len()
    };
    assert_eq!(set(&["127.0.0.1"]), 0);
    assert_eq!(set(&["127.0.0.2", "127.0.0.1"]), 1);
    let second = server.addresses()[1];
    assert_eq!(server.addresses(), [first, second]);
    server.reload(&[subsystem(vec![memory(1, 2 * MIB, 512)])]).unwrap();
    assert_eq!(server.addresses(), [first, second], "only subsystems were reloaded");
    assert_eq!(set(&["127.0.0.2"]), 2, "one that goes, and a namespace that shrinks");
    assert_eq!(server.addresses(), [second]);
    assert_eq!(set(&[]), 1);
    assert!(TcpStream::connect(second).is_err());
}
