//! A target that is a gateway of a group: it writes a heartbeat, tracks the other gateways, and serves its share of the
//! group's configuration.
//!
//! ```text
//! roadtrain-beat    each half second: writes the heartbeat, reads the other gateways'; a notification of a change
//!     |             starts a round at once
//!     v
//! roadtrain-group   applies changes to the target: a new configuration, another set of gateways
//! ```

use crate::args::{CephArgs, CntlidRange, ServeArgs};
use crate::config::ServeConfig;
use crate::failure::{CommandFailure, CommandResult};
use crate::gateway::{GatewayGroup, GatewayStatus, GroupHeartbeats, GroupState};
use roadtrain_reactor::metrics::GatewaySample;
use roadtrain_store::{ObjectError, ObjectWatch, StoreKind};
use roadtrain_target_engine::{ExportBlocks, Subsystem};
use roadtrain_target_proto::gateways::{Members, cntlids, preferred};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{error, info, warn};

/// Pause between two rounds.
const ROUND: Duration = Duration::from_millis(500);
/// Time to detect a running gateway with the same name.
const NAMESAKE_WAIT: Duration = Duration::from_millis(2500);
/// Interval between updates of the published state.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a failed attempt to follow the group.
const RETRY: Duration = Duration::from_secs(5);
/// Pause before a refused version is tried again: the reason may be temporary, as an image in use. No gateway serves
/// this gateway's share of it meanwhile.
const RETRY_REFUSED: Duration = Duration::from_secs(20);
/// Time limit for a stopping gateway to hand its namespaces over.
const LEAVE_WAIT: Duration = Duration::from_secs(15);
/// Time limit for serving the first share; then the target reports that it is ready in any case.
const FIRST_WAIT: Duration = Duration::from_secs(60);

/// Namespaces that are served, by subsystem.
pub(super) type Serves = BTreeMap<String, Vec<u32>>;

/// A running target that follows its group.
pub(super) trait GroupFollower: Send + Sync {
    /// Exports the configuration `new`, or the present one, with this gateway's present share.
    ///
    /// # Errors
    /// The configuration cannot be served; nothing has changed then.
    fn follow(&self, new: Option<ServeConfig>, from: &str) -> CommandResult;

    /// Returns the listeners, and the namespaces that hosts reach here.
    fn served(&self) -> (Vec<String>, Serves);
}

/// This gateway in its group.
pub(super) struct GroupMember {
    group: GatewayGroup,
    name: String,
    slot: u16,
    /// Configuration of this gateway alone: listeners, limits, waiting.
    own: ServeConfig,
    ceph: CephArgs,
    state: Mutex<GatewayGroupState>,
    changed: Condvar,
    /// Heartbeat state. Locked during a round.
    heartbeat: Mutex<HeartbeatState>,
}

/// State of the group as this gateway knows it.
#[derive(Default)]
struct GatewayGroupState {
    /// Newest version of the configuration.
    version: u64,
    living: BTreeSet<String>,
    /// True after a notification of a change.
    is_round_requested: bool,
    is_leaving: bool,
    /// State that is served here.
    applied: Option<AppliedVersion>,
}

/// Group state that the target follows.
#[derive(Clone, Default, PartialEq, Eq)]
struct AppliedVersion {
    version: u64,
    living: BTreeSet<String>,
    refused: Option<RefusedVersion>,
}

/// A version that this gateway could not serve.
#[derive(Clone, PartialEq, Eq)]
struct RefusedVersion {
    version: u64,
    why: String,
    /// Time of the next attempt.
    retry_at: Instant,
}

impl AppliedVersion {
    /// True if nothing needs to be read for the newest `version`.
    fn knows(&self, version: u64, now: Instant) -> bool {
        match &self.refused {
            Some(refused) => refused.version == version && now < refused.retry_at,
            None => self.version == version,
        }
    }

    /// Records that `version` could not be served at `now`. Returns true if this reason was recorded before.
    fn refuse(&mut self, version: u64, why: String, now: Instant) -> bool {
        let new = RefusedVersion { version, why, retry_at: now + RETRY_REFUSED };
        let old = self.refused.replace(new.clone());
        old.is_some_and(|old| (old.version, old.why) == (new.version, new.why))
    }
}

