//! A virtqueue in the guest's memory: heads of chains are taken out, results put in.
//!
//! The guest owns the memory and may write anything there at any time. Invalid content is an error that ends the
//! queue's use. Nothing outside the memory is touched, and never more chains are in flight than the queue holds.

use super::chain::{BadChain, Chain};
use super::inflight::{Inflight, InflightMemory};
use super::memory::MappedMemory;
use roadtrain_system::ring::EventfdSignaller;
use roadtrain_wire::virtio_blk::RequestStatus;
use rustix::io::{ReadWriteFlags, preadv2};
use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing::warn;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

/// Most descriptors of a queue.
pub(crate) const QUEUE_SIZE_MAX: u16 = 1024;

/// Cause of a queue's end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadRing {
    #[error("{0}")]
    Chain(#[from] BadChain),
    #[error("{0}")]
    Ring(#[from] virtio_queue::Error),
    #[error("its rings are not the guest's memory")]
    Outside,
    #[error("the frontend has cut the memory that it shares")]
    Lost,
    #[error("descriptor {0} is available twice")]
    Twice(u16),
}

/// Initial state of a queue, as the frontend set it.
pub(crate) struct RingSetup {
    pub(crate) index: u16,
    pub(crate) size: u16,
    pub(crate) descriptors: GuestAddress,
    pub(crate) available: GuestAddress,
    pub(crate) used: GuestAddress,
    /// Index of the next available chain.
    pub(crate) base: u16,
    pub(crate) event_idx: bool,
    /// True if the guest never flushes: its writes are stable when they complete.
    pub(crate) write_through: bool,
    pub(crate) kick: File,
    pub(crate) signals: QueueSignals,
    pub(crate) memory: Arc<MappedMemory>,
    pub(crate) inflight: Option<Arc<InflightMemory>>,
}

/// Events that the backend signals.
#[derive(Default)]
pub(crate) struct QueueSignals {
    /// Chains were used.
    pub(crate) call: Option<EventfdSignaller>,
    /// The queue is no longer served. Its bell is made at that time.
    pub(crate) error: Option<File>,
}

/// A queue in use.
pub(crate) struct Virtqueue {
    queue: Queue,
    memory: Arc<MappedMemory>,
    kick: File,
    pub(crate) signals: QueueSignals,
    inflight: Option<Inflight>,
    write_through: bool,
    /// Heads that a predecessor took and did not finish.
    again: VecDeque<u16>,
    /// Heads that are taken, by index.
    taken: Box<[bool]>,
    /// True if a chain was used since the last signal.
    added: bool,
}

impl Virtqueue {
    /// Starts where the predecessor ended.
    ///
    /// # Errors
    /// Fails if its rings are outside the guest's memory.
    pub(crate) fn start(setup: RingSetup) -> Result<Self, BadRing> {
        let RingSetup { size, memory, .. } = setup;
        let mut queue = Queue::new(QUEUE_SIZE_MAX)?;
        queue.try_set_size(size)?;
        queue.try_set_desc_table_address(setup.descriptors)?;
        queue.try_set_avail_ring_address(setup.available)?;
        queue.try_set_used_ring_address(setup.used)?;
        queue.set_event_idx(setup.event_idx);
        queue.set_ready(true);
        if !queue.is_valid(&**memory) {
            return Err(BadRing::Outside);
        }
        let used = queue.used_idx(&**memory, Ordering::Acquire)?.0;
        let mut inflight =
            setup.inflight.and_then(|memory| Inflight::of(&memory, setup.index, size));
        let again = inflight.as_mut().map(|inflight| inflight.recover(used, size));
        // Chains that were taken but not used: the frontend, which knows only the used index, may not count them.
        let base = again.as_ref().map(|heads| used.wrapping_add(heads.len() as u16));
        queue.set_next_used(used);
        queue.set_next_avail(base.unwrap_or(setup.base));
        let again = again.unwrap_or_default().into();
        let taken = vec![false; usize::from(size)].into();
        let (kick, signals) = (setup.kick, setup.signals);
        let write_through = setup.write_through;
        let added = false;
        Ok(Virtqueue { queue, memory, kick, signals, inflight, write_through, again, taken, added })
    }

    /// Switches to other memory, which holds the same rings.
    ///
    /// # Errors
    /// Fails if it does not hold them.
    pub(crate) fn remap(&mut self, memory: Arc<MappedMemory>) -> Result<(), BadRing> {
        self.memory = memory;
        if self.queue.is_valid(&**self.memory) { Ok(()) } else { Err(BadRing::Outside) }
    }

    /// Fails if memory was cut during the reads so far.
    fn check(&self) -> Result<(), BadRing> {
        let is_lost =
            self.memory.is_lost() || self.inflight.as_ref().is_some_and(Inflight::is_lost);
        if is_lost { Err(BadRing::Lost) } else { Ok(()) }
    }

    /// The guest's memory.
    pub(crate) fn memory(&self) -> &MappedMemory {
        &self.memory
    }

    /// True if each write has to be stable when it completes.
    pub(crate) fn is_write_through(&self) -> bool {
        self.write_through
    }

    /// Returns the index of the next available chain, where a successor begins.
    pub(crate) fn next_available(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Returns the descriptor that becomes readable when the guest kicks.
    pub(crate) fn kick_fd(&self) -> RawFd {
        self.kick.as_raw_fd()
    }

    /// Resets the kick. Called before the search for the announced chains.
    pub(crate) fn acknowledge(&mut self) {
        let mut count = [0; 8];
        // The frontend shares the event and its flags, and can make plain reads block.
        let (at_once, nowhere) = (ReadWriteFlags::NOWAIT, u64::MAX);
        let _ = preadv2(&self.kick, &mut [IoSliceMut::new(&mut count)], nowhere, at_once);
    }

    /// Takes the next chain into `chain`; returns its head. With `old_only` takes only chains that a predecessor took.
    ///
    /// # Errors
    /// Fails if the ring or the chain is invalid.
    pub(crate) fn take(
        &mut self,
        chain: &mut Chain,
        old_only: bool,
    ) -> Result<Option<u16>, BadRing> {
        let old = self.again.pop_front();
        let head = match old {
            None if old_only => None,
            None => self.queue.iter(&**self.memory)?.next().map(|chain| chain.head_index()),
            old => old,
        };
        let Some(head) = head else { return Ok(None) };
        let (table, size) = (GuestAddress(self.queue.desc_table()), self.queue.size());
        match self.taken.get_mut(usize::from(head)) {
            None => return Err(BadChain::NoSuchDescriptor { index: head, size }.into()),
            Some(taken) if *taken => return Err(BadRing::Twice(head)),
            Some(taken) => *taken = true,
        }
        if let Some(inflight) = self.inflight.as_mut().filter(|_| old.is_none()) {
            inflight.mark(head);
        }
        let taken = chain.take(&self.memory, table, size, head);
        self.check()?;
        taken?;
        Ok(Some(head))
    }

    /// True if chains of a predecessor are still to be taken.
    pub(crate) fn has_old(&self) -> bool {
        !self.again.is_empty()
    }

    /// Gives the chain of `head` back with its status and `written` bytes of data.
    ///
    /// # Errors
    /// Fails if the addresses are no longer memory.
    pub(crate) fn give(
        &mut self,
        head: u16,
        status: RequestStatus,
        status_at: GuestAddress,
        written: u32,
    ) -> Result<(), BadRing> {
        let outside = BadChain::OutsideMemory { address: status_at.0, length: 1 };
        self.memory.write_obj(status as u8, status_at).map_err(|_| outside)?;
        if let Some(inflight) = &self.inflight {
            inflight.ending(head);
        }
        self.queue.add_used(&**self.memory, head, written + 1)?;
        if let Some(inflight) = &self.inflight {
            inflight.ended(head, self.queue.next_used());
        }
        self.taken[usize::from(head)] = false;
        self.added = true;
        self.check()
    }

    /// Enables kicks for the next available chains. True if some are available already.
    ///
    /// # Errors
    /// Fails if the ring is no longer memory.
    pub(crate) fn enable_kicks(&mut self) -> Result<bool, BadRing> {
        let has_more = self.queue.enable_notification(&**self.memory);
        self.check()?;
        Ok(has_more?)
    }

    /// Signals the chains used since the last signal to the guest, if it wants a notification.
    ///
    /// # Errors
    /// Fails if the ring is no longer memory.
    pub(crate) fn signal(&mut self) -> Result<(), BadRing> {
        if std::mem::take(&mut self.added) && self.queue.needs_notification(&**self.memory)? {
            self.signal_always();
        }
        Ok(())
    }

    /// Signals the guest in any case: after its event was replaced, no notification may be lost.
    pub(crate) fn signal_always(&mut self) {
        ring(self.signals.call.as_mut());
    }

    /// Signals the end of the queue's service to the frontend.
    pub(crate) fn signal_error(&self) {
        let bell = self.signals.error.as_ref().map(|event| EventfdSignaller::new(event.as_fd()));
        ring(bell.and_then(Result::ok).as_mut());
    }
}

fn ring(bell: Option<&mut EventfdSignaller>) {
    if let Some(Err(error)) = bell.map(EventfdSignaller::signal) {
        warn!(%error, "vhost-user: cannot signal the guest");
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
