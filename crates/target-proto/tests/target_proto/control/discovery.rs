//! The discovery log and its events.

use super::script::{
    HOST, HOSTID, NQN, PRIVATE_NQN, RANDOM, STRANGER, Script, config, connect_sqe,
    remove_subsystem, resize,
};
use roadtrain_proto::security::{ConnectionSecurity, SecuredAs};
use roadtrain_target_proto::{
    ConfigError, ConfigObject, ConfigOperation, FrameListener, HostAuthentication, SubsystemConfig,
    TargetConfig, TargetEvent, TargetListener, TlsUse,
};
use roadtrain_wire::discovery::{
    DiscoveryEntry, DiscoveryLogHeader, adrfam, eflags, sectype, subtype, treq,
};
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, ConnectData, DISCOVERY_NQN};
use roadtrain_wire::feature::{SetFeatures, fid};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

/// Returns the generation and the entries of the log as a controller shows it.
fn log(script: &mut Script, cntlid: u16) -> (u64, Vec<DiscoveryEntry>) {
    let data = script.succeed(cntlid, GetLogPage::new(lid::DISCOVERY, 16 * 1024).emit(0)).data;
    let (header, entries) = DiscoveryLogHeader::ref_from_prefix(&data).unwrap();
    let count = header.numrec.get() as usize;
    let entries = <[DiscoveryEntry]>::ref_from_bytes(entries).unwrap()[..count].to_vec();
    assert_eq!(header.recfmt.get(), 0);
    (header.genctr.get(), entries)
}

fn names(entries: &[DiscoveryEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.subnqn().unwrap()).collect()
}

#[test]
fn the_log_shows_itself_and_what_the_host_may_use() {
    let mut script = Script::new();
    let cntlid = script.controller(DISCOVERY_NQN);
    let (_, entries) = log(&mut script, cntlid);
    assert_eq!(names(&entries), [DISCOVERY_NQN, NQN, PRIVATE_NQN]);
    assert_eq!(entries[0].subtype, subtype::CURRENT_DISCOVERY);
    assert_eq!(entries[0].eflags.get(), eflags::PERSISTENT);
    for entry in &entries[1..] {
        assert_eq!((entry.subtype, entry.eflags.get()), (subtype::NVM, 0));
    }
    for entry in &entries {
        assert_eq!((entry.trtype, entry.adrfam, entry.treq), (3, adrfam::IPV4, 4));
        assert_eq!((entry.traddr(), entry.trsvcid()), ("192.0.2.7", "4420"));
        assert_eq!((entry.cntlid.get(), entry.portid.get()), (CNTLID_DYNAMIC, 1));
        assert_eq!((entry.asqsz.get(), entry.tsas[0]), (1024, 0));
    }
    let stranger = script.connect_as(STRANGER, DISCOVERY_NQN).unwrap().cntlid;
    script.enable(stranger);
    assert_eq!(names(&log(&mut script, stranger).1), [DISCOVERY_NQN, NQN]);
}

#[test]
fn every_listener_is_shown_as_the_host_can_reach_it() {
    let mut config = config();
    config.subsystems.truncate(1);
    config.listeners = ["0.0.0.0:4420", "198.51.100.1:4421", "[2001:db8::1]:4422"]
        .iter()
        .zip(1..)
        .map(|(address, portid)| TargetListener {
            portid,
            address: address.parse().unwrap(),
            tls: TlsUse::Off,
            named_only: false,
        })
        .collect();
    let mut script = Script::with(&config);
    let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, DISCOVERY_NQN, HOST);
    let local = "[::ffff:192.0.2.9]:4420".parse().unwrap(); // IPv4 through a socket of both families
    let sqe = connect_sqe(0, 31).emit();
    let connected = script.target.connect(script.now, &sqe, data.as_bytes(), local, RANDOM);
    let cntlid = connected.unwrap().cntlid;
    script.enable(cntlid);
    let (_, entries) = log(&mut script, cntlid);
    let shown: Vec<_> = entries
        .iter()
        .filter(|entry| entry.subtype == subtype::NVM)
        .map(|entry| (entry.portid.get(), entry.adrfam, entry.traddr(), entry.trsvcid()))
        .collect();
    let expected = [
        (1, adrfam::IPV4, "192.0.2.9", "4420"),
        (2, adrfam::IPV4, "198.51.100.1", "4421"),
        (3, adrfam::IPV6, "2001:db8::1", "4422"),
    ];
    assert_eq!(shown, expected);
    assert_eq!(entries.len(), 6, "the discovery subsystem is at every address too");
}

