//! Where the simulated target keeps its marks of Write Uncorrectable: a file that outlives the process, whose saves take
//! their time and fail sometimes. What a failed save, or one that a crash came into, has left, only the next process
//! finds out.

use crate::rng::Rng;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::uncorrectable::{Extents, parse_image};

/// Shortest and longest time of a save in microseconds.
const SAVE_US: (u64, u64) = (10, 600);
/// Saves of 100 that fail.
const FAILING_PERCENT: u64 = 20;

/// A save under way.
struct Save {
    image: Extents,
    ends: Instant,
    fails: bool,
}

/// The file.
pub(crate) struct MarksFile {
    /// What a process finds that begins.
    found: Extents,
    save: Option<Save>,
    rng: Rng,
}

impl MarksFile {
    /// A file without marks.
    pub(crate) fn new(rng: Rng) -> Self {
        MarksFile { found: Extents::default(), save: None, rng }
    }

    /// Begins to save what the target has made of its marks.
    pub(crate) fn save(&mut self, now: Instant, image: &[u8]) {
        assert!(self.save.is_none(), "one save at a time");
        let image = parse_image(image).expect("the target reads what it has written");
        let ends = now + self.rng.micros(SAVE_US.0, SAVE_US.1);
        let fails = self.rng.chance(FAILING_PERCENT);
        self.save = Some(Save { image, ends, fails });
    }

    /// Whether the save that has ended by now went well.
    pub(crate) fn advance(&mut self, now: Instant) -> Option<bool> {
        let Save { image, fails, .. } = self.save.take_if(|save| save.ends <= now)?;
        if !fails || self.rng.chance(50) {
            self.found = image;
        }
        Some(!fails)
    }

    /// The process ends. What the next one finds.
    pub(crate) fn crash(&mut self) -> Extents {
        if let Some(Save { image, .. }) = self.save.take()
            && self.rng.chance(50)
        {
            self.found = image;
        }
        self.found.clone()
    }

    /// When the save ends.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.save.as_ref().map(|save| save.ends)
    }
}
