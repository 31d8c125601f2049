//! State of a connection at the target, the commands allowed in each state, and the leftovers at its end.
//!
//! ```text
//! Securing -> Initializing -> Connecting -> Authenticating -> Live -> Draining -> Ended
//!    TLS         ICReq          Connect        AUTH_Send...    I/O      none      only commands in a store
//! ```
//!
//! A state that the listener's [`ListenerRequirements`] do not require is skipped. A connection may end in every state.
//! [`ConnectionState::takes`] and [`ConnectionState::admits`] are the tables of allowed PDUs and commands.

use super::host_connections::{HostConnection, HostConnections};
use super::io::TargetIoCommand;
use super::pauses;
use super::stability::StoreUser;
pub use super::state::{ConnectionState, SessionRequest};
use super::{
    AuthenticationResult, Authenticator, CloseReason, CommandUsage, ConnectRefused, ConnectedQueue,
    TargetControl, connect,
};
use core::time::Duration;
pub use roadtrain_proto::security::{ConnectionSecurity, SecuredAs};
use roadtrain_proto::security::{FrameSecret, SealUse};
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics::fctype;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::sync::Arc;

/// Requirements of a listener for its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ListenerRequirements {
    /// True if connections are secured before their first PDU.
    pub secures: bool,
    /// True if connections could have been secured, and are not.
    pub declined_tls: bool,
    /// Use of frame sealing; TCP has none.
    pub seals: SealUse,
}

/// State of a connection.
#[derive(Debug)]
pub struct TargetConnection {
    state: ConnectionState,
    /// True if the queue is an I/O queue.
    is_io: bool,
    /// Host and subsystem of the TLS key of a secured connection.
    secured_as: Option<SecuredAs>,
    /// True if it could have been secured, and is not.
    declined_tls: bool,
    /// Queue that its Connect has claimed, until it is granted.
    claim: Option<Box<ConnectedQueue>>,
    /// Queue, once it was granted.
    connected: Option<Box<ConnectedQueue>>,
    /// Authentication required of its host.
    authenticator: Option<Box<Authenticator>>,
    seals: SealUse,
    /// True once a sealed frame of the host was received: it has the keys from its authentication.
    is_sealed: bool,
    /// Deadline of a repeated authentication.
    reauthenticates_by: Option<Instant>,
    computing: ComputingTime,
    /// Identity of the controller for stores.
    user: Option<Arc<StoreUser>>,
    /// Registration of the connection, which outlives the controller.
    presence: Option<HostConnection>,
    /// Controller that has closed the queue, by a reset or Disconnect, and waits for its end.
    closed_by: Option<u16>,
    /// Slots of commands that wait for others: Connects, and shutdowns.
    postponed: Vec<u16>,
    /// Arrival of the first Connect that is not completed.
    connecting: Option<Instant>,
    /// Number of commands in a store.
    in_store: u32,
    /// True if a command was received since traffic was last reported to the control plane.
    has_received: bool,
    /// Usage not yet added to the SMART log.
    usage: CommandUsage,
    /// Units of data added to the SMART log.
    units: u64,
}

/// Time of computations for an authentication, which does not count as the host's time. Each authentication has exactly
/// two: otherwise a host could prolong its time by requesting computations.
#[derive(Debug, Default)]
struct ComputingTime {
    /// Start of the current computation.
    since: Option<Instant>,
    /// Number of computations begun.
    count: u8,
    /// Duration of computations that the host was not credited for yet.
    spared: Duration,
}

/// Computations of an authentication: the public value, and the secret of both ends.
const COMPUTED_MAX: u8 = 2;

impl ComputingTime {
    /// Records whether a computation is running.
    fn note(&mut self, now: Instant, is_computing: bool) {
        if !is_computing {
            self.add_time(now);
            self.since = None;
        } else if self.since.is_none() && self.count < COMPUTED_MAX {
            (self.since, self.count) = (Some(now), self.count + 1);
        }
    }

