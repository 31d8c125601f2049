//! Counters of a run: those of its hosts and of its targets' reactors, and their sum.

use crate::counting::CountingOutcomes;
use crate::ether::net::Fates;
use crate::load::LoadTally;
use crate::secure::TlsEnds;
use crate::tenures::TenureCounts;
use core::iter::Sum;
use core::ops::AddAssign;
use core::time::Duration;

/// Counters of a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostCounts {
    /// Complete associations.
    pub associations: u64,
    /// Requests submitted again.
    pub retries: u64,
    /// Commands aborted by a timeout.
    pub aborts: u64,
    /// Number of times its requests were failed.
    pub surrenders: u64,
    /// Asynchronous events.
    pub events: u64,
    /// Number of times its process was killed.
    pub kills: u64,
    /// Number of times it was detached.
    pub detached: u64,
    /// Requests that moved to another path.
    pub moved: u64,
    /// Number of times that requests of a lost path were released to others.
    pub released: u64,
    /// Lost controllers that it had the target end.
    pub fenced: u64,
    /// Lost controllers of other paths that it had the target end.
    pub helped: u64,
    /// Reconnects that found acknowledged writes lost.
    pub writes_lost: u64,
    /// Longest hold of requests of a lost path.
    pub longest_hold: Duration,
    /// Express connections that were closed in order.
    pub expresses: u64,
    /// Express connections that were refused.
    pub expresses_refused: u64,
    /// Requests over express connections.
    pub expressed: u64,
    /// Requests over express connections that were lost.
    pub express_lost: u64,
}

impl AddAssign for HostCounts {
    fn add_assign(&mut self, other: HostCounts) {
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

impl Sum for HostCounts {
    fn sum<I: Iterator<Item = HostCounts>>(pasts: I) -> HostCounts {
        pasts.fold(HostCounts::default(), |mut sum, past| {
            sum += past;
            sum
        })
    }
}

roadtrain_proto::counters! {
    /// Counters of targets.
    pub struct TargetCounts {
        /// Stale lanes, which had not detected that their hosts had lost them.
        stale_closed,
        /// Connects refused because commands of lost connections were on the disk.
        busy,
        /// Lanes whose hosts were queried.
        queried,
        /// Lanes whose hosts were queried and have not replied.
        unconfirmed,
        /// Queues closed by the keep-alive timer.
        expired,
        /// Turns at whose end connections waited for buffers.
        starved,
        /// Connections closed because they kept buffers that others waited for.
        overdue,
        /// Lanes that have moved to another reactor.
        moved,
    }
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Outcomes of requests.
    pub tally: LoadTally,
    /// Outcomes of attempts to count.
    pub counted: CountingOutcomes,
    /// Tenures of hosts that take the namespace from one another.
    pub held: TenureCounts,
    /// Counters of hosts.
    pub past: HostCounts,
    /// Counters of the targets' reactors.
    pub target: TargetCounts,
    /// Lanes over Ethernet that were made.
    pub made: u64,
    /// Received frames that were invalid, or of no lane.
    pub foreign: u64,
    /// Number of changes to bytes in flight.
    pub forged: u64,
    /// Reasons why ends of connections with TLS have ended.
    pub tls: TlsEnds,
    /// Frames that sealed lanes have refused.
    pub refused: u64,
    /// Lanes that hosts abandoned because only an echo arrived.
    pub silent: u64,
    /// Counters of frames.
    pub fates: Fates,
    /// Simulated steps.
    pub steps: u64,
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
        self.steps += other.steps;
    }
}
