//! The contract between a target and the storage of its blocks.

use crate::{
    BlockLimits, BlockLocation, InPlace, LastSync, OpenError, Resize, SizeWatcher, Snapshots,
    StoreGeometry, StoreIo, StoreOperation, StoreToken,
};
use roadtrain_system::buffer::Buffer;
use std::fmt::Debug;
use std::io;
use std::sync::Weak;

/// Owner of a store's blocks, if several targets reach them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOwnership {
    /// This target: it serves them.
    Ours,
    /// This target, which has no path to them.
    CutOff,
    /// Another target has taken them. The store is unusable; opened again it may stand by.
    Lost,
    /// Another target.
    Theirs,
    /// No target: opening them again takes them.
    Free,
}

impl BlockOwnership {
    /// True if the target of the store stands by.
    #[must_use]
    pub fn stands_by(self) -> bool {
        matches!(self, BlockOwnership::Theirs | BlockOwnership::Free)
    }
}

/// Optional commands that a store executes itself, as other users of its blocks have to see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCommands {
    /// Compare and Write ([`StoreOperation::CompareAndWrite`]). False: the target compares, then writes, with exclusive
    /// access to the blocks.
    pub compares_and_writes: bool,
    /// Write Uncorrectable ([`StoreOperation::WriteUncorrectable`]). False: the target keeps the marks.
    pub marks: bool,
}

/// UUID and NGUID of blocks, as hosts see them. `None`: derived from the other one, or from the identity of the blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockIdentifiers {
    /// UUID.
    pub uuid: Option<[u8; 16]>,
    /// NGUID.
    pub nguid: Option<[u8; 16]>,
}

/// A namespace's blocks. All reactors of a target share it, and call it on their own threads: no call may block, unless
/// its description says so.
///
/// # Contract
/// - [`submit`](Store::submit) takes the buffer. The store completes it with one [`StoreCompletion`](crate::StoreCompletion) with
///   the same token, which gives the buffer back: during the call or at any time after it, in any order, by
///   [`StoreIo::complete`] or, from another thread, by [`StoreCompletions::send`](crate::StoreCompletions::send).
/// - A read fills the whole buffer, a write takes all of it. A store may change the bytes of a buffer that it got for a
///   write or compare.
/// - Operations outside the capacity, and writes to a read-only store, end with an error: the capacity may have changed
///   since the submitter's check. [`StoreGeometry::check`] implements this.
/// - A flush covers the writes that were completed before it was submitted.
/// - A write with Force Unit Access is stable when it is completed, unless the completion leaves that to a flush
///   ([`StoreCompletion::is_unforced`](crate::StoreCompletion::is_unforced)). It must leave it to a flush if the write could
///   consume the report of other hosts' lost writes, which is made once. The target has one flush of a store in flight
///   at a time, and reports its error to every host that may have lost a write.
pub trait Store: Debug + Send + Sync {
    /// Returns the current block size, capacity and so on.
    fn geometry(&self) -> StoreGeometry;

    /// Returns a unique identity of its blocks, which lasts as long as they exist. May block.
    ///
    /// # Errors
    /// Fails if it cannot be determined.
    fn identity(&self) -> Result<u128, OpenError>;

    /// Returns the UUID and NGUID of its blocks, if others have given them some: hosts see these. They last as long as the
    /// blocks, as [`identity`](Store::identity) does.
    fn identifiers(&self) -> BlockIdentifiers {
        self.below().map_or_else(BlockIdentifiers::default, |below| below.identifiers())
    }

