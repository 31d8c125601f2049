//! Queue mode: the load runs on threads that hand requests over to the lanes' reactors, and block until the completions
//! arrive.

use super::generator::Generator;
use crate::failure::{CommandFailure, CommandResult};
use roadtrain_host_engine::{
    Front, FrontTurn, HostClient, HostControllerView, Interest, IoCompletion, IoRequest, LaneId,
    UringCommand,
};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::tuning;
use roadtrain_system::clock;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tracing::warn;

/// Longest sleep: the end of the run has to be noticed between two completions, too.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The threads, and the connection that they share.
pub(super) struct LoadThreads {
    client: HostClient,
    threads: Vec<JoinHandle<()>>,
}

impl LoadThreads {
    /// Starts one thread for each of `generators`, on `cores` in turn.
    ///
    /// # Errors
    /// The system cannot create another thread.
    pub(super) fn start(
        client: HostClient,
        generators: Vec<Generator>,
        cores: &[usize],
    ) -> CommandResult<LoadThreads> {
        let mut started = LoadThreads { client, threads: Vec::new() };
        for (number, mut generator) in generators.into_iter().enumerate() {
            let core = cores.get(number % cores.len().max(1)).copied();
            let mut turn = ClientTurn::new(started.client.clone());
            let body = move || {
                if let Some(core) = core
                    && let Err(error) = tuning::pin_to_core(core)
                {
                    warn!(core, "cannot pin a thread: {error}");
                }
                turn.run(&mut generator);
            };
            let builder = thread::Builder::new().name(format!("load-{number}"));
            let thread = builder.spawn(body);
            started
                .threads
                .push(thread.map_err(|e| CommandFailure::failed(format!("thread {number}: {e}")))?);
        }
        Ok(started)
    }

    /// Returns the view of the controller.
    pub(super) fn view(&self) -> &HostControllerView {
        self.client.view()
    }

    /// Waits for the threads, which have been stopped, and disconnects.
    pub(super) fn join(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                warn!("a thread of the load panicked");
            }
        }
        drop(self.client);
    }
}

/// The turn of a load on a thread: as on a reactor, but over a [`HostClient`].
struct ClientTurn {
    client: HostClient,
    /// Channel of completions.
    ends: (Sender<IoCompletion>, Receiver<IoCompletion>),
    completions: VecDeque<IoCompletion>,
    /// Tokens of requests in flight, with the times when they were handed over.
    flights: Vec<(u64, Instant)>,
    now: Instant,
    stopped: bool,
}

impl ClientTurn {
    fn new(client: HostClient) -> ClientTurn {
        ClientTurn {
            client,
            ends: channel(),
            completions: VecDeque::new(),
            flights: Vec::new(),
            now: Instant::default(),
            stopped: false,
        }
    }

    fn run(&mut self, load: &mut dyn Front) {
        while !self.stopped {
            self.now = clock::now();
            load.turn(self);
            if !self.stopped {
                self.sleep(load.deadline());
            }
        }
    }

    /// Sleeps until a completion arrives or the load's deadline.
    fn sleep(&mut self, deadline: Option<Instant>) {
        let left = deadline.map_or(SLEEP_MAX, |at| at.since(clock::now()).min(SLEEP_MAX));
        let first = self.ends.1.recv_timeout(left).ok();
        let now = clock::now();
        for completion in first.into_iter().chain(self.ends.1.try_iter()) {
            let found = self.flights.iter().position(|&(token, _)| token == completion.token);
            let Some(index) = found else { continue };
            let (_, began) = self.flights.swap_remove(index);
            let latency_ns = now.0.saturating_sub(began.0);
            self.completions.push_back(IoCompletion { latency_ns, ..completion });
        }
    }
}

impl FrontTurn for ClientTurn {
    fn now(&self) -> Instant {
        self.now
    }

    fn next_completion(&mut self) -> Option<IoCompletion> {
        self.completions.pop_front()
    }

    fn room(&self, _: LaneId) -> u32 {
        u32::MAX
    }

    fn submit(&mut self, _: LaneId, request: IoRequest) -> Result<(), IoRequest> {
        let flight = (request.token, clock::now());
        self.client.try_submit_to(request, &self.ends.0)?;
        self.flights.push(flight);
        Ok(())
    }

    fn watch(&mut self, _: RawFd, _: Interest, _: u64) {}

    fn unwatch(&mut self, _: u64) {}

    fn next_ready(&mut self) -> Option<u64> {
        None
    }

    unsafe fn command(&mut self, _: &UringCommand, _: u64) {}

    fn next_command(&mut self) -> Option<(u64, i32)> {
        None
    }

    fn stop(&mut self) {
        self.stopped = true;
    }

    fn stopping(&self) -> bool {
        false
    }
}
