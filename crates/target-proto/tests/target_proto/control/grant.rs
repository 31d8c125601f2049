//! State is granted after authentication: limits of unauthenticated hosts, and the end of controllers that are not
//! admitted any more.

use super::script::{
    HOST, HOSTID, NQN, PRIVATE_NQN, RANDOM, STRANGER, Script, config, connect_sqe, local,
};
use roadtrain_proto::security::dhchap::{Concatenation, DhchapKeys};
use roadtrain_proto::security::{ConnectionSecurity, DhchapKey, Hash, SecuredAs};
use roadtrain_target_proto::{
    CloseReason, ConfigOperation, ConnectedQueue, HostAuthentication, SubsystemConfig,
    TargetConfig, TargetEvent, TargetListener, TlsUse,
};
use roadtrain_wire::fabrics::{AUTHREQ_ATR, CNTLID_DYNAMIC, ConnectData, DISCOVERY_NQN};
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const NOWHERE: &str = "nqn.2024-01.test:nowhere";

fn keys() -> BTreeMap<String, DhchapKeys> {
    let keys =
        DhchapKeys { host: DhchapKey::new(Some(Hash::Sha256), &[1; 32]).ok(), controller: None };
    BTreeMap::from([(HOST.to_owned(), keys)])
}

/// Returns a configuration in which the host has a key, and every host needs one.
fn required() -> TargetConfig {
    let authentication =
        HostAuthentication { keys: keys(), required: true, ..HostAuthentication::default() };
    TargetConfig { authentication, ..config() }
}

fn data(nqn: &str, host: &str, cntlid: u16) -> ConnectData {
    ConnectData::new(HOSTID, cntlid, nqn, host)
}

/// Connects without authentication: returns the claim.
fn claim(script: &mut Script, qid: u16, data: &ConnectData) -> ConnectedQueue {
    script.claim_over(ConnectionSecurity::Plain, qid, data).unwrap()
}

/// Grants a queue after authentication. Returns the wrong field of a refusal.
fn prove(script: &mut Script, queue: &ConnectedQueue) -> Result<(), &'static str> {
    script.target.grant(script.now, queue).map_err(|refused| refused.field)
}

#[test]
fn claims_take_nothing_of_a_hosts_share() {
    let mut config = required();
    (config.limits.host_controllers_max, config.limits.host_queues_max) = (1, 2);
    let mut script = Script::with(&config);
    let admin = data(NQN, HOST, CNTLID_DYNAMIC);
    for _ in 0..100 {
        claim(&mut script, 0, &admin);
    }
    assert_eq!(script.target.controllers().count(), 0);
    let own = claim(&mut script, 0, &admin);
    assert_eq!(prove(&mut script, &own), Ok(()));
    script.enable(own.cntlid);
    let lane = claim(&mut script, 1, &data(NQN, HOST, own.cntlid));
    assert_eq!(prove(&mut script, &lane), Ok(()));
    // The host's own share counts, after authentication.
    let second = claim(&mut script, 0, &admin);
    assert_eq!(prove(&mut script, &second), Err("connections of the host"));
}

/// Claimed controller identifiers give way to new claims, the oldest first.
#[test]
fn claims_keep_no_identifier_from_others() {
    let mut config = required();
    (config.limits.cntlid_min, config.limits.cntlid_max) = (1, 3);
    let mut script = Script::with(&config);
    let admin = data(NQN, HOST, CNTLID_DYNAMIC);
    let [first, second, third] = [(); 3].map(|()| claim(&mut script, 0, &admin));
    let fourth = claim(&mut script, 0, &admin);
    assert_eq!(fourth.cntlid, first.cntlid);
    assert_eq!(prove(&mut script, &first), Err("CNTLID"), "it has taken too long");
    assert_eq!(prove(&mut script, &fourth), Ok(()));
    script.target.withdraw(&second);
    assert_eq!(claim(&mut script, 0, &admin).cntlid, second.cntlid);
    assert_eq!(prove(&mut script, &second), Err("CNTLID"), "its connection is over");
    assert_eq!(prove(&mut script, &third), Ok(()));
    // Controllers do not give way.
    let last = claim(&mut script, 0, &admin);
    assert_eq!(prove(&mut script, &last), Ok(()));
    let full =
        script.claim_over(ConnectionSecurity::Plain, 0, &admin).map_err(|refused| refused.field);
    assert_eq!(full.err(), Some("controllers in use"));
}

