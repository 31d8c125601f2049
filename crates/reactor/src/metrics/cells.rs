//! Counters that one thread writes and any thread reads.

use super::latency::{BUCKETS, Latency, bucket};
use super::snapshot::{Batching, IoCounters, StatusCount};
use roadtrain_wire::sqe::opcode;
use roadtrain_wire::status::Status;
use std::array;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A counter. Its one writer needs no atomic operation, only whole loads and stores.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `more`; only the owning thread calls it.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Sets the value; only the owning thread calls it.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Returns the value, on any thread.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Histogram of latencies.
#[derive(Debug)]
pub struct LatencyCells {
    buckets: [Counter; BUCKETS],
    ns: Counter,
}

impl Default for LatencyCells {
    fn default() -> Self {
        LatencyCells { buckets: array::from_fn(|_| Counter::default()), ns: Counter::default() }
    }
}

impl LatencyCells {
    /// Counts a latency in that bucket.
    #[inline]
    fn count_in(&self, bucket: usize, ns: u64) {
        self.buckets[bucket].add(1);
        self.ns.add(ns);
    }

    #[cfg(test)]
    #[inline]
    pub fn count(&self, ns: u64) {
        self.count_in(bucket(ns), ns);
    }
}

impl From<&LatencyCells> for Latency {
    fn from(cells: &LatencyCells) -> Latency {
        let mut buckets: Vec<u64> = cells.buckets.iter().map(Counter::get).collect();
        let used = buckets.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        buckets.truncate(used);
        Latency { buckets, sum_seconds: cells.ns.get() as f64 / 1e9 }
    }
}

/// A command that ended successfully.
#[derive(Clone, Copy, Debug)]
pub struct CommandOutcome {
    done: CommandKind,
    bucket: usize,
    bytes: u64,
    ns: u64,
}

impl CommandOutcome {
    /// A command that took `ns` nanoseconds; `bytes` of data of a Read or Write.
    #[inline]
    pub fn new(done: CommandKind, bytes: u64, ns: u64) -> CommandOutcome {
        CommandOutcome { done, bucket: bucket(ns), bytes, ns }
    }
}

/// Kind of a command, by its index in the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Dataset Management, or Write Zeroes.
    Discard,
    /// Any other command.
    Other,
}

impl CommandKind {
    /// Returns the kind of a command with that opcode.
    #[inline]
    pub fn of(code: u8) -> CommandKind {
        BY_OPCODE[usize::from(code)]
    }
}

/// Lookup table: cheaper than a jump that depends on the opcode.
static BY_OPCODE: [CommandKind; 256] = {
    let mut done = [CommandKind::Other; 256];
    done[opcode::READ as usize] = CommandKind::Read;
    done[opcode::WRITE as usize] = CommandKind::Write;
    done[opcode::FLUSH as usize] = CommandKind::Flush;
    done[opcode::DATASET_MANAGEMENT as usize] = CommandKind::Discard;
    done
};

/// I/O counters of a lane, or of a namespace on one reactor.
#[derive(Debug, Default)]
pub struct IoCells {
    latency: [LatencyCells; 2],
    others: [Counter; 3],
    bytes: [Counter; 2],
    discarded_bytes: Counter,
    errors: Counter,
    in_flight: Counter,
}

impl IoCells {
    /// Counts a successful command.
    #[inline]
    pub fn ended(&self, ended: CommandOutcome) {
        let CommandOutcome { done, bucket, bytes, ns } = ended;
        match (self.latency.get(done as usize), self.bytes.get(done as usize)) {
            (Some(latency), Some(of)) => {
                latency.count_in(bucket, ns);
                of.add(bytes);
            }
            _ => self.others[done as usize - CommandKind::Flush as usize].add(1),
        }
    }

    /// Counts discarded bytes.
    #[inline]
    pub fn discarded(&self, bytes: u64) {
        self.discarded_bytes.add(bytes);
    }

    /// Counts a failed command.
    #[inline]
    pub fn failed(&self) {
        self.errors.add(1);
    }

    /// Adds to the commands in flight. Start and end of a command may be on different reactors, as only the sum over
    /// all of them counts.
    #[inline]
    pub fn add_in_flight(&self, more: i64) {
        self.in_flight.add(more as u64);
    }

    /// Sets the number of commands in flight.
    #[inline]
    pub fn set_in_flight(&self, commands: u32) {
        self.in_flight.set(commands.into());
    }

    /// Returns the latencies of one kind, by its index.
    #[inline]
    pub fn latency(&self, of: usize) -> &LatencyCells {
        &self.latency[of]
    }