struct HeartbeatState {
    members: Members,
    /// Last heartbeat of an earlier process with this name.
    before: Option<u64>,
    /// Newest heartbeat that was certainly written, and the newest that was tried.
    written: u64,
    tried: u64,
    /// True when another process has taken this gateway's name.
    is_replaced: bool,
    is_silent: bool,
}

impl GroupMember {
    /// Connects, and takes a slot in the group. Returns the first configuration, without a share yet: [`GroupMember::start`]
    /// announces this gateway to the others.
    ///
    /// The cluster cannot be reached, another gateway has the name, or the configuration is invalid here.
    /// The cluster cannot be reached, another gateway has the name, or the configuration makes no sense here.
    pub(super) fn join(
        args: &ServeArgs,
        own: ServeConfig,
    ) -> CommandResult<(Arc<GroupMember>, ServeConfig)> {
        let member_args = &args.member;
        let (Some(name), Some(pool)) = (&member_args.gateway_group, &member_args.pool) else {
            return Err(CommandFailure::usage("--group needs --pool"));
        };
        let group = GatewayGroup::open(pool, name, &member_args.ceph)?;
        let name = match &member_args.gateway {
            Some(name) => name.clone(),
            None => machine_name()?,
        };
        let before = find_namesake(&group, &name)?;
        let slot = group.take_slot(&name)?;
        let GroupState { version, config, .. } = group.read()?.unwrap_or_default();
        let mut own = own;
        own.limits.cntlid_range = own.limits.cntlid_range.or(cntlid_range(slot));
        let ceph = member_args.ceph.clone();
        let served = config.served_by(&own, &ceph).map_err(CommandFailure::usage)?;
        let first = first_heartbeat();
        let applied = AppliedVersion { version, ..AppliedVersion::default() };
        let state =
            GatewayGroupState { version, applied: Some(applied), ..GatewayGroupState::default() };
        let heartbeat = HeartbeatState {
            members: Members::default(),
            before,
            written: first,
            tried: first,
            is_replaced: false,
            is_silent: false,
        };
        let (state, heartbeat) = (Mutex::new(state), Mutex::new(heartbeat));
        info!("gateway {name} of group {}: slot {slot}, version {version}", group.name());
        let member =
            GroupMember { group, name, slot, own, ceph, state, changed: Condvar::new(), heartbeat };
        Ok((Arc::new(member), served))
    }

    /// Returns the source of the configuration, for messages.
    pub(super) fn source(&self) -> String {
        format!("gateway group {}", self.group.name())
    }

    /// Marks the share of other gateways in `subsystems` as inaccessible here.
    pub(super) fn share(&self, subsystems: &mut [Subsystem]) {
        let applied = self.lock().applied.clone().unwrap_or_default();
        share(subsystems, &self.name, &applied.living);
    }

    /// Returns the names of the gateway and its group.
    pub(super) fn sample(&self) -> GatewaySample {
        GatewaySample { name: self.name.clone(), group: self.group.plain_name().to_owned() }
    }

    /// Follows the group, and waits until the first share is served. The target has to run already: a gateway that
    /// hands a share over must not wait for it.
    ///
    /// # Errors
    /// Another gateway has taken the name, the group cannot be reached, or the threads cannot be started.
    pub(super) fn start(
        self: &Arc<Self>,
        served: &Arc<impl GroupFollower + 'static>,
    ) -> CommandResult {
        self.write_first_heartbeat()?;
        let member = self.clone();
        thread::Builder::new()
            .name("roadtrain-beat".into())
            .spawn(move || member.run_heartbeats())?;
        let (member, of) = (self.clone(), Arc::downgrade(served) as Weak<dyn GroupFollower>);
        thread::Builder::new().name("roadtrain-group".into()).spawn(move || member.follow(&of))?;
        let until = Instant::now() + FIRST_WAIT;
        let mut state = self.lock();
        let is_first = |state: &GatewayGroupState| {
            state.applied.as_ref().is_none_or(|applied| applied.living.is_empty())
        };
        while is_first(&state) && Instant::now() < until {
            state = wait(&self.changed, state, ROUND);
        }
        Ok(())
    }

