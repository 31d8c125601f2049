//! Secure channel concatenation at the target: connections that may generate a PSK, and the commands allowed on them.

use super::script::{HOST, HOSTID, NQN, PRIVATE_NQN, STRANGER, Script, config};
use roadtrain_proto::security::dhchap::{AuthHost, AuthOffer, DhGroup, DhchapKeys};
use roadtrain_proto::security::{ConnectionSecurity, DhchapKey, GeneratedPsk, Hash, SecuredAs};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::host_connections::HostConnections;
use roadtrain_target_proto::session::{
    ConnectionState, ListenerRequirements, SessionRequest, TargetConnection,
};
use roadtrain_target_proto::{HostAuthentication, Reaction, TargetConfig};
use roadtrain_wire::auth::RECEIVE_BYTES;
use roadtrain_wire::fabrics::{
    self, AUTHREQ_ASCR, AUTHREQ_ATR, CNTLID_DYNAMIC, ConnectData, fctype,
};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) fn keys() -> DhchapKeys {
    DhchapKeys {
        host: Some(DhchapKey::new(Some(Hash::Sha256), &[1; 32]).unwrap()),
        controller: None,
    }
}

/// Returns a configuration in which the host has a key, and the private subsystem requires TLS.
fn authentication() -> HostAuthentication {
    HostAuthentication {
        keys: BTreeMap::from([(HOST.to_owned(), keys())]),
        tls_at: [PRIVATE_NQN.to_owned()].into(),
        offer: AuthOffer { hashes: vec![Hash::Sha256], groups: vec![DhGroup::Ffdhe2048] },
        ..HostAuthentication::default()
    }
}

fn script(authentication: HostAuthentication) -> Script {
    Script::with(&TargetConfig { authentication, ..config() })
}

fn data(nqn: &str, host: &str, cntlid: u16) -> ConnectData {
    ConnectData::new(HOSTID, cntlid, nqn, host)
}

#[test]
fn the_answer_to_connect_says_what_is_wanted() {
    const BOTH: u32 = AUTHREQ_ATR | AUTHREQ_ASCR;
    let (hostnqn, subnqn) = (HOST.to_owned(), PRIVATE_NQN.to_owned());
    let generated = SecuredAs { hostnqn, subnqn, by_generated: true };
    let invalid = Err(Status::CONNECT_INVALID_PARAMETERS.dnr()); // as if it were not there
    for (channel, nqn, host, expected) in [
        (ConnectionSecurity::Plain, NQN, HOST, Ok(AUTHREQ_ATR)),
        (ConnectionSecurity::Securable, NQN, HOST, Ok(AUTHREQ_ATR)),
        (ConnectionSecurity::Securable, NQN, STRANGER, Ok(0)),
        // Without TLS only the PSK is generated; hosts without a key get the same requirement.
        (ConnectionSecurity::Plain, PRIVATE_NQN, HOST, invalid),
        (ConnectionSecurity::Securable, PRIVATE_NQN, HOST, Ok(BOTH)),
        (ConnectionSecurity::Secured(&generated), PRIVATE_NQN, HOST, Ok(0)),
    ] {
        let mut script = script(authentication());
        let answer = script.claim_over(channel, 0, &data(nqn, host, CNTLID_DYNAMIC));
        let answer = answer.map(|connected| connected.result & BOTH).map_err(|error| error.status);
        assert_eq!(answer, expected, "{channel:?} {nqn} {host}");
    }
    // No host has a key, so none could generate a PSK.
    let mut without = script(HostAuthentication { keys: BTreeMap::new(), ..authentication() });
    for (channel, status) in [
        (ConnectionSecurity::Securable, Status::CONNECT_INVALID_PARAMETERS),
        (ConnectionSecurity::Secured(&generated), Status::CONNECT_INVALID_HOST),
    ] {
        let answer = without.connect_over(channel, 0, &data(PRIVATE_NQN, HOST, CNTLID_DYNAMIC));
        assert_eq!(answer.map(|connected| connected.cntlid), Err(status.dnr()));
    }
}

/// I/O queues generate no PSK: they are refused without TLS where that is required.
#[test]
fn queues_of_io_make_no_psk() {
    let mut script = script(authentication());
    let admin = data(PRIVATE_NQN, HOST, CNTLID_DYNAMIC);
    let cntlid = script.connect_over(ConnectionSecurity::Securable, 0, &admin).unwrap().cntlid;
    let lane =
        script.connect_over(ConnectionSecurity::Securable, 1, &data(PRIVATE_NQN, HOST, cntlid));
    assert_eq!(lane.unwrap_err(), Status::CONNECT_INVALID_PARAMETERS.dnr());
}

