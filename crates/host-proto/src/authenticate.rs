//! Authentication of a connected queue, as its Connect requires.

use super::bringup::Wants;
use super::procedure::{ControllerCommand, ProcedureDriver, ProcedureFailure};
use roadtrain_proto::security::dhchap::{AuthHost, AuthHostError, AuthOffer};
use roadtrain_proto::security::{SealUse, Secret, TlsPsk};
use roadtrain_wire::auth::RECEIVE_BYTES;
use roadtrain_wire::fabrics::{AUTHREQ_ASCR, AUTHREQ_ATR, AuthenticationFields, fctype};

/// Random bytes of an authentication: transaction, exponent, challenge and sequence number.
const RANDOM_BYTES: usize = 2 + 64 + 64 + 4;

/// Result of a Connect, and the authentication context.
type ConnectOutcome = (u32, [u8; 32]);

/// Authenticates the admin queue if its Connect requires it. True if it did.
///
/// # Errors
/// Authentication or the connection fails.
pub(super) async fn admin_queue<E>(
    driver: &ProcedureDriver<E>,
    wants: &Wants,
    outcome: ConnectOutcome,
) -> Result<bool, ProcedureFailure<E>> {
    if queue(driver, wants, 0, outcome).await? {
        return Ok(true);
    }
    // A PSK proves that the controller has authenticated before.
    let is_missing = wants.keys.controller.is_some() && !wants.concatenates;
    let error = AuthHostError::AuthNotRequired;
    if is_missing { Err(ProcedureFailure::Authentication { qid: 0, error }) } else { Ok(false) }
}

/// Authenticates an I/O queue if its Connect requires it. `was_required` is true if the admin queue's Connect did.
///
/// # Errors
/// As [`admin_queue`].
pub(super) async fn io_queue<E>(
    driver: &ProcedureDriver<E>,
    wants: &Wants,
    was_required: bool,
    qid: u16,
    outcome: ConnectOutcome,
) -> Result<(), ProcedureFailure<E>> {
    let is_required = queue(driver, wants, qid, outcome).await?;
    // Some targets require it on the admin queue only. Over Ethernet a target requires it on each queue: if it seems
    // not to, an attacker may have cleared the flag, and this queue would go on in the clear.
    let must_be = was_required || wants.keys.controller.is_some();
    let is_missing = must_be && !is_required && wants.seals != SealUse::Off;
    let error = AuthHostError::AuthOnAdminQueueOnly;
    if is_missing { Err(ProcedureFailure::Authentication { qid, error }) } else { Ok(()) }
}

/// Authenticates a queue if its Connect requires it. True if it did.
async fn queue<E>(
    driver: &ProcedureDriver<E>,
    wants: &Wants,
    qid: u16,
    (result, context): ConnectOutcome,
) -> Result<bool, ProcedureFailure<E>> {
    if result & AUTHREQ_ASCR != 0 {
        return Err(ProcedureFailure::Authentication { qid, error: AuthHostError::SecureChannel });
    }
    if result & AUTHREQ_ATR == 0 {
        let error = AuthHostError::NotSealed;
        let is_missing = wants.seals == SealUse::Required;
        return if is_missing {
            Err(ProcedureFailure::Authentication { qid, error })
        } else {
            Ok(false)
        };
    }
    let prepare = |host: AuthHost| match wants.seals {
        SealUse::Off => host,
        _ => host.with_frames(&context),
    };
    authenticated(driver, wants, qid, prepare).await.map(|_| true)
}

/// Negotiates the PSK for all connections, on an admin queue whose Connect had this `result`.
///
/// # Errors
/// The target negotiates none, or authentication or the connection fails.
pub(super) async fn psk<E>(
    driver: &ProcedureDriver<E>,
    wants: &Wants,
    result: u32,
) -> Result<TlsPsk, ProcedureFailure<E>> {
    let failed = |error| Err(ProcedureFailure::Authentication { qid: 0, error });
    if result & (AUTHREQ_ATR | AUTHREQ_ASCR) == 0 {
        return failed(AuthHostError::NoChannel);
    }
    let mut host = authenticated(driver, wants, 0, AuthHost::concatenating).await?;
    match host.take_psk() {
        Some(psk) => Ok(psk.tls_psk(&wants.host_nqn, &wants.subsystem_nqn)),
        None => failed(AuthHostError::NoChannel),
    }
}

