//! Old commands: writes to lost controllers that a target may still execute.
//!
//! The rule: *a write that may still be executed blocks every later attempt at its blocks, on any path and after any
//! error*, until one of these holds:
//!
//! - **ended**: the process that has the controller reports its end (Cross-Controller Reset). Or a process reports that
//!   it does not know the controller, and that it has replaced the process that had it ([`Fencing::Replaced`]);
//! - **quiet**: the time has passed after which the controller must have ended by itself ([`bringup::quiet_time`]), and
//!   no target has claimed it during that time. A controller without a keep-alive timer has no such time.
//!
//! A **claim** is a reply by which a target reports that commands of the controller may still be executed: its reset is
//! in progress, or Connect is refused because the controller is busy. Each claim restarts the quiet time. A claim may
//! be missed if no request was sent. So after a claim, the time ends only if the controller's address was tried in its
//! second half ([`OldCommands::missed`]), or cannot be queried ([`OldCommands::absent`]). An inherited controller
//! counts as claimed.
//!
//! A range of blocks is blocked: a request without a completion blocks its own retry as well as others, whether or not
//! its failure was reported to the program. Reads pass, and so do writes to other blocks.
//!
//! All paths and lanes of a host share one [`OldCommands`]; clones share their state. Lanes record their lost commands
//! ([`LaneGuard`], used by [`super::requests`]); associations report the state of controllers ([`super::association`]).
//!
//! [`Fencing::Replaced`]: super::bringup::Fencing::Replaced
//! [`bringup::quiet_time`]: super::bringup::quiet_time

mod ranges;

pub use ranges::{BlockRange, RANGES_MAX};

use core::num::NonZeroU32;
use core::time::Duration;
use ranges::BlockRangeSet;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::identify::IdentifyController;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of times that a lost controller's address is tried in the quiet time.
const PROBES_PER_QUIET_TIME: u32 = 4;

/// Serial number of a controller, unique among all paths of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControllerSerial(NonZeroU32);

/// Identity of a controller, by which its end is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerIdentity {
    /// Instance for Cross-Controller Reset; `None`: not reported.
    pub instance: Option<ControllerInstance>,
    /// [`IdentifyController::endpoint`] of its process; 0: not reported.
    pub endpoint: u64,
    /// Time without a claim after which it has ended; `None`: no time ends it.
    pub quiet: Option<Duration>,
}

/// Controller that may still execute writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenController {
    pub controller: ControllerIdentity,
    /// Blocks that it may still write.
    pub ranges: Vec<BlockRange>,
    /// Time until it counts as ended unless it is claimed; `None`: no time ends it.
    pub left: Option<Duration>,
}

/// Controllers of a host that may still execute commands, and the blocks that these may change.
#[derive(Clone, Debug, Default)]
pub struct OldCommands(Arc<OldCommandsShared>);

#[derive(Debug, Default)]
struct OldCommandsShared {
    /// Number of controllers with ranges: without any, a lane needs only this load.
    open: AtomicUsize,
    /// Number of lost controllers that have ended.
    ended: AtomicU64,
    state: Mutex<OldCommandsState>,
}

#[derive(Debug, Default)]
struct OldCommandsState {
    last: u32,
    /// Inherited controllers, see [`OldCommands::inherit`].
    inherited: Vec<ControllerSerial>,
    controllers: BTreeMap<ControllerSerial, OldController>,
}

#[derive(Debug)]
struct OldController {
    known: ControllerIdentity,
    /// Last time at which it was known to exist: its connections were lost, or it was claimed. `None`: it is connected.
    claimed_at: Option<Instant>,
    /// True if a target has claimed it.
    is_claimed: bool,
    /// Last time at which its address was tried without a claim.
    missed_at: Option<Instant>,
    /// True if its address cannot be queried.
    is_absent: bool,
    ranges: BlockRangeSet,
}

impl OldController {
    fn quiet_at(&self) -> Option<Instant> {
        let (claimed_at, quiet) = (self.claimed_at?, self.known.quiet?);
        let was_probed = self.missed_at.is_some_and(|at| at >= claimed_at + quiet / 2);
        (!self.is_claimed || self.is_absent || was_probed).then(|| claimed_at + quiet)
    }
}

impl OldCommands {
    fn state(&self) -> MutexGuard<'_, OldCommandsState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- State of controllers ----