/// An unauthenticated host on a plain connection does not learn of subsystems with TLS only.
#[test]
fn what_needs_tls_is_not_listed_in_the_clear() {
    let authentication =
        HostAuthentication { tls_at: [NQN.to_owned()].into(), ..HostAuthentication::default() };
    let mut script = Script::with(&TargetConfig { authentication, ..config() });
    script.target.set_tls_hosts([HOST.to_owned()].into());
    let by = SecuredAs { hostnqn: HOST.into(), subnqn: DISCOVERY_NQN.into(), by_generated: false };
    for (channel, is_listed) in
        [(ConnectionSecurity::Plain, false), (ConnectionSecurity::Secured(&by), true)]
    {
        let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, DISCOVERY_NQN, HOST);
        let cntlid = script.connect_over(channel, 0, &data).unwrap().cntlid;
        script.enable(cntlid);
        let (_, entries) = log(&mut script, cntlid);
        let lists = |nqn| entries.iter().any(|entry| entry.subnqn() == Some(nqn));
        assert_eq!((lists(NQN), lists(PRIVATE_NQN)), (is_listed, true), "{channel:?}");
    }
}

#[test]
fn any_address_of_the_other_family_is_not_shown_as_one_of_this() {
    let mut config = config();
    config.subsystems.truncate(1);
    config.listeners = ["0.0.0.0:4420", "[::]:4421"]
        .iter()
        .zip(1..)
        .map(|(address, portid)| TargetListener {
            portid,
            address: address.parse().unwrap(),
            tls: TlsUse::Off,
            named_only: false,
        })
        .collect();
    for (local, port) in [("192.0.2.9:4420", "4420"), ("[2001:db8::1]:4421", "4421")] {
        let mut script = Script::with(&config);
        let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, DISCOVERY_NQN, HOST);
        let (sqe, local) = (connect_sqe(0, 31).emit(), local.parse().unwrap());
        let connected = script.target.connect(script.now, &sqe, data.as_bytes(), local, RANDOM);
        let cntlid = connected.unwrap().cntlid;
        script.enable(cntlid);
        let (_, entries) = log(&mut script, cntlid);
        assert_eq!(entries.len(), 2);
        for entry in entries {
            assert_eq!(entry.traddr(), local.ip().to_string());
            assert_eq!(entry.trsvcid(), port);
        }
    }
}

/// A host on Ethernet finds the ports there, and TCP addresses that it could use as well.
#[test]
fn ports_on_ethernet_are_shown_to_hosts_on_ethernet() {
    let mut config = config();
    config.subsystems.truncate(1);
    let tcp = |address: &str, portid| TargetListener {
        portid,
        address: address.parse().unwrap(),
        tls: TlsUse::Off,
        named_only: false,
    };
    config.listeners = vec![tcp("192.0.2.7:4420", 1), tcp("0.0.0.0:4421", 2)];
    let mut script = Script::with(&config);
    let [one, two] = [1, 2].map(|last| [2, 0, 0, 0, 0xab, last]);
    let port = |address, vlan| FrameListener { address, ethertype: 0x88b5, vlan };
    script.target.set_frame_listeners(vec![port(one, None), port(two, Some(7))]);
    let mut connect = |local: &str| {
        let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, DISCOVERY_NQN, HOST);
        let (sqe, local) = (connect_sqe(0, 31).emit(), local.parse().unwrap());
        let connected = script.target.connect(script.now, &sqe, data.as_bytes(), local, RANDOM);
        let cntlid = connected.unwrap().cntlid;
        script.enable(cntlid);
        let shown = |entry: &DiscoveryEntry| {
            let place = format!("{} {} {}", entry.trtype, entry.traddr(), entry.trsvcid());
            (place, entry.subnqn().unwrap().to_owned())
        };
        (log(&mut script, cntlid).1.iter().map(shown).collect::<Vec<_>>(), cntlid)
    };
    let places = ["3 192.0.2.7 4420", "240 02:00:00:00:ab:01 88b5", "240 02:00:00:00:ab:02 88b5.7"];
    let both = |place: &str| [DISCOVERY_NQN, NQN].map(|nqn| (place.to_owned(), nqn.to_owned()));
    let (shown, cntlid) = connect("0.0.0.0:0");
    assert_eq!(shown, places.map(both).concat());
    let (over_tcp, _) = connect("192.0.2.7:4420");
    assert!(over_tcp.iter().all(|(place, _)| place.starts_with("3 ")), "{over_tcp:?}");
    // An interface is removed.
    let before = log(&mut script, cntlid).0;
    script.target.set_frame_listeners(vec![port(two, Some(7))]);
    let (after, entries) = log(&mut script, cntlid);
    assert!(after > before);
    assert_eq!(entries.len(), 4);
}

