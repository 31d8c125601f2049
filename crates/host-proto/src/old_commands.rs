//! Old commands: writes that a target may still execute though the host has lost the controller that they were sent to.
//!
//! The rule: *a write that may still be executed blocks every later attempt at its blocks, over whatever path and after
//! whatever error*, until one of these holds:
//!
//! - **ended**: the process that has the controller says that it has ended (Cross-Controller Reset), or a process says
//!   that it does not know it and that it has taken the place of that one ([`Fencing::Replaced`]);
//! - **quiet**: the time has passed after which the controller must have ended by itself ([`bringup::quiet_time`]), and
//!   nobody has claimed to have it during that time. A controller without a keep-alive timer has no such time.
//!
//! A **claim** is an answer by which a target says that something of the controller may still be executed: its reset is in
//! progress, or Connect is refused because the controller is busy. Each claim begins the quiet time anew. Nobody may
//! have heard a claim because nobody asked: after one, the time ends only if the place that had the controller was tried
//! in its second half ([`OldCommands::missed`]), or cannot be asked ([`OldCommands::absent`]). An inherited controller
//! counts as claimed.
//!
//! What is blocked is a range of blocks: a request that was sent and not answered blocks its own retry as well as others.
//! Whether the program has heard of its failure does not matter. Reads pass, and so do writes to other blocks.
//!
//! [`OldCommands`] is shared by all paths and lanes of a host. Its clones are one. Lanes record what they have lost
//! ([`LaneGuard`], used by [`super::requests`]); associations say what has become of controllers
//! ([`super::association`]).
//!
//! [`Fencing::Replaced`]: super::bringup::Fencing::Replaced
//! [`bringup::quiet_time`]: super::bringup::quiet_time

mod ranges;

pub use ranges::{BlockRange, RANGES_MAX};

use core::num::NonZeroU32;
use core::time::Duration;
use ranges::Ranges;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::identify::IdentifyController;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A place that had a controller is tried so often in its quiet time.
const ASKED_TIMES: u32 = 4;

/// Number of a controller that a host has or had, unique among all of its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControllerSerial(NonZeroU32);

/// A controller, and by what its end is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerIdentity {
    /// Its name for Cross-Controller Reset; `None`: it has told none.
    pub instance: Option<ControllerInstance>,
    /// [`IdentifyController::endpoint`] of the process that has it; 0: it has told none.
    pub endpoint: u64,
    /// Time without a claim after which it has ended; `None`: no time ends it.
    pub quiet: Option<Duration>,
}

/// A controller that may still execute writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenController {
    pub controller: ControllerIdentity,
    /// Blocks that it may still write.
    pub ranges: Vec<BlockRange>,
    /// Time until it counts as ended if nobody claims to have it; `None`: no time ends it.
    pub left: Option<Duration>,
}

/// Controllers of a host that may still execute what was sent to them, and the blocks that they may change.
#[derive(Clone, Debug, Default)]
pub struct OldCommands(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Controllers with ranges, so that a lane without any pays for one load.
    open: AtomicUsize,
    /// Lost controllers that have ended.
    ended: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u32,
    /// See [`OldCommands::inherit`].
    inherited: Vec<ControllerSerial>,
    controllers: BTreeMap<ControllerSerial, Controller>,
}

#[derive(Debug)]
struct Controller {
    known: ControllerIdentity,
    /// Last time at which it was known to be there: its connections were lost, or it was claimed. `None`: it is connected.
    claimed_at: Option<Instant>,
    /// A target has claimed it.
    is_claimed: bool,
    /// Last time at which the place that had it was tried without a claim.
    missed_at: Option<Instant>,
    /// That place cannot be asked.
    is_absent: bool,
    ranges: Ranges,
}

impl Controller {
    fn quiet_at(&self) -> Option<Instant> {
        let (claimed_at, quiet) = (self.claimed_at?, self.known.quiet?);
        let was_asked = self.missed_at.is_some_and(|at| at >= claimed_at + quiet / 2);
        (!self.is_claimed || self.is_absent || was_asked).then(|| claimed_at + quiet)
    }
}

