//! The front on each reactor: hands completions to its loads, and gives each load its turn.

use super::lane::{LaneLoad, LaneResult, LoadPosition};
use super::plan::LoadPlan;
use super::run_state::{RunPhase, RunState};
use crate::args::LaneChoice;
use roadtrain_host_engine::{Front, FrontTurn, LaneId};
use roadtrain_proto::time::Instant;
use roadtrain_system::buffer::Arena;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

/// The loads on one reactor: the main one on each of its lanes, then the streams.
pub(super) struct Generator {
    run_state: Arc<RunState>,
    loads: Vec<LaneLoad>,
    results: Sender<LaneResult>,
    now: Instant,
}

/// The lanes of a reactor: the main load's, then one for each stream with lanes of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReactorLanes {
    /// The reactor's number, and the number of reactors.
    pub reactor: (u32, u32),
    /// Main load's lanes on the reactors with smaller numbers.
    pub first: u32,
    /// Main load's lanes on this reactor.
    pub main: u32,
}

impl ReactorLanes {
    /// Returns the lanes of `plan` on this reactor. `own` counts the streams with lanes of their own so far.
    fn places(self, plan: &LoadPlan, main_lanes: u32, own: &mut u32) -> Vec<LoadPosition> {
        let (reactor, reactors) = self.reactor;
        let at = |id: u32| (LaneId(id as usize), (reactor + id * reactors) as usize);
        match plan.load.lane {
            LaneChoice::Shared => {
                let place = |n: u32| {
                    let (number, (id, host_lane)) = (self.first + n, at(n));
                    LoadPosition { lane: number, id, host_lane, part: number, index: 0 }
                };
                (0..self.main).map(place).collect()
            }
            LaneChoice::Own => {
                // Numbered after the main load's, stream by stream; a stream has one on each reactor.
                let lane = main_lanes + *own * plan.lanes + reactor;
                let (id, host_lane) = at(self.main + *own);
                let place = LoadPosition { lane, id, host_lane, part: reactor, index: 0 };
                *own += 1;
                vec![place]
            }
        }
    }
}

impl Generator {
    /// Creates all loads of `plans` on `lanes`.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(
        plans: &[Arc<LoadPlan>],
        run_state: &Arc<RunState>,
        lanes: ReactorLanes,
        results: Sender<LaneResult>,
    ) -> io::Result<Generator> {
        let mut loads = Vec::new();
        let mut own = 0;
        for plan in plans {
            let places = lanes.places(plan, plans[0].lanes, &mut own);
            let depth = plan.load.depth as usize;
            // One allocation for all lanes: with many lanes, a huge page for each would be too much.
            let mut buffers = Arena::new(depth * places.len(), plan.slot_bytes())?;
            for place in places {
                let place = LoadPosition { index: loads.len(), ..place };
                let buffers = buffers.by_ref().take(depth);
                loads.push(LaneLoad::new(plan.clone(), run_state.clone(), place, buffers)?);
            }
        }
        Ok(Generator { run_state: run_state.clone(), loads, results, now: Instant::default() })
    }
}

impl Front for Generator {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        self.now = turn.now();
        let phase = self.run_state.phase();
        while let Some(completion) = turn.next_completion() {
            let load = (completion.token >> 32) as usize;
            self.loads[load].complete(completion, self.now, phase);
        }
        for load in &mut self.loads {
            load.turn(turn, phase);
        }
        // Stopped before the load has begun: not every lane could be connected.
        let is_unconnected = turn.stopping() && phase == RunPhase::Prepare;
        if is_unconnected || self.run_state.abandoned.load(Ordering::Relaxed) {
            return turn.stop();
        }
        if self.loads.iter().all(LaneLoad::is_done) {
            for load in self.loads.drain(..) {
                // The receiver is gone only when the program abandons the run.
                let _ = self.results.send(load.into_result());
            }
            turn.stop();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.loads.iter().filter_map(|load| load.deadline(self.now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::harness::{self, LoadHarness};
    use crate::bench::plan::tests::plans;

    #[test]
    fn a_load_whose_lanes_cannot_all_be_connected_ends() {
        let ends = |begins: bool| {
            let plans = plans("", 1).unwrap();
            let (mut generator, run_state, _inbox) = harness::generators(plans);
            let mut harness = LoadHarness::new(64 << 20, 512);
            generator.turn(&mut harness);
            assert!(!harness.stopped, "it waits for the load to begin");
            if begins {
                run_state.set_phase(RunPhase::Ramp);
            }
            harness.stopping = true;
            generator.turn(&mut harness);
            harness.stopped
        };
        assert!(ends(false));
        assert!(!ends(true), "what has begun goes on until it has ended");
    }

    #[test]
    fn every_part_of_every_load_has_its_lane() {
        let line = "--stream lane=own --stream lane=shared --stream lane=own";
        let mut plans = plans(line, 3).unwrap();
        // Three lanes on two reactors.
        for plan in plans.iter_mut().filter(|plan| plan.load.lane == LaneChoice::Own) {
            plan.lanes = 2;
        }
        let reactors = [
            ReactorLanes { reactor: (0, 2), first: 0, main: 2 },
            ReactorLanes { reactor: (1, 2), first: 2, main: 1 },
        ];
        let places = reactors.map(|lanes| {
            let mut own = 0;
            let places = plans.iter().flat_map(|plan| lanes.places(plan, 3, &mut own));
            places
                .map(|place| {
                    assert_eq!(place.host_lane % 2, lanes.reactor.0 as usize);
                    assert_eq!(place.host_lane / 2, place.id.0);
                    (place.lane, place.id.0, place.part)
                })
                .collect::<Vec<_>>()
        });
        assert_eq!(places[0], [(0, 0, 0), (1, 1, 1), (3, 2, 0), (0, 0, 0), (1, 1, 1), (5, 3, 0)]);
        assert_eq!(places[1], [(2, 0, 2), (4, 1, 1), (2, 0, 2), (6, 2, 1)]);
    }
}
