//! Storage with physical blocks that may be larger than logical ones: changes of parts of a physical block are made by
//! read-modify-write, as `roadtrain_proto::read_modify_write` decides.

use crate::disk::{BLOCK_BYTES, DiskCompletion, DiskWork, SimDisk};
use roadtrain_proto::op::StoreOperation;
use roadtrain_proto::read_modify_write::{
    BOUNCE_BYTES_MAX, RmwAdmission, RmwClaim, RmwPlan, RmwStep, RmwTask,
};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;

/// A command of logical blocks in flight.
struct EmulatedCommand {
    /// Plan until it is admitted.
    plan: Option<RmwPlan>,
    /// Progress of a read-modify-write.
    task: Option<RmwTask>,
    /// Data to write, or read so far.
    data: Vec<u8>,
    bounce: Vec<u8>,
    is_unforced: bool,
}

/// The storage as one process uses it, in logical blocks.
pub struct EmulatedDisk {
    /// Storage of physical blocks.
    pub physical: SimDisk,
    physical_bytes: u64,
    admission: RmwAdmission<u64>,
    commands: BTreeMap<u64, EmulatedCommand>,
    /// Commands by the number of their step on the disk.
    steps: BTreeMap<u64, u64>,
    last: u64,
    /// True for a deliberate fault: other changes run between the read and the write.
    is_careless: bool,
}

impl EmulatedDisk {
    /// Makes the storage of a process over its physical blocks.
    #[must_use]
    pub fn new(physical: SimDisk, is_careless: bool) -> Self {
        let physical_bytes = physical.block_bytes();
        EmulatedDisk {
            physical,
            physical_bytes,
            admission: admission(),
            commands: BTreeMap::new(),
            steps: BTreeMap::new(),
            last: 0,
            is_careless,
        }
    }

    fn is_emulated(&self) -> bool {
        self.physical_bytes > BLOCK_BYTES as u64
    }

    /// Starts a command within the namespace. Returns its number, which [`DiskCompletion`] repeats.
    pub fn start(&mut self, now: Instant, work: DiskWork) -> u64 {
        if !self.is_emulated() {
            return self.physical.start(now, work);
        }
        let bytes = BLOCK_BYTES as u64;
        let (op, data) = match work {
            DiskWork::Read { slba, blocks } => {
                let data = vec![0; blocks as usize * BLOCK_BYTES];
                (StoreOperation::Read { offset: slba * bytes }, data)
            }
            DiskWork::Write { slba, data, fua } => {
                (StoreOperation::Write { offset: slba * bytes, fua }, data)
            }
            DiskWork::Flush => (StoreOperation::Flush, Vec::new()),
        };
        self.last += 1;
        let number = self.last;
        let plan = RmwPlan::of(&op, data.len() as u64, self.physical_bytes);
        let admitted = match &plan {
            RmwPlan::Claimed(_, claim) | RmwPlan::Task(_, claim) => {
                let is_exclusive = claim.is_exclusive && !self.is_careless;
                self.admission.begin(number, RmwClaim { is_exclusive, ..*claim })
            }
            RmwPlan::Pass(_) | RmwPlan::Nothing => true,
        };
        let (task, bounce) = (None, Vec::new());
        let command = EmulatedCommand { plan: Some(plan), task, data, bounce, is_unforced: false };
        self.commands.insert(number, command);
        if admitted {
            self.begin(now, number);
        }
        number
    }

    /// Begins a command that is admitted.
    fn begin(&mut self, now: Instant, number: u64) {
        let Some(command) = self.commands.get_mut(&number) else { return };
        match command.plan.take() {
            Some(RmwPlan::Pass(op) | RmwPlan::Claimed(op, _)) => {
                let data = command.data.clone();
                self.submit(now, number, &op, data);
            }
            Some(RmwPlan::Task(mut task, _)) => {
                command.bounce = vec![0xdd; task.bounce_bytes() as usize];
                let step = task.begin(&mut command.bounce, &command.data);
                command.task = Some(task);
                let ended = self.take(now, number, step);
                debug_assert!(ended.is_none(), "a task begins with a read or a write");
            }
            Some(RmwPlan::Nothing) | None => {
                unreachable!("a command has blocks, and begins once")
            }
        }
    }

    /// Carries out a step. Returns the result of a command that has ended.
    fn take(&mut self, now: Instant, number: u64, step: RmwStep) -> Option<Result<(), Status>> {
        let (op, range) = match step {
            RmwStep::Read(range) => (StoreOperation::Read { offset: range.offset }, range),
            RmwStep::Write(range, fua) => {
                (StoreOperation::Write { offset: range.offset, fua }, range)
            }
            RmwStep::WriteZeroes(..) => unreachable!("the disk gets zeroes as a write"),
            RmwStep::Done(result) => return Some(result),
        };
        let bounce = self.commands.get(&number)?.bounce[..range.len as usize].to_vec();
        self.submit(now, number, &op, bounce);
        None
    }

    fn submit(&mut self, now: Instant, number: u64, op: &StoreOperation, data: Vec<u8>) {
        let block = |bytes: u64| bytes / self.physical_bytes;
        let work = match *op {
            StoreOperation::Read { offset } => {
                DiskWork::Read { slba: block(offset), blocks: block(data.len() as u64) }
            }
            StoreOperation::Write { offset, fua } => {
                DiskWork::Write { slba: block(offset), data, fua }
            }
            _ => DiskWork::Flush,
        };
        let step = self.physical.start(now, work);
        self.steps.insert(step, number);
    }

    /// Advances the time to `now`. Returns the commands that have completed.
    pub fn advance(&mut self, now: Instant) -> Vec<DiskCompletion> {
        let done = self.physical.advance(now);
        if !self.is_emulated() {
            return done;
        }
        done.into_iter().filter_map(|done| self.proceed(now, done)).collect()
    }

    /// Takes the completion of a step. Returns that of its command, if it has ended.
    fn proceed(&mut self, now: Instant, done: DiskCompletion) -> Option<DiskCompletion> {
        let number = self.steps.remove(&done.task)?;
        let command = self.commands.get_mut(&number)?;
        command.is_unforced |= done.is_unforced;
        let (read, result) = match done.result {
            Ok(read) => (read, Ok(())),
            Err(()) => (Vec::new(), Err(Status::INTERNAL_ERROR)),
        };
        let step = match &mut command.task {
            Some(task) => {
                command.bounce[..read.len()].copy_from_slice(&read);
                task.advance(result, &mut command.bounce, &mut command.data)
            }
            None => {
                command.data = read;
                RmwStep::Done(result)
            }
        };
        let result = self.take(now, number, step)?;
        let EmulatedCommand { data, is_unforced, task, .. } = self.commands.remove(&number)?;
        let mut admitted = Vec::new();
        self.admission.end(number, &mut admitted);
        admitted.into_iter().for_each(|next| self.begin(now, next));
        let is_read = !task.is_some_and(|task| task.changes());
        let data = if is_read { data } else { Vec::new() };
        let result = result.map(|()| data).map_err(drop);
        let is_unforced = is_unforced && result.is_ok();
        Some(DiskCompletion { task: number, result, lost: done.lost, is_unforced })
    }

    /// Drops the commands of this process without completions.
    pub fn abandon(&mut self) {
        self.physical.abandon();
        self.admission = admission();
        self.commands.clear();
        self.steps.clear();
    }
}

/// Makes the admission of a process that starts, with little memory.
fn admission() -> RmwAdmission<u64> {
    RmwAdmission::new(u64::from(BOUNCE_BYTES_MAX))
}
