//! Tests of queues that authenticate again while they are in use, and of keys that change meanwhile.

use super::tests::{LONG, ManualQueue, NQN, eventually, host_config};
use super::{Export, Server, ServerConfig, Subsystem, TlsConfig, TlsUse};
use roadtrain_host_engine::AdminConnection;
use roadtrain_proto::security::dhchap::{AuthHost, AuthOffer, DhGroup, DhchapKeys};
use roadtrain_proto::security::{DhchapKey, Hash, TlsKeys};
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_system::clock;
use roadtrain_target_proto::HostAuthentication;
use roadtrain_wire::auth::RECEIVE_BYTES;
use roadtrain_wire::fabrics::{AuthenticationFields as Fields, fctype};
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::time::Duration;

const HOST: &str = "nqn.x:host";

fn keys() -> DhchapKeys {
    let host = Some(DhchapKey::new(Some(Hash::Sha256), &[1; 32]).unwrap());
    DhchapKeys { host, controller: None }
}

/// Starts a target with memory and two reactors: the first has the admin queue, the second the lane.
fn serve(group: DhGroup, connect_timeout: Duration) -> Server {
    Server::start(configured(group, connect_timeout)).unwrap()
}

fn configured(group: DhGroup, connect_timeout: Duration) -> ServerConfig {
    let kind = StoreKind::Memory { size: 1 << 20 };
    let export = Export::new(1, StoreSpec { kind, lba_bytes: 512, read_only: false });
    let subsystem = Subsystem { namespaces: vec![export], ..Subsystem::new(NQN) };
    let mut config = ServerConfig::new(vec!["127.0.0.1:0".parse().unwrap()], vec![subsystem]);
    (config.cores, config.connect_timeout) = (vec![0; 2], connect_timeout);
    config.authentication = authentication(group, keys());
    config
}

fn authentication(group: DhGroup, keys: DhchapKeys) -> HostAuthentication {
    HostAuthentication {
        required: true,
        offer: AuthOffer { hashes: vec![Hash::Sha256], groups: vec![DhGroup::Null, group] },
        keys: [(HOST.to_owned(), keys)].into(),
        ..HostAuthentication::default()
    }
}

/// Changes the key of the host.
fn change_key(server: &Server, group: DhGroup, tls: TlsUse) {
    let host = Some(DhchapKey::new(Some(Hash::Sha256), &[2; 32]).unwrap());
    let changed = authentication(group, DhchapKeys { host, controller: None });
    let (listen, subsystems) =
        (["127.0.0.1:0".parse().unwrap()], server.exports().subsystems.clone());
    server
        .reconfigure(&listen, &subsystems, &changed, (tls, &BTreeMap::new()), &Default::default())
        .unwrap();
}

/// Host's end of a queue that authenticates.
struct Prover {
    queue: ManualQueue,
    host: AuthHost,
    seed: u8,
}

impl Prover {
    /// Begins a transaction with `group`.
    fn begin(&mut self, group: DhGroup) {
        let parties = keys().parties(HOST, NQN);
        let offer = AuthOffer { hashes: vec![Hash::Sha256], groups: vec![group] };
        self.host = AuthHost::new(parties, offer, self.seed.into());
        let negotiate = self.host.negotiate();
        self.send(&negotiate);
    }

    fn send(&mut self, message: &[u8]) {
        let length = message.len() as u32;
        let mut sqe = Fields::of_nvme(length).emit(fctype::AUTHENTICATION_SEND);
        sqe.set_in_capsule(length);
        self.queue.command(9, sqe, message);
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut sqe = Fields::of_nvme(RECEIVE_BYTES).emit(fctype::AUTHENTICATION_RECEIVE);
        sqe.set_transport(RECEIVE_BYTES);
        self.queue.command(9, sqe, &[]);
        self.queue.data(RECEIVE_BYTES)
    }

    fn is_answered(&mut self) {
        assert_eq!(self.queue.completion(), (9, Status::SUCCESS));
    }

    /// Completes the transaction after Negotiate.
    fn go_on(&mut self) {
        self.reply();
        self.is_answered();
        let message = self.receive();
        assert_eq!(self.host.success1(&message), Ok(None));
    }

