//! TLS at both ends: accepted and refused hosts, and intact data.

use crate::harness::*;
use crate::proxy::{ConnectionFault, Proxy};
use roadtrain_host_engine::{HostClient, HostConfig, HostTls, LinkState, TlsKeySource, discover};
use roadtrain_proto::security::{
    Derivation, Hash, IdentityVersion, Keyring, Secret, Suite, TlsKey, TlsKeys, TlsPsk,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Server, ServerConfig, TlsConfig, TlsUse};
use roadtrain_wire::discovery::{sectype, treq};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Returns a configured PSK for the suite of `hash`.
fn key(hash: Hash, fill: u8) -> TlsKey {
    TlsKey::new(Some(hash), &vec![fill; hash.bytes()]).unwrap()
}

fn keys(key: TlsKey) -> TlsKeys {
    TlsKeys::from([(HOST_NQN.to_owned(), vec![key])])
}

fn secured(exports: Vec<Export>, tls: TlsUse, key: TlsKey) -> ServerConfig {
    let (keys, at) = (keys(key), BTreeMap::new());
    ServerConfig { tls: Some(TlsConfig { tls, at, keys }), ..server_config(exports) }
}

fn host(address: SocketAddr, key: TlsKey) -> HostConfig {
    HostConfig { tls: Some(HostTls::new(TlsKeySource::Configured(key))), ..host_config(address) }
}

fn required(exports: Vec<Export>, key: TlsKey) -> Server {
    Server::start(secured(exports, TlsUse::Required, key)).unwrap()
}

/// Writes and reads of all sizes, with capsules, R2Ts and direct receives.
fn data_passes(client: &HostClient) {
    for (seed, length) in (1..).zip([512, 4096, 16 << 10, 20 << 10, 128 << 10, 1 << 20]) {
        let slba = seed * 2048;
        client.write(1, slba, pattern(length, seed), false).unwrap();
        let got = client.read(1, slba, Buffer::alloc(length)).unwrap();
        assert!(*got == *pattern(length, seed), "{length} bytes");
    }
    client.flush(1).unwrap();
}

#[test]
fn data_passes_in_both_suites() {
    let directory = tempfile::tempdir().unwrap();
    for hash in [Hash::Sha256, Hash::Sha384] {
        for export in [memory(1, 32 * MIB, 512), file(1, &directory, 32 * MIB, 512)] {
            let server = required(vec![export], key(hash, 7));
            let mut config = host(address(&server), key(hash, 7));
            config.lanes = 2;
            let client = HostClient::connect(config).unwrap();
            data_passes(&client);
            drop(client);
            assert_nothing_left(&server);
        }
    }
}

#[test]
fn a_host_with_another_key_is_refused_with_the_reason() {
    for hash in [Hash::Sha256, Hash::Sha384] {
        let server = required(vec![memory(1, MIB, 512)], key(hash, 7));
        let error =
            HostClient::connect(host(address(&server), key(hash, 8))).err().unwrap().to_string();
        assert!(
            error.contains("decrypt_error") && error.contains("refuses this host's key"),
            "{error}"
        );
        let mut other = host(address(&server), key(hash, 7));
        other.host_nqn = "nqn.2024-01.test:other".to_owned();
        let error = HostClient::connect(other).err().unwrap().to_string();
        assert!(error.contains("decrypt_error"), "{error}");
        assert_nothing_left(&server);
    }
}

/// Targets know a key by its identity of one version or of both; hosts offer the other identity if the first is
/// refused.
#[test]
fn a_key_is_offered_by_the_identity_that_the_target_knows() {
    use IdentityVersion::{V0, V1};
    let key = key(Hash::Sha256, 7);
    for (known, offered, connects) in [
        (V0, None, true),
        (V0, Some(V0), true),
        (V0, Some(V1), false),
        (V1, None, true),
        (V1, Some(V0), false),
    ] {
        let mut config = secured(vec![memory(1, MIB, 512)], TlsUse::Required, key.clone());
        let psk = key.tls_psk_by(HOST_NQN, NQN, Derivation { version: known, compat: false });
        let mut keyring = Keyring::default();
        keyring.add(&psk.identity, psk.psk).unwrap();
        config.tls.as_mut().unwrap().keys = TlsKeys { keyring, ..TlsKeys::default() };
        let server = Server::start(config).unwrap();
        let mut config = host(address(&server), key.clone());
        config.tls.as_mut().unwrap().identity = offered;
        config.lanes = 2;
        match HostClient::connect(config) {
            Ok(client) if connects => drop(client.write(1, 0, pattern(4096, 1), false).unwrap()),
            Ok(_) => panic!("{offered:?} at a target that knows {known:?}"),
            Err(error) => assert!(!connects, "{known:?} {offered:?}: {error}"),
        }
        assert_nothing_left(&server);
    }
}

