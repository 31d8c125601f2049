//! A target's name: the addresses that it stands for, asked anew for each connection.

use super::link::LinkError;
use super::stopping;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often a lookup that takes its time is looked after.
const STEP: Duration = Duration::from_millis(50);

/// What answers which addresses a host's name stands for, with the port in them.
pub type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// A host's name and a port. Its clones share what was last known.
#[derive(Clone)]
pub struct TargetName {
    host: String,
    port: u16,
    lookup: Arc<Lookup>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// What the last lookup that worked has said.
    known: Vec<SocketAddr>,
    /// Where the last connection went.
    used: Option<SocketAddr>,
    /// A lookup that took too long.
    running: Option<Receiver<io::Result<Vec<SocketAddr>>>>,
}

impl TargetName {
    /// A name that the system looks up: /etc/hosts, DNS, whatever it is told to use.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        let system = |host: &str, port| Ok((host, port).to_socket_addrs()?.collect());
        TargetName::with_lookup(host, port, system)
    }

    /// A name that `lookup` knows, which may take its time: it has a thread of its own.
    #[must_use]
    pub fn with_lookup(
        host: &str,
        port: u16,
        lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        let (host, lookup) = (host.to_owned(), Arc::new(lookup));
        TargetName { host, port, lookup, state: Arc::default() }
    }

    /// What the name stands for now, at least one address. When that is not known within `timeout` it is what
    /// was last known: who answers names may be gone at the same time as the target, or live on it.
    ///
    /// # Errors
    /// It has never been known.
    pub(super) fn addresses(&self, timeout: Duration) -> Result<Vec<SocketAddr>, LinkError> {
        let answer = self.ask(timeout);
        let mut state = self.state();
        match answer {
            Ok(found) => {
                state.known.clone_from(&found);
                Ok(found)
            }
            Err(source) if state.known.is_empty() => Err(LinkError::Name(source)),
            Err(error) => {
                warn!("{}: {error}; trying the addresses it had", self.host);
                Ok(state.known.clone())
            }
        }
    }

    /// Addresses that the name stands for now; none if they are not known within `timeout`.
    #[must_use]
    pub fn known_addresses(&self, timeout: Duration) -> Vec<SocketAddr> {
        self.addresses(timeout).unwrap_or_default()
    }

    /// A connection to `address` was made.
    pub(super) fn connected(&self, address: SocketAddr) {
        let before = self.state().used.replace(address);
        if before.is_some_and(|before| before != address) {
            info!("{self} is at {address} now");
        }
    }

    fn ask(&self, timeout: Duration) -> io::Result<Vec<SocketAddr>> {
        // Never more than one at a time, however long it takes. An answer that waits already is an old one.
        let running = self.state().running.take();
        let running = running.filter(|r| matches!(r.try_recv(), Err(TryRecvError::Empty)));
        let answer = match running {
            Some(running) => running,
            None => self.start()?,
        };
        match wait(&answer, timeout) {
            Ok(Ok(found)) if found.is_empty() => {
                Err(io::Error::new(io::ErrorKind::NotFound, "the name stands for no address"))
            }
            Ok(found) => found,
            Err(_) => {
                self.state().running = Some(answer);
                let text = format!("looking up the name took longer than {timeout:.0?}");
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
        }
    }

    fn start(&self) -> io::Result<Receiver<io::Result<Vec<SocketAddr>>>> {
        let (told, answer) = sync_channel(1);
        let (host, port, lookup) = (self.host.clone(), self.port, self.lookup.clone());
        let body = move || {
            let _ = told.send(lookup(&host, port)); // nobody may want it any more
        };
        thread::Builder::new().name("roadtrain-name".into()).spawn(body)?;
        Ok(answer)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the answer, in steps: the controller may be told to end meanwhile (`stopping`).
fn wait<T>(answer: &Receiver<T>, timeout: Duration) -> Result<T, RecvTimeoutError> {
    let end = Instant::now() + timeout;
    loop {
        let left = stopping::limit(end.saturating_duration_since(Instant::now()));
        match answer.recv_timeout(left.min(STEP)) {
            Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
            done => return done,
        }
    }
}

impl fmt::Debug for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TargetName({self})")
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 4420))
    }

    /// Answer of all lookups: they wait while there is none.
    #[derive(Default)]
    struct Answer(Mutex<Option<u8>>, Condvar);

    impl Answer {
        fn set(&self, last: Option<u8>) {
            *self.0.lock().unwrap() = last;
            self.1.notify_all();
        }

        fn get(&self) -> u8 {
            let last = self.1.wait_while(self.0.lock().unwrap(), |last| last.is_none()).unwrap();
            last.expect("waited for")
        }
    }

    /// A name with that answer, and how often it was looked up.
    fn slow_name() -> (TargetName, Arc<Answer>, Arc<AtomicUsize>) {
        let (answer, asked) = (Arc::<Answer>::default(), Arc::new(AtomicUsize::new(0)));
        let (given, count) = (answer.clone(), asked.clone());
        let name = TargetName::with_lookup("disk", 4420, move |_, _| {
            count.fetch_add(1, SeqCst);
            Ok(vec![address(given.get())])
        });
        (name, answer, asked)
    }

    #[test]
    fn a_lookup_that_hangs_is_not_waited_for_and_not_repeated() {
        let (name, answer, asked) = slow_name();
        let short = Duration::from_millis(5);
        for _ in 0..5 {
            let error = name.addresses(short).unwrap_err().to_string();
            assert!(error.contains("took longer"), "{error}");
        }
        assert!(asked.load(SeqCst) <= 1);
        answer.set(Some(1));
        assert_eq!(name.addresses(Duration::from_secs(60)).unwrap(), [address(1)]);
        // No lookup is answered any more: what was known.
        answer.set(None);
        assert_eq!(name.addresses(short).unwrap(), [address(1)]);
        assert_eq!(name.addresses(short).unwrap(), [address(1)]);
        answer.set(Some(2));
        assert_eq!(name.addresses(Duration::from_secs(60)).unwrap(), [address(2)]);
    }

    #[test]
    fn names_that_stand_for_nothing() {
        let name = TargetName::with_lookup("disk", 4420, |_, _| Ok(Vec::new()));
        let error = name.addresses(Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().contains("no address"), "{error}");
    }

    #[test]
    fn names_are_told_with_their_port() {
        assert_eq!(TargetName::new("disk", 4420).to_string(), "disk:4420");
        assert_eq!(TargetName::new("fe80::1%eth1", 1).to_string(), "[fe80::1%eth1]:1");
    }
}