#[test]
fn the_log_is_read_in_pieces() {
    let mut script = Script::new();
    let cntlid = script.controller(DISCOVERY_NQN);
    let whole = script.succeed(cntlid, GetLogPage::new(lid::DISCOVERY, 4096).emit(0)).data;
    for (offset, bytes) in [(0, 16), (0, 1024), (1024, 1024), (2048, 2048)] {
        let get = GetLogPage { offset, ..GetLogPage::new(lid::DISCOVERY, bytes) };
        let piece = script.succeed(cntlid, get.emit(0)).data;
        assert_eq!(piece, whole[offset as usize..][..bytes as usize]);
    }
    let beyond = GetLogPage { offset: 4100, ..GetLogPage::new(lid::DISCOVERY, 4) };
    script.fail(cntlid, beyond.emit(0), Status::INVALID_FIELD);
}

fn listening(script: &mut Script) -> (u16, u16) {
    let cntlid = script.controller(DISCOVERY_NQN);
    script.succeed(cntlid, SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, 1 << 31));
    script.submit(cntlid, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0));
    (cntlid, script.cid())
}

fn log_changed(cntlid: u16, cid: u16) -> TargetEvent {
    TargetEvent::EventCompletion { cntlid, cid, status: Status::SUCCESS, result: 0x0070_f002 }
}

#[test]
fn changes_are_reported_and_counted() {
    let mut script = Script::new();
    let (cntlid, cid) = listening(&mut script);
    let (before, _) = log(&mut script, cntlid);
    script.target.apply(&[resize(1, 5)]).unwrap();
    assert!(!script.events().contains(&log_changed(cntlid, cid)), "the log names no namespaces");
    script
        .target
        .apply(&[ConfigOperation::AddSubsystem(SubsystemConfig::new("nqn.2024-01.test:new"))])
        .unwrap();
    assert_eq!(script.events(), [log_changed(cntlid, cid)]);
    let (after, entries) = log(&mut script, cntlid);
    assert!(after > before);
    assert!(names(&entries).contains(&"nqn.2024-01.test:new"));
    script.target.apply(&[remove_subsystem("nqn.2024-01.test:new")]).unwrap();
    script.submit(cntlid, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0));
    let cid = script.cid();
    assert_eq!(script.events(), [log_changed(cntlid, cid)]);
    assert!(log(&mut script, cntlid).0 > after);
}

#[test]
fn a_target_that_departs_takes_its_entries_back() {
    let mut script = Script::new();
    let (cntlid, cid) = listening(&mut script);
    let (before, entries) = log(&mut script, cntlid);
    assert!(!entries.is_empty() && script.target.is_departure_known());
    script.target.depart();
    assert!(script.events().contains(&log_changed(cntlid, cid)));
    assert!(!script.target.is_departure_known());
    let (after, entries) = log(&mut script, cntlid);
    assert!(after > before && entries.is_empty(), "{entries:?}");
    assert!(script.target.is_departure_known());
    script.target.depart();
    assert_eq!(log(&mut script, cntlid).0, after, "it departs once");
}

/// Hosts that follow the log would drop the paths that another process is about to serve.
#[test]
fn a_target_that_is_taken_over_leaves_its_entries() {
    let mut script = Script::new();
    let (cntlid, _) = listening(&mut script);
    let (before, entries) = log(&mut script, cntlid);
    script.target.hand_over();
    assert!(
        script.events().iter().all(|event| matches!(event, TargetEvent::NamespacesChanged { .. }))
    );
    let (after, still) = log(&mut script, cntlid);
    assert_eq!((after, still.len()), (before, entries.len()));
    assert!(script.target.is_departure_known());
}

