//! Moves of requests between paths: each request ends exactly once, and no write is sent while an old one to the same
//! block may still be executed.

use core::time::Duration;
use proptest::prelude::*;
use roadtrain_host_proto::old_commands::{
    BlockRange, ControllerIdentity, ControllerSerial, LaneGuard, OldCommands,
};
use roadtrain_host_proto::requests::{
    RequestOutcome, RequestProperties, RequestQueue, RequestTable,
};
use roadtrain_host_proto::retry::{RetryRules, TRIES_MAX};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet};

const ENTRIES: u16 = 6;
const PATHS: usize = 3;

#[derive(Debug)]
struct MoveRequest {
    number: u64,
    block: u64,
    writes: bool,
    /// True if it may not be repeated.
    once: bool,
}

impl RequestProperties for MoveRequest {
    fn nsid(&self) -> u32 {
        1
    }

    fn has_effect(&self) -> bool {
        self.writes
    }

    fn may_repeat(&self) -> bool {
        !self.once
    }

    fn changes(&self) -> BlockRange {
        BlockRange { nsid: 1, first: self.block, count: 1 }
    }
}

/// Commands in flight on a connection, by slot, with the block that each writes.
#[derive(Default)]
struct MoveConnection {
    slots: BTreeMap<u16, (u64, Option<u64>)>,
}

impl RequestQueue<MoveRequest> for MoveConnection {
    fn room(&self) -> u32 {
        u32::from(ENTRIES - 1) - self.in_flight()
    }

    fn in_flight(&self) -> u32 {
        self.slots.len() as u32
    }

    fn submit(&mut self, _: Instant, request: &mut MoveRequest) -> Option<u16> {
        let slot = (0..ENTRIES - 1).find(|slot| !self.slots.contains_key(slot))?;
        self.slots.insert(slot, (request.number, request.writes.then_some(request.block)));
        Some(slot)
    }
}

struct MovePath {
    requests: RequestTable<MoveRequest>,
    connection: Option<MoveConnection>,
    old: OldCommands,
    /// Controllers of the path, the current one last.
    serials: Vec<ControllerSerial>,
    /// Writes of lost connections that may still be executed, with their blocks.
    late: BTreeMap<u64, u64>,
    /// Requests that were in flight on lost connections.
    lost: BTreeSet<u64>,
    /// True while requests fail because there is no connection.
    is_failing: bool,
}

impl MovePath {
    fn new(old: &OldCommands) -> Self {
        let mut requests = RequestTable::new(ENTRIES, None);
        requests.share();
        MovePath {
            requests,
            connection: None,
            old: old.clone(),
            serials: Vec::new(),
            late: BTreeMap::new(),
            lost: BTreeSet::new(),
            is_failing: false,
        }
    }

    fn attach(&mut self, now: Instant) {
        if self.connection.is_none() {
            let known = ControllerIdentity { instance: None, endpoint: 0, quiet: None };
            let serial = self.old.begin(known);
            self.serials.push(serial);
            self.is_failing = false;
            let guard = LaneGuard::new(self.old.clone(), serial);
            self.requests.attach(RetryRules::new([1, 0, 0], None), guard);
            self.requests.resume(now, self.connection.insert(MoveConnection::default()));
        }
    }

    fn detach(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let writes =
            connection.slots.values().filter_map(|&(number, block)| Some((number, block?)));
        self.late.extend(writes.clone());
        self.lost.extend(self.late.keys());
        let before = self.requests.at_risk();
        let at_risk = before + writes.count();
        self.requests.detach();
        assert_eq!(self.requests.at_risk(), at_risk);
    }

    /// Ends the lost controllers.
    fn end_lost(&mut self) {
        let is_lost = |serial: &ControllerSerial| {
            self.connection.is_none() || Some(serial) != self.serials.last()
        };
        let lost: Vec<ControllerSerial> = self.serials.iter().copied().filter(is_lost).collect();
        lost.into_iter().for_each(|serial| self.old.end(serial));
        self.late.clear();
        self.requests.release();
    }
}

