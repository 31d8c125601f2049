//! Marks of a store over all reactors: blocks that cannot be read until they are written. [`Marks`] decides on changes;
//! this module has the lock, and the file next to the store.

use super::kept_file::{KeptFileKind, KeptPlace, with_suffix, write};
use roadtrain_proto::time::Instant;
use roadtrain_store::{
    BlockOwnership, ByteRange, OpenError, Store, StoreCompletion, StoreCompletions, StoreKind,
    StoreSpec, StoreToken,
};
use roadtrain_system::clock;
use roadtrain_target_proto::uncorrectable::{
    ByteExtents, MarkChange, Marks, MarksPlace, MarksStep, SPLIT_MAX, parse_image,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tracing::{info, warn};

const KIND: KeptFileKind = KeptFileKind {
    suffix: ".uncorrectable",
    without: "Write Uncorrectable is refused, as marks cannot be kept",
    actions: ["keep marks in", "read the marks in", "use the marks in"],
    advice: "remove it to take all blocks for good",
};

#[cfg(test)]
thread_local! {
    /// Calls of [`Uncorrectable::path`] by this thread: the cost of a configuration change.
    pub(super) static PATHS_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Shortest interval between two log lines about refusals.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Operation that waits for a change of marks.
#[derive(Clone, Debug)]
pub(crate) struct MarkWaiter {
    pub(crate) token: StoreToken,
    pub(crate) completions: StoreCompletions,
}

#[derive(Debug)]
struct UncorrectableState {
    /// Marks, with the operation that waits for each change; `None` if no operation waits.
    marks: Marks<Option<MarkWaiter>>,
    path: Option<PathBuf>,
    log_at: Instant,
}

/// Marks of a store. The lock is taken while blocks are marked, and for changes.
#[derive(Debug)]
pub(crate) struct Uncorrectable {
    /// True if blocks are marked. While it is false, commands check nothing else.
    any: AtomicBool,
    state: Mutex<UncorrectableState>,
}

/// Open store with marks.
pub(crate) trait Marked: Send + Sync + 'static {
    /// Returns the marks.
    fn uncorrectable(&self) -> &Uncorrectable;

    /// True if this target owns the blocks now.
    fn is_ours(&self) -> bool;
}

/// Returns the file of marks next to the file at `path`.
#[must_use]
pub fn marks_file_of(path: &Path) -> PathBuf {
    with_suffix(path, KIND.suffix)
}

impl Uncorrectable {
    /// Reads the marks of a store that was opened as `spec` requests.
    ///
    /// # Errors
    ///
    /// The file exists and cannot be read or written, is damaged, or was configured and cannot be created.
    pub(super) fn open(
        place: &KeptPlace,
        spec: Option<&StoreSpec>,
        store: &dyn Store,
    ) -> Result<Self, OpenError> {
        let geometry = store.geometry();
        let path = match place.path(spec, &KIND) {
            // Another process owns the blocks and the marks.
            _ if store.ownership() != BlockOwnership::Ours => None,
            path if geometry.read_only => path,
            _ if is_memory(spec) => None,
            _ => place.writable(spec, &KIND)?,
        };
        let mut marks = match &path {
            Some(path) => KIND.read(path, parse_image)?.unwrap_or_default(),
            None => ByteExtents::default(),
        };
        let end = geometry.blocks << geometry.lba_shift;
        marks.remove(&ByteRange { offset: end, len: u64::MAX });
        if let (Some(path), false) = (&path, marks.is_empty()) {
            let ranges = marks.count();
            info!(path = %path.display(), ranges, "blocks are marked as uncorrectable");
        }
        let kept = match path {
            Some(_) => MarksPlace::File,
            None if *place == KeptPlace::InMemory => MarksPlace::Memory,
            None if is_memory(spec) && *place != KeptPlace::Nowhere => MarksPlace::Memory,
            None => MarksPlace::Nowhere,
        };
        Ok(Uncorrectable::new(Marks::new(kept, marks), path))
    }

    fn new(marks: Marks<Option<MarkWaiter>>, path: Option<PathBuf>) -> Self {
        let any = AtomicBool::new(!marks.is_empty());
        let log_at = Instant::default();
        Uncorrectable { any, state: Mutex::new(UncorrectableState { marks, path, log_at }) }
    }

    fn lock(&self) -> MutexGuard<'_, UncorrectableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if blocks are marked or marks are being cleared.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// True if a part of the range is marked.
    #[inline]
    pub(crate) fn is_marked(&self, range: &ByteRange) -> bool {
        self.any() && self.lock().marks.is_marked(range)
    }

    /// True if a write to the range has to clear marks.
    #[inline]
    pub(crate) fn is_to_clear(&self, range: &ByteRange) -> bool {
        self.any() && self.lock().marks.is_to_clear(range)
    }

    /// Returns the marks for another file; `None` if the file stays the same.
    ///
    /// # Errors
    ///
    /// Blocks are marked, or the file cannot be used.
    pub(super) fn moved(
        &self,
        place: &KeptPlace,
        spec: Option<&StoreSpec>,
        store: &dyn Store,
    ) -> Result<Option<Self>, OpenError> {
        if store.ownership() != BlockOwnership::Ours {
            return Ok(None);
        }
        let mut moved = Uncorrectable::open(place, spec, store)?;
        let (state, new) = (self.lock(), moved.state.get_mut());
        let new = new.unwrap_or_else(PoisonError::into_inner);
        if (state.marks.place(), &state.path) == (new.marks.place(), &new.path) {
            return Ok(None);
        }
        if state.marks.is_idle() {
            return Ok(Some(moved));
        }
        let path = new.path.take().or_else(|| state.path.clone()).unwrap_or_default();
        let why = "some blocks are marked: write them, or export them anew";
        Err(OpenError::Io { path, action: KIND.actions[0], source: io::Error::other(why) })
    }

    /// Uses the file and marks of `moved` from now on.
    pub(super) fn follow(&self, moved: Self) {
        let mut state = self.lock();
        if !state.marks.is_idle() {
            return warn!("marks stay in their file: blocks were marked meanwhile");
        }
        *state = moved.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.any.store(!state.marks.is_empty(), Ordering::Release);
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> Option<PathBuf> {
        #[cfg(test)]
        PATHS_READ.with(|count| count.set(count.get() + 1));
        self.lock().path.clone()
    }

    /// True if a refusal should be logged now.
    pub(crate) fn should_log(&self) -> bool {
        let (now, mut state) = (clock::now(), self.lock());
        let should_log = now >= state.log_at;
        if should_log {
            state.log_at = now + LOG_INTERVAL;
        }
        should_log
    }

    /// True if there is no room for the marks that a write leaves.
    pub(crate) fn is_full(&self) -> bool {
        self.any.load(Ordering::Acquire) && self.lock().marks.marks().count() >= SPLIT_MAX
    }

    /// Requests a change of marks. The waiting operation, if any, completes when the change is in force.
    pub(crate) fn change(store: &Arc<impl Marked>, change: MarkChange, waiter: Option<MarkWaiter>) {
        if let Some(image) =
            store.uncorrectable().advance(|marks, steps| marks.submit(change, waiter, steps))
        {
            Uncorrectable::save(store, image);
        }
    }

    /// Runs a turn and executes its steps. Returns the image to save, if any.
    fn advance(
        &self,
        turn: impl FnOnce(&mut Marks<Option<MarkWaiter>>, &mut Vec<MarksStep<Option<MarkWaiter>>>),
    ) -> Option<Arc<[u8]>> {
        let mut steps = Vec::new();
        let mut state = self.lock();
        turn(&mut state.marks, &mut steps);
        self.any.store(!state.marks.is_empty(), Ordering::Release);
        drop(state);
        let mut image = None;
        for step in steps {
            match step {
                MarksStep::Save(next) => image = Some(next),
                MarksStep::Answer(Some(MarkWaiter { token, completions }), result) => {
                    completions.send(StoreCompletion::new(token, result, None));
                }
                MarksStep::Answer(None, Ok(())) => {}
                MarksStep::Answer(None, Err(status)) => warn!(%status, "marks are not changed"),
            }
        }
        image
    }

    /// Saves the marks in a thread, which ends when nothing is left to save.
    fn save(store: &Arc<impl Marked>, image: Arc<[u8]>) {
        let kept = store.clone();
        let work = move || {
            let (marks, mut image) = (kept.uncorrectable(), Some(image));
            while let Some(next) = image {
                // The file belongs to the owner of the blocks.
                let is_ours = kept.is_ours();
                let is_saved = is_ours && marks.write(&next);
                image = marks.advance(|marks, steps| marks.saved(is_saved, steps));
            }
        };
        if let Err(error) = thread::Builder::new().name("roadtrain-marks".into()).spawn(work) {
            warn!("marks are not changed, as no thread can save them: {error}");
            // Changes that were requested meanwhile fail, too.
            store.uncorrectable().advance(|marks, steps| marks.saved(false, steps));
        }
    }

    fn write(&self, image: &[u8]) -> bool {
        let Some(path) = self.path() else { return false };
        let written = write(&path, image);
        if let Err(error) = &written {
            warn!(path = %path.display(), "a change of marks is refused, as it cannot be saved: {error}");
        }
        written.is_ok()
    }
}

/// True if the blocks, and so their marks, end with the target.
fn is_memory(spec: Option<&StoreSpec>) -> bool {
    matches!(
        spec.map(|spec| &spec.kind),
        Some(StoreKind::Memory { .. } | StoreKind::Null { .. } | StoreKind::Ssd { .. })
    )
}
