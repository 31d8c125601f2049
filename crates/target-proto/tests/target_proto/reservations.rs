//! Reservations against a model of the specification's text and tables (NVMe Base 2.1, section 8.1.24), written
//! independently of the implementation.

use crate::cases::cases;
use proptest::prelude::*;
use roadtrain_target_proto::reservations::{
    CommandGroup, HostId, ReservationCommand, ReservationState, parse_image,
};
use roadtrain_wire::reservation::{
    AcquireAction, ChangePersistence, Notification, RegisterAction, ReservationType,
};
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet};

/// Access by type, as in the specification's table: reads and writes of non-registrants, reads and writes of
/// registrants. The holder may do all. `a`: allowed, `c`: conflict.
const TABLE: [(u8, &str); 6] =
    [(1, "acac"), (2, "cccc"), (3, "acaa"), (4, "ccaa"), (5, "acaa"), (6, "ccaa")];

const HOSTS: u8 = 4;

fn id(host: u8) -> HostId {
    [host + 1; 16]
}

/// State of a namespace as the specification describes it.
#[derive(Clone, Debug, Default)]
struct ReservationModel {
    keys: BTreeMap<u8, u64>,
    /// RTYPE; 0: no reservation.
    rtype: u8,
    holders: BTreeSet<u8>,
    generation: u32,
    ptpl: bool,
}

type ModelNotices = BTreeSet<(u8, u8)>;

const REGISTRATION_PREEMPTED: u8 = 1;
const RESERVATION_RELEASED: u8 = 2;
const RESERVATION_PREEMPTED: u8 = 3;

/// Reason of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelFailure {
    Conflict,
    Field,
}

#[derive(Clone, Debug)]
enum Does {
    Register { rrega: u8, iekey: bool, cptpl: u8, crkey: u64, nrkey: u64 },
    Acquire { racqa: u8, rtype: u8, crkey: u64, prkey: u64 },
    Release { rtype: u8, crkey: u64 },
    Clear { crkey: u64 },
    Persist(bool),
}

impl ReservationModel {
    fn all_hold(&self) -> bool {
        self.rtype >= 5
    }

    fn release(&mut self) {
        self.rtype = 0;
        self.holders.clear();
    }

    /// Updates the holders: all registrants hold those types, also later ones.
    fn refresh_holders(&mut self) {
        if self.all_hold() {
            self.holders = self.keys.keys().copied().collect();
        }
        if self.rtype != 0 && self.holders.is_empty() {
            self.release();
        }
    }

    /// Notifies all registrants but the host that issues the command.
    fn notify_others(&self, issuer: u8, what: u8, notices: &mut ModelNotices) {
        notices.extend(self.keys.keys().filter(|host| **host != issuer).map(|host| (*host, what)));
    }

    fn run(&mut self, host: u8, does: &Does, capable: bool) -> Result<ModelNotices, ModelFailure> {
        let before = self.clone();
        let result = self.attempt(host, does, capable);
        if result.is_err() {
            *self = before;
        }
        result
    }

    fn attempt(
        &mut self,
        host: u8,
        does: &Does,
        capable: bool,
    ) -> Result<ModelNotices, ModelFailure> {
        let mut notices = ModelNotices::new();
        match *does {
            Does::Register { rrega, iekey, cptpl, crkey, nrkey } => {
                self.register(host, (rrega, iekey, crkey, nrkey), &mut notices)?;
                match cptpl {
                    3 if !capable => return Err(ModelFailure::Field),
                    3 => self.ptpl = true,
                    2 => self.ptpl = false,
                    _ => {}
                }
                self.generation = self.generation.wrapping_add(1);
            }
            Does::Acquire { racqa, rtype, crkey, prkey } => {
                if self.keys.get(&host) != Some(&crkey) {
                    return Err(ModelFailure::Conflict);
                }
                if racqa == 0 {
                    self.acquire(host, rtype)?;
                } else {
                    self.preempt(host, rtype, prkey, &mut notices)?;
                    self.generation = self.generation.wrapping_add(1);
                }
            }
            Does::Release { rtype, crkey } => {
                if self.keys.get(&host) != Some(&crkey) {
                    return Err(ModelFailure::Conflict);
                }
                if self.holders.contains(&host) {
                    if rtype != self.rtype {
                        return Err(ModelFailure::Field);
                    }
                    if (3..=6).contains(&self.rtype) {
                        self.notify_others(host, RESERVATION_RELEASED, &mut notices);
                    }
                    self.release();
                }
            }
            Does::Clear { crkey } => {
                if self.keys.get(&host) != Some(&crkey) {
                    return Err(ModelFailure::Conflict);
                }
                self.notify_others(host, RESERVATION_PREEMPTED, &mut notices);
                self.keys.clear();
                self.release();
                self.generation = self.generation.wrapping_add(1);
            }
            Does::Persist(true) if !capable => return Err(ModelFailure::Field),
            Does::Persist(ptpl) => self.ptpl = ptpl,
        }
        Ok(notices)
    }