    /// Writes the first heartbeat.
    fn write_first_heartbeat(&self) -> CommandResult {
        let heartbeat = self.heartbeat.lock().unwrap_or_else(PoisonError::into_inner);
        match self.group.write_heartbeat(&self.name, heartbeat.before, heartbeat.written)? {
            true => Ok(()),
            false => Err(namesake(&self.group, &self.name)),
        }
    }

    /// Hands all namespaces to the other gateways. Waits with a time limit, as the cluster may be down.
    pub(super) fn leave(self: &Arc<Self>, served: &Arc<impl GroupFollower + 'static>) {
        self.lock().is_leaving = true;
        self.changed.notify_all();
        let (done, is_done) = mpsc::channel();
        let (member, served) = (self.clone(), served.clone());
        let hand_over = move || {
            member.hand_over(&*served);
            let _ = done.send(());
        };
        let begun = thread::Builder::new().name("roadtrain-leave".into()).spawn(hand_over);
        if begun.is_err() || is_done.recv_timeout(LEAVE_WAIT).is_err() {
            warn!("not all is handed to the other gateways before the end");
        }
    }

    fn hand_over(&self, served: &dyn GroupFollower) {
        let heartbeat = self.heartbeat.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.group.remove_heartbeat(&self.name, heartbeat.written) {
            warn!("the other gateways see in a few seconds that this one has left: {error}");
        }
        drop(heartbeat);
        let applied = AppliedVersion {
            living: BTreeSet::new(),
            ..self.lock().applied.clone().unwrap_or_default()
        };
        self.lock().applied = Some(applied);
        if let Err(failure) = served.follow(None, &self.source()) {
            warn!("not handed to the other gateways before the end: {}", failure.message);
        }
    }

    /// Requests another attempt with a configuration that could not be applied.
    pub(super) fn retry(&self) {
        if let Some(applied) = &mut self.lock().applied {
            applied.refused = None;
        }
        self.request_round();
    }

