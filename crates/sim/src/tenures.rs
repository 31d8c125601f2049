//! Hosts that take the namespace from one another by reservations. Each registers, acquires or preempts, and then
//! writes until it is refused, several blocks at once. Each block names the tenure in which it was written.
//!
//! A tenure is the time of one holder. Tenures are numbered in the order in which their hosts learn of them. A host
//! writes only after that, when the previous holder has been preempted, so numbers on the disk never decrease: a lower
//! number after a higher one is a write of a preempted host. Unknown outcomes must not weaken this: a host with an
//! unknown write never acquires again, and hosts never release a reservation, which would admit all others.

use crate::disk::BLOCK_BYTES;
use crate::request::LoadRequest;
use crate::rng::SimRng;
use core::ops::Range;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::Urgency;
use roadtrain_wire::reservation::{
    AcquireAction, ChangePersistence, RegisterAction, ReservationAcquire, ReservationRegister,
    ReservationType, TwoKeys,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;

/// Probability in percent that a host preempts another one when it may.
const PREEMPTING_PERCENT: u64 = 20;

/// Next step of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TenureStep {
    #[default]
    Register,
    Acquire,
    Preempt,
    Write,
    /// Refused: requests in flight end first.
    Leave,
    /// Stopped: the outcome of a write is unknown.
    Over,
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenureRequestKind {
    /// Reservation command.
    Claim,
    /// Write of one of the blocks.
    Write(usize),
}

#[derive(Debug, Default)]
struct TenureJob {
    step: TenureStep,
    /// Last tenure of this host.
    tenure: u64,
    /// True while a reservation command is in flight.
    claims: bool,
    /// Blocks with writes in flight.
    open: Vec<usize>,
}

/// The jobs of all hosts, and their checker.
#[derive(Debug, Default)]
pub struct Tenures {
    jobs: Vec<TenureJob>,
    kind: Option<ReservationType>,
    lbas: Range<u64>,
    /// Last tenure of any host.
    last: u64,
    /// Tenure of the last write of each block.
    seen: Vec<u64>,
    /// Outcomes of the attempts.
    pub held: TenureCounts,
}

roadtrain_proto::counters! {
    /// Outcomes of tenures.
    pub struct TenureCounts {
        /// Tenures.
        tenures,
        /// Blocks written in a later tenure than before.
        written,
        /// Writes that were acknowledged.
        writes,
        /// Writes that were refused.
        refused,
        /// Writes with an unknown outcome.
        unknown,
    }
}

impl Tenures {
    /// Makes jobs for a number of hosts, on blocks `lbas`; no jobs without blocks.
    #[must_use]
    pub fn new(hosts: u8, lbas: Range<u64>, kind: ReservationType) -> Self {
        let hosts = if lbas.is_empty() { 0 } else { hosts };
        Tenures {
            jobs: (0..hosts).map(|_| TenureJob::default()).collect(),
            kind: Some(kind),
            seen: vec![0; (lbas.end - lbas.start) as usize],
            lbas,
            last: 0,
            held: TenureCounts::default(),
        }
    }

    /// True if hosts do that.
    #[must_use]
    pub fn is_used(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Returns kind and request of the next step of `host` (from 1), if it does not wait.
    pub fn request(
        &mut self,
        host: u8,
        rng: &mut SimRng,
        token: u64,
    ) -> Option<(TenureRequestKind, LoadRequest)> {
        let (hosts, own) = (self.jobs.len() as u64, u64::from(host));
        let kind = self.kind;
        let acquire =
            |action| ReservationAcquire { action: Some(action), ignores_key: false, kind }.emit(1);
        let job = self.jobs.get_mut(usize::from(host) - 1).filter(|job| !job.claims)?;
        if job.step == TenureStep::Leave && job.open.is_empty() {
            job.step = TenureStep::Register;
        }
        let (sqe, other) = match job.step {
            TenureStep::Register => (register(), own),
            TenureStep::Acquire => (acquire(AcquireAction::Acquire), 0),
            TenureStep::Preempt if rng.chance(PREEMPTING_PERCENT) => {
                let other = (own + rng.below(hosts - 1)) % hosts + 1;
                let actions = [AcquireAction::Preempt, AcquireAction::PreemptAndAbort];
                (acquire(rng.pick(&actions)), other)
            }
            TenureStep::Write => {
                let block = rng.below(self.seen.len() as u64) as usize;
                if job.open.contains(&block) {
                    return None;
                }
                job.open.push(block);
                let sqe = Sqe::rw(opcode::WRITE, 1, self.lbas.start + block as u64, 1);
                let data = job.tenure.to_le_bytes().repeat(BLOCK_BYTES / 8);
                return Some((TenureRequestKind::Write(block), out(token, sqe, data)));
            }
            TenureStep::Preempt | TenureStep::Leave | TenureStep::Over => return None,
        };
        job.claims = true;
        let keys = TwoKeys { current: own.into(), other: other.into() };
        Some((TenureRequestKind::Claim, out(token, sqe, keys.as_bytes().to_vec())))
    }

    /// Completes a request of `host`.
    pub fn complete(&mut self, host: u8, what: TenureRequestKind, status: Status) {
        let Some(job) = self.jobs.get_mut(usize::from(host) - 1) else { return };
        let is_refused = status.is(Status::RESERVATION_CONFLICT);
        match what {
            TenureRequestKind::Claim => {
                job.claims = false;
                job.step = match job.step {
                    TenureStep::Register if status.is_success() => TenureStep::Acquire,
                    TenureStep::Acquire if status.is_success() => {
                        self.last += 1;
                        job.tenure = self.last;
                        TenureStep::Write
                    }
                    TenureStep::Acquire if is_refused => TenureStep::Preempt,
                    TenureStep::Preempt if status.is_success() => TenureStep::Acquire,
                    _ => TenureStep::Register, // preempted meanwhile, or unknown
                };
            }
            TenureRequestKind::Write(block) => {
                job.open.retain(|open| *open != block);
                if status.is_success() {
                    self.held.writes += 1;
                } else if is_refused {
                    self.held.refused += 1;
                    job.step = if job.step == TenureStep::Over {
                        TenureStep::Over
                    } else {
                        TenureStep::Leave
                    };
                } else {
                    self.held.unknown += 1;
                    job.step = TenureStep::Over;
                }
            }
        }
        self.held.tenures = self.last;
    }

    /// Notes that the process of `host` was killed. Its requests in flight end before its successor is connected.
    pub fn kill(&mut self, host: u8) {
        if let Some(job) = self.jobs.get_mut(usize::from(host) - 1) {
            *job = TenureJob::default();
        }
    }

    /// Checks the blocks on the disk.
    ///
    /// # Errors
    /// A write of a preempted host was executed.
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

/// Returns a Register command that replaces any key of the host.
fn register() -> Sqe {
    let (action, persistence) = (Some(RegisterAction::Replace), Some(ChangePersistence::Keep));
    ReservationRegister { action, ignores_key: true, persistence }.emit(1)
}

fn out(token: u64, sqe: Sqe, buffer: Vec<u8>) -> LoadRequest {
    let data = CommandTransfer::Out(buffer.len() as u32);
    let (compare, urgency, hides_blocks) = (None, Urgency::Urgent, false);
    LoadRequest { token, sqe, compare, data, buffer, urgency, hides_blocks }
}
