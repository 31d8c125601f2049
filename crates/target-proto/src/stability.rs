//! What a failed flush means, and for whom.
//!
//! After a failed fdatasync the system reports success the next time, though what it could not write is lost.
//! So a failure is final, and it concerns everybody whose writes may be among the lost ones:
//!
//! - a store's *epoch* grows with each flush that has failed;
//! - a lane notes the epoch in which each write began that it has answered ([`Mark`]);
//! - a flush of a controller takes these marks. If one of them is of an earlier epoch, the flush fails: that
//!   is how the controller is told, once.
//!
//! A host with several paths writes by one controller and flushes by another. So a flush also fails if the host's other
//! controllers have marks of an earlier epoch, once for each epoch. These marks stay: the other controllers may belong to
//! another process of that host, which is to be told as well. What another controller was told of shortly before counts
//! like its marks, and so does what one has left that has ended: its answer may be lost, and the host repeats the flush
//! over the path that is left.
//!
//! Two flushes at a time could hide a failure: one gets the error, the other one succeeds and is answered
//! first. So a store is flushed once at a time. Whoever asks meanwhile waits for the next flush, which is one
//! for all of them.
//!
//! A host that has lost its connections repeats what was not answered over a new controller. So a
//! controller's marks outlive it, for the next one of the same host, with what it was told shortly before its
//! end: the answer may have been lost.

use core::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::sync::Arc;

/// How many flushes of a store had failed at a moment.
pub type Epoch = u64;

/// No write waits for a flush.
const CLEAN: Epoch = Epoch::MAX;
/// Hosts without controllers whose marks are kept one by one.
const FORMER_HOSTS_MAX: usize = 256;
/// An answer so old has arrived, if its connection still lives.
const ARRIVED: Duration = Duration::from_secs(120);

/// The oldest epoch in which a lane began a write that no flush has covered. Each lane has its own for each
/// store, in a cache line that hardly anybody else touches.
#[derive(Debug)]
#[repr(align(64))]
pub struct Mark(AtomicU64);

impl Mark {
    /// A write that began in epoch `began` has succeeded and is about to be answered.
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

/// A controller, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub cntlid: u16,
    pub hostid: [u8; 16],
    pub hostnqn: Arc<str>,
}

impl User {
    fn is_same_host(&self, other: &User) -> bool {
        self.hostid == other.hostid && self.hostnqn == other.hostnqn
    }
}

/// How a flush of the store went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Everything that was written before is stable.
    Done,
    /// What was written before may be lost, whatever a later flush says.
    Failed,
    /// It was not carried out.
    NotRun,
}

/// What a flush that waited for another one is to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Flush, for itself and others.
    Lead,
    /// Another one has flushed for it.
    Ended(Flushed),
}

/// A flush of a controller, under way.
#[derive(Debug)]
#[must_use]
pub struct Ticket {
    user: User,
    number: u64,
    oldest: Epoch,
    /// The oldest of what the host's other controllers may have to be told, those that have ended included.
    of_others: Epoch,
}

/// What a controller has to be told of.
#[derive(Debug)]
struct Account {
    user: User,
    marks: Vec<Arc<Mark>>,
    /// Of lanes that have ended, and of earlier controllers of the host.
    rest: Epoch,
    /// By number, the marks that flushes under way have taken, but for what the controller was told since.
    taken: Vec<(u64, Epoch)>,
    /// The oldest mark that it was told of, and when it was told last.
    told: Option<(Epoch, Instant)>,
    /// Of what others of its host had written before that epoch it was told.
    heard: Epoch,
}

impl Account {
    /// The oldest mark, and what may not have arrived yet.
    fn oldest(&self, now: Instant) -> Epoch {
        let marks = self.marks.iter().map(|mark| mark.oldest());
        let told = self.told.filter(|(_, at)| now.since(*at) < ARRIVED).map(|(oldest, _)| oldest);
        marks
            .chain(self.taken.iter().map(|(_, oldest)| *oldest))
            .chain(told)
            .fold(self.rest, Epoch::min)
    }

    fn is_over(&self) -> bool {
        self.marks.is_empty() && self.taken.is_empty()
    }
}

/// A host that has no controller but writes that no flush has covered.
#[derive(Debug)]
struct FormerHost {
    /// As it was left: its controller may still ask for the last flush, when its lanes have ended.
    account: Account,
    /// The oldest of it when it was left.
    oldest: Epoch,
    /// The number of the last flush that began before.
    flushes: u64,
}