#[test]
fn a_claimed_queue_is_still_its_owners() {
    let mut script = Script::with(&required());
    let admin = claim(&mut script, 0, &data(NQN, HOST, CNTLID_DYNAMIC));
    prove(&mut script, &admin).unwrap();
    script.enable(admin.cntlid);
    let lane = data(NQN, HOST, admin.cntlid);
    let other = claim(&mut script, 1, &lane);
    let own = claim(&mut script, 1, &lane);
    assert_eq!(prove(&mut script, &own), Ok(()));
    assert_eq!(prove(&mut script, &other), Err("QID"), "which is connected");
    // The end of the refused claim does not affect the owner's queue.
    script.target.withdraw(&other);
    assert_eq!(script.target.controllers().map(|one| one.io_queues).sum::<usize>(), 1);
}

#[test]
fn a_claimed_queue_keeps_no_controller_alive() {
    let mut script = Script::with(&required());
    let admin = claim(&mut script, 0, &data(NQN, HOST, CNTLID_DYNAMIC));
    prove(&mut script, &admin).unwrap();
    script.enable(admin.cntlid);
    script.wait(Duration::from_secs(4));
    script.target.handle_timeout(script.now); // it has seen that the controller was enabled
    for _ in 0..3 {
        script.wait(Duration::from_secs(2));
        claim(&mut script, 1, &data(NQN, HOST, admin.cntlid));
    }
    script.target.handle_timeout(script.now);
    let reason = CloseReason::KeepAliveExpired;
    let closed = TargetEvent::Close { cntlid: admin.cntlid, qid: 0, reason };
    assert!(script.events().contains(&closed));
}

/// Another controller has the identifier by the end of the authentication, or none.
#[test]
fn a_proof_is_for_the_controller_that_was_named() {
    let mut config = required();
    (config.limits.cntlid_min, config.limits.cntlid_max) = (1, 1);
    let mut script = Script::with(&config);
    let admin = data(NQN, HOST, CNTLID_DYNAMIC);
    let queue = claim(&mut script, 0, &admin);
    prove(&mut script, &queue).unwrap();
    script.enable(queue.cntlid);
    let lane = claim(&mut script, 1, &data(NQN, HOST, queue.cntlid));
    script.target.disconnect(queue.cntlid, 0);
    assert_eq!(prove(&mut script, &lane), Err("CNTLID"));
    let next = claim(&mut script, 0, &admin);
    prove(&mut script, &next).unwrap();
    script.enable(next.cntlid);
    assert_eq!((next.cntlid, prove(&mut script, &lane)), (queue.cntlid, Err("CNTLID")));
}

/// An authentication with a key that has changed meanwhile is void, and a host that lost its access is refused.
#[test]
fn a_proof_counts_as_the_target_is_by_then() {
    let other =
        DhchapKeys { host: DhchapKey::new(Some(Hash::Sha256), &[2; 32]).ok(), controller: None };
    let nqn = || NQN.to_owned();
    for (operation, field) in [
        (
            ConfigOperation::SetKeys { nqn: nqn(), host: HOST.to_owned(), keys: Some(other) },
            "HOSTNQN",
        ),
        (ConfigOperation::RemoveSubsystem { nqn: nqn() }, "SUBNQN"),
    ] {
        let mut script = Script::with(&required());
        let queue = claim(&mut script, 0, &data(NQN, HOST, CNTLID_DYNAMIC));
        script.target.apply(&[operation]).unwrap();
        assert_eq!(prove(&mut script, &queue), Err(field));
    }
}

