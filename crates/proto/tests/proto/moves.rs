//! Requests that leave a path for another one: each ends exactly once, and none is tried on another path while the first
//! one may still execute it.

use core::time::Duration;
use proptest::prelude::*;
use roadtrain_proto::host::requests::{Addressed, Outcome, Queue, Requests};
use roadtrain_proto::host::retry::{RetryRules, TRIES_MAX};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet};

const ENTRIES: u16 = 6;
const PATHS: usize = 3;

#[derive(Debug)]
struct Request {
    number: u64,
    writes: bool,
    /// It is never carried out a second time.
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
}

/// What is under way over a connection, by slot.
#[derive(Default)]
struct Connection {
    slots: BTreeMap<u16, (u64, bool)>,
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
        self.slots.insert(slot, (request.number, request.writes));
        Some(slot)
    }
}

struct Path {
    requests: Requests<Request>,
    connection: Option<Connection>,
    /// Writes that lost connections may still bring about.
    late: BTreeSet<u64>,
    /// All that were under way over connections that are lost.
    lost: BTreeSet<u64>,
}

impl Path {
    fn new() -> Self {
        let mut requests = Requests::new(ENTRIES, None);
        requests.share();
        Path { requests, connection: None, late: BTreeSet::new(), lost: BTreeSet::new() }
    }

    fn attach(&mut self, now: Instant) {
        if self.connection.is_none() {
            self.late.clear(); // the condition of a new connection
            self.requests.attach(RetryRules::new([1, 0, 0], None));
            self.requests.resume(now, self.connection.insert(Connection::default()));
        }
    }

    fn detach(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let writes = connection.slots.into_values().filter(|(_, writes)| *writes);
        self.late.extend(writes.map(|(number, _)| number));
        self.lost.extend(&self.late);
        self.requests.detach();
        assert_eq!(self.requests.at_risk(), self.late.len());
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take { path: usize, writes: bool, once: bool },
    Answer { path: usize, which: usize, status: Status },
    Pass { ms: u64 },
    Attach { path: usize },
    Detach { path: usize },
    Release { path: usize },
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
        6 => (path(), 0..4u8).prop_map(|(path, kind)| {
            Step::Take { path, writes: kind > 1, once: kind > 2 }
        }),
        5 => (path(), 0..8usize, 0..statuses.len()).prop_map(move |(path, which, status)| {
            Step::Answer { path, which, status: statuses[status] }
        }),
        3 => (0..80u64).prop_map(|ms| Step::Pass { ms }),
        2 => path().prop_map(|path| Step::Attach { path }),
        2 => path().prop_map(|path| Step::Detach { path }),
        1 => path().prop_map(|path| Step::Release { path }),
        2 => (path(), path()).prop_map(|(from, to)| Step::Move { from, to }),
        2 => (path(), path()).prop_map(|(from, to)| Step::Divert { from, to }),
    ];
    prop::collection::vec(step, 1..200)
}

struct World {
    paths: Vec<Path>,
    now: Instant,
    open: BTreeSet<u64>,
    taken: u64,
}

impl World {
    fn new() -> Self {
        let paths = std::iter::repeat_with(Path::new).take(PATHS).collect();
        World { paths, now: Instant(0), open: BTreeSet::new(), taken: 0 }
    }

