//! Authentication required of hosts, at each queue, and the end of hosts whose keys are removed.

use super::concatenation::{authenticated, authenticated_at, keys, receive, send};
use super::script::{HOST, HOSTID, NQN, PRIVATE_NQN, STRANGER, Script, config};
use roadtrain_proto::security::dhchap::{AuthHost, AuthOffer, Concatenation, DhTask, DhchapKeys};
use roadtrain_proto::security::{ConnectionSecurity, DhchapKey, Hash, SecuredAs};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::session::{
    ConnectionState, ListenerRequirements, TargetConnection, UnauthenticatedConnections,
};
use roadtrain_target_proto::{
    CloseReason, ConfigOperation, ConnectedQueue, HostAuthentication, Reaction, TargetConfig,
    TargetEvent,
};
use roadtrain_wire::auth::RECEIVE_BYTES;
use roadtrain_wire::fabrics::{self, CNTLID_DYNAMIC, ConnectData, DISCOVERY_NQN, fctype};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time of a host for an authentication.
const TIME: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Instant {
    Instant(0) + Duration::from_secs(seconds)
}

fn key(byte: u8) -> DhchapKey {
    DhchapKey::new(Some(Hash::Sha256), &[byte; 32]).unwrap()
}

/// Returns a configuration in which the host has this key; others have none.
fn authentication(byte: u8) -> HostAuthentication {
    let keys = DhchapKeys { host: Some(key(byte)), controller: None };
    HostAuthentication {
        keys: BTreeMap::from([(HOST.to_owned(), keys)]),
        ..HostAuthentication::default()
    }
}

fn script(authentication: HostAuthentication) -> Script {
    Script::with(&TargetConfig { authentication, ..config() })
}

fn admin(
    script: &mut Script,
    channel: ConnectionSecurity<'_>,
    nqn: &str,
    host: &str,
) -> ConnectedQueue {
    let hostid = if host == STRANGER { [9; 16] } else { HOSTID };
    let data = ConnectData::new(hostid, CNTLID_DYNAMIC, nqn, host);
    script.connect_over(channel, 0, &data).unwrap()
}

/// Returns the names for which a host has a TLS key.
fn secured(host: &str, subsystem: &str) -> SecuredAs {
    SecuredAs { hostnqn: host.to_owned(), subnqn: subsystem.to_owned(), by_generated: false }
}

#[test]
fn hosts_that_have_to_authenticate() {
    let plain = || authentication(1);
    let all = HostAuthentication { required: true, ..plain() };
    let one = HostAuthentication { required_at: [NQN.to_owned()].into(), ..plain() };
    for (authentication, nqn, host, is_required) in [
        (plain(), NQN, HOST, true),
        (plain(), NQN, STRANGER, false),
        (plain(), DISCOVERY_NQN, HOST, false),
        (all.clone(), NQN, STRANGER, true),
        (all.clone(), DISCOVERY_NQN, STRANGER, true),
        (all, DISCOVERY_NQN, HOST, true),
        (one.clone(), NQN, STRANGER, true),
        (one.clone(), PRIVATE_NQN, HOST, true),
        (one, DISCOVERY_NQN, STRANGER, false),
        (HostAuthentication::default(), NQN, HOST, false),
    ] {
        let connected = admin(&mut script(authentication), ConnectionSecurity::Plain, nqn, host);
        assert_eq!(connected.requirement.is_some(), is_required, "{nqn} {host}");
    }
    // If a PSK has to be generated, no host is admitted without.
    let tls_at = [NQN.to_owned()].into();
    let mut script = script(HostAuthentication { tls_at, ..authentication(1) });
    let requirement =
        admin(&mut script, ConnectionSecurity::Securable, NQN, STRANGER).requirement.unwrap();
    assert_eq!(requirement.concatenation, Concatenation::Required);
    assert_eq!(requirement.parties.host_key, None);
}

