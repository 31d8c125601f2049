//! The thread that executes commands for a reactor which only receives and sends.

use super::work_queue::WorkQueue;
use crate::clock;
use crate::mailbox::{Inbox, Outbox, mailbox};
use crate::ring::{Ring, UserData};
use crate::target::flushes::Waker;
use crate::target::reactor::{RING_ENTRIES, STOP_WAIT};
use crate::target::tasks::{self, Job, Owner, Tasks};
use roadtrain_proto::target::stability::Wake;
use roadtrain_proto::time::Instant;
use roadtrain_store::{Completion, Completions};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use tracing::warn;

/// Marks the mailbox in the ring.
const INBOX: u64 = UserData { kind: 1, index: 0, generation: 0 }.pack();

enum Message {
    Start(Owner, Job),
    /// What a flush elsewhere has done for a command.
    Flush(u32, Wake),
    /// A store has answered.
    Completed(Completion),
    /// End what waits for an emulated SSD, then, once nothing is under way, the thread.
    Stop,
}

/// A block thread. Dropping it ends the thread, when its backends have answered.
pub(super) struct Block {
    orders: Outbox<Message>,
    thread: Option<JoinHandle<()>>,
}

impl Block {
    /// Completions leave by `queue`.
    pub(super) fn start(queue: WorkQueue) -> io::Result<Self> {
        let (orders, inbox) = mailbox()?;
        let (ready, started) = sync_channel(1);
        let own = orders.clone();
        let waker: Waker = Arc::new(move |index, wake| own.send(Message::Flush(index, wake)));
        let own = orders.clone();
        let completions = Completions::new(move |done| own.send(Message::Completed(done)));
        let body = move || match Executor::new(inbox, queue, Tasks::new(waker, completions)) {
            Ok(mut executor) => executor.run(&ready),
            Err(error) => drop(ready.send(Err(error))),
        };
        let thread = thread::Builder::new().name("roadtrain-block".into()).spawn(body)?;
        started.recv().map_err(|_| io::ErrorKind::BrokenPipe)??;
        Ok(Block { orders, thread: Some(thread) })
    }

    /// Hands a command over; `false` when the thread is gone.
    pub(super) fn start_job(&self, owner: Owner, job: Job) -> bool {
        self.orders.send(Message::Start(owner, job))
    }

    /// Nothing more comes, and nobody waits for an emulated SSD.
    pub(super) fn stop(&self) {
        self.orders.send(Message::Stop);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.stop();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            warn!("a block thread panicked");
        }
    }
}

/// What runs on the thread.
struct Executor {
    ring: Ring,
    inbox: Inbox<Message>,
    tasks: Tasks,
    queue: WorkQueue,
    /// When the thread ends, at the latest.
    stop_at: Option<Instant>,
}

impl Executor {
    fn new(inbox: Inbox<Message>, queue: WorkQueue, tasks: Tasks) -> io::Result<Self> {
        let ring = Ring::new(RING_ENTRIES)?;
        Ok(Executor { ring, inbox, tasks, queue, stop_at: None })
    }

    fn run(&mut self, ready: &SyncSender<io::Result<()>>) {
        self.watch();
        let _ = ready.send(Ok(()));
        while !self.is_over() {
            if let Err(error) = self.turn() {
                return warn!("block thread: {error}");
            }
        }
    }

    fn is_over(&self) -> bool {
        self.stop_at.is_some_and(|at| self.tasks.count() == 0 || at <= clock::now())
    }

    fn watch(&mut self) {
        // SAFETY: the inbox is as long open as the ring.
        let fd = unsafe { BorrowedFd::borrow_raw(self.inbox.fd()) };
        self.ring.poll_add(fd, libc::POLLIN, INBOX);
    }

    fn turn(&mut self) -> io::Result<()> {
        let deadline = self.tasks.next_due().into_iter().chain(self.stop_at).min();
        let timeout = deadline.map(|deadline| deadline.since(clock::now()));
        self.ring.submit_and_wait(1, timeout)?;
        while let Some(cqe) = self.ring.next_completion() {
            let data = UserData::unpack(cqe.user_data);
            if cqe.user_data == INBOX {
                self.read_inbox();
            } else if data.kind == tasks::KIND
                && let Some(ended) = self.tasks.resume(&mut self.ring, data.index, cqe.result)
            {
                let _ = self.queue.send(ended);
            }
        }
        self.expire(clock::now());
        Ok(())
    }

    fn read_inbox(&mut self) {
        self.inbox.acknowledge();
        while let Some(message) = self.inbox.take() {
            match message {
                Message::Start(owner, job) => {
                    if let Some(outcome) = self.tasks.start(&mut self.ring, owner, job) {
                        let _ = self.queue.send((owner, outcome));
                    }
                }
                Message::Flush(index, wake) => {
                    if let Some(ended) = self.tasks.woken(&mut self.ring, index, wake) {
                        let _ = self.queue.send(ended);
                    }
                }
                Message::Completed(completion) => {
                    if let Some(ended) = self.tasks.completed(&mut self.ring, completion) {
                        let _ = self.queue.send(ended);
                    }
                }
                Message::Stop => {
                    self.stop_at.get_or_insert(clock::now() + STOP_WAIT);
                    self.expire(Instant(u64::MAX));
                }
            }
        }
        self.watch();
    }

    /// Ends what is due by `now`.
    fn expire(&mut self, now: Instant) {
        while let Some(ended) = self.tasks.expire(&mut self.ring, now) {
            let _ = self.queue.send(ended); // its thread lives as long as we do
        }
    }
}
