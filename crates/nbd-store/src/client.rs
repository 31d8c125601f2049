//! Operations over the connections to a server, and what a lost connection means for them.
//!
//! All connections are made together, and lost together: so a flush on one of them never covers writes of an earlier
//! server. After a loss, operations whose replies are missing are sent again first, in their order. All others wait until
//! the changes among them have completed.

use crate::durability::NbdDurability;
use crate::operation::{NbdOperation, OperationStep};
use crate::{NbdReplies, NbdReplyEvent, NbdServerError, NbdTerms};
use roadtrain_store::StoreOperation;
use roadtrain_system::buffer::Buffer;
use roadtrain_system::slab::Slab;
use roadtrain_wire::nbd::{Errno, NbdRequest};
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::mem;

/// Maximum requests in flight on a connection.
const IN_FLIGHT_MAX: usize = 128;

/// Completed operation.
#[derive(Debug)]
pub(crate) struct NbdCompletion<T> {
    /// Value of the submission.
    pub(crate) of: T,
    pub(crate) result: Result<(), Status>,
    pub(crate) buffer: Option<Buffer>,
    pub(crate) is_unforced: bool,
}

/// Operation, from its submission until its completion.
#[derive(Debug)]
struct ClientOperation<T> {
    of: T,
    operation: NbdOperation,
    /// Number of its first request among all; `None` before that.
    order: Option<u64>,
    /// True while others wait for it.
    is_resent: bool,
    /// Mark of a flush in flight.
    mark: u64,
}

/// Failed request, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NbdFailure {
    pub(crate) op: StoreOperation,
    pub(crate) errno: Errno,
    pub(crate) text: String,
}

/// Operations over the connections to one export.
#[derive(Debug)]
pub(crate) struct NbdClient<T> {
    operations: Slab<ClientOperation<T>>,
    /// Operations with a request to send.
    waiting: VecDeque<u32>,
    connections: Vec<NbdReplies>,
    terms: NbdTerms,
    lba_bytes: u32,
    durability: NbdDurability,
    /// Number of requests that were sent first.
    sent: u64,
    /// Number of changes that are sent again and not completed.
    resent: usize,
    completions: VecDeque<NbdCompletion<T>>,
    failures: VecDeque<NbdFailure>,
}

impl<T> NbdClient<T> {
    /// Makes a client without connections.
    pub(crate) fn new(lba_bytes: u32) -> NbdClient<T> {
        NbdClient {
            operations: Slab::default(),
            waiting: VecDeque::new(),
            connections: Vec::new(),
            terms: NbdTerms::default(),
            lba_bytes,
            durability: NbdDurability::default(),
            sent: 0,
            resent: 0,
            completions: VecDeque::new(),
            failures: VecDeque::new(),
        }
    }

    /// Submits an operation.
    pub(crate) fn submit(&mut self, op: StoreOperation, buffer: Option<Buffer>, of: T) {
        let operation = NbdOperation::new(op, buffer);
        let entry = ClientOperation { of, operation, order: None, is_resent: false, mark: 0 };
        let index = self.operations.insert(entry);
        self.waiting.push_back(index);
    }

    /// Returns the number of operations that have not completed.
    pub(crate) fn pending(&self) -> usize {
        self.operations.count()
    }

    /// True if a reply is missing.
    pub(crate) fn expects_reply(&self) -> bool {
        self.connections.iter().any(|replies| replies.count() > 0)
    }

    /// Begins with `count` new connections.
    pub(crate) fn connected(&mut self, terms: NbdTerms, count: usize) {
        self.terms = terms;
        let replies = || NbdReplies::new(terms.is_structured, terms.allocation);
        self.connections = (0..count).map(|_| replies()).collect();
    }

    /// Ends all connections. Returns true if completed writes may be lost.
    pub(crate) fn disconnected(&mut self) -> bool {
        let connections = mem::take(&mut self.connections);
        let mut indices: Vec<u32> = connections.iter().flat_map(NbdReplies::operations).collect();
        // Operations between two requests have been sent, too, and wait already.
        let (sent, new): (Vec<u32>, Vec<u32>) = mem::take(&mut self.waiting)
            .into_iter()
            .partition(|&index| self.operations.get(index).is_some_and(|op| op.order.is_some()));
        indices.extend(sent);
        indices.sort_by_key(|&index| self.operations.get(index).and_then(|op| op.order));
        for &index in &indices {
            let Some(entry) = self.operations.get_mut(index) else { continue };
            if entry.operation.op.changes() && !mem::replace(&mut entry.is_resent, true) {
                self.resent += 1;
            }
        }
        self.waiting.extend(indices);
        self.waiting.extend(new);
        self.durability.disconnected()
    }

    /// Ends all operations. There are no connections. A change that a server may have executed, or may still execute, is
    /// not to be sent over another path: the first one could overtake it.
    pub(crate) fn fail_all(&mut self) {
        while let Some(index) = self.waiting.pop_front() {
            let entry = self.operations.get(index);
            let is_open =
                entry.is_some_and(|entry| entry.order.is_some() && entry.operation.op.changes());
            let path = Status::ANA_INACCESSIBLE;
            self.end(index, Err(if is_open { Status::INTERNAL_ERROR.dnr() } else { path }));
        }
    }