/// The requirement holds for each queue; a configured TLS key does not replace the authentication.
#[test]
fn every_queue_has_to_authenticate_whatever_secures_it() {
    let by_tls = secured(HOST, NQN);
    for channel in [
        ConnectionSecurity::Plain,
        ConnectionSecurity::Securable,
        ConnectionSecurity::Secured(&by_tls),
    ] {
        let former = BTreeMap::from([(HOST.to_owned(), key(9))]);
        let mut script = script(HostAuthentication { former, ..authentication(1) });
        script.target.set_tls_hosts([HOST.to_owned()].into());
        let queue = admin(&mut script, channel, NQN, HOST);
        script.enable(queue.cntlid);
        let data = ConnectData::new(HOSTID, queue.cntlid, NQN, HOST);
        let lane = script.connect_over(channel, 1, &data).unwrap();
        for requirement in [queue.requirement.unwrap(), lane.requirement.clone().unwrap()] {
            assert_eq!(requirement.parties.host_key, Some(key(1).transform(HOST)));
            assert_eq!(requirement.former, Some(key(9).transform(HOST)));
        }
        // No I/O queue generates a PSK.
        assert_eq!(lane.requirement.unwrap().concatenation, Concatenation::Refused);
    }
}

/// Where TLS is allowed, a host with a TLS key has to use it: its name alone proves nothing. A host with another key
/// may authenticate with that, and a discovery may read which listeners have TLS.
#[test]
fn a_host_with_a_tls_key_has_to_use_it_or_another_one() {
    let refused = Some(Status::CONNECT_INVALID_HOST.dnr());
    for (authentication, channel, nqn, expected) in [
        (HostAuthentication::default(), ConnectionSecurity::Securable, NQN, refused),
        (HostAuthentication::default(), ConnectionSecurity::Securable, DISCOVERY_NQN, None),
        (HostAuthentication::default(), ConnectionSecurity::Plain, NQN, None),
        (authentication(1), ConnectionSecurity::Securable, NQN, None),
    ] {
        let mut script = script(authentication);
        script.target.set_tls_hosts([HOST.to_owned()].into());
        let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, nqn, HOST);
        assert_eq!(script.connect_over(channel, 0, &data).err(), expected, "{channel:?} {nqn}");
    }
}

/// The handshake used a key that was removed meanwhile.
#[test]
fn a_connection_whose_key_was_removed_is_refused() {
    let mut script = script(HostAuthentication::default());
    let by_tls = secured(HOST, NQN);
    let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, HOST);
    let refused = Some(Status::CONNECT_INVALID_HOST.dnr());
    assert_eq!(script.connect_over(ConnectionSecurity::Secured(&by_tls), 0, &data).err(), refused);
    script.target.set_tls_hosts([HOST.to_owned()].into());
    assert_eq!(script.connect_over(ConnectionSecurity::Secured(&by_tls), 0, &data).err(), None);
}

/// Returns the controllers that ended because a key was removed.
fn ended(script: &mut Script) -> Vec<u16> {
    let close = |event| match event {
        TargetEvent::Close {
            cntlid,
            reason: CloseReason::KeyRemoved | CloseReason::KeepAliveExpired,
            ..
        } => Some(cntlid),
        _ => None,
    };
    script.events().into_iter().filter_map(close).collect()
}

/// Everything ends for a host without a key. Other hosts stay, and so does a host with another key.
#[test]
fn hosts_whose_keys_go_end() {
    let mut script = script(authentication(1));
    script.target.set_tls_hosts([HOST.to_owned()].into());
    let own = admin(&mut script, ConnectionSecurity::Plain, NQN, HOST).cntlid;
    admin(&mut script, ConnectionSecurity::Plain, NQN, STRANGER);
    let change = |to| [ConfigOperation::SetAuthentication(to)];
    script.target.apply(&change(authentication(2))).unwrap();
    assert_eq!(ended(&mut script), [0; 0]);
    script.target.apply(&change(HostAuthentication::default())).unwrap();
    assert_eq!(ended(&mut script), [own]);
    let own = admin(&mut script, ConnectionSecurity::Plain, NQN, HOST).cntlid;
    script.target.set_tls_hosts([].into());
    assert_eq!(ended(&mut script), [own]);
}

