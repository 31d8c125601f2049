//! A host's bring-up with a controller that requires authentication.

#[path = "../../../proto/tests/proto/security/helpers.rs"]
mod helpers;

use core::time::Duration;
use helpers::{HOST, SUBSYSTEM, carry_out, counting, offer, seed};
use roadtrain_host_proto::association::{
    AssociationAction, AssociationConfig, HostAssociation, ResetReason,
};
use roadtrain_host_proto::bringup::{self, ControllerInfo, Enabled, Wants};
use roadtrain_host_proto::procedure::{
    ControllerCommand, DriverReply, DriverRequest, Procedure, ProcedureFailure, ProcedureStep,
};
use roadtrain_proto::policy::Class;
use roadtrain_proto::security::dhchap::{
    AuthController, AuthHostError, AuthState, DhGroup, DhchapKeys,
};
use roadtrain_proto::security::{DhchapKey, Hash, SealUse, Secret};
use roadtrain_proto::time::Instant;
use roadtrain_wire::auth::{Explanation, MessageHead, message};
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::fabrics::{AUTHREQ_ATR, fctype};
use roadtrain_wire::identify::IdentifyController;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromZeros;

const TIMEOUT: Duration = Duration::from_secs(10);

fn keys(host: u8, controller: Option<u8>) -> DhchapKeys {
    let key = |byte: u8| DhchapKey::new(Some(Hash::Sha256), &[byte; 32]).unwrap();
    DhchapKeys { host: Some(key(host)), controller: controller.map(key) }
}

fn wants(keys: DhchapKeys) -> Wants {
    Wants {
        subsystem_nqn: SUBSYSTEM.into(),
        host_nqn: HOST.into(),
        host_id: [7; 16],
        keep_alive: Duration::ZERO,
        timeout: TIMEOUT,
        queue_entries: 32,
        class: Class::Normal,
        sq_flow_control: false,
        keys,
        seals: SealUse::Off,
        concatenates: false,
    }
}

/// Simulated target, as far as authentication needs it.
struct AuthenticatingTarget {
    controller: AuthController,
    /// Messages that were received from the host.
    received: Vec<Vec<u8>>,
}

impl AuthenticatingTarget {
    fn new(keys: &DhchapKeys) -> Self {
        let parties = keys.parties(HOST, SUBSYSTEM);
        let controller = AuthController::new(parties, offer(Hash::Sha256, DhGroup::Ffdhe2048));
        AuthenticatingTarget { controller, received: Vec::new() }
    }

    fn answer(&mut self, request: &DriverRequest) -> DriverReply {
        match request {
            DriverRequest::Open { .. } => DriverReply::Opened { data_bytes_max: 1 << 20 },
            DriverRequest::Random { bytes } => {
                DriverReply::Random(Secret::new(&counting(1, *bytes)))
            }
            DriverRequest::Compute(work) => {
                work.compute();
                DriverReply::Computed
            }
            DriverRequest::Seal { .. } => unreachable!("there are no frames"),
            DriverRequest::Run { command, .. } => self.run(command),
        }
    }

    fn run(&mut self, command: &ControllerCommand) -> DriverReply {
        let (mut cqe, mut data) = (Cqe::new(0, Status::SUCCESS), Vec::new());
        match command.sqe.fctype() {
            fctype::CONNECT => cqe.dw0 = (AUTHREQ_ATR | 1).into(),
            fctype::AUTHENTICATION_SEND => {
                self.received.push(command.out.clone());
                let progress = self.controller.send(&command.out, &mut seed(4));
                carry_out(progress, &mut self.controller);
            }
            fctype::AUTHENTICATION_RECEIVE => data = self.controller.receive(),
            fctype::PROPERTY_GET | fctype::PROPERTY_SET => {
                assert!(matches!(self.controller.state(), AuthState::Authenticated), "not before");
                cqe.dw0 = 1.into(); // ready
            }
            other => panic!("{other:#x} before it is authenticated"),
        }
        DriverReply::Completed { cqe, data }
    }
}

/// Connects to the target. Returns the result.
fn connected(
    target: &mut AuthenticatingTarget,
    wants: Wants,
) -> Result<Enabled, ProcedureFailure<&'static str>> {
    let mut connect = Procedure::<&'static str, _>::new(|driver| async move {
        bringup::connect(&driver, &wants, None).await
    });
    loop {
        match connect.poll(Instant(0)) {
            ProcedureStep::Request(request) => connect.answer(Ok(target.answer(&request))),
            ProcedureStep::Ended(ended) => return ended,
            waits => panic!("{waits:?}"),
        }
    }
}

/// The controller receives the host's refusal and its reason.
#[test]
fn a_refused_controller_receives_the_reason() {
    let mut target = AuthenticatingTarget::new(&keys(1, Some(2)));
    let ended = connected(&mut target, wants(keys(1, Some(3))));
    let Err(ProcedureFailure::Authentication { error, .. }) = ended else { panic!("{ended:?}") };
    assert!(matches!(error, AuthHostError::Refuses(Explanation::Failed, _)), "{error}");
    let last = target.received.last().and_then(|bytes| MessageHead::of(bytes));
    assert_eq!(last.map(|head| head.kind), Some(message::FAILURE2));
    assert!(matches!(target.controller.state(), AuthState::Failed));
}

