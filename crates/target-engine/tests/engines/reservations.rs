//! Reservations between hosts with different identifiers: the commands that they forbid or wait for, and their
//! persistence.

use crate::harness::*;
use crate::peer::*;
use roadtrain_host_engine::{
    AcquireAction, ChangePersistence, HostClient, HostConfig, HostControlError, HostReservations,
    IoOp, RegisterAction, ReleaseAction, ReservationReport, ReservationType,
};
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, KeptPlace, Server, ServerConfig};
use roadtrain_wire::status::Status;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

const LENGTH: usize = 65536;
const WE: ReservationType = ReservationType::WriteExclusive;
const WERO: ReservationType = ReservationType::WriteExclusiveRegistrantsOnly;
const EA: ReservationType = ReservationType::ExclusiveAccess;

/// Configures host number `host`; the harness is number 7.
fn config_of(server: &Server, host: u8) -> HostConfig {
    let nqn = format!("nqn.2024-01.test:host{host}");
    let name = if host == 7 { HOST_NQN } else { &nqn };
    let mut config = HostConfig::new(address(server), NQN, name, [host; 16]);
    config.reconnect_delay = Duration::from_millis(20);
    config
}

fn reservations(server: &Server, host: u8) -> HostReservations {
    HostReservations::connect(&config_of(server, host)).unwrap()
}

fn client(server: &Server, host: u8) -> HostClient {
    HostClient::connect(config_of(server, host)).unwrap()
}

fn register(host: &mut HostReservations, key: u64, persistence: ChangePersistence) {
    host.register(1, (RegisterAction::Register, false), persistence, (0, key)).unwrap();
}

fn acquire(
    host: &mut HostReservations,
    kind: ReservationType,
    key: u64,
) -> Result<(), HostControlError> {
    host.acquire(1, AcquireAction::Acquire, kind, (key, 0))
}

fn is_conflict<T>(result: Result<T, HostControlError>) -> bool {
    matches!(result, Err(HostControlError::Command { status, .. }) if status.is(Status::RESERVATION_CONFLICT))
}

fn write(client: &HostClient, seed: u64) -> Status {
    let written = client.write(1, 0, pattern(LENGTH, seed), false);
    written.err().map_or(Status::SUCCESS, |error| error.status)
}

fn read(client: &HostClient) -> Status {
    client.read(1, 0, Buffer::alloc(LENGTH)).err().map_or(Status::SUCCESS, |error| error.status)
}

fn has(client: &HostClient, seed: u64) -> bool {
    *client.read(1, 0, Buffer::alloc(LENGTH)).unwrap() == *pattern(LENGTH, seed)
}

/// Returns exports of memory, which is written in place, and of a file.
fn exports() -> Vec<(Vec<Export>, Option<tempfile::TempDir>)> {
    let folder = tempfile::tempdir().unwrap();
    let file = file(1, &folder, MIB, BLOCK);
    vec![(vec![memory(1, MIB, BLOCK)], None), (vec![file], Some(folder))]
}

fn config_with(exports: Vec<Export>) -> ServerConfig {
    ServerConfig { cores: reactors(2), ..server_config(exports) }
}

