//! A *procedure*: admin commands one after the other, each depending on the answers before it, written from top to
//! bottom.
//!
//! It is an `async fn` without a runtime: what it awaits are answers, and its driver supplies them. The driver calls
//! [`Procedure::poll`], does what it is asked for ([`Ask`]) in whatever way it likes, blocking or not, and gives the
//! answer back.

use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use roadtrain_proto::security::dhchap::{HostError, Work};
use roadtrain_proto::security::{FrameSecret, Secret, TlsPsk};
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A command of the control plane.
#[derive(Clone, Debug)]
pub struct Command {
    /// Its name, for messages.
    pub what: &'static str,
    pub sqe: Sqe,
    /// Data that goes with it.
    pub out: Vec<u8>,
    /// Octets of data that come back.
    pub bytes_in: u32,
}

impl Command {
    /// A command without data.
    #[must_use]
    pub fn new(what: &'static str, sqe: Sqe) -> Self {
        Command { what, sqe, out: Vec::new(), bytes_in: 0 }
    }
}

/// What a driver is asked for.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Connect queue `qid` of the path (0: its admin queue), over a new connection: an admin queue's is secured with
    /// `psk`, if there is one, others' are like that of the admin queue.
    Open {
        qid: u16,
        entries: u16,
        /// Whose it is to be, if it is not the admin queue.
        lane: usize,
        psk: Option<TlsPsk>,
    },
    /// Run a command there.
    Run { qid: u16, command: Command },
    /// So many random octets.
    Random { bytes: usize },
    /// Compute this, not on a thread that moves data.
    Compute(Work),
    /// From now on the frames of the queue's lane are sealed, and others are dropped.
    Seal { qid: u16, secret: FrameSecret },
}

/// What the driver answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The connection is there.
    Opened {
        /// Most octets of a command's data there.
        data_bytes_max: u32,
    },
    /// The command was completed.
    Completed { cqe: Cqe, data: Vec<u8> },
    /// Random octets.
    Random(Secret),
    /// It was computed.
    Computed,
    /// They are.
    Sealed,
}

/// Why a procedure has failed; `E` is what went wrong with a connection.
#[derive(Clone, Debug)]
pub enum Failure<E> {
    /// There is no connection.
    Unreachable(E),
    /// The connection was lost meanwhile.
    Lost { what: &'static str, source: E },
    /// There was no answer in time.
    Silent { what: &'static str },
    /// The target refuses Connect of a queue.
    Refused { qid: u16, status: Status },
    /// One side does not believe the other.
    Authentication { qid: u16, error: HostError },
    /// A command failed.
    Command { what: &'static str, status: Status },
    /// The controller does not become ready, or says things that make no sense.
    Controller(String),
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unreachable(source) => write!(f, "no connection: {source}"),
            Failure::Lost { what, source } => write!(f, "{what}: {source}"),
            Failure::Silent { what } => write!(f, "{what}: no answer in time"),
            Failure::Refused { qid, status } => {
                write!(f, "Connect of queue {qid} refused: {status}")
            }
            Failure::Authentication { error, .. } => error.fmt(f),
            Failure::Command { what, status } => write!(f, "{what} failed: {status}"),
            Failure::Controller(text) => f.write_str(text),
        }
    }
}

/// How far a procedure is.
#[derive(Debug)]
pub enum Step<T> {
    /// Do this, once, and [`Procedure::answer`].
    Ask(Ask),
    /// The answer is awaited.
    Asked,
    /// Nothing to do before then.
    Until(Instant),
    /// It has ended.
    Ended(T),
}

/// Between a procedure and its driver.
#[derive(Debug)]
struct Exchange<E> {
    now: Instant,
    ask: Option<Ask>,
    until: Option<Instant>,
    answer: Option<Result<Answer, E>>,
}

/// The procedure's side of it.
#[derive(Debug)]
pub struct Driver<E>(Arc<Mutex<Exchange<E>>>);

impl<E> Driver<E> {
    fn lock(&self) -> MutexGuard<'_, Exchange<E>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.lock().now
    }

