//! Admin queue and connections of a path, by blocking calls: the driver of the procedures of [`roadtrain_host_proto`].

use super::command_queue::CommandQueue;
use super::config::HostConfig;
use super::connect::{AdminQueue, connect_admin};
use super::error::HostControlError;
use super::link::LinkError;
use super::stopping;
use roadtrain_ether_proto::fence::Fence;
use roadtrain_host_proto::bringup::{self, ControllerInfo, Enabled};
use roadtrain_host_proto::procedure::{
    DriverReply, DriverRequest, Procedure, ProcedureDriver, ProcedureFailure, ProcedureStep,
};
use roadtrain_proto::security::TlsPsk;
use roadtrain_system::clock;
use roadtrain_system::platform::ConnectionRoute;
use roadtrain_system::random;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::sqe::{Sqe, opcode};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// First pause before a busy controller is retried; it doubles.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// Longest such pause.
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Connections of a path: its admin queue, and queues that were opened for lanes and not handed over yet.
#[derive(Default)]
pub(super) struct Queues {
    pub(super) admin: Option<AdminQueue>,
    pub(super) lanes: BTreeMap<u16, CommandQueue>,
}

impl Queues {
    pub(super) fn queue(&mut self, qid: u16) -> Result<&mut CommandQueue, LinkError> {
        let queue = match qid {
            0 => self.admin.as_mut().map(|admin| &mut admin.queue),
            qid => self.lanes.get_mut(&qid),
        };
        queue.ok_or(LinkError::Closed)
    }

    /// Carries out an operation of a procedure. Before an admin queue is connected, the `fence` ends earlier lanes.
    ///
    /// # Errors
    /// The connection fails.
    pub(super) fn carry_out(
        &mut self,
        config: &HostConfig,
        fence: &mut Fence,
        request: &DriverRequest,
    ) -> Result<DriverReply, LinkError> {
        match request {
            DriverRequest::Open { qid: 0, entries, psk, .. } => {
                // An existing one served to negotiate the PSK, and has no command in flight.
                if let Some(admin) = std::mem::take(self).admin {
                    admin.queue.close();
                }
                let admin = connect_admin(config, *entries, psk.as_ref(), fence)?;
                let admin = self.admin.insert(admin);
                Ok(DriverReply::Opened { data_bytes_max: admin.queue.data_bytes_max() })
            }
            DriverRequest::Open { qid, entries, lane, .. } => {
                self.lanes.remove(qid);
                let admin = self.admin.as_ref().ok_or(LinkError::Closed)?;
                let is_express = usize::from(qid - 1) != *lane;
                let keep_alive = Some(config.keep_alive / 4).filter(|time| !time.is_zero());
                // The wait for an express connection must not delay the next Keep Alive.
                let within = keep_alive.filter(|_| is_express).unwrap_or(config.timeout);
                let config = &*with_timeout_max(config, within);
                let queue = admin.origin.connect(config, *entries, *lane as u16)?;
                let data_bytes_max = queue.data_bytes_max();
                self.lanes.insert(*qid, queue);
                Ok(DriverReply::Opened { data_bytes_max })
            }
            DriverRequest::Run { qid, command } => {
                let queue = self.queue(*qid)?;
                // A lane's queue keeps the timeout that it was opened with, if that is shorter.
                let within =
                    if *qid == 0 { config.timeout } else { config.timeout.min(queue.timeout()) };
                queue.set_timeout(within);
                let (cqe, data) = queue.command(&command.sqe, &command.out, command.bytes_in)?;
                Ok(DriverReply::Completed { cqe, data })
            }
            DriverRequest::Random { bytes } => {
                let bytes = random::secret(*bytes).map_err(LinkError::from)?;
                Ok(DriverReply::Random(bytes))
            }
            DriverRequest::Seal { qid, secret } => {
                self.queue(*qid)?.seal(secret)?;
                Ok(DriverReply::Sealed)
            }
            // This thread moves no data.
            DriverRequest::Compute(work) => {
                work.compute();
                Ok(DriverReply::Computed)
            }
        }
    }
}