/// A store's flushes. `W` is how somebody is woken who waits for one.
#[derive(Debug)]
pub struct Stability<W> {
    epoch: Epoch,
    accounts: Vec<Account>,
    former_hosts: Vec<FormerHost>,
    /// The oldest mark of hosts for which there was no room in `former_hosts`.
    strangers: Epoch,
    /// The number of the last flush that had begun when the last of them went.
    strangers_at: u64,
    /// Tickets so far.
    tickets: u64,
    is_running: bool,
    /// Flushes that have begun.
    flushes: u64,
    /// Who gets the result of the one that runs.
    riding: Vec<W>,
    /// Who waits for the next one.
    waiting: Vec<W>,
}

impl<W> Default for Stability<W> {
    fn default() -> Self {
        Stability {
            epoch: 0,
            accounts: Vec::new(),
            former_hosts: Vec::new(),
            strangers: CLEAN,
            strangers_at: 0,
            tickets: 0,
            is_running: false,
            flushes: 0,
            riding: Vec::new(),
            waiting: Vec::new(),
        }
    }
}

impl<W> Stability<W> {
    /// The epoch in which a write that starts now begins.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// A lane of `user` that may write.
    #[must_use]
    pub fn enter(&mut self, now: Instant, user: &User) -> Arc<Mark> {
        let mark = Arc::new(Mark(AtomicU64::new(CLEAN)));
        self.account(now, user).marks.push(mark.clone());
        mark
    }

    /// The admin queue of `user`, which is about to flush for the last time; its lanes may have ended.
    #[must_use]
    pub fn enter_last(&mut self, now: Instant, user: &User) -> Arc<Mark> {
        self.take_back(user);
        self.enter(now, user)
    }

    /// A lane has ended, and all its writes have.
    pub fn leave(&mut self, now: Instant, user: &User, mark: &Arc<Mark>) {
        let account = self.account(now, user);
        account.rest = account.rest.min(mark.oldest());
        account.marks.retain(|other| !Arc::ptr_eq(other, mark));
        self.close(now, user);
    }

    /// The host ends its controller, having been answered that all is stable: it waits for nothing any more.
    pub fn part(&mut self, now: Instant, user: &User) {
        self.take_back(user);
        self.account(now, user).told = None;
        self.close(now, user);
    }

    /// A flush of `user` was asked for: what it has written until now is to be stable.
    pub fn begin(&mut self, now: Instant, user: &User) -> Ticket {
        self.take_back(user);
        self.tickets += 1;
        let number = self.tickets;
        let of_others = self.of_others(now, user);
        let account = self.account(now, user);
        let untold = account.taken.iter().map(|(_, oldest)| *oldest);
        let marks = account.marks.iter().map(|mark| mark.take());
        let oldest = marks.chain(untold).fold(account.rest, Epoch::min);
        account.rest = CLEAN;
        account.taken.push((number, oldest));
        Ticket { user: user.clone(), number, oldest, of_others }
    }

    /// The oldest of what other controllers of that host may have to be told: those that live, and those that have ended.
    fn of_others(&self, now: Instant, user: &User) -> Epoch {
        let live = self.accounts.iter().filter(|account| account.user != *user);
        let live = live.filter(|account| account.user.is_same_host(user));
        let ended = self.former_hosts.iter().filter(|host| host.account.user.is_same_host(user));
        let live = live.map(|account| account.oldest(now));
        live.chain(ended.map(|host| host.oldest)).fold(CLEAN, Epoch::min)
    }

    /// The flush has ended. Whether its controller may be told that all is stable; if not, it is told of
    /// everything that was lost by now.
    pub fn settle(&mut self, now: Instant, ticket: Ticket, flushed: Flushed) -> bool {
        let Ticket { user, number, oldest, of_others } = ticket;
        let epoch = self.epoch;
        let account = self.account(now, &user);
        let taken = account.taken.iter().position(|(other, _)| *other == number);
        let untold = taken.map_or(oldest, |at| account.taken.swap_remove(at).1);
        let is_news = of_others < epoch && account.heard < epoch;
        let is_good = flushed == Flushed::Done && oldest >= epoch && !is_news;
        match flushed {
            Flushed::NotRun => account.rest = account.rest.min(untold),
            _ if is_good => {}
            _ => {
                let told = account.told.map_or(CLEAN, |(told, _)| told);
                account.told = Some((told.min(oldest), now));
                account.heard = epoch;
                // What the others have taken may hold later writes, too.
                account.taken.iter_mut().for_each(|(_, taken)| *taken = epoch.max(*taken));
            }
        }
        self.close(now, &user);
        is_good
    }

