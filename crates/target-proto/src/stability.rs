//! Consequences of a failed flush, and the controllers to which it is reported.
//!
//! After a failed fdatasync the system reports success the next time, though the data that it could not write is lost.
//! So a failure is final, and it concerns everyone whose writes may be lost:
//!
//! - a store's *epoch* counts its failed flushes;
//! - a lane records the epoch in which each completed write began ([`WriteMark`]);
//! - a flush of a controller takes these marks. If one of them is of an earlier epoch, the flush fails: this reports
//!   the loss to the controller, once.
//!
//! A host with several paths writes on one controller and flushes on another. So a flush also fails if the host's other
//! controllers have marks of an earlier epoch, once for each epoch. These marks stay: the other controllers may belong
//! to another process of that host, which needs the report as well. A recent report to another controller counts like
//! its marks, and so do the marks of an ended one: its completion may be lost, and the host repeats the flush on the
//! remaining path.
//!
//! Two concurrent flushes could hide a failure: one gets the error, the other one succeeds and completes first. So a
//! store runs one flush at a time. Flushes requested meanwhile wait for the next one, which serves all of them.
//!
//! A host that has lost its connections repeats uncompleted commands on a new controller. So a controller's marks
//! outlive it, for the next one of the same host, together with recent reports: their completions may have been lost.

use core::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::sync::Arc;

/// Number of failed flushes of a store at some time.
pub type Epoch = u64;

/// No write waits for a flush.
const CLEAN: Epoch = Epoch::MAX;
/// Hosts without controllers whose marks are kept individually, at most.
const FORMER_HOSTS_MAX: usize = 256;
/// Age after which a completion has arrived, if its connection is still alive.
const ARRIVED: Duration = Duration::from_secs(120);

/// Oldest epoch in which a lane began a write that no flush has covered. Each lane has one for each store, in a cache
/// line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub struct WriteMark(AtomicU64);

impl WriteMark {
    /// Records a successful write that began in epoch `began`, before its completion.
    pub fn wrote(&self, began: Epoch) {
        self.0.fetch_min(began, AcqRel);
    }

    fn oldest(&self) -> Epoch {
        self.0.load(Acquire)
    }

    fn take(&self) -> Epoch {
        self.0.swap(CLEAN, AcqRel)
    }
}

/// A controller and its host, for stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUser {
    pub cntlid: u16,
    pub hostid: [u8; 16],
    pub hostnqn: Arc<str>,
}

impl StoreUser {
    fn is_same_host(&self, other: &StoreUser) -> bool {
        self.hostid == other.hostid && self.hostnqn == other.hostnqn
    }
}

/// Result of a store's flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Everything written before is stable.
    Done,
    /// Anything written before may be lost, whatever the result of a later flush.
    Failed,
    /// The flush was not executed.
    NotRun,
}

/// Order for a flush that waited for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Run the next flush, for itself and others.
    Lead,
    /// Another one has flushed for it.
    Ended(Flushed),
}

/// A flush of a controller in progress.
#[derive(Debug)]
#[must_use]
pub struct FlushTicket {
    user: StoreUser,
    number: u64,
    oldest: Epoch,
    /// Oldest epoch for which the host's other controllers may need a report, including ended ones.
    oldest_of_others: Epoch,
}

/// Account of a controller's writes and reports.
#[derive(Debug)]
struct StabilityAccount {
    user: StoreUser,
    marks: Vec<Arc<WriteMark>>,
    /// Oldest mark of ended lanes, and of earlier controllers of the host.
    rest: Epoch,
    /// By number, the marks taken by flushes in progress, except those reported since.
    taken: Vec<(u64, Epoch)>,
    /// Oldest reported mark, and time of the last report.
    reported: Option<(Epoch, Instant)>,
    /// Epoch up to which losses of the host's other controllers were reported to it.
    reported_of_others: Epoch,
}

impl StabilityAccount {
    /// Returns the oldest mark, including reports that may not have arrived yet.
    fn oldest(&self, now: Instant) -> Epoch {
        let marks = self.marks.iter().map(|mark| mark.oldest());
        let reported =
            self.reported.filter(|(_, at)| now.since(*at) < ARRIVED).map(|(oldest, _)| oldest);
        marks
            .chain(self.taken.iter().map(|(_, oldest)| *oldest))
            .chain(reported)
            .fold(self.rest, Epoch::min)
    }

    fn is_over(&self) -> bool {
        self.marks.is_empty() && self.taken.is_empty()
    }
}

/// A host without a controller, but with writes that no flush has covered.
#[derive(Debug)]
struct FormerHost {
    /// Account at its end: its controller may still request the last flush after its lanes have ended.
    account: StabilityAccount,
    /// Oldest mark at its end.
    oldest: Epoch,
    /// Number of the last flush that began before its end.
    flushes: u64,
}

