//! A connection at the target: which state it is in, what may be done in that state, and what is left of it at its end.
//!
//! ```text
//! Securing -> Initializing -> Connecting -> Authenticating -> Live -> Draining -> Ended
//!    TLS         ICReq          Connect        AUTH_Send...    I/O      none      only what is in a store
//! ```
//!
//! A state that the listener's [`Settings`] do not ask for is passed through at once. A connection may end in every
//! state. [`State::takes`] and [`State::admits`] are the tables of what may come.

use super::io::IoCommand;
use super::pauses;
use super::presence::{Presence, Presences};
use super::stability::User;
pub use super::state::{Request, State};
use super::{
    Authenticator, CloseReason, ConnectRefused, Connected, Target, Usage, Verdict, connect,
};
use core::time::Duration;
pub use roadtrain_proto::security::{Channel, SecuredAs};
use roadtrain_proto::security::{FrameSecret, SealUse};
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics::fctype;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a listener asks of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    /// They are secured before their first PDU.
    pub secures: bool,
    /// They could have been secured, and are not.
    pub declined_tls: bool,
    /// Whether frames are sealed; over TCP there are none.
    pub seals: SealUse,
}

/// A connection.
#[derive(Debug)]
pub struct Session {
    state: State,
    /// The queue is an I/O queue.
    is_io: bool,
    /// Who is at the other end of a secured stream.
    secured_as: Option<SecuredAs>,
    /// It could have been secured, and is not.
    declined_tls: bool,
    /// The queue that its Connect has claimed, until it is granted.
    claim: Option<Box<Connected>>,
    /// The queue, once it was granted.
    connected: Option<Box<Connected>>,
    /// The proof that its host is asked for.
    authenticator: Option<Box<Authenticator>>,
    seals: SealUse,
    /// A sealed frame of the host's has come: it has the keys that its authentication has left.
    is_sealed: bool,
    /// Its host was authenticated, has begun again, and has to end it by then.
    proves_by: Option<Instant>,
    computing: Computing,
    /// The controller as stores know it.
    user: Option<Arc<User>>,
    /// Of the host, known even when the controller is gone.
    presence: Option<Presence>,
    /// The controller that has given the queue up, by a reset or Disconnect, and waits until it has ended.
    given_up_by: Option<u16>,
    /// Slots of commands that wait for others: Connects, and shutdowns.
    postponed: Vec<u16>,
    /// When the first Connect came that has not been answered.
    connecting: Option<Instant>,
    /// Commands in a store.
    in_store: u32,
    /// A command has come since the control plane was told that the host is there.
    heard: bool,
    /// What the SMART log has not been told yet.
    usage: Usage,
    /// Units of data of which it has been told.
    units: u64,
}

/// What is computed for an authentication: the host waits for that, so it is not the host's time. Each authentication
/// needs two, and has no more: otherwise a host that lets us compute could stay as long as it likes.
#[derive(Debug, Default)]
struct Computing {
    /// Since when, if something is.
    since: Option<Instant>,
    /// How often something was.
    count: u8,
    /// The time that it took, and that the host has not been given back.
    spared: Duration,
}

/// Computations of an authentication: the public value, and the secret of both ends.
const COMPUTED_MAX: u8 = 2;

impl Computing {
    /// It is so now.
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
    /// Its commands that have not begun do not begin.
    pub cancels: bool,
    /// Its keep-alive timer has expired: it closes.
    pub closes: bool,
}

/// What is left to be told when nothing of a connection is left.
#[derive(Debug)]
pub struct Leaving {
    presence: Option<Presence>,
    /// A queue that was never granted.
    claim: Option<Box<Connected>>,
    /// Its queue, which the controller still knows.
    connected: Option<Box<Connected>>,
    /// The controller that waits for its end.
    given_up_by: Option<u16>,
}