/// A PSK generated with a key is valid while the key is the same.
#[test]
fn another_key_is_not_the_same() {
    let one = authentication(1);
    assert!(one.has_same_keys(&authentication(1), HOST));
    assert!(one.has_same_keys(&authentication(2), STRANGER));
    assert!(!one.has_same_keys(&authentication(2), HOST));
    assert!(!one.has_same_keys(&HostAuthentication::default(), HOST));
    let former = BTreeMap::from([(HOST.to_owned(), key(9))]);
    assert!(!one.has_same_keys(&HostAuthentication { former, ..authentication(1) }, HOST));
}

/// Keys for one subsystem take precedence over those for all, and are used nowhere else.
#[test]
fn a_host_has_keys_of_its_own_at_a_subsystem() {
    let keys = |byte| Some(DhchapKeys { host: Some(key(byte)), controller: None });
    let set = |host: &str, keys| {
        let (nqn, host) = (NQN.to_owned(), host.to_owned());
        [ConfigOperation::SetKeys { nqn, host, keys }]
    };
    let mut script = script(authentication(1));
    script.target.apply(&set(HOST, keys(2))).unwrap();
    script.target.apply(&set(STRANGER, keys(3))).unwrap();
    let mut required_key = |nqn, host| {
        let requirement = admin(&mut script, ConnectionSecurity::Plain, nqn, host).requirement;
        requirement.map(|requirement| requirement.parties.host_key.unwrap())
    };
    assert_eq!(required_key(NQN, HOST), Some(key(2).transform(HOST)));
    assert_eq!(required_key(PRIVATE_NQN, HOST), Some(key(1).transform(HOST)));
    assert_eq!(required_key(NQN, STRANGER), Some(key(3).transform(STRANGER)));
    assert_eq!(ended(&mut script), [0; 0]);
    // One host still has the key for all, the other has none.
    let own = admin(&mut script, ConnectionSecurity::Plain, NQN, STRANGER).cntlid;
    script.target.apply(&set(HOST, None)).unwrap();
    assert_eq!(ended(&mut script), [0; 0]);
    script.target.apply(&set(STRANGER, None)).unwrap();
    assert!(ended(&mut script).contains(&own));
    assert!(!script.target.config().authentication.has_same_keys(&authentication(2), HOST));
}

/// Returns a session whose host has to authenticate.
fn authenticating() -> TargetConnection {
    let connected = admin(&mut script(authentication(1)), ConnectionSecurity::Plain, NQN, HOST);
    let mut session = TargetConnection::new(ListenerRequirements::default());
    session.initialized();
    session.connected(connected);
    assert_eq!(session.state(), ConnectionState::Authenticating);
    session
}

fn command(session: &mut TargetConnection, sqe: &Sqe, data: &[u8]) -> (Reaction, usize) {
    let mut page = Vec::new();
    let authenticator = session.authenticator().unwrap();
    let reaction = authenticator.command(sqe, data, &mut page, &mut |place| place.fill(7));
    (reaction, page.len())
}

/// Commands whose fields do not fit their data are refused, and change nothing.
#[test]
fn fields_of_authentication_commands_are_checked() {
    let receive = |length: u32, sgl: u32| {
        let mut sqe =
            fabrics::AuthenticationFields::of_nvme(length).emit(fctype::AUTHENTICATION_RECEIVE);
        sqe.sgl.length = sgl.into();
        sqe
    };
    let other_protocol = |mut sqe: Sqe| {
        sqe.cdw10 = (sqe.cdw10.get() ^ 1 << 24).into(); // SECP
        sqe
    };
    let send = fabrics::AuthenticationFields::of_nvme(100).emit(fctype::AUTHENTICATION_SEND);
    let mut session = authenticating();
    for (what, sqe, data) in [
        ("another protocol", other_protocol(send), &[0; 100][..]),
        ("fewer bytes than TL", send, &[0; 99]),
        ("more bytes than TL", send, &[0; 101]),
        ("AL and SGL differ", receive(512, 511), &[]),
        ("AL is too large", receive(RECEIVE_BYTES + 1, RECEIVE_BYTES + 1), &[]),
    ] {
        let (reaction, page) = command(&mut session, &sqe, data);
        let is_refused =
            matches!(reaction, Reaction::Answer(status) if status == Status::INVALID_FIELD.dnr());
        assert!(is_refused && page == 0, "{what}: {reaction:?}");
        assert!(!session.authenticator().unwrap().has_refused(), "{what}");
    }
    // A message is sent whole or not at all.
    let (reaction, page) = command(&mut session, &receive(7, 7), &[]);
    assert!(matches!(reaction, Reaction::Answer(status) if !status.is_success()) && page == 0);
}