#[test]
fn the_log_refers_to_other_discovery_controllers() {
    let other = "[2001:db8::9]:8009".parse().unwrap();
    let mut script = Script::with(&TargetConfig { referrals: vec![other], ..config() });
    let cntlid = script.controller(DISCOVERY_NQN);
    script.target.depart(); // others may still be there
    let (_, entries) = log(&mut script, cntlid);
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((entry.subtype, entry.subnqn()), (subtype::REFERRAL, Some(DISCOVERY_NQN)));
    assert_eq!((entry.trtype, entry.adrfam, entry.treq), (3, adrfam::IPV6, 0));
    assert_eq!((entry.traddr(), entry.trsvcid()), ("2001:db8::9", "8009"));
    assert_eq!(entry.cntlid.get(), CNTLID_DYNAMIC);
    for bad in ["0.0.0.0:8009", "192.0.2.7:0", "224.0.0.1:8009"] {
        let bad: std::net::SocketAddr = bad.parse().unwrap();
        let error = TargetConfig { referrals: vec![bad], ..config() }.check().unwrap_err();
        assert_eq!(error.place(), &ConfigObject::Referral(bad));
    }
    let twice = TargetConfig { referrals: vec![other, other], ..config() };
    assert_eq!(twice.check(), Err(ConfigError::Exists(ConfigObject::Referral(other))));
}

#[test]
fn a_change_between_the_pieces_is_reported_again() {
    let mut script = Script::new();
    let (cntlid, cid) = listening(&mut script);
    script
        .target
        .apply(&[ConfigOperation::AddSubsystem(SubsystemConfig::new("nqn.2024-01.test:x"))])
        .unwrap();
    assert_eq!(script.events(), [log_changed(cntlid, cid)]);
    script.submit(cntlid, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0));
    let cid = script.cid();
    let head = GetLogPage { rae: true, ..GetLogPage::new(lid::DISCOVERY, 1024) };
    script.succeed(cntlid, head.emit(0));
    script
        .target
        .apply(&[ConfigOperation::AddSubsystem(SubsystemConfig::new("nqn.2024-01.test:y"))])
        .unwrap();
    assert_eq!(script.events(), [], "masked");
    let entries = GetLogPage { offset: 1024, ..GetLogPage::new(lid::DISCOVERY, 4096) };
    script.succeed(cntlid, entries.emit(0));
    assert_eq!(script.events(), [log_changed(cntlid, cid)]);
}

#[test]
fn discovery_controllers_do_not_serve_io_or_abort() {
    let mut script = Script::new();
    let cntlid = script.controller(DISCOVERY_NQN);
    script.fail(cntlid, Sqe::new(opcode::ABORT, 0), Status::INVALID_OPCODE);
    script.succeed(cntlid, Sqe::new(opcode::KEEP_ALIVE, 0));
    let smart = GetLogPage::new(lid::SMART, 512);
    script.fail(cntlid, smart.emit(0), Status::INVALID_LOG_PAGE);
}

#[test]
fn listeners_come_and_go() {
    let mut script = Script::new();
    let (cntlid, cid) = listening(&mut script);
    let (before, _) = log(&mut script, cntlid);
    let old = script.target.config().listeners[0];
    let new = TargetListener {
        portid: 2,
        address: "198.51.100.1:4421".parse().unwrap(),
        tls: TlsUse::Required,
        named_only: false,
    };
    let error =
        script.target.apply(&[ConfigOperation::Listen(TargetListener { portid: 2, ..old })]);
    assert_eq!(error, Err(ConfigError::Exists(ConfigObject::Listener(old.address))));
    script.target.apply(&[ConfigOperation::Unlisten(old), ConfigOperation::Listen(new)]).unwrap();
    assert_eq!(script.events(), [log_changed(cntlid, cid)]);
    let (after, entries) = log(&mut script, cntlid);
    assert!(after > before);
    assert!(entries.iter().all(|entry| entry.traddr() == "198.51.100.1"), "{entries:?}");
    for entry in &entries {
        let secured = (entry.treq & treq::SECURE_MASK, entry.tsas[0]);
        assert_eq!(secured, (treq::SECURE_REQUIRED, sectype::TLS13));
    }
    script.target.apply(&[ConfigOperation::Unlisten(new)]).unwrap();
    assert!(log(&mut script, cntlid).1.is_empty(), "it listens nowhere");
}