#[derive(Clone, Copy, Debug)]
enum MoveStep {
    Take { path: usize, block: u64, writes: bool, once: bool },
    Answer { path: usize, which: usize, status: Status },
    Pass { ms: u64 },
    Attach { path: usize },
    Detach { path: usize },
    Release { path: usize },
    Fail { path: usize },
    Move { from: usize, to: usize },
    Divert { from: usize, to: usize },
}

fn steps() -> impl Strategy<Value = Vec<MoveStep>> {
    let statuses = [
        Status::SUCCESS,
        Status::SUCCESS,
        Status::WRITE_FAULT,
        Status::ANA_INACCESSIBLE,
        Status::COMMAND_INTERRUPTED.retry_after(1),
    ];
    let path = || 0..PATHS;
    let step = prop_oneof![
        6 => (path(), 0..4u64, 0..4u8).prop_map(|(path, block, kind)| {
            MoveStep::Take { path, block, writes: kind > 1, once: kind > 2 }
        }),
        5 => (path(), 0..8usize, 0..statuses.len()).prop_map(move |(path, which, status)| {
            MoveStep::Answer { path, which, status: statuses[status] }
        }),
        3 => (0..80u64).prop_map(|ms| MoveStep::Pass { ms }),
        2 => path().prop_map(|path| MoveStep::Attach { path }),
        2 => path().prop_map(|path| MoveStep::Detach { path }),
        1 => path().prop_map(|path| MoveStep::Release { path }),
        1 => path().prop_map(|path| MoveStep::Fail { path }),
        2 => (path(), path()).prop_map(|(from, to)| MoveStep::Move { from, to }),
        2 => (path(), path()).prop_map(|(from, to)| MoveStep::Divert { from, to }),
    ];
    prop::collection::vec(step, 1..200)
}

struct MoveWorld {
    old: OldCommands,
    paths: Vec<MovePath>,
    now: Instant,
    open: BTreeSet<u64>,
    taken: u64,
    /// Requests in flight after the last step.
    begun: BTreeSet<u64>,
}

impl MoveWorld {
    fn new() -> Self {
        let old = OldCommands::default();
        let paths = std::iter::repeat_with(|| MovePath::new(&old)).take(PATHS).collect();
        MoveWorld {
            old,
            paths,
            now: Instant(0),
            open: BTreeSet::new(),
            taken: 0,
            begun: BTreeSet::new(),
        }
    }

    fn step(&mut self, step: MoveStep) {
        let now = self.now;
        match step {
            MoveStep::Take { path, block, writes, once } => {
                let path = &mut self.paths[path];
                if path.requests.room(path.connection.as_ref()) > 0 {
                    self.taken += 1;
                    self.open.insert(self.taken);
                    let request = MoveRequest { number: self.taken, block, writes, once };
                    path.requests.take(now, request, path.connection.as_mut());
                }
            }
            MoveStep::Answer { path, which, status } => self.answer(path, which, status),
            MoveStep::Pass { ms } => self.now += Duration::from_millis(ms),
            MoveStep::Attach { path } => self.paths[path].attach(now),
            MoveStep::Detach { path } => self.paths[path].detach(),
            MoveStep::Release { path } => self.paths[path].end_lost(),
            MoveStep::Fail { path } if self.paths[path].connection.is_none() => {
                self.paths[path].is_failing = true;
                self.paths[path].requests.fail();
            }
            MoveStep::Fail { .. } => {}
            MoveStep::Move { from, to } if self.paths[from].connection.is_none() => {
                for moved in self.paths[from].requests.take_free() {
                    self.paths[to].requests.adopt(moved);
                }
            }
            MoveStep::Move { .. } => {}
            MoveStep::Divert { from, to } => {
                for moved in self.paths[from].requests.take_diverted() {
                    match from == to {
                        true => self.paths[from].requests.keep(moved),
                        false => self.paths[to].requests.adopt(moved),
                    }
                }
            }
        }
        self.end_turn();
    }

