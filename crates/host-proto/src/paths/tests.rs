use super::*;
use crate::cases::examples;

const NOW: Instant = Instant(60_000_000_000);
const MS: u64 = 1_000_000;

fn at(ms: u64) -> Instant {
    Instant(NOW.0 + ms * MS)
}

fn live(policy: PathPolicy, paths: usize) -> Selector {
    let mut selector = Selector::new(policy, paths);
    (0..paths).for_each(|path| selector.set_state(path, PathLinkState::Live));
    selector
}

fn offer(in_flight: u32, expected: u64) -> PathOffer {
    PathOffer { room: 8, in_flight, expected, ..PathOffer::default() }
}

/// Simulated path that completes each request after `delay`, with `service` time for each.
struct PathModel {
    meter: PathMeter,
    delay: u64,
    service: u64,
    /// Time at which its last request is served.
    busy_until: u64,
    /// Completion time, submission time and depth of each request in flight.
    in_flight_requests: Vec<(u64, Instant, u16)>,
    carried: u64,
}

impl PathModel {
    fn new(delay: u64, service: u64) -> Self {
        let (meter, in_flight_requests) = (PathMeter::default(), Vec::new());
        PathModel { meter, delay, service, busy_until: 0, in_flight_requests, carried: 0 }
    }

    fn offer(&self, now: Instant) -> PathOffer {
        PathOffer {
            room: 1000,
            in_flight: self.meter.in_flight(),
            expected: self.meter.expected(now, RequestTraffic::Plain),
            wants_probe: self.meter.wants_probe(now, RequestTraffic::Plain),
            is_last: false,
        }
    }

    fn send(&mut self, now: Instant) {
        let depth = self.meter.begin(now, RequestTraffic::Plain);
        self.busy_until = self.busy_until.max(now.0) + self.service;
        self.in_flight_requests.push((self.busy_until + self.delay, now, depth));
    }

    fn answer(&mut self, now: Instant) -> u32 {
        let mut count = 0;
        let meter = &mut self.meter;
        self.in_flight_requests.retain(|&(at, since, depth)| {
            if at <= now.0 {
                meter.end(now, RequestTraffic::Plain, since, depth);
                count += 1;
            }
            at > now.0
        });
        self.carried += u64::from(count);
        count
    }
}

/// Runs `depth` requests at once for `ms`. Returns the number that each path has carried.
fn run(policy: PathPolicy, models: &mut [PathModel], depth: u32, ms: u64) -> Vec<u64> {
    let mut selector = live(policy, models.len());
    let mut open = 0;
    for micros in 0..ms * 1000 {
        let now = Instant(NOW.0 + micros * 1000);
        open -= models.iter_mut().map(|model| model.answer(now)).sum::<u32>();
        while open < depth {
            let choice = selector.choose(now, 1, |path| models[path].offer(now));
            let PathChoice::Path(path) = choice else { panic!("{choice:?}") };
            models[path].send(now);
            open += 1;
        }
    }
    models.iter().map(|model| model.carried).collect()
}

#[test]
fn equal_paths_share_the_load() {
    for policy in [PathPolicy::Latency, PathPolicy::RoundRobin, PathPolicy::QueueDepth] {
        let mut models = [PathModel::new(20_000, 10_000), PathModel::new(20_000, 10_000)];
        let carried = run(policy, &mut models, 64, 200);
        let (sum, least) = (carried.iter().sum::<u64>(), 2 * 200 * 100);
        assert!(sum * 100 >= least * 95, "{policy:?}: {carried:?} of {least}");
    }
}

#[test]
fn the_faster_path_carries_more() {
    let mut models = [PathModel::new(20_000, 40_000), PathModel::new(20_000, 10_000)];
    let carried = run(PathPolicy::Latency, &mut models, 64, 400);
    let (all, of_both) = (carried.iter().sum::<u64>(), 400 * (25 + 100));
    assert!(all * 100 >= of_both * 90, "{carried:?} of {of_both}");
}

#[test]
fn a_delayed_path_is_avoided() {
    for depth in [1, 8, 128].into_iter().take(examples(2)) {
        let alone = run(PathPolicy::Latency, &mut [PathModel::new(50_000, 10_000)], depth, 5000);
        let mut models = [PathModel::new(30 * MS, 10_000), PathModel::new(50_000, 10_000)];
        let carried = run(PathPolicy::Latency, &mut models, depth, 5000);
        assert!(carried[1] * 100 >= alone[0] * 95, "depth {depth}: {carried:?} of {alone:?}");
        assert!(carried[0] > 0, "it gets probes at times");
    }
}

#[test]
fn a_silent_path_is_avoided_before_it_is_lost() {
    let mut selector = live(PathPolicy::Latency, 2);
    let mut silent = PathModel::new(50_000, 10_000);
    silent.send(NOW);
    silent.answer(at(1));
    silent.send(at(2));
    let mut good = PathModel::new(90_000, 10_000);
    good.send(at(1));
    good.answer(at(2));
    let mut choose = |ms| {
        let offers = [silent.offer(at(ms)), good.offer(at(ms))];
        selector.choose(at(ms), 1, |path| offers[path])
    };
    assert_eq!(choose(2), PathChoice::Path(1));
    assert_eq!(choose(1000), PathChoice::Path(1));
}