#[test]
fn a_reservation_shuts_out_others_until_it_is_released() {
    for (exports, _folder) in exports() {
        let server = Server::start(config_with(exports)).unwrap();
        let (mut one, mut other) = (reservations(&server, 1), reservations(&server, 2));
        let (client_one, client_other) = (client(&server, 1), client(&server, 2));
        assert!(is_conflict(acquire(&mut one, WE, 1)), "it is no registrant");
        register(&mut one, 1, ChangePersistence::Keep);
        register(&mut other, 2, ChangePersistence::Keep);
        acquire(&mut one, WE, 1).unwrap();
        assert!(is_conflict(acquire(&mut other, WE, 2)));
        assert_eq!(write(&client_one, 1), Status::SUCCESS);
        assert_eq!(write(&client_other, 2), Status::RESERVATION_CONFLICT.dnr());
        assert!(client_other.flush(1).is_err() && client_other.discard(1, 0, 1).is_err());
        assert!(has(&client_other, 1), "it may read");
        let block = &pattern(LENGTH, 1)[..BLOCK as usize];
        let written = client_other.compare_and_write(1, 0, block, &[9; BLOCK as usize]);
        assert!(written.unwrap_err().status.is(Status::RESERVATION_CONFLICT));
        let copied = client_other.copy(1, &[(8, 8)], 0, false);
        assert!(copied.unwrap_err().status.is(Status::RESERVATION_CONFLICT));
        client_other.verify(1, 0, 8).unwrap();
        assert!(has(&client_other, 1), "nothing was written");
        one.release(1, ReleaseAction::Release, Some(WE), 1).unwrap();
        assert_eq!(write(&client_other, 3), Status::SUCCESS);
        acquire(&mut other, EA, 2).unwrap();
        assert_eq!(read(&client_one), Status::RESERVATION_CONFLICT.dnr());
        assert_eq!(write(&client_one, 4), Status::RESERVATION_CONFLICT.dnr());
        assert!(has(&client_other, 3));
        // A registrant preempts the holder.
        one.acquire(1, AcquireAction::Preempt, WERO, (1, 2)).unwrap();
        assert_eq!(write(&client_other, 5), Status::RESERVATION_CONFLICT.dnr());
        assert!(has(&client_one, 3));
        let notification = other.next_notification().unwrap();
        assert_eq!(notification.map(|(kind, nsid)| (kind as u8, nsid)), Some((1, 1)));
        register(&mut other, 2, ChangePersistence::Keep);
        assert_eq!(write(&client_other, 6), Status::SUCCESS, "a registrant may");
        // A later queue finds the reservation.
        let stranger = client(&server, 3);
        assert_eq!(write(&stranger, 7), Status::RESERVATION_CONFLICT.dnr());
        other.release(1, ReleaseAction::Clear, None, 2).unwrap();
        assert_eq!(write(&stranger, 8), Status::SUCCESS);
    }
}