    /// Registers a connected controller.
    pub fn begin(&self, known: ControllerIdentity) -> ControllerSerial {
        let mut state = self.state();
        state.last += 1;
        let serial = ControllerSerial(NonZeroU32::new(state.last).expect("fewer than 2^32"));
        let controller = OldController {
            known,
            claimed_at: None,
            is_claimed: false,
            missed_at: None,
            is_absent: false,
            ranges: BlockRangeSet::default(),
        };
        state.controllers.insert(serial, controller);
        serial
    }

    /// Registers a controller that an earlier process of this host has lost, with blocks that it may still write; its
    /// quiet time starts now. The first association that is created has it ended. Until its target was tried it counts
    /// as claimed: a later path may lead there.
    pub fn inherit(&self, now: Instant, open: OpenController) -> ControllerSerial {
        let serial = self.begin(open.controller);
        self.record(serial, open.ranges);
        self.lost(now, serial);
        let mut state = self.state();
        if let Some(controller) = state.controllers.get_mut(&serial) {
            controller.is_claimed = true;
        }
        state.inherited.push(serial);
        serial
    }

    /// Takes the inherited controllers that no association has taken.
    pub(super) fn take_inherited(&self) -> Vec<(ControllerSerial, Option<ControllerInstance>)> {
        let mut state = self.state();
        let inherited = std::mem::take(&mut state.inherited).into_iter();
        let named = |serial| Some((serial, state.controllers.get(&serial)?.known.instance));
        inherited.filter_map(named).collect()
    }

    /// Starts the quiet time of a controller whose connections are closed.
    pub fn lost(&self, now: Instant, serial: ControllerSerial) {
        if let Some(controller) = self.state().controllers.get_mut(&serial) {
            controller.claimed_at.get_or_insert(now);
        }
    }

    /// Records a target's claim of a controller.
    pub fn claim(&self, now: Instant, instance: ControllerInstance) {
        self.claim_where(now, |known| known.instance == Some(instance));
    }

    /// Records a claim for an unknown controller of this host.
    pub fn claim_all(&self, now: Instant) {
        self.claim_where(now, |_| true);
    }

    fn claim_where(&self, now: Instant, is_it: impl Fn(&ControllerIdentity) -> bool) {
        for controller in self.state().controllers.values_mut().filter(|of| is_it(&of.known)) {
            controller.claimed_at = controller.claimed_at.map(|before| before.max(now));
            controller.is_claimed = true;
        }
    }

    /// Records an attempt to connect to the controller's address without a claim.
    pub fn missed(&self, now: Instant, serial: ControllerSerial) {
        if let Some(controller) = self.state().controllers.get_mut(&serial) {
            controller.missed_at = Some(now);
        }
    }

    /// Records that the controller's address cannot be queried: another process replies there, or one without
    /// Cross-Controller Reset, or no host connects there any more. Time after a claim without a query does not count.
    pub fn absent(&self, now: Instant, serial: ControllerSerial) {
        if let Some(controller) = self.state().controllers.get_mut(&serial) {
            if controller.quiet_at().is_none() {
                controller.claimed_at = controller.claimed_at.map(|before| before.max(now));
            }
            controller.is_absent = true;
        }
    }

    /// Returns the maximum pause between two attempts to connect, so that no claim is missed.
    #[must_use]
    pub fn probe_interval_max(&self) -> Option<Duration> {
        let state = self.state();
        let claimed =
            state.controllers.values().filter(|of| of.is_claimed && !of.ranges.is_empty());
        claimed.filter_map(|of| Some(of.known.quiet? / PROBES_PER_QUIET_TIME)).min()
    }

    /// Ends a controller: none of its commands is executed any more.
    pub fn end(&self, serial: ControllerSerial) {
        let mut state = self.state();
        if let Some(controller) = state.controllers.remove(&serial) {
            self.ended(&controller);
        }
    }

    /// Ends controllers whose quiet time has passed.
    pub fn expire(&self, now: Instant) {
        let mut state = self.state();
        let is_over = |_: &ControllerSerial, of: &mut OldController| {
            of.quiet_at().is_some_and(|until| until <= now)
        };
        for (_, controller) in state.controllers.extract_if(.., is_over) {
            self.ended(&controller);
        }
    }

    fn ended(&self, controller: &OldController) {
        if !controller.ranges.is_empty() {
            self.0.open.fetch_sub(1, Ordering::Release);
        }
        // No request waits for a controller that was shut down normally.
        if controller.claimed_at.is_some() || !controller.ranges.is_empty() {
            self.0.ended.fetch_add(1, Ordering::Release);
        }
    }