impl OldCommands {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- What becomes of controllers ----

    /// A controller is connected.
    pub fn begin(&self, known: ControllerIdentity) -> ControllerSerial {
        let mut state = self.state();
        state.last += 1;
        let serial = ControllerSerial(NonZeroU32::new(state.last).expect("fewer than 2^32"));
        let controller = Controller {
            known,
            claimed_at: None,
            is_claimed: false,
            missed_at: None,
            is_absent: false,
            ranges: Ranges::default(),
        };
        state.controllers.insert(serial, controller);
        serial
    }

    /// A controller that an earlier process of this host has lost, with blocks that it may still write; its quiet time
    /// begins now. The first association to be made has it ended. Until its target was tried it counts as claimed:
    /// a path that is connected later may lead there.
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

    /// Controllers that no association has to have ended yet.
    pub(super) fn take_inherited(&self) -> Vec<(ControllerSerial, Option<ControllerInstance>)> {
        let mut state = self.state();
        let inherited = std::mem::take(&mut state.inherited).into_iter();
        let named = |serial| Some((serial, state.controllers.get(&serial)?.known.instance));
        inherited.filter_map(named).collect()
    }

    /// All connections of the controller are gone: its quiet time begins.
    pub fn lost(&self, now: Instant, serial: ControllerSerial) {
        if let Some(controller) = self.state().controllers.get_mut(&serial) {
            controller.claimed_at.get_or_insert(now);
        }
    }

    /// A target has said that something of that controller may still be executed.
    pub fn claim(&self, now: Instant, instance: ControllerInstance) {
        self.claim_where(now, |known| known.instance == Some(instance));
    }

    /// A target has said that something of a controller of this host may still be executed, and not of which.
    pub fn claim_all(&self, now: Instant) {
        self.claim_where(now, |_| true);
    }

    fn claim_where(&self, now: Instant, is_it: impl Fn(&ControllerIdentity) -> bool) {
        for controller in self.state().controllers.values_mut().filter(|of| is_it(&of.known)) {
            controller.claimed_at = controller.claimed_at.map(|before| before.max(now));
            controller.is_claimed = true;
        }
    }

    /// The place that had the controller was tried, and nobody there has claimed it.
    pub fn missed(&self, now: Instant, serial: ControllerSerial) {
        if let Some(controller) = self.state().controllers.get_mut(&serial) {
            controller.missed_at = Some(now);
        }
    }

    /// The place that had the controller cannot be asked: another process answers there, or one that does not know such
    /// questions, or nobody connects there any more. Time after a claim in which nothing has checked it does not count.
    pub fn absent(&self, now: Instant, serial: ControllerSerial) {
        if let Some(controller) = self.state().controllers.get_mut(&serial) {
            if controller.quiet_at().is_none() {
                controller.claimed_at = controller.claimed_at.map(|before| before.max(now));
            }
            controller.is_absent = true;
        }
    }

    /// Longest pause between two tries of a place that had a controller: so a claim is not missed.
    #[must_use]
    pub fn ask_within(&self) -> Option<Duration> {
        let state = self.state();
        let claimed =
            state.controllers.values().filter(|of| of.is_claimed && !of.ranges.is_empty());
        claimed.filter_map(|of| Some(of.known.quiet? / ASKED_TIMES)).min()
    }

    /// Nothing that was sent to the controller is executed any more.
    pub fn end(&self, serial: ControllerSerial) {
        let mut state = self.state();
        if let Some(controller) = state.controllers.remove(&serial) {
            self.ended(&controller);
        }
    }

    /// Ends those for which the quiet time has passed.
    pub fn expire(&self, now: Instant) {
        let mut state = self.state();
        let is_over = |_: &ControllerSerial, of: &mut Controller| {
            of.quiet_at().is_some_and(|until| until <= now)
        };
        for (_, controller) in state.controllers.extract_if(.., is_over) {
            self.ended(&controller);
        }
    }

