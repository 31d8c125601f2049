//! Exclusive access of commands to their blocks, over all reactors of a target. [`roadtrain_target_proto::exclusion`]
//! decides which commands wait; this module carries the notices between reactors.

use crate::pool::SimBuffer;
use roadtrain_proto::op::{ByteRange, StoreOperation};
use roadtrain_target_proto::exclusion::{Gates, RangeLocks};
use std::collections::BTreeMap;

/// Notice to reactors.
#[derive(Clone, Copy, Debug)]
pub enum ExclusionNotice {
    /// To all: this command gets exclusive access to its range.
    Close(u64),
    /// To all: the range of this lock is open.
    Open(u64),
    /// To the reactor of this command: all have acknowledged.
    Alone(u64),
}

/// A command that requests exclusive access.
struct ExclusionRequest {
    reactor: usize,
    lock: u64,
    range: ByteRange,
    /// Number of reactors that have not acknowledged.
    missing: usize,
}

/// Ranges with exclusive access, by command number.
pub(crate) struct Exclusion {
    locks: RangeLocks<u64>,
    /// Gates by reactor; acknowledgements are numbers of commands.
    gates: Vec<Gates<(), u64>>,
    wanted: BTreeMap<u64, ExclusionRequest>,
    /// Writes that are held back.
    held: BTreeMap<u64, (StoreOperation, Option<SimBuffer>)>,
    /// Notices to send.
    notices: Vec<ExclusionNotice>,
}

impl Exclusion {
    /// Makes the state without exclusive commands, for this number of reactors.
    pub(crate) fn new(reactors: usize) -> Self {
        Exclusion {
            locks: RangeLocks::default(),
            gates: (0..reactors).map(|_| Gates::default()).collect(),
            wanted: BTreeMap::new(),
            held: BTreeMap::new(),
            notices: Vec::new(),
        }
    }

    /// Takes the notices to send, in their order.
    pub(crate) fn take_notices(&mut self) -> Vec<ExclusionNotice> {
        core::mem::take(&mut self.notices)
    }

    /// Returns the reactor of a command that requests exclusive access.
    pub(crate) fn reactor_of(&self, command: u64) -> Option<usize> {
        self.wanted.get(&command).map(|wanted| wanted.reactor)
    }

    /// Requests exclusive access to a range for a command of a reactor.
    pub(crate) fn enter(&mut self, command: u64, reactor: usize, range: ByteRange) {
        let (lock, is_held) = self.locks.lock(range, command);
        let missing = self.gates.len();
        self.wanted.insert(command, ExclusionRequest { reactor, lock, range, missing });
        self.notices.extend(is_held.then_some(ExclusionNotice::Close(command)));
    }

    /// Lets a command continue without exclusive access, as a deliberate fault.
    pub(crate) fn pretend(&mut self, command: u64, reactor: usize, range: ByteRange) {
        self.wanted.insert(command, ExclusionRequest { reactor, lock: 0, range, missing: 0 });
        self.notices.push(ExclusionNotice::Alone(command));
    }

    /// Returns the range of an exclusive command.
    pub(crate) fn range(&self, command: u64) -> Option<ByteRange> {
        self.wanted.get(&command).map(|wanted| wanted.range)
    }

    /// Closes the range of a command at a reactor. `in_flight` are the commands in flight there that change it.
    pub(crate) fn close(&mut self, command: u64, reactor: usize, in_flight: Vec<u64>) {
        let Some(wanted) = self.wanted.get(&command) else { return };
        let owner = (wanted.reactor == reactor).then_some(command as u32);
        let in_flight = in_flight.into_iter().map(|command| command as u32).collect();
        let gate = (wanted.lock, (), wanted.range);
        let acknowledged = self.gates[reactor].close(gate, owner, in_flight, command);
        acknowledged.into_iter().for_each(|command| self.acknowledged(command));
    }

    fn acknowledged(&mut self, command: u64) {
        let Some(wanted) = self.wanted.get_mut(&command) else { return };
        wanted.missing -= 1;
        self.notices.extend((wanted.missing == 0).then_some(ExclusionNotice::Alone(command)));
    }

    /// Holds back the next operation of a command while its blocks are closed; returns it if they are open.
    pub(crate) fn hold_back(
        &mut self,
        (command, reactor): (u64, usize),
        (op, buffer): (StoreOperation, Option<SimBuffer>),
    ) -> Option<(StoreOperation, Option<SimBuffer>)> {
        let bytes = buffer.as_deref().map_or(0, <[u8]>::len) as u64;
        let gates = &mut self.gates[reactor];
        let holds = |range| gates.holds(&(), &range, Some(command as u32));
        if !op.changed(bytes).is_some_and(holds) {
            return Some((op, buffer));
        }
        self.held.insert(command, (op, buffer));
        None
    }

    /// True if a reactor has closed a range that `is_it` accepts.
    pub(crate) fn is_closed(&self, reactor: usize, is_it: impl Fn(&ByteRange) -> bool) -> bool {
        self.gates[reactor].any(|(), closed| is_it(closed))
    }

    /// Notes the end of one operation of a command.
    pub(crate) fn ended(&mut self, command: u64, reactor: usize) {
        for command in self.gates[reactor].ended(command as u32) {
            self.acknowledged(command);
        }
    }

    /// Releases the range of a completed command; the next one gets the lock.
    pub(crate) fn release(&mut self, command: u64) {
        let Some(ExclusionRequest { lock, .. }) = self.wanted.remove(&command) else { return };
        self.notices.push(ExclusionNotice::Open(lock));
        let next = self.locks.unlock(lock).into_iter();
        self.notices.extend(next.map(|(_, command)| ExclusionNotice::Close(command)));
    }

    /// Opens a range at a reactor. Returns the commands that were held back, with their next operations.
    pub(crate) fn open(
        &mut self,
        lock: u64,
        reactor: usize,
    ) -> Vec<(u64, (StoreOperation, Option<SimBuffer>))> {
        let opened = self.gates[reactor].open(&(), lock).into_iter().map(u64::from);
        opened.filter_map(|command| Some((command, self.held.remove(&command)?))).collect()
    }
}