    fn register(
        &mut self,
        host: u8,
        (rrega, iekey, crkey, nrkey): (u8, bool, u64, u64),
        notices: &mut ModelNotices,
    ) -> Result<(), ModelFailure> {
        let known = self.keys.get(&host).copied();
        match rrega {
            0 => {
                if known.is_some_and(|key| key != nrkey) {
                    return Err(ModelFailure::Conflict);
                }
                self.keys.insert(host, nrkey);
            }
            1 => {
                let Some(key) = known else { return Err(ModelFailure::Conflict) };
                if !iekey && key != crkey {
                    return Err(ModelFailure::Conflict);
                }
                self.keys.remove(&host);
                if !self.all_hold() && self.holders.contains(&host) {
                    if matches!(self.rtype, 3 | 4) {
                        self.notify_others(host, RESERVATION_RELEASED, notices);
                    }
                    self.release();
                }
            }
            _ => {
                if !iekey && known != Some(crkey) {
                    return Err(ModelFailure::Conflict);
                }
                self.keys.insert(host, nrkey);
            }
        }
        self.refresh_holders();
        Ok(())
    }

    fn acquire(&mut self, host: u8, rtype: u8) -> Result<(), ModelFailure> {
        if self.rtype != 0 && !(self.holders.contains(&host) && self.rtype == rtype) {
            return Err(ModelFailure::Conflict);
        }
        self.rtype = rtype;
        if self.holders.is_empty() {
            self.holders.insert(host);
        }
        self.refresh_holders();
        Ok(())
    }

    fn preempt(
        &mut self,
        host: u8,
        rtype: u8,
        prkey: u64,
        notices: &mut ModelNotices,
    ) -> Result<(), ModelFailure> {
        let of_key: Vec<u8> =
            self.keys.iter().filter(|(_, key)| **key == prkey).map(|(host, _)| *host).collect();
        let takes_over = match self.rtype {
            0 => false,
            5 | 6 => prkey == 0,
            _ => self.holders.iter().all(|holder| self.keys[holder] == prkey),
        };
        if takes_over {
            let gone: Vec<u8> =
                if self.all_hold() { self.keys.keys().copied().collect() } else { of_key };
            for other in gone.into_iter().filter(|other| *other != host) {
                self.keys.remove(&other);
                notices.insert((other, REGISTRATION_PREEMPTED));
            }
            if self.rtype != rtype {
                self.notify_others(host, RESERVATION_RELEASED, notices);
            }
            self.rtype = rtype;
            self.holders = BTreeSet::from([host]);
        } else if self.rtype != 0 && !self.all_hold() && prkey == 0 {
            return Err(ModelFailure::Field);
        } else {
            if of_key.is_empty() {
                return Err(ModelFailure::Conflict);
            }
            for other in of_key {
                self.keys.remove(&other);
                if other != host {
                    notices.insert((other, REGISTRATION_PREEMPTED));
                }
            }
        }
        self.refresh_holders();
        Ok(())
    }

    fn allows(&self, host: u8, writes: bool) -> bool {
        let Some((_, row)) = TABLE.iter().find(|(rtype, _)| *rtype == self.rtype) else {
            return true;
        };
        let column = usize::from(self.keys.contains_key(&host)) * 2 + usize::from(writes);
        self.holders.contains(&host) || row.as_bytes()[column] == b'a'
    }
}

