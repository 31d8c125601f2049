//! Environment of a connection's commands: its end sends their responses, and the stores execute them.

use crate::ends::ConnId;
use crate::execution::SimNamespace;
use crate::pool::SimBuffer;
use crate::process::TargetProcess;
use crate::stores::TargetStores;
use crate::transport::SimTargetEnd;
use roadtrain_proto::op::ByteRange;
use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::SubsystemNamespaces;
use roadtrain_target_proto::execution::{
    CommandTask, Environment, FusedOutcome, StoreJob, StoreOutcome,
};
use roadtrain_target_proto::io::TargetIoCommand;
use roadtrain_target_proto::session::TargetConnection;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::HashMap;
use std::rc::Rc;

/// Environment of a connection's commands.
pub struct CommandEnv<'a, E, L> {
    pub(crate) now: Instant,
    pub(crate) reactor: usize,
    pub(crate) conn: ConnId,
    pub(crate) end: &'a mut E,
    pub(crate) session: &'a mut TargetConnection,
    pub(crate) namespaces: &'a HashMap<u32, Rc<SimNamespace>>,
    pub(crate) refused: &'a Option<SubsystemNamespaces>,
    pub(crate) stores: &'a mut TargetStores,
    pub(crate) process: &'a mut TargetProcess<L>,
}

impl<E, L> CommandEnv<'_, E, L> {
    /// Returns controller and queue.
    fn ids(&self) -> Option<(u16, u16)> {
        self.session.queue().map(|connected| (connected.cntlid, connected.qid))
    }

    /// True if the response to a command is to be dropped.
    fn forgets(&mut self) -> bool {
        self.ids().is_some_and(|(_, qid)| qid > 0) && self.stores.forgets()
    }

    fn compare_and_write(
        &mut self,
        slot: u16,
        commands: (&TargetIoCommand, &TargetIoCommand),
        namespace: &SimNamespace,
        buffers: (SimBuffer, SimBuffer),
    ) -> Option<StoreOutcome<SimBuffer>> {
        let bytes = buffers.0.len() + buffers.1.len();
        if let Some(status) = self.stores.refusal(self.now) {
            let (expected, data) = buffers;
            let fused = FusedOutcome { compared: false, buffer: Some(data) };
            let (buffer, fused) = (Some(expected), Some(Box::new(fused)));
            return Some(StoreOutcome { result: Err(status), buffer, copied: 0, fused });
        }
        let place = (self.stores.flushes(), &namespace.geometry);
        let task = CommandTask::compare_and_write(commands, place, buffers);
        self.stores.start(self.now, (self.reactor, self.conn, slot), bytes, task)
    }

    fn flush(&mut self, slot: u16) -> Option<StoreOutcome<SimBuffer>> {
        let task =
            CommandTask::flush_all(vec![self.stores.flushes()], self.session.user().cloned());
        self.stores.start(self.now, (self.reactor, self.conn, slot), 0, task)
    }
}

