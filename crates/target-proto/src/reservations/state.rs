//! Rules of reservations: the state of a namespace, and its change by commands.

use super::command::ReservationCommand;
use super::group::CommandGroup;
use roadtrain_wire::reservation::{
    AcquireAction, ChangePersistence, Notification, RegisterAction, ReservationType,
};
use roadtrain_wire::status::Status;

/// Host Identifier (HOSTID of Connect). It identifies a host, whatever controller it uses.
pub type HostId = [u8; 16];

/// Registrants of a namespace at most: any connecting host may use further identifiers.
pub const REGISTRANTS_MAX: usize = 1024;

const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();
const BAD_FIELD: Status = Status::INVALID_FIELD.dnr();

/// A registrant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registrant {
    /// Identifier of the host.
    pub host: HostId,
    /// Reservation key.
    pub key: u64,
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Type.
    pub kind: ReservationType,
    /// The holder, a registrant; `None`: all registrants.
    pub holder: Option<HostId>,
}

/// Registrants and reservation of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReservationState {
    /// GEN: counts changes of registrations.
    pub generation: u32,
    /// PTPL: persists through power loss.
    pub persists: bool,
    /// Registrants in the order of registration.
    pub registrants: Vec<Registrant>,
    /// The reservation, if there is one.
    pub reservation: Option<Reservation>,
}

/// Side effects of a command.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReservationEffects {
    /// Notifications for hosts.
    pub notices: Vec<(HostId, Notification)>,
    /// True if commands of hosts that have lost access are aborted.
    pub aborts: bool,
}

impl ReservationState {
    /// Executes a command of `host`. `can_persist` is true if the state can be stored.
    ///
    /// # Errors
    /// The status of the completion; nothing has changed.
    pub fn execute(
        &mut self,
        host: &HostId,
        command: &ReservationCommand,
        can_persist: bool,
    ) -> Result<ReservationEffects, Status> {
        match *command {
            ReservationCommand::Register { persistence: ChangePersistence::Set, .. }
            | ReservationCommand::Persist(true)
                if !can_persist =>
            {
                Err(BAD_FIELD)
            }
            ReservationCommand::Register { action, ignores_key, persistence, current, new } => {
                let current = if ignores_key { None } else { Some(current) };
                let change = match action {
                    RegisterAction::Register => self.register(host, new)?,
                    RegisterAction::Unregister => {
                        self.registered(host, current)?;
                        self.unregister(host)
                    }
                    RegisterAction::Replace => self.replace(host, current, new)?,
                };
                self.change_persistence(persistence);
                self.increment_generation();
                Ok(change)
            }
            ReservationCommand::Acquire { action, kind, current, preempted } => {
                self.registered(host, Some(current))?;
                match action {
                    AcquireAction::Acquire => self.acquire(host, kind),
                    AcquireAction::Preempt | AcquireAction::PreemptAndAbort => {
                        let notices = self.preempt(host, kind, preempted)?;
                        self.increment_generation();
                        let aborts = action == AcquireAction::PreemptAndAbort;
                        Ok(ReservationEffects { notices, aborts })
                    }
                }
            }
            ReservationCommand::Release { kind, current } => {
                self.registered(host, Some(current))?;
                self.release(host, kind)
            }
            ReservationCommand::Clear { current } => {
                self.registered(host, Some(current))?;
                Ok(self.clear(host))
            }
            ReservationCommand::Persist(persists) => {
                self.persists = persists;
                Ok(ReservationEffects::default())
            }
        }
    }

    /// True if the reservation forbids `host` commands of that group.
    #[must_use]
    pub fn refuses(&self, host: &HostId, group: CommandGroup) -> bool {
        use ReservationType as T;
        let Some(Reservation { kind, holder }) = self.reservation else { return false };
        match (kind, group) {
            (T::WriteExclusive, CommandGroup::Write) | (T::ExclusiveAccess, _) => {
                holder != Some(*host)
            }
            (
                T::WriteExclusiveRegistrantsOnly | T::WriteExclusiveAllRegistrants,
                CommandGroup::Write,
            )
            | (T::ExclusiveAccessRegistrantsOnly | T::ExclusiveAccessAllRegistrants, _) => {
                self.key(host).is_none()
            }
            (_, CommandGroup::Read) => false,
        }
    }

    /// True if `host` holds the reservation.
    #[must_use]
    pub fn is_held_by(&self, host: &HostId) -> bool {
        self.reservation.is_some_and(|reservation| match reservation.holder {
            Some(holder) => holder == *host,
            None => self.key(host).is_some(),
        })
    }

    /// Returns the key of a registrant.
    #[must_use]
    pub fn key(&self, host: &HostId) -> Option<u64> {
        let mut registrants = self.registrants.iter();
        registrants.find(|registrant| registrant.host == *host).map(|registrant| registrant.key)
    }