/// Returns the same command for the implementation.
fn command(does: &Does) -> ReservationCommand {
    let kind = |rtype| ReservationType::parse(rtype).expect("a type");
    match *does {
        Does::Register { rrega, iekey, cptpl, crkey, nrkey } => ReservationCommand::Register {
            action: match rrega {
                0 => RegisterAction::Register,
                1 => RegisterAction::Unregister,
                _ => RegisterAction::Replace,
            },
            ignores_key: iekey,
            persistence: match cptpl {
                2 => ChangePersistence::Clear,
                3 => ChangePersistence::Set,
                _ => ChangePersistence::Keep,
            },
            current: crkey,
            new: nrkey,
        },
        Does::Acquire { racqa, rtype, crkey, prkey } => ReservationCommand::Acquire {
            action: match racqa {
                0 => AcquireAction::Acquire,
                1 => AcquireAction::Preempt,
                _ => AcquireAction::PreemptAndAbort,
            },
            kind: kind(rtype),
            current: crkey,
            preempted: prkey,
        },
        Does::Release { rtype, crkey } => {
            ReservationCommand::Release { kind: Some(kind(rtype)), current: crkey }
        }
        Does::Clear { crkey } => ReservationCommand::Clear { current: crkey },
        Does::Persist(ptpl) => ReservationCommand::Persist(ptpl),
    }
}

fn check_same(state: &ReservationState, model: &ReservationModel) {
    let keys: BTreeMap<HostId, u64> = state.registrants.iter().map(|r| (r.host, r.key)).collect();
    assert_eq!(keys, model.keys.iter().map(|(host, key)| (id(*host), *key)).collect());
    assert_eq!(keys.len(), state.registrants.len(), "each once");
    let rtype = state.reservation.map_or(0, |reservation| reservation.kind.emit());
    assert_eq!((rtype, state.generation), (model.rtype, model.generation));
    assert_eq!(state.persists, model.ptpl);
    for host in 0..HOSTS {
        assert_eq!(state.is_held_by(&id(host)), model.holders.contains(&host), "host {host}");
        for (group, writes) in [(CommandGroup::Read, false), (CommandGroup::Write, true)] {
            let refused = state.refuses(&id(host), group);
            assert_eq!(refused, !model.allows(host, writes), "host {host}, {group:?}");
        }
    }
    if state.persists {
        assert_eq!(parse_image(&state.image(&[9; 16])), Ok(([9; 16], state.clone())));
    }
}

fn key() -> impl Strategy<Value = u64> {
    // Few keys, so that they are often right, or another host's.
    prop_oneof![Just(0), Just(1), Just(2), Just(u64::MAX)]
}

