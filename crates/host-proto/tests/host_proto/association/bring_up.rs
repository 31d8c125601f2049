//! Bring-up and shutdown with controllers that report odd values, or do not execute commands.

use super::*;
use roadtrain_host_proto::bringup::Enabled;
use roadtrain_host_proto::procedure::{Procedure, ProcedureDriver, ProcedureStep};
use roadtrain_wire::identify::IdentifyController;
use roadtrain_wire::zerocopy::FromZeros;

const SHUTDOWN_OCCURS: u64 = 1 << 2;
const SHUTDOWN_COMPLETE: u64 = 2 << 2;

/// Runs a procedure against a controller whose commands complete with `result`. Returns its result and the time of its
/// end.
fn carry_out<T: std::fmt::Debug, F>(
    body: impl FnOnce(ProcedureDriver<&'static str>) -> F,
    mut result: impl FnMut(&ControllerCommand) -> u64,
) -> (Result<T, ProcedureFailure<&'static str>>, Instant)
where
    F: Future<Output = Result<T, ProcedureFailure<&'static str>>> + Send + 'static,
{
    let (mut procedure, mut now) = (Procedure::new(body), Instant(0));
    loop {
        match procedure.poll(now) {
            ProcedureStep::Request(DriverRequest::Run { command, .. }) => {
                let answer = completed(Status::SUCCESS, result(&command), Vec::new());
                procedure.answer(Ok(answer));
            }
            ProcedureStep::PauseUntil(until) => now = until,
            ProcedureStep::Ended(ended) => return (ended, now),
            waits => panic!("{waits:?}"),
        }
    }
}

/// The flush of a shutdown may never end: the last written data is then not known to be stable.
#[test]
fn a_shutdown_that_does_not_complete_is_no_success() {
    for completes in [true, false] {
        let mut checks = 0;
        let shut_down = |driver| async move { bringup::shut_down(&driver, TIMEOUT).await };
        let (ended, at) = carry_out(shut_down, |command| {
            checks += u32::from(command.what == "Property Get");
            if completes && checks > 3 { SHUTDOWN_COMPLETE } else { SHUTDOWN_OCCURS }
        });
        if completes {
            assert!(ended.is_ok() && at.since(Instant(0)) < TIMEOUT, "{ended:?}");
        } else {
            assert!(matches!(&ended, Err(ProcedureFailure::Controller(_))), "{ended:?}");
            assert!(at.since(Instant(0)) >= TIMEOUT);
        }
    }
}

/// The Keep Alive Timer is active while CC.SHN is 00b only (NVMe Base 2.1, section 3.9). A refused Keep Alive would count
/// as a shutdown that has failed.
#[test]
fn a_shutdown_sends_no_keep_alive() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.association.stop(harness.now, false);
    harness.act();
    harness.association.ended(harness.now);
    harness.takes = KEEP_ALIVE;
    let log = harness.act();
    assert_eq!(count(&log, "Keep Alive"), 0, "{log:?}");
    assert_eq!(log.last().unwrap(), "end Some(Ok(()))");
}

/// The connection is lost during the shutdown.
#[test]
fn a_connection_that_is_lost_in_the_shutdown_is_no_end_in_order() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.association.stop(harness.now, false);
    harness.act();
    harness.association.ended(harness.now);
    let Some(AssociationAction::Request { ask: DriverRequest::Run { command, .. }, .. }) =
        harness.association.poll(harness.now)
    else {
        panic!("it is shut down");
    };
    assert_eq!(command.what, "Property Set CC");
    harness.association.admin_lost(harness.now, "cut");
    let log = harness.act();
    assert!(matches!(&log[..], [end] if end.starts_with("end Some(Err(Lost")), "{log:?}");
}

/// CAP.MQES is to be at least 1: two entries.
#[test]
fn a_controller_without_room_for_a_queue_is_refused() {
    let (cntlid, cap, data_bytes_max) = (1, 0, 1 << 20);
    let enabled = Enabled { cntlid, cap, data_bytes_max, authenticated: false, psk: None };
    let read = |driver| async move { bringup::information(&driver, &enabled, 1, 0).await };
    let (ended, _) = carry_out(read, |command| panic!("{}", command.what));
    assert!(matches!(&ended, Err(ProcedureFailure::Controller(_))), "{:?}", ended.err());
}

/// A controller rounds the timeout to its own units, and so notices a silent host later.
#[test]
fn the_keep_alive_timeout_is_rounded_up_as_the_controller_does() {
    let quiet = |ms, kas: u16| {
        let mut identify = IdentifyController::new_zeroed();
        identify.kas = kas.into();
        bringup::quiet_time(Duration::from_millis(ms), &identify)
            .map(|quiet| quiet.as_millis() as u64)
    };
    assert_eq!(quiet(5000, 1), Some(2 * 5000));
    assert_eq!(quiet(5000, 50), Some(2 * 5000));
    assert_eq!(quiet(5001, 50), Some(2 * 10_000));
    assert_eq!(quiet(1000, 600), Some(2 * 60_000));
    assert_eq!(quiet(110, 0), Some(2 * 200), "it reports none");
    assert_eq!(quiet(0, 50), None);
}
