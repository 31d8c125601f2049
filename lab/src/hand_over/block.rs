//! The thread that executes commands for reactors which only receive and send.

use super::store::HandOverCompletion;
use roadtrain_store::{
    RING_KIND, Store, StoreCompletion, StoreCompletions, StoreExecutor, StoreOperation, StoreToken,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_system::clock;
use roadtrain_system::mailbox::{MailboxReceiver, MailboxSender, mailbox};
use roadtrain_system::ring::{ReactorRing, UserData};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

const RING_ENTRIES: u32 = 1024;
/// Marks the mailbox in the ring.
const INBOX: u64 = UserData { kind: 1, index: 0, generation: 0 }.pack();

/// The owner of an operation: its token, and the way back.
type From = (StoreToken, StoreCompletions);

enum BlockMessage {
    Start(StoreOperation, Option<Buffer>, From),
    /// The store has answered from another thread.
    Completed(StoreCompletion),
    /// Ends once nothing is in flight.
    Stop,
}

/// A block thread. Dropping it ends the thread, when the store below has answered.
pub(super) struct BlockThread {
    orders: MailboxSender<BlockMessage>,
    thread: Option<JoinHandle<()>>,
}

impl BlockThread {
    /// Executes on `below`; completions leave by `done`.
    pub(super) fn start(
        below: Arc<dyn Store>,
        done: Sender<HandOverCompletion>,
    ) -> io::Result<Self> {
        let (orders, inbox) = mailbox()?;
        let (ready, started) = sync_channel(1);
        let own = orders.clone();
        let body = move || {
            let completions =
                StoreCompletions::new(move |done| own.send(BlockMessage::Completed(done)));
            match BlockWorker::new(inbox, below, done, completions) {
                Ok(mut worker) => worker.run(&ready),
                Err(error) => drop(ready.send(Err(error))),
            }
        };
        let thread = thread::Builder::new().name("roadtrain-block".into()).spawn(body)?;
        started.recv().map_err(|_| io::ErrorKind::BrokenPipe)??;
        Ok(BlockThread { orders, thread: Some(thread) })
    }

    /// Hands an operation over; `false` when the thread is gone.
    pub(super) fn start_op(&self, op: StoreOperation, buffer: Option<Buffer>, from: From) -> bool {
        self.orders.send(BlockMessage::Start(op, buffer, from))
    }
}

impl Drop for BlockThread {
    fn drop(&mut self) {
        self.orders.send(BlockMessage::Stop);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it does not panic");
        }
    }
}

/// The thread's part.
struct BlockWorker {
    ring: ReactorRing,
    inbox: MailboxReceiver<BlockMessage>,
    executor: StoreExecutor,
    below: Arc<dyn Store>,
    done: Sender<HandOverCompletion>,
    /// Owners of operations in flight, by token.
    from: Vec<Option<From>>,
    free: Vec<u32>,
    stops: bool,
}

impl BlockWorker {
    fn new(
        inbox: MailboxReceiver<BlockMessage>,
        below: Arc<dyn Store>,
        done: Sender<HandOverCompletion>,
        completions: StoreCompletions,
    ) -> io::Result<Self> {
        let (ring, executor) = (ReactorRing::new(RING_ENTRIES)?, StoreExecutor::new(completions));
        let (from, free) = (Vec::new(), Vec::new());
        Ok(BlockWorker { ring, inbox, executor, below, done, from, free, stops: false })
    }

    fn run(&mut self, ready: &SyncSender<io::Result<()>>) {
        self.watch();
        let _ = ready.send(Ok(()));
        while !self.stops || self.from.len() > self.free.len() {
            if let Err(error) = self.turn() {
                return tracing::warn!("block thread: {error}");
            }
        }
    }

    fn watch(&mut self) {
        // SAFETY: the inbox is as long open as the ring.
        let fd = unsafe { BorrowedFd::borrow_raw(self.inbox.fd()) };
        self.ring.poll_add(fd, libc::POLLIN, INBOX);
    }

    fn turn(&mut self) -> io::Result<()> {
        let timeout = self.executor.next_due().map(|due| due.since(clock::now()));
        self.ring.submit_and_wait(1, timeout)?;
        while let Some(cqe) = self.ring.next_completion() {
            let data = UserData::unpack(cqe.user_data);
            if cqe.user_data == INBOX {
                self.read_inbox();
            } else if data.kind == RING_KIND {
                self.executor.resume(&mut self.ring, data.index, cqe.result);
            }
            self.answer();
        }
        self.executor.expire(&mut self.ring, clock::now());
        self.answer();
        Ok(())
    }

    fn read_inbox(&mut self) {
        self.inbox.acknowledge();
        while let Some(message) = self.inbox.take() {
            match message {
                BlockMessage::Start(op, buffer, from) => self.start(op, buffer, from),
                BlockMessage::Completed(completion) => self.executor.complete(completion),
                BlockMessage::Stop => self.stops = true,
            }
            self.answer();
        }
        self.watch();
    }

    fn start(&mut self, op: StoreOperation, buffer: Option<Buffer>, from: From) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.from.push(None);
            (self.from.len() - 1) as u32
        });
        self.from[index as usize] = Some(from);
        let token = StoreToken::new(index, 0);
        self.below.submit(op, buffer, token, &mut self.executor.io(&mut self.ring));
    }

    /// Sends what the store has answered to the work queue.
    fn answer(&mut self) {
        while let Some(completion) = self.executor.next(&mut self.ring) {
            let (index, _) = completion.token.parts();
            let Some((token, completions)) = self.from[index as usize].take() else { continue };
            self.free.push(index);
            // The queue lives as long as we do.
            let _ = self.done.send((StoreCompletion { token, ..completion }, completions));
        }
    }
}