#[test]
fn optimized_comes_before_what_is_fast() {
    let mut selector = live(PathPolicy::Latency, 3);
    selector.set_access(0, Arc::new([(1, AnaState::Inaccessible), (2, AnaState::PersistentLoss)]));
    selector.set_access(1, Arc::new([(1, AnaState::NonOptimized)]));
    let fast = |path: usize| offer(1, path as u64 * 1000);
    assert_eq!(selector.choose(NOW, 1, fast), PathChoice::Path(2), "optimized");
    assert_eq!(selector.choose(NOW, 3, fast), PathChoice::Path(0), "all are");
    selector.set_state(2, PathLinkState::Connecting);
    assert_eq!(selector.choose(NOW, 1, fast), PathChoice::Path(1), "reachable");
    selector.set_state(1, PathLinkState::Connecting);
    assert_eq!(
        selector.choose(NOW, 1, fast),
        PathChoice::Path(0),
        "nothing else: its answer says when"
    );
    assert_eq!(selector.choose(NOW, 2, fast), PathChoice::Wait(1), "it will never carry that");
}

/// Requests wait for room on the full path that can carry them.
#[test]
fn a_full_path_is_better_than_one_that_refuses() {
    let mut selector = live(PathPolicy::Latency, 2);
    let one_is_full = |path: usize| PathOffer { room: path as u32, ..offer(1, 1000) };
    assert_eq!(
        selector.choose(NOW, 1, one_is_full),
        PathChoice::Path(1),
        "as good as the full one"
    );
    for state in [AnaState::Inaccessible, AnaState::Change] {
        selector.set_access(1, Arc::new([(1, state)]));
        assert_eq!(selector.choose(NOW, 1, one_is_full), PathChoice::Full);
        assert_eq!(selector.choose(NOW, 2, one_is_full), PathChoice::Path(1));
    }
    selector.set_access(1, AnaTable::default());
    selector.refused(NOW, 1, 1);
    assert_eq!(selector.choose(NOW, 1, one_is_full), PathChoice::Full);
}

#[test]
fn a_path_that_refuses_is_shunned_for_a_moment() {
    let mut selector = live(PathPolicy::QueueDepth, 2);
    selector.refused(NOW, 0, 1);
    let offers = |path: usize| offer(path as u32, 0);
    assert_eq!(selector.choose(NOW, 1, offers), PathChoice::Path(1));
    assert!(selector.has_other(NOW, 0, 1) && !selector.has_other(NOW, 1, 1));
    assert_eq!(selector.choose(NOW, 2, offers), PathChoice::Path(0), "only that namespace");
    assert_eq!(selector.choose(NOW + SHUN, 1, offers), PathChoice::Path(0));
    selector.refused(NOW, 0, 1);
    selector.set_access(0, AnaTable::default());
    assert_eq!(selector.choose(NOW, 1, offers), PathChoice::Path(0), "it has said something new");
}

#[test]
fn another_namespace_under_the_nsid_is_never_used() {
    let mut selector = live(PathPolicy::QueueDepth, 2);
    selector.set_barred(1, BarredNsids::only(&[7]));
    selector.set_state(0, PathLinkState::Connecting);
    let offers = |_| offer(0, 0);
    assert_eq!(selector.choose(NOW, 7, offers), PathChoice::Wait(0));
    assert_eq!(selector.choose(NOW, 1, offers), PathChoice::Path(1));
    selector.set_state(0, PathLinkState::Lost);
    assert_eq!(selector.choose(NOW, 7, offers), PathChoice::Wait(1), "which fails it");
}

#[test]
fn a_full_path_leaves_it_to_others() {
    let mut selector = live(PathPolicy::Latency, 2);
    let full = |path: usize| PathOffer { room: path as u32, ..offer(0, path as u64) };
    assert_eq!(selector.choose(NOW, 1, full), PathChoice::Path(1));
    assert_eq!(selector.choose(NOW, 1, |_| PathOffer::default()), PathChoice::Full);
    selector.set_state(0, PathLinkState::Lost);
    selector.set_state(1, PathLinkState::Connecting);
    assert_eq!(selector.choose(NOW, 1, full), PathChoice::Wait(1));
}

#[test]
fn a_path_that_is_gone_takes_nothing() {
    let mut selector = live(PathPolicy::RoundRobin, 2);
    selector.grow(4);
    assert_eq!(selector.live().count(), 2);
    selector.set_state(0, PathLinkState::Gone);
    for _ in 0..4 {
        assert_eq!(selector.choose(NOW, 1, |_| offer(0, 0)), PathChoice::Path(1));
    }
    assert!(!selector.has_other(NOW, 1, 1));
    selector.set_state(1, PathLinkState::Connecting);
    assert_eq!(selector.choose(NOW, 1, |_| offer(0, 0)), PathChoice::Wait(1));
    selector.set_state(1, PathLinkState::Lost);
    assert_eq!(selector.choose(NOW, 1, |_| offer(0, 0)), PathChoice::Wait(1), "not where none is");
    selector.set_state(3, PathLinkState::Connecting);
    assert_eq!(selector.choose(NOW, 1, |_| offer(0, 0)), PathChoice::Wait(3));
}

#[test]
fn a_path_that_cannot_do_it_comes_last() {
    for policy in [PathPolicy::Latency, PathPolicy::RoundRobin, PathPolicy::QueueDepth] {
        let mut selector = live(policy, 2);
        let offer =
            |path: usize| PathOffer { is_last: path == 0, ..offer(path as u32, path as u64) };
        for _ in 0..3 {
            assert_eq!(selector.choose(NOW, 1, offer), PathChoice::Path(1), "{policy:?}");
        }
        selector.set_access(1, [(1, AnaState::NonOptimized)].into());
        assert_eq!(selector.choose(NOW, 1, offer), PathChoice::Path(1), "{policy:?}");
        selector.set_state(1, PathLinkState::Connecting);
        assert_eq!(selector.choose(NOW, 1, offer), PathChoice::Path(0), "it says so itself");
    }
}