fn does() -> impl Strategy<Value = Does> {
    let cptpl = prop_oneof![4 => Just(0u8), 1 => Just(2), 1 => Just(3)];
    let register = (0..3u8, any::<bool>(), cptpl, key(), key()).prop_map(
        |(rrega, iekey, cptpl, crkey, nrkey)| Does::Register { rrega, iekey, cptpl, crkey, nrkey },
    );
    let acquire = (0..3u8, 1..7u8, key(), key())
        .prop_map(|(racqa, rtype, crkey, prkey)| Does::Acquire { racqa, rtype, crkey, prkey });
    let release = (1..7u8, key()).prop_map(|(rtype, crkey)| Does::Release { rtype, crkey });
    prop_oneof![
        8 => register,
        10 => acquire,
        4 => release,
        1 => key().prop_map(|crkey| Does::Clear { crkey }),
        1 => any::<bool>().prop_map(Does::Persist),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2000)))]

    #[test]
    fn the_rules_are_the_specifications(
        capable in any::<bool>(),
        commands in prop::collection::vec((0..HOSTS, does(), any::<bool>()), 1..60),
    ) {
        let (mut state, mut model) = (ReservationState::default(), ReservationModel::default());
        for (host, mut does, knows) in commands {
            // Most commands have the right key: the others fail early.
            let own = model.keys.get(&host).copied();
            match &mut does {
                Does::Register { crkey, .. } | Does::Acquire { crkey, .. }
                | Does::Release { crkey, .. } | Does::Clear { crkey } if knows => {
                    *crkey = own.unwrap_or(*crkey);
                }
                _ => {}
            }
            if let (Does::Release { rtype, .. }, true) = (&mut does, knows) {
                *rtype = if model.rtype == 0 { *rtype } else { model.rtype };
            }
            let expected = model.run(host, &does, capable);
            let before = state.clone();
            match (state.execute(&id(host), &command(&does), capable), expected) {
                (Ok(change), Ok(notices)) => {
                    let effects: Vec<(HostId, Notification)> = change.notices;
                    let sorted: BTreeSet<(HostId, u8)> =
                        effects.iter().map(|(host, kind)| (*host, *kind as u8)).collect();
                    prop_assert_eq!(sorted.len(), effects.len(), "no host is notified twice");
                    let notices: BTreeSet<(HostId, u8)> =
                        notices.into_iter().map(|(host, kind)| (id(host), kind)).collect();
                    prop_assert_eq!(sorted, notices, "{:?}", does);
                    let aborts = matches!(does, Does::Acquire { racqa: 2, .. });
                    prop_assert_eq!(change.aborts, aborts);
                }
                (Err(status), Err(fails)) => {
                    let expected = match fails {
                        ModelFailure::Conflict => Status::RESERVATION_CONFLICT,
                        ModelFailure::Field => Status::INVALID_FIELD,
                    };
                    // A wrong key and an invalid value: either may be reported first.
                    let sets = matches!(does, Does::Register { cptpl: 3, .. }) && !capable;
                    prop_assert!(status.is(expected) || sets, "{:?}: {} {:?}", does, status, fails);
                    prop_assert!(status.is_dnr());
                    prop_assert_eq!(&state, &before);
                }
                (got, expected) => {
                    return Err(TestCaseError::fail(format!("{does:?}: {got:?}, not {expected:?}")));
                }
            }
            check_same(&state, &model);
        }
    }
}

/// Compares every type and every group of commands with the table, word for word.
#[test]
fn the_table_of_conflicts_holds_for_every_type() {
    for (rtype, row) in TABLE {
        let kind = ReservationType::parse(rtype).unwrap();
        let mut state = ReservationState::default();
        for host in [0, 1] {
            let register = Does::Register { rrega: 0, iekey: false, cptpl: 0, crkey: 0, nrkey: 7 };
            state.execute(&id(host), &command(&register), false).unwrap();
        }
        let acquire = Does::Acquire { racqa: 0, rtype, crkey: 7, prkey: 0 };
        state.execute(&id(0), &command(&acquire), false).unwrap();
        let said: String = [
            (2, CommandGroup::Read),
            (2, CommandGroup::Write),
            (1, CommandGroup::Read),
            (1, CommandGroup::Write),
        ]
        .map(|(host, group)| if state.refuses(&id(host), group) { 'c' } else { 'a' })
        .into_iter()
        .collect();
        assert_eq!(said, row, "{kind:?}");
        for group in [CommandGroup::Read, CommandGroup::Write] {
            assert!(!state.refuses(&id(0), group), "{kind:?}: its holder");
        }
    }
}

#[test]
fn registrants_are_bounded() {
    let mut state = ReservationState::default();
    let register = |key| ReservationCommand::Register {
        action: RegisterAction::Register,
        ignores_key: false,
        persistence: ChangePersistence::Keep,
        current: 0,
        new: key,
    };
    let host = |number: u32| u128::from(number + 1).to_be_bytes();
    for number in 0..1024 {
        state.execute(&host(number), &register(1), false).unwrap();
    }
    let refused = state.execute(&host(1024), &register(1), false).unwrap_err();
    assert!(refused.is(Status::INTERNAL_ERROR) && refused.is_dnr());
    state.execute(&host(3), &register(1), false).unwrap();
    assert_eq!(state.registrants.len(), 1024);
}