    /// Adds the counters to `sum`. `in_flight` may be below zero before all reactors are added.
    pub fn add_to(&self, sum: &mut IoCounters) {
        let [read, write] = &self.latency;
        let latencies = [(&mut sum.read_latency, read), (&mut sum.write_latency, write)];
        for (sum, cells) in latencies {
            *sum += &cells.into();
        }
        (sum.reads, sum.writes) = (sum.read_latency.count(), sum.write_latency.count());
        let counts = [&mut sum.flushes, &mut sum.discards, &mut sum.others];
        for (sum, cell) in counts.into_iter().zip(&self.others) {
            *sum += cell.get();
        }
        sum.read_bytes += self.bytes[0].get();
        sum.written_bytes += self.bytes[1].get();
        sum.discarded_bytes += self.discarded_bytes.get();
        sum.errors += self.errors.get();
        sum.in_flight = sum.in_flight.wrapping_add(self.in_flight.get() as i64);
    }
}

/// Maximum number of statuses counted separately; all others are counted together.
const STATUSES: usize = 15;

/// Failures by status.
#[derive(Debug, Default)]
pub struct Statuses {
    known: [(AtomicU32, Counter); STATUSES],
    others: Counter,
}

impl Statuses {
    /// Counts a failure with that status.
    pub fn count(&self, status: Status) {
        let code = u32::from(status.code());
        for (known, counter) in &self.known {
            let found = known.load(Relaxed);
            if found == 0 {
                known.store(code, Relaxed);
            }
            if found == 0 || found == code {
                return counter.add(1);
            }
        }
        self.others.add(1);
    }

    /// Adds the counters to a list.
    pub fn add_to(&self, sum: &mut Vec<StatusCount>) {
        let mut add = |status: String, count: u64| match sum
            .iter_mut()
            .find(|known| known.status == status)
        {
            Some(known) => known.count += count,
            None if count > 0 => sum.push(StatusCount { status, count }),
            None => {}
        };
        for (code, counter) in &self.known {
            let code = code.load(Relaxed);
            if code > 0 {
                add(status_name(code), counter.get());
            }
        }
        add("other".into(), self.others.get());
    }
}

/// Returns the name of a status, without its flags.
fn status_name(code: u32) -> String {
    let status = Status::new((code >> 8) as u8, code as u8);
    status.name().map_or_else(|| format!("{code:#05x}"), str::to_owned)
}

/// Counters that one thread publishes once a turn, and any thread reads.
#[derive(Debug)]
pub struct Cells<const N: usize>([Counter; N]);

/// Counters of a lane's sends and receives.
pub type BatchCells = Cells<{ Batching::NAMES.len() }>;

impl<const N: usize> Default for Cells<N> {
    fn default() -> Self {
        Cells(array::from_fn(|_| Counter::default()))
    }
}

impl<const N: usize> Cells<N> {
    /// Publishes the counts.
    #[inline]
    pub fn write(&self, counts: [u64; N]) {
        self.0.iter().zip(&counts).for_each(|(cell, count)| cell.set(*count));
    }

    /// Returns the counts, on any thread.
    pub fn read(&self) -> [u64; N] {
        array::from_fn(|at| self.0[at].get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_is_summed_over_reactors() {
        let (one, other) = (IoCells::default(), IoCells::default());
        one.add_in_flight(2);
        one.ended(CommandOutcome::new(CommandKind::Read, 4096, 10_000));
        other.add_in_flight(-1); // the command ended on the other reactor
        other.ended(CommandOutcome::new(CommandKind::Write, 512, 5000));
        other.ended(CommandOutcome::new(CommandKind::Flush, 0, 5000));
        other.ended(CommandOutcome::new(CommandKind::Discard, 0, 5000));
        other.discarded(1 << 20);
        other.failed();
        let mut sum = IoCounters::default();
        one.add_to(&mut sum);
        other.add_to(&mut sum);
        assert_eq!((sum.reads, sum.writes, sum.flushes, sum.discards, sum.others), (1, 1, 1, 1, 0));
        assert_eq!((sum.read_bytes, sum.written_bytes, sum.discarded_bytes), (4096, 512, 1 << 20));
        assert_eq!((sum.errors, sum.in_flight), (1, 1));
        assert!((sum.read_latency.sum_seconds - 10e-6).abs() < 1e-12);
    }

    #[test]
    fn failures_are_counted_by_status_as_far_as_there_is_room() {
        let statuses = Statuses::default();
        statuses.count(Status::LBA_OUT_OF_RANGE.dnr());
        statuses.count(Status::LBA_OUT_OF_RANGE);
        for code in 0..20 {
            statuses.count(Status::new(7, code));
        }
        let mut sum = Vec::new();
        statuses.add_to(&mut sum);
        statuses.add_to(&mut sum);
        assert_eq!(sum[0], StatusCount { status: "LBA Out of Range".into(), count: 4 });
        assert_eq!(sum[1], StatusCount { status: "0x700".into(), count: 2 });
        let others = sum.last().unwrap();
        assert_eq!(*others, StatusCount { status: "other".into(), count: 12 });
    }
}
