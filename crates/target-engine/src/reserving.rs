//! Thread that saves reservations.

use super::kept_file::write;
use super::open_store::OpenStore;
use roadtrain_store::BlockOwnership;
use roadtrain_target_proto::TurnOf;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use tracing::warn;

/// File to write while this target owns the blocks. Another target may own them by then.
struct SaveJob {
    turn: TurnOf,
    store: Arc<OpenStore>,
    path: PathBuf,
    image: Arc<[u8]>,
}

/// Writes files one after the other. Its thread ends with it.
pub(super) struct Saver {
    jobs: Sender<SaveJob>,
    thread: JoinHandle<()>,
}

impl Saver {
    /// Starts the thread. `done` receives the result of each job.
    pub(super) fn start(done: impl Fn(&TurnOf, bool) + Send + 'static) -> io::Result<Self> {
        let (jobs, inbox) = channel::<SaveJob>();
        let work = move || {
            while let Ok(SaveJob { turn, store, path, image }) = inbox.recv() {
                let written = match store.store().ownership() {
                    BlockOwnership::Ours => write(&path, &image),
                    _ => Err(io::Error::other("another target may own the blocks and the file")),
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

    /// Queues a file. Returns true if it will be written.
    pub(super) fn save(
        &self,
        turn: TurnOf,
        (store, path): (Arc<OpenStore>, PathBuf),
        image: Arc<[u8]>,
    ) -> bool {
        self.jobs.send(SaveJob { turn, store, path, image }).is_ok()
    }

    /// Waits until everything is written.
    pub(super) fn finish(self) {
        drop(self.jobs);
        let _ = self.thread.join(); // the panic is already reported
    }
}