    fn answer(&mut self, path: usize, which: usize, status: Status) {
        let MovePath { requests, connection, .. } = &mut self.paths[path];
        let Some(connection) = connection else { return };
        let Some((&slot, &(number, _))) = connection.slots.iter().nth(which) else { return };
        connection.slots.remove(&slot);
        if let RequestOutcome::Ended(ended) =
            requests.end(self.now, slot, status, true).expect("there")
        {
            assert_eq!(ended.request.number, number);
            assert!(self.open.remove(&number), "request {number} has ended twice");
        }
    }

    fn end_turn(&mut self) {
        let mut known = 0;
        for path in &mut self.paths {
            if let Some(connection) = &mut path.connection {
                path.requests.resume(self.now, connection);
            }
            while let Some(failed) = path.requests.next_failed() {
                let (number, once) = (failed.request.number, failed.request.once);
                if !(path.is_failing && failed.status == Status::HOST_PATH_ERROR) {
                    assert!(once, "nothing else fails by itself");
                    assert!(path.lost.contains(&number), "request {number} was not under way");
                    assert_eq!(failed.status, Status::HOST_ABORTED);
                    let is_late = path.late.contains_key(&number);
                    assert!(
                        !is_late || path.is_failing,
                        "a later execution would change what was read"
                    );
                }
                assert!(self.open.remove(&number), "request {number} has ended twice");
            }
            known += path.requests.outstanding(path.connection.as_ref()) as usize;
        }
        assert_eq!(known, self.open.len(), "none is lost, none is given twice");
        let mut in_flight = BTreeSet::new();
        for slots in self.paths.iter().filter_map(|path| Some(&path.connection.as_ref()?.slots)) {
            for (number, _) in slots.values() {
                assert!(in_flight.insert(*number), "request {number} is under way on two paths");
            }
        }
        self.check_order();
    }
}

impl MoveWorld {
    /// Checks that no write was submitted to the block of a lost write. Writes that were submitted before the loss are
    /// concurrent with it.
    fn check_order(&mut self) {
        let late: Vec<(u64, u64)> =
            self.paths.iter().flat_map(|path| &path.late).map(|(n, block)| (*n, *block)).collect();
        for path in &mut self.paths {
            let Some(connection) = &mut path.connection else { continue };
            for &(number, block) in connection.slots.values() {
                let Some(block) = block.filter(|_| !self.begun.contains(&number)) else { continue };
                let first = late.iter().find(|(_, of)| *of == block);
                assert_eq!(first, None, "request {number} to block {block} may be overwritten");
            }
        }
        let of = |path: &MovePath| {
            path.connection.as_ref().map(|of| of.slots.values().copied().collect())
        };
        let in_flight: Vec<Vec<(u64, Option<u64>)>> = self.paths.iter().filter_map(of).collect();
        self.begun = in_flight.iter().flatten().map(|(number, _)| *number).collect();
    }
}

proptest! {
    #[test]
    fn no_write_is_retried_on_another_path_while_it_may_still_be_executed(steps in steps()) {
        let mut world = MoveWorld::new();
        for step in steps {
            world.step(step);
        }
        // Controllers that complete everything leave no request.
        for _ in 0..100 {
            for path in 0..PATHS {
                world.step(MoveStep::Attach { path });
                world.step(MoveStep::Release { path });
                world.step(MoveStep::Divert { from: path, to: path });
                for _ in 0..ENTRIES {
                    world.answer(path, 0, Status::SUCCESS);
                }
            }
            world.step(MoveStep::Pass { ms: 2000 });
        }
        prop_assert!(world.open.is_empty());
        prop_assert!(world.old.open(world.now).is_empty());
    }
}