    /// Returns the next request to send, its connection, and its operation; see [`payload`](Self::payload). `has_room`
    /// returns true for a connection that takes more bytes.
    pub(crate) fn next_request(
        &mut self,
        has_room: impl Fn(usize) -> bool,
    ) -> Option<(usize, NbdRequest, u32)> {
        loop {
            let index = *self.waiting.front()?;
            let entry = self.operations.get_mut(index)?;
            let is_first = !entry.is_resent && entry.order.is_none();
            if self.resent > 0 && is_first {
                return None;
            }
            let free = (0..self.connections.len())
                .filter(|&of| has_room(of) && self.connections[of].count() < IN_FLIGHT_MAX);
            let connection = free.min_by_key(|&of| self.connections[of].count())?;
            self.waiting.pop_front();
            let is_flush = entry.operation.op == StoreOperation::Flush;
            if is_flush && self.durability.take_loss() {
                self.end(index, Err(Status::WRITE_FAULT));
                continue;
            }
            match entry.operation.step(&self.terms, self.lba_bytes) {
                OperationStep::Request(request) => {
                    self.sent += 1;
                    entry.order.get_or_insert(self.sent);
                    entry.mark = self.durability.mark();
                    let request = self.connections[connection].begin(index, request);
                    return Some((connection, request, index));
                }
                OperationStep::Done => self.finish(index),
            }
        }
    }

    /// Returns the data of a write; `None`: zeroes.
    pub(crate) fn payload(&self, operation: u32) -> Option<&[u8]> {
        self.operations.get(operation)?.operation.payload()
    }

    /// Processes bytes from a connection.
    ///
    /// # Errors
    /// The server breaks the protocol, or shuts down: all connections have to end.
    pub(crate) fn receive(
        &mut self,
        connection: usize,
        mut bytes: &[u8],
    ) -> Result<(), NbdServerError> {
        loop {
            let Some(replies) = self.connections.get_mut(connection) else { return Ok(()) };
            let (used, event) = replies.receive(bytes)?;
            bytes = &bytes[used..];
            let Some(event) = event else { return Ok(()) };
            self.handle(event)?;
        }
    }

    fn handle(&mut self, event: NbdReplyEvent<'_>) -> Result<(), NbdServerError> {
        let (index, result) = match event {
            NbdReplyEvent::Data { operation, at, bytes } => {
                let entry = self.operations.get_mut(operation);
                entry.into_iter().for_each(|entry| entry.operation.receive_data(at, bytes));
                return Ok(());
            }
            NbdReplyEvent::Zeroes { operation, range } => {
                let entry = self.operations.get_mut(operation);
                entry.into_iter().for_each(|entry| entry.operation.receive_zeroes(range.clone()));
                return Ok(());
            }
            NbdReplyEvent::Extent { operation, length, state } => {
                let entry = self.operations.get_mut(operation);
                entry.into_iter().for_each(|entry| entry.operation.receive_extent(length, state));
                return Ok(());
            }
            NbdReplyEvent::Done { operation, result } => (operation, result),
        };
        if let Err((Errno::ESHUTDOWN, text)) = result {
            // The request is sent again on the next connection.
            self.waiting.push_front(index);
            let text = if text.is_empty() { text } else { format!(" ({text})") };
            return Err(NbdServerError::Unusable(format!("it shuts down{text}")));
        }
        self.replied(index, result);
        Ok(())
    }

    fn replied(&mut self, index: u32, result: Result<(), (Errno, String)>) {
        let Some(entry) = self.operations.get_mut(index) else { return };
        let op = entry.operation.op;
        let errno = result.as_ref().map_err(|(errno, _)| *errno).copied();
        if op == StoreOperation::Flush {
            self.durability.flushed(entry.mark);
        }
        match entry.operation.replied(errno) {
            // Completed at once: a loss that follows is one of a completed write.
            Ok(()) if entry.operation.is_done(&self.terms) => self.finish(index),
            Ok(()) => self.waiting.push_front(index),
            Err(status) => {
                let is_refusal = matches!(errno, Err(Errno::EPERM | Errno::EINVAL));
                if matches!(op, StoreOperation::Write { fua: true, .. }) && !is_refusal {
                    self.durability.forced_write_failed();
                }
                self.end(index, Err(status));
            }
        }
        if let Err((errno, text)) = result {
            self.failures.push_back(NbdFailure { op, errno, text });
        }
    }

    /// Completes an operation of which nothing is left to do.
    fn finish(&mut self, index: u32) {
        let lba_shift = self.lba_bytes.trailing_zeros() as u8;
        let entry = self.operations.get_mut(index);
        let result = entry.map_or(Ok(()), |entry| entry.operation.finish(lba_shift));
        self.end(index, result);
    }

    /// Completes an operation.
    fn end(&mut self, index: u32, result: Result<(), Status>) {
        let Some(entry) = self.operations.take(index) else { return };
        let ClientOperation { of, operation, is_resent, order, .. } = entry;
        self.resent -= usize::from(is_resent);
        let is_forced = matches!(operation.op, StoreOperation::Write { fua: true, .. })
            && !operation.is_unforced;
        if result.is_ok() && operation.op.changes() && order.is_some() && !is_forced {
            self.durability.completed();
        }
        let is_unforced = operation.is_unforced && result.is_ok();
        self.completions.push_back(NbdCompletion {
            of,
            result,
            buffer: operation.buffer,
            is_unforced,
        });
    }

    /// Returns the next completion.
    pub(crate) fn take_completion(&mut self) -> Option<NbdCompletion<T>> {
        self.completions.pop_front()
    }

    /// Returns the next failed request.
    pub(crate) fn take_failure(&mut self) -> Option<NbdFailure> {
        self.failures.pop_front()
    }
}

#[cfg(test)]
mod tests;
