//! Cross-Controller Resets requested on a controller (NVMe Base 2.3, section 5.4.3): a host that has lost another of
//! its controllers requests its end.
//!
//! The named controller is dropped at once: its connections end and execute none of the data that they have received.
//! The reset is complete when nothing of those connections is left, neither a command in a store nor unprocessed bytes.
//! The command waits for that for a moment; then it completes, and the log page and an event report the rest.

use core::time::Duration;
use roadtrain_proto::error::CommandError;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::{
    ACID_NONE, ControllerInstance, CrossResetEntry, CrossResetLog, IMMEDIATE, LOG_BYTES,
    reset_flags, reset_status,
};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;

/// Resets of a controller in progress, at most (CCRL).
pub(super) const RESETS_MAX: u8 = 4;
/// Entries of the log, at most: a host that does not read it is refused.
const ENTRIES_MAX: usize = 16;
/// Longest wait of a command for the end of the named controller, ...
const WAIT_MAX: Duration = Duration::from_millis(50);
/// ... or this part of the keep-alive timeout, which hosts must not exceed meanwhile.
const KEEP_ALIVE_PART: u32 = 4;

/// A reset.
#[derive(Clone, Copy, Debug)]
struct Reset {
    named: ControllerInstance,
    /// Identifier of the command, until it completes, ...
    cid: Option<u16>,
    /// ... which is by this time.
    until: Instant,
    is_done: bool,
    /// True if the controller is, or was, one of this target.
    is_known: bool,
}

/// Resets requested on a controller.
#[derive(Debug, Default)]
pub(super) struct CrossResets {
    all: Vec<Reset>,
    /// True once a reset was complete.
    has_ended: bool,
}

impl CrossResets {
    /// Checks that one more reset may begin.
    ///
    /// # Errors
    /// The status of the completion. A retry may succeed: no Do Not Retry.
    pub(super) fn admit(&self, named: ControllerInstance) -> Result<(), CommandError> {
        let in_progress = || self.all.iter().filter(|reset| !reset.is_done);
        let status = if in_progress().any(|reset| reset.named == named) {
            Status::CROSS_RESET_IN_PROGRESS
        } else if in_progress().count() >= usize::from(RESETS_MAX) {
            Status::CROSS_RESET_LIMIT_EXCEEDED
        } else if self.all.len() >= ENTRIES_MAX {
            Status::CROSS_RESET_LOG_FULL
        } else {
            return Ok(());
        };
        Err(CommandError { status, ..CommandError::new(status) })
    }

    /// Adds the reset of the controller `named`, which command `cid` has dropped.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        cid: u16,
        named: ControllerInstance,
        kato: Duration,
    ) {
        self.forget_alike(named);
        let part = if kato.is_zero() { WAIT_MAX } else { kato / KEEP_ALIVE_PART };
        let until = now + part.min(WAIT_MAX);
        self.all.push(Reset { named, cid: Some(cid), until, is_done: false, is_known: true });
    }

    /// Adds the reset of a controller that never existed here.
    pub(super) fn note_unknown(&mut self, now: Instant, named: ControllerInstance) {
        self.forget_alike(named);
        self.all.push(Reset { named, cid: None, until: now, is_done: true, is_known: false });
    }

    /// Forgets completed resets of another instance with the same entry: log entries lack the random number, so an
    /// older one must not stand for `named`.
    fn forget_alike(&mut self, named: ControllerInstance) {
        let is_alike =
            |other: &ControllerInstance| (other.cntlid, other.ciu) == (named.cntlid, named.ciu);
        self.all.retain(|reset| !reset.is_done || !is_alike(&reset.named));
    }

    /// Returns the controllers of resets in progress.
    pub(super) fn in_progress(&self) -> impl Iterator<Item = u16> {
        self.all.iter().filter(|reset| !reset.is_done).map(|reset| reset.named.cntlid)
    }

    /// Completes the reset of controller `cntlid`, of which nothing is left. Returns the waiting command with its
    /// result, if any.
    pub(super) fn complete(&mut self, cntlid: u16) -> Option<(u16, u64)> {
        let is_it = |reset: &Reset| !reset.is_done && reset.named.cntlid == cntlid;
        let index = self.all.iter().position(is_it)?;
        self.has_ended = true;
        self.all[index].is_done = true;
        let cid = self.all[index].cid?;
        self.all.remove(index);
        Some((cid, IMMEDIATE.into()))
    }

    /// True if nothing is left of a controller that was named here.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the next command whose time is up; it completes now.
    pub(super) fn expire(&mut self, now: Instant) -> Option<u16> {
        let mut waiting = self.all.iter_mut().filter(|reset| reset.until <= now);
        waiting.find_map(|reset| reset.cid.take())
    }

    /// Returns the time of the next one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let waiting = self.all.iter().filter(|reset| reset.cid.is_some());
        waiting.map(|reset| reset.until).min()
    }

    /// Ends all resets, for a controller reset. Returns the waiting commands.
    pub(super) fn reset(&mut self) -> Vec<u16> {
        self.all.drain(..).filter_map(|reset| reset.cid).collect()
    }

    /// Forgets completed resets.
    pub(super) fn forget_complete(&mut self) {
        self.all.retain(|reset| !reset.is_done);
    }

    /// Returns the log page: resets whose commands completed before them.
    pub(super) fn log(&self) -> Vec<u8> {
        let answered = self.all.iter().filter(|reset| reset.cid.is_none());
        let entries: Vec<CrossResetEntry> = answered.map(entry).collect();
        let head = CrossResetLog { entries: (entries.len() as u16).into(), reserved2: [0; 6] };
        let mut page = [head.as_bytes(), entries.as_bytes()].concat();
        page.resize(LOG_BYTES, 0);
        page
    }
}

fn entry(reset: &Reset) -> CrossResetEntry {
    CrossResetEntry {
        icid: reset.named.cntlid.into(),
        ciu: reset.named.ciu,
        reserved3: 0,
        acid: ACID_NONE.into(),
        status: if reset.is_done { reset_status::SUCCEEDED } else { reset_status::IN_PROGRESS },
        flags: if reset.is_known { reset_flags::VALIDATED | reset_flags::INITIATED } else { 0 },
    }
}