/// Configuration of a host with one lane.
fn config(wants: Wants) -> AssociationConfig {
    AssociationConfig {
        wants,
        lanes: 1,
        expresses: 0,
        reconnect_delay: Duration::from_millis(250),
        reconnect_delay_max: TIMEOUT,
        controller_loss_timeout: None,
        fast_io_fail_timeout: None,
        siblings: None,
        old_commands: Default::default(),
    }
}

/// The controller accepts no Keep Alive before the host is authenticated, however long that takes.
#[test]
fn no_keep_alive_is_sent_while_the_admin_queue_authenticates() {
    let step = Duration::from_secs(3);
    let wants = Wants { keep_alive: step + Duration::from_secs(1), ..wants(keys(1, None)) };
    let mut now = Instant(0);
    let mut association = HostAssociation::<&'static str>::new(now, config(wants));
    let mut target = AuthenticatingTarget::new(&keys(1, None));
    let mut sent = Vec::new();
    while sent.len() < 6 {
        let Some(AssociationAction::Request { ask: request }) = association.poll(now) else {
            panic!("{sent:?}")
        };
        if let DriverRequest::Run { command, .. } = &request {
            sent.push(command.what);
        }
        let answer = target.answer(&request);
        now += step; // longer than the keep-alive interval
        association.answer(now, Ok(answer));
    }
    assert!(!sent.contains(&"Keep Alive"), "{sent:?}");
    // Then the controller expects one.
    let next = association.poll(now + step);
    let Some(AssociationAction::Request { ask: DriverRequest::Run { command, .. }, .. }) = next
    else {
        panic!()
    };
    assert_eq!(command.what, "Keep Alive");
}

/// The host's own computation time does not reduce the target's reply timeout.
#[test]
fn what_the_host_computes_takes_nothing_of_the_targets_time() {
    let (mut now, mut computed) = (Instant(0), 0);
    let mut association = HostAssociation::<&'static str>::new(now, config(wants(keys(1, None))));
    let mut target = AuthenticatingTarget::new(&keys(1, None));
    while computed == 0 || target.received.len() < 2 {
        let Some(AssociationAction::Request { ask: request }) = association.poll(now) else {
            panic!("{computed}")
        };
        if matches!(&request, DriverRequest::Random { .. } | DriverRequest::Compute(_)) {
            assert_eq!(association.deadline(), None);
            now += 6 * TIMEOUT;
            assert!(association.poll(now).is_none(), "it is patient with itself");
            computed += u32::from(matches!(&request, DriverRequest::Compute(_)));
        } else {
            assert_eq!(association.deadline(), Some(now + TIMEOUT));
        }
        association.answer(now, Ok(target.answer(&request)));
    }
    // The target does not reply to the host's reply.
    assert!(matches!(
        association.poll(now),
        Some(AssociationAction::Request { ask: DriverRequest::Run { .. }, .. })
    ));
    assert!(association.poll(now + TIMEOUT / 2).is_none());
    let lost = association.poll(now + TIMEOUT);
    assert!(
        matches!(
            &lost,
            Some(AssociationAction::Reset {
                why: ResetReason::Path(ProcedureFailure::Silent { .. }),
                ..
            })
        ),
        "the target is silent"
    );
}

/// An attacker clears the authentication request in an I/O queue's Connect: over Ethernet that queue would go on in the
/// clear, though the admin queue is sealed.
#[test]
fn an_io_queue_without_authentication_is_refused_where_the_admin_queue_had_it() {
    let (with_both, with_own) = (keys(1, Some(2)), keys(1, None));
    let cases = [
        (&with_own, SealUse::Allowed, true, true),
        (&with_own, SealUse::Required, true, true),
        (&with_both, SealUse::Allowed, false, true),
        (&with_own, SealUse::Allowed, false, false),
        (&with_both, SealUse::Off, true, false), // over TCP: targets may require it on the admin queue only
    ];
    for (keys, seals, authenticated, is_refused) in cases {
        let wants = Wants { seals, ..wants(keys.clone()) };
        let info = ControllerInfo {
            cntlid: 1,
            transfer_bytes_max: 1 << 20,
            in_capsule_bytes: 0,
            queue_entries_max: 32,
            io_queues: 1,
            express_queues: 0,
            authenticated,
            identify: Box::new(IdentifyController::new_zeroed()),
            namespaces: Vec::new(),
        };
        let mut lane = Procedure::<&'static str, _>::new(|driver| async move {
            bringup::connect_lane(&driver, &wants, &info, 1).await
        });
        let ended = loop {
            match lane.poll(Instant(0)) {
                ProcedureStep::Request(DriverRequest::Open { .. }) => {
                    lane.answer(Ok(DriverReply::Opened { data_bytes_max: 1 << 20 }));
                }
                ProcedureStep::Request(DriverRequest::Run { .. }) => {
                    let (cqe, data) = (Cqe::new(0, Status::SUCCESS), Vec::new());
                    lane.answer(Ok(DriverReply::Completed { cqe, data }));
                }
                ProcedureStep::Ended(ended) => break ended,
                waits => panic!("{waits:?}"),
            }
        };
        let refused = matches!(&ended, Err(ProcedureFailure::Authentication { qid: 1, .. }));
        assert_eq!(refused, is_refused, "{seals:?} {authenticated} {ended:?}");
    }
}

/// The connect procedures of I/O queues receive whether the admin queue had to authenticate.
#[test]
fn required_authentication_is_recorded() {
    let mut target = AuthenticatingTarget::new(&keys(1, None));
    let ended = connected(&mut target, wants(keys(1, None)));
    assert!(ended.as_ref().is_ok_and(|enabled| enabled.authenticated), "{ended:?}");
}