impl<E: SimTargetEnd, L> Environment<SimNamespace, SimBuffer> for CommandEnv<'_, E, L> {
    const BUFFER_BYTES_MAX: u32 = 1 << 20;

    fn now(&self) -> Instant {
        self.now
    }

    fn session(&mut self) -> &mut TargetConnection {
        self.session
    }

    fn keeps_order(&mut self) -> bool {
        self.end.keeps_order()
    }

    fn is_closed(&self, namespace: &SimNamespace, is_it: impl Fn(&ByteRange) -> bool) -> bool {
        namespace.memory.is_some() && self.stores.is_closed(self.reactor, is_it)
    }

    fn namespace(&mut self, nsid: u32) -> Option<Rc<SimNamespace>> {
        self.namespaces.get(&nsid).cloned()
    }

    fn refusal(&self, nsid: u32) -> Option<Status> {
        self.refused.as_ref()?.refusal(nsid)
    }

    fn take(&mut self, bytes: u32) -> Option<SimBuffer> {
        self.stores.pool(self.reactor).take(bytes)
    }

    fn take_reserved(&mut self, bytes: u32) -> Option<SimBuffer> {
        self.stores.pool(self.reactor).take_reserved(bytes)
    }

    fn make(&mut self, bytes: u32) -> SimBuffer {
        self.stores.pool(self.reactor).make(bytes)
    }

    fn give(&mut self, buffer: SimBuffer) {
        self.stores.pool(self.reactor).give(buffer);
    }

    fn respond(&mut self, slot: u16, status: Status, result: u64) {
        if !self.forgets() {
            self.end.respond(self.now, slot, status, result);
        }
    }

    fn respond_with_data(&mut self, slot: u16, bytes: u32, result: u64) {
        if !self.forgets() {
            self.end.respond_with_data(self.now, slot, bytes, result);
        }
    }

    fn request_data(&mut self, slot: u16, bytes: u32) {
        self.end.request_data(self.now, slot, bytes);
    }

    fn set_class(&mut self, slot: u16, class: Class) {
        self.end.set_class(slot, class);
    }

    fn deliver_whole(&mut self, slot: u16, block_bytes: u32) {
        self.end.deliver_whole(slot, block_bytes);
    }

    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)> {
        self.end.unanswered(cid)
    }

    fn awaits_data(&mut self, slot: u16) -> bool {
        self.end.awaits_data(slot)
    }

    fn reserve(&mut self, slot: u16, sqe: &Sqe, data: &[u8]) {
        let cntlid = self.ids().map_or(0, |(cntlid, _)| cntlid);
        self.process.reserve(cntlid, sqe, data, (self.reactor, (self.conn, slot)));
    }

    fn has_data_digest(&self) -> bool {
        self.end.has_data_digest()
    }

    fn set_in_store(&mut self, commands: u32) {
        self.end.set_in_store(commands);
    }

    fn start(
        &mut self,
        slot: u16,
        job: StoreJob<'_, SimNamespace, SimBuffer>,
    ) -> Option<StoreOutcome<SimBuffer>> {
        if let StoreJob::CompareAndWrite { compare, write, namespace, buffers } = job {
            return self.compare_and_write(slot, (&compare, &write), namespace, buffers);
        }
        if let StoreJob::QueryBlockStatus { wanted, mut buffer } = job {
            // The disk does not track allocation.
            buffer.iter_mut().for_each(|buffer| wanted.report_allocated(buffer));
            return Some(StoreOutcome::new(Ok(()), buffer));
        }
        let StoreJob::Execute { command, namespace, mut buffer } = job else {
            return self.flush(slot);
        };
        if let Some(status) = self.stores.refusal(self.now) {
            return Some(StoreOutcome::new(Err(status), buffer));
        }
        if namespace.nsid != 1 {
            buffer.iter_mut().for_each(|buffer| buffer.fill(self.stores.extra_store));
            return Some(StoreOutcome::new(Ok(()), buffer));
        }
        let bytes = buffer.as_deref().map_or(0, <[u8]>::len);
        let place = (self.stores.flushes(), &namespace.geometry);
        let task = CommandTask::execute(&command, place, buffer, self.session.user());
        self.stores.start(self.now, (self.reactor, self.conn, slot), bytes, task)
    }

    fn cancel(&mut self, slot: u16) -> bool {
        self.stores.cancel(self.conn, slot)
    }

    fn quiesce(&mut self) -> bool {
        self.ids().is_none_or(|(cntlid, _)| self.process.quiesce(cntlid))
    }

    fn quiesced(&mut self) {
        self.session.queue().into_iter().for_each(|own| self.process.quiesced(own));
    }

    fn shut_down(&mut self, flushed: Result<(), Status>) {
        if let (Ok(()), Some(user)) = (flushed, self.session.user()) {
            self.stores.stability.borrow_mut().end_reports(self.now, user);
        }
    }

    fn aborted(&mut self, id: u32, aborted: bool) {
        self.ids().into_iter().for_each(|(cntlid, _)| self.process.aborted(cntlid, id, aborted));
    }
}