#[test]
fn eight_hosts_register_at_once_and_one_of_them_gets_it() {
    let server = Server::start(config_with(vec![memory(1, MIB, BLOCK)])).unwrap();
    let winners: usize = std::thread::scope(|scope| {
        let tries: Vec<_> = (1..=8)
            .map(|host| {
                let server = &server;
                scope.spawn(move || {
                    let mut own = reservations(server, host);
                    register(&mut own, host.into(), ChangePersistence::Keep);
                    let won = acquire(&mut own, WE, host.into()).is_ok();
                    assert_eq!(write(&client(server, host), host.into()).is_success(), won);
                    usize::from(won)
                })
            })
            .collect();
        tries.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(winners, 1);
    let mut observer = reservations(&server, 9);
    let report = observer.report(1, true, None).unwrap();
    assert_eq!((report.generation, report.registrants.len()), (8, 8));
    assert_eq!(report.registrants.iter().filter(|one| one.is_holder).count(), 1);
    let cut = observer.report(1, true, Some(64 + 2 * 64)).unwrap();
    assert_eq!((cut.registrants.len(), cut.registered), (2, 8));
    let short = observer.report(1, false, None).unwrap_err();
    assert!(short.to_string().contains("Host Identifier Inconsistent Format"), "{short}");
}

/// The data of a write with R2T arrives after its host has lost access: it is not written, in place or otherwise.
#[test]
fn a_write_whose_data_comes_late_is_not_executed() {
    for (exports, _folder) in exports() {
        let harness = EngineHarness::with(config_with(exports));
        assert_eq!(write(&harness.client, 7), Status::SUCCESS);
        let mut peer = harness.queue(raw::PLAIN);
        peer.send(&crate::peer::write(2, LENGTH as u32, raw::PLAIN));
        let ttag = peer.r2t(2);
        let first = raw::h2c_data(2, ttag, 0, &[1; LENGTH / 2], false);
        peer.send(&first[..first.len() - 4096 - 7]); // into the middle of a block
        let (mut own, mut other) =
            (reservations(&harness.server, 7), reservations(&harness.server, 2));
        register(&mut own, 1, ChangePersistence::Keep);
        register(&mut other, 2, ChangePersistence::Keep);
        acquire(&mut own, WE, 1).unwrap();
        // The target does not wait for the rest: the host may be dead.
        other.acquire(1, AcquireAction::PreemptAndAbort, WE, (2, 1)).unwrap();
        let holder = client(&harness.server, 2);
        assert_eq!(write(&holder, 8), Status::SUCCESS);
        peer.send(&first[first.len() - 4096 - 7..]);
        peer.send(&raw::h2c_data(2, ttag, LENGTH as u32 / 2, &[1; LENGTH / 2], true));
        assert_eq!(peer.completion(2), Status::RESERVATION_CONFLICT.dnr());
        assert!(has(&holder, 8), "it was executed");
        other.release(1, ReleaseAction::Clear, None, 2).unwrap();
        assert_eq!(write(&harness.client, 9), Status::SUCCESS, "the connection lives");
    }
}

/// Service time of the slow store, which serves two commands at once.
const SERVICE: Duration = Duration::from_secs(1);

fn slow() -> Vec<Export> {
    vec![ssd(1, MIB, BLOCK, SERVICE, 2)]
}

/// Starts writes. The returned function waits for their end and returns their statuses.
fn begin_writes(client: &HostClient, count: u64) -> impl Fn() -> Vec<Status> {
    let (ended, end) = channel();
    for seed in 0..count {
        let ended = ended.clone();
        let blocks = LENGTH as u32 / BLOCK;
        let request = request(IoOp::Write, 0, blocks, Some(pattern(LENGTH, seed)), seed);
        client.submit(request, move |completion| {
            ended.send(completion.status).unwrap();
        });
    }
    move || (0..count).map(|_| end.recv_timeout(LONG).unwrap()).collect()
}

/// Registers two hosts, the first of which acquires a reservation. Returns their queues.
fn two_hosts(server: &Server, kind: ReservationType) -> (HostReservations, HostReservations) {
    let (mut one, mut other) = (reservations(server, 1), reservations(server, 2));
    register(&mut one, 1, ChangePersistence::Keep);
    register(&mut other, 2, ChangePersistence::Keep);
    acquire(&mut one, kind, 1).unwrap();
    (one, other)
}

#[test]
fn a_reservation_is_answered_after_the_writes_that_it_forbids() {
    let server = Server::start(config_with(slow())).unwrap();
    let (_one, mut other) = two_hosts(&server, WERO);
    let first = client(&server, 1);
    let ended = begin_writes(&first, 4);
    eventually("they are in the store", || server.usage().store_commands == 4);
    other.acquire(1, AcquireAction::Preempt, WE, (2, 1)).unwrap();
    assert_eq!(server.usage().store_commands, 0, "they had not ended");
    assert!(ended().iter().all(|status| *status == Status::SUCCESS), "they had begun");
    assert_eq!(write(&first, 9), Status::RESERVATION_CONFLICT.dnr());
}

#[test]
fn preempt_and_abort_does_not_wait_for_a_slow_store() {
    let server = Server::start(config_with(slow())).unwrap();
    let (_one, mut other) = two_hosts(&server, WE);
    let first = client(&server, 1);
    let ended = begin_writes(&first, 8);
    eventually("they are in the store", || server.usage().store_commands == 8);
    other.acquire(1, AcquireAction::PreemptAndAbort, WE, (2, 1)).unwrap();
    assert_eq!(server.usage().store_commands, 0);
    let statuses = ended();
    let aborted = statuses.iter().filter(|status| status.is(Status::ABORT_REQUESTED)).count();
    let refused = statuses.iter().filter(|status| status.is(Status::RESERVATION_CONFLICT)).count();
    assert!(aborted + refused > 0, "the store has executed all: {statuses:?}");
}

/// The target also waits for commands in the store of a host whose connection is lost.
#[test]
fn what_a_lost_connection_has_left_in_the_store_is_waited_for() {
    let harness = EngineHarness::with(config_with(slow()));
    let mut peer = harness.queue(raw::PLAIN);
    peer.send(&raw::write_in_capsule(2, &[5; 512], raw::PLAIN));
    eventually("it is in the store", || harness.server.usage().store_commands == 1);
    drop(peer);
    let mut other = reservations(&harness.server, 2);
    register(&mut other, 2, ChangePersistence::Keep);
    acquire(&mut other, WE, 2).unwrap();
    assert_eq!(harness.server.usage().store_commands, 0, "it might overtake the holder");
}

fn report(server: &Server) -> ReservationReport {
    reservations(server, 9).report(1, true, None).unwrap()
}

#[test]
fn what_persists_is_there_when_the_target_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let named = folder.path().join("kept");
    let place = KeptPlace::File(named.clone());
    // Memory has the same identity each time if it is configured.
    let uuid = Some([3; 16]);
    let identified = Export { uuid, reservations: place, ..memory(1, MIB, BLOCK) };
    for export in [file(1, &folder, MIB, BLOCK), identified] {
        let server = Server::start(config_with(vec![export.clone()])).unwrap();
        let (mut one, _other) = two_hosts(&server, WERO);
        assert!(!report(&server).persists);
        let keys = (1, 1);
        let replace = (RegisterAction::Replace, false);
        one.register(1, replace, ChangePersistence::Set, keys).unwrap();
        let before = report(&server);
        assert!(before.persists && before.kind == Some(WERO) && before.registrants.len() == 2);
        drop(one);
        server.stop();
        let server = Server::start(config_with(vec![export.clone()])).unwrap();
        let after = report(&server);
        let of = |report: &ReservationReport| {
            let registrants = report.registrants.iter();
            let of: Vec<_> = registrants.map(|one| (one.hostid, one.key, one.is_holder)).collect();
            (report.generation, report.kind, report.persists, of)
        };
        assert_eq!(of(&after), of(&before));
        assert!(after.registrants.iter().all(|registrant| registrant.cntlid.is_none()));
        assert_eq!(write(&client(&server, 3), 1), Status::RESERVATION_CONFLICT.dnr());
        assert_eq!(write(&client(&server, 2), 1), Status::SUCCESS);
        // Cleared persistence leaves nothing for the next start.
        let mut one = reservations(&server, 1);
        one.register(1, replace, ChangePersistence::Clear, keys).unwrap();
        drop(one);
        server.stop();
        let server = Server::start(config_with(vec![export])).unwrap();
        assert_eq!(report(&server).registrants, []);
    }
    assert!(named.exists());
}

fn start_with(path: &Path) -> Result<Server, String> {
    let kind = StoreKind::File { path: path.into(), size: Some(MIB), create: true };
    let export = Export::new(1, StoreSpec { kind, lba_bytes: BLOCK, read_only: false });
    Server::start(config_with(vec![export])).map_err(|error| error.to_string())
}

#[test]
fn a_damaged_file_keeps_the_target_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let server = start_with(&path).unwrap();
    let mut one = reservations(&server, 1);
    register(&mut one, 1, ChangePersistence::Set);
    drop(one);
    server.stop();
    let kept = folder.path().join("disk.img.reservations");
    let image = std::fs::read(&kept).unwrap();
    std::fs::write(&kept, &image[..image.len() / 2]).unwrap();
    let error = start_with(&path).err().unwrap();
    assert!(error.contains(kept.to_str().unwrap()), "{error}");
    std::fs::write(&kept, &image).unwrap();
    assert_eq!(report(&start_with(&path).unwrap()).registrants.len(), 1);
}

