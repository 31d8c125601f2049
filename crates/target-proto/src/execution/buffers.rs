//! Buffers: who gets one when there are few, and who keeps one for too long.

use super::environment::{Environment, Namespace};
use super::slot::{Command, Data, Slot};
use super::{Execution, Held};
use crate::buffer_shares::BufferShare;
use core::ops::DerefMut;
use core::time::Duration;
use roadtrain_proto::time::Instant;

/// What goes on as a buffer has come back: see [`Execution::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// Receiving, with what the connection has kept: [`Execution::is_stalled`] no longer says that it has to wait.
    Receiving,
    /// An admin or fabrics command: as with [`Execution::command`].
    Admin(u16),
}

impl<N: Namespace, B: DerefMut<Target = [u8]>> Execution<N, B> {
    /// Goes on with what waits for buffers, as far as there are some, to the next thing that the caller has to do.
    pub fn feed(&mut self, env: &mut impl Environment<N, B>) -> Option<Fed> {
        for held in [&mut self.held, &mut self.waiting.held] {
            if *held == Held::WasSo {
                *held = Held::No;
                return Some(Fed::Receiving);
            }
        }
        self.admit_deferred(env);
        loop {
            if self.end_stall(env) {
                return Some(Fed::Receiving);
            }
            let &slot = self.starved.front()?;
            if self.stalled.is_some() && self.starved.len() == 1 {
                return None; // no buffer to go on with
            }
            let command = &self.slots[usize::from(slot)].command;
            let (needs, out) = (command.buffer_bytes(), command.data_out_bytes());
            let buffer = env.take(needs)?;
            self.starved.pop_front();
            self.hold(env.now(), slot, buffer);
            if out > 0 {
                env.request_data(slot, out);
            } else if let Command::Admin(_) = self.slots[usize::from(slot)].command {
                if let Some(slot) = self.begin_admin(env, slot) {
                    return Some(Fed::Admin(slot));
                }
            } else {
                self.execute(env, slot);
            }
        }
    }

    /// The lane's share of the buffers that wait for data of hosts. Those that wait already count.
    pub fn set_share(&mut self, mut share: BufferShare) {
        let waiting = self.slots.iter().map(|slot| slot.awaited_bytes);
        waiting.filter(|&bytes| bytes > 0).for_each(|bytes| share.begin(bytes));
        self.share = Some(share);
    }

    /// The lane goes to another pool: see [`Execution::set_share`].
    pub fn leave_share(&mut self) {
        self.share = None;
    }

    /// Whether a buffer for the command may wait for its data, in turn; it is counted then, and deferred otherwise.
    #[inline]
    pub(super) fn may_wait(&mut self, slot: u16, bytes: u32) -> bool {
        if !self.deferred.is_empty() || !self.count_wait(slot, bytes) {
            self.deferred.push_back(slot);
            return false;
        }
        true
    }

    #[inline]
    fn count_wait(&mut self, slot: u16, bytes: u32) -> bool {
        let Some(share) = &mut self.share else { return true };
        let Some(bytes) = share.try_begin(bytes) else { return false };
        self.slots[usize::from(slot)].awaited_bytes = bytes;
        true
    }

    /// The command's data is here, or is not waited for any more.
    #[inline]
    pub(super) fn end_wait(&mut self, slot: u16) {
        let awaited = &mut self.slots[usize::from(slot)].awaited_bytes;
        if *awaited > 0
            && let Some(share) = &mut self.share
        {
            share.end(core::mem::take(awaited));
        }
    }

    /// Deferred writes get buffers, as far as their data may be waited for.
    fn admit_deferred(&mut self, env: &mut impl Environment<N, B>) {
        while let Some(&slot) = self.deferred.front() {
            let command = &self.slots[usize::from(slot)].command;
            let (out, needs) = (command.data_out_bytes(), command.buffer_bytes());
            if !self.count_wait(slot, needs) {
                return;
            }
            self.deferred.pop_front();
            self.begin_with_buffer(env, slot, (out, needs), 0);
        }
    }

    /// The command waits no longer; whether it has waited, for a buffer or for others' data.
    pub(super) fn leave_queues(&mut self, slot: u16) -> bool {
        let waiting = self.starved.len() + self.deferred.len();
        self.starved.retain(|&starved| starved != slot);
        self.deferred.retain(|&deferred| deferred != slot);
        self.end_wait(slot);
        self.starved.len() + self.deferred.len() < waiting
    }

    /// Ends a stall, if there is a buffer. The last one to starve is the one whose data is here already.
    fn end_stall(&mut self, env: &mut impl Environment<N, B>) -> bool {
        let (Some(since), Some(&slot)) = (self.stalled, self.starved.back()) else { return false };
        let buffer = match &self.slots[usize::from(slot)].command {
            Command::Failing(_) => None, // aborted meanwhile: its data only passes
            command => {
                let needs = command.buffer_bytes();
                let buffer = if self.starved.len() == 1 { env.take(needs) } else { None };
                let Some(buffer) = buffer.or_else(|| env.take_reserved(needs)) else {
                    return false;
                };
                Some(buffer)
            }
        };
        self.starved.pop_back();
        self.stalled = None;
        self.stalled_ns += env.now().0.saturating_sub(since.0);
        buffer.into_iter().for_each(|buffer| self.hold(env.now(), slot, buffer));
        true
    }

