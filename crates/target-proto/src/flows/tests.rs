//! Simulations of machines whose cores are loaded by the connections placed on them.

use super::*;
use proptest::prelude::*;

/// A connection with a constant load.
#[derive(Clone, Debug)]
struct FlowLane {
    reactor: usize,
    /// Core on which its packets arrive.
    packets: usize,
    /// Load of its reactor, in thousandths of a core.
    target: u32,
    /// Load of its host, on the core of its packets.
    host: u32,
    moves: u32,
}

struct FlowWorld {
    flows: Flows,
    lanes: Vec<FlowLane>,
    cores: usize,
    now: Instant,
}

impl FlowWorld {
    /// Creates lanes by core of their packets, cost at the target, cost at the host on that core (0: the host runs on
    /// another machine).
    fn new(cores: usize, lanes: &[(usize, u32, u32)]) -> FlowWorld {
        let mut flows = Flows::new((0..cores).map(Some).collect());
        let lane = |&(packets, target, host): &(usize, u32, u32)| {
            let reactor = flows.choose(Some(packets));
            FlowLane { reactor, packets, target, host, moves: 0 }
        };
        FlowWorld { lanes: lanes.iter().map(lane).collect(), flows, cores, now: Instant(0) }
    }

    fn cost(&self, lane: &FlowLane) -> u32 {
        if lane.reactor == lane.packets {
            lane.target
        } else {
            lane.target * REMOTE_COST_PERCENT / 100
        }
    }

    /// Returns the load offered to a core.
    fn wanted(&self, core: usize) -> u32 {
        let host = self.lanes.iter().filter(|lane| lane.packets == core).map(|lane| lane.host);
        let lanes = self.lanes.iter().filter(|lane| lane.reactor == core);
        host.sum::<u32>() + lanes.map(|lane| self.cost(lane)).sum::<u32>()
    }

    /// Makes every reactor report once. Returns the number of moves.
    fn step(&mut self) -> u32 {
        let mut moves = 0;
        self.now += REPORT_EVERY;
        for reactor in 0..self.cores {
            let busy: Vec<u32> = (0..self.cores).map(|core| self.wanted(core).min(WHOLE)).collect();
            let here = || self.lanes.iter().enumerate().filter(|(_, l)| l.reactor == reactor);
            let own: u32 = here().map(|(_, lane)| self.cost(lane)).sum();
            // An overloaded core gives each its part.
            let own = own * WHOLE / self.wanted(reactor).max(WHOLE);
            let flow = |(id, lane): (usize, &FlowLane)| ConnectionFlow {
                id: id as u64,
                work: self.cost(lane).into(),
                packets: Some(lane.packets),
                is_movable: true,
            };
            let report: Vec<ConnectionFlow> = here().map(flow).collect();
            for Move { id, to } in self.flows.report(self.now, reactor, (own, &busy), &report) {
                let lane = &mut self.lanes[id as usize];
                assert_ne!(lane.reactor, to);
                (lane.reactor, lane.moves) = (to, lane.moves + 1);
                moves += 1;
            }
        }
        moves
    }

    fn run(&mut self, time: Duration) -> u32 {
        let steps = time.as_nanos() / REPORT_EVERY.as_nanos();
        (0..steps).map(|_| self.step()).sum()
    }

    fn reactors(&self) -> Vec<usize> {
        self.lanes.iter().map(|lane| lane.reactor).collect()
    }
}

#[test]
fn a_connection_goes_where_its_packets_are() {
    let mut flows = Flows::new(vec![Some(2), Some(5), Some(2)]);
    assert_eq!([5, 5, 5].map(|core| flows.choose(Some(core))), [1, 1, 1]);
    let mut both = [2, 2].map(|core| flows.choose(Some(core)));
    both.sort_unstable();
    assert_eq!(both, [0, 2], "reactors of one core take turns");
}

#[test]
fn connections_without_a_reactor_of_their_own_are_dealt_out() {
    let mut flows = Flows::new(vec![Some(2), Some(5)]);
    assert_eq!([Some(7), None, Some(8), None].map(|core| flows.choose(core)), [0, 1, 0, 1]);
}

#[test]
fn two_lanes_with_both_ends_on_both_cores_stay() {
    let mut world = FlowWorld::new(2, &[(0, 500, 500), (1, 500, 500)]);
    assert_eq!(world.run(Duration::from_secs(600)), 0);
    assert_eq!(world.reactors(), [0, 1]);
}

#[test]
fn lanes_follow_their_packets_and_swap_places_on_full_cores() {
    for load in [100, 600] {
        let mut world = FlowWorld::new(2, &[(0, load, load), (1, load, load)]);
        (world.lanes[0].packets, world.lanes[1].packets) = (1, 0);
        assert_eq!(world.run(Duration::from_secs(1)), 2);
        assert_eq!(world.reactors(), [1, 0]);
        assert_eq!(world.run(Duration::from_secs(600)), 0);
    }
}

