//! Authentication of a queue that was connected: what the target asks for, and what this host does.

use super::bringup::Wants;
use super::procedure::{Command, Driver, Failure};
use crate::security::Secret;
use crate::security::dhchap::{Host, HostError, Offer};
use roadtrain_wire::auth::RECEIVE_BYTES;
use roadtrain_wire::fabrics::{AUTHREQ_ASCR, AUTHREQ_ATR, Authentication, fctype};

/// Random octets of an authentication: transaction, exponent, challenge and sequence number.
const RANDOM_BYTES: usize = 2 + 64 + 64 + 4;

/// Does what the `result` of its Connect asks for.
///
/// # Errors
/// One side does not believe the other, or the connection is lost.
pub(super) async fn queue<E>(
    driver: &Driver<E>,
    wants: &Wants,
    qid: u16,
    result: u32,
) -> Result<(), Failure<E>> {
    let failed = |error| Err(Failure::Authentication { qid, error });
    if result & AUTHREQ_ASCR != 0 {
        return failed(HostError::SecureChannel);
    }
    if result & AUTHREQ_ATR == 0 {
        // Some targets ask for it on the admin queue only.
        let is_missing = qid == 0 && wants.keys.controller.is_some();
        return if is_missing { failed(HostError::NotAsked) } else { Ok(()) };
    }
    if wants.keys.host.is_none() {
        return failed(HostError::NoKey);
    }
    let random = driver.random(RANDOM_BYTES).await?;
    let (t_id, random) = random.reveal().split_at(2);
    let t_id = u16::from_le_bytes([t_id[0], t_id[1]]);
    let parties = wants.keys.parties(&wants.host_nqn, &wants.subsystem_nqn);
    let host = Host::new(parties, Offer::default(), t_id);
    let mut queue = Queue { driver, qid, host };
    match queue.authenticate(&Secret::new(random)).await? {
        Ok(()) => Ok(()),
        Err(error) => {
            if let Some(failure2) = queue.host.failure2(error) {
                // It is told why, if it still listens.
                let _ = queue.send(failure2).await;
            }
            failed(error)
        }
    }
}

/// A queue that is being authenticated.
struct Queue<'a, E> {
    driver: &'a Driver<E>,
    qid: u16,
    host: Host,
}

impl<E> Queue<'_, E> {
    /// What is wrong with the other side is told apart from what is wrong with the connection.
    async fn authenticate(&mut self, random: &Secret) -> Result<Result<(), HostError>, Failure<E>> {
        let mut unused = random.reveal();
        let mut random = |place: &mut [u8]| {
            let (taken, rest) = unused.split_at(place.len());
            place.copy_from_slice(taken);
            unused = rest;
        };
        self.send(self.host.negotiate()).await?;
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
        match self.host.success1(&message) {
            Ok(Some(success2)) => self.send(success2).await.map(Ok),
            Ok(None) => Ok(Ok(())),
            Err(error) => Ok(Err(error)),
        }
    }

    async fn send(&self, message: Vec<u8>) -> Result<(), Failure<E>> {
        let fields = Authentication::of_nvme(message.len() as u32);
        let mut sqe = fields.emit(fctype::AUTHENTICATION_SEND);
        sqe.set_in_capsule(message.len() as u32);
        let command = Command { out: message, ..Command::new("Authentication Send", sqe) };
        self.run(command).await.map(drop)
    }

    async fn receive(&self) -> Result<Vec<u8>, Failure<E>> {
        let fields = Authentication::of_nvme(RECEIVE_BYTES);
        let sqe = fields.emit(fctype::AUTHENTICATION_RECEIVE);
        let command = Command::new("Authentication Receive", sqe);
        self.run(Command { bytes_in: RECEIVE_BYTES, ..command }).await
    }

    async fn run(&self, command: Command) -> Result<Vec<u8>, Failure<E>> {
        let what = command.what;
        let (cqe, data) = self.driver.command(self.qid, command).await?;
        match cqe.status() {
            status if status.is_success() => Ok(data),
            status => Err(Failure::Command { what, status }),
        }
    }
}