    /// Goes on after a while.
    pub async fn pause(&self, time: Duration) {
        let until = self.now() + time;
        poll_fn(|_| {
            let mut exchange = self.lock();
            exchange.until = (exchange.now < until).then_some(until);
            if exchange.until.is_some() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    async fn ask(&self, ask: Ask) -> Result<Answer, E> {
        self.lock().ask = Some(ask);
        poll_fn(|_| self.lock().answer.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Connects a queue, for that lane: most octets of a command's data there.
    ///
    /// # Errors
    /// There is no connection.
    pub async fn open(
        &self,
        qid: u16,
        entries: u16,
        lane: usize,
        psk: Option<&TlsPsk>,
    ) -> Result<u32, Failure<E>> {
        let ask = Ask::Open { qid, entries, lane, psk: psk.cloned() };
        match self.ask(ask).await.map_err(Failure::Unreachable)? {
            Answer::Opened { data_bytes_max } => Ok(data_bytes_max),
            _ => Err(Failure::Controller("no connection".into())),
        }
    }

    /// Runs a command of whatever status: its completion, and its data.
    ///
    /// # Errors
    /// The connection's.
    pub async fn command(&self, qid: u16, command: Command) -> Result<(Cqe, Vec<u8>), Failure<E>> {
        let (what, bytes) = (command.what, command.bytes_in);
        let answer = self.ask(Ask::Run { qid, command }).await;
        match answer.map_err(|source| Failure::Lost { what, source })? {
            Answer::Completed { cqe, mut data } => {
                data.resize(bytes as usize, 0);
                Ok((cqe, data))
            }
            _ => Err(Failure::Controller("no completion".into())),
        }
    }

    /// Random octets.
    ///
    /// # Errors
    /// The system has none.
    pub async fn random(&self, bytes: usize) -> Result<Secret, Failure<E>> {
        let what = "random octets";
        let answer = self.ask(Ask::Random { bytes }).await;
        match answer.map_err(|source| Failure::Lost { what, source })? {
            Answer::Random(octets) if octets.reveal().len() == bytes => Ok(octets),
            _ => Err(Failure::Controller("no random octets".into())),
        }
    }

    /// Has powers computed.
    ///
    /// # Errors
    /// They cannot be.
    pub async fn compute(&self, work: &Work) -> Result<(), Failure<E>> {
        let what = "powers of an authentication";
        let answer = self.ask(Ask::Compute(work.clone())).await;
        answer.map(drop).map_err(|source| Failure::Lost { what, source })
    }

    /// Has the frames of a queue's lane sealed.
    ///
    /// # Errors
    /// They cannot be.
    pub async fn seal(&self, qid: u16, secret: FrameSecret) -> Result<(), Failure<E>> {
        let what = "sealing of frames";
        let answer = self.ask(Ask::Seal { qid, secret }).await;
        match answer.map_err(|source| Failure::Lost { what, source })? {
            Answer::Sealed => Ok(()),
            _ => Err(Failure::Controller("frames cannot be sealed".into())),
        }
    }

    /// Runs a command of the admin queue that must succeed.
    ///
    /// # Errors
    /// The connection's, or its status.
    pub async fn run(&self, command: Command) -> Result<(Cqe, Vec<u8>), Failure<E>> {
        let what = command.what;
        let (cqe, data) = self.command(0, command).await?;
        match cqe.status() {
            status if status.is_success() => Ok((cqe, data)),
            status => Err(Failure::Command { what, status }),
        }
    }
}

/// A procedure that ends with a `T`.
pub struct Procedure<E, T> {
    body: Pin<Box<dyn Future<Output = T> + Send>>,
    driver: Driver<E>,
}

impl<E, T> fmt::Debug for Procedure<E, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Procedure")
    }
}

impl<E, T> Procedure<E, T> {
    /// A procedure that has not begun.
    pub fn new<F: Future<Output = T> + Send + 'static>(body: impl FnOnce(Driver<E>) -> F) -> Self {
        let exchange = Exchange { now: Instant::default(), ask: None, until: None, answer: None };
        let exchange = Arc::new(Mutex::new(exchange));
        Procedure { body: Box::pin(body(Driver(exchange.clone()))), driver: Driver(exchange) }
    }

    /// Goes on as far as it can. Not to be called again once it has ended.
    pub fn poll(&mut self, now: Instant) -> Step<T> {
        self.driver.lock().now = now;
        if let Poll::Ready(ended) = self.body.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            return Step::Ended(ended);
        }
        let mut exchange = self.driver.lock();
        match (exchange.ask.take(), exchange.until) {
            (Some(ask), _) => Step::Ask(ask),
            (None, Some(until)) => Step::Until(until),
            (None, None) => Step::Asked,
        }
    }

    /// The answer to what it has asked for last.
    pub fn answer(&mut self, answer: Result<Answer, E>) {
        self.driver.lock().answer = Some(answer);
    }
}
