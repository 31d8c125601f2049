//! Name of a target, resolved anew for each connection.

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

/// Interval of checks of a slow lookup.
const STEP: Duration = Duration::from_millis(50);

/// Resolver: returns the addresses of a host name, with the port.
pub type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Host name and port. Clones share the last known addresses.
#[derive(Clone)]
pub struct TargetName {
    host: String,
    port: u16,
    lookup: Arc<Lookup>,
    state: Arc<Mutex<NameState>>,
}

#[derive(Default)]
struct NameState {
    /// Addresses of the last successful lookup.
    known: Vec<SocketAddr>,
    /// Address of the last connection.
    used: Option<SocketAddr>,
    /// Lookup that took too long and still runs.
    running: Option<Receiver<io::Result<Vec<SocketAddr>>>>,
}

impl TargetName {
    /// Creates a name that the system resolves: /etc/hosts, DNS, or as it is configured.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        let system = |host: &str, port| Ok((host, port).to_socket_addrs()?.collect());
        TargetName::with_lookup(host, port, system)
    }

    /// Creates a name that `lookup` resolves, on a thread of its own.
    #[must_use]
    pub fn with_lookup(
        host: &str,
        port: u16,
        lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        let (host, lookup) = (host.to_owned(), Arc::new(lookup));
        TargetName { host, port, lookup, state: Arc::default() }
    }

    /// Resolves the name to at least one address. If that takes longer than `timeout` or fails, returns the last known
    /// addresses: the name server may fail together with the target, or run on it.
    ///
    /// # Errors
    /// The name was never resolved.
    pub(super) fn addresses(&self, timeout: Duration) -> Result<Vec<SocketAddr>, LinkError> {
        let answer = self.query(timeout);
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

    /// Resolves the name; returns no addresses if they are not known within `timeout`.
    #[must_use]
    pub fn known_addresses(&self, timeout: Duration) -> Vec<SocketAddr> {
        self.addresses(timeout).unwrap_or_default()
    }

    /// Records a connection to `address`.
    pub(super) fn connected(&self, address: SocketAddr) {
        let before = self.state().used.replace(address);
        if before.is_some_and(|before| before != address) {
            info!("{self} is at {address} now");
        }
    }

    fn query(&self, timeout: Duration) -> io::Result<Vec<SocketAddr>> {
        // Only one lookup runs at a time, however long it takes. A result that is already available is outdated.
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
                let text = format!("resolving the name took longer than {timeout:.0?}");
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
        }
    }

    fn start(&self) -> io::Result<Receiver<io::Result<Vec<SocketAddr>>>> {
        let (sender, answer) = sync_channel(1);
        let (host, port, lookup) = (self.host.clone(), self.port, self.lookup.clone());
        let body = move || {
            let _ = sender.send(lookup(&host, port)); // the receiver may be gone
        };
        thread::Builder::new().name("roadtrain-name".into()).spawn(body)?;
        Ok(answer)
    }

    fn state(&self) -> MutexGuard<'_, NameState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the result, in steps: the controller may have to end meanwhile (`stopping`).
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

    /// Result of all lookups: they block while there is none.
    #[derive(Default)]
    struct LookupResult(Mutex<Option<u8>>, Condvar);

    impl LookupResult {
        fn set(&self, last: Option<u8>) {
            *self.0.lock().unwrap() = last;
            self.1.notify_all();
        }

        fn get(&self) -> u8 {
            let last = self.1.wait_while(self.0.lock().unwrap(), |last| last.is_none()).unwrap();
            last.expect("waited for")
        }
    }

    /// Returns a name with a result that the test controls, and the number of its lookups.
    fn slow_name() -> (TargetName, Arc<LookupResult>, Arc<AtomicUsize>) {
        let (answer, lookups) = (Arc::<LookupResult>::default(), Arc::new(AtomicUsize::new(0)));
        let (given, count) = (answer.clone(), lookups.clone());
        let name = TargetName::with_lookup("disk", 4420, move |_, _| {
            count.fetch_add(1, SeqCst);
            Ok(vec![address(given.get())])
        });
        (name, answer, lookups)
    }

    #[test]
    fn a_lookup_that_hangs_is_not_waited_for_and_not_repeated() {
        let (name, answer, lookups) = slow_name();
        let short = Duration::from_millis(5);
        for _ in 0..5 {
            let error = name.addresses(short).unwrap_err().to_string();
            assert!(error.contains("took longer"), "{error}");
        }
        assert!(lookups.load(SeqCst) <= 1);
        answer.set(Some(1));
        assert_eq!(name.addresses(Duration::from_secs(60)).unwrap(), [address(1)]);
        // No further lookup completes: the last known addresses count.
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
    fn names_are_displayed_with_their_port() {
        assert_eq!(TargetName::new("disk", 4420).to_string(), "disk:4420");
        assert_eq!(TargetName::new("fe80::1%eth1", 1).to_string(), "[fe80::1%eth1]:1");
    }
}