/// A change that cannot be saved is refused and has no effect.
#[test]
fn what_cannot_be_saved_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let server = start_with(&path).unwrap();
    let mut one = reservations(&server, 1);
    // A folder in place of the new file.
    let obstacle = folder.path().join("disk.img.reservations.new");
    std::fs::create_dir(&obstacle).unwrap();
    let refused =
        one.register(1, (RegisterAction::Register, false), ChangePersistence::Set, (0, 1));
    assert!(
        matches!(refused, Err(HostControlError::Command { status, .. }) if status.is(Status::INTERNAL_ERROR))
    );
    assert_eq!(report(&server).registrants, []);
    std::fs::remove_dir(&obstacle).unwrap();
    register(&mut one, 1, ChangePersistence::Set);
    assert!(report(&server).persists);
}

/// Two targets share a disk and the file of its reservations. The first one gets the disk back in the same process, and
/// uses the state that the other one has written.
#[test]
fn what_another_target_has_done_holds_when_the_disk_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let export = Export {
        reservations: KeptPlace::File(folder.path().join("shared")),
        standby: true,
        ..file(1, &folder, MIB, BLOCK)
    };
    let [a, b] = [(); 2].map(|()| Server::start(config_with(vec![export.clone()])).unwrap());
    // Only a target that does not yield takes the disk.
    let hand = |from: &Server, to: &Server| {
        let yields = |yields| [subsystem(vec![Export { yields, ..export.clone() }])];
        from.reload(&yields(true)).unwrap();
        to.reload(&yields(false)).unwrap();
        let is_usable =
            |server: &Server| server.view().0.subsystems[0].namespaces[0].ana.is_usable();
        eventually("the disk changes hands", || is_usable(to) && !is_usable(from));
    };
    let mut one = reservations(&a, 1);
    register(&mut one, 1, ChangePersistence::Set);
    acquire(&mut one, WE, 1).unwrap();
    // This registration does not persist, but still belongs to the disk.
    let inaccessible = reservations(&b, 1).report(1, true, None).unwrap_err();
    assert!(inaccessible.to_string().contains("Inaccessible"), "{inaccessible}");
    hand(&a, &b);
    let mut two = reservations(&b, 2);
    register(&mut two, 2, ChangePersistence::Keep);
    two.acquire(1, AcquireAction::Preempt, WE, (2, 1)).unwrap();
    let there = two.report(1, true, None).unwrap();
    hand(&b, &a);
    let here = reservations(&a, 3).report(1, true, None).unwrap();
    assert_eq!((here.generation, here.registrants.len()), (there.generation, 1));
    assert_eq!(write(&client(&a, 1), 1), Status::RESERVATION_CONFLICT.dnr());
    assert_eq!(write(&client(&a, 2), 2), Status::SUCCESS);
}

