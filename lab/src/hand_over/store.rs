//! A store that hands over to other threads what the one below it does.

use super::HandOverMode;
use super::block::BlockThread;
use roadtrain_store::{
    InPlace, OpenError, Store, StoreCompletion, StoreCompletions, StoreContinuation, StoreGeometry,
    StoreIo, StoreOperation, StoreToken,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// A store over another one.
///
/// Data that moves in place is announced: a read's bytes are sent from the memory below after the other threads had
/// their turn. A write arrives in a buffer, which its executing thread copies. The product receives writes of more
/// than 8 KiB, which do not come along with their command, in place: here they take one more copy.
pub(super) struct HandOverStore {
    /// `None`: the reactor executes. Ends before the queue that it sends to.
    block: Option<BlockThread>,
    queue: Arc<WorkQueue>,
    below: Arc<dyn Store>,
}

impl HandOverStore {
    /// Called by a thread of the target, on whose cores the others run then.
    pub(super) fn new(mode: HandOverMode, below: Arc<dyn Store>) -> io::Result<HandOverStore> {
        let queue = Arc::new(WorkQueue::start()?);
        let block = match (mode, &queue.sender) {
            (HandOverMode::Base, Some(done)) => {
                Some(BlockThread::start(below.clone(), done.clone())?)
            }
            _ => None,
        };
        Ok(HandOverStore { block, queue, below })
    }
}

impl fmt::Debug for HandOverStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandOverStore").field(&self.below).finish()
    }
}

impl Store for HandOverStore {
    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        let Some(block) = &self.block else {
            let token = io.then(token, self.queue.clone());
            return self.below.submit(op, buffer, token, io);
        };
        if !block.start_op(op, buffer, (token, io.completions())) {
            io.complete(StoreCompletion::new(token, Err(Status::INTERNAL_ERROR), None));
        }
    }

    fn below(&self) -> Option<&dyn Store> {
        Some(&*self.below)
    }

    fn geometry(&self) -> StoreGeometry {
        self.below.geometry()
    }

    fn identity(&self) -> Result<u128, OpenError> {
        self.below.identity()
    }

    /// Other threads take no part.
    fn cancel(&self, _token: StoreToken) {}

    fn in_place(&self) -> Option<InPlace> {
        self.below.in_place().map(InPlace::announced)
    }

    fn stays_on_thread(&self) -> bool {
        self.block.is_none() && self.below.stays_on_thread()
    }
}

/// A completion on its way, and how it gets to the reactor.
pub(super) type HandOverCompletion = (StoreCompletion, StoreCompletions);

/// The thread that completions pass through on their way to the reactor. Dropping it ends the thread, after what was
/// sent before.
struct WorkQueue {
    /// `None` when it ends.
    sender: Option<Sender<HandOverCompletion>>,
    thread: Option<JoinHandle<()>>,
}

impl WorkQueue {
    fn start() -> io::Result<Self> {
        let (sender, receiver) = channel();
        let body = move || run(&receiver);
        let thread = thread::Builder::new().name("roadtrain-wq".into()).spawn(body)?;
        Ok(WorkQueue { sender: Some(sender), thread: Some(thread) })
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it does not panic");
        }
    }
}

impl StoreContinuation for WorkQueue {
    /// The reactor has executed.
    fn answered(&self, completion: StoreCompletion, io: &mut StoreIo<'_>) {
        let Some(sender) = &self.sender else { return io.complete(completion) };
        if let Err(refused) = sender.send((completion, io.completions())) {
            io.complete(refused.0.0);
        }
    }
}

fn run(done: &Receiver<HandOverCompletion>) {
    while let Ok((completion, completions)) = done.recv() {
        // When the reactor has ended, no thread waits for the completion, and its buffer is freed.
        completions.send(completion);
    }
}
