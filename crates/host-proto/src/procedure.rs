//! A *procedure*: admin commands in sequence, each depending on earlier replies, written from top to bottom.
//!
//! It is an `async fn` without a runtime: it awaits replies, and its driver supplies them. The driver calls
//! [`Procedure::poll`], carries out the operation ([`DriverRequest`]), blocking or not, and passes the reply back.

use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use roadtrain_proto::security::dhchap::{AuthHostError, DhTask};
use roadtrain_proto::security::{FrameSecret, Secret, TlsPsk};
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Command of the control plane.
#[derive(Clone, Debug)]
pub struct ControllerCommand {
    /// Name of the command, for messages.
    pub what: &'static str,
    pub sqe: Sqe,
    /// Data that the host sends with it.
    pub out: Vec<u8>,
    /// Bytes of data that the controller returns.
    pub bytes_in: u32,
}

impl ControllerCommand {
    /// Creates a command without data.
    #[must_use]
    pub fn new(what: &'static str, sqe: Sqe) -> Self {
        ControllerCommand { what, sqe, out: Vec::new(), bytes_in: 0 }
    }
}

/// Operation that a procedure requests of its driver.
#[derive(Clone, Debug)]
pub enum DriverRequest {
    /// Open a connection for queue `qid` of the path (0: its admin queue). An admin queue's connection is secured with
    /// `psk`, if given; the others are secured like the admin queue's.
    Open {
        qid: u16,
        entries: u16,
        /// Lane of the queue, unless it is the admin queue.
        lane: usize,
        psk: Option<TlsPsk>,
    },
    /// Run a command on a queue.
    Run { qid: u16, command: ControllerCommand },
    /// Return random bytes.
    Random { bytes: usize },
    /// Compute Diffie-Hellman values, on a thread that moves no data.
    Compute(DhTask),
    /// Seal the frames of the queue's lane from now on, and drop frames that are not sealed.
    Seal { qid: u16, secret: FrameSecret },
}

/// Reply of the driver.
#[derive(Clone, Debug)]
pub enum DriverReply {
    /// The connection is established.
    Opened {
        /// Maximum bytes of data of one command.
        data_bytes_max: u32,
    },
    /// The command was completed.
    Completed { cqe: Cqe, data: Vec<u8> },
    /// Random bytes.
    Random(Secret),
    /// The computation is done.
    Computed,
    /// Frames are sealed.
    Sealed,
}

/// Reason for the failure of a procedure; `E` is the error type of connections.
#[derive(Clone, Debug)]
pub enum ProcedureFailure<E> {
    /// No connection can be established.
    Unreachable(E),
    /// The connection was lost during the operation.
    Lost { what: &'static str, source: E },
    /// The reply timeout has passed.
    Silent { what: &'static str },
    /// The target rejects Connect of a queue.
    Refused { qid: u16, status: Status },
    /// Authentication has failed.
    Authentication { qid: u16, error: AuthHostError },
    /// A command failed.
    Command { what: &'static str, status: Status },
    /// The controller does not become ready, or its data is invalid.
    Controller(String),
}

impl<E: fmt::Display> fmt::Display for ProcedureFailure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcedureFailure::Unreachable(source) => write!(f, "no connection: {source}"),
            ProcedureFailure::Lost { what, source } => write!(f, "{what}: {source}"),
            ProcedureFailure::Silent { what } => write!(f, "{what}: no answer in time"),
            ProcedureFailure::Refused { qid, status } => {
                write!(f, "Connect of queue {qid} refused: {status}")
            }
            ProcedureFailure::Authentication { error, .. } => error.fmt(f),
            ProcedureFailure::Command { what, status } => write!(f, "{what} failed: {status}"),
            ProcedureFailure::Controller(text) => f.write_str(text),
        }
    }
}

/// State of a procedure.
#[derive(Debug)]
pub enum ProcedureStep<T> {
    /// Carry this out once, and call [`Procedure::answer`].
    Request(DriverRequest),
    /// The procedure awaits the reply.
    AwaitReply,
    /// The procedure resumes at this time.
    PauseUntil(Instant),
    /// The procedure has ended with a result.
    Ended(T),
}

/// State that a procedure and its driver exchange.
#[derive(Debug)]
struct DriverExchange<E> {
    now: Instant,
    request: Option<DriverRequest>,
    until: Option<Instant>,
    answer: Option<Result<DriverReply, E>>,
}

/// Handle of a procedure to its driver.
#[derive(Debug)]
pub struct ProcedureDriver<E>(Arc<Mutex<DriverExchange<E>>>);