#[test]
fn lanes_that_all_come_in_on_one_core_are_balanced_within_a_second() {
    for lanes in [2, 4, 16, 100] {
        for cores in [2, 4, 8] {
            let mut world = FlowWorld::new(cores, &vec![(0, 2 * 900 / lanes, 0); lanes as usize]);
            world.run(Duration::from_secs(1));
            let most = (0..cores).map(|core| world.wanted(core)).max().unwrap();
            assert!(most < 1400, "{lanes} lanes, {cores} cores: {:?}", world.reactors());
            world.run(Duration::from_secs(9));
            assert_eq!(world.run(Duration::from_secs(600)), 0, "{lanes} lanes, {cores} cores");
        }
    }
}

#[test]
fn a_lane_stays_on_a_core_that_has_time_for_it() {
    let mut world = FlowWorld::new(4, &[(0, 400, 400), (1, 0, 0)]);
    assert_eq!(world.run(Duration::from_secs(60)), 0);
}

#[test]
fn a_core_that_is_full_of_something_else_is_left() {
    let mut world = FlowWorld::new(2, &[(0, 300, 0)]);
    world.lanes.push(FlowLane { reactor: 9, packets: 0, target: 0, host: 950, moves: 0 });
    assert_eq!(world.run(Duration::from_secs(1)), 1);
    assert_eq!(world.lanes[0].reactor, 1);
    world.lanes[1].host = 0;
    assert_eq!(world.run(Duration::from_secs(2)), 1, "back, as there is room again");
    assert_eq!(world.run(Duration::from_secs(600)), 0);
}

#[test]
fn what_cannot_move_and_what_moves_already_is_left_alone() {
    let mut flows = Flows::new(vec![Some(0), Some(1)]);
    let flow = ConnectionFlow { id: 7, work: 10, packets: Some(1), is_movable: false };
    let mut now = Instant(0);
    let mut report = |flows: &mut Flows, flow: ConnectionFlow| {
        now += REPORT_EVERY;
        flows.report(now, 0, (100, &[100, 0]), &[flow])
    };
    let movable = ConnectionFlow { is_movable: true, ..flow };
    assert!((0..9).all(|_| report(&mut flows, flow).is_empty()));
    assert_eq!(report(&mut flows, movable), [Move { id: 7, to: 1 }]);
    assert!((0..40).all(|_| report(&mut flows, movable).is_empty()), "the move is in progress");
    flows.stayed(7);
    assert!((0..9).any(|_| !report(&mut flows, movable).is_empty()), "tried again, later");
}

#[test]
fn packets_that_acknowledge_sent_data_prove_nothing() {
    assert_eq!(packets_core(Some(1), &[]), None);
    assert_eq!(packets_core(Some(1), &[1, 1, 1]), Some(1));
    assert_eq!(packets_core(Some(1), &[1, 0, 1, 1]), Some(0));
    assert_eq!(packets_core(Some(1), &[1, 0, 1, 1, 1]), Some(1), "too seldom");
    assert_eq!(packets_core(Some(1), &[3, 0, 1, 3]), Some(3));
    assert_eq!(packets_core(None, &[2, 2]), Some(2));
}

proptest! {
    /// With any constant load, nothing moves after twenty seconds. With about one load of ten thousand two connections
    /// still change places, ever more rarely.
    #[test]
    fn a_lasting_load_comes_to_rest(
        cores in 1..6usize,
        lanes in prop::collection::vec((0..6usize, 0..900u32, 0..900u32), 1..12),
    ) {
        let lanes: Vec<_> = lanes.iter().map(|&(core, t, h)| (core % cores, t, h)).collect();
        let mut world = FlowWorld::new(cores, &lanes);
        world.run(Duration::from_secs(20));
        let moved = world.run(Duration::from_secs(300));
        prop_assert!(moved <= 2 * 5, "{moved} moves; {:?}", world.lanes);
    }

    /// With any reports, a connection moves less and less often.
    #[test]
    fn no_report_makes_a_connection_go_to_and_fro(
        reports in prop::collection::vec((0..=WHOLE, 0..=WHOLE, 0..=WHOLE, 0..3usize), 3000),
    ) {
        let mut flows = Flows::new(vec![Some(0), Some(1), Some(2)]);
        let (mut reactor, mut moves, mut now) = (0, 0, Instant(0));
        for (own, one, other, packets) in reports {
            now += REPORT_EVERY;
            let busy = [one, other, own];
            let flow = ConnectionFlow { id: 1, work: 1, packets: Some(packets), is_movable: true };
            for moved in flows.report(now, reactor, (own, &busy), &[flow]) {
                prop_assert!(moved.to != reactor && moved.to < 3);
                reactor = moved.to;
                moves += 1;
            }
        }
        // In 600 s: after 0, 1, 2, 4, ... 64 s, and then every 64 s.
        prop_assert!(moves <= 8 + 600 / 64, "{moves} moves");
    }
}