/// Where authentication is required, every Connect completes alike before it: unauthenticated hosts do not learn which
/// subsystems, hosts and controllers exist. The log has the reason, as after the authentication.
#[test]
fn before_the_proof_every_connect_is_answered_alike() {
    let all = required();
    let at = |nqn: &str| TargetConfig {
        authentication: HostAuthentication {
            keys: keys(),
            required_at: BTreeSet::from([nqn.to_owned()]),
            ..HostAuthentication::default()
        },
        ..config()
    };
    for (what, config, qid, data, field) in [
        ("all is well", &all, 0, data(PRIVATE_NQN, HOST, CNTLID_DYNAMIC), None),
        ("no such subsystem", &all, 0, data(NOWHERE, HOST, CNTLID_DYNAMIC), Some("SUBNQN")),
        ("not its", &all, 0, data(PRIVATE_NQN, STRANGER, CNTLID_DYNAMIC), Some("HOSTNQN")),
        ("a static controller", &all, 0, data(NQN, HOST, 7), Some("CNTLID")),
        ("no such controller", &all, 1, data(NQN, HOST, 7), Some("CNTLID")),
        ("another host's", &all, 1, data(NQN, STRANGER, 1), Some("HOSTNQN")),
        ("another subsystem's", &all, 1, data(PRIVATE_NQN, HOST, 1), Some("SUBNQN")),
        (
            "not its",
            &at(PRIVATE_NQN),
            0,
            data(PRIVATE_NQN, STRANGER, CNTLID_DYNAMIC),
            Some("HOSTNQN"),
        ),
    ] {
        let mut script = Script::with(config);
        let own = claim(&mut script, 0, &self::data(NQN, HOST, CNTLID_DYNAMIC));
        prove(&mut script, &own).unwrap();
        script.enable(own.cntlid);
        let queue = claim(&mut script, qid, &data);
        assert_eq!(queue.result & !0xffff, AUTHREQ_ATR, "{what}");
        assert_eq!(queue.refusal().map(|refused| refused.field), field, "{what}");
        let requirement = queue.requirement.clone().unwrap();
        assert_eq!(requirement.concatenation, Concatenation::Refused, "{what}");
        assert_eq!(
            requirement.parties.host_key.is_some(),
            field.is_none(),
            "{what}: the key that fits"
        );
        assert_eq!(prove(&mut script, &queue).err(), field, "{what}");
        assert!(script.target.controllers().count() <= 2, "{what}");
    }
    // If no authentication is required, the host gets the reason at once.
    let mut open = Script::new();
    let refused =
        open.claim_over(ConnectionSecurity::Plain, 0, &data(NOWHERE, HOST, CNTLID_DYNAMIC));
    assert_eq!(refused.map(|queue| queue.cntlid).map_err(|one| one.field), Err("SUBNQN"));
}

/// A subsystem that requires TLS is not visible to a host without TLS.
#[test]
fn without_tls_a_subsystem_that_needs_it_is_not_there() {
    let authentication =
        HostAuthentication { tls_at: [NQN.to_owned()].into(), ..HostAuthentication::default() };
    let mut script = Script::with(&TargetConfig { authentication, ..config() });
    let mut answer = |nqn| {
        let data = data(nqn, HOST, CNTLID_DYNAMIC);
        let refused = script.claim_over(ConnectionSecurity::Plain, 0, &data).unwrap_err();
        (refused.status, refused.result)
    };
    assert_eq!(answer(NQN), answer(NOWHERE));
}

/// A granted controller, and a change of the configuration.
struct AdmissionChange {
    what: &'static str,
    nqn: &'static str,
    /// True if its host is authenticated.
    proves: bool,
    authentication: HostAuthentication,
    tls: TlsUse,
    /// True if its host has a key for TLS after the change.
    has_tls_key: bool,
    ends: bool,
}