    /// Adds the time up to now.
    fn add_time(&mut self, now: Instant) {
        if let Some(since) = &mut self.since {
            self.spared += now.since(std::mem::replace(since, now));
        }
    }
}

/// Consequences of a pause for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterPause {
    /// True if its commands that have not begun are cancelled.
    pub cancels: bool,
    /// True if its keep-alive timer has expired: it closes.
    pub closes: bool,
}

/// Final report of a connection of which nothing is left.
#[derive(Debug)]
pub struct ConnectionEnd {
    presence: Option<HostConnection>,
    /// Queue that was never granted.
    claim: Option<Box<ConnectedQueue>>,
    /// Queue that the controller still has.
    connected: Option<Box<ConnectedQueue>>,
    /// Controller that waits for its end.
    closed_by: Option<u16>,
}

impl ConnectionEnd {
    /// Sends the report.
    pub fn report<C: Copy>(&self, target: &mut TargetControl, presences: &mut HostConnections<C>) {
        self.presence.iter().for_each(|presence| presences.leave(presence));
        self.claim.iter().for_each(|claim| target.withdraw(claim));
        if let Some(connected) = &self.connected {
            target.disconnect(connected.cntlid, connected.qid);
        }
        if let Some(cntlid) = self.closed_by {
            target.drained(cntlid);
        }
    }
}

impl TargetConnection {
    /// Creates the state of a new connection.
    #[must_use]
    pub fn new(settings: ListenerRequirements) -> Self {
        TargetConnection {
            state: if settings.secures {
                ConnectionState::Securing
            } else {
                ConnectionState::Initializing
            },
            is_io: false,
            secured_as: None,
            declined_tls: settings.declined_tls,
            claim: None,
            connected: None,
            authenticator: None,
            seals: settings.seals,
            is_sealed: false,
            reauthenticates_by: None,
            computing: ComputingTime::default(),
            user: None,
            presence: None,
            closed_by: None,
            postponed: Vec::new(),
            connecting: None,
            in_store: 0,
            has_received: false,
            usage: CommandUsage::default(),
            units: 0,
        }
    }

    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> ConnectionState {
        self.state
    }

    fn step(&mut self, from: ConnectionState, to: ConnectionState) {
        if self.state == from {
            self.state = to;
        }
    }

    /// Records a successful TLS handshake, with a key of this host and subsystem.
    pub fn secured(&mut self, secured_as: SecuredAs) {
        self.secured_as = Some(secured_as);
        self.step(ConnectionState::Securing, ConnectionState::Initializing);
    }

    /// Records that the transport is initialized: ICReq was received, or a link was joined.
    pub fn initialized(&mut self) {
        self.step(ConnectionState::Initializing, ConnectionState::Connecting);
    }

    /// Checks that the names in a Connect's data are those of the connection's TLS key.
    ///
    /// # Errors
    /// The field and its value, with the status of the completion.
    pub fn admits_names(&self, data: &[u8]) -> Result<(), ConnectRefused> {
        self.secured_as.as_ref().map_or(Ok(()), |secured_as| connect::check_names(secured_as, data))
    }