/// Returns the configuration with a reply timeout of at most `within`.
pub(super) fn with_timeout_max(config: &HostConfig, within: Duration) -> Cow<'_, HostConfig> {
    match within < config.timeout {
        true => Cow::Owned(HostConfig { timeout: within, ..config.clone() }),
        false => Cow::Borrowed(config),
    }
}

/// Connected admin queue.
pub struct AdminConnection {
    config: HostConfig,
    pub(super) queues: Queues,
    /// Controller identifier.
    pub cntlid: u16,
    enabled: Enabled,
}

impl AdminConnection {
    /// Connects the admin queue of `config.subsystem_nqn` and enables the controller.
    ///
    /// # Errors
    /// Anything that keeps the controller from being ready.
    pub fn connect(config: &HostConfig) -> Result<Self, HostControlError> {
        let (mut queues, wants) = (Queues::default(), config.wants());
        let connect =
            Procedure::new(|driver| async move { bringup::connect(&driver, &wants, None).await });
        let enabled = carry_out(&mut queues, config, connect)?;
        Ok(AdminConnection { config: config.clone(), queues, cntlid: enabled.cntlid, enabled })
    }

    /// Connects as [`AdminConnection::connect`] does, and retries a busy controller for [`HostConfig::connect_timeout`]: it may
    /// still end commands of an earlier connection of this host.
    ///
    /// # Errors
    /// As [`AdminConnection::connect`].
    pub fn connect_patiently(config: &HostConfig) -> Result<Self, HostControlError> {
        retry_while_busy(config, || AdminConnection::connect(config))
    }

    /// Runs an admin command that must succeed.
    ///
    /// # Errors
    /// The connection fails, or the command's status is not success.
    pub fn run(
        &mut self,
        what: &'static str,
        sqe: &Sqe,
        out: &[u8],
        input: &mut [u8],
    ) -> Result<Cqe, HostControlError> {
        run(self.queues.queue(0), what, sqe, (out, input))
    }

    /// Connects I/O queue 1 for commands that run one by one ([`AdminConnection::run_io`]), with the retries of
    /// [`AdminConnection::connect_patiently`]. Returns the controller's properties.
    ///
    /// # Errors
    /// Any failure to connect it.
    pub(super) fn connect_io(&mut self) -> Result<ControllerInfo, HostControlError> {
        let config = self.config.clone();
        retry_while_busy(&config, || {
            let (enabled, wants) = (self.enabled.clone(), config.wants());
            self.run_procedure(|driver| async move {
                let info = bringup::information(&driver, &enabled, 1, 0).await?;
                bringup::connect_lane(&driver, &wants, &info, 1).await?;
                Ok(info)
            })
        })
    }

    /// Runs an I/O command that must succeed.
    ///
    /// # Errors
    /// As [`AdminConnection::run`].
    pub(super) fn run_io(
        &mut self,
        what: &'static str,
        sqe: &Sqe,
        out: &[u8],
        input: &mut [u8],
    ) -> Result<Cqe, HostControlError> {
        run(self.queues.queue(1), what, sqe, (out, input))
    }

    /// Reads the controller's properties and requests `io_queues` I/O queues, and `expresses` more for express
    /// connections.
    ///
    /// # Errors
    /// As [`AdminConnection::run`].
    pub fn information(
        &mut self,
        io_queues: u32,
        expresses: u32,
    ) -> Result<ControllerInfo, HostControlError> {
        let enabled = self.enabled.clone();
        self.run_procedure(|driver| async move {
            bringup::information(&driver, &enabled, io_queues, expresses).await
        })
    }

