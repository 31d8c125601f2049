//! Environment in which [`LaneExecution`] executes the commands of a lane.

use super::data::{LaneExecution, LanePayload};
use super::meter::LaneMeter;
use super::transport::LaneTransport;
use super::{LaneResources, TargetLane};
use crate::flushes::Unflushed;
use crate::namespace::{LaneNamespaces, LocalNamespace};
use crate::open_store::OpenStore;
use crate::tasks::{StoreTask, TaskOutcome};
use crate::uncorrectable::Marked;
use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_store::ByteRange;
use roadtrain_system::buffer::{Buffer, BufferPool};
use roadtrain_target_proto::LbaStatusQuery;
use roadtrain_target_proto::execution::{Environment, StoreJob};
use roadtrain_target_proto::io::{DSM_RANGE_BYTES, TargetIoCommand};
use roadtrain_target_proto::session::TargetConnection;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::rc::Rc;
use std::sync::Arc;
use tracing::warn;

/// Parts of a lane and of its reactor.
pub(super) struct LaneEnv<'a> {
    id: (u32, u32),
    peer: &'a str,
    transport: &'a mut LaneTransport,
    session: &'a mut TargetConnection,
    namespaces: &'a mut LaneNamespaces,
    closing: &'a mut Vec<Unflushed>,
    meter: &'a mut LaneMeter,
    shared: &'a mut LaneResources,
}

impl TargetLane {
    /// Splits the lane into its commands and their environment.
    #[inline]
    pub(super) fn parts<'a>(
        &'a mut self,
        shared: &'a mut LaneResources,
    ) -> (&'a mut LaneExecution, LaneEnv<'a>) {
        let TargetLane { id, peer, transport, session, namespaces, closing, .. } = self;
        let (execution, meter) = (&mut self.execution, &mut self.meter);
        let id = *id;
        (execution, LaneEnv { id, peer, transport, session, namespaces, closing, meter, shared })
    }
}

impl LaneEnv<'_> {
    /// Flushes every store of the controller for the last time.
    fn close(&mut self) -> Result<StoreTask, TaskOutcome> {
        let Some(connected) = self.session.queue() else { return self.flush_all(Vec::new()) };
        let stores = self.shared.control.stores(connected);
        let flushes = stores.iter().filter_map(|store| store.flushes());
        let enter = |user| flushes.map(move |flushes| Unflushed::last(flushes, user));
        *self.closing = self.session.user().map(enter).into_iter().flatten().collect();
        self.flush_all(stores)
    }

    /// Queries the block status. A store without that information is not queried.
    fn query_allocation(
        &self,
        wanted: &LbaStatusQuery,
        mut buffer: Option<Buffer>,
    ) -> Result<StoreTask, TaskOutcome> {
        let gone = Status::INVALID_NAMESPACE.dnr();
        let store = self.session.queue().ok_or(gone);
        let store = store.and_then(|queue| self.shared.control.store_of(queue, wanted.nsid));
        match store {
            Err(status) => Err(TaskOutcome::new(Err(status), buffer)),
            // The NSID has another namespace now.
            Ok(store) if store.store().geometry().lba_shift != wanted.lba_shift => {
                Err(TaskOutcome::new(Err(gone), buffer))
            }
            Ok(store) if store.store().reports_allocation() => {
                Ok(StoreTask::block_status(store, wanted.range(), buffer))
            }
            Ok(_) => {
                buffer.iter_mut().for_each(|buffer| wanted.report_allocated(buffer));
                Err(TaskOutcome::new(Ok(()), buffer))
            }
        }
    }

    fn flush_all(&self, stores: Vec<Arc<OpenStore>>) -> Result<StoreTask, TaskOutcome> {
        StoreTask::flush_all(stores, self.session.user().cloned())
    }
}