    fn ended(&self, controller: &Controller) {
        if !controller.ranges.is_empty() {
            self.0.open.fetch_sub(1, Ordering::Release);
        }
        // Nothing waits for one that was shut down in order.
        if controller.claimed_at.is_some() || !controller.ranges.is_empty() {
            self.0.ended.fetch_add(1, Ordering::Release);
        }
    }

    // ---- What is known ----

    /// When [`OldCommands::expire`] is due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.state().controllers.values().filter_map(Controller::quiet_at).min()
    }

    /// Whether the controller may still execute what was sent to it.
    #[must_use]
    pub fn has(&self, serial: ControllerSerial) -> bool {
        self.state().controllers.contains_key(&serial)
    }

    /// Whether the controller of that name may.
    #[must_use]
    pub fn has_instance(&self, instance: ControllerInstance) -> bool {
        self.state().controllers.values().any(|of| of.known.instance == Some(instance))
    }

    /// Returns true if a process that does not know the controller of that name, and answers Identify Controller with
    /// `identify`, has taken the place of the one that had it.
    #[must_use]
    pub fn is_at(&self, instance: ControllerInstance, identify: &IdentifyController) -> bool {
        let endpoint = identify.endpoint();
        let is_it =
            |of: &Controller| of.known.instance == Some(instance) && of.known.endpoint == endpoint;
        endpoint != 0 && self.state().controllers.values().any(is_it)
    }

    /// Lost controllers that have ended so far: when this grows, requests that waited may go on.
    #[inline]
    #[must_use]
    pub fn ended_so_far(&self) -> u64 {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Controllers that may still write, with their blocks.
    #[must_use]
    pub fn open(&self, now: Instant) -> Vec<OpenController> {
        let open = |of: &Controller| OpenController {
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

    /// Lost controllers, and their quiet times.
    #[must_use]
    pub fn lost_controllers(&self) -> Vec<(ControllerSerial, Option<Duration>)> {
        let state = self.state();
        let lost = state.controllers.iter().filter(|(_, of)| of.claimed_at.is_some());
        lost.map(|(&serial, of)| (serial, of.known.quiet)).collect()
    }

    // ---- Blocks ----

    /// The controller's connection was lost before it had answered writes to these blocks. `false`: it has ended before.
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

    /// Whether a write may be executed later that changes some of these blocks.
    fn blocks(&self, range: &BlockRange) -> bool {
        self.state().controllers.values().any(|controller| controller.ranges.overlap(range))
    }
}

/// What the requests of a lane have to wait for, and the controller that they are sent to. The default waits for nothing.
#[derive(Clone, Debug, Default)]
pub struct LaneGuard {
    old: OldCommands,
    serial: Option<ControllerSerial>,
}

impl LaneGuard {
    /// Of lanes of that controller.
    #[must_use]
    pub fn new(old: OldCommands, serial: ControllerSerial) -> Self {
        LaneGuard { old, serial: Some(serial) }
    }

    /// Whether any write has to ask [`LaneGuard::blocks`].
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.old.0.open.load(Ordering::Acquire) != 0
    }

    /// Whether an old write may be executed after one that changes these blocks.
    #[must_use]
    pub fn blocks(&self, range: &BlockRange) -> bool {
        self.old.blocks(range)
    }

    /// The connection was lost before writes to these blocks were answered: the controller that may still execute them.
    /// `None`: it has ended.
    #[must_use]
    pub fn record(&self, ranges: Vec<BlockRange>) -> Option<ControllerSerial> {
        self.serial.filter(|serial| self.old.record(*serial, ranges))
    }

    /// Whether that controller may still execute what was sent to it.
    #[must_use]
    pub fn may_execute(&self, serial: ControllerSerial) -> bool {
        self.old.has(serial)
    }

    /// See [`OldCommands::ended_so_far`].
    #[inline]
    #[must_use]
    pub fn ended_so_far(&self) -> u64 {
        self.old.ended_so_far()
    }
}

#[cfg(test)]
mod tests;
