//! Diffie-Hellman worker: a thread that computes powers for authentications. One power takes 0.5 to 13 ms, depending on
//! the group, and would block a reactor. Sources take turns. A source with too many pending computations is refused
//! more, so that it delays no other.

use roadtrain_proto::security::dhchap::DhTask;
use roadtrain_reactor::sources::{ConnectionSource, SourceTurns};
use roadtrain_reactor::tuning;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use thiserror::Error;

/// Most pending computations of one source: 256 hosts behind one address can connect at once.
const WAITING_MAX: usize = 256;

/// Error: the source has the most pending computations.
#[derive(Debug, Error)]
#[error("{WAITING_MAX} authentications from its address wait already")]
pub(super) struct DhWorkerBusy;

/// Handle of the worker thread, which ends with it.
#[derive(Debug)]
pub(super) struct DhWorker(Arc<DhWorkerShared>);

#[derive(Debug, Default)]
struct DhWorkerShared {
    state: Mutex<DhWorkerState>,
    has_changed: Condvar,
}

#[derive(Debug, Default)]
struct DhWorkerState {
    turns: SourceTurns<DhTask>,
    is_over: bool,
    /// Number of computations that have begun, and number of those that have ended.
    begun: u64,
    ended: u64,
}

impl DhWorkerShared {
    fn lock(&self) -> MutexGuard<'_, DhWorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next computation that a caller still needs; `None` at the end.
    fn next(&self) -> Option<DhTask> {
        let mut state = self.lock();
        state.ended = state.begun;
        loop {
            if state.is_over {
                return None;
            }
            match state.turns.take_next() {
                Some(work) if work.is_abandoned() => {}
                Some(work) => {
                    state.begun += 1;
                    return Some(work);
                }
                None => {
                    let waited = self.has_changed.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl Drop for DhWorker {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.has_changed.notify_one();
    }
}

impl DhWorker {
    /// Starts the thread. It calls `done` after each computation that a caller still needs.
    pub(super) fn start(done: impl Fn() + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<DhWorkerShared>::default();
        let own = shared.clone();
        let run = move || {
            tuning::lower_priority();
            while let Some(work) = own.next() {
                work.compute();
                drop(work);
                done();
            }
        };
        thread::Builder::new().name("roadtrain-auth".into()).spawn(run)?;
        Ok(DhWorker(shared))
    }

    /// Queues a computation for the next turn of its source.
    ///
    /// # Errors
    ///
    /// The source has too many pending computations.
    pub(super) fn compute(
        &self,
        source: ConnectionSource,
        work: DhTask,
    ) -> Result<(), DhWorkerBusy> {
        let mut state = self.0.lock();
        if let Some(waiting) = state.turns.of(&source)
            && waiting.len() >= WAITING_MAX
        {
            waiting.retain(|work| !work.is_abandoned());
            if waiting.len() >= WAITING_MAX {
                return Err(DhWorkerBusy);
            }
        }
        state.turns.put(source, work);
        self.0.has_changed.notify_one();
        Ok(())
    }

    /// True if no computation is pending or running.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.turns.is_empty() && state.ended == state.begun
    }

    /// Returns the number of computations that have begun.
    #[cfg(test)]
    pub(super) fn begun(&self) -> u64 {
        self.0.lock().begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_proto::security::dhchap::{
        AuthController, AuthOffer, AuthParties, AuthProgress, DhGroup,
    };
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    /// Creates the computation of a host that begins to authenticate, and its controller.
    fn work() -> (AuthController, DhTask) {
        let parties = AuthParties {
            hostnqn: "nqn.x:host".into(),
            subnqn: "nqn.x:subsystem".into(),
            host_key: None,
            controller_key: None,
        };
        let offer = AuthOffer { groups: vec![DhGroup::Ffdhe2048], ..AuthOffer::default() };
        let mut controller = AuthController::new(parties, offer);
        let mut negotiate = [0; 72];
        (negotiate[7], negotiate[8], negotiate[10], negotiate[11]) = (1, 1, 1, 1);
        (negotiate[12], negotiate[42]) = (1, 1);
        let mut random = |place: &mut [u8]| place.fill(0xa5);
        let AuthProgress::Compute(work) = controller.send(&negotiate, &mut random) else {
            panic!("it has a group")
        };
        (controller, work)
    }

    /// One source has the most pending computations and is refused more. The next one computed belongs to another
    /// source, and abandoned ones free their places.
    #[test]
    fn a_flood_is_refused_and_delays_no_other_source() {
        let (begun, begins) = channel();
        let (go_on, goes_on) = channel::<()>();
        let dh_worker = DhWorker::start(move || {
            begun.send(()).unwrap();
            let _ = goes_on.recv();
        });
        let dh_worker = dh_worker.unwrap();
        let flood = || ConnectionSource::from("127.0.0.2:1");
        let mut waiting = vec![work()];
        dh_worker.compute(flood(), waiting[0].1.clone()).unwrap();
        begins.recv_timeout(LONG).unwrap(); // the first is done; the thread waits for the test
        for _ in 0..WAITING_MAX {
            let (controller, work) = work();
            dh_worker.compute(flood(), work.clone()).unwrap();
            waiting.push((controller, work));
        }
        let (_controller, more) = work();
        assert!(dh_worker.compute(flood(), more.clone()).is_err());
        let (_honest, honest) = work();
        dh_worker.compute("127.0.0.1:1".into(), honest.clone()).unwrap();
        for _ in 0..2 {
            go_on.send(()).unwrap();
            begins.recv_timeout(LONG).unwrap();
        }
        assert!(honest.result().is_some(), "its turn comes after one of the flood's");
        let computed = waiting.iter().filter(|(_, work)| work.result().is_some()).count();
        assert!(computed <= 3, "{computed} of the flood's");
        waiting.clear();
        dh_worker.compute(flood(), more.clone()).unwrap();
        go_on.send(()).unwrap();
        begins.recv_timeout(LONG).unwrap();
        assert!(more.result().is_some(), "the abandoned ones are not computed");
        drop(go_on);
    }
}
