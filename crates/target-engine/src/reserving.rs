//! Reservations beside the reactors: which commands wait for the control plane, who has fenced, and a thread that saves.

use super::kept_file::write;
use super::open_store::OpenStore;
use super::order::Order;
use super::tasks::Owner;
use roadtrain_store::Custody;
use roadtrain_system::mailbox::Outbox;
use roadtrain_target_proto::TurnOf;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use tracing::warn;

/// A file to write, while the blocks are this target's: it may be another one's by then.
struct Job {
    turn: TurnOf,
    store: Arc<OpenStore>,
    path: PathBuf,
    image: Arc<[u8]>,
}

/// Writes files, one after the other. Its thread ends with it.
pub(super) struct Saver {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Saver {
    /// `done` hears what has become of each.
    pub(super) fn start(done: impl Fn(&TurnOf, bool) + Send + 'static) -> io::Result<Self> {
        let (jobs, inbox) = channel::<Job>();
        let work = move || {
            while let Ok(Job { turn, store, path, image }) = inbox.recv() {
                let written = match store.store().custody() {
                    Custody::Ours => write(&path, &image),
                    _ => Err(io::Error::other("others may have the blocks, and the file")),
                };
                drop(store);
                if let Err(error) = &written {
                    warn!(path = %path.display(), "a change of reservations is refused, as it cannot be saved: {error}");
                }
                done(&turn, written.is_ok());
            }
        };
        let thread = thread::Builder::new().name("roadtrain-reserve".into()).spawn(work)?;
        Ok(Saver { jobs, thread })
    }

    /// Whether it will be written.
    pub(super) fn save(
        &self,
        turn: TurnOf,
        (store, path): (Arc<OpenStore>, PathBuf),
        image: Arc<[u8]>,
    ) -> bool {
        self.jobs.send(Job { turn, store, path, image }).is_ok()
    }

    /// Waits until everything is written.
    pub(super) fn finish(self) {
        drop(self.jobs);
        let _ = self.thread.join(); // a panic was reported
    }
}

/// What reactors and the control plane wait for.
#[derive(Default)]
pub(super) struct Reserving {
    last: u64,
    /// Commands that are not answered: the reactor that has each, and whose it is there.
    asked: HashMap<u64, (usize, Owner)>,
    /// So many reactors have not fenced.
    fences: BTreeMap<TurnOf, usize>,
}

impl Reserving {
    /// A command of that reactor waits: its token.
    pub(super) fn ask(&mut self, reactor: usize, owner: Owner) -> u64 {
        self.last += 1;
        self.asked.insert(self.last, (reactor, owner));
        self.last
    }

    /// Answers it.
    pub(super) fn answer(
        &mut self,
        reactors: &[Outbox<Order>],
        token: u64,
        status: Status,
        report: Arc<[u8]>,
    ) {
        let Some((reactor, owner)) = self.asked.remove(&token) else { return };
        if let Some(reactor) = reactors.get(reactor) {
            reactor.send(Order::Reserved(owner, status, report));
        }
    }

    /// So many reactors are to fence.
    pub(super) fn begin(&mut self, turn: TurnOf, reactors: usize) {
        self.fences.insert(turn, reactors);
    }

    /// One has. Whether all have.
    pub(super) fn fenced(&mut self, turn: &TurnOf) -> bool {
        let Some(left) = self.fences.get_mut(turn) else { return false };
        *left = left.saturating_sub(1);
        let is_over = *left == 0;
        if is_over {
            self.fences.remove(turn);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_over_when_all_have_fenced() {
        let turn = |number| TurnOf { nqn: "nqn.2025-01.io.example:a".into(), nsid: 1, number };
        let mut reserving = Reserving::default();
        reserving.begin(turn(1), 2);
        reserving.begin(turn(2), 1);
        assert!(!reserving.fenced(&turn(1)) && reserving.fenced(&turn(2)));
        assert!(reserving.fenced(&turn(1)) && !reserving.fenced(&turn(1)));
    }
}
