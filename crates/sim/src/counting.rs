//! Counters that hosts increment with Compare and Write: each of their jobs adds one to a counter, again and again.
//! After an attempt with an unknown outcome, a job reads the counter.
//!
//! A counter is a block of words: its value, and for each job the number of the job's last increment. So a block is
//! self-checking: the value equals the sum over all jobs. An increment that falls between the comparison and the write
//! of another one is lost, with its job's word; one that is executed twice is in the value, but not in the sum.

use crate::disk::BLOCK_BYTES;
use crate::request::LoadRequest;
use crate::rng::SimRng;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::Urgency;
use roadtrain_wire::sqe::{Sqe, cdw12, opcode};
use roadtrain_wire::status::Status;

/// Jobs of each host.
const JOBS: u8 = 3;

/// Next request of a job.
#[derive(Clone, Debug)]
enum CountingStep {
    Read,
    Swap(Vec<u8>),
}

#[derive(Debug)]
struct CountingJob {
    host: u8,
    /// Block of its counter.
    lba: u64,
    /// Increments that are known to be done.
    done: u64,
    /// True if the outcome of the next increment is unknown.
    in_doubt: bool,
    next: CountingStep,
    /// Request in flight, with the increments of all jobs when it began.
    open: Option<(CountingStep, Vec<u64>)>,
}

/// All jobs.
#[derive(Debug, Default)]
pub struct CountingJobs {
    jobs: Vec<CountingJob>,
    /// Outcomes of their attempts.
    pub counted: CountingOutcomes,
}

roadtrain_proto::counters! {
    /// Outcomes of attempts to count.
    pub struct CountingOutcomes {
        /// Increments that are done.
        done,
        /// Attempts with an unknown outcome.
        unknown,
        /// Unknown outcomes that proved to be done.
        resolved,
        /// Attempts that lost to another increment.
        refused,
    }
}

impl CountingJobs {
    /// Makes jobs for the hosts 1 to `hosts`, on blocks `lbas`.
    #[must_use]
    pub fn new(hosts: u8, lbas: std::ops::Range<u64>) -> Self {
        let mut counting = CountingJobs::default();
        if lbas.is_empty() {
            return counting;
        }
        for (number, host) in (0..).zip((1..=hosts).flat_map(|host| [host; JOBS as usize])) {
            let lba = lbas.start + number % (lbas.end - lbas.start);
            let job = CountingJob {
                host,
                lba,
                done: 0,
                in_doubt: false,
                next: CountingStep::Read,
                open: None,
            };
            counting.jobs.push(job);
        }
        counting
    }

    /// True if there is a counter.
    #[must_use]
    pub fn is_used(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Returns number and request of an idle job of `host`, if there is one.
    pub fn request(
        &mut self,
        host: u8,
        rng: &mut SimRng,
        token: u64,
    ) -> Option<(usize, LoadRequest)> {
        let idle = |(_, job): &(usize, &CountingJob)| job.host == host && job.open.is_none();
        let idle: Vec<usize> = self.jobs.iter().enumerate().filter(idle).map(|(n, _)| n).collect();
        let number = *idle.get(rng.below(idle.len().max(1) as u64) as usize)?;
        let before = self.jobs.iter().map(|job| job.done).collect();
        let job = &mut self.jobs[number];
        let mut sqe = Sqe::rw(opcode::READ, 1, job.lba, 1);
        let mut compare = None;
        let (data, buffer) = match &job.next {
            CountingStep::Read => {
                (CommandTransfer::In(BLOCK_BYTES as u32), vec![0xee; BLOCK_BYTES])
            }
            CountingStep::Swap(old) => {
                let mut new = old.clone();
                put(&mut new, 0, word(old, 0) + 1);
                put(&mut new, number + 1, job.done + 1);
                compare = Some(Sqe { opcode: opcode::COMPARE, ..sqe });
                sqe.opcode = opcode::WRITE;
                (CommandTransfer::Out(BLOCK_BYTES as u32), [&old[..], &new].concat())
            }
        };
        // FUA makes read contents and increments stable: a power loss takes none back.
        sqe.cdw12 = (sqe.cdw12.get() | cdw12::FUA).into();
        job.open = Some((job.next.clone(), before));
        let (urgency, hides_blocks) = (Urgency::Urgent, false);
        Some((number, LoadRequest { token, sqe, compare, data, buffer, urgency, hides_blocks }))
    }

    /// Completes a job's request.
    ///
    /// # Errors
    /// An increment is lost, or was executed twice.
    pub fn complete(&mut self, number: usize, status: Status, block: &[u8]) -> Result<(), String> {
        let job = &mut self.jobs[number];
        let (step, before) = job.open.take().ok_or("no request was in flight")?;
        job.next = CountingStep::Read;
        match step {
            CountingStep::Read if status.is_success() => {
                let lba = job.lba;
                self.check(lba, block, &before)?;
                let job = &mut self.jobs[number];
                if word(block, number + 1) == job.done {
                    (job.next, job.in_doubt) = (CountingStep::Swap(block.to_vec()), false);
                } else if std::mem::take(&mut job.in_doubt) {
                    job.done += 1;
                    self.counted.done += 1;
                    self.counted.resolved += 1;
                } else {
                    return Err(format!("job {number}: what was refused is counted"));
                }
            }
            CountingStep::Swap(_) if status.is_success() => {
                job.done += 1;
                self.counted.done += 1;
            }
            CountingStep::Swap(_) if status.is(Status::COMPARE_FAILURE) => {
                self.counted.refused += 1
            }
            CountingStep::Swap(_) => {
                job.in_doubt = true;
                self.counted.unknown += 1;
            }
            CountingStep::Read => {}
        }
        Ok(())
    }

    /// Ends the process of `host`. Its successor knows the requests that were in flight, but not their outcomes.
    pub fn kill(&mut self, host: u8) {
        for job in self.jobs.iter_mut().filter(|job| job.host == host) {
            if let Some((step, _)) = job.open.take() {
                job.in_doubt |= matches!(step, CountingStep::Swap(_));
                job.next = CountingStep::Read;
            }
        }
    }

    /// Checks a counter: it has every increment of `before`, and none that was never tried.
    fn check(&self, lba: u64, block: &[u8], before: &[u64]) -> Result<(), String> {
        let (mut sum, count) = (0, word(block, 0));
        for (number, job) in self.jobs.iter().enumerate().filter(|(_, job)| job.lba == lba) {
            let last = word(block, number + 1);
            if last < before[number] {
                let done = before[number];
                return Err(format!("job {number}: increment {done} is lost, {last} is the last"));
            }
            if last > job.done + 1 {
                return Err(format!("job {number}: increment {last} after {}", job.done));
            }
            sum += last;
        }
        match sum == count {
            true => Ok(()),
            false => Err(format!("counted {count} times, {sum} are accounted for")),
        }
    }

    /// Checks the final contents of the disk.
    ///
    /// # Errors
    /// As [`CountingJobs::complete`].
    pub fn judge(&self, content: impl Fn(u64) -> Vec<u8>) -> Result<(), String> {
        let done: Vec<u64> = self.jobs.iter().map(|job| job.done).collect();
        for job in &self.jobs {
            self.check(job.lba, &content(job.lba), &done)?;
        }
        Ok(())
    }
}

fn word(block: &[u8], at: usize) -> u64 {
    block.as_chunks().0.get(at).map_or(0, |word| u64::from_le_bytes(*word))
}

fn put(block: &mut [u8], at: usize, value: u64) {
    if let Some(word) = block.as_chunks_mut().0.get_mut(at) {
        *word = value.to_le_bytes();
    }
}