/// Authenticates this host, and the target if it is to prove its identity.
async fn authenticated<E>(
    driver: &ProcedureDriver<E>,
    wants: &Wants,
    qid: u16,
    prepare: impl FnOnce(AuthHost) -> AuthHost,
) -> Result<AuthHost, ProcedureFailure<E>> {
    let failed = |error| Err(ProcedureFailure::Authentication { qid, error });
    if wants.keys.host.is_none() {
        return failed(AuthHostError::NoKey);
    }
    let random = driver.random(RANDOM_BYTES).await?;
    let (t_id, random) = random.reveal().split_at(2);
    let t_id = u16::from_le_bytes([t_id[0], t_id[1]]);
    let parties = wants.keys.parties(&wants.host_nqn, &wants.subsystem_nqn);
    let host = prepare(AuthHost::new(parties, AuthOffer::default(), t_id));
    let mut queue = QueueAuthentication { driver, qid, host };
    match queue.authenticate(&Secret::new(random)).await? {
        Ok(()) => Ok(queue.host),
        Err(error) => {
            if let Some(failure2) = queue.host.failure2(error) {
                // Report the reason to the target, if it still receives.
                let _ = queue.send(failure2).await;
            }
            failed(error)
        }
    }
}

/// Queue that is being authenticated.
struct QueueAuthentication<'a, E> {
    driver: &'a ProcedureDriver<E>,
    qid: u16,
    host: AuthHost,
}

impl<E> QueueAuthentication<'_, E> {
    /// Runs the protocol. The inner error is the peer's, the outer one the connection's.
    async fn authenticate(
        &mut self,
        random: &Secret,
    ) -> Result<Result<(), AuthHostError>, ProcedureFailure<E>> {
        let mut unused = random.reveal();
        let mut random = |place: &mut [u8]| {
            let (taken, rest) = unused.split_at(place.len());
            place.copy_from_slice(taken);
            unused = rest;
        };
        let negotiate = self.host.negotiate();
        self.send(negotiate).await?;
        let message = self.receive().await?;
        let challenged = match self.host.challenge(&message, &mut random) {
            Ok(challenged) => challenged,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(work) = challenged.work() {
            self.driver.compute(work).await?;
        }
        let reply = match self.host.reply(&challenged, &mut random) {
            Ok(reply) => reply,
            Err(error) => return Ok(Err(error)),
        };
        self.send(reply).await?;
        let message = self.receive().await?;
        let success2 = match self.host.success1(&message) {
            Ok(success2) => success2,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(secret) = self.host.take_frame_secret() {
            self.driver.seal(self.qid, secret).await?;
        }
        match success2 {
            Some(success2) => self.send(success2).await.map(Ok),
            None => Ok(Ok(())),
        }
    }

    async fn send(&self, message: Vec<u8>) -> Result<(), ProcedureFailure<E>> {
        let fields = AuthenticationFields::of_nvme(message.len() as u32);
        let mut sqe = fields.emit(fctype::AUTHENTICATION_SEND);
        sqe.set_in_capsule(message.len() as u32);
        let command = ControllerCommand {
            out: message,
            ..ControllerCommand::new("Authentication Send", sqe)
        };
        self.run(command).await.map(drop)
    }

    async fn receive(&self) -> Result<Vec<u8>, ProcedureFailure<E>> {
        let fields = AuthenticationFields::of_nvme(RECEIVE_BYTES);
        let sqe = fields.emit(fctype::AUTHENTICATION_RECEIVE);
        let command = ControllerCommand::new("Authentication Receive", sqe);
        self.run(ControllerCommand { bytes_in: RECEIVE_BYTES, ..command }).await
    }

    async fn run(&self, command: ControllerCommand) -> Result<Vec<u8>, ProcedureFailure<E>> {
        let what = command.what;
        let (cqe, data) = self.driver.command(self.qid, command).await?;
        match cqe.status() {
            status if status.is_success() => Ok(data),
            status => Err(ProcedureFailure::Command { what, status }),
        }
    }
}
