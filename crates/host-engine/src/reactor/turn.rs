//! Operations of a front in its part of a turn.

use super::{FdWatch, HostReactor, KEY_MASK, event};
use crate::api::{
    Allocation, AllocationQuery, Class, FrontTurn, Interest, IoCompletion, IoRequest, LaneId,
    UringCommand,
};
use crate::lane::HostLane;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::event::mark;
use std::os::fd::RawFd;

pub(super) struct TurnView<'a> {
    pub(super) reactor: &'a mut HostReactor,
}

impl FrontTurn for TurnView<'_> {
    fn now(&self) -> Instant {
        self.reactor.shared.now
    }

    fn next_completion(&mut self) -> Option<IoCompletion> {
        let completion = self.reactor.shared.completions.pop_front()?;
        self.reactor.errors += u64::from(!completion.status.is_success());
        self.reactor.own.ended(&completion);
        Some(completion)
    }

    fn room(&self, lane: LaneId) -> u32 {
        if self.reactor.paths.are_several() {
            return self.reactor.room_of_paths(lane.0 as u32);
        }
        self.reactor.lanes.get(lane.0 as u32).map_or(0, HostLane::room)
    }

    fn submit(&mut self, lane: LaneId, request: IoRequest) -> Result<(), IoRequest> {
        let reactor = &mut *self.reactor;
        let mut index = lane.0 as u32;
        if reactor.paths.are_several() {
            let Some(at) = reactor.path_for(index, &request) else { return Err(request) };
            index = at;
        }
        let Some(mut lane) = reactor.lanes.get_mut(index) else { return Err(request) };
        if lane.class_of(&request) == Class::Latency {
            index = reactor.critical_lane(index);
            let Some(other) = reactor.lanes.get_mut(index) else { return Err(request) };
            lane = other;
        }
        lane.submit(request, &mut reactor.shared)?;
        if lane.is_due(reactor.shared.now) {
            reactor.use_lane(index, HostLane::flush);
        }
        Ok(())
    }

    fn watch(&mut self, fd: RawFd, interest: Interest, key: u64) {
        let reactor = &mut *self.reactor;
        reactor.watch_serial = reactor.watch_serial.wrapping_add(1);
        let index = reactor.watch_serial;
        let user_data = mark(event::WATCH, index, 0);
        let events = match interest {
            Interest::Readable => libc::POLLIN,
            Interest::Writable => libc::POLLOUT,
        };
        reactor.watches.push(FdWatch { key, user_data });
        event::poll(&mut reactor.ring, fd, events, user_data);
    }

    fn unwatch(&mut self, key: u64) {
        let reactor = &mut *self.reactor;
        for watch in reactor.watches.extract_if(.., |watch| watch.key == key) {
            event::forget(&mut reactor.ring, watch.user_data);
        }
        reactor.ready.retain(|&ready| ready != key);
    }

    fn next_ready(&mut self) -> Option<u64> {
        self.reactor.ready.pop_front()
    }

    unsafe fn command(&mut self, command: &UringCommand, key: u64) {
        let reactor = &mut *self.reactor;
        let user_data = u64::from(event::COMMAND) << 56 | (key & KEY_MASK);
        // SAFETY: passed on to the front; it is not dropped before its commands have come back.
        if unsafe { reactor.ring.command(command, user_data) } {
            reactor.commands += 1;
        } else {
            reactor.answers.push_back((key & KEY_MASK, -libc::EOPNOTSUPP));
        }
    }

    fn next_command(&mut self) -> Option<(u64, i32)> {
        self.reactor.answers.pop_front()
    }

    fn query_allocation(&mut self, query: AllocationQuery, key: u64) -> bool {
        self.reactor.query_allocation(query, key)
    }

    fn next_allocation(&mut self) -> Option<(u64, Option<Allocation>)> {
        self.reactor.allocation_results.next()
    }

    fn stop(&mut self) {
        self.reactor.stop = true;
    }

    fn stopping(&self) -> bool {
        self.reactor.stopping
    }
}