    // ---- Queries ----

    /// Returns when [`OldCommands::expire`] is due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.state().controllers.values().filter_map(OldController::quiet_at).min()
    }

    /// True if the controller may still execute commands.
    #[must_use]
    pub fn has(&self, serial: ControllerSerial) -> bool {
        self.state().controllers.contains_key(&serial)
    }

    /// True if this controller instance may still execute commands.
    #[must_use]
    pub fn has_instance(&self, instance: ControllerInstance) -> bool {
        self.state().controllers.values().any(|of| of.known.instance == Some(instance))
    }

    /// True if the process that replies with `identify`, and does not know the controller, has replaced the process
    /// that had it.
    #[must_use]
    pub fn is_at(&self, instance: ControllerInstance, identify: &IdentifyController) -> bool {
        let endpoint = identify.endpoint();
        let is_it = |of: &OldController| {
            of.known.instance == Some(instance) && of.known.endpoint == endpoint
        };
        endpoint != 0 && self.state().controllers.values().any(is_it)
    }

    /// Returns the number of lost controllers that have ended: when it grows, waiting requests may continue.
    #[inline]
    #[must_use]
    pub fn ended_so_far(&self) -> u64 {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Returns the controllers that may still write, with their blocks.
    #[must_use]
    pub fn open(&self, now: Instant) -> Vec<OpenController> {
        let open = |of: &OldController| OpenController {
            controller: of.known,
            ranges: of.ranges.iter().collect(),
            left: of
                .known
                .quiet
                .map(|quiet| of.claimed_at.map_or(quiet, |claimed| (claimed + quiet).since(now))),
        };
        let state = self.state();
        state.controllers.values().filter(|of| !of.ranges.is_empty()).map(open).collect()
    }

    /// Returns the lost controllers with their quiet times.
    #[must_use]
    pub fn lost_controllers(&self) -> Vec<(ControllerSerial, Option<Duration>)> {
        let state = self.state();
        let lost = state.controllers.iter().filter(|(_, of)| of.claimed_at.is_some());
        lost.map(|(&serial, of)| (serial, of.known.quiet)).collect()
    }

    // ---- Blocks ----

    /// Records blocks of writes without a completion from a lost connection. False if the controller has ended.
    fn record(
        &self,
        serial: ControllerSerial,
        ranges: impl IntoIterator<Item = BlockRange>,
    ) -> bool {
        let mut state = self.state();
        let Some(controller) = state.controllers.get_mut(&serial) else { return false };
        let was_empty = controller.ranges.is_empty();
        ranges.into_iter().for_each(|range| controller.ranges.add(range));
        if was_empty && !controller.ranges.is_empty() {
            self.0.open.fetch_add(1, Ordering::Release);
        }
        true
    }

    /// True if an old write to some of these blocks may still be executed.
    fn blocks(&self, range: &BlockRange) -> bool {
        self.state().controllers.values().any(|controller| controller.ranges.overlap(range))
    }
}

/// Guard of a lane: the old commands that its requests wait for, and its controller. The default waits for nothing.
#[derive(Clone, Debug, Default)]
pub struct LaneGuard {
    old: OldCommands,
    serial: Option<ControllerSerial>,
}

impl LaneGuard {
    /// Creates the guard for lanes of a controller.
    #[must_use]
    pub fn new(old: OldCommands, serial: ControllerSerial) -> Self {
        LaneGuard { old, serial: Some(serial) }
    }

    /// True if writes have to check [`LaneGuard::blocks`].
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.old.0.open.load(Ordering::Acquire) != 0
    }

    /// True if an old write may be executed after one that changes these blocks.
    #[must_use]
    pub fn blocks(&self, range: &BlockRange) -> bool {
        self.old.blocks(range)
    }

    /// Records blocks of writes without a completion from the lost connection. Returns the controller that may still
    /// execute them; `None`: it has ended.
    #[must_use]
    pub fn record(&self, ranges: Vec<BlockRange>) -> Option<ControllerSerial> {
        self.serial.filter(|serial| self.old.record(*serial, ranges))
    }

    /// True if this controller may still execute commands.
    #[must_use]
    pub fn may_execute(&self, serial: ControllerSerial) -> bool {
        self.old.has(serial)
    }

    /// Returns [`OldCommands::ended_so_far`].
    #[inline]
    #[must_use]
    pub fn ended_so_far(&self) -> u64 {
        self.old.ended_so_far()
    }
}

#[cfg(test)]
mod tests;
