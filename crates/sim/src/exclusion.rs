//! Commands that are alone with their blocks, at a target of one thread. Who has to wait is decided by
//! `roadtrain_target_proto::exclusion`.

use crate::pool::Buffer;
use roadtrain_proto::op::{ByteRange, Op};
use roadtrain_target_proto::exclusion::{Gates, RangeLocks};
use std::collections::{BTreeMap, VecDeque};

/// A command whose blocks are open again, with what it was about to do.
pub(crate) type Opened = (u64, Op, Option<Buffer>);

/// What is alone with what. Commands have numbers.
#[derive(Default)]
pub(crate) struct Exclusion {
    locks: RangeLocks<u64>,
    gates: Gates<(), u64>,
    /// By command: its lock, and what that is for.
    asked: BTreeMap<u64, (u64, ByteRange)>,
    /// Writes that are held back.
    held: BTreeMap<u64, (Op, Option<Buffer>)>,
    /// Commands that are alone by now, and have not heard of it.
    alone: VecDeque<u64>,
}

impl Exclusion {
    /// A command wants to be alone; `true`: it is to [close](Exclusion::close) its range.
    pub(crate) fn ask(&mut self, command: u64, range: ByteRange) -> bool {
        let (lock, is_held) = self.locks.lock(range, command);
        self.asked.insert(command, (lock, range));
        is_held
    }

    /// It is alone without having asked.
    pub(crate) fn pretend(&mut self, command: u64) {
        self.alone.push_back(command);
    }

    /// What a command wants to be alone with.
    pub(crate) fn range(&self, command: u64) -> Option<ByteRange> {
        self.asked.get(&command).map(|(_, range)| *range)
    }

    /// No other one has a part of the command's range, which `under_way` change.
    pub(crate) fn close(&mut self, command: u64, under_way: Vec<u64>) {
        let Some(&(lock, range)) = self.asked.get(&command) else { return };
        let under_way = under_way.into_iter().map(|command| command as u32).collect();
        let gate = (lock, (), range);
        self.alone.extend(self.gates.close(gate, Some(command as u32), under_way, command));
    }

    /// Keeps what a command is about to do until its blocks are open; gives it back if they are.
    pub(crate) fn hold_back(
        &mut self,
        command: u64,
        (op, buffer): (Op, Option<Buffer>),
    ) -> Option<(Op, Option<Buffer>)> {
        let bytes = buffer.as_deref().map_or(0, <[u8]>::len) as u64;
        let holds = |range| self.gates.holds(&(), &range, Some(command as u32));
        if !op.changed(bytes).is_some_and(holds) {
            return Some((op, buffer));
        }
        self.held.insert(command, (op, buffer));
        None
    }

    /// A part of a command has ended.
    pub(crate) fn ended(&mut self, command: u64) {
        self.alone.extend(self.gates.ended(command as u32));
    }

    /// A command has ended: what was held back because of it, and who is to close its range now.
    pub(crate) fn release(&mut self, command: u64) -> (Vec<Opened>, Vec<u64>) {
        let Some((lock, _)) = self.asked.remove(&command) else { return Default::default() };
        let opened = self.gates.open(&(), lock).into_iter().filter_map(|command| {
            let command = u64::from(command);
            self.held.remove(&command).map(|(op, buffer)| (command, op, buffer))
        });
        let opened = opened.collect();
        (opened, self.locks.unlock(lock).into_iter().map(|(_, command)| command).collect())
    }

    /// The next of these commands that is alone by now.
    pub(crate) fn next_alone(&mut self, is_one: impl Fn(u64) -> bool) -> Option<u64> {
        let at = self.alone.iter().position(|&command| is_one(command))?;
        self.alone.remove(at)
    }
}