    /// Requests a round at once.
    fn request_round(&self) {
        self.lock().is_round_requested = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, GatewayGroupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Thread that writes heartbeats until this gateway leaves.
    fn run_heartbeats(self: Arc<Self>) {
        let mut watch: Option<ObjectWatch> = None;
        while !self.lock().is_leaving {
            if watch.as_ref().is_none_or(ObjectWatch::is_lost) {
                let member = Arc::downgrade(&self);
                let called = move || {
                    if let Some(member) = Weak::upgrade(&member) {
                        member.request_round();
                    }
                };
                watch =
                    self.group.watch(&self.name, called).inspect_err(|error| warn!("{error}")).ok();
            }
            self.round();
            let mut state = self.lock();
            if !state.is_round_requested && !state.is_leaving {
                state = wait(&self.changed, state, ROUND);
            }
            state.is_round_requested = false;
        }
    }

    /// Writes a heartbeat, and reads those of the other gateways.
    fn round(&self) {
        let mut heartbeat = self.heartbeat.lock().unwrap_or_else(PoisonError::into_inner);
        if self.lock().is_leaving {
            return;
        }
        let seen =
            self.write_own_heartbeat(&mut heartbeat).and_then(|()| self.group.read_heartbeats());
        let now = match seen {
            Ok(now) => now,
            Err(error) => {
                if !std::mem::replace(&mut heartbeat.is_silent, true) {
                    warn!("the heartbeat of this gateway cannot be written to the group: {error}");
                }
                return;
            }
        };
        if std::mem::replace(&mut heartbeat.is_silent, false) {
            info!("the heartbeat of this gateway is written to the group again");
        }
        self.update_members(&mut heartbeat, &now);
    }

    fn write_own_heartbeat(&self, heartbeat: &mut HeartbeatState) -> Result<(), ObjectError> {
        if heartbeat.is_replaced {
            return Ok(());
        }
        heartbeat.tried += 1;
        if self.group.write_heartbeat(&self.name, Some(heartbeat.written), heartbeat.tried)? {
            heartbeat.written = heartbeat.tried;
            return Ok(());
        }
        // A heartbeat without a reply may have been written.
        match self.group.read_heartbeats()?.heartbeats.get(&self.name) {
            Some(number) if (heartbeat.written..=heartbeat.tried).contains(number) => {
                heartbeat.written = *number
            }
            _ => {
                error!(
                    "gateway {}: another process has this name in the group, or it was removed: this one serves nothing \
                     of the group any more",
                    self.name
                );
                heartbeat.is_replaced = true;
            }
        }
        Ok(())
    }

    fn update_members(&self, heartbeat: &mut HeartbeatState, now: &GroupHeartbeats) {
        let others =
            now.heartbeats.iter().filter(|(name, _)| !heartbeat.is_replaced || **name != self.name);
        let has_changed =
            heartbeat.members.round(others.map(|(name, number)| (name.as_str(), *number)));
        let living: BTreeSet<String> = heartbeat.members.living().map(str::to_owned).collect();
        if has_changed {
            let names: Vec<&str> = living.iter().map(String::as_str).collect();
            info!("existing gateways: {}", names.join(", "));
        }
        let mut state = self.lock();
        if state.version != now.version || state.living != living {
            state.version = now.version;
            state.living = living;
            self.changed.notify_all();
        }
    }

    /// Thread that keeps the target up to date until this gateway leaves.
    fn follow(&self, served: &Weak<dyn GroupFollower>) {
        let mut published = None;
        let mut is_due = Instant::now();
        loop {
            let (version, living, applied) = {
                let mut state = self.lock();
                let is_same = |state: &GatewayGroupState| {
                    let applied = state.applied.clone().unwrap_or_default();
                    applied.knows(state.version, Instant::now()) && applied.living == state.living
                };
                while is_same(&state) && !state.is_leaving && Instant::now() < is_due {
                    state = wait(&self.changed, state, PUBLISH_INTERVAL);
                }
                if state.is_leaving {
                    return;
                }
                (state.version, state.living.clone(), state.applied.clone().unwrap_or_default())
            };
            let Some(served) = served.upgrade() else { return };
            if self.apply(&*served, (version, living), applied) {
                is_due = Instant::now();
            }
            if Instant::now() >= is_due {
                self.publish_status(&*served, &mut published);
                is_due = Instant::now() + PUBLISH_INTERVAL;
            }
        }
    }

    /// Applies new group state to the target. Returns true if there was any.
    fn apply(
        &self,
        served: &dyn GroupFollower,
        (version, living): (u64, BTreeSet<String>),
        applied: AppliedVersion,
    ) -> bool {
        let is_known = applied.knows(version, Instant::now());
        if is_known && applied.living == living {
            return false;
        }
        // The share depends on the applied state, so that is set first.
        self.lock().applied = Some(AppliedVersion { living: living.clone(), ..applied.clone() });
        let next = match is_known {
            true => served
                .follow(None, &self.source())
                .map(|()| AppliedVersion { living, ..applied.clone() }),
            false => self.read(served, living, applied.clone()),
        };
        let is_done = next.is_ok();
        let next = next.unwrap_or_else(|failure| {
            error!("{}: not followed, and tried again: {}", self.source(), failure.message);
            applied
        });
        let mut state = self.lock();
        state.applied = Some(next);
        self.changed.notify_all();
        let until = Instant::now() + RETRY;
        while !is_done && !state.is_leaving && Instant::now() < until {
            state = wait(&self.changed, state, RETRY);
        }
        true
    }

    /// Serves the present configuration. If this gateway cannot serve it, the former one stays, and it is tried again
    /// later.
    fn read(
        &self,
        served: &dyn GroupFollower,
        living: BTreeSet<String>,
        mut applied: AppliedVersion,
    ) -> CommandResult<AppliedVersion> {
        let GroupState { version, config, .. } = self.group.read()?.unwrap_or_default();
        let new = config.served_by(&self.own, &self.ceph).map_err(CommandFailure::usage);
        match new.and_then(|new| served.follow(Some(new), &self.source())) {
            Ok(()) => Ok(AppliedVersion { version, living, refused: None }),
            Err(failure) => {
                let why = failure.message;
                if !applied.refuse(version, why.clone(), Instant::now()) {
                    error!(
                        "{}: version {version} is not applied, what was served before is served on: {why}",
                        self.source(),
                    );
                }
                // The set of gateways may have changed in any case.
                if applied.living != living {
                    served.follow(None, &self.source())?;
                }
                Ok(AppliedVersion { living, ..applied })
            }
        }
    }

    /// Publishes the served namespaces, if they have changed.
    fn publish_status(&self, served: &dyn GroupFollower, last: &mut Option<GatewayStatus>) {
        let (listeners, serves) = served.served();
        let AppliedVersion { version, refused, .. } =
            self.lock().applied.clone().unwrap_or_default();
        let refused = refused.map(|RefusedVersion { version, why, .. }| (version, why));
        let status = GatewayStatus { slot: self.slot, listeners, version, refused, serves };
        if last.as_ref() == Some(&status) {
            return;
        }
        match self.group.publish(&self.name, &status) {
            Ok(()) => *last = Some(status),
            Err(error) => {
                warn!("the state of this gateway cannot be written to the group: {error}")
            }
        }
    }
}

/// Marks namespaces that are not the share of gateway `me` among `living` as yielded; all gateways serve read-only
/// images.
fn share(subsystems: &mut [Subsystem], me: &str, living: &BTreeSet<String>) {
    for export in subsystems.iter_mut().flat_map(|subsystem| &mut subsystem.namespaces) {
        let ExportBlocks::Spec(spec) = &export.blocks else { continue };
        let StoreKind::Rbd(image) = &spec.kind else { continue };
        if spec.read_only || image.snapshot.is_some() {
            continue;
        }
        let wanted = preferred(&image.to_string(), living.iter().map(String::as_str));
        export.yields = wanted != Some(me);
    }
}

fn wait<'a>(
    changed: &Condvar,
    state: MutexGuard<'a, GatewayGroupState>,
    pause: Duration,
) -> MutexGuard<'a, GatewayGroupState> {
    changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
}