    fn increment_generation(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    fn change_persistence(&mut self, change: ChangePersistence) {
        self.persists = match change {
            ChangePersistence::Keep => self.persists,
            ChangePersistence::Clear => false,
            ChangePersistence::Set => true,
        };
    }

    /// Checks that the host is a registrant with that key; `None`: with any key.
    fn registered(&self, host: &HostId, current: Option<u64>) -> Result<(), Status> {
        let key = self.key(host).ok_or(CONFLICT)?;
        if current.is_none_or(|current| current == key) { Ok(()) } else { Err(CONFLICT) }
    }

    fn register(&mut self, host: &HostId, key: u64) -> Result<ReservationEffects, Status> {
        match self.key(host) {
            Some(known) if known == key => {}
            Some(_) => return Err(CONFLICT),
            None if self.registrants.len() >= REGISTRANTS_MAX => {
                return Err(Status::INTERNAL_ERROR.dnr());
            }
            None => self.registrants.push(Registrant { host: *host, key }),
        }
        Ok(ReservationEffects::default())
    }

    /// Replaces the host's key. A host that ignores its current key is registered if it is not yet.
    fn replace(
        &mut self,
        host: &HostId,
        current: Option<u64>,
        new: u64,
    ) -> Result<ReservationEffects, Status> {
        if current.is_none() && self.key(host).is_none() {
            return self.register(host, new);
        }
        self.registered(host, current)?;
        let mut registrants = self.registrants.iter_mut();
        if let Some(registrant) = registrants.find(|registrant| registrant.host == *host) {
            registrant.key = new;
        }
        Ok(ReservationEffects::default())
    }

    /// Removes a registrant. The reservation ends with its holder, or with the last registrant if all hold it.
    fn unregister(&mut self, host: &HostId) -> ReservationEffects {
        self.registrants.retain(|registrant| registrant.host != *host);
        let Some(Reservation { kind, holder }) = self.reservation else {
            return ReservationEffects::default();
        };
        let is_released = match holder {
            Some(holder) => holder == *host,
            None => self.registrants.is_empty(),
        };
        if !is_released {
            return ReservationEffects::default();
        }
        self.reservation = None;
        self.released(host, kind)
    }

    /// Returns the notifications for a released reservation: to the others to which a reservation of that type had
    /// granted access.
    fn released(&self, host: &HostId, kind: ReservationType) -> ReservationEffects {
        use ReservationType as T;
        let was_exclusive = matches!(kind, T::WriteExclusive | T::ExclusiveAccess);
        let others = if was_exclusive { Vec::new() } else { self.others(host) };
        let notice = |host| (host, Notification::ReservationReleased);
        ReservationEffects { notices: others.into_iter().map(notice).collect(), aborts: false }
    }

    fn others(&self, host: &HostId) -> Vec<HostId> {
        let hosts = self.registrants.iter().map(|registrant| registrant.host);
        hosts.filter(|other| other != host).collect()
    }

    fn reserve(&mut self, host: &HostId, kind: ReservationType) {
        let holder = if kind.is_held_by_all() { None } else { Some(*host) };
        self.reservation = Some(Reservation { kind, holder });
    }

    fn acquire(
        &mut self,
        host: &HostId,
        kind: ReservationType,
    ) -> Result<ReservationEffects, Status> {
        match self.reservation {
            None => self.reserve(host, kind),
            Some(held) if held.kind == kind && self.is_held_by(host) => {}
            Some(_) => return Err(CONFLICT),
        }
        Ok(ReservationEffects::default())
    }

    /// Removes registrations, and takes over the reservation if the key is its holder's.
    fn preempt(
        &mut self,
        host: &HostId,
        kind: ReservationType,
        preempted: u64,
    ) -> Result<Vec<(HostId, Notification)>, Status> {
        let Some(held) = self.reservation else { return self.remove(host, preempted) };
        let takes = match held.holder {
            None => preempted == 0,
            Some(holder) if self.key(&holder) == Some(preempted) => true,
            Some(_) if preempted == 0 => return Err(BAD_FIELD),
            Some(_) => false,
        };
        if !takes {
            return self.remove(host, preempted);
        }
        let goes = |registrant: &Registrant| {
            let is_named = held.holder.is_none() || registrant.key == preempted;
            is_named && registrant.host != *host
        };
        let mut notices = self.unregister_all(host, goes);
        self.reserve(host, kind);
        if held.kind != kind {
            let released = |other| (other, Notification::ReservationReleased);
            notices.extend(self.others(host).into_iter().map(released));
        }
        Ok(notices)
    }

    /// Removes all registrations with a key, which may be the host's own. The reservation ends only if all registrants
    /// hold it and none is left.
    fn remove(&mut self, host: &HostId, key: u64) -> Result<Vec<(HostId, Notification)>, Status> {
        if self.registrants.iter().all(|registrant| registrant.key != key) {
            return Err(CONFLICT);
        }
        let notices = self.unregister_all(host, |registrant| registrant.key == key);
        if self.registrants.is_empty() {
            self.reservation = None;
        }
        Ok(notices)
    }

    fn unregister_all(
        &mut self,
        host: &HostId,
        goes: impl Fn(&Registrant) -> bool,
    ) -> Vec<(HostId, Notification)> {
        let gone = self.registrants.extract_if(.., |registrant| goes(registrant));
        let others = gone.map(|registrant| registrant.host).filter(|other| other != host);
        others.map(|other| (other, Notification::RegistrationPreempted)).collect()
    }

    /// Releases the reservation. A registrant that does not hold it releases nothing, without an error.
    fn release(
        &mut self,
        host: &HostId,
        kind: Option<ReservationType>,
    ) -> Result<ReservationEffects, Status> {
        let Some(held) = self.reservation.filter(|_| self.is_held_by(host)) else {
            return Ok(ReservationEffects::default());
        };
        if kind != Some(held.kind) {
            return Err(BAD_FIELD);
        }
        self.reservation = None;
        Ok(self.released(host, held.kind))
    }

    fn clear(&mut self, host: &HostId) -> ReservationEffects {
        let others = self.others(host).into_iter();
        let notices = others.map(|other| (other, Notification::ReservationPreempted)).collect();
        self.registrants.clear();
        self.reservation = None;
        self.increment_generation();
        ReservationEffects { notices, aborts: false }
    }
}