    fn step(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Take { path, writes, once } => {
                let path = &mut self.paths[path];
                if path.requests.room(path.connection.as_ref()) > 0 {
                    self.taken += 1;
                    self.open.insert(self.taken);
                    let request = Request { number: self.taken, writes, once };
                    path.requests.take(now, request, path.connection.as_mut());
                }
            }
            Step::Answer { path, which, status } => self.answer(path, which, status),
            Step::Pass { ms } => self.now += Duration::from_millis(ms),
            Step::Attach { path } => self.paths[path].attach(now),
            Step::Detach { path } => self.paths[path].detach(),
            Step::Release { path } if self.paths[path].connection.is_none() => {
                self.paths[path].late.clear();
                self.paths[path].requests.release();
            }
            Step::Release { .. } => {}
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
                let number = failed.request.number;
                assert!(failed.request.once, "nothing else fails by itself");
                assert!(path.lost.contains(&number), "request {number} was not under way");
                assert_eq!(failed.status, Status::HOST_ABORTED);
                assert!(!path.late.contains(&number), "who looks now sees what will change");
                assert!(self.open.remove(&number), "request {number} has ended twice");
            }
            known += path.requests.outstanding(path.connection.as_ref()) as usize;
        }
        assert_eq!(known, self.open.len(), "none is lost, none is there twice");
        let mut under_way = BTreeSet::new();
        for slots in self.paths.iter().filter_map(|path| Some(&path.connection.as_ref()?.slots)) {
            for &(number, _) in slots.values() {
                assert!(under_way.insert(number), "request {number} is under way on two paths");
                let is_late = self.paths.iter().any(|path| path.late.contains(&number));
                assert!(!is_late, "request {number} may be executed again later");
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_is_tried_elsewhere_while_it_may_still_be_executed(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        // With controllers that answer everything nothing is left.
        for _ in 0..100 {
            for path in 0..PATHS {
                world.step(Step::Attach { path });
                world.step(Step::Divert { from: path, to: path });
                for _ in 0..ENTRIES {
                    world.answer(path, 0, Status::SUCCESS);
                }
            }
            world.step(Step::Pass { ms: 2000 });
        }
        prop_assert!(world.open.is_empty());
    }
}

/// The hazard: a write on a path that has fallen silent is tried on another one, the block is written again, and then
/// the first write is executed after all.
#[test]
fn a_write_of_a_silent_path_does_not_come_after_what_is_written_later() {
    let (mut silent, mut other) = (Path::new(), Path::new());
    [&mut silent, &mut other].into_iter().for_each(|path| path.attach(Instant(1)));
    let request = |number, writes| Request { number, writes, once: false };
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
    silent.requests.release();
    assert_eq!(moves(&mut silent), [1]);
}

/// What may not be carried out twice waits until it cannot be any more, and is not tried again.
#[test]
fn what_may_not_be_repeated_fails_when_nothing_of_it_can_come_late() {
    let mut path = Path::new();
    path.attach(Instant(1));
    let request = |number| Request { number, writes: true, once: true };
    path.requests.take(Instant(2), request(1), path.connection.as_mut());
    path.detach();
    path.requests.take(Instant(3), request(2), path.connection.as_mut());
    assert!(path.requests.next_failed().is_none() && path.requests.at_risk() == 1);
    path.late.clear();
    path.requests.release();
    let failed = path.requests.next_failed().expect("nobody knows whether it was carried out");
    assert_eq!((failed.request.number, failed.status), (1, Status::HOST_ABORTED));
    path.attach(Instant(4));
    assert!(path.requests.next_failed().is_none(), "the other one was never sent");
    let slots = path.connection.as_ref().map(|c| c.slots.values().copied().collect::<Vec<_>>());
    assert_eq!(slots, Some(vec![(2, true)]));
    path.detach();
    path.requests.fail();
    let failed = path.requests.next_failed().expect("the controller is lost");
    assert_eq!((failed.request.number, failed.status), (2, Status::HOST_ABORTED));
}

/// What nobody has answered too often is given up, but not before nothing of it can come late: whoever hears that it has
/// failed may write the block again, over another path.
#[test]
fn what_is_given_up_fails_when_nothing_of_it_can_come_late() {
    let mut path = Path::new();
    let timeout = Duration::from_millis(10);
    path.requests = Requests::new(ENTRIES, Some(timeout));
    path.requests.share();
    let mut now = Instant(1);
    path.attach(now);
    let request = |number, writes| Request { number, writes, once: false };
    path.requests.take(now, request(1, true), path.connection.as_mut());
    path.requests.take(now, request(2, false), path.connection.as_mut());
    for _ in 0..TRIES_MAX {
        give_up(&mut path, &mut now);
        assert!(!path.requests.has_failed());
        path.attach(now);
    }
    give_up(&mut path, &mut now);
    let failed = path.requests.next_failed().expect("a read does no harm");
    assert_eq!((failed.request.number, failed.status), (2, Status::HOST_ABORTED));
    assert!(path.requests.next_failed().is_none() && path.requests.take_free().is_empty());
    path.requests.release();
    let failed = path.requests.next_failed().expect("it can be executed no more");
    assert_eq!((failed.request.number, failed.status), (1, Status::HOST_ABORTED));
    assert_eq!(path.requests.outstanding::<Connection>(None), 0);
}

/// Nobody answers, neither the commands nor their aborts.
fn give_up(path: &mut Path, now: &mut Instant) {
    let mut aborted = 0;
    for is_over in [false, true] {
        *now += Duration::from_secs(20);
        assert_eq!(path.requests.check_overdue(*now, |_| aborted += 1), is_over);
    }
    assert!(aborted > 0);
    path.detach();
}