impl Leaving {
    /// Tells it.
    pub fn tell<C: Copy>(&self, target: &mut Target, presences: &mut Presences<C>) {
        self.presence.iter().for_each(|presence| presences.leave(presence));
        self.claim.iter().for_each(|claim| target.withdraw(claim));
        if let Some(connected) = &self.connected {
            target.disconnect(connected.cntlid, connected.qid);
        }
        if let Some(cntlid) = self.given_up_by {
            target.drained(cntlid);
        }
    }
}

impl Session {
    /// A connection that has just come.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Session {
            state: if settings.secures { State::Securing } else { State::Initializing },
            is_io: false,
            secured_as: None,
            declined_tls: settings.declined_tls,
            claim: None,
            connected: None,
            authenticator: None,
            seals: settings.seals,
            is_sealed: false,
            proves_by: None,
            computing: Computing::default(),
            user: None,
            presence: None,
            given_up_by: None,
            postponed: Vec::new(),
            connecting: None,
            in_store: 0,
            heard: false,
            usage: Usage::default(),
            units: 0,
        }
    }

    /// Where it is.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    fn step(&mut self, from: State, to: State) {
        if self.state == from {
            self.state = to;
        }
    }

    /// The stream's handshake has succeeded, with a key of these two.
    pub fn secured(&mut self, secured_as: SecuredAs) {
        self.secured_as = Some(secured_as);
        self.step(State::Securing, State::Initializing);
    }

    /// The transport is set up: ICReq has come, or a link was joined.
    pub fn initialized(&mut self) {
        self.step(State::Initializing, State::Connecting);
    }

    /// Whether the names in a Connect's data are those that the stream was secured with.
    ///
    /// # Errors
    /// The field and its value, with the status to answer.
    pub fn admits_names(&self, data: &[u8]) -> Result<(), ConnectRefused> {
        self.secured_as.as_ref().map_or(Ok(()), |secured_as| connect::check_names(secured_as, data))
    }

    /// What carries it.
    #[must_use]
    pub fn channel(&self) -> Channel<'_> {
        match &self.secured_as {
            Some(secured_as) => Channel::Secured(secured_as),
            None if self.declined_tls => Channel::Securable,
            None => Channel::Plain,
        }
    }

    /// Connect has succeeded: the queue is claimed. [`Session::take_granted`] follows.
    pub fn connected(&mut self, connected: Connected) {
        self.is_io = connected.qid > 0;
        self.user = Some(Arc::new(connected.user()));
        self.authenticator = connected
            .asked
            .as_ref()
            .map(|asked| Box::new(Authenticator::new(asked, self.seals, connected.context)));
        (self.claim, self.connecting) = (Some(Box::new(connected)), None);
        self.step(State::Connecting, State::Authenticating);
        // Where frames have to be sealed somebody who cannot is never believed.
        if self.authenticator.is_none() && self.seals != SealUse::Required {
            self.authenticated();
        }
    }

    /// The host is granted the queue that it has claimed, if it has proved who it is or need not. Called after
    /// [`Session::connected`], [`Session::authenticates`] and [`Session::sealed`]; `true` once, when the queue exists.
    /// `connection` is what its host's loss of it is seen by.
    ///
    /// # Errors
    /// The reason for which it is refused: the connection is to end.
    pub fn take_granted<C: Copy>(
        &mut self,
        now: Instant,
        target: &mut Target,
        presences: &mut Presences<C>,
        connection: Option<C>,
    ) -> Result<bool, ConnectRefused> {
        if self.state != State::Live {
            return Ok(false);
        }
        let Some(claim) = self.claim.take() else { return Ok(false) };
        if let Err(refused) = target.grant(now, &claim) {
            (self.state, self.claim) = (State::Refused, Some(claim));
            return Err(refused);
        }
        self.presence = Some(presences.enter(now, &claim, connection));
        self.connected = Some(claim);
        Ok(true)
    }

    /// The host has proved who it is.
    pub fn authenticated(&mut self) {
        self.step(State::Authenticating, State::Live);
    }

    /// Whether its host has proved who it is, and has not begun again.
    #[must_use]
    pub fn has_proved(&self) -> bool {
        let verdict = self.authenticator.as_ref().and_then(|one| one.verdict());
        verdict == Some(Verdict::Authenticated)
    }

    /// The proof that its host is asked for.
    pub fn authenticator(&mut self) -> Option<&mut Authenticator> {
        self.authenticator.as_deref_mut()
    }

    /// An authentication has gone on: whether the connection ends, as the host is not who it says. One that was
    /// authenticated before, and begins again, ends at once, or when the host has taken `time`; another is to hear why.
    /// One whose host has made a PSK stays as it is: nothing more comes on it.
    pub fn authenticates(&mut self, now: Instant, time: Duration) -> bool {
        let Some(authenticator) = &self.authenticator else { return false };
        let begins_again = self.state == State::Live && authenticator.verdict().is_none();
        if begins_again && self.proves_by.is_none() {
            (self.proves_by, self.computing) = (Some(now + time), Computing::default());
        }
        self.computing.note(now, authenticator.is_computing());
        if self.computing.since.is_some()
            && let Some(connected) = &self.connected
        {
            connected.shared.mark_traffic(); // the host is there, and waits for us
        }
        self.proves_by = self.proves_by.filter(|_| begins_again);
        if let Some(by) = &mut self.proves_by {
            *by += std::mem::take(&mut self.computing.spared);
        }
        let has_failed = authenticator.verdict() == Some(Verdict::Failed);
        let ends = has_failed || (authenticator.has_refused() && self.state == State::Live);
        if authenticator.verdict() == Some(Verdict::Authenticated) {
            // Who only passes on what the host has said has not its keys.
            let is_sealed = self.is_sealed || !authenticator.seals();
            if is_sealed && !authenticator.concatenates() {
                self.authenticated();
            }
        } else if ends {
            self.step(State::Authenticating, State::Refused);
            self.step(State::Live, State::Refused);
        }
        ends
    }

    /// What the lane's frames may be sealed with from now on: once. Nobody is believed before one was.
    pub fn take_frame_secret(&mut self) -> Option<FrameSecret> {
        let secret = self.authenticator.as_mut()?.take_frame_secret();
        secret.filter(|_| !self.is_sealed)
    }

    /// A sealed frame has come. Whether the host is authenticated by that.
    pub fn sealed(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.is_sealed, true);
        let verdict = self.authenticator.as_ref().and_then(|authenticator| authenticator.verdict());
        let is_it = is_first && verdict == Some(Verdict::Authenticated);
        if is_it {
            self.authenticated();
        }
        is_it
    }

    /// Whether the lane's frames are sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// When an authentication that the host has begun again is to be over; `None` while the host waits for us.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.proves_by.filter(|_| self.computing.since.is_none())
    }

    /// The controller shuts down: nothing more is executed. Whoever is not known by then will not be.
    pub fn quiesce(&mut self) {
        self.step(State::Authenticating, State::Refused);
        self.step(State::Live, State::Draining);
    }

    /// The host has disconnected.
    pub fn disconnected(&mut self) {
        self.given_up_by = self.connected.take().map(|connected| connected.cntlid);
        if self.state != State::Ended {
            self.state = State::Draining;
        }
    }

    /// The controller knows the queue no more; if it lives, it waits until the queue has ended.
    pub fn forgotten(&mut self, reason: CloseReason) {
        let cntlid = self.connected.take().map(|connected| connected.cntlid);
        self.given_up_by = cntlid.filter(|_| reason.gives_up()).or(self.given_up_by);
    }

    /// The connection is over. The presence that is to be told that commands of it are in a store.
    pub fn end(&mut self) -> Option<&Presence> {
        self.state = State::Ended;
        self.presence.as_ref().filter(|_| self.in_store > 0)
    }

    /// Whether the connection is over, and no command of it is in a store.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.state == State::Ended && self.in_store == 0
    }

    /// What is to be told when nothing is left. Only then is the queue gone for the controller, so that a host which
    /// connects again never overtakes its own old commands.
    #[must_use]
    pub fn leave(self) -> Option<Leaving> {
        let Session { presence, claim, connected, given_up_by, .. } = self;
        let has_any = presence.is_some() || claim.is_some();
        has_any.then_some(Leaving { presence, claim, connected, given_up_by })
    }

    /// Whether the connection is over.
    #[must_use]
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// No queue has been connected: the connection makes room for others, and ends when that takes too long.
    #[must_use]
    pub fn is_newcomer(&self) -> bool {
        matches!(
            self.state,
            State::Securing | State::Initializing | State::Connecting | State::Authenticating
        )
    }

    /// The time that its host, while it is a newcomer, has waited for what is computed for it, since this was last
    /// asked; `None` if it is no newcomer.
    pub fn take_spared(&mut self, now: Instant) -> Option<Duration> {
        self.computing.add_time(now);
        self.is_newcomer().then(|| std::mem::take(&mut self.computing.spared))
    }

    /// Whether commands of an I/O queue are executed.
    #[inline]
    #[must_use]
    pub fn executes_io(&self) -> bool {
        self.state == State::Live && self.is_io
    }

    /// What a command is about, on this queue.
    #[must_use]
    pub fn request(&self, sqe: &Sqe) -> Request {
        if sqe.opcode != opcode::FABRICS {
            return if self.is_io { Request::Io } else { Request::Admin };
        }
        match sqe.fctype() {
            fctype::CONNECT => Request::Connect,
            fctype::AUTHENTICATION_SEND | fctype::AUTHENTICATION_RECEIVE => Request::Authentication,
            fctype::PROPERTY_GET | fctype::PROPERTY_SET => Request::Property,
            fctype::DISCONNECT => Request::Disconnect,
            _ => Request::Fabrics,
        }
    }

    /// Whether a command may be executed now.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn admits(&self, request: Request) -> Result<(), Status> {
        let expects_queue = !matches!(self.state, State::Connecting);
        if expects_queue && !self.is_connected() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        self.state.admits(request)
    }

    /// Whether a queue was connected, granted or not.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connected.is_some() || self.claim.is_some()
    }

    /// The queue that its host has claimed and was not granted: whatever there is by that name is another one.
    #[must_use]
    pub fn claim(&self) -> Option<&Connected> {
        self.claim.as_deref()
    }

    /// Its queue, once its host was granted it.
    #[inline]
    #[must_use]
    pub fn queue(&self) -> Option<&Connected> {
        self.connected.as_deref()
    }

    /// Whether its controller's keep-alive timer has expired.
    #[must_use]
    pub fn has_expired(&self) -> bool {
        self.connected.as_ref().is_some_and(|connected| connected.shared.has_expired())
    }

    /// Consequences of a time in which the target stood still: the host may have stopped waiting for commands.
    #[must_use]
    pub fn after_pause(&self, pause: Duration) -> AfterPause {
        let closes = self.has_expired();
        let is_late = |queue: &Connected| pauses::is_too_long(pause, queue.keep_alive);
        let cancels = closes || (self.is_ended() && self.queue().is_some_and(is_late));
        AfterPause { cancels, closes }
    }

    /// True if a queue was granted to the host of this name.
    #[must_use]
    pub fn is_of(&self, hostnqn: &str) -> bool {
        self.presence().is_some_and(|presence| *presence.hostnqn == *hostnqn)
    }

    /// Its controller, as stores know it.
    #[inline]
    #[must_use]
    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Its host's entry, if a queue was ever connected.
    #[must_use]
    pub fn presence(&self) -> Option<&Presence> {
        self.presence.as_ref()
    }

    /// Since when its Connect is being tried: a postponed one is older than others.
    pub fn connecting(&mut self, now: Instant) -> Instant {
        *self.connecting.get_or_insert(now)
    }

    /// The Connect was answered, or there was none.
    pub fn answered(&mut self) {
        self.connecting = None;
    }

    /// A command waits until it is tried again.
    pub fn postpone(&mut self, slot: u16) {
        self.postponed.push(slot);
    }

    /// True if commands wait until they are tried again.
    #[must_use]
    pub fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// Commands that are to be tried again.
    pub fn take_postponed(&mut self) -> Vec<u16> {
        core::mem::take(&mut self.postponed)
    }

    /// A command goes to a store.
    #[inline]
    pub fn entered_store(&mut self) {
        self.in_store += 1;
    }

    /// A command has come back from its store.
    #[inline]
    pub fn left_store(&mut self) {
        self.in_store -= 1;
    }

    /// Commands in a store.
    #[inline]
    #[must_use]
    pub fn in_store(&self) -> u32 {
        self.in_store
    }

    /// The queue that has nothing in a store any more, as its controller, which shuts down, wants to know.
    #[inline]
    #[must_use]
    pub fn quiet(&self) -> Option<&Connected> {
        match self.state {
            State::Draining | State::Refused if self.in_store == 0 => self.connected.as_deref(),
            _ => None,
        }
    }

    /// A command has come.
    #[inline]
    pub fn heard(&mut self) {
        self.heard = true;
    }

    /// A turn is over: the controller hears that its host is there, whatever the commands are and however they end.
    #[inline]
    pub fn tell_traffic(&mut self) {
        if core::mem::take(&mut self.heard)
            && let Some(connected) = &self.connected
        {
            connected.shared.mark_traffic();
            if self.usage != Usage::default() {
                self.units += self.usage.units();
                connected.shared.add_usage(&core::mem::take(&mut self.usage));
            }
        }
    }

    /// Octets of the data that its commands have moved.
    #[must_use]
    #[inline]
    pub fn data_bytes(&self) -> u64 {
        (self.units + self.usage.units()) * 512
    }

    /// Counts a command for the SMART log.
    #[inline]
    pub fn account(&mut self, command: &IoCommand) {
        match *command {
            IoCommand::Read { length, .. } | IoCommand::Compare { length, .. } => {
                self.usage.read_commands += 1;
                self.usage.read_units += u64::from(length) / 512;
            }
            IoCommand::Write { length, .. } => {
                self.usage.write_commands += 1;
                self.usage.write_units += u64::from(length) / 512;
            }
            _ => {}
        }
    }

    /// Into the controller's error log, which has no lock: commands that fail are as cheap as others.
    pub fn record_error(&self, sqe: &Sqe, status: Status) {
        if let Some(connected) = &self.connected {
            connected.shared.record_error(connected.qid, sqe, status);
        }
    }

    /// Every write is to be on stable storage before its answer.
    #[inline]
    #[must_use]
    pub fn is_write_through(&self) -> bool {
        self.connected.as_ref().is_some_and(|connected| connected.shared.is_write_through())
    }
}

