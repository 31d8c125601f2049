//! Commands of an authentication, and the grant that may follow.

use super::{Computing, Driver, Note, Plane, Port, Reply, grant_claim};
use crate::session::{Session, State};
use crate::{Connected, Reaction};
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;

/// Executes a command of the authentication that the host has to pass.
pub(super) fn authenticate<D: Driver>(
    driver: &mut D,
    now: Instant,
    session: &mut Session,
    port: Port<D::Connection>,
    (sqe, data): (&Sqe, &[u8]),
    page: &mut Vec<u8>,
) -> Reply {
    let connected = session.claim().or(session.queue()).cloned();
    let Some(connected) = connected else { return Reply::default() };
    let was_live = session.state() == State::Live;
    // A host that begins again has to prove what holds by now.
    if was_live
        && let Some(asked) = driver.control(|Plane { target, .. }| (target.asked(&connected), None))
        && let Some(authenticator) = session.authenticator()
    {
        authenticator.renew(asked);
    }
    let Some(reaction) = react(driver, session, (sqe, data), page) else {
        return Reply { ends: true, ..Reply::completed(Status::INTERNAL_ERROR, 0) };
    };
    let has_failed = proceed(driver, now, session, (&connected, was_live));
    let granted = grant_claim(driver, now, session, port.connection);
    let ends = has_failed || granted.is_err();
    let granted = granted == Ok(true);
    if let Some(authenticator) = session.authenticator()
        && let Some(psk) = authenticator.take_psk()
    {
        driver.note(&Note::GeneratedPsk(&connected, authenticator.agreed()));
        driver.keep_psk(now, &connected, &psk);
    }
    match reaction {
        Reaction::Answer(status) => Reply { granted, ends, ..Reply::completed(status, 0) },
        Reaction::Wait | Reaction::Compute(_) => Reply::postponed(),
    }
}

/// Reaction of the authenticator to a command, after computations that the driver does at once. `None`: the driver has
/// no random bytes, or cannot compute.
fn react<D: Driver>(
    driver: &mut D,
    session: &mut Session,
    (sqe, data): (&Sqe, &[u8]),
    page: &mut Vec<u8>,
) -> Option<Reaction> {
    loop {
        let reaction = {
            let mut random = driver.random()?;
            session.authenticator()?.command(sqe, data, page, &mut random)
        };
        match reaction {
            Reaction::Compute(work) => match driver.compute(work)? {
                Computing::Done => {}
                Computing::Later => return Some(Reaction::Wait),
            },
            reaction => return Some(reaction),
        }
    }
}

/// Moves the session on, and reports what has changed by that: `true` when the connection ends.
fn proceed<D: Driver>(
    driver: &mut D,
    now: Instant,
    session: &mut Session,
    (connected, was_live): (&Connected, bool),
) -> bool {
    let Some(authenticator) = session.authenticator() else { return false };
    let (failure, agreed) = (authenticator.take_failure(), authenticator.agreed());
    if let Some((explanation, field)) = failure {
        driver.note(&Note::NotAuthenticated(connected, explanation, field));
    }
    let has_failed = session.authenticates(now, driver.authentication_time());
    match session.state() == State::Live {
        true if !was_live => driver.note(&Note::Authenticated(connected, agreed)),
        true if session.has_proved() => driver.note(&Note::Reauthenticated(connected, agreed)),
        _ => {}
    }
    has_failed
}
