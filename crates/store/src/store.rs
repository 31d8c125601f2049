//! The contract between a target and what keeps its blocks.

use crate::{
    BlockLimits, Geometry, InPlace, Io, LastSync, Op, OpenError, Place, Resize, SizeWatcher,
    Snapshots, Token,
};
use roadtrain_system::buffer::Buffer;
use std::fmt::Debug;
use std::io;
use std::sync::Weak;

/// Who has a store's blocks, where several targets reach them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Custody {
    /// This target: it serves them.
    Ours,
    /// This target, which has no way to them.
    CutOff,
    /// Another one has taken them. The store is of no use any more; opened again it may stand by.
    Lost,
    /// Another one.
    Theirs,
    /// Nobody: they can be had by opening them again.
    Free,
}

impl Custody {
    /// Whether the store is that of a target that stands by.
    #[must_use]
    pub fn stands_by(self) -> bool {
        matches!(self, Custody::Theirs | Custody::Free)
    }
}

/// A namespace's blocks. All reactors of a target share it, and call it on their own threads: no call may wait,
/// unless it says so.
///
/// # Contract
/// - [`submit`](Store::submit) takes the buffer. The answer is one [`Completion`](crate::Completion) with the same
///   token, which gives the buffer back: during the call or at any time after it, in any order, by
///   [`Io::complete`] or, from another thread, by [`Completions::send`](crate::Completions::send).
/// - A read fills the whole buffer, a write takes all of it. A store may change the octets of a buffer that it was
///   given to write or compare.
/// - What lies outside the capacity, and writes to a store that is read-only, end with an error: the capacity may
///   have changed since whoever submits has looked. [`Geometry::check`] does that.
/// - A flush covers the writes that were answered before it was submitted.
/// - A write with Force Unit Access is stable when it is answered, unless the answer leaves that to a flush
///   ([`Completion::is_unforced`](crate::Completion::is_unforced)). It must where the write could be told of what others
///   have lost, and nobody would be told again: the target flushes a store once at a time, and tells every host that may
///   have lost something.
pub trait Store: Debug + Send + Sync {
    /// Block size, capacity and so on, as they are now.
    fn geometry(&self) -> Geometry;

    /// What tells its blocks from all others, for as long as they are there. May wait.
    ///
    /// # Errors
    /// It cannot be found out.
    fn identity(&self) -> Result<u128, OpenError>;

    /// Begins an operation. [`Op::Read`], [`Op::Write`] and [`Op::Compare`] come with a buffer, others may: it is
    /// given back.
    fn submit(&self, op: Op, buffer: Option<Buffer>, token: Token, io: &mut Io<'_>);

    /// The store that this one is on top of: what it does not do itself is done by that.
    fn below(&self) -> Option<&dyn Store> {
        None
    }

    /// Nobody wants what was submitted with `token` any more: it may end at once, with Command Abort Requested. What
    /// was begun with [`Io`] is ended by the executor.
    fn cancel(&self, token: Token) {
        if let Some(below) = self.below() {
            below.cancel(token);
        }
    }

    /// What hosts may know to use it well.
    fn limits(&self) -> BlockLimits {
        self.below().map_or_else(BlockLimits::default, |below| below.limits())
    }

    /// Whether it can tell which blocks are allocated: else all count as such, and it is never asked
    /// ([`Op::LookUp`]). One that does calls every block allocated that was written, and may call others so.
    fn tells_allocation(&self) -> bool {
        self.below().is_some_and(|below| below.tells_allocation())
    }

    /// Its own memory, from and to which data moves without buffers.
    fn in_place(&self) -> Option<InPlace> {
        None
    }

    /// Whether its buffers never leave the reactor's thread, but to the kernel. Such a store is given buffers whose
    /// octets a host may change meanwhile.
    fn stays_on_thread(&self) -> bool {
        self.below().is_some_and(|below| below.stays_on_thread())
    }

    /// Whether what was written may be lost until it was flushed, also by others than this target.
    fn is_volatile(&self) -> bool {
        match self.below() {
            Some(below) => below.is_volatile(),
            None => self.geometry().volatile_cache,
        }
    }

    /// A number that changes when what was written and not flushed may have been lost: with the store's memory, or with
    /// the power of this machine. Hosts compare it. `None`: it is not known, or others keep the blocks.
    fn write_verifier(&self) -> Option<u64> {
        self.below().and_then(|below| below.write_verifier())
    }

    /// Brings everything to stable storage. Waits for that.
    ///
    /// # Errors
    /// What was written may be lost.
    fn sync(&self) -> io::Result<()> {
        self.below().map_or(Ok(()), |below| below.sync())
    }

    /// For a store that is no longer used, with writes that nobody has flushed: runs on a thread of its own when the
    /// store is gone, so that it must not keep anybody from opening it again. `None`: [`sync`](Store::sync) is
    /// called before it goes.
    fn last_sync(&self) -> Option<LastSync> {
        self.below()?.last_sync()
    }

    /// Nobody writes it any more, but it is not gone yet: others may write it from now on. May wait.
    fn give_up(&self) {
        if let Some(below) = self.below() {
            below.give_up();
        }
    }

    /// Who has the blocks. Does not wait for anybody else.
    fn custody(&self) -> Custody {
        self.below().map_or(Custody::Ours, |below| below.custody())
    }

    /// Has the blocks taken away from the target that has them: soon they are [free](Custody::Free), and that one
    /// cannot write them any more. Does not wait for it.
    ///
    /// # Errors
    /// Nobody could make sure of that.
    fn seize(&self) -> Result<(), OpenError> {
        self.below().map_or(Err(OpenError::Unfenceable), |below| below.seize())
    }

    /// Its snapshots; `None`: it has none, and cannot have any.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        self.below()?.snapshots()
    }