/// Flushes of a store. `W` identifies a waiter.
#[derive(Debug)]
pub struct Stability<W> {
    epoch: Epoch,
    accounts: Vec<StabilityAccount>,
    former_hosts: Vec<FormerHost>,
    /// Oldest mark of hosts that did not fit into `former_hosts`.
    forgotten_hosts: Epoch,
    /// Number of the last flush that had begun when the last of them ended.
    forgotten_at: u64,
    /// Number of tickets issued.
    tickets: u64,
    is_running: bool,
    /// Number of flushes begun.
    flushes: u64,
    /// Waiters for the result of the running flush.
    sharing: Vec<W>,
    /// Waiters for the next flush.
    waiting: Vec<W>,
}

impl<W> Default for Stability<W> {
    fn default() -> Self {
        Stability {
            epoch: 0,
            accounts: Vec::new(),
            former_hosts: Vec::new(),
            forgotten_hosts: CLEAN,
            forgotten_at: 0,
            tickets: 0,
            is_running: false,
            flushes: 0,
            sharing: Vec::new(),
            waiting: Vec::new(),
        }
    }
}

impl<W> Stability<W> {
    /// Returns the epoch of a write that starts now.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Adds a lane of `user` that may write.
    #[must_use]
    pub fn enter(&mut self, now: Instant, user: &StoreUser) -> Arc<WriteMark> {
        let mark = Arc::new(WriteMark(AtomicU64::new(CLEAN)));
        self.account(now, user).marks.push(mark.clone());
        mark
    }

    /// Adds the admin queue of `user` for its last flush; its lanes may have ended.
    #[must_use]
    pub fn enter_last(&mut self, now: Instant, user: &StoreUser) -> Arc<WriteMark> {
        self.reopen_account(user);
        self.enter(now, user)
    }

    /// Removes a lane that has ended, with all its writes.
    pub fn leave(&mut self, now: Instant, user: &StoreUser, mark: &Arc<WriteMark>) {
        let account = self.account(now, user);
        account.rest = account.rest.min(mark.oldest());
        account.marks.retain(|other| !Arc::ptr_eq(other, mark));
        self.close(now, user);
    }

    /// Ends the reports to a controller after its successful shutdown: the host waits for nothing more.
    pub fn end_reports(&mut self, now: Instant, user: &StoreUser) {
        self.reopen_account(user);
        self.account(now, user).reported = None;
        self.close(now, user);
    }

    /// Begins a flush of `user`, for its writes until now.
    pub fn begin(&mut self, now: Instant, user: &StoreUser) -> FlushTicket {
        self.reopen_account(user);
        self.tickets += 1;
        let number = self.tickets;
        let oldest_of_others = self.oldest_of_others(now, user);
        let account = self.account(now, user);
        let untold = account.taken.iter().map(|(_, oldest)| *oldest);
        let marks = account.marks.iter().map(|mark| mark.take());
        let oldest = marks.chain(untold).fold(account.rest, Epoch::min);
        account.rest = CLEAN;
        account.taken.push((number, oldest));
        FlushTicket { user: user.clone(), number, oldest, oldest_of_others }
    }

    /// Returns the oldest epoch for which other controllers of that host may need a report, living or ended.
    fn oldest_of_others(&self, now: Instant, user: &StoreUser) -> Epoch {
        let live = self.accounts.iter().filter(|account| account.user != *user);
        let live = live.filter(|account| account.user.is_same_host(user));
        let ended = self.former_hosts.iter().filter(|host| host.account.user.is_same_host(user));
        let live = live.map(|account| account.oldest(now));
        live.chain(ended.map(|host| host.oldest)).fold(CLEAN, Epoch::min)
    }

    /// Ends a flush. Returns true if its controller may receive success. Otherwise this is its report of everything
    /// lost by now.
    pub fn settle(&mut self, now: Instant, ticket: FlushTicket, flushed: Flushed) -> bool {
        let FlushTicket { user, number, oldest, oldest_of_others } = ticket;
        let epoch = self.epoch;
        let account = self.account(now, &user);
        let taken = account.taken.iter().position(|(other, _)| *other == number);
        let untold = taken.map_or(oldest, |at| account.taken.swap_remove(at).1);
        let is_news = oldest_of_others < epoch && account.reported_of_others < epoch;
        let is_good = flushed == Flushed::Done && oldest >= epoch && !is_news;
        match flushed {
            Flushed::NotRun => account.rest = account.rest.min(untold),
            _ if is_good => {}
            _ => {
                let reported = account.reported.map_or(CLEAN, |(reported, _)| reported);
                account.reported = Some((reported.min(oldest), now));
                account.reported_of_others = epoch;
                // What the others have taken may hold later writes, too.
                account.taken.iter_mut().for_each(|(_, taken)| *taken = epoch.max(*taken));
            }
        }
        self.close(now, &user);
        is_good
    }

