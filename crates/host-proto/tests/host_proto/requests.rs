//! Requests of a lane: each ends exactly once, in whatever order connections open and close.

use core::time::Duration;
use proptest::prelude::*;
use roadtrain_host_proto::namespace_identity::BarredNsids;
use roadtrain_host_proto::old_commands::LaneGuard;
use roadtrain_host_proto::requests::{
    RequestOutcome, RequestProperties, RequestQueue, RequestTable,
};
use roadtrain_host_proto::retry::RetryRules;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet};

const ENTRIES: u16 = 6;
const TIMEOUT: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct NumberedRequest {
    number: u64,
    nsid: u32,
}

impl RequestProperties for NumberedRequest {
    fn nsid(&self) -> u32 {
        self.nsid
    }
}

/// Commands in flight on a connection, by slot, and all that were ever submitted on it.
#[derive(Default)]
struct RequestConnection {
    slots: BTreeMap<u16, (u64, u32)>,
    submitted: Vec<u64>,
}

impl RequestQueue<NumberedRequest> for RequestConnection {
    fn room(&self) -> u32 {
        u32::from(ENTRIES - 1) - self.in_flight()
    }

    fn in_flight(&self) -> u32 {
        self.slots.len() as u32
    }

    fn submit(&mut self, _: Instant, request: &mut NumberedRequest) -> Option<u16> {
        let slot = (0..ENTRIES - 1).find(|slot| !self.slots.contains_key(slot))?;
        self.slots.insert(slot, (request.number, request.nsid));
        self.submitted.push(request.number);
        Some(slot)
    }
}

#[derive(Clone, Copy, Debug)]
enum RequestStep {
    Take { nsid: u32 },
    Answer { which: usize, status: Status, intact: bool },
    Pass { ms: u64 },
    Attach,
    Detach,
    Fail,
    SetBarred { nsids: &'static [u32] },
}

fn steps() -> impl Strategy<Value = Vec<RequestStep>> {
    let statuses = [
        Status::SUCCESS,
        Status::SUCCESS,
        Status::WRITE_FAULT,
        Status::NAMESPACE_NOT_READY,
        Status::COMMAND_INTERRUPTED.retry_after(1),
        Status::ABORT_REQUESTED,
    ];
    let answer = (0..8usize, 0..statuses.len(), any::<bool>());
    let step = prop_oneof![
        6 => (1..3u32).prop_map(|nsid| RequestStep::Take { nsid }),
        5 => answer.prop_map(move |(which, status, intact)| {
            RequestStep::Answer { which, status: statuses[status], intact }
        }),
        3 => (0..80u64).prop_map(|ms| RequestStep::Pass { ms }),
        2 => Just(RequestStep::Attach),
        1 => Just(RequestStep::Detach),
        1 => Just(RequestStep::Fail),
        1 => Just(RequestStep::SetBarred { nsids: &[2] }),
        1 => Just(RequestStep::SetBarred { nsids: &[] }),
    ];
    prop::collection::vec(step, 1..200)
}

/// Lane with its requests, and the numbers of those that have not ended.
struct RequestLane {
    requests: RequestTable<NumberedRequest>,
    connection: Option<RequestConnection>,
    now: Instant,
    open: BTreeSet<u64>,
    /// Requests that were retried; others may overtake them.
    rested: BTreeSet<u64>,
    taken: u64,
    barred: &'static [u32],
}

impl RequestLane {
    fn new() -> Self {
        RequestLane {
            requests: RequestTable::new(ENTRIES, Some(TIMEOUT)),
            connection: None,
            now: Instant(0),
            open: BTreeSet::new(),
            rested: BTreeSet::new(),
            taken: 0,
            barred: &[],
        }
    }

    fn ended(&mut self, number: u64) {
        assert!(self.open.remove(&number), "request {number} has ended twice");
    }

    fn step(&mut self, step: RequestStep) {
        match step {
            RequestStep::Take { nsid } if self.requests.room(self.connection.as_ref()) > 0 => {
                self.taken += 1;
                self.open.insert(self.taken);
                let request = NumberedRequest { number: self.taken, nsid };
                self.requests.take(self.now, request, self.connection.as_mut());
            }
            RequestStep::Take { .. } => {}
            RequestStep::Answer { which, status, intact } => self.answer(which, status, intact),
            RequestStep::Pass { ms } => self.now += Duration::from_millis(ms),
            RequestStep::Attach => self.attach(),
            RequestStep::Detach => self.detach(),
            RequestStep::Fail => {
                self.detach();
                self.requests.fail();
                self.take_failures();
                assert!(self.open.is_empty(), "nothing waits for a controller that is lost");
            }
            RequestStep::SetBarred { nsids } => {
                self.barred = nsids;
                self.requests.set_barred(BarredNsids::only(nsids));
            }
        }
    }