    /// Continues the transaction after Negotiate, up to Reply.
    fn reply(&mut self) {
        self.is_answered();
        self.seed += 1;
        let seed = self.seed;
        let mut random = |place: &mut [u8]| place.fill(seed);
        let message = self.receive();
        let challenged = self.host.challenge(&message, &mut random).unwrap();
        challenged.work().into_iter().for_each(|work| work.compute());
        let reply = self.host.reply(&challenged, &mut random).unwrap();
        self.send(&reply);
    }
}

/// Connects an admin queue, and an I/O queue that has authenticated.
fn queues(server: &Server) -> (AdminConnection, Prover) {
    let mut config = host_config(server, HOST);
    (config.timeout, config.keys) = (LONG, keys());
    let admin = AdminConnection::connect(&config).unwrap();
    let queue = ManualQueue::connect(server, &admin, HOST);
    let host = AuthHost::new(keys().parties(HOST, NQN), AuthOffer::default(), 0);
    let mut prover = Prover { queue, host, seed: 1 };
    prover.begin(DhGroup::Null);
    prover.go_on();
    assert!(prover.queue.flushes(), "it is authenticated");
    (admin, prover)
}

/// A reauthentication that the host does not finish has the time limit of the first one.
#[test]
fn an_authentication_that_was_begun_again_has_a_time_limit() {
    let server = serve(DhGroup::Null, Duration::from_secs(4));
    let (_admin, mut prover) = queues(&server);
    for _ in 0..2 {
        prover.begin(DhGroup::Null);
        prover.go_on();
        assert!(prover.queue.flushes());
    }
    prover.begin(DhGroup::Null);
    prover.is_answered();
    assert!(prover.queue.flushes(), "it goes on meanwhile");
    assert!(prover.queue.has_ended(), "its time is over");
    eventually("only the admin queue is left", || server.usage().connections == 1);
}

/// A reauthentication uses the target's current key, not the one of the first authentication.
#[test]
fn a_reauthentication_needs_the_current_key() {
    let server = serve(DhGroup::Null, LONG);
    let (_admin, mut prover) = queues(&server);
    change_key(&server, DhGroup::Null, TlsUse::Off);
    assert!(prover.queue.flushes(), "who is connected stays");
    prover.begin(DhGroup::Null);
    prover.reply();
    eventually("only the admin queue is left", || server.usage().connections == 1);
}

/// A PSK that is generated while the host's key changes belongs to the old key: it is not kept.
#[test]
fn a_psk_of_the_key_of_before_is_not_kept() {
    for changes in [false, true] {
        let tls = TlsConfig { tls: TlsUse::Allowed, at: BTreeMap::new(), keys: TlsKeys::default() };
        let config = ServerConfig { tls: Some(tls), ..configured(DhGroup::Ffdhe2048, LONG) };
        let server = Server::start(config).unwrap();
        let host =
            AuthHost::new(keys().parties(HOST, NQN), AuthOffer::default(), 3).concatenating();
        let mut prover = Prover { queue: ManualQueue::connect_admin(&server, HOST), host, seed: 1 };
        let negotiate = prover.host.negotiate();
        prover.send(&negotiate);
        if changes {
            change_key(&server, DhGroup::Ffdhe2048, TlsUse::Allowed);
        }
        prover.go_on();
        let psk = prover.host.take_psk().expect("it was made").tls_psk(HOST, NQN);
        let psks = server.control.psks();
        let is_kept = psks.lock().unwrap().find(clock::now(), &psk.identity).is_some();
        assert_eq!(is_kept, !changes);
    }
}

/// The worker completes while the queue moves between two reactors, and both reactors receive the notice.
#[test]
fn a_lane_that_moves_during_a_dh_computation_continues() {
    let server = serve(DhGroup::Ffdhe8192, LONG);
    let (_admin, mut prover) = queues(&server);
    for _ in 0..3 {
        let before = server.dh_computations_begun();
        prover.begin(DhGroup::Ffdhe8192);
        eventually("it has come", || server.dh_computations_begun() > before);
        let (go_on, wait) = channel::<()>();
        let from = usize::from(server.moves().is_multiple_of(2));
        server.call(from, move || _ = wait.recv_timeout(LONG));
        server.move_lanes(from, 1 - from);
        eventually("it is computed", || server.is_dh_idle());
        go_on.send(()).unwrap();
        prover.go_on();
        assert!(prover.queue.flushes());
    }
    assert!(server.moves() > 0, "it has moved");
}
