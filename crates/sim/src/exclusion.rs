//! Commands that are alone with their blocks, over all reactors of a target. [`roadtrain_target_proto::exclusion`] decides
//! which ones wait; here are the notices between reactors.

use crate::pool::Buffer;
use roadtrain_proto::op::{ByteRange, Op};
use roadtrain_target_proto::exclusion::{Gates, RangeLocks};
use std::collections::BTreeMap;

/// Notice to reactors.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// To all: this command is to be alone with its range.
    Close(u64),
    /// To all: the range of this lock is open.
    Open(u64),
    /// To the reactor of this command: all have acknowledged.
    Alone(u64),
}

/// A command that wants to be alone.
struct Wanted {
    reactor: usize,
    lock: u64,
    range: ByteRange,
    /// Reactors that have not acknowledged.
    missing: usize,
}

/// Ranges of commands that are alone with them. Commands have numbers.
pub(crate) struct Exclusion {
    locks: RangeLocks<u64>,
    /// By reactor; acknowledgements are numbers of commands.
    gates: Vec<Gates<(), u64>>,
    wanted: BTreeMap<u64, Wanted>,
    /// Writes that are held back.
    held: BTreeMap<u64, (Op, Option<Buffer>)>,
    /// Notices that are not sent.
    notices: Vec<Notice>,
}

impl Exclusion {
    /// No command is alone, at this number of reactors.
    pub(crate) fn new(reactors: usize) -> Self {
        Exclusion {
            locks: RangeLocks::default(),
            gates: (0..reactors).map(|_| Gates::default()).collect(),
            wanted: BTreeMap::new(),
            held: BTreeMap::new(),
            notices: Vec::new(),
        }
    }

    /// Takes the notices that are to be sent, in their order.
    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        core::mem::take(&mut self.notices)
    }

    /// Reactor of a command that wants to be alone.
    pub(crate) fn reactor_of(&self, command: u64) -> Option<usize> {
        self.wanted.get(&command).map(|wanted| wanted.reactor)
    }

    /// A command of a reactor wants to be alone with a range.
    pub(crate) fn enter(&mut self, command: u64, reactor: usize, range: ByteRange) {
        let (lock, is_held) = self.locks.lock(range, command);
        let missing = self.gates.len();
        self.wanted.insert(command, Wanted { reactor, lock, range, missing });
        self.notices.extend(is_held.then_some(Notice::Close(command)));
    }

    /// A command goes on as if it were alone, which is wrong.
    pub(crate) fn pretend(&mut self, command: u64, reactor: usize, range: ByteRange) {
        self.wanted.insert(command, Wanted { reactor, lock: 0, range, missing: 0 });
        self.notices.push(Notice::Alone(command));
    }

    /// Range of a command that is to be alone.
    pub(crate) fn range(&self, command: u64) -> Option<ByteRange> {
        self.wanted.get(&command).map(|wanted| wanted.range)
    }

    /// A reactor closes the range of a command. Commands of this reactor that are `under_way` change it.
    pub(crate) fn close(&mut self, command: u64, reactor: usize, under_way: Vec<u64>) {
        let Some(wanted) = self.wanted.get(&command) else { return };
        let owner = (wanted.reactor == reactor).then_some(command as u32);
        let under_way = under_way.into_iter().map(|command| command as u32).collect();
        let gate = (wanted.lock, (), wanted.range);
        let acknowledged = self.gates[reactor].close(gate, owner, under_way, command);
        acknowledged.into_iter().for_each(|command| self.acknowledged(command));
    }

    fn acknowledged(&mut self, command: u64) {
        let Some(wanted) = self.wanted.get_mut(&command) else { return };
        wanted.missing -= 1;
        self.notices.extend((wanted.missing == 0).then_some(Notice::Alone(command)));
    }

    /// Keeps the next operation of a command until its blocks are open; gives it back if they are.
    pub(crate) fn hold_back(
        &mut self,
        (command, reactor): (u64, usize),
        (op, buffer): (Op, Option<Buffer>),
    ) -> Option<(Op, Option<Buffer>)> {
        let bytes = buffer.as_deref().map_or(0, <[u8]>::len) as u64;
        let gates = &mut self.gates[reactor];
        let holds = |range| gates.holds(&(), &range, Some(command as u32));
        if !op.changed(bytes).is_some_and(holds) {
            return Some((op, buffer));
        }
        self.held.insert(command, (op, buffer));
        None
    }

    /// True if a command is alone with a range that `is_it`, as far as a reactor knows.
    pub(crate) fn is_closed(&self, reactor: usize, is_it: impl Fn(&ByteRange) -> bool) -> bool {
        self.gates[reactor].any(|(), closed| is_it(closed))
    }

    /// A part of a command has ended.
    pub(crate) fn ended(&mut self, command: u64, reactor: usize) {
        for command in self.gates[reactor].ended(command as u32) {
            self.acknowledged(command);
        }
    }

    /// A command has ended: its range is open, and the next one has the lock.
    pub(crate) fn release(&mut self, command: u64) {
        let Some(Wanted { lock, .. }) = self.wanted.remove(&command) else { return };
        self.notices.push(Notice::Open(lock));
        let next = self.locks.unlock(lock).into_iter();
        self.notices.extend(next.map(|(_, command)| Notice::Close(command)));
    }

    /// A reactor opens a range: commands that were held back, each with its next operation.
    pub(crate) fn open(&mut self, lock: u64, reactor: usize) -> Vec<(u64, (Op, Option<Buffer>))> {
        let opened = self.gates[reactor].open(&(), lock).into_iter().map(u64::from);
        opened.filter_map(|command| Some((command, self.held.remove(&command)?))).collect()
    }
}
