//! Powers of authentications, computed by a thread of their own: they take up to a tenth of a second, and a reactor has
//! other things to do. Sources take turns, so that one with many connections does not keep others waiting. A
//! connection has one under way at most, so the limits of connections are limits of these as well.

use crate::tuning;
use roadtrain_proto::security::dhchap::Work;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Work, and where the host is that has caused it.
type Job = (String, Work);

/// The way to the thread.
#[derive(Debug)]
pub(super) struct Powers(Sender<Job>);

impl Powers {
    /// Starts the thread, which ends with this. It calls `done` after each work that somebody still waited for.
    pub(super) fn start(done: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (jobs, inbox) = channel();
        let run = move || {
            tuning::give_way();
            compute_all(&inbox, done);
        };
        thread::Builder::new().name("roadtrain-auth".into()).spawn(run)?;
        Ok(Powers(jobs))
    }

    /// Has it computed, after what other sources wait for.
    pub(super) fn compute(&self, source: &str, work: Work) {
        let _ = self.0.send((source.to_owned(), work)); // the thread lives as long as this
    }
}

fn compute_all(inbox: &Receiver<Job>, done: impl Fn()) {
    let mut turns = Turns::default();
    loop {
        if turns.0.is_empty() {
            let Ok(job) = inbox.recv() else { return };
            turns.put(job);
        }
        inbox.try_iter().for_each(|job| turns.put(job));
        let Some(work) = turns.next() else { continue };
        if work.is_abandoned() {
            continue;
        }
        work.compute();
        drop(work);
        done();
    }
}

/// What is to be computed, by source.
#[derive(Debug, Default)]
struct Turns(VecDeque<(String, VecDeque<Work>)>);

impl Turns {
    fn put(&mut self, (source, work): Job) {
        match self.0.iter_mut().find(|(other, _)| *other == source) {
            Some((_, waiting)) => waiting.push_back(work),
            None => self.0.push_back((source, VecDeque::from([work]))),
        }
    }

    /// The first of the source whose turn it is; that goes to the end.
    fn next(&mut self) -> Option<Work> {
        let (source, mut waiting) = self.0.pop_front()?;
        let work = waiting.pop_front();
        if !waiting.is_empty() {
            self.0.push_back((source, waiting));
        }
        work
    }
}

/// The address of a peer, without its port.
pub(super) fn source(peer: &str) -> &str {
    peer.rsplit_once(':').map_or(peer, |(address, _)| address)
}
