//! Allowed PDUs and commands in every state of a connection. The snapshots are the specification.

use super::script::{HOST, HOSTID, NQN, Script, config};
use roadtrain_proto::security::dhchap::DhchapKeys;
use roadtrain_proto::security::{ConnectionSecurity, DhchapKey, Hash, SecuredAs};
use roadtrain_target_proto::host_connections::HostConnections;
use roadtrain_target_proto::session::{
    ConnectionState, ListenerRequirements, SessionRequest, TargetConnection,
};
use roadtrain_target_proto::{ConnectRefused, ConnectedQueue, HostAuthentication, TargetConfig};
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, ConnectData, DISCOVERY_NQN, fctype, nqn_field};
use roadtrain_wire::pdu::PduType;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromZeros, IntoBytes};
use std::cell::RefCell;
use std::fmt::Write;

const PDUS: [PduType; 9] = [
    PduType::IcReq,
    PduType::IcResp,
    PduType::H2cTermReq,
    PduType::C2hTermReq,
    PduType::CapsuleCmd,
    PduType::CapsuleResp,
    PduType::H2cData,
    PduType::C2hData,
    PduType::R2t,
];

/// Completes the TLS handshake.
fn secured(session: &mut TargetConnection) {
    let (hostnqn, subnqn) = (HOST.to_owned(), NQN.to_owned());
    session.secured(SecuredAs { hostnqn, subnqn, by_generated: false });
}

/// Returns a claimed queue, which requires authentication if `proves`.
fn claimed(qid: u16, proves: bool) -> (Script, ConnectedQueue) {
    let keys =
        DhchapKeys { host: DhchapKey::new(Some(Hash::Sha256), &[1; 32]).ok(), controller: None };
    let keys = proves.then(|| (HOST.to_owned(), keys)).into_iter().collect();
    let authentication = HostAuthentication { keys, ..HostAuthentication::default() };
    let mut script = Script::with(&TargetConfig { authentication, ..config() });
    let mut cntlid = CNTLID_DYNAMIC;
    if qid > 0 {
        let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, HOST);
        cntlid = script.connect_over(ConnectionSecurity::Plain, 0, &data).unwrap().cntlid;
        script.enable(cntlid);
    }
    let data = ConnectData::new(HOSTID, cntlid, NQN, HOST);
    let claimed = script.claim_over(ConnectionSecurity::Plain, qid, &data).unwrap();
    (script, claimed)
}

/// Authenticates the host and grants the queue.
fn granted(session: &mut TargetConnection, script: &mut Script) -> Result<bool, ConnectRefused> {
    session.authenticated();
    let presences = &mut HostConnections::<u32>::default();
    session.take_granted(script.now, &mut script.target, presences, Some(1))
}

/// Returns a session that has reached the state.
fn session_in(state: ConnectionState, qid: u16) -> TargetConnection {
    let mut session = TargetConnection::new(ListenerRequirements {
        secures: true,
        ..ListenerRequirements::default()
    });
    let (script, connected) = claimed(qid, true);
    let script = RefCell::new(script);
    let connect = |session: &mut TargetConnection| session.connected(connected.clone());
    let grant = |session: &mut TargetConnection| {
        assert_eq!(granted(session, &mut script.borrow_mut()), Ok(true));
    };
    // A controller that shuts down waits for no authentication.
    let proves: &dyn Fn(&mut TargetConnection) =
        if state == ConnectionState::Refused { &TargetConnection::quiesce } else { &grant };
    let steps: [&dyn Fn(&mut TargetConnection); 6] = [
        &secured,
        &TargetConnection::initialized,
        &connect,
        proves,
        &TargetConnection::quiesce,
        &|session| _ = session.end(),
    ];
    for step in steps {
        if session.state() == state {
            return session;
        }
        step(&mut session);
    }
    assert_eq!(session.state(), state);
    session
}

const STATES: [ConnectionState; 8] = [
    ConnectionState::Securing,
    ConnectionState::Initializing,
    ConnectionState::Connecting,
    ConnectionState::Authenticating,
    ConnectionState::Refused,
    ConnectionState::Live,
    ConnectionState::Draining,
    ConnectionState::Ended,
];

fn fabrics(fctype: u8) -> Sqe {
    let mut sqe = Sqe::new(opcode::FABRICS, 0);
    sqe.nsid = u32::from(fctype).into();
    assert_eq!(sqe.fctype(), fctype);
    sqe
}

fn commands() -> Vec<(&'static str, Sqe)> {
    vec![
        ("Connect", fabrics(fctype::CONNECT)),
        ("Authentication Send", fabrics(fctype::AUTHENTICATION_SEND)),
        ("Authentication Receive", fabrics(fctype::AUTHENTICATION_RECEIVE)),
        ("Property Get", fabrics(fctype::PROPERTY_GET)),
        ("Property Set", fabrics(fctype::PROPERTY_SET)),
        ("Disconnect", fabrics(fctype::DISCONNECT)),
        ("a fabrics command of no standard", fabrics(0x7f)),
        ("Identify or Write Uncorrectable", Sqe::new(opcode::IDENTIFY, 0)),
        ("Keep Alive", Sqe::new(opcode::KEEP_ALIVE, 0)),
        ("Read or Get Log Page", Sqe::new(opcode::READ, 1)),
        ("Flush or Delete I/O Submission Queue", Sqe::new(opcode::FLUSH, 1)),
    ]
}

