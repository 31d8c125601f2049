//! Moves of requests between paths: each request ends exactly once, and no write is sent while an old one to the same
//! block may still be executed.

use core::time::Duration;
use proptest::prelude::*;
use roadtrain_host_proto::old_commands::{
    BlockRange, ControllerIdentity, ControllerSerial, LaneGuard, OldCommands,
};
use roadtrain_host_proto::requests::{Addressed, Outcome, Queue, Requests};
use roadtrain_host_proto::retry::{RetryRules, TRIES_MAX};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet};

const ENTRIES: u16 = 6;
const PATHS: usize = 3;

#[derive(Debug)]
struct Request {
    number: u64,
    block: u64,
    writes: bool,
    /// True if it may not be repeated.
    once: bool,
}

impl Addressed for Request {
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
struct Connection {
    slots: BTreeMap<u16, (u64, Option<u64>)>,
}

impl Queue<Request> for Connection {
    fn room(&self) -> u32 {
        u32::from(ENTRIES - 1) - self.in_flight()
    }

    fn in_flight(&self) -> u32 {
        self.slots.len() as u32
    }

    fn submit(&mut self, _: Instant, request: &mut Request) -> Option<u16> {
        let slot = (0..ENTRIES - 1).find(|slot| !self.slots.contains_key(slot))?;
        self.slots.insert(slot, (request.number, request.writes.then_some(request.block)));
        Some(slot)
    }
}

struct Path {
    requests: Requests<Request>,
    connection: Option<Connection>,
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

impl Path {
    fn new(old: &OldCommands) -> Self {
        let mut requests = Requests::new(ENTRIES, None);
        requests.share();
        Path {
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
            self.requests.resume(now, self.connection.insert(Connection::default()));
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
enum Step {
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

fn steps() -> impl Strategy<Value = Vec<Step>> {
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
            Step::Take { path, block, writes: kind > 1, once: kind > 2 }
        }),
        5 => (path(), 0..8usize, 0..statuses.len()).prop_map(move |(path, which, status)| {
            Step::Answer { path, which, status: statuses[status] }
        }),
        3 => (0..80u64).prop_map(|ms| Step::Pass { ms }),
        2 => path().prop_map(|path| Step::Attach { path }),
        2 => path().prop_map(|path| Step::Detach { path }),
        1 => path().prop_map(|path| Step::Release { path }),
        1 => path().prop_map(|path| Step::Fail { path }),
        2 => (path(), path()).prop_map(|(from, to)| Step::Move { from, to }),
        2 => (path(), path()).prop_map(|(from, to)| Step::Divert { from, to }),
    ];
    prop::collection::vec(step, 1..200)
}

struct World {
    old: OldCommands,
    paths: Vec<Path>,
    now: Instant,
    open: BTreeSet<u64>,
    taken: u64,
    /// Requests in flight after the last step.
    begun: BTreeSet<u64>,
}

impl World {
    fn new() -> Self {
        let old = OldCommands::default();
        let paths = std::iter::repeat_with(|| Path::new(&old)).take(PATHS).collect();
        World {
            old,
            paths,
            now: Instant(0),
            open: BTreeSet::new(),
            taken: 0,
            begun: BTreeSet::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Take { path, block, writes, once } => {
                let path = &mut self.paths[path];
                if path.requests.room(path.connection.as_ref()) > 0 {
                    self.taken += 1;
                    self.open.insert(self.taken);
                    let request = Request { number: self.taken, block, writes, once };
                    path.requests.take(now, request, path.connection.as_mut());
                }
            }
            Step::Answer { path, which, status } => self.answer(path, which, status),
            Step::Pass { ms } => self.now += Duration::from_millis(ms),
            Step::Attach { path } => self.paths[path].attach(now),
            Step::Detach { path } => self.paths[path].detach(),
            Step::Release { path } => self.paths[path].end_lost(),
            Step::Fail { path } if self.paths[path].connection.is_none() => {
                self.paths[path].is_failing = true;
                self.paths[path].requests.fail();
            }
            Step::Fail { .. } => {}
            Step::Move { from, to } if self.paths[from].connection.is_none() => {
                for moved in self.paths[from].requests.take_free() {
                    self.paths[to].requests.adopt(moved);
                }
            }
            Step::Move { .. } => {}
            Step::Divert { from, to } => {
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
        let Path { requests, connection, .. } = &mut self.paths[path];
        let Some(connection) = connection else { return };
        let Some((&slot, &(number, _))) = connection.slots.iter().nth(which) else { return };
        connection.slots.remove(&slot);
        if let Outcome::Ended(ended) = requests.end(self.now, slot, status, true).expect("there") {
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
                    assert!(!is_late || path.is_failing, "who looks now sees what will change");
                }
                assert!(self.open.remove(&number), "request {number} has ended twice");
            }
            known += path.requests.outstanding(path.connection.as_ref()) as usize;
        }
        assert_eq!(known, self.open.len(), "none is lost, none is there twice");
        let mut under_way = BTreeSet::new();
        for slots in self.paths.iter().filter_map(|path| Some(&path.connection.as_ref()?.slots)) {
            for (number, _) in slots.values() {
                assert!(under_way.insert(*number), "request {number} is under way on two paths");
            }
        }
        self.check_order();
    }
}

impl World {
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
        let of =
            |path: &Path| path.connection.as_ref().map(|of| of.slots.values().copied().collect());
        let under_way: Vec<Vec<(u64, Option<u64>)>> = self.paths.iter().filter_map(of).collect();
        self.begun = under_way.iter().flatten().map(|(number, _)| *number).collect();
    }
}

proptest! {
    #[test]
    fn nothing_is_tried_elsewhere_while_it_may_still_be_executed(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        // Controllers that complete everything leave no request.
        for _ in 0..100 {
            for path in 0..PATHS {
                world.step(Step::Attach { path });
                world.step(Step::Release { path });
                world.step(Step::Divert { from: path, to: path });
                for _ in 0..ENTRIES {
                    world.answer(path, 0, Status::SUCCESS);
                }
            }
            world.step(Step::Pass { ms: 2000 });
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
    let (mut silent, mut other) = (Path::new(&old), Path::new(&old));
    [&mut silent, &mut other].into_iter().for_each(|path| path.attach(Instant(1)));
    let request = |number, writes| Request { number, block: number, writes, once: false };
    silent.requests.take(Instant(2), request(1, true), silent.connection.as_mut());
    silent.requests.take(Instant(2), request(2, false), silent.connection.as_mut());
    silent.detach();
    silent.requests.take(Instant(3), request(3, true), silent.connection.as_mut());
    let mut moves = |silent: &mut Path| -> Vec<u64> {
        let moved = silent.requests.take_free();
        let numbers = moved.iter().map(|moved| moved.request().number).collect();
        moved.into_iter().for_each(|moved| other.requests.adopt(moved));
        numbers
    };
    assert_eq!(moves(&mut silent), [2, 3], "a read, and what was never sent");
    assert_eq!(moves(&mut silent), [0; 0], "the write stays, however often it is asked for");
    silent.end_lost();
    assert_eq!(moves(&mut silent), [1]);
}

/// A request that may not be repeated waits until it can no longer be executed, and is not retried.
#[test]
fn what_may_not_be_repeated_fails_when_nothing_of_it_can_come_late() {
    let mut path = Path::new(&OldCommands::default());
    path.attach(Instant(1));
    let request = |number| Request { number, block: number, writes: true, once: true };
    path.requests.take(Instant(2), request(1), path.connection.as_mut());
    path.detach();
    path.requests.take(Instant(3), request(2), path.connection.as_mut());
    assert!(path.requests.next_failed().is_none() && path.requests.at_risk() == 1);
    path.end_lost();
    let failed = path.requests.next_failed().expect("nobody knows whether it was carried out");
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
fn what_is_given_up_fails_when_nothing_of_it_can_come_late() {
    let mut path = Path::new(&OldCommands::default());
    let timeout = Duration::from_millis(10);
    path.requests = Requests::new(ENTRIES, Some(timeout));
    path.requests.share();
    let mut now = Instant(1);
    path.attach(now);
    let request = |number, writes| Request { number, block: number, writes, once: false };
    path.requests.take(now, request(1, true), path.connection.as_mut());
    path.requests.take(now, request(2, false), path.connection.as_mut());
    for _ in 0..TRIES_MAX {
        give_up(&mut path, &mut now);
        assert!(!path.requests.has_failed());
        path.end_lost();
        path.attach(now);
    }
    give_up(&mut path, &mut now);
    let failed = path.requests.next_failed().expect("a read does no harm");
    assert_eq!((failed.request.number, failed.status), (2, Status::HOST_ABORTED));
    assert!(path.requests.next_failed().is_none() && path.requests.take_free().is_empty());
    path.end_lost();
    let failed = path.requests.next_failed().expect("it can be executed no more");
    assert_eq!((failed.request.number, failed.status), (1, Status::HOST_ABORTED));
    assert_eq!(path.requests.outstanding::<Connection>(None), 0);
}

/// Lets commands and their Aborts time out.
fn give_up(path: &mut Path, now: &mut Instant) {
    let mut aborted = 0;
    for is_over in [false, true] {
        *now += Duration::from_secs(20);
        assert_eq!(path.requests.check_overdue(*now, |_| aborted += 1), is_over);
    }
    assert!(aborted > 0);
    path.detach();
}

// ---- Requests that wait for old writes ----

fn write(number: u64, block: u64) -> Request {
    Request { number, block, writes: true, once: false }
}

/// Returns the requests in flight.
fn under_way(path: &Path) -> Vec<u64> {
    let slots = path.connection.as_ref().map(|connection| connection.slots.values());
    slots.into_iter().flatten().map(|(number, _)| *number).collect()
}

/// A program whose write has failed writes the block again over any path that works.
#[test]
fn a_write_that_has_failed_is_not_executed_behind_the_next_one() {
    let old = OldCommands::default();
    let (mut lost, mut other) = (Path::new(&old), Path::new(&old));
    lost.attach(Instant(1));
    lost.requests.take(Instant(2), write(1, 7), lost.connection.as_mut());
    lost.detach();
    lost.requests.fail();
    let failed = lost.requests.next_failed().expect("it fails at once");
    assert_eq!((failed.request.number, failed.status), (1, Status::HOST_PATH_ERROR));
    for path in [&mut lost, &mut other] {
        path.attach(Instant(3));
        let read = Request { writes: false, ..write(3, 7) };
        for request in [write(2, 7), read, write(4, 8)] {
            path.requests.take(Instant(4), request, path.connection.as_mut());
        }
        assert_eq!((under_way(path), path.requests.held()), (vec![3, 4], 1));
        path.requests.resume(Instant(5), path.connection.as_mut().expect("connected"));
        assert_eq!(under_way(path), [3, 4], "nothing has changed");
    }
    lost.end_lost();
    for path in [&mut lost, &mut other] {
        if path.requests.held() > 0 {
            assert_eq!(path.requests.deadline(2), Some(Instant(0)), "it is to be resumed");
        }
        path.requests.resume(Instant(6), path.connection.as_mut().expect("connected"));
        assert_eq!((under_way(path), path.requests.held()), (vec![3, 4, 2], 0));
    }
}

/// A request that waits for an old write fails no later than one that waits for a controller.
#[test]
fn what_is_held_fails_at_the_controller_loss_timeout() {
    let second = Duration::from_secs(1);
    let mut path = Path::new(&OldCommands::default());
    path.attach(Instant(1));
    path.requests.take(Instant(2), write(1, 7), path.connection.as_mut());
    path.detach();
    let serial = path.old.begin(ControllerIdentity { instance: None, endpoint: 0, quiet: None });
    let guard = LaneGuard::new(path.old.clone(), serial);
    path.requests.attach(RetryRules::new([0; 3], Some(second)), guard);
    let mut connection = Connection::default();
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
    let mut path = Path::new(&OldCommands::default());
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
    assert!(under_way(&path).is_empty());
}