    /// Where its blocks are, whatever that is called. Two with the same place are the same blocks.
    fn place(&self) -> Option<Place> {
        self.below()?.place()
    }

    /// What is to be done to give it `bytes`, or (`None`) the size that it has been given by others. Changes
    /// nothing.
    ///
    /// # Errors
    /// It cannot have that size.
    fn plan(&self, bytes: Option<u64>) -> Result<Resize, OpenError> {
        if let Some(below) = self.below() {
            return below.plan(bytes);
        }
        let now = self.geometry().bytes();
        match bytes {
            Some(bytes) if bytes != now => Err(OpenError::Unresizable { bytes: now }),
            _ => Ok(Resize::to(now, now)),
        }
    }

    /// Calls `watcher` whenever others may have given it another size, which [`plan`](Store::plan) then says. A store
    /// that cannot know does not: its size is asked for when the target is reloaded.
    fn watch_size(&self, watcher: Weak<SizeWatcher>) {
        if let Some(below) = self.below() {
            below.watch_size(watcher);
        }
    }

    /// Does of a resize what may fail. Nobody sees it yet.
    ///
    /// # Errors
    /// It failed, and has left everything as it was.
    fn stage(&self, resize: &mut Resize) -> Result<(), OpenError> {
        self.below().map_or(Ok(()), |below| below.stage(resize))
    }

    /// Takes back what [`stage`](Store::stage) has done.
    fn unstage(&self, resize: &Resize) {
        if let Some(below) = self.below() {
            below.unstage(resize);
        }
    }

    /// Gives it the new size, at once.
    fn switch(&self, resize: &Resize) {
        if let Some(below) = self.below() {
            below.switch(resize);
        }
    }

    /// After [`switch`](Store::switch): what takes its time.
    fn settle(&self, resize: &Resize) {
        if let Some(below) = self.below() {
            below.settle(resize);
        }
    }

    /// Nobody has used it, and nobody will: leaves everything as it was before it was opened.
    fn undo_opening(&self) {
        if let Some(below) = self.below() {
            below.undo_opening();
        }
    }

    /// Does all of a resize; waits.
    ///
    /// # Errors
    /// It cannot have that size.
    fn resize(&self, bytes: u64) -> Result<Geometry, OpenError> {
        let mut resize = self.plan(Some(bytes))?;
        self.stage(&mut resize)?;
        self.switch(&resize);
        self.settle(&resize);
        Ok(self.geometry())
    }
}
