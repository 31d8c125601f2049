//! Commands that wait for their rate limit.
//!
//! A command without in-capsule data waits without a buffer, and before its data is requested. A command with
//! in-capsule data waits with its data in a buffer. When a connection has many bytes of these, it receives nothing
//! more. So a rate-limited connection holds little of the shared resources.

use super::environment::{CommandPayload, Environment, LaneNamespace};
use super::slot::{SlotCommand, SlotData};
use super::{CommandExecution, ReceiveHold};
use core::ops::DerefMut;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;

/// Bytes that may wait in buffers before a connection receives nothing more.
const KEPT_MAX: usize = 128 << 10;

/// Commands that wait for their rate limit.
pub(super) struct RateWaiters {
    /// Start times and slots, ordered by time.
    slots: VecDeque<(Instant, u16)>,
    /// Bytes in their buffers.
    kept: usize,
    /// Hold on receiving because of these commands.
    pub(super) held: ReceiveHold,
}

impl Default for RateWaiters {
    fn default() -> Self {
        RateWaiters { slots: VecDeque::new(), kept: 0, held: ReceiveHold::No }
    }
}

impl RateWaiters {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the earliest start time.
    #[inline]
    pub(super) fn first(&self) -> Option<Instant> {
        self.slots.front().map(|(begins, _)| *begins)
    }

    fn enter(&mut self, begins: Instant, slot: u16, bytes: usize) {
        let at = self.slots.partition_point(|(other, _)| *other <= begins);
        self.slots.insert(at, (begins, slot));
        self.kept += bytes;
        if self.kept > KEPT_MAX {
            self.held = ReceiveHold::Yes;
        }
    }

    /// Records that a command with `bytes` bytes in a buffer no longer waits.
    fn left(&mut self, bytes: usize) {
        self.kept = self.kept.saturating_sub(bytes);
        if self.kept <= KEPT_MAX && self.held == ReceiveHold::Yes {
            self.held = ReceiveHold::Released;
        }
    }
}

impl<N: LaneNamespace, B: DerefMut<Target = [u8]>> CommandExecution<N, B> {
    /// Makes a command wait if its rate is limited and its start time lies ahead. Returns true if it waits.
    #[inline]
    pub(super) fn waits(&mut self, env: &mut impl Environment<N, B>, slot: u16) -> bool {
        let s = &mut self.slots[usize::from(slot)];
        let SlotCommand::Io { command, namespace, .. } = &s.command else { return false };
        if !namespace.is_limited() || s.is_due {
            return false;
        }
        s.is_due = true;
        let now = env.now();
        let begins = namespace.begins(now, command);
        begins > now && {
            self.wait(begins, slot);
            true
        }
    }

    fn wait(&mut self, begins: Instant, slot: u16) {
        let s = &mut self.slots[usize::from(slot)];
        let bytes = s.buffered();
        s.held_since = Instant(u64::MAX); // its host is not to blame
        self.waiting.enter(begins, slot, bytes);
    }

    /// Resumes commands whose start time has come.
    pub(super) fn resume_due(&mut self, env: &mut impl Environment<N, B>) {
        let now = env.now();
        while self.waiting.first().is_some_and(|begins| begins <= now) {
            let Some((_, slot)) = self.waiting.slots.pop_front() else { break };
            self.waiting.left(self.slots[usize::from(slot)].buffered());
            self.resume_command(env, slot);
        }
    }

    fn resume_command(&mut self, env: &mut impl Environment<N, B>, slot: u16) {
        let since = self.host_clock(env.now());
        let s = &mut self.slots[usize::from(slot)];
        s.held_since = since;
        match (&s.data, &s.command) {
            (SlotData::Buffer(_), _) => self.execute(env, slot),
            _ if !env.session().executes_io() => self.refuse_quiet(env, slot),
            _ => self.begin(env, slot, CommandPayload::OnRequest),
        }
    }

    /// Applies a change of namespaces or of rate limits. Commands to a removed namespace fail, those with another limit
    /// get a new start time, and the others keep theirs.
    pub fn review(&mut self, env: &mut impl Environment<N, B>) {
        if self.waiting.is_empty() {
            return;
        }
        let now = env.now();
        for (begins, slot) in core::mem::take(&mut self.waiting.slots) {
            let s = &mut self.slots[usize::from(slot)];
            let bytes = s.buffered();
            self.waiting.left(bytes);
            let SlotCommand::Io { command, namespace, sqe, .. } = &mut s.command else { continue };
            let nsid = sqe.nsid.get();
            match env.namespace(nsid) {
                Some(found) => {
                    let begins = if found.is_limited_as(namespace) {
                        begins
                    } else {
                        namespace.give_back(command);
                        if found.is_limited() { found.begins(now, command) } else { now }
                    };
                    *namespace = found;
                    self.wait(begins, slot);
                }
                None => {
                    let gone = Status::INVALID_NAMESPACE.dnr();
                    let status = env.refusal(nsid).unwrap_or(gone);
                    self.end_waiting(env, slot, status);
                }
            }
        }
    }

    /// Refuses all waiting commands.
    pub(super) fn refuse_waiting(&mut self, env: &mut impl Environment<N, B>) {
        for (_, slot) in core::mem::take(&mut self.waiting.slots) {
            self.waiting.left(self.slots[usize::from(slot)].buffered());
            self.give_back(slot);
            self.refuse_quiet(env, slot);
        }
    }

    /// Drops all waiting commands of a closed connection.
    pub(super) fn forget_waiting(&mut self) {
        for (_, slot) in core::mem::take(&mut self.waiting).slots {
            self.give_back(slot);
        }
    }

    /// Refunds the charge of a command that does not begin.
    fn give_back(&self, slot: u16) {
        if let SlotCommand::Io { command, namespace, .. } = &self.slots[usize::from(slot)].command {
            namespace.give_back(command);
        }
    }

    /// Aborts a waiting command. Returns false if it does not wait.
    pub(super) fn abort_waiting(&mut self, env: &mut impl Environment<N, B>, slot: u16) -> bool {
        let place = self.waiting.slots.iter().position(|(_, waits)| *waits == slot);
        let Some(place) = place else { return false };
        self.waiting.slots.remove(place);
        self.waiting.left(self.slots[usize::from(slot)].buffered());
        self.end_waiting(env, slot, Status::ABORT_REQUESTED);
        true
    }

    fn end_waiting(&mut self, env: &mut impl Environment<N, B>, slot: u16, status: Status) {
        self.give_back(slot);
        let s = &mut self.slots[usize::from(slot)];
        s.take_buffer().into_iter().for_each(|buffer| env.give(buffer));
        s.command = SlotCommand::None;
        env.respond(slot, status, 0);
        self.resolve_aborts(slot, status.is(Status::ABORT_REQUESTED));
    }
}