    fn answer(&mut self, which: usize, status: Status, intact: bool) {
        let Some(connection) = &mut self.connection else { return };
        let Some((&slot, &(number, nsid))) = connection.slots.iter().nth(which) else { return };
        assert_eq!(self.requests.get(slot).map(|request| request.number), Some(number));
        connection.slots.remove(&slot);
        match self.requests.end(self.now, slot, status, intact).expect("it was under way") {
            RequestOutcome::Ended(ended) => {
                assert_eq!(ended.request.number, number);
                assert!(!ended.status.is_success() || intact, "success without data");
                self.ended(number);
            }
            RequestOutcome::Rests { nsid: of, .. } => {
                assert_eq!(of, nsid);
                self.rested.insert(number);
                assert!(!status.is_success() || !intact, "success");
                assert!(!self.barred.contains(&nsid), "another namespace is there");
            }
        }
        assert!(self.requests.end(self.now, slot, status, intact).is_none(), "answered twice");
    }

    fn attach(&mut self) {
        if self.connection.is_some() {
            return;
        }
        self.requests.attach(RetryRules::new([1, 0, 0], None), LaneGuard::default());
        let connection = self.connection.insert(RequestConnection::default());
        self.requests.resume(self.now, connection);
        let numbers = connection.submitted.iter().filter(|number| !self.rested.contains(number));
        assert!(numbers.is_sorted(), "out of order: {:?}", connection.submitted);
        assert_eq!(self.requests.waiting(), 0, "a new connection has room for all that wait");
    }

    fn detach(&mut self) {
        self.connection = None;
        self.requests.detach();
    }

    fn take_failures(&mut self) {
        while let Some(ended) = self.requests.next_failed() {
            assert!(!ended.status.is_success());
            self.ended(ended.request.number);
        }
    }

    fn end_turn(&mut self) {
        if let Some(connection) = &mut self.connection {
            self.requests.resume(self.now, connection);
            assert!(
                connection.slots.values().all(|(number, _)| self.open.contains(number)),
                "a command of a request that has ended"
            );
        }
        if self.connection.is_some()
            && self.requests.may_be_overdue(self.now)
            && self.requests.check_overdue(self.now, |_| {})
        {
            self.detach();
        }
        self.take_failures();
        let known = self.requests.outstanding(self.connection.as_ref()) as usize;
        assert_eq!(known, self.open.len(), "bounded, and none is lost");
        assert!(known < usize::from(ENTRIES));
    }
}

proptest! {
    #[test]
    fn each_request_ends_exactly_once(steps in steps()) {
        let mut lane = RequestLane::new();
        for step in steps {
            lane.step(step);
            lane.end_turn();
        }
        // A controller that completes everything leaves no request.
        lane.step(RequestStep::SetBarred { nsids: &[] });
        for _ in 0..100 {
            lane.attach();
            lane.step(RequestStep::Pass { ms: 200 });
            lane.end_turn();
            for _ in 0..ENTRIES {
                lane.answer(0, Status::SUCCESS, true);
            }
        }
        prop_assert!(lane.open.is_empty(), "{:?}", lane.requests);
    }
}

/// A queue pair that has ended takes no command, though it has room.
#[test]
fn a_queue_that_takes_nothing_is_left_alone() {
    struct EndedQueue;
    impl RequestQueue<NumberedRequest> for EndedQueue {
        fn room(&self) -> u32 {
            3
        }
        fn in_flight(&self) -> u32 {
            0
        }
        fn submit(&mut self, _: Instant, _: &mut NumberedRequest) -> Option<u16> {
            None
        }
    }
    let mut requests = RequestTable::new(ENTRIES, None);
    for number in 1..=3 {
        let none: Option<&mut EndedQueue> = None;
        assert!(!requests.take(Instant(0), NumberedRequest { number, nsid: 1 }, none));
    }
    requests.resume(Instant(0), &mut EndedQueue);
    let mut connection = RequestConnection::default();
    requests.resume(Instant(0), &mut connection);
    assert_eq!(connection.submitted, [1, 2, 3]);
}