    /// Requests a flush of the store. Returns true if `waiter` has to run it now; otherwise it is woken.
    pub fn join(&mut self, waiter: W) -> bool {
        if self.is_running {
            self.waiting.push(waiter);
            return false;
        }
        self.is_running = true;
        self.flushes += 1;
        true
    }

    /// Ends the running flush of the store. Returns the waiters to wake, with their orders.
    #[must_use]
    pub fn ended(&mut self, flushed: Flushed) -> Vec<(W, Wake)> {
        let sharing = core::mem::take(&mut self.sharing);
        let mut wakes = Vec::new();
        match flushed {
            Flushed::NotRun => drop(self.waiting.splice(..0, sharing)),
            _ => wakes.extend(sharing.into_iter().map(|waiter| (waiter, Wake::Ended(flushed)))),
        }
        match flushed {
            Flushed::Failed => self.epoch += 1,
            Flushed::Done => {
                let (epoch, number) = (self.epoch, self.flushes);
                self.former_hosts.retain(|host| host.oldest < epoch || host.flushes >= number);
                if self.forgotten_hosts >= epoch && self.forgotten_at < number {
                    self.forgotten_hosts = CLEAN;
                }
            }
            Flushed::NotRun => {}
        }
        self.is_running = !self.waiting.is_empty();
        if self.is_running {
            self.flushes += 1;
            wakes.push((self.waiting.remove(0), Wake::Lead));
            self.sharing = core::mem::take(&mut self.waiting);
        }
        wakes
    }

    /// Returns the number of hosts with an unreported loss.
    #[must_use]
    pub fn unreported_hosts(&self) -> usize {
        let oldest = |account: &StabilityAccount| {
            account.marks.iter().map(|mark| mark.oldest()).fold(account.rest, Epoch::min)
        };
        let accounts = self.accounts.iter().map(oldest);
        let all = accounts.chain(self.former_hosts.iter().map(|host| host.oldest));
        all.chain([self.forgotten_hosts]).filter(|oldest| *oldest < self.epoch).count()
    }

    /// True if every write was flushed by its own controller.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let is_dirty = |account: &StabilityAccount| {
            account.rest != CLEAN || account.marks.iter().any(|mark| mark.oldest() != CLEAN)
        };
        self.former_hosts.is_empty()
            && self.forgotten_hosts == CLEAN
            && !self.accounts.iter().any(is_dirty)
    }

    /// Returns the account of `user`. A new one begins with the marks of the host's earlier controllers, and of its
    /// living ones: these may be lost connections that were not noticed.
    fn account(&mut self, now: Instant, user: &StoreUser) -> &mut StabilityAccount {
        if let Some(at) = self.accounts.iter().position(|account| account.user == *user) {
            return &mut self.accounts[at];
        }
        let others = self.accounts.iter().filter(|account| account.user.is_same_host(user));
        let others = others.map(|account| account.oldest(now));
        let mut rest = others.fold(self.forgotten_hosts, Epoch::min);
        self.former_hosts.retain(|host| {
            let is_it = host.account.user.is_same_host(user);
            if is_it {
                rest = rest.min(host.oldest);
            }
            !is_it
        });
        let user = user.clone();
        let (marks, taken) = (Vec::new(), Vec::new());
        let reported_of_others = self.epoch; // `rest` has the earlier marks
        self.accounts.push(StabilityAccount {
            user,
            marks,
            rest,
            taken,
            reported: None,
            reported_of_others,
        });
        self.accounts.last_mut().expect("just pushed")
    }

    /// Reopens the account of a controller whose lanes have ended, for commands on its admin queue such as its last
    /// flush. Earlier reports are not repeated, unlike for its host's next controller.
    fn reopen_account(&mut self, user: &StoreUser) {
        if let Some(at) = self.former_hosts.iter().position(|host| host.account.user == *user) {
            self.accounts.push(self.former_hosts.remove(at).account);
        }
    }

    /// Closes the account when nothing of the controller is left.
    fn close(&mut self, now: Instant, user: &StoreUser) {
        let is_it = |account: &StabilityAccount| account.user == *user && account.is_over();
        let Some(at) = self.accounts.iter().position(is_it) else { return };
        let account = self.accounts.swap_remove(at);
        let oldest = account.oldest(now);
        if oldest == CLEAN {
            return;
        }
        if self.former_hosts.len() == FORMER_HOSTS_MAX {
            self.forgotten_hosts = self.forgotten_hosts.min(self.former_hosts.remove(0).oldest);
            self.forgotten_at = self.flushes;
        }
        self.former_hosts.push(FormerHost { account, oldest, flushes: self.flushes });
    }
}

#[cfg(test)]
mod tests;