    /// Starts an operation. [`StoreOperation::Read`], [`StoreOperation::Write`] and [`StoreOperation::Compare`] come with a buffer, others may: it is given
    /// back.
    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    );

    /// Returns the store below this one, to which all calls go that this one does not implement.
    fn below(&self) -> Option<&dyn Store> {
        None
    }

    /// Cancels the operation of `token`, whose result is no longer needed: it may end at once, with Command Abort
    /// Requested. The executor cancels operations that were started with [`StoreIo`].
    fn cancel(&self, token: StoreToken) {
        if let Some(below) = self.below() {
            below.cancel(token);
        }
    }

    /// Returns the I/O limits for hosts.
    fn limits(&self) -> BlockLimits {
        self.below().map_or_else(BlockLimits::default, |below| below.limits())
    }

    /// True if it can report which blocks are allocated. Otherwise all count as allocated, and it never gets
    /// [`StoreOperation::QueryAllocation`]. It reports every written block as allocated, and may report others so.
    fn reports_allocation(&self) -> bool {
        self.below().is_some_and(|below| below.reports_allocation())
    }

    /// Returns the optional commands that the store executes itself. A store below another one does not: the other one
    /// may change data.
    fn own_commands(&self) -> OwnCommands {
        OwnCommands::default()
    }

    /// Returns access to its own memory, from and to which data moves without buffers.
    fn in_place(&self) -> Option<InPlace> {
        None
    }

    /// True if its buffers never leave the reactor's thread, except to the kernel. Such a store gets buffers whose
    /// bytes a host may change meanwhile.
    fn stays_on_thread(&self) -> bool {
        self.below().is_some_and(|below| below.stays_on_thread())
    }

    /// True if unflushed writes may be lost, including those of other programs than this target.
    fn is_volatile(&self) -> bool {
        match self.below() {
            Some(below) => below.is_volatile(),
            None => self.geometry().volatile_cache,
        }
    }

    /// Returns a number that changes when unflushed writes may have been lost: with the store's memory, or with the
    /// power of this machine. Hosts compare it. `None` if it is unknown, or if other machines keep the blocks.
    fn write_verifier(&self) -> Option<u64> {
        self.below().and_then(|below| below.write_verifier())
    }

    /// Writes everything to stable storage. Blocks the thread.
    ///
    /// # Errors
    /// Fails if written data may be lost.
    fn sync(&self) -> io::Result<()> {
        self.below().map_or(Ok(()), |below| below.sync())
    }

    /// Returns a final flush for a store that is no longer used, with unflushed writes. It runs on a thread of its own
    /// after the store is dropped, so it must not prevent another open. `None`: [`sync`](Store::sync) is called before
    /// the drop.
    fn last_sync(&self) -> Option<LastSync> {
        self.below()?.last_sync()
    }

    /// Releases the blocks of a store that is not written any more, but not dropped yet: others may write them from now
    /// on. May block.
    fn release(&self) {
        if let Some(below) = self.below() {
            below.release();
        }
    }

    /// Returns the owner of the blocks. Does not block.
    fn ownership(&self) -> BlockOwnership {
        self.below().map_or(BlockOwnership::Ours, |below| below.ownership())
    }

    /// Takes the blocks away from the target that owns them: soon they are [free](BlockOwnership::Free), and that target
    /// cannot write them any more. Does not wait for it.
    ///
    /// # Errors
    /// Fails if no fence is possible.
    fn take_over(&self) -> Result<(), OpenError> {
        self.below().map_or(Err(OpenError::Unfenceable), |below| below.take_over())
    }

    /// Returns its snapshots; `None` if it cannot have any.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        self.below()?.snapshots()
    }

    /// Returns the location of its blocks, independent of names. Two stores with the same location have the same
    /// blocks.
    fn location(&self) -> Option<BlockLocation> {
        self.below()?.location()
    }

    /// Plans a resize to `bytes`, or (`None`) to the size that others have given it. Changes nothing.
    ///
    /// # Errors
    /// Fails if it cannot have that size.
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

    /// Calls `watcher` whenever others may have changed its size, which [`plan`](Store::plan) then returns. A store
    /// without such events does not: its size is checked when the target is reloaded.
    fn watch_size(&self, watcher: Weak<SizeWatcher>) {
        if let Some(below) = self.below() {
            below.watch_size(watcher);
        }
    }

    /// Does the steps of a resize that may fail. They are not visible yet.
    ///
    /// # Errors
    /// Fails, and has undone its changes.
    fn stage(&self, resize: &mut Resize) -> Result<(), OpenError> {
        self.below().map_or(Ok(()), |below| below.stage(resize))
    }

    /// Undoes [`stage`](Store::stage).
    fn unstage(&self, resize: &Resize) {
        if let Some(below) = self.below() {
            below.unstage(resize);
        }
    }

    /// Switches to the new size, at once.
    fn switch(&self, resize: &Resize) {
        if let Some(below) = self.below() {
            below.switch(resize);
        }
    }

    /// Does the slow steps after [`switch`](Store::switch).
    fn settle(&self, resize: &Resize) {
        if let Some(below) = self.below() {
            below.settle(resize);
        }
    }

    /// Undoes all changes of its opening; for a store that was never used and will not be.
    fn undo_opening(&self) {
        if let Some(below) = self.below() {
            below.undo_opening();
        }
    }

    /// Does all of a resize. Blocks the thread.
    ///
    /// # Errors
    /// Fails if it cannot have that size.
    fn resize(&self, bytes: u64) -> Result<StoreGeometry, OpenError> {
        let mut resize = self.plan(Some(bytes))?;
        self.stage(&mut resize)?;
        self.switch(&resize);
        self.settle(&resize);
        Ok(self.geometry())
    }
}