/// Covers the hazard: a write on a silent path is retried on another one, the block is written again, and then the
/// first write is executed after all.
#[test]
fn a_write_of_a_silent_path_does_not_come_after_what_is_written_later() {
    let old = OldCommands::default();
    let (mut silent, mut other) = (MovePath::new(&old), MovePath::new(&old));
    [&mut silent, &mut other].into_iter().for_each(|path| path.attach(Instant(1)));
    let request = |number, writes| MoveRequest { number, block: number, writes, once: false };
    silent.requests.take(Instant(2), request(1, true), silent.connection.as_mut());
    silent.requests.take(Instant(2), request(2, false), silent.connection.as_mut());
    silent.detach();
    silent.requests.take(Instant(3), request(3, true), silent.connection.as_mut());
    let mut moves = |silent: &mut MovePath| -> Vec<u64> {
        let moved = silent.requests.take_free();
        let numbers = moved.iter().map(|moved| moved.request().number).collect();
        moved.into_iter().for_each(|moved| other.requests.adopt(moved));
        numbers
    };
    assert_eq!(moves(&mut silent), [2, 3], "a read, and what was never sent");
    assert_eq!(moves(&mut silent), [0; 0], "the write stays, however often moves are requested");
    silent.end_lost();
    assert_eq!(moves(&mut silent), [1]);
}

/// A request that may not be repeated waits until it can no longer be executed, and is not retried.
#[test]
fn what_may_not_be_repeated_fails_when_nothing_of_it_can_come_late() {
    let mut path = MovePath::new(&OldCommands::default());
    path.attach(Instant(1));
    let request = |number| MoveRequest { number, block: number, writes: true, once: true };
    path.requests.take(Instant(2), request(1), path.connection.as_mut());
    path.detach();
    path.requests.take(Instant(3), request(2), path.connection.as_mut());
    assert!(path.requests.next_failed().is_none() && path.requests.at_risk() == 1);
    path.end_lost();
    let failed = path.requests.next_failed().expect("its outcome is unknown");
    assert_eq!((failed.request.number, failed.status), (1, Status::HOST_ABORTED));
    path.attach(Instant(4));
    assert!(path.requests.next_failed().is_none(), "the other one was never sent");
    let slots = path.connection.as_ref().map(|c| c.slots.values().copied().collect::<Vec<_>>());
    assert_eq!(slots, Some(vec![(2, Some(2))]));
    path.detach();
    path.requests.fail();
    let failed = path.requests.next_failed().expect("the controller is lost");
    assert_eq!((failed.request.number, failed.status), (2, Status::HOST_ABORTED));
}

/// A request that times out too often fails, but only once it can no longer be executed: the program may write the
/// block again over another path.
#[test]
fn a_timed_out_request_fails_once_it_cannot_be_executed_any_more() {
    let mut path = MovePath::new(&OldCommands::default());
    let timeout = Duration::from_millis(10);
    path.requests = RequestTable::new(ENTRIES, Some(timeout));
    path.requests.share();
    let mut now = Instant(1);
    path.attach(now);
    let request = |number, writes| MoveRequest { number, block: number, writes, once: false };
    path.requests.take(now, request(1, true), path.connection.as_mut());
    path.requests.take(now, request(2, false), path.connection.as_mut());
    for _ in 0..TRIES_MAX {
        time_out(&mut path, &mut now);
        assert!(!path.requests.has_failed());
        path.end_lost();
        path.attach(now);
    }
    time_out(&mut path, &mut now);
    let failed = path.requests.next_failed().expect("a read does no harm");
    assert_eq!((failed.request.number, failed.status), (2, Status::HOST_ABORTED));
    assert!(path.requests.next_failed().is_none() && path.requests.take_free().is_empty());
    path.end_lost();
    let failed = path.requests.next_failed().expect("it can be executed no more");
    assert_eq!((failed.request.number, failed.status), (1, Status::HOST_ABORTED));
    assert_eq!(path.requests.outstanding::<MoveConnection>(None), 0);
}

/// Lets commands and their Aborts time out.
fn time_out(path: &mut MovePath, now: &mut Instant) {
    let mut aborted = 0;
    for is_over in [false, true] {
        *now += Duration::from_secs(20);
        assert_eq!(path.requests.check_overdue(*now, |_| aborted += 1), is_over);
    }
    assert!(aborted > 0);
    path.detach();
}

// ---- Requests that wait for old writes ----