    /// Runs long work on this thread, and sends Keep Alives on another one meanwhile.
    pub(super) fn while_kept_alive<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let keep_alive = self.config.keep_alive;
        if keep_alive.is_zero() {
            return work();
        }
        let (ended, end) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                let command = Sqe::new(opcode::KEEP_ALIVE, 0);
                while end.recv_timeout(keep_alive / 2) == Err(RecvTimeoutError::Timeout) {
                    if self.run("Keep Alive", &command, &[], &mut []).is_err() {
                        return; // the next user of the queue receives the error
                    }
                }
            });
            let done = work();
            drop(ended);
            done
        })
    }

    /// Shuts the controller down normally.
    pub fn shut_down(mut self, timeout: Duration) {
        let ended =
            self.run_procedure(|driver| async move { bringup::shut_down(&driver, timeout).await });
        match ended {
            Ok(()) => close(self.queues),
            Err(error @ HostControlError::Command { .. }) => {
                warn!(target = %self.config.address, "not shut down: {error}");
            }
            Err(_) => {} // the connection was already lost
        }
    }

    fn run_procedure<T, F>(
        &mut self,
        body: impl FnOnce(ProcedureDriver<LinkError>) -> F,
    ) -> Result<T, HostControlError>
    where
        F: Future<Output = Result<T, ProcedureFailure<LinkError>>> + Send + 'static,
    {
        carry_out(&mut self.queues, &self.config, Procedure::new(body))
    }

    /// Returns the negotiated PSK.
    pub(super) fn psk(&self) -> Option<TlsPsk> {
        self.enabled.psk.clone()
    }

    /// Returns the network route of its connection.
    pub(super) fn route(&self) -> ConnectionRoute {
        self.queues.admin.as_ref().map_or_else(ConnectionRoute::default, |admin| admin.route())
    }
}

/// Connects, and retries while the target is busy, for [`HostConfig::connect_timeout`].
fn retry_while_busy<T>(
    config: &HostConfig,
    mut connect: impl FnMut() -> Result<T, HostControlError>,
) -> Result<T, HostControlError> {
    let deadline = Instant::now() + config.connect_timeout;
    let mut pause = BUSY_PAUSE;
    loop {
        let error = match connect() {
            Err(error) if error.is_busy() => error,
            ended => return ended,
        };
        let left = stopping::limit(deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(error);
        }
        if pause == BUSY_PAUSE {
            info!(target = %config.address, "the controller is busy; trying again for {left:.0?}");
        }
        if let Err(source) = stopping::poll(&mut [], pause.min(left)) {
            return Err(HostControlError::System { what: "pause", source });
        }
        pause = (pause * 2).min(BUSY_PAUSE_MAX);
    }
}

/// Runs a command that must succeed: sends `out`, receives `input`.
fn run(
    queue: Result<&mut CommandQueue, LinkError>,
    what: &'static str,
    sqe: &Sqe,
    (out, input): (&[u8], &mut [u8]),
) -> Result<Cqe, HostControlError> {
    let ended = queue.and_then(|queue| queue.command(sqe, out, input.len() as u32));
    let (cqe, data) = ended.map_err(|source| HostControlError::Lost { what, source })?;
    input.copy_from_slice(&data);
    match cqe.status() {
        status if status.is_success() => Ok(cqe),
        status => Err(HostControlError::Command { what, status }),
    }
}

/// Closes the connection of a controller that was shut down.
pub(super) fn close(queues: Queues) {
    if let Some(admin) = queues.admin {
        admin.queue.close();
    }
}

fn carry_out<T>(
    queues: &mut Queues,
    config: &HostConfig,
    mut procedure: Procedure<LinkError, Result<T, ProcedureFailure<LinkError>>>,
) -> Result<T, HostControlError> {
    loop {
        match procedure.poll(clock::now()) {
            ProcedureStep::Request(request) => {
                procedure.answer(queues.carry_out(config, &mut Fence::default(), &request));
            }
            ProcedureStep::PauseUntil(until) => thread::sleep(until.since(clock::now())),
            ProcedureStep::AwaitReply => {
                return Err(HostControlError::Controller(
                    "a procedure waits for a reply without a request".into(),
                ));
            }
            ProcedureStep::Ended(ended) => {
                return ended.map_err(|failure| HostControlError::new(config, failure));
            }
        }
    }
}
