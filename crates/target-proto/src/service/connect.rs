//! Connect: the checks before a queue is claimed, in their order.

use super::{
    Broadcast, LockedControl, Note, ServiceCommand, ServiceDriver, ServiceReply, grant_claim,
};
use crate::host_connections::ConnectAdmission;
use crate::session::TargetConnection;
use crate::{ConnectRefused, ConnectedQueue};
use roadtrain_wire::status::Status;

/// Result of a Connect at the control plane.
enum Connecting<'a> {
    Postponed,
    Busy(&'a str),
    Done(Box<Result<ConnectedQueue, ConnectRefused>>),
}

/// Executes a Connect.
pub(super) fn connect<D: ServiceDriver>(
    driver: &mut D,
    session: &mut TargetConnection,
    command: ServiceCommand<'_, D::Connection>,
) -> ServiceReply {
    let ServiceCommand { now, port, data, .. } = command;
    if let Err(refused) = session.admits_names(data) {
        return refuse(driver, data, &refused);
    }
    let Some(number) = driver.number() else {
        return ServiceReply::completed(Status::INTERNAL_ERROR, 0);
    };
    match claim(driver, session, command, number) {
        Connecting::Postponed => ServiceReply::postponed(),
        Connecting::Busy(hostnqn) => {
            let status = Status::CONNECT_CONTROLLER_BUSY; // the host tries again: no Do Not Retry
            driver.note(&Note::Busy(data, hostnqn, status));
            ServiceReply::completed(status, 0)
        }
        Connecting::Done(connected) => match *connected {
            Err(refused) => refuse(driver, data, &refused),
            Ok(connected) => {
                driver.note(&Note::Claimed(&connected));
                let result = connected.result.into();
                session.connected(connected);
                // A queue without required authentication is granted at once.
                let granted = grant_claim(driver, now, session, port.connection) == Ok(true);
                ServiceReply {
                    connected: true,
                    granted,
                    ..ServiceReply::completed(Status::SUCCESS, result)
                }
            }
        },
    }
}

/// Claims the queue, unless connections that the host has lost may still execute commands.
fn claim<'a, D: ServiceDriver>(
    driver: &mut D,
    session: &TargetConnection,
    ServiceCommand { now, port, sqe, data }: ServiceCommand<'a, D::Connection>,
    number: u64,
) -> Connecting<'a> {
    driver.control(|LockedControl { target, presences, any_lost }| {
        let has_ended_lost = |cntlid| target.has_ended_lost(cntlid);
        match presences.admit(now, sqe, data, port.since, any_lost, has_ended_lost) {
            ConnectAdmission::Accept => {}
            ConnectAdmission::CloseStale(hostnqn, lost) => {
                lost.into_iter().for_each(|cntlid| target.end_queues(cntlid));
                return (Connecting::Postponed, Some(Broadcast::CloseStale(hostnqn.into())));
            }
            ConnectAdmission::Probe(hostnqn) => {
                return (Connecting::Postponed, Some(Broadcast::Probe(hostnqn.into())));
            }
            ConnectAdmission::Wait => return (Connecting::Postponed, None),
            ConnectAdmission::Busy(hostnqn) => return (Connecting::Busy(hostnqn), None),
        }
        let (from, has_leftovers) =
            ((port.local, number), |cntlid| presences.any_has_leftovers_of(cntlid));
        let connected = target.connect_over(session.channel(), now, sqe, data, from, has_leftovers);
        (Connecting::Done(Box::new(connected)), None)
    })
}

fn refuse<D: ServiceDriver>(driver: &mut D, data: &[u8], refused: &ConnectRefused) -> ServiceReply {
    driver.note(&Note::Refused(data, refused));
    ServiceReply::completed(refused.status, refused.result.into())
}