    /// Returns the security of the connection.
    #[must_use]
    pub fn channel(&self) -> ConnectionSecurity<'_> {
        match &self.secured_as {
            Some(secured_as) => ConnectionSecurity::Secured(secured_as),
            None if self.declined_tls => ConnectionSecurity::Securable,
            None => ConnectionSecurity::Plain,
        }
    }

    /// Records a successful Connect, which has claimed a queue. [`TargetConnection::take_granted`] follows.
    pub fn connected(&mut self, connected: ConnectedQueue) {
        self.is_io = connected.qid > 0;
        self.user = Some(Arc::new(connected.user()));
        self.authenticator = connected.requirement.as_ref().map(|requirement| {
            Box::new(Authenticator::new(requirement, self.seals, connected.context))
        });
        (self.claim, self.connecting) = (Some(Box::new(connected)), None);
        self.step(ConnectionState::Connecting, ConnectionState::Authenticating);
        // If frames have to be sealed, a host that cannot seal them is never authenticated.
        if self.authenticator.is_none() && self.seals != SealUse::Required {
            self.authenticated();
        }
    }

    /// Grants the host its claimed queue, if it is authenticated or need not be. To call after [`TargetConnection::connected`],
    /// [`TargetConnection::authenticates`] and [`TargetConnection::sealed`]. Returns true once, when the queue exists. `connection`
    /// identifies the connection by which a loss is detected.
    ///
    /// # Errors
    /// The refusal: the connection has to end.
    pub fn take_granted<C: Copy>(
        &mut self,
        now: Instant,
        target: &mut TargetControl,
        presences: &mut HostConnections<C>,
        connection: Option<C>,
    ) -> Result<bool, ConnectRefused> {
        if self.state != ConnectionState::Live {
            return Ok(false);
        }
        let Some(claim) = self.claim.take() else { return Ok(false) };
        if let Err(refused) = target.grant(now, &claim) {
            (self.state, self.claim) = (ConnectionState::Refused, Some(claim));
            return Err(refused);
        }
        self.presence = Some(presences.enter(now, &claim, connection));
        self.connected = Some(claim);
        Ok(true)
    }

    /// Records that the host is authenticated.
    pub fn authenticated(&mut self) {
        self.step(ConnectionState::Authenticating, ConnectionState::Live);
    }

    /// True if the host is authenticated, and has not begun to authenticate again.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        let verdict = self.authenticator.as_ref().and_then(|one| one.verdict());
        verdict == Some(AuthenticationResult::Authenticated)
    }

    /// Returns the authentication required of its host.
    pub fn authenticator(&mut self) -> Option<&mut Authenticator> {
        self.authenticator.as_deref_mut()
    }

    /// Applies progress of an authentication. Returns true if the connection ends because it has failed. A repeated
    /// authentication that fails ends the connection at once, or after `time`; a first one lets the host receive the
    /// reason. A connection whose host has generated a PSK stays as it is: nothing more arrives on it.
    pub fn authenticates(&mut self, now: Instant, time: Duration) -> bool {
        let Some(authenticator) = &self.authenticator else { return false };
        let begins_again = self.state == ConnectionState::Live && authenticator.verdict().is_none();
        if begins_again && self.reauthenticates_by.is_none() {
            (self.reauthenticates_by, self.computing) =
                (Some(now + time), ComputingTime::default());
        }
        self.computing.note(now, authenticator.is_computing());
        if self.computing.since.is_some()
            && let Some(connected) = &self.connected
        {
            connected.shared.mark_traffic(); // the host is alive, and waits for the computation
        }
        self.reauthenticates_by = self.reauthenticates_by.filter(|_| begins_again);
        if let Some(by) = &mut self.reauthenticates_by {
            *by += std::mem::take(&mut self.computing.spared);
        }
        let has_failed = authenticator.verdict() == Some(AuthenticationResult::Failed);
        let ends =
            has_failed || (authenticator.has_refused() && self.state == ConnectionState::Live);
        if authenticator.verdict() == Some(AuthenticationResult::Authenticated) {
            // A relay that only forwards the host's messages does not have its keys.
            let is_sealed = self.is_sealed || !authenticator.seals();
            if is_sealed && !authenticator.concatenates() {
                self.authenticated();
            }
        } else if ends {
            self.step(ConnectionState::Authenticating, ConnectionState::Refused);
            self.step(ConnectionState::Live, ConnectionState::Refused);
        }
        ends
    }

    /// Takes the secret that seals the lane's frames from now on. It is returned once. No host is authenticated before
    /// one was sealed.
    pub fn take_frame_secret(&mut self) -> Option<FrameSecret> {
        let secret = self.authenticator.as_mut()?.take_frame_secret();
        secret.filter(|_| !self.is_sealed)
    }

    /// Records a sealed frame. Returns true if that authenticates the host.
    pub fn sealed(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.is_sealed, true);
        let verdict = self.authenticator.as_ref().and_then(|authenticator| authenticator.verdict());
        let is_it = is_first && verdict == Some(AuthenticationResult::Authenticated);
        if is_it {
            self.authenticated();
        }
        is_it
    }

    /// True if the lane's frames are sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Returns the deadline of a repeated authentication; `None` while the host waits for a computation.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.reauthenticates_by.filter(|_| self.computing.since.is_none())
    }

    /// Stops execution for a controller shutdown. A host that is not authenticated by then is refused.
    pub fn quiesce(&mut self) {
        self.step(ConnectionState::Authenticating, ConnectionState::Refused);
        self.step(ConnectionState::Live, ConnectionState::Draining);
    }

    /// Records the host's Disconnect.
    pub fn disconnected(&mut self) {
        self.closed_by = self.connected.take().map(|connected| connected.cntlid);
        if self.state != ConnectionState::Ended {
            self.state = ConnectionState::Draining;
        }
    }

    /// Records that the controller has dropped the queue; if the controller is alive, it waits for the queue's end.
    pub fn forgotten(&mut self, reason: CloseReason) {
        let cntlid = self.connected.take().map(|connected| connected.cntlid);
        self.closed_by = cntlid.filter(|_| reason.awaits_queue_end()).or(self.closed_by);
    }

    /// Ends the connection. Returns its registration if commands of it are in a store.
    pub fn end(&mut self) -> Option<&HostConnection> {
        self.state = ConnectionState::Ended;
        self.presence.as_ref().filter(|_| self.in_store > 0)
    }

    /// True if the connection has ended, and no command of it is in a store.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.state == ConnectionState::Ended && self.in_store == 0
    }

    /// Returns the final report once nothing is left. Only then is the queue removed from the controller, so that a
    /// host which connects again never overtakes its own old commands.
    #[must_use]
    pub fn leave(self) -> Option<ConnectionEnd> {
        let TargetConnection { presence, claim, connected, closed_by, .. } = self;
        let has_any = presence.is_some() || claim.is_some();
        has_any.then_some(ConnectionEnd { presence, claim, connected, closed_by })
    }

    /// True if the connection has ended.
    #[must_use]
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.state == ConnectionState::Ended
    }

    /// True if no queue was connected: the connection gives way to others at a limit, and ends when that takes too
    /// long.
    #[must_use]
    pub fn is_unauthenticated(&self) -> bool {
        matches!(
            self.state,
            ConnectionState::Securing
                | ConnectionState::Initializing
                | ConnectionState::Connecting
                | ConnectionState::Authenticating
        )
    }

    /// Takes the time that an unauthenticated host has waited for computations, since the last call; `None` if the
    /// connection is no longer unauthenticated.
    pub fn take_spared(&mut self, now: Instant) -> Option<Duration> {
        self.computing.add_time(now);
        self.is_unauthenticated().then(|| std::mem::take(&mut self.computing.spared))
    }

    /// True if commands of an I/O queue are executed.
    #[inline]
    #[must_use]
    pub fn executes_io(&self) -> bool {
        self.state == ConnectionState::Live && self.is_io
    }

    /// Returns the kind of a command on this queue.
    #[must_use]
    pub fn request(&self, sqe: &Sqe) -> SessionRequest {
        if sqe.opcode != opcode::FABRICS {
            return if self.is_io { SessionRequest::Io } else { SessionRequest::Admin };
        }
        match sqe.fctype() {
            fctype::CONNECT => SessionRequest::Connect,
            fctype::AUTHENTICATION_SEND | fctype::AUTHENTICATION_RECEIVE => {
                SessionRequest::Authentication
            }
            fctype::PROPERTY_GET | fctype::PROPERTY_SET => SessionRequest::Property,
            fctype::DISCONNECT => SessionRequest::Disconnect,
            _ => SessionRequest::Fabrics,
        }
    }

    /// Checks that a command may be executed now.
    ///
    /// # Errors
    /// The status of the completion.
    pub fn admits(&self, request: SessionRequest) -> Result<(), Status> {
        let expects_queue = !matches!(self.state, ConnectionState::Connecting);
        if expects_queue && !self.is_connected() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        self.state.admits(request)
    }

    /// True if a queue was connected, granted or not.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connected.is_some() || self.claim.is_some()
    }

    /// Returns the claimed queue until it is granted: an existing queue of that name is another one.
    #[must_use]
    pub fn claim(&self) -> Option<&ConnectedQueue> {
        self.claim.as_deref()
    }

    /// Returns its queue, once granted.
    #[inline]
    #[must_use]
    pub fn queue(&self) -> Option<&ConnectedQueue> {
        self.connected.as_deref()
    }

    /// True if its controller's keep-alive timer has expired.
    #[must_use]
    pub fn has_expired(&self) -> bool {
        self.connected.as_ref().is_some_and(|connected| connected.shared.has_expired())
    }

    /// Returns the consequences of a pause of the target: the host may have stopped waiting for commands.
    #[must_use]
    pub fn after_pause(&self, pause: Duration) -> AfterPause {
        let closes = self.has_expired();
        let is_late = |queue: &ConnectedQueue| pauses::is_too_long(pause, queue.keep_alive);
        let cancels = closes || (self.is_ended() && self.queue().is_some_and(is_late));
        AfterPause { cancels, closes }
    }

    /// True if a queue was granted to the host of this name.
    #[must_use]
    pub fn is_of(&self, hostnqn: &str) -> bool {
        self.presence().is_some_and(|presence| *presence.hostnqn == *hostnqn)
    }

    /// Returns the identity of its controller for stores.
    #[inline]
    #[must_use]
    pub fn user(&self) -> Option<&Arc<StoreUser>> {
        self.user.as_ref()
    }

    /// Returns its registration, if a queue was ever granted.
    #[must_use]
    pub fn presence(&self) -> Option<&HostConnection> {
        self.presence.as_ref()
    }

    /// Returns when its Connect arrived: a postponed one is older than others.
    pub fn connecting(&mut self, now: Instant) -> Instant {
        *self.connecting.get_or_insert(now)
    }

    /// Records that the Connect was completed, or that there was none.
    pub fn answered(&mut self) {
        self.connecting = None;
    }

    /// Adds a command that waits for its retry.
    pub fn postpone(&mut self, slot: u16) {
        self.postponed.push(slot);
    }

    /// True if commands wait for their retry.
    #[must_use]
    pub fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// Takes the commands to retry.
    pub fn take_postponed(&mut self) -> Vec<u16> {
        core::mem::take(&mut self.postponed)
    }

    /// Counts a command that enters a store.
    #[inline]
    pub fn entered_store(&mut self) {
        self.in_store += 1;
    }

    /// Counts a command that leaves its store.
    #[inline]
    pub fn left_store(&mut self) {
        self.in_store -= 1;
    }

    /// Returns the number of commands in a store.
    #[inline]
    #[must_use]
    pub fn in_store(&self) -> u32 {
        self.in_store
    }

    /// Returns the queue once it has nothing in a store, for its controller's shutdown.
    #[inline]
    #[must_use]
    pub fn quiet(&self) -> Option<&ConnectedQueue> {
        match self.state {
            ConnectionState::Draining | ConnectionState::Refused if self.in_store == 0 => {
                self.connected.as_deref()
            }
            _ => None,
        }
    }

    /// Records a received command.
    #[inline]
    pub fn note_received(&mut self) {
        self.has_received = true;
    }

    /// Ends a turn: reports traffic of the host to the controller, whatever the commands and their results.
    #[inline]
    pub fn report_traffic(&mut self) {
        if core::mem::take(&mut self.has_received)
            && let Some(connected) = &self.connected
        {
            connected.shared.mark_traffic();
            if self.usage != CommandUsage::default() {
                self.units += self.usage.units();
                connected.shared.add_usage(&core::mem::take(&mut self.usage));
            }
        }
    }

    /// Returns the bytes of data that its commands have transferred.
    #[must_use]
    #[inline]
    pub fn data_bytes(&self) -> u64 {
        (self.units + self.usage.units()) * 512
    }

    /// Counts a command for the SMART log.
    #[inline]
    pub fn account(&mut self, command: &TargetIoCommand) {
        match *command {
            TargetIoCommand::Read { length, .. } | TargetIoCommand::Compare { length, .. } => {
                self.usage.read_commands += 1;
                self.usage.read_units += u64::from(length) / 512;
            }
            TargetIoCommand::Write { length, .. } => {
                self.usage.write_commands += 1;
                self.usage.write_units += u64::from(length) / 512;
            }
            _ => {}
        }
    }

    /// Adds a failure to the controller's error log, which has no lock: failing commands are as cheap as others.
    pub fn record_error(&self, sqe: &Sqe, status: Status) {
        if let Some(connected) = &self.connected {
            connected.shared.record_error(connected.qid, sqe, status);
        }
    }

    /// True if every write has to be on stable storage before its completion.
    #[inline]
    #[must_use]
    pub fn is_write_through(&self) -> bool {
        self.connected.as_ref().is_some_and(|connected| connected.shared.is_write_through())
    }
}

