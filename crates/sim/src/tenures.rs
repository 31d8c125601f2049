//! Hosts that take the namespace from one another by reservations: each registers, acquires or preempts, and writes until
//! it is refused, several blocks at once. Blocks say in whose tenure they were written.
//!
//! Tenures are numbered as their hosts hear of them. A host writes only after that, and the one before was preempted by
//! then, so what is on the disk never goes back: an earlier number behind a later one is a write of a host that was shut
//! out. Nothing else may follow from what a host does not know: one that does not know what has become of a write never
//! acquires again, and nobody releases what it holds, which would let everybody in.

use crate::disk::BLOCK_BYTES;
use crate::request::Request;
use crate::rng::Rng;
use core::ops::Range;
use roadtrain_host_proto::qpair::Data;
use roadtrain_proto::policy::Urgency;
use roadtrain_wire::reservation::{
    Acquire, AcquireAction, ChangePersistence, Register, RegisterAction, ReservationType, TwoKeys,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;

/// Times of 100 that a host preempts another one when it may.
const PREEMPTING_PERCENT: u64 = 20;

/// What a host does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Register,
    Acquire,
    Preempt,
    Write,
    /// It was refused: what it has under way ends first.
    Leave,
    /// It does not know what has become of a write.
    Over,
}

/// What a request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A command about reservations.
    Claim,
    /// A write of one of the blocks.
    Write(usize),
}

#[derive(Debug, Default)]
struct Job {
    step: Step,
    /// The last one it has heard of.
    tenure: u64,
    /// A command about reservations is under way.
    claims: bool,
    /// Blocks that it has writes of under way.
    open: Vec<usize>,
}

/// All hosts' parts, and the judge.
#[derive(Debug, Default)]
pub struct Tenures {
    jobs: Vec<Job>,
    kind: Option<ReservationType>,
    lbas: Range<u64>,
    /// The last tenure that a host has heard of.
    last: u64,
    /// By block, the tenure that it was last written in.
    seen: Vec<u64>,
    /// What has become of the attempts.
    pub held: Held,
}

roadtrain_proto::counters! {
    /// What tenures came to.
    pub struct Held {
        /// Tenures.
        tenures,
        /// Times that a block was written in a later tenure than before.
        written,
        /// Writes that were executed, as far as their hosts know.
        writes,
        /// Writes that were refused.
        refused,
        /// Writes of which nobody knows.
        unknown,
    }
}

impl Tenures {
    /// Of so many hosts, on blocks `lbas`; none without blocks.
    #[must_use]
    pub fn new(hosts: u8, lbas: Range<u64>, kind: ReservationType) -> Self {
        let hosts = if lbas.is_empty() { 0 } else { hosts };
        Tenures {
            jobs: (0..hosts).map(|_| Job::default()).collect(),
            kind: Some(kind),
            seen: vec![0; (lbas.end - lbas.start) as usize],
            lbas,
            last: 0,
            held: Held::default(),
        }
    }

    /// Whether hosts do that.
    #[must_use]
    pub fn is_used(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// What `host` (from 1) does next, if it does not wait: what it is, and the request.
    pub fn request(&mut self, host: u8, rng: &mut Rng, token: u64) -> Option<(What, Request)> {
        let (hosts, own) = (self.jobs.len() as u64, u64::from(host));
        let kind = self.kind;
        let acquire = |action| Acquire { action: Some(action), ignores_key: false, kind }.emit(1);
        let job = self.jobs.get_mut(usize::from(host) - 1).filter(|job| !job.claims)?;
        if job.step == Step::Leave && job.open.is_empty() {
            job.step = Step::Register;
        }
        let (sqe, other) = match job.step {
            Step::Register => (register(), own),
            Step::Acquire => (acquire(AcquireAction::Acquire), 0),
            Step::Preempt if rng.chance(PREEMPTING_PERCENT) => {
                let other = (own + rng.below(hosts - 1)) % hosts + 1;
                let actions = [AcquireAction::Preempt, AcquireAction::PreemptAndAbort];
                (acquire(rng.pick(&actions)), other)
            }
            Step::Write => {
                let block = rng.below(self.seen.len() as u64) as usize;
                if job.open.contains(&block) {
                    return None;
                }
                job.open.push(block);
                let sqe = Sqe::rw(opcode::WRITE, 1, self.lbas.start + block as u64, 1);
                let data = job.tenure.to_le_bytes().repeat(BLOCK_BYTES / 8);
                return Some((What::Write(block), out(token, sqe, data)));
            }
            Step::Preempt | Step::Leave | Step::Over => return None,
        };
        job.claims = true;
        let keys = TwoKeys { current: own.into(), other: other.into() };
        Some((What::Claim, out(token, sqe, keys.as_bytes().to_vec())))
    }

    /// A request of `host` has ended.
    pub fn complete(&mut self, host: u8, what: What, status: Status) {
        let Some(job) = self.jobs.get_mut(usize::from(host) - 1) else { return };
        let is_refused = status.is(Status::RESERVATION_CONFLICT);
        match what {
            What::Claim => {
                job.claims = false;
                job.step = match job.step {
                    Step::Register if status.is_success() => Step::Acquire,
                    Step::Acquire if status.is_success() => {
                        self.last += 1;
                        job.tenure = self.last;
                        Step::Write
                    }
                    Step::Acquire if is_refused => Step::Preempt,
                    Step::Preempt if status.is_success() => Step::Acquire,
                    _ => Step::Register, // preempted meanwhile, or not known
                };
            }
            What::Write(block) => {
                job.open.retain(|open| *open != block);
                if status.is_success() {
                    self.held.writes += 1;
                } else if is_refused {
                    self.held.refused += 1;
                    job.step = if job.step == Step::Over { Step::Over } else { Step::Leave };
                } else {
                    self.held.unknown += 1;
                    job.step = Step::Over;
                }
            }
        }
        self.held.tenures = self.last;
    }

    /// The process of `host` was killed. What it has under way ends before its successor is connected.
    pub fn kill(&mut self, host: u8) {
        if let Some(job) = self.jobs.get_mut(usize::from(host) - 1) {
            *job = Job::default();
        }
    }

    /// Looks at the disk.
    ///
    /// # Errors
    /// A write of a host that was shut out was executed.
    pub fn watch(&mut self, content: impl Fn(u64) -> Vec<u8>) -> Result<(), String> {
        for (lba, seen) in self.lbas.clone().zip(&mut self.seen) {
            let content = content(lba);
            let words = content.as_chunks().0;
            let tenure = words.first().map_or(0, |word| u64::from_le_bytes(*word));
            if words.iter().any(|word| u64::from_le_bytes(*word) != tenure) {
                return Err(format!("block {lba} is written in part"));
            }
            if tenure < *seen {
                return Err(format!(
                    "block {lba} is written in tenure {tenure}, after tenure {seen} has begun"
                ));
            }
            self.held.written += u64::from(tenure > *seen);
            *seen = tenure;
        }
        Ok(())
    }
}

/// Whatever the host's key is by now.
fn register() -> Sqe {
    let (action, persistence) = (Some(RegisterAction::Replace), Some(ChangePersistence::Keep));
    Register { action, ignores_key: true, persistence }.emit(1)
}

fn out(token: u64, sqe: Sqe, buffer: Vec<u8>) -> Request {
    let data = Data::Out(buffer.len() as u32);
    let (compare, urgency, hides_blocks) = (None, Urgency::Urgent, false);
    Request { token, sqe, compare, data, buffer, urgency, hides_blocks }
}
