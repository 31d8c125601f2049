//! Powers of authentications, computed by a thread of their own: one takes half a millisecond to 13 ms, by group, and a
//! reactor has other things to do. Sources take turns, and one that has many waiting is refused more, so that nobody
//! keeps others waiting.

use roadtrain_proto::security::dhchap::Work;
use roadtrain_reactor::sources::{Source, Turns};
use roadtrain_reactor::tuning;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use thiserror::Error;

/// Powers of one source that may wait: 256 hosts behind one address that connect at once are let in.
const WAITING_MAX: usize = 256;

/// A source has as much waiting as it may.
#[derive(Debug, Error)]
#[error("{WAITING_MAX} authentications from its address wait already")]
pub(super) struct Full;

/// The way to the thread, which ends with this.
#[derive(Debug)]
pub(super) struct Powers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    has_changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    turns: Turns<Work>,
    is_over: bool,
    /// Works whose computation has begun, and of these those whose computation has ended.
    begun: u64,
    ended: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next that somebody still waits for; `None` at the end.
    fn next(&self) -> Option<Work> {
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

impl Drop for Powers {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.has_changed.notify_one();
    }
}

impl Powers {
    /// Starts the thread. It calls `done` after each work that somebody still waited for.
    pub(super) fn start(done: impl Fn() + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let own = shared.clone();
        let run = move || {
            tuning::give_way();
            while let Some(work) = own.next() {
                work.compute();
                drop(work);
                done();
            }
        };
        thread::Builder::new().name("roadtrain-auth".into()).spawn(run)?;
        Ok(Powers(shared))
    }

    /// Has it computed, when it is the source's turn.
    ///
    /// # Errors
    /// The source has too much waiting.
    pub(super) fn compute(&self, source: Source, work: Work) -> Result<(), Full> {
        let mut state = self.0.lock();
        if let Some(waiting) = state.turns.of(&source)
            && waiting.len() >= WAITING_MAX
        {
            waiting.retain(|work| !work.is_abandoned());
            if waiting.len() >= WAITING_MAX {
                return Err(Full);
            }
        }
        state.turns.put(source, work);
        self.0.has_changed.notify_one();
        Ok(())
    }

    /// Nothing waits, and nothing is being computed.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.turns.is_empty() && state.ended == state.begun
    }

    /// Works whose computation has begun.
    #[cfg(test)]
    pub(super) fn begun(&self) -> u64 {
        self.0.lock().begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_proto::security::dhchap::{Controller, Group, Offer, Parties, Progress};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    /// What a host that begins has computed, and who waits for it.
    fn work() -> (Controller, Work) {
        let parties = Parties {
            hostnqn: "nqn.x:host".into(),
            subnqn: "nqn.x:subsystem".into(),
            host_key: None,
            controller_key: None,
        };
        let offer = Offer { groups: vec![Group::Ffdhe2048], ..Offer::default() };
        let mut controller = Controller::new(parties, offer);
        let mut negotiate = [0; 72];
        (negotiate[7], negotiate[8], negotiate[10], negotiate[11]) = (1, 1, 1, 1);
        (negotiate[12], negotiate[42]) = (1, 1);
        let mut random = |place: &mut [u8]| place.fill(0xa5);
        let Progress::Compute(work) = controller.send(&negotiate, &mut random) else {
            panic!("it has a group")
        };
        (controller, work)
    }

    /// One source has all that it may waiting, and is refused more; another's is computed next, and what was abandoned
    /// gives its place back.
    #[test]
    fn a_flood_is_refused_and_keeps_nobody_waiting() {
        let (begun, begins) = channel();
        let (go_on, goes_on) = channel::<()>();
        let powers = Powers::start(move || {
            begun.send(()).unwrap();
            let _ = goes_on.recv();
        });
        let powers = powers.unwrap();
        let flood = || Source::from("127.0.0.2:1");
        let mut waiting = vec![work()];
        powers.compute(flood(), waiting[0].1.clone()).unwrap();
        begins.recv_timeout(LONG).unwrap(); // the first is done; the thread waits for us
        for _ in 0..WAITING_MAX {
            let (controller, work) = work();
            powers.compute(flood(), work.clone()).unwrap();
            waiting.push((controller, work));
        }
        let (_controller, more) = work();
        assert!(powers.compute(flood(), more.clone()).is_err());
        let (_honest, honest) = work();
        powers.compute("127.0.0.1:1".into(), honest.clone()).unwrap();
        for _ in 0..2 {
            go_on.send(()).unwrap();
            begins.recv_timeout(LONG).unwrap();
        }
        assert!(honest.powers().is_some(), "its turn comes after one of the flood's");
        let computed = waiting.iter().filter(|(_, work)| work.powers().is_some()).count();
        assert!(computed <= 3, "{computed} of the flood's");
        waiting.clear();
        powers.compute(flood(), more.clone()).unwrap();
        go_on.send(()).unwrap();
        begins.recv_timeout(LONG).unwrap();
        assert!(more.powers().is_some(), "the abandoned ones are not computed");
        drop(go_on);
    }
}
