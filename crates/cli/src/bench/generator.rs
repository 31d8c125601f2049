//! The front that runs on each reactor: deals completions out to its lanes, lets each load.

use super::board::Board;
use super::lane::{LaneLoad, LaneResult};
use roadtrain_engine::host::{Front, Turn};
use roadtrain_proto::time::Instant;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

/// The load on the lanes of one reactor.
pub(super) struct Generator {
    board: Arc<Board>,
    lanes: Vec<LaneLoad>,
    results: Sender<LaneResult>,
    now: Instant,
}

impl Generator {
    /// `lanes` in the order of their identifiers on this reactor.
    #[must_use]
    pub(super) fn new(
        board: Arc<Board>,
        lanes: Vec<LaneLoad>,
        results: Sender<LaneResult>,
    ) -> Generator {
        Generator { board, lanes, results, now: Instant::default() }
    }
}

impl Front for Generator {
    fn turn(&mut self, turn: &mut dyn Turn) {
        self.now = turn.now();
        let phase = self.board.phase();
        while let Some(completion) = turn.next_completion() {
            let lane = (completion.token >> 32) as usize;
            self.lanes[lane].complete(completion, self.now, phase);
        }
        for lane in &mut self.lanes {
            lane.turn(turn, phase);
        }
        if self.board.abandoned.load(Ordering::Relaxed) {
            return turn.stop();
        }
        if self.lanes.iter().all(LaneLoad::is_done) {
            for lane in self.lanes.drain(..) {
                // Nobody waits for it only when the program gives up.
                let _ = self.results.send(lane.into_result());
            }
            turn.stop();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.lanes.iter().filter_map(|lane| lane.deadline(self.now)).min()
    }
}