/// Connections without a connected queue, by age. One that does not connect in time is closed, as nothing else would
/// ever end it.
#[derive(Debug)]
pub struct UnauthenticatedConnections<C> {
    timeout: Duration,
    /// Start time of each connection, plus the time in which it waited for computations.
    by_age: VecDeque<(Instant, C)>,
}

impl<C> Default for UnauthenticatedConnections<C> {
    fn default() -> Self {
        UnauthenticatedConnections { timeout: Duration::ZERO, by_age: VecDeque::new() }
    }
}

/// Shortest interval between checks of a connection while computations for it are pending.
const SPARED_MIN: Duration = Duration::from_millis(10);

impl<C: Copy> UnauthenticatedConnections<C> {
    /// Creates an empty list; each connection has `timeout`.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        UnauthenticatedConnections { timeout, by_age: VecDeque::new() }
    }

    /// Adds a new connection.
    pub fn enter(&mut self, now: Instant, connection: C) {
        self.by_age.push_back((now, connection));
    }

    /// Returns the next connection whose time is over, of those still unauthenticated: it has to be closed.
    /// `take_spared` is [`TargetConnection::take_spared`] of a connection.
    #[inline]
    pub fn overdue(
        &mut self,
        now: Instant,
        mut take_spared: impl FnMut(C) -> Option<Duration>,
    ) -> Option<C> {
        let timeout = self.timeout;
        loop {
            let is_over = |(since, _): &mut (Instant, C)| *since + timeout <= now;
            let (since, connection) = self.by_age.pop_front_if(is_over)?;
            match take_spared(connection) {
                None => {}
                Some(spared) if spared.is_zero() => return Some(connection),
                Some(spared) => {
                    let since = since + spared.max(SPARED_MIN);
                    let at = self.by_age.partition_point(|(other, _)| *other <= since);
                    self.by_age.insert(at, (since, connection));
                }
            }
        }
    }

    /// Returns when the time of the next one is over.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.by_age.front().map(|(since, _)| *since + self.timeout)
    }

    /// Returns connections and their start times by age, including some that have connected a queue.
    pub fn iter(&self) -> impl Iterator<Item = (Instant, C)> {
        self.by_age.iter().copied()
    }
}