/// A controller that would not be admitted any more ends; all others stay.
#[test]
fn a_change_ends_what_would_not_be_let_in_any_more() {
    let none = HostAuthentication::default;
    let stays = AdmissionChange {
        what: "nothing",
        nqn: NQN,
        proves: false,
        authentication: none(),
        tls: TlsUse::Off,
        has_tls_key: false,
        ends: false,
    };
    let all = required().authentication;
    let at = |nqn: &str| HostAuthentication { required_at: [nqn.to_owned()].into(), ..none() };
    let tls_at = |nqn: &str| HostAuthentication { tls_at: [nqn.to_owned()].into(), ..none() };
    let keyed = HostAuthentication { keys: keys(), ..none() };
    let change = |what, authentication: &HostAuthentication, ends| {
        let authentication = authentication.clone();
        AdmissionChange { what, authentication, ends, ..stays }
    };
    let allowed = TlsUse::Allowed;
    let changes = [
        change("a key of its own", &keyed, true),
        change("a proof of everybody", &all, true),
        change("a proof at its subsystem", &at(NQN), true),
        change("a proof elsewhere", &at(PRIVATE_NQN), false),
        AdmissionChange { proves: true, ..change("it has proved it", &all, false) },
        AdmissionChange { nqn: DISCOVERY_NQN, ..change("discovery by anybody", &keyed, false) },
        AdmissionChange { nqn: DISCOVERY_NQN, ..change("discovery", &all, true) },
        change("TLS at its subsystem", &tls_at(NQN), true),
        change("TLS elsewhere", &tls_at(PRIVATE_NQN), false),
        AdmissionChange {
            proves: true,
            ..change("TLS, though it has proved it", &tls_at(NQN), true)
        },
        AdmissionChange { tls: TlsUse::Required, ..change("TLS at its listener", &none(), true) },
        AdmissionChange { tls: allowed, ..change("TLS for those who like", &none(), false) },
        AdmissionChange { tls: allowed, has_tls_key: true, ..change("its TLS key", &none(), true) },
        AdmissionChange {
            has_tls_key: true,
            ..change("a TLS key for another listener", &none(), false)
        },
        stays,
    ];
    for change in &changes {
        let before = if change.proves { keyed.clone() } else { none() };
        let mut script =
            Script::with(&TargetConfig { authentication: before, ..super::script::config() });
        let queue = claim(&mut script, 0, &data(change.nqn, HOST, CNTLID_DYNAMIC));
        assert_eq!(prove(&mut script, &queue), Ok(()));
        let listener =
            TargetListener { portid: 1, address: local(), tls: change.tls, named_only: false };
        let operations = [
            ConfigOperation::SetAuthentication(change.authentication.clone()),
            ConfigOperation::SetTls(listener),
        ];
        script.target.apply(&operations).unwrap();
        if change.has_tls_key {
            script.target.set_tls_hosts([HOST.to_owned()].into());
        }
        let is_there = script.target.controllers().count() == 1;
        assert_eq!(!is_there, change.ends, "{}", change.what);
    }
}

/// One plain queue is enough to end its controller, though the admin queue has TLS.
#[test]
fn a_plain_queue_of_a_secured_controller_ends_it() {
    let by = SecuredAs { hostnqn: HOST.into(), subnqn: NQN.into(), by_generated: false };
    let mut script = Script::new();
    script.target.set_tls_hosts([HOST.to_owned()].into());
    let admin = data(NQN, HOST, CNTLID_DYNAMIC);
    let cntlid = script.connect_over(ConnectionSecurity::Secured(&by), 0, &admin).unwrap().cntlid;
    script.enable(cntlid);
    script.connect_over(ConnectionSecurity::Plain, 1, &data(NQN, HOST, cntlid)).unwrap();
    let tls_at =
        HostAuthentication { tls_at: [NQN.to_owned()].into(), ..HostAuthentication::default() };
    // A queue that has ended does not count.
    script.target.disconnect(cntlid, 1);
    script.connect_over(ConnectionSecurity::Secured(&by), 1, &data(NQN, HOST, cntlid)).unwrap();
    script.target.apply(&[ConfigOperation::SetAuthentication(tls_at.clone())]).unwrap();
    assert_eq!(script.target.controllers().count(), 1);
    script
        .target
        .apply(&[ConfigOperation::SetAuthentication(HostAuthentication::default())])
        .unwrap();
    script.connect_over(ConnectionSecurity::Plain, 2, &data(NQN, HOST, cntlid)).unwrap();
    script.target.apply(&[ConfigOperation::SetAuthentication(tls_at)]).unwrap();
    assert_eq!(script.target.controllers().count(), 0);
}

/// Wrong fields of a Connect reveal nothing, and are refused at once.
#[test]
fn a_connect_whose_fields_are_wrong_is_refused_at_once() {
    let mut script = Script::with(&required());
    let data = data(NQN, HOST, CNTLID_DYNAMIC);
    let sqe = connect_sqe(0, 0).emit();
    let ends = (local(), RANDOM);
    let bytes = roadtrain_wire::zerocopy::IntoBytes::as_bytes(&data);
    let refused = script.target.connect_over(
        ConnectionSecurity::Plain,
        script.now,
        &sqe,
        bytes,
        ends,
        |_| false,
    );
    let status = Status::CONNECT_INVALID_PARAMETERS.dnr();
    assert_eq!(refused.map(|queue| queue.cntlid).map_err(|one| one.status), Err(status));
}