/// Returns the first heartbeat, which differs from those of an earlier process of the gateway.
fn first_heartbeat() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 >> 1
}

fn cntlid_range(slot: u16) -> Option<CntlidRange> {
    cntlids(slot).map(|(min, max)| CntlidRange { min, max })
}

/// Returns the machine's name.
fn machine_name() -> CommandResult<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" | "localhost" => {
            Err(CommandFailure::usage("this machine has no name: give --gateway NAME"))
        }
        name => Ok(name.to_owned()),
    }
}

/// Returns the last heartbeat of an ended gateway with that name; fails if one runs, as two would overwrite each
/// other's state.
fn find_namesake(group: &GatewayGroup, name: &str) -> CommandResult<Option<u64>> {
    let number = || Ok::<_, CommandFailure>(group.read_heartbeats()?.heartbeats.get(name).copied());
    let mut last = number()?;
    let until = Instant::now() + NAMESAKE_WAIT;
    while last.is_some() && Instant::now() < until {
        let now = number()?;
        if now.is_some_and(|now| Some(now) != last) {
            return Err(namesake(group, name));
        }
        last = now;
        thread::sleep(ROUND / 2);
    }
    Ok(last)
}

fn namesake(group: &GatewayGroup, name: &str) -> CommandFailure {
    CommandFailure::failed(format!(
        "gateway group {}: a gateway called {name} runs: give this one another name with --gateway",
        group.name()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refused version is tried again, and its reason is reported once.
    #[test]
    fn a_version_that_was_refused_is_tried_again() {
        let now = Instant::now();
        let mut applied = AppliedVersion { version: 3, ..AppliedVersion::default() };
        assert!(applied.knows(3, now) && !applied.knows(4, now));
        assert!(!applied.refuse(4, "in use".into(), now));
        assert!(applied.knows(4, now) && !applied.knows(5, now) && !applied.knows(3, now));
        let later = now + Duration::from_secs(60);
        assert!(!applied.knows(4, later));
        assert!(applied.refuse(4, "in use".into(), later) && applied.knows(4, later));
        assert!(
            !applied.refuse(4, "gone".into(), later) && !applied.refuse(5, "gone".into(), later)
        );
    }
}