/// A connected host that authenticates again has the time of the first message; a failure ends the connection at once.
#[test]
fn a_repeated_authentication_has_a_deadline() {
    let (mut session, _) = authenticated(NQN, false);
    assert_eq!((session.state(), session.deadline()), (ConnectionState::Live, None));
    let mut host = AuthHost::new(keys().parties(HOST, NQN), AuthOffer::default(), 8);
    send(&mut session, &host.negotiate());
    assert!(!session.authenticates(Instant(0), TIME));
    receive(&mut session);
    assert!(!session.authenticates(Instant(100), TIME));
    assert_eq!(
        (session.state(), session.deadline()),
        (ConnectionState::Live, Some(Instant(0) + TIME))
    );
    let success2 = [1, 4, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    send(&mut session, &success2); // Reply was expected
    assert!(session.authenticates(Instant(200), TIME), "it ends");
    assert_eq!(session.state(), ConnectionState::Refused);
}

#[test]
fn a_repeated_authentication_needs_the_current_key() {
    let (mut session, _) = authenticated(NQN, false);
    let requirement =
        admin(&mut script(authentication(9)), ConnectionSecurity::Plain, NQN, HOST).requirement;
    session.authenticator().unwrap().renew(*requirement.unwrap());
    let mut host = host_of(8);
    send(&mut session, &host.negotiate());
    let message = reply(&mut session, &mut host);
    send(&mut session, &message);
    assert!(host.success1(&receive(&mut session)).is_err(), "it has the key of before");
    assert!(session.authenticates(Instant(200), TIME), "it ends");
}

/// A message whose computation is pending, with its command.
struct PendingMessage(Sqe, Vec<u8>, DhTask);

/// Sends a message; the host waits for its completion.
fn begin(session: &mut TargetConnection, now: Instant, message: Vec<u8>) -> PendingMessage {
    let fields = fabrics::AuthenticationFields::of_nvme(message.len() as u32);
    let sqe = fields.emit(fctype::AUTHENTICATION_SEND);
    let (reaction, _) = command(session, &sqe, &message);
    let Reaction::Compute(work) = reaction else { panic!("{reaction:?}") };
    session.authenticates(now, TIME);
    PendingMessage(sqe, message, work)
}

impl PendingMessage {
    /// Completes the message.
    fn end(self, session: &mut TargetConnection, now: Instant) {
        self.2.compute();
        let (reaction, _) = command(session, &self.0, &self.1);
        assert!(matches!(reaction, Reaction::Answer(Status::SUCCESS)), "{reaction:?}");
        session.authenticates(now, TIME);
    }
}

/// Returns the host's reply to a challenge.
fn reply(session: &mut TargetConnection, host: &mut AuthHost) -> Vec<u8> {
    let challenged = host.challenge(&receive(session), &mut |place| place.fill(0x5a)).unwrap();
    challenged.work().unwrap().compute();
    host.reply(&challenged, &mut |place| place.fill(0xa5)).unwrap()
}

fn host_of(t_id: u16) -> AuthHost {
    AuthHost::new(keys().parties(HOST, NQN), AuthOffer::default(), t_id)
}

/// The host has its time for its own part; the computations of one authentication do not count.
#[test]
fn an_unauthenticated_host_is_credited_the_time_of_computations() {
    // The host has generated a PSK, so its connection stays unauthenticated.
    let (mut session, _) = authenticated(NQN, true);
    let mut newcomers = UnauthenticatedConnections::new(TIME);
    newcomers.enter(at(0), 7);
    let mut host = host_of(8).concatenating();
    let waiting = begin(&mut session, at(3), host.negotiate());
    assert_eq!(newcomers.overdue(at(60), |_| session.take_spared(at(60))), None);
    waiting.end(&mut session, at(63));
    let message = reply(&mut session, &mut host);
    begin(&mut session, at(65), message).end(&mut session, at(165));
    assert_eq!(newcomers.overdue(at(169), |_| session.take_spared(at(169))), None);
    assert_eq!(newcomers.deadline(), Some(at(170)), "it has taken 5 s");
    host.success1(&receive(&mut session)).unwrap();
    session.authenticates(at(166), TIME);
    let waiting = begin(&mut session, at(167), host_of(9).concatenating().negotiate());
    assert_eq!(newcomers.overdue(at(170), |_| session.take_spared(at(170))), Some(7));
    assert!(!waiting.2.is_abandoned());
    drop(session);
    assert!(waiting.2.is_abandoned(), "nothing is computed for a connection that has ended");
}

/// Connections that are authenticated or gone are skipped.
#[test]
fn only_unauthenticated_connections_are_overdue() {
    let mut newcomers = UnauthenticatedConnections::new(TIME);
    (0..4).for_each(|second| newcomers.enter(at(second), second));
    let spared = |newcomer| match newcomer {
        0 => None,
        1 => Some(Duration::from_secs(1)),
        _ => Some(Duration::ZERO),
    };
    assert_eq!(newcomers.overdue(at(11), spared), None);
    assert_eq!(newcomers.iter().map(|(_, number)| number).collect::<Vec<_>>(), [2, 1, 3]);
    // However often it waits for short computations, it is not checked all the time.
    assert_eq!(newcomers.overdue(at(12), |_| Some(Duration::from_nanos(1))), None);
    assert!(
        newcomers.deadline().is_some_and(|next| next.since(at(12)) >= Duration::from_millis(10))
    );
}

#[test]
fn a_repeated_authentication_is_credited_that_time_as_well() {
    let (mut session, _) = authenticated(NQN, false);
    for t_id in [8, 9] {
        let mut host = host_of(t_id);
        let waiting = begin(&mut session, at(1), host.negotiate());
        assert_eq!(session.deadline(), None, "it waits for us");
        waiting.end(&mut session, at(31));
        assert_eq!(session.deadline(), Some(at(41)));
        let message = reply(&mut session, &mut host);
        let waiting = begin(&mut session, at(35), message);
        assert_eq!(session.deadline(), None);
        waiting.end(&mut session, at(95));
        assert_eq!(session.deadline(), Some(at(101)));
        host.success1(&receive(&mut session)).unwrap();
        session.authenticates(at(96), TIME);
        assert_eq!((session.state(), session.deadline()), (ConnectionState::Live, None));
    }
}

/// A host that waits for a computation sends nothing, and is kept alive all the same.
#[test]
fn a_host_that_waits_for_a_computation_is_kept_alive() {
    let mut script = script(authentication(1));
    let (mut session, _) = authenticated_at(&mut script, NQN, false);
    let after = |seconds| Instant(1_000_000_000) + Duration::from_secs(seconds);
    let waiting = begin(&mut session, after(1), host_of(8).negotiate());
    script.target.handle_timeout(after(5));
    assert_eq!(ended(&mut script), [0; 0]);
    // The waiting command is retried whenever a computation has ended.
    let (reaction, _) = command(&mut session, &waiting.0, &waiting.1);
    assert!(matches!(reaction, Reaction::Wait));
    session.authenticates(after(6), TIME);
    script.target.handle_timeout(after(10));
    assert_eq!(ended(&mut script), [0; 0]);
    waiting.end(&mut session, after(11));
    script.target.handle_timeout(after(15));
    assert_eq!(ended(&mut script).len(), 1, "it has its answer, and says nothing");
}