/// Connections by age, until they have connected a queue: one that does not in time ends, as nobody else would ever
/// end it.
#[derive(Debug)]
pub struct Newcomers<C> {
    timeout: Duration,
    /// Since when each is there, or seems to be: it was given back the time in which it waited for us.
    by_age: VecDeque<(Instant, C)>,
}

impl<C> Default for Newcomers<C> {
    fn default() -> Self {
        Newcomers { timeout: Duration::ZERO, by_age: VecDeque::new() }
    }
}

/// While something is computed for a newcomer its time is looked at no more often than this.
const SPARED_MIN: Duration = Duration::from_millis(10);

impl<C: Copy> Newcomers<C> {
    /// None; each that comes has `timeout`.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Newcomers { timeout, by_age: VecDeque::new() }
    }

    /// A connection has come.
    pub fn enter(&mut self, now: Instant, connection: C) {
        self.by_age.push_back((now, connection));
    }

    /// The next whose time is over, of those that still are newcomers: it is to be ended. `take_spared` is
    /// [`Session::take_spared`] of a connection.
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

    /// When the time of the next is over.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.by_age.front().map(|(since, _)| *since + self.timeout)
    }

    /// By age, also some that have connected a queue: since when they are there, and which they are.
    pub fn iter(&self) -> impl Iterator<Item = (Instant, C)> {
        self.by_age.iter().copied()
    }
}
