//! Authentication commands, and the grant that may follow.

use super::{
    Computing, LockedControl, Note, ServiceCommand, ServiceDriver, ServiceReply, grant_claim,
};
use crate::session::{ConnectionState, TargetConnection};
use crate::{ConnectedQueue, Reaction};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;

/// Executes a command of the authentication required of the host.
pub(super) fn authenticate<D: ServiceDriver>(
    driver: &mut D,
    session: &mut TargetConnection,
    command: ServiceCommand<'_, D::Connection>,
    page: &mut Vec<u8>,
) -> ServiceReply {
    let ServiceCommand { now, port, .. } = command;
    let connected = session.claim().or(session.queue()).cloned();
    let Some(connected) = connected else { return ServiceReply::default() };
    let was_live = session.state() == ConnectionState::Live;
    // A host that authenticates again has to satisfy the current requirement.
    if was_live
        && let Some(requirement) =
            driver.control(|LockedControl { target, .. }| (target.requirement(&connected), None))
        && let Some(authenticator) = session.authenticator()
    {
        authenticator.renew(requirement);
    }
    let Ok(status) = react(driver, session, command, page) else {
        return ServiceReply { ends: true, ..ServiceReply::completed(Status::INTERNAL_ERROR, 0) };
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
    match status {
        Some(status) => ServiceReply { granted, ends, ..ServiceReply::completed(status, 0) },
        None => ServiceReply::postponed(),
    }
}

/// Error of a driver without random bytes or without a Diffie-Hellman worker.
struct Unable;

/// Returns the status of a command, after computations that the driver does at once; `None`: the command waits for one.
fn react<D: ServiceDriver>(
    driver: &mut D,
    session: &mut TargetConnection,
    ServiceCommand { sqe, data, .. }: ServiceCommand<'_, D::Connection>,
    page: &mut Vec<u8>,
) -> Result<Option<Status>, Unable> {
    loop {
        let reaction = {
            let mut random = driver.random().ok_or(Unable)?;
            let authenticator = session.authenticator().ok_or(Unable)?;
            authenticator.command(sqe, data, page, &mut random)
        };
        let work = match reaction {
            Reaction::Answer(status) => return Ok(Some(status)),
            Reaction::Wait => return Ok(None),
            Reaction::Compute(work) => work,
        };
        if driver.compute(work).ok_or(Unable)? == Computing::Later {
            return Ok(None);
        }
    }
}

/// Advances the session, and reports the change. Returns true when the connection has to end.
fn proceed<D: ServiceDriver>(
    driver: &mut D,
    now: Instant,
    session: &mut TargetConnection,
    (connected, was_live): (&ConnectedQueue, bool),
) -> bool {
    let Some(authenticator) = session.authenticator() else { return false };
    let (failure, agreed) = (authenticator.take_failure(), authenticator.agreed());
    if let Some((explanation, field)) = failure {
        driver.note(&Note::NotAuthenticated(connected, explanation, field));
    }
    let has_failed = session.authenticates(now, driver.authentication_time());
    match session.state() == ConnectionState::Live {
        true if !was_live => driver.note(&Note::Authenticated(connected, agreed)),
        true if session.is_authenticated() => {
            driver.note(&Note::Reauthenticated(connected, agreed))
        }
        _ => {}
    }
    has_failed
}