fn snapshot(name: &str, table: &str) {
    insta::with_settings!({omit_expression => true}, {
        insta::assert_snapshot!(name, table);
    });
}

#[test]
fn pdus() {
    let mut table = String::new();
    for state in STATES {
        let takes = PDUS.into_iter().filter(|&pdu| session_in(state, 1).state().takes(pdu));
        writeln!(table, "{state:?}: {:?}", takes.collect::<Vec<_>>()).unwrap();
    }
    snapshot("session_pdus", &table);
}

#[test]
fn commands_of_either_queue() {
    let mut table = String::new();
    for (queue, qid) in [("admin queue", 0), ("I/O queue", 1)] {
        for state in STATES {
            let session = session_in(state, qid);
            writeln!(table, "{queue}, {state:?}").unwrap();
            let mut lines: Vec<(String, Vec<String>)> = Vec::new();
            for (name, sqe) in commands() {
                let request: SessionRequest = session.request(&sqe);
                let verdict = match session.admits(request) {
                    Ok(()) => "goes on".to_owned(),
                    Err(status) => status.to_string(),
                };
                let name = format!("{name} ({request:?})");
                match lines.iter_mut().find(|(line, _)| *line == verdict) {
                    Some((_, names)) => names.push(name),
                    None => lines.push((verdict, vec![name])),
                }
            }
            for (verdict, names) in lines {
                writeln!(table, "  {verdict}\n    on {}", names.join(" | ")).unwrap();
            }
            assert_eq!(session.executes_io(), state == ConnectionState::Live && qid > 0);
        }
    }
    snapshot("session_commands", &table);
}

#[test]
fn states_that_are_not_required_are_skipped() {
    let mut session = TargetConnection::new(ListenerRequirements::default());
    assert_eq!(session.state(), ConnectionState::Initializing);
    session.initialized();
    let (mut script, connected) = claimed(1, false);
    session.connected(connected);
    assert_eq!(session.state(), ConnectionState::Live);
    assert_eq!(granted(&mut session, &mut script), Ok(true));
    assert_eq!(granted(&mut session, &mut script), Ok(false), "once");
}

/// Late or repeated steps change nothing.
#[test]
fn no_step_leads_back() {
    for state in STATES {
        let mut session = session_in(state, 1);
        let steps: [fn(&mut TargetConnection); 4] = [
            TargetConnection::authenticated,
            TargetConnection::initialized,
            secured,
            TargetConnection::authenticated,
        ];
        let order = |state: ConnectionState| STATES.iter().position(|&s| s == state);
        for step in steps {
            let before = session.state();
            step(&mut session);
            assert!(order(session.state()) >= order(before), "{before:?} -> {:?}", session.state());
        }
        session.end();
        session.quiesce();
        session.disconnected();
        assert_eq!(session.state(), ConnectionState::Ended);
    }
}

/// The registration stays until no command is in a store, and the controller waits for that.
#[test]
fn what_is_in_a_store_outlives_the_connection() {
    let mut session = session_in(ConnectionState::Live, 1);
    session.entered_store();
    session.quiesce();
    assert!(session.quiet().is_none());
    assert!(session.end().is_some(), "it drains");
    assert!(!session.is_gone());
    session.left_store();
    assert!(session.is_gone());
    assert!(session.leave().is_some());

    let mut idle = session_in(ConnectionState::Live, 1);
    assert!(idle.end().is_none() && idle.is_gone());
    let mut quiet = session_in(ConnectionState::Live, 1);
    quiet.quiesce();
    assert!(quiet.quiet().is_some());
    let mut new = session_in(ConnectionState::Connecting, 1);
    new.end();
    assert!(new.leave().is_none(), "it was never registered");
}

/// A connection secured with a host's key is reserved for that host and that subsystem.
#[test]
fn a_secured_stream_is_for_the_names_of_its_key() {
    let mut session = TargetConnection::new(ListenerRequirements {
        secures: true,
        ..ListenerRequirements::default()
    });
    assert_eq!(session.state(), ConnectionState::Securing);
    secured(&mut session);
    assert_eq!(session.state(), ConnectionState::Initializing);
    let data = |host: &str, nqn: &str| {
        let (hostnqn, subnqn) = (nqn_field(host), nqn_field(nqn));
        ConnectData { hostnqn, subnqn, ..ConnectData::new_zeroed() }
    };
    let admits = |host: &str, nqn: &str| session.admits_names(data(host, nqn).as_bytes());
    assert_eq!(admits(HOST, NQN), Ok(()));
    let error = admits("nqn.2024-01.test:other", NQN).unwrap_err();
    assert!(error.status.is(Status::CONNECT_INVALID_HOST), "{error}");
    let error = admits("", NQN).unwrap_err();
    assert!(error.status.is(Status::CONNECT_INVALID_HOST), "{error}");
    let error = admits(HOST, DISCOVERY_NQN).unwrap_err();
    assert!(error.status.is(Status::CONNECT_INVALID_PARAMETERS), "{error}");
    let plain = TargetConnection::new(ListenerRequirements::default());
    assert_eq!(plain.admits_names(data("nqn.2024-01.test:other", NQN).as_bytes()), Ok(()));
}