/// Reservations that persist are in the file that the target opens at the next start, or stay where they are.
#[test]
fn reservations_move_to_a_file_with_the_same_state() {
    let folder = tempfile::tempdir().unwrap();
    let at = |place: KeptPlace| Export { reservations: place, ..file(1, &folder, MIB, BLOCK) };
    let path = |name: &str| folder.path().join(name);
    let (old, new) = (KeptPlace::File(path("old")), KeptPlace::File(path("new")));
    let server = Server::start(config_with(vec![at(old.clone())])).unwrap();
    let reload = |place: &KeptPlace| server.reload(&[subsystem(vec![at(place.clone())])]);
    // No state could be lost.
    reload(&new).unwrap();
    reload(&old).unwrap();
    let mut one = reservations(&server, 1);
    register(&mut one, 1, ChangePersistence::Set);
    for place in [&new, &KeptPlace::Nowhere, &KeptPlace::NextToStore] {
        let refused = reload(place).unwrap_err().to_string();
        assert!(refused.contains("reservations") && refused.contains("old"), "{refused}");
    }
    std::fs::copy(path("old"), path("new")).unwrap();
    acquire(&mut one, WE, 1).unwrap();
    assert!(reload(&new).is_err(), "it is an older state");
    std::fs::copy(path("old"), path("new")).unwrap();
    reload(&new).unwrap();
    one.release(1, ReleaseAction::Release, Some(WE), 1).unwrap();
    drop((one, server));
    let again = Server::start(config_with(vec![at(new)])).unwrap();
    let report = reservations(&again, 1).report(1, true, None).unwrap();
    assert_eq!((report.registrants.len(), report.registrants[0].is_holder), (1, false));
}
