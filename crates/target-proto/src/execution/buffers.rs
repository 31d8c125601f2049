//! Buffers: allocation when they are scarce, and detection of hosts that keep them for too long.

use super::environment::{Environment, LaneNamespace};
use super::slot::{CommandSlot, SlotCommand, SlotData};
use super::{CommandExecution, ReceiveHold};
use crate::buffer_shares::BufferShare;
use core::ops::DerefMut;
use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Work of the caller after buffers were released: see [`CommandExecution::resume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeAction {
    /// Receive again, beginning with the data that the connection has kept: [`CommandExecution::is_stalled`] is false now.
    Receiving,
    /// Execute an admin or fabrics command, as [`CommandExecution::command`] returns it.
    Admin(u16),
}

impl<N: LaneNamespace, B: DerefMut<Target = [u8]>> CommandExecution<N, B> {
    /// Resumes commands that wait for buffers, as far as buffers are free. Returns the next work of the caller.
    pub fn resume(&mut self, env: &mut impl Environment<N, B>) -> Option<ResumeAction> {
        for held in [&mut self.held, &mut self.waiting.held] {
            if *held == ReceiveHold::Released {
                *held = ReceiveHold::No;
                return Some(ResumeAction::Receiving);
            }
        }
        self.admit_deferred(env);
        loop {
            if self.end_stall(env) {
                return Some(ResumeAction::Receiving);
            }
            let &slot = self.buffer_waiters.front()?;
            if self.stalled.is_some() && self.buffer_waiters.len() == 1 {
                return None; // no buffer to go on with
            }
            let command = &self.slots[usize::from(slot)].command;
            let (needs, out) = (command.buffer_bytes(), command.data_out_bytes());
            let buffer = env.take(needs)?;
            self.buffer_waiters.pop_front();
            self.hold(env.now(), slot, buffer);
            if out > 0 {
                env.request_data(slot, out);
            } else if let SlotCommand::Admin(_) = self.slots[usize::from(slot)].command {
                if let Some(slot) = self.begin_admin(env, slot) {
                    return Some(ResumeAction::Admin(slot));
                }
            } else {
                self.execute(env, slot);
            }
        }
    }

    /// Sets the lane's share of the buffers that wait for data of hosts. Buffers that wait already count.
    pub fn set_share(&mut self, mut share: BufferShare) {
        let waiting = self.slots.iter().map(|slot| slot.awaited_bytes);
        waiting.filter(|&bytes| bytes > 0).for_each(|bytes| share.begin(bytes));
        self.share = Some(share);
    }

    /// Drops the lane's share before it moves to another pool: see [`CommandExecution::set_share`].
    pub fn leave_share(&mut self) {
        self.share = None;
    }

    /// True if a buffer for the command may wait for data, in turn. It is counted then, and otherwise deferred.
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

    /// Stops counting a command's buffer: its data has arrived, or is no longer expected.
    #[inline]
    pub(super) fn end_wait(&mut self, slot: u16) {
        let awaited = &mut self.slots[usize::from(slot)].awaited_bytes;
        if *awaited > 0
            && let Some(share) = &mut self.share
        {
            share.end(core::mem::take(awaited));
        }
    }

    /// Gives deferred writes buffers, as far as the share allows.
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

    /// Removes a command from the queues. Returns true if it was in one.
    pub(super) fn leave_queues(&mut self, slot: u16) -> bool {
        let waiting = self.buffer_waiters.len() + self.deferred.len();
        self.buffer_waiters.retain(|&waiter| waiter != slot);
        self.deferred.retain(|&deferred| deferred != slot);
        self.end_wait(slot);
        self.buffer_waiters.len() + self.deferred.len() < waiting
    }

    /// Ends a stall, if a buffer is free. The last waiting command is the one whose data has arrived.
    fn end_stall(&mut self, env: &mut impl Environment<N, B>) -> bool {
        let (Some(since), Some(&slot)) = (self.stalled, self.buffer_waiters.back()) else {
            return false;
        };
        let buffer = match &self.slots[usize::from(slot)].command {
            SlotCommand::Failing(_) => None, // aborted meanwhile: its data only passes
            command => {
                let needs = command.buffer_bytes();
                let buffer = if self.buffer_waiters.len() == 1 { env.take(needs) } else { None };
                let Some(buffer) = buffer.or_else(|| env.take_reserved(needs)) else {
                    return false;
                };
                Some(buffer)
            }
        };
        self.buffer_waiters.pop_back();
        self.stalled = None;
        self.stalled_ns += env.now().0.saturating_sub(since.0);
        buffer.into_iter().for_each(|buffer| self.hold(env.now(), slot, buffer));
        true
    }

    /// Gives a command a buffer, unless it has to wait for one. Receiving stops then if its data comes `along`.
    pub(super) fn hold_or_wait(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        bytes: u32,
        along: u32,
    ) -> bool {
        // First come, first served. Data that has arrived may use the reserve, because data for the other buffers may
        // be behind it.
        let pooled = if self.buffer_waiters.is_empty() { env.take(bytes) } else { None };
        let buffer = match pooled {
            None if along > 0 => env.take_reserved(bytes),
            _ => pooled,
        };
        if let Some(buffer) = buffer {
            self.hold(env.now(), slot, buffer);
            return true;
        }
        if along > 0 {
            self.buffer_waiters.push_back(slot);
            self.stalled = Some(env.now());
        } else {
            // The command that stalls receiving stays last: a rate-limited one may come behind it otherwise.
            let ahead_of = usize::from(self.stalled.is_some());
            self.buffer_waiters.insert(self.buffer_waiters.len() - ahead_of, slot);
        }
        false
    }

    /// Gives a command its buffer.
    pub(super) fn hold(&mut self, now: Instant, slot: u16, buffer: B) {
        self.slots[usize::from(slot)].buffered = now;
        self.keep(now, slot, buffer);
    }

    /// Stores a command's buffer.
    fn keep(&mut self, now: Instant, slot: u16, buffer: B) {
        let since = self.host_clock(now);
        let slot = &mut self.slots[usize::from(slot)];
        (slot.data, slot.held_since) = (SlotData::Buffer(buffer), since);
    }

    /// Completes a command with `bytes` of a buffer.
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

    /// True if nothing is received: until a buffer is free, until blocks written in place are unlocked, or until less
    /// data waits for its rate limit.
    #[inline]
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.stalled.is_some()
            || self.held != ReceiveHold::No
            || self.waiting.held != ReceiveHold::No
    }

    /// True if [`CommandExecution::resume`] is to be called when buffers may be free.
    #[inline]
    #[must_use]
    pub fn is_waiting_for_buffers(&self) -> bool {
        let was_held =
            self.held == ReceiveHold::Released || self.waiting.held == ReceiveHold::Released;
        was_held || !self.buffer_waiters.is_empty() || !self.deferred.is_empty()
    }

    /// True if a command waits because the pool is exhausted.
    #[inline]
    #[must_use]
    pub fn lacks_buffers(&self) -> bool {
        !self.buffer_waiters.is_empty()
    }

    /// Holds receiving if an exclusive operation has locked blocks that commands write in place. To call when such
    /// locks change. Returns true if [`CommandExecution::resume`] has work now.
    pub fn hold_places(&mut self, env: &impl Environment<N, B>) -> bool {
        let is_closed =
            |namespace: &N, place| env.is_closed(namespace, |range| namespace.holds(place, range));
        let is_held = self.slots.iter().any(|slot| match (&slot.command, &slot.data) {
            (SlotCommand::InPlace(namespace), SlotData::InPlace(place)) => {
                is_closed(namespace, *place)
            }
            (SlotCommand::Split { namespace, place, .. }, _) => is_closed(namespace, *place),
            _ => false,
        });
        self.held = match (is_held, self.held) {
            (true, _) => ReceiveHold::Yes,
            (false, ReceiveHold::No) => ReceiveHold::No,
            (false, _) => ReceiveHold::Released,
        };
        self.held == ReceiveHold::Released
    }

    /// Returns a clock that stops while nothing is received, because the host is not to blame then.
    pub(super) fn host_clock(&self, now: Instant) -> Instant {
        Instant(self.stalled.unwrap_or(now).0.saturating_sub(self.stalled_ns))
    }

    /// Returns why a command's buffer is kept for `limit` by the host, if so. While a store executes the command, it
    /// has the buffer.
    #[must_use]
    pub fn overdue(&self, now: Instant, limit: Duration) -> Option<&'static str> {
        let now = self.host_clock(now);
        let slot = self.slots.iter().find(|slot| {
            matches!(slot.data, SlotData::Buffer(_)) && now.since(slot.held_since) >= limit
        })?;
        let is_answered = slot.unsent_bytes > 0;
        Some(if is_answered { "the answer was not taken" } else { "the data did not come" })
    }

    /// Replaces each buffer when the connection moves to another pool.
    pub fn replace_buffers(&mut self, mut replace: impl FnMut(B) -> B) {
        for slot in &mut self.slots {
            slot.data = match core::mem::replace(&mut slot.data, SlotData::None) {
                SlotData::Buffer(buffer) => SlotData::Buffer(replace(buffer)),
                other => other,
            };
        }
    }

    /// Returns the bytes of the buffers held, without those that stores have.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.slots.iter().map(CommandSlot::buffered).sum()
    }
}
