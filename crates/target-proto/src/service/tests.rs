use super::*;
use crate::TargetControl;
use crate::host_connections::HostConnections;
use crate::{NamespaceConfig, SubsystemConfig, TargetConfig};
use core::net::Ipv4Addr;
use roadtrain_proto::security::SecuredAs;
use roadtrain_wire::fabrics::{Connect, ConnectData, Property, property};
use roadtrain_wire::zerocopy::IntoBytes;

const NOW: Instant = Instant(1_000_000_000);
const HOST: &str = "nqn.2014-08.org.example:host";
const SUBSYSTEM: &str = "nqn.2014-08.org.example:subsystem";

/// Control plane of one reactor, whose connections are numbers.
struct OneReactor {
    target: TargetControl,
    presences: HostConnections<u32>,
    /// Connections that the host has closed.
    lost: Vec<u32>,
    has_numbers: bool,
    messages: Vec<Broadcast>,
    notes: Vec<String>,
}

impl Default for OneReactor {
    fn default() -> Self {
        let mut subsystem = SubsystemConfig::new(SUBSYSTEM);
        subsystem.namespaces.push(NamespaceConfig::new(1, 64, 9));
        let config = TargetConfig { subsystems: vec![subsystem], ..TargetConfig::default() };
        OneReactor {
            target: TargetControl::new(NOW, &config).unwrap(),
            presences: HostConnections::default(),
            lost: Vec::new(),
            has_numbers: true,
            messages: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl ServiceDriver for OneReactor {
    type Connection = u32;

    fn control<R>(
        &mut self,
        call: impl FnOnce(LockedControl<'_, u32>) -> (R, Option<Broadcast>),
    ) -> R {
        let any_lost = |all: &[u32]| all.iter().any(|connection| self.lost.contains(connection));
        let (target, presences) = (&mut self.target, &mut self.presences);
        let (result, message) = call(LockedControl { target, presences, any_lost: &any_lost });
        self.messages.extend(message);
        result
    }

    fn number(&mut self) -> Option<u64> {
        self.has_numbers.then_some(7)
    }

    fn random(&mut self) -> Option<impl FnMut(&mut [u8])> {
        self.has_numbers.then_some(|place: &mut [u8]| place.fill(7))
    }

    fn compute(&mut self, _: DhTask) -> Option<Computing> {
        None
    }

    fn authentication_time(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn keep_psk(&mut self, _: Instant, _: &ConnectedQueue, _: &GeneratedPsk) {}

    fn note(&mut self, note: &Note<'_>) {
        let text = format!("{note:?}");
        self.notes.push(text.split(['(', ' ']).next().unwrap_or_default().to_owned());
    }
}

/// Returns the session of an initialized connection, secured with a key of this host if there is one.
fn session(secured_as: Option<&str>) -> TargetConnection {
    let secures = secured_as.is_some();
    let settings = crate::session::ListenerRequirements { secures, ..Default::default() };
    let mut session = TargetConnection::new(settings);
    let names = secured_as.map(|hostnqn| (hostnqn.to_owned(), SUBSYSTEM.to_owned()));
    if let Some((hostnqn, subnqn)) = names {
        session.secured(SecuredAs { hostnqn, subnqn, by_generated: false });
    }
    session.initialized();
    session
}

/// Executes a Connect of [`HOST`] for this controller and queue, over the connection of this number.
fn connect(
    driver: &mut OneReactor,
    session: &mut TargetConnection,
    (cntlid, qid): (u16, u16),
    connection: u32,
) -> ServiceReply {
    let sqe = Connect { recfmt: 0, qid, sqsize: 31, cattr: 0, kato_ms: 0 }.emit();
    let data = ConnectData::new([1; 16], cntlid, SUBSYSTEM, HOST);
    let local = (Ipv4Addr::LOCALHOST, 4420).into();
    let port = CommandOrigin { local, connection: Some(connection), since: NOW };
    let command = ServiceCommand { now: NOW, port, sqe: &sqe, data: data.as_bytes() };
    execute(driver, session, command, &mut Vec::new())
}

/// Executes a command over the connection of this number.
fn run(
    driver: &mut OneReactor,
    session: &mut TargetConnection,
    sqe: &Sqe,
    connection: u32,
) -> ServiceReply {
    let local = (Ipv4Addr::LOCALHOST, 4420).into();
    let port = CommandOrigin { local, connection: Some(connection), since: NOW };
    let command = ServiceCommand { now: NOW, port, sqe, data: &[] };
    execute(driver, session, command, &mut Vec::new())
}

/// Connects a controller that accepts I/O queues. Returns its identifier, and the session of its admin queue.
fn controller(driver: &mut OneReactor) -> (u16, TargetConnection) {
    let mut admin = session(None);
    assert!(connect(driver, &mut admin, (0xffff, 0), 1).granted);
    let enable = Property::set(property::CC, 0x0046_0061);
    assert!(status(&run(driver, &mut admin, &enable, 1)).is_success());
    (admin.queue().unwrap().cntlid, admin)
}

/// Returns the status of a completed reply.
fn status(reply: &ServiceReply) -> Status {
    reply.completion.unwrap().0
}

#[test]
fn a_queue_without_a_proof_is_granted_with_its_connect() {
    let (mut driver, mut session) = (OneReactor::default(), session(None));
    let reply = connect(&mut driver, &mut session, (0xffff, 0), 1);
    assert!(reply.connected && reply.granted && !reply.ends, "{reply:?}");
    assert_eq!(driver.presences.count(), 1);
    assert_eq!(driver.notes, ["Claimed"]);
}

#[test]
fn nothing_but_a_connect_is_executed_before_it() {
    let (mut driver, mut session) = (OneReactor::default(), session(None));
    let enable = Property::set(property::CC, 0x0046_0061);
    let reply = run(&mut driver, &mut session, &enable, 1);
    assert!(!status(&reply).is_success() && !reply.ends, "{reply:?}");
    assert_eq!(driver.notes, ["NotAdmitted"]);
}

#[test]
fn a_connect_names_the_host_of_its_tls_key() {
    let mut driver = OneReactor::default();
    let mut other = session(Some("nqn.2014-08.org.example:other"));
    let reply = connect(&mut driver, &mut other, (0xffff, 0), 1);
    assert_eq!(status(&reply), Status::CONNECT_INVALID_HOST.dnr());
    assert!(!reply.connected && driver.presences.count() == 0);
    assert_eq!(driver.notes, ["Refused"]);
}

#[test]
fn stale_connections_are_closed_before_a_connect_is_executed() {
    let mut driver = OneReactor::default();
    let (mut old, mut new) = (session(None), session(None));
    assert!(connect(&mut driver, &mut old, (0xffff, 0), 1).granted);
    driver.lost.push(1);
    let reply = connect(&mut driver, &mut new, (0xffff, 0), 2);
    assert!(reply.postponed && reply.completion.is_none(), "{reply:?}");
    assert_eq!(driver.messages, [Broadcast::CloseStale(HOST.into())]);
    old.end();
    old.leave().unwrap().report(&mut driver.target, &mut driver.presences);
    assert!(connect(&mut driver, &mut new, (0xffff, 0), 2).granted);
}

#[test]
fn commands_of_lost_connections_hold_up_io_queues() {
    let mut driver = OneReactor::default();
    let (mut lost, mut new) = (session(None), session(None));
    let (cntlid, _admin) = controller(&mut driver);
    assert!(connect(&mut driver, &mut lost, (cntlid, 1), 2).granted);
    lost.entered_store();
    driver.presences.drain(lost.end().unwrap());
    let reply = connect(&mut driver, &mut new, (cntlid, 2), 3);
    assert_eq!(status(&reply), Status::CONNECT_CONTROLLER_BUSY);
    assert_eq!(driver.notes.last().unwrap(), "Busy");
}

#[test]
fn a_driver_without_random_bytes_connects_no_host() {
    let (mut driver, mut session) = (OneReactor::default(), session(None));
    driver.has_numbers = false;
    let reply = connect(&mut driver, &mut session, (0xffff, 0), 1);
    assert_eq!(status(&reply), Status::INTERNAL_ERROR);
    assert!(!session.is_connected());
}

#[test]
fn disconnect_ends_the_connection_after_its_answer() {
    let mut driver = OneReactor::default();
    let (cntlid, _admin) = controller(&mut driver);
    let mut io = session(None);
    assert!(connect(&mut driver, &mut io, (cntlid, 1), 2).granted);
    let sqe = roadtrain_wire::fabrics::disconnect();
    let reply = run(&mut driver, &mut io, &sqe, 2);
    assert!(reply.ends && status(&reply).is_success(), "{reply:?}");
    assert!(io.queue().is_none());
}