/// A host with a generated key that the target has forgotten authenticates again only on this alert.
#[test]
fn a_generated_key_that_is_forgotten_is_not_known() {
    let server = required(vec![memory(1, MIB, 512)], key(Hash::Sha256, 7));
    for (kind, alert) in [('G', 115), ('R', 51)] {
        let identity = format!("NVMe1{kind}01 {HOST_NQN} {NQN} digest");
        let psk = Secret::new(&[1; 32]);
        let psk = TlsPsk { identity, psk, suite: Suite::Aes128GcmSha256 };
        let mut hello = roadtrain_tls::Handshake::connect(psk).unwrap();
        let mut stream = TcpStream::connect(address(&server)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(hello.outgoing()).unwrap();
        let mut answer = [0; 7];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0x15, 3, 3, 0, 2, 2, alert]);
    }
    assert_nothing_left(&server);
}

#[test]
fn no_side_falls_back() {
    let key = || key(Hash::Sha256, 7);
    let server = required(vec![memory(1, MIB, 512)], key());
    let error = HostClient::connect(host_config(address(&server))).err().unwrap().to_string();
    assert!(error.contains("127.0.0.1"), "a plain host, and TLS is required: {error}");
    let plain = serve(vec![memory(1, MIB, 512)]);
    let error = HostClient::connect(host(address(&plain), key())).err().unwrap().to_string();
    assert!(error.contains("TLS handshake"), "a host with TLS, and a target without: {error}");
    assert_nothing_left(&server);
    assert_nothing_left(&plain);
}

#[test]
fn where_tls_is_allowed_the_first_byte_decides() {
    let key = || key(Hash::Sha256, 7);
    let config = secured(vec![memory(1, 32 * MIB, 512)], TlsUse::Allowed, key());
    let server = Server::start(config).unwrap();
    let other =
        HostConfig { host_nqn: format!("{HOST_NQN}:other"), ..host_config(address(&server)) };
    let plain = HostClient::connect(other).unwrap();
    let secured = HostClient::connect(host(address(&server), key())).unwrap();
    data_passes(&plain);
    data_passes(&secured);
    let wrong = HostClient::connect(host(address(&server), self::key(Hash::Sha256, 8)));
    assert!(wrong.is_err(), "and no host with TLS ends up without");
    let claimed = HostClient::connect(host_config(address(&server))).err().unwrap().to_string();
    assert!(claimed.contains("refuses"), "a host with a key must use it: {claimed}");
}

/// Before keys are used up, all connections are made again, and requests do not notice.
#[test]
fn connections_are_renewed_before_their_keys_are_used_up() {
    const ROUNDS: u64 = 40;
    let key = || key(Hash::Sha256, 7);
    let server = required(vec![memory(1, 32 * MIB, 512)], key());
    let mut config = host(address(&server), key());
    // Limit of one MiB in each direction.
    config.tls = Some(HostTls {
        blocks_max: (1 << 20) / 16,
        ..HostTls::new(TlsKeySource::Configured(key()))
    });
    let client = HostClient::connect(config).unwrap();
    let before = client.view().link();
    for seed in 0..ROUNDS {
        client.write(1, 0, pattern(128 << 10, seed), false).unwrap();
        let got = client.read(1, 0, Buffer::alloc(128 << 10)).unwrap();
        assert!(*got == *pattern(128 << 10, seed), "round {seed}");
    }
    // The last round may have used up the keys again.
    eventually("it is connected", || client.view().link().state == LinkState::Connected);
    let link = client.view().link();
    assert!(link.since > before.since, "the connection is another one: {before:?} {link:?}");
}