    /// Asks for the store to be flushed. Whether `waiter` is to do that now; else it is woken.
    pub fn join(&mut self, waiter: W) -> bool {
        if self.is_running {
            self.waiting.push(waiter);
            return false;
        }
        self.is_running = true;
        self.flushes += 1;
        true
    }

    /// The flush of the store that ran has ended. Who is woken by that, and for what.
    #[must_use]
    pub fn ended(&mut self, flushed: Flushed) -> Vec<(W, Wake)> {
        let riding = core::mem::take(&mut self.riding);
        let mut wakes = Vec::new();
        match flushed {
            Flushed::NotRun => drop(self.waiting.splice(..0, riding)),
            _ => wakes.extend(riding.into_iter().map(|waiter| (waiter, Wake::Ended(flushed)))),
        }
        match flushed {
            Flushed::Failed => self.epoch += 1,
            Flushed::Done => {
                let (epoch, number) = (self.epoch, self.flushes);
                self.former_hosts.retain(|host| host.oldest < epoch || host.flushes >= number);
                if self.strangers >= epoch && self.strangers_at < number {
                    self.strangers = CLEAN;
                }
            }
            Flushed::NotRun => {}
        }
        self.is_running = !self.waiting.is_empty();
        if self.is_running {
            self.flushes += 1;
            wakes.push((self.waiting.remove(0), Wake::Lead));
            self.riding = core::mem::take(&mut self.waiting);
        }
        wakes
    }

    /// Hosts whose writes may be lost and who were not told.
    #[must_use]
    pub fn untold(&self) -> usize {
        let oldest = |account: &Account| {
            account.marks.iter().map(|mark| mark.oldest()).fold(account.rest, Epoch::min)
        };
        let accounts = self.accounts.iter().map(oldest);
        let all = accounts.chain(self.former_hosts.iter().map(|host| host.oldest));
        all.chain([self.strangers]).filter(|oldest| *oldest < self.epoch).count()
    }

    /// Whether all that was written was flushed by who has written it.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let is_dirty = |account: &Account| {
            account.rest != CLEAN || account.marks.iter().any(|mark| mark.oldest() != CLEAN)
        };
        self.former_hosts.is_empty()
            && self.strangers == CLEAN
            && !self.accounts.iter().any(is_dirty)
    }

    /// The account of `user`. A new one begins with what is left of the host's earlier controllers, and with
    /// what others have that live: they may be lost connections that nobody has noticed.
    fn account(&mut self, now: Instant, user: &User) -> &mut Account {
        if let Some(at) = self.accounts.iter().position(|account| account.user == *user) {
            return &mut self.accounts[at];
        }
        let others = self.accounts.iter().filter(|account| account.user.is_same_host(user));
        let others = others.map(|account| account.oldest(now));
        let mut rest = others.fold(self.strangers, Epoch::min);
        self.former_hosts.retain(|host| {
            let is_it = host.account.user.is_same_host(user);
            if is_it {
                rest = rest.min(host.oldest);
            }
            !is_it
        });
        let user = user.clone();
        let (marks, taken) = (Vec::new(), Vec::new());
        let heard = self.epoch; // the rest has what was before
        self.accounts.push(Account { user, marks, rest, taken, told: None, heard });
        self.accounts.last_mut().expect("just pushed")
    }

    /// A controller whose lanes have all ended does something by its admin queue, such as its last flush: it goes on
    /// with its account, and is not told again of what it was told, as its host's next controller is.
    fn take_back(&mut self, user: &User) {
        if let Some(at) = self.former_hosts.iter().position(|host| host.account.user == *user) {
            self.accounts.push(self.former_hosts.remove(at).account);
        }
    }

    /// Ends the account when nothing of the controller is left.
    fn close(&mut self, now: Instant, user: &User) {
        let is_it = |account: &Account| account.user == *user && account.is_over();
        let Some(at) = self.accounts.iter().position(is_it) else { return };
        let account = self.accounts.swap_remove(at);
        let oldest = account.oldest(now);
        if oldest == CLEAN {
            return;
        }
        if self.former_hosts.len() == FORMER_HOSTS_MAX {
            self.strangers = self.strangers.min(self.former_hosts.remove(0).oldest);
            self.strangers_at = self.flushes;
        }
        self.former_hosts.push(FormerHost { account, oldest, flushes: self.flushes });
    }
}

#[cfg(test)]
mod tests;