impl Environment<LocalNamespace, Buffer> for LaneEnv<'_> {
    const BUFFER_BYTES_MAX: u32 = BufferPool::LEN_MAX as u32;

    #[inline]
    fn now(&self) -> Instant {
        self.shared.now
    }

    #[inline]
    fn session(&mut self) -> &mut TargetConnection {
        self.session
    }

    #[inline]
    fn namespace(&mut self, nsid: u32) -> Option<Rc<LocalNamespace>> {
        self.namespaces.get(nsid)
    }

    fn refusal(&self, nsid: u32) -> Option<Status> {
        self.namespaces.refusal(nsid)
    }

    fn keeps_order(&mut self) -> bool {
        self.transport.tcp().is_some()
    }

    #[inline]
    fn is_closed(&self, namespace: &LocalNamespace, is_it: impl Fn(&ByteRange) -> bool) -> bool {
        let exclusions = &self.shared.tasks.exclusions;
        !exclusions.is_empty() && exclusions.any(&namespace.store, is_it)
    }

    #[inline]
    fn take(&mut self, bytes: u32) -> Option<Buffer> {
        let buffer = self.shared.pool.take(bytes as usize);
        if buffer.is_none() {
            self.shared.meters.reactor(self.shared.number).buffer_waits.add(1);
        }
        buffer
    }

    fn take_reserved(&mut self, bytes: u32) -> Option<Buffer> {
        self.shared.pool.take_reserved(bytes as usize)
    }

    fn make(&mut self, bytes: u32) -> Buffer {
        Buffer::alloc(bytes as usize)
    }

    #[inline]
    fn give(&mut self, buffer: Buffer) {
        self.shared.pool.give(buffer);
    }

    #[inline]
    fn respond(&mut self, slot: u16, status: Status, result: u64) {
        self.meter.answered(slot, status);
        self.transport.respond(self.shared.now, slot, status, result);
    }

    #[inline]
    fn respond_with_data(&mut self, slot: u16, bytes: u32, result: u64) {
        self.transport.respond_with_data(self.shared.now, slot, bytes, result);
    }

    #[inline]
    fn request_data(&mut self, slot: u16, bytes: u32) {
        self.transport.request_data(self.shared.now, slot, bytes);
    }

    fn set_class(&mut self, slot: u16, class: Class) {
        self.transport.set_class(slot, class);
    }

    fn deliver_whole(&mut self, slot: u16, block_bytes: u32) {
        self.transport.deliver_whole(slot, block_bytes);
    }

    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)> {
        self.transport.unanswered(cid)
    }

    fn awaits_data(&mut self, slot: u16) -> bool {
        self.transport.awaits_data(slot)
    }

    fn reserve(&mut self, slot: u16, sqe: &Sqe, data: &[u8]) {
        let cntlid = self.session.queue().map(|connected| connected.cntlid);
        let LaneResources { control, number, .. } = &*self.shared;
        control.reserve(cntlid, sqe, data, (*number, (self.id, slot)));
    }

    #[inline]
    fn has_data_digest(&self) -> bool {
        self.transport.has_data_digest()
    }

    #[inline]
    fn set_in_store(&mut self, commands: u32) {
        self.transport.set_in_store(commands);
    }

    fn place(&mut self, payload: LanePayload<'_>) -> LanePayload<'static> {
        self.transport.place(self.shared.now, payload)
    }

    #[inline]
    fn start(
        &mut self,
        slot: u16,
        job: StoreJob<'_, LocalNamespace, Buffer>,
    ) -> Option<TaskOutcome> {
        let task = match job {
            StoreJob::Execute { command, namespace, buffer } => {
                count_discard(&command, namespace, buffer.as_deref(), self.shared.number);
                let place = (namespace.store.clone(), &namespace.geometry);
                StoreTask::execute(&command, place, buffer, self.session.user())
            }
            StoreJob::CompareAndWrite { compare, write, namespace, buffers } => {
                let place = (namespace.store.clone(), &namespace.geometry);
                match namespace.store.compares_and_writes() {
                    true => {
                        let joined = (joined(&buffers), buffers.1);
                        StoreTask::compare_and_write_in_store(&write, place, joined)
                    }
                    false => StoreTask::compare_and_write((&compare, &write), place, buffers),
                }
            }
            StoreJob::Announce { namespace, offset, length } => {
                let range = ByteRange { offset, len: length.into() };
                Ok(StoreTask::announce(namespace.store.clone(), range))
            }
            StoreJob::QueryBlockStatus { wanted, buffer } => self.query_allocation(&wanted, buffer),
            StoreJob::FlushQueue => {
                let stores = self.session.queue().map(|c| self.shared.control.stores_to_flush(c));
                self.flush_all(stores.unwrap_or_default())
            }
            StoreJob::FlushController => self.close(),
        };
        let LaneResources { tasks, ring, .. } = &mut *self.shared;
        match task {
            Ok(task) => tasks.start(ring, (self.id, slot), task),
            Err(outcome) => Some(outcome),
        }
    }

    fn cancel(&mut self, slot: u16) -> bool {
        let LaneResources { tasks, ring, .. } = &mut *self.shared;
        tasks.cancel(ring, (self.id, slot))
    }

    fn quiesce(&mut self) -> bool {
        self.session.queue().is_none_or(|connected| self.shared.control.quiesce(connected))
    }

    fn quiesced(&mut self) {
        self.session.queue().into_iter().for_each(|c| self.shared.control.quiesced(c));
    }

    fn shut_down(&mut self, flushed: Result<(), Status>) {
        match flushed {
            Ok(()) => self.closing.iter().for_each(Unflushed::shut_down),
            Err(status) => {
                let peer = self.peer;
                warn!(%peer, %status, "not shut down: what the host has written may be lost");
            }
        }
    }

    fn marks_refused(&mut self, sqe: &Sqe, status: Status) {
        let (nsid, slba, blocks) = (sqe.nsid.get(), sqe.slba(), sqe.blocks());
        let Some(namespace) = self.namespaces.get(nsid) else { return };
        let marks = namespace.store.uncorrectable();
        let why = match status {
            _ if status.is(Status::INVALID_OPCODE) => "it has no place for marks (uncorrectable=)",
            _ if !status.is(Status::CAPACITY_EXCEEDED) => return,
            _ if sqe.opcode == opcode::WRITE_UNCORRECTABLE => "it has 1024 marked ranges",
            _ if marks.is_full() => "it has 2048 marked ranges, and one would become two",
            _ => return, // the store's own limit
        };
        if marks.should_log() {
            warn!(peer = %self.peer, nsid, slba, blocks, %status, "blocks are not marked or written: {why}");
        }
    }

    fn aborted(&mut self, id: u32, aborted: bool) {
        self.session.queue().into_iter().for_each(|c| self.shared.control.aborted(c, id, aborted));
    }
}

/// Counts the bytes that a Dataset Management command deallocates.
fn count_discard(
    command: &TargetIoCommand,
    namespace: &LocalNamespace,
    list: Option<&[u8]>,
    reactor: usize,
) {
    let TargetIoCommand::DatasetManagement { ranges, deallocate: true, .. } = *command else {
        return;
    };
    let Some(list) = list else { return };
    let ranges = list.as_chunks::<{ DSM_RANGE_BYTES as usize }>().0.iter().take(ranges as usize);
    let blocks =
        ranges.map(|range| u64::from(u32::from_le_bytes([range[4], range[5], range[6], range[7]])));
    let bytes = blocks.sum::<u64>() << namespace.geometry.lba_shift;
    namespace.cells[reactor].io().discarded(bytes);
}

/// Returns a buffer with the data of both, one after the other.
fn joined((first, second): &(Buffer, Buffer)) -> Buffer {
    let mut joined = Buffer::alloc(first.len() + second.len());
    joined[..first.len()].copy_from_slice(first);
    joined[first.len()..].copy_from_slice(second);
    joined
}