    /// Gives a command a buffer, unless it has to wait for one; then nothing is received if its data comes `along`.
    pub(super) fn hold_or_wait(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        bytes: u32,
        along: u32,
    ) -> bool {
        // First come, first served; but data that is here already may use the reserve, because what the other
        // buffers wait for may be behind it.
        let pooled = if self.starved.is_empty() { env.take(bytes) } else { None };
        let buffer = match pooled {
            None if along > 0 => env.take_reserved(bytes),
            _ => pooled,
        };
        if let Some(buffer) = buffer {
            self.hold(env.now(), slot, buffer);
            return true;
        }
        if along > 0 {
            self.starved.push_back(slot);
            self.stalled = Some(env.now());
        } else {
            // Who stalls receiving stays the last: one whose time has come may be behind it otherwise.
            let ahead_of = usize::from(self.stalled.is_some());
            self.starved.insert(self.starved.len() - ahead_of, slot);
        }
        false
    }

    /// Gives a command its buffer.
    pub(super) fn hold(&mut self, now: Instant, slot: u16, buffer: B) {
        self.slots[usize::from(slot)].buffered = now;
        self.keep(now, slot, buffer);
    }

    /// The command has a buffer.
    fn keep(&mut self, now: Instant, slot: u16, buffer: B) {
        let since = self.patience(now);
        let slot = &mut self.slots[usize::from(slot)];
        (slot.data, slot.held_since) = (Data::Buffer(buffer), since);
    }

    /// Answers a command with `bytes` of a buffer.
    pub(super) fn answer_with(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        buffer: B,
        bytes: u32,
        result: u64,
    ) {
        self.keep(env.now(), slot, buffer);
        self.slots[usize::from(slot)].unsent_bytes = bytes;
        self.unsent += bytes as usize;
        env.respond_with_data(slot, bytes, result);
    }

    /// Nothing is received until a buffer is there, until blocks are open again that are written in place, or until less
    /// waits for its time.
    #[inline]
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.stalled.is_some() || self.held != Held::No || self.waiting.held != Held::No
    }

    /// Whether [`Execution::feed`] is to be called when buffers may have come back.
    #[inline]
    #[must_use]
    pub fn is_starved(&self) -> bool {
        let was_held = self.held == Held::WasSo || self.waiting.held == Held::WasSo;
        was_held || !self.starved.is_empty() || !self.deferred.is_empty()
    }

    /// Whether a command waits because the pool is used up.
    #[inline]
    #[must_use]
    pub fn lacks_buffers(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Receives data of writes in place only if none of it goes to blocks that one operation has to itself. Called when
    /// such blocks are others. `true` if there is something to [feed](Execution::feed) now.
    pub fn hold_places(&mut self, env: &impl Environment<N, B>) -> bool {
        let is_closed =
            |namespace: &N, place| env.is_closed(namespace, |range| namespace.holds(place, range));
        let is_held = self.slots.iter().any(|slot| match (&slot.command, &slot.data) {
            (Command::InPlace(namespace), Data::InPlace(place)) => is_closed(namespace, *place),
            (Command::Split { namespace, place, .. }, _) => is_closed(namespace, *place),
            _ => false,
        });
        self.held = match (is_held, self.held) {
            (true, _) => Held::Yes,
            (false, Held::No) => Held::No,
            (false, _) => Held::WasSo,
        };
        self.held == Held::WasSo
    }

    /// A clock that stands still while nothing is received: the host is not to blame for what does not come then.
    pub(super) fn patience(&self, now: Instant) -> Instant {
        Instant(self.stalled.unwrap_or(now).0.saturating_sub(self.stalled_ns))
    }

    /// What keeps a command's buffer for `limit` because of the host, if anything. While a store has the command it
    /// has the buffer, too.
    #[must_use]
    pub fn overdue(&self, now: Instant, limit: Duration) -> Option<&'static str> {
        let now = self.patience(now);
        let slot = self.slots.iter().find(|slot| {
            matches!(slot.data, Data::Buffer(_)) && now.since(slot.held_since) >= limit
        })?;
        let is_answered = slot.unsent_bytes > 0;
        Some(if is_answered { "the answer was not taken" } else { "the data did not come" })
    }

    /// The connection goes where other buffers are: each that it holds is replaced.
    pub fn replace_buffers(&mut self, mut replace: impl FnMut(B) -> B) {
        for slot in &mut self.slots {
            slot.data = match core::mem::replace(&mut slot.data, Data::None) {
                Data::Buffer(buffer) => Data::Buffer(replace(buffer)),
                other => other,
            };
        }
    }

    /// Octets of the buffers that it holds; those that stores have are not among them.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.slots.iter().map(Slot::buffered).sum()
    }
}