/// Returns a session of the host, authenticated with or without a PSK.
pub(crate) fn authenticated(
    subsystem: &str,
    concatenates: bool,
) -> (TargetConnection, Option<GeneratedPsk>) {
    authenticated_at(&mut script(authentication()), subsystem, concatenates)
}

/// Returns the same for that target.
pub(crate) fn authenticated_at(
    script: &mut Script,
    subsystem: &str,
    concatenates: bool,
) -> (TargetConnection, Option<GeneratedPsk>) {
    let data = data(subsystem, HOST, CNTLID_DYNAMIC);
    let connected = script.claim_over(ConnectionSecurity::Securable, 0, &data).unwrap();
    let mut session = TargetConnection::new(ListenerRequirements {
        declined_tls: true,
        ..ListenerRequirements::default()
    });
    assert_eq!(session.channel(), ConnectionSecurity::Securable);
    session.initialized();
    session.connected(connected);
    let host = AuthHost::new(keys().parties(HOST, subsystem), AuthOffer::default(), 7);
    let mut host = if concatenates { host.concatenating() } else { host };
    let mut random = |place: &mut [u8]| place.fill(0x5a);
    send(&mut session, &host.negotiate());
    let message = receive(&mut session);
    if let Ok(challenged) = host.challenge(&message, &mut random) {
        challenged.work().unwrap().compute();
        // A challenge that differs from the controller's.
        let reply = host.reply(&challenged, &mut |place| place.fill(0xa5)).unwrap();
        send(&mut session, &reply);
        let _ = host.success1(&receive(&mut session));
    }
    let psk = session.authenticator().unwrap().take_psk();
    assert_eq!(psk, host.take_psk());
    session.authenticates(Instant(0), Duration::ZERO);
    let presences = &mut HostConnections::<u32>::default();
    let granted = session.take_granted(script.now, &mut script.target, presences, Some(1));
    assert_eq!(granted, Ok(session.state() == ConnectionState::Live));
    (session, psk)
}

pub(crate) fn send(session: &mut TargetConnection, message: &[u8]) {
    let mut sqe: Sqe = fabrics::AuthenticationFields::of_nvme(message.len() as u32)
        .emit(fctype::AUTHENTICATION_SEND);
    sqe.set_in_capsule(message.len() as u32);
    let mut random = |place: &mut [u8]| place.fill(0x33);
    let authenticator = session.authenticator().unwrap();
    let mut command = || authenticator.command(&sqe, message, &mut Vec::new(), &mut random);
    if let Reaction::Compute(work) = command() {
        work.compute();
        assert!(matches!(command(), Reaction::Answer(Status::SUCCESS)));
    }
}

pub(crate) fn receive(session: &mut TargetConnection) -> Vec<u8> {
    let mut sqe =
        fabrics::AuthenticationFields::of_nvme(RECEIVE_BYTES).emit(fctype::AUTHENTICATION_RECEIVE);
    sqe.sgl.length = RECEIVE_BYTES.into();
    let mut page = Vec::new();
    let mut random = |place: &mut [u8]| place.fill(0x33);
    let authenticator = session.authenticator().unwrap();
    let reaction = authenticator.command(&sqe, &[], &mut page, &mut random);
    assert!(matches!(reaction, Reaction::Answer(Status::SUCCESS)), "{reaction:?}");
    page
}

/// A connection on which a PSK was generated accepts no other command.
#[test]
fn no_command_follows_the_making_of_a_psk() {
    for subsystem in [NQN, PRIVATE_NQN] {
        let (session, psk) = authenticated(subsystem, true);
        assert!(psk.is_some());
        assert_eq!(session.state(), ConnectionState::Authenticating);
        assert!(session.is_unauthenticated(), "it ends when its time for that is over");
        for request in [
            SessionRequest::Property,
            SessionRequest::Admin,
            SessionRequest::Fabrics,
            SessionRequest::Disconnect,
        ] {
            let refused = Err(Status::AUTHENTICATION_REQUIRED.dnr());
            assert_eq!(session.admits(request), refused, "{request:?}");
        }
    }
}

/// A host that authenticates without a PSK is admitted only where TLS is not required.
#[test]
fn without_a_psk_the_subsystem_decides() {
    let (session, psk) = authenticated(NQN, false);
    assert_eq!((session.state(), psk), (ConnectionState::Live, None));
    let (session, psk) = authenticated(PRIVATE_NQN, false);
    assert_eq!(psk, None);
    assert_eq!(session.state(), ConnectionState::Refused);
}