/// Without digests, TLS detects data that the network has changed.
#[test]
fn flipped_bits_and_cuts_lose_nothing() {
    let key = || key(Hash::Sha256, 7);
    let server = required(vec![memory(1, 32 * MIB, 512)], key());
    let flips = (0..4).map(|n| ConnectionFault::Flip(900_000 + 7777 * n));
    let cuts = (0..12).map(|n| ConnectionFault::Cut(300 + 77_777 * n));
    let proxy = Proxy::new(address(&server), flips.chain(cuts).collect());
    let mut config = host(proxy.address, key());
    config.connect_timeout = LONG;
    let client = (0..20).find_map(|_| HostClient::connect(config.clone()).ok()).expect("connected");
    for seed in 0..60 {
        client.write(1, seed * 256, pattern(128 << 10, seed), false).unwrap();
    }
    for seed in 0..60 {
        let got = client.read(1, seed * 256, Buffer::alloc(128 << 10)).unwrap();
        assert!(*got == *pattern(128 << 10, seed), "block {seed}");
    }
    assert!(proxy.strikes() >= 5, "only {} connections were struck", proxy.strikes());
}

/// Silent, invalid and incomplete handshakes: other hosts connect meanwhile, and nothing is left.
#[test]
fn hostile_handshakes_delay_no_other_host() {
    let key = || key(Hash::Sha256, 7);
    let mut config = secured(vec![memory(1, 32 * MIB, 512)], TlsUse::Required, key());
    config.connect_timeout = Duration::from_secs(3);
    let server = Server::start(config).unwrap();
    let begin = |bytes: &[u8]| {
        let mut socket = TcpStream::connect(address(&server)).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket.write_all(bytes).unwrap();
        socket
    };
    let silent: Vec<TcpStream> = (0..50).map(|_| begin(&[])).collect();
    let half: Vec<TcpStream> = (0..50).map(|_| begin(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc])).collect();
    data_passes(&HostClient::connect(host(address(&server), key())).unwrap());
    for nonsense in [&[0; 128][..], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0, 4, 0xff, 0, 0, 0]] {
        let mut answer = Vec::new();
        let mut socket = begin(nonsense);
        let _ = socket.read_to_end(&mut answer); // reset, if bytes were unread
        assert_eq!(answer.first(), Some(&0x15), "an alert for {nonsense:?}: {answer:?}");
    }
    for mut socket in silent.into_iter().chain(half) {
        assert_eq!(socket.read(&mut [0; 16]).unwrap_or(0), 0, "ended when its time was over");
    }
    assert_nothing_left(&server);
}

/// A flood of half-open handshakes from one address, more than permitted. Earlier connections from other addresses
/// stay, and others can connect.
#[test]
fn a_flood_from_one_address_ends_its_own_handshakes_only() {
    /// More handshakes than can be in progress.
    const FLOOD: usize = 1100;
    let key = || key(Hash::Sha256, 7);
    let mut config = secured(vec![memory(1, 32 * MIB, 512)], TlsUse::Required, key());
    config.connect_timeout = LONG;
    let server = Server::start(config).unwrap();
    let from = |source: &str| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any: SocketAddr = format!("{source}:0").parse().unwrap();
        socket.bind(&any.into()).unwrap();
        socket.connect(&address(&server).into()).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        let mut socket: TcpStream = socket.into();
        socket.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc]).unwrap();
        socket
    };
    let honest = from("127.0.0.1");
    let mut flood: Vec<TcpStream> = (0..FLOOD).map(|_| from("127.0.0.2")).collect();
    assert_eq!(flood[0].read(&mut [0; 16]).unwrap_or(0), 0, "it has made room");
    data_passes(&HostClient::connect(host(address(&server), key())).unwrap());
    honest.set_nonblocking(true).unwrap();
    let still_there = (&honest).read(&mut [0; 16]).map_err(|error| error.kind());
    assert_eq!(still_there, Err(ErrorKind::WouldBlock));
}

