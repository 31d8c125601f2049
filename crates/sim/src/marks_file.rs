//! File with the marks of Write Uncorrectable of the simulated target. It outlives the process, and its saves take
//! their time and fail sometimes. Only the next process finds out what a save left that has failed, or was interrupted
//! by a crash.

use crate::rng::SimRng;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::uncorrectable::{ByteExtents, parse_image};

/// Shortest and longest time of a save in microseconds.
const SAVE_US: (u64, u64) = (10, 600);
/// Saves of 100 that fail.
const FAILING_PERCENT: u64 = 20;

/// A save in flight.
struct MarksSave {
    image: ByteExtents,
    ends: Instant,
    fails: bool,
}

/// The file of marks.
pub(crate) struct MarksFile {
    /// Content that the next process finds.
    found: ByteExtents,
    save: Option<MarksSave>,
    rng: SimRng,
}

impl MarksFile {
    /// Makes a file without marks.
    pub(crate) fn new(rng: SimRng) -> Self {
        MarksFile { found: ByteExtents::default(), save: None, rng }
    }

    /// Begins to save the target's marks.
    pub(crate) fn save(&mut self, now: Instant, image: &[u8]) {
        assert!(self.save.is_none(), "one save at a time");
        let image = parse_image(image).expect("the target reads what it has written");
        let ends = now + self.rng.micros(SAVE_US.0, SAVE_US.1);
        let fails = self.rng.chance(FAILING_PERCENT);
        self.save = Some(MarksSave { image, ends, fails });
    }

    /// Completes a save that is due. True if it has succeeded.
    pub(crate) fn advance(&mut self, now: Instant) -> Option<bool> {
        let MarksSave { image, fails, .. } = self.save.take_if(|save| save.ends <= now)?;
        if !fails || self.rng.chance(50) {
            self.found = image;
        }
        Some(!fails)
    }

    /// Ends the process. Returns the content that the next one finds.
    pub(crate) fn crash(&mut self) -> ByteExtents {
        if let Some(MarksSave { image, .. }) = self.save.take()
            && self.rng.chance(50)
        {
            self.found = image;
        }
        self.found.clone()
    }

    /// Returns the time at which the save ends.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.save.as_ref().map(|save| save.ends)
    }
}