/// Returns a target at which two hosts have keys.
fn two_hosts() -> Script {
    let mut keys = keys();
    keys.insert(STRANGER.to_owned(), keys[HOST].clone());
    let authentication = HostAuthentication { keys, ..HostAuthentication::default() };
    Script::with(&TargetConfig { authentication, ..config() })
}

/// Connects and disconnects a host. Returns the wrong field of a refusal.
fn visit(script: &mut Script, host: &str, hostid: [u8; 16], nqn: &str) -> Result<(), &'static str> {
    let data = ConnectData::new(hostid, CNTLID_DYNAMIC, nqn, host);
    let queue = claim(script, 0, &data);
    let proved = prove(script, &queue);
    script.target.disconnect(queue.cntlid, 0);
    proved
}

/// Reservations use HOSTID: that of an authenticated host is reserved for it, also while it is away.
#[test]
fn the_identifier_of_a_proved_host_is_its_own() {
    let mut script = two_hosts();
    let mut connect = |host: &str, hostid, nqn| visit(&mut script, host, hostid, nqn);
    let (own, other) = (HOSTID, [7; 16]);
    let open = "nqn.2024-01.test:open";
    assert_eq!(connect(open, own, NQN), Ok(()), "it has proved nothing: that binds nothing");
    assert_eq!(connect(HOST, own, NQN), Ok(()));
    assert_eq!(connect(STRANGER, own, NQN), Err("HOSTID"));
    assert_eq!(connect(open, own, NQN), Err("HOSTID"));
    assert_eq!(connect(STRANGER, own, DISCOVERY_NQN), Ok(()), "there are no reservations");
    assert_eq!(connect(STRANGER, other, NQN), Ok(()));
    assert_eq!(connect(HOST, other, NQN), Err("HOSTID"));
    assert_eq!(connect(HOST, own, NQN), Ok(()));
    // A host without a key loses its bound identifiers.
    let mut keyless = script.target.config().authentication.clone();
    keyless.keys.remove(HOST);
    script.target.apply(&[ConfigOperation::SetAuthentication(keyless)]).unwrap();
    let queue = claim(&mut script, 0, &data(NQN, STRANGER, CNTLID_DYNAMIC));
    assert_eq!(prove(&mut script, &queue), Ok(()));
}

/// Another subsystem has reservations of its own: an authenticated host there excludes no host here.
#[test]
fn an_identifier_is_bound_at_its_subsystem_only() {
    let mut script = two_hosts();
    let second = "nqn.2024-01.test:second";
    let add = ConfigOperation::AddSubsystem(SubsystemConfig::new(second));
    script.target.apply(std::slice::from_ref(&add)).unwrap();
    assert_eq!(visit(&mut script, STRANGER, HOSTID, second), Ok(()));
    assert_eq!(visit(&mut script, HOST, HOSTID, NQN), Ok(()), "which has never been there");
    assert_eq!(visit(&mut script, HOST, HOSTID, second), Err("HOSTID"));
    // Bound identifiers are removed with the subsystem.
    let remove = ConfigOperation::RemoveSubsystem { nqn: second.to_owned() };
    script.target.apply(&[remove, add]).unwrap();
    assert_eq!(visit(&mut script, HOST, HOSTID, second), Ok(()));
    assert_eq!(visit(&mut script, STRANGER, HOSTID, NQN), Err("HOSTID"));
}

/// Bindings do not outlive the target: the first authentication after a start binds again, whichever host comes first.
#[test]
fn a_restart_locks_no_host_out() {
    for order in [[HOST, STRANGER], [STRANGER, HOST]] {
        let mut script = two_hosts();
        let own = |host| if host == HOST { HOSTID } else { [7; 16] };
        for _ in 0..2 {
            for host in order {
                assert_eq!(visit(&mut script, host, own(host), NQN), Ok(()));
            }
        }
        assert_eq!(visit(&mut script, STRANGER, HOSTID, NQN), Err("HOSTID"));
    }
}