/// During a change both keys are valid. A host whose key is removed is disconnected.
#[test]
fn a_key_is_changed_side_by_side_and_taken_away() {
    let [old, new] = [7, 8].map(|fill| key(Hash::Sha256, fill));
    let server = required(vec![memory(1, 32 * MIB, 512)], old.clone());
    let connect = |key: &TlsKey| HostClient::connect(host(address(&server), key.clone()));
    let both = vec![new.clone(), old.clone()];
    server.set_tls_keys(TlsKeys::from([(HOST_NQN.to_owned(), both)]));
    data_passes(&connect(&old).unwrap());
    let client = connect(&new).unwrap();
    server.set_tls_keys(keys(new));
    data_passes(&client);
    assert!(connect(&old).is_err());
    server.set_tls_keys(TlsKeys::default());
    eventually("it is sent away", || client.view().link().state != LinkState::Connected);
}

/// Listeners with and without TLS, and their entries in the discovery log.
#[test]
fn listeners_with_and_without_tls_coexist() {
    let key = || key(Hash::Sha256, 7);
    let mut config = secured(vec![memory(1, 32 * MIB, 512)], TlsUse::Required, key());
    let plain: SocketAddr = "127.0.0.2:0".parse().unwrap();
    config.listen.push(plain);
    config.tls.as_mut().unwrap().at.insert(plain, TlsUse::Off);
    let server = Server::start(config).unwrap();
    let [secure, plain] = server.addresses()[..] else { panic!("two listeners") };
    data_passes(&HostClient::connect(host(secure, key())).unwrap());
    data_passes(&HostClient::connect(host_config(plain)).unwrap());
    assert!(HostClient::connect(host_config(secure)).is_err());
    assert!(HostClient::connect(host(plain, key())).is_err());
    let subsystem_nqn = DISCOVERY_NQN.to_owned();
    let config = HostConfig { subsystem_nqn, lanes: 0, ..host_config(plain) };
    let (_, entries) = discover(&config).unwrap();
    assert_eq!(entries.len(), 4);
    for entry in entries {
        let is_secure = entry.trsvcid() == secure.port().to_string();
        let required = entry.treq & treq::SECURE_REQUIRED != 0;
        assert_eq!((required, entry.tsas[0]), (is_secure, u8::from(is_secure) * sectype::TLS13));
    }
}

/// The TLS setting of a listener changes: new connections must follow it, and existing ones stay.
#[test]
fn the_tls_setting_of_a_listener_changes() {
    let exports = || vec![memory(1, 32 * MIB, 512)];
    let key = || key(Hash::Sha256, 7);
    let server = Server::start(secured(exports(), TlsUse::Off, key())).unwrap();
    let (at, subsystems) = (address(&server), [subsystem(exports())]);
    let plain = HostClient::connect(host_config(at)).unwrap();
    let set = |tls, at: BTreeMap<_, _>| {
        let listen = ["127.0.0.1:0".parse().unwrap()];
        let changes = server.reconfigure(
            &listen,
            &subsystems,
            &Default::default(),
            (tls, &at),
            &Default::default(),
        );
        changes.unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let any_address = "127.0.0.1:0".parse().unwrap();
    let changed = |what: &str| vec![format!("listener {at}: {what}")];
    let is_taken = |secured: bool| {
        let plain = HostConfig { connect_timeout: Duration::ZERO, ..host_config(at) };
        let config = if secured { host(at, key()) } else { plain };
        HostClient::connect(config).is_ok()
    };
    assert_eq!([is_taken(false), is_taken(true)], [true, false]);
    assert_eq!(set(TlsUse::Required, BTreeMap::new()), changed("new connections need TLS"));
    assert_eq!([is_taken(false), is_taken(true)], [false, true]);
    assert_eq!(set(TlsUse::Required, BTreeMap::new()), Vec::<String>::new());
    let secured = HostClient::connect(host(at, key())).unwrap();
    assert_eq!(
        set(TlsUse::Required, [(any_address, TlsUse::Off)].into()),
        changed("new connections have no TLS")
    );
    assert_eq!([is_taken(false), is_taken(true)], [true, false]);
    data_passes(&plain);
    data_passes(&secured);
    assert_eq!(server.addresses(), [at]);
    let open = serve(exports());
    let refused = open.reconfigure(
        &[any_address],
        &subsystems,
        &Default::default(),
        (TlsUse::Required, &BTreeMap::new()),
        &Default::default(),
    );
    assert!(refused.unwrap_err().to_string().contains("restart the target"));
}
