//! Counts of a run: those of its hosts and of its targets' reactors, and the sum of all.

use crate::counting::Counted;
use crate::ether::net::Fates;
use crate::load::Tally;
use crate::secure::TlsEnds;
use crate::tenures::Held;
use core::iter::Sum;
use core::ops::AddAssign;
use core::time::Duration;

/// Past of a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    /// Associations that were complete.
    pub associations: u64,
    /// Requests submitted again.
    pub retries: u64,
    /// Commands aborted because they were not answered in time.
    pub aborts: u64,
    /// Times its requests were failed.
    pub surrenders: u64,
    /// Asynchronous events.
    pub events: u64,
    /// Times its process was killed.
    pub kills: u64,
    /// Times it was detached.
    pub detached: u64,
    /// Requests that went to another path.
    pub moved: u64,
    /// Times when what a lost path had could go to others.
    pub released: u64,
    /// Controllers that it has lost and had the target end.
    pub fenced: u64,
    /// The same, over another path.
    pub helped: u64,
    /// Reconnects that found acknowledged writes lost.
    pub writes_lost: u64,
    /// The longest time for which what was sent over a path that was lost had to wait.
    pub longest_hold: Duration,
    /// Express connections that were closed in order.
    pub expresses: u64,
    /// Express connections that were not to be had.
    pub expresses_refused: u64,
    /// Requests that took one.
    pub expressed: u64,
    /// Those of them that had not ended when their connection was lost.
    pub express_lost: u64,
}

impl AddAssign for Past {
    fn add_assign(&mut self, other: Past) {
        self.associations += other.associations;
        self.retries += other.retries;
        self.aborts += other.aborts;
        self.surrenders += other.surrenders;
        self.events += other.events;
        self.kills += other.kills;
        self.detached += other.detached;
        self.moved += other.moved;
        self.released += other.released;
        self.fenced += other.fenced;
        self.helped += other.helped;
        self.writes_lost += other.writes_lost;
        self.longest_hold = self.longest_hold.max(other.longest_hold);
        self.expresses += other.expresses;
        self.expresses_refused += other.expresses_refused;
        self.expressed += other.expressed;
        self.express_lost += other.express_lost;
    }
}

impl Sum for Past {
    fn sum<I: Iterator<Item = Past>>(pasts: I) -> Past {
        pasts.fold(Past::default(), |mut sum, past| {
            sum += past;
            sum
        })
    }
}

roadtrain_proto::counters! {
    /// Events that runs count.
    pub struct Counts {
        /// Lanes that had not noticed that their hosts had lost them.
        swept,
        /// Connects refused as commands of lost connections were on the disk.
        busy,
        /// Lanes whose hosts were asked for them, and those whose hosts have not answered.
        asked,
        /// See there.
        gone,
        /// Queues closed because the keep alive timer ran out.
        expired,
        /// Turns at whose end connections waited for buffers.
        starved,
        /// Connections ended as they kept buffers that others waited for.
        overdue,
        /// Lanes that have moved to another reactor.
        moved,
    }
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Requests.
    pub tally: Tally,
    /// Counters that hosts increment.
    pub counted: Counted,
    /// Tenures of hosts that take the namespace from one another.
    pub held: Held,
    /// The host's past.
    pub past: Past,
    /// Events that the targets' reactors have counted.
    pub target: Counts,
    /// Lanes over Ethernet that were made.
    pub made: u64,
    /// Octets that were no frame, or of no lane.
    pub foreign: u64,
    /// How often octets under way were changed.
    pub forged: u64,
    /// Why ends of connections with TLS were over.
    pub tls: TlsEnds,
    /// Frames that sealed lanes have refused.
    pub refused: u64,
    /// Lanes that their hosts gave up because nothing but an echo came.
    pub silent: u64,
    /// Fates of frames.
    pub fates: Fates,
    /// Moments at which something happened.
    pub moments: u64,
}

impl AddAssign for Summary {
    fn add_assign(&mut self, other: Summary) {
        self.tally += other.tally;
        self.counted += other.counted;
        self.held += other.held;
        self.past += other.past;
        self.target += other.target;
        self.made += other.made;
        self.foreign += other.foreign;
        self.refused += other.refused;
        self.silent += other.silent;
        self.fates += other.fates;
        self.forged += other.forged;
        self.tls += other.tls;
        self.moments += other.moments;
    }
}