fn write(number: u64, block: u64) -> MoveRequest {
    MoveRequest { number, block, writes: true, once: false }
}

/// Returns the requests in flight.
fn in_flight_numbers(path: &MovePath) -> Vec<u64> {
    let slots = path.connection.as_ref().map(|connection| connection.slots.values());
    slots.into_iter().flatten().map(|(number, _)| *number).collect()
}

/// A program whose write has failed writes the block again over any path that works.
#[test]
fn a_write_that_has_failed_is_not_executed_behind_the_next_one() {
    let old = OldCommands::default();
    let (mut lost, mut other) = (MovePath::new(&old), MovePath::new(&old));
    lost.attach(Instant(1));
    lost.requests.take(Instant(2), write(1, 7), lost.connection.as_mut());
    lost.detach();
    lost.requests.fail();
    let failed = lost.requests.next_failed().expect("it fails at once");
    assert_eq!((failed.request.number, failed.status), (1, Status::HOST_PATH_ERROR));
    for path in [&mut lost, &mut other] {
        path.attach(Instant(3));
        let read = MoveRequest { writes: false, ..write(3, 7) };
        for request in [write(2, 7), read, write(4, 8)] {
            path.requests.take(Instant(4), request, path.connection.as_mut());
        }
        assert_eq!((in_flight_numbers(path), path.requests.held()), (vec![3, 4], 1));
        path.requests.resume(Instant(5), path.connection.as_mut().expect("connected"));
        assert_eq!(in_flight_numbers(path), [3, 4], "nothing has changed");
    }
    lost.end_lost();
    for path in [&mut lost, &mut other] {
        if path.requests.held() > 0 {
            assert_eq!(path.requests.deadline(2), Some(Instant(0)), "it is to be resumed");
        }
        path.requests.resume(Instant(6), path.connection.as_mut().expect("connected"));
        assert_eq!((in_flight_numbers(path), path.requests.held()), (vec![3, 4, 2], 0));
    }
}

/// A request that waits for an old write fails no later than one that waits for a controller.
#[test]
fn what_is_held_fails_at_the_controller_loss_timeout() {
    let second = Duration::from_secs(1);
    let mut path = MovePath::new(&OldCommands::default());
    path.attach(Instant(1));
    path.requests.take(Instant(2), write(1, 7), path.connection.as_mut());
    path.detach();
    let serial = path.old.begin(ControllerIdentity { instance: None, endpoint: 0, quiet: None });
    let guard = LaneGuard::new(path.old.clone(), serial);
    path.requests.attach(RetryRules::new([0; 3], Some(second)), guard);
    let mut connection = MoveConnection::default();
    path.requests.resume(Instant(3), &mut connection);
    assert_eq!((connection.slots.len(), path.requests.held()), (0, 1), "its own retry");
    let due = path.requests.deadline(0).expect("it is held");
    assert_eq!(due, Instant(3) + second);
    path.requests.resume(due, &mut connection);
    let failed = path.requests.next_failed().expect("it has waited for long enough");
    assert_eq!((failed.request.number, failed.status), (1, Status::HOST_PATH_ERROR));
    path.requests.take(due, write(2, 7), Some(&mut connection));
    assert_eq!(path.requests.held(), 1, "its block is closed all the same");
}

/// Held requests take no room from reads, and are bounded.
#[test]
fn reads_pass_what_is_held() {
    let mut path = MovePath::new(&OldCommands::default());
    path.attach(Instant(1));
    path.requests.take(Instant(2), write(1, 7), path.connection.as_mut());
    path.detach();
    path.attach(Instant(3));
    let mut number = 1;
    while path.requests.room(path.connection.as_ref()) > 0 {
        number += 1;
        assert!(number < 100, "bounded");
        path.requests.take(Instant(4), write(number, 7), path.connection.as_mut());
        let held = path.requests.held();
        let room = path.requests.room(path.connection.as_ref());
        assert!(room == u32::from(ENTRIES - 1) || held > usize::from(ENTRIES), "{room} of {held}");
    }
    assert!(in_flight_numbers(&path).is_empty());
}