impl<E> ProcedureDriver<E> {
    fn lock(&self) -> MutexGuard<'_, DriverExchange<E>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.lock().now
    }

    /// Pauses the procedure.
    pub async fn pause(&self, time: Duration) {
        let until = self.now() + time;
        poll_fn(|_| {
            let mut exchange = self.lock();
            exchange.until = (exchange.now < until).then_some(until);
            if exchange.until.is_some() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    async fn request(&self, request: DriverRequest) -> Result<DriverReply, E> {
        self.lock().request = Some(request);
        poll_fn(|_| self.lock().answer.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Opens a connection for a queue of a lane. Returns the maximum bytes of data of one command.
    ///
    /// # Errors
    /// No connection can be established.
    pub async fn open(
        &self,
        qid: u16,
        entries: u16,
        lane: usize,
        psk: Option<&TlsPsk>,
    ) -> Result<u32, ProcedureFailure<E>> {
        let request = DriverRequest::Open { qid, entries, lane, psk: psk.cloned() };
        match self.request(request).await.map_err(ProcedureFailure::Unreachable)? {
            DriverReply::Opened { data_bytes_max } => Ok(data_bytes_max),
            _ => Err(ProcedureFailure::Controller("no connection".into())),
        }
    }

    /// Runs a command. Returns its completion, whatever its status, and its data.
    ///
    /// # Errors
    /// The connection has failed.
    pub async fn command(
        &self,
        qid: u16,
        command: ControllerCommand,
    ) -> Result<(Cqe, Vec<u8>), ProcedureFailure<E>> {
        let (what, bytes) = (command.what, command.bytes_in);
        let answer = self.request(DriverRequest::Run { qid, command }).await;
        match answer.map_err(|source| ProcedureFailure::Lost { what, source })? {
            DriverReply::Completed { cqe, mut data } => {
                data.resize(bytes as usize, 0);
                Ok((cqe, data))
            }
            _ => Err(ProcedureFailure::Controller("no completion".into())),
        }
    }

    /// Returns random bytes.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub async fn random(&self, length: usize) -> Result<Secret, ProcedureFailure<E>> {
        let what = "random bytes";
        let answer = self.request(DriverRequest::Random { bytes: length }).await;
        match answer.map_err(|source| ProcedureFailure::Lost { what, source })? {
            DriverReply::Random(bytes) if bytes.reveal().len() == length => Ok(bytes),
            _ => Err(ProcedureFailure::Controller("no random bytes".into())),
        }
    }

    /// Has Diffie-Hellman values computed.
    ///
    /// # Errors
    /// The computation fails.
    pub async fn compute(&self, work: &DhTask) -> Result<(), ProcedureFailure<E>> {
        let what = "powers of an authentication";
        let answer = self.request(DriverRequest::Compute(work.clone())).await;
        answer.map(drop).map_err(|source| ProcedureFailure::Lost { what, source })
    }

    /// Has the frames of a queue's lane sealed.
    ///
    /// # Errors
    /// Frames cannot be sealed.
    pub async fn seal(&self, qid: u16, secret: FrameSecret) -> Result<(), ProcedureFailure<E>> {
        let what = "sealing of frames";
        let answer = self.request(DriverRequest::Seal { qid, secret }).await;
        match answer.map_err(|source| ProcedureFailure::Lost { what, source })? {
            DriverReply::Sealed => Ok(()),
            _ => Err(ProcedureFailure::Controller("frames cannot be sealed".into())),
        }
    }

    /// Runs a command of the admin queue that must succeed.
    ///
    /// # Errors
    /// The connection has failed, or the command's status is not success.
    pub async fn run(
        &self,
        command: ControllerCommand,
    ) -> Result<(Cqe, Vec<u8>), ProcedureFailure<E>> {
        let what = command.what;
        let (cqe, data) = self.command(0, command).await?;
        match cqe.status() {
            status if status.is_success() => Ok((cqe, data)),
            status => Err(ProcedureFailure::Command { what, status }),
        }
    }
}

/// Procedure that ends with a `T`.
pub struct Procedure<E, T> {
    body: Pin<Box<dyn Future<Output = T> + Send>>,
    driver: ProcedureDriver<E>,
}

impl<E, T> fmt::Debug for Procedure<E, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Procedure")
    }
}

impl<E, T> Procedure<E, T> {
    /// Creates a procedure that has not started.
    pub fn new<F: Future<Output = T> + Send + 'static>(
        body: impl FnOnce(ProcedureDriver<E>) -> F,
    ) -> Self {
        let exchange =
            DriverExchange { now: Instant::default(), request: None, until: None, answer: None };
        let exchange = Arc::new(Mutex::new(exchange));
        Procedure {
            body: Box::pin(body(ProcedureDriver(exchange.clone()))),
            driver: ProcedureDriver(exchange),
        }
    }

    /// Runs the procedure until it needs a reply or a pause. Not to be called again once it has ended.
    pub fn poll(&mut self, now: Instant) -> ProcedureStep<T> {
        self.driver.lock().now = now;
        if let Poll::Ready(ended) = self.body.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            return ProcedureStep::Ended(ended);
        }
        let mut exchange = self.driver.lock();
        match (exchange.request.take(), exchange.until) {
            (Some(request), _) => ProcedureStep::Request(request),
            (None, Some(until)) => ProcedureStep::PauseUntil(until),
            (None, None) => ProcedureStep::AwaitReply,
        }
    }

    /// Passes the reply to the last operation to the procedure.
    pub fn answer(&mut self, answer: Result<DriverReply, E>) {
        self.driver.lock().answer = Some(answer);
    }
}
