//! What the simulated target executes commands with: few buffers, and a disk that takes its time.

use crate::disk::{BLOCK_BYTES, Done, SimDisk, Work};
use crate::network::ConnId;
use crate::plan::{Plan, Sabotage};
use crate::rng::Rng;
use crate::transport::TargetEnd;
use core::ops::{Deref, DerefMut};
use roadtrain_proto::policy::Class;
use roadtrain_proto::target::Target as Control;
use roadtrain_proto::target::execution::{self, Environment, Job, Outcome};
use roadtrain_proto::target::io::{Geometry, IoCommand};
use roadtrain_proto::target::session::Session;
use roadtrain_proto::target::stability::{Epoch, Flushed, Mark, Stability, Ticket, User, Wake};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// The commands of a connection.
pub type Execution = execution::Execution<Namespace, Buffer>;

/// Buffers besides the budget.
const RESERVED_MAX: usize = 16;

/// Where a buffer goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Budget,
    Reserve,
    Connection,
}

/// A buffer.
#[derive(Debug)]
pub struct Buffer {
    octets: Vec<u8>,
    origin: Origin,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.octets
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.octets
    }
}

/// The buffers of a target.
#[derive(Debug)]
pub struct Pool {
    budget: usize,
    taken: usize,
    reserved: usize,
    /// Octets of all buffers that are out.
    out: usize,
}

impl Pool {
    fn new(budget: usize) -> Self {
        Pool { budget, taken: 0, reserved: 0, out: 0 }
    }

    /// A copy of what lies elsewhere.
    pub(crate) fn copy(&mut self, octets: &[u8]) -> Buffer {
        let mut buffer = self.make(octets.len() as u32, Origin::Connection);
        buffer.copy_from_slice(octets);
        buffer
    }

    fn make(&mut self, bytes: u32, origin: Origin) -> Buffer {
        self.out += bytes as usize;
        Buffer { octets: vec![0xdb; bytes as usize], origin }
    }

    /// Takes a buffer back.
    pub fn give(&mut self, buffer: Buffer) {
        self.out -= buffer.len();
        match buffer.origin {
            Origin::Budget => self.taken -= buffer.len(),
            Origin::Reserve => self.reserved -= 1,
            Origin::Connection => {}
        }
    }
}

/// A namespace, as a connection sees it.
pub struct Namespace {
    /// Its number: the first is on the disk, of others each octet says which store it is.
    pub nsid: u32,
    /// Its size.
    pub geometry: Geometry,
    /// What the connection has written and nobody has flushed.
    pub mark: Option<Arc<Mark>>,
    /// Whose epochs are noted.
    pub stability: Rc<RefCell<Stability<u64>>>,
}

/// No store has memory that it lends.
#[derive(Clone, Copy)]
pub enum Nowhere {}

impl execution::Place for Nowhere {
    fn length(&self) -> u32 {
        match *self {}
    }
}

impl execution::Namespace for Namespace {
    type Place = Nowhere;

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn class(&self) -> Option<Class> {
        None
    }

    fn in_place(&self, _command: &IoCommand) -> Option<Nowhere> {
        None
    }

    fn is_announced(&self) -> bool {
        false
    }

    fn put(&self, place: Nowhere, _from: u32, _octets: &[u8]) {
        match place {}
    }

    fn epoch(&self) -> Option<Epoch> {
        self.mark.is_some().then(|| self.stability.borrow().epoch())
    }

    fn wrote(&self, began: Epoch) {
        self.mark.iter().for_each(|mark| mark.wrote(began));
    }
}

/// Whose command a task of the disk is.
struct Owner {
    conn: ConnId,
    slot: u16,
    buffer: Option<Buffer>,
}

/// A flush that was asked for, until it is answered.
struct Asked {
    conn: ConnId,
    slot: u16,
    ticket: Ticket,
}

/// A command that a store has ended.
pub type Ended = (ConnId, u16, Outcome<Buffer>);

/// The disk, what is under way there, and the buffers.
pub struct Stores {
    /// It outlives the target's process.
    pub disk: SimDisk,
    /// The buffers.
    pub pool: Pool,
    /// Which store the namespaces have that are not on the disk: another one each time the process dies.
    pub extra_store: u8,
    /// Who is to be told of flushes that fail; the waiters are numbers of `asked`.
    pub stability: Rc<RefCell<Stability<u64>>>,
    owners: BTreeMap<u64, Owner>,
    asked: BTreeMap<u64, Asked>,
    asked_last: u64,
    /// The disk's flush, and for which of `asked` it is.
    flushing: Option<(u64, u64)>,
    plan: Plan,
    rng: Rng,
}

impl Stores {
    pub(crate) fn new(plan: &Plan, disk: SimDisk, rng: Rng) -> Self {
        Stores {
            disk,
            pool: Pool::new(plan.pool_bytes),
            extra_store: 1,
            stability: Rc::default(),
            owners: BTreeMap::new(),
            asked: BTreeMap::new(),
            asked_last: 0,
            flushing: None,
            plan: plan.clone(),
            rng,
        }
    }

    /// Commands under way.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.owners.len() + self.asked.len()
    }

    /// Octets that are the target's, or not where they should be: lanes hold `buffered` of them.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self, buffered: usize) -> Result<(), String> {
        let Pool { budget, taken, reserved, out } = self.pool;
        if taken > budget || reserved > RESERVED_MAX {
            return Err(format!(
                "{taken} octets of {budget} are taken, and {reserved} buffers more"
            ));
        }
        let buffers = self.owners.values().filter_map(|owner| owner.buffer.as_deref());
        let in_store: usize = buffers.map(<[u8]>::len).sum();
        match buffered + in_store == out {
            true => Ok(()),
            false => Err(format!("{out} octets are out, {buffered} held, {in_store} in the store")),
        }
    }

    /// The process ends: nothing is remembered but the disk.
    pub(crate) fn crash(&mut self, now: Instant, power_loss: bool) {
        // What has not ended by now ends with the process.
        self.disk.advance(now);
        self.disk.abandon();
        if power_loss {
            self.disk.lose_power();
        }
        self.owners.clear();
        self.asked.clear();
        (self.stability, self.flushing) = (Rc::default(), None);
        self.pool = Pool::new(self.plan.pool_bytes);
        self.extra_store = self.rng.between(1, crate::load::STORES.into()) as u8;
    }

    /// What has ended by now.
    pub(crate) fn advance(&mut self, now: Instant) -> Vec<Ended> {
        let mut ended = Vec::new();
        for done in self.disk.advance(now) {
            if let Some((_, number)) = self.flushing.take_if(|(task, _)| *task == done.task) {
                self.flushed(now, number, &done, &mut ended);
            } else if let Some(Owner { conn, slot, mut buffer }) = self.owners.remove(&done.task) {
                let result = done.result.map_err(|()| Status::INTERNAL_ERROR);
                if let (Ok(data), Some(buffer)) = (&result, &mut buffer)
                    && !data.is_empty()
                {
                    buffer.copy_from_slice(data);
                }
                ended.push((conn, slot, Outcome { result: result.map(drop), buffer }));
            }
        }
        ended
    }

    fn execute(
        &mut self,
        now: Instant,
        (conn, slot): (ConnId, u16),
        (command, nsid): (&IoCommand, u32),
        mut buffer: Option<Buffer>,
        user: Option<&User>,
    ) -> Option<Outcome<Buffer>> {
        let work = work(command, nsid, buffer.as_deref().unwrap_or_default());
        match sabotaged(work, self.plan.sabotage) {
            Some(Work::Flush) => {
                user.iter().for_each(|user| self.flush(now, conn, slot, user));
                None
            }
            Some(work) => {
                let task = self.disk.start(now, work);
                self.owners.insert(task, Owner { conn, slot, buffer });
                None
            }
            None => {
                if read_bytes(command) > 0 {
                    buffer.iter_mut().for_each(|buffer| buffer.fill(self.extra_store));
                }
                Some(Outcome { result: Ok(()), buffer })
            }
        }
    }

    /// A flush was asked for: begins it, or lets it wait for the one under way.
    fn flush(&mut self, now: Instant, conn: ConnId, slot: u16, user: &User) {
        let ticket = self.stability.borrow_mut().begin(now, user);
        self.asked_last += 1;
        self.asked.insert(self.asked_last, Asked { conn, slot, ticket });
        if self.stability.borrow_mut().join(self.asked_last) {
            self.flushing = Some((self.disk.start(now, Work::Flush), self.asked_last));
        }
    }

    /// The disk's flush has ended, which was for `number` and whoever waited.
    fn flushed(&mut self, now: Instant, number: u64, done: &Done, ended: &mut Vec<Ended>) {
        let flushed = match (&done.result, done.lost) {
            (Ok(_), _) => Flushed::Done,
            (Err(()), true) => Flushed::Failed,
            (Err(()), false) => Flushed::NotRun,
        };
        let wakes = self.stability.borrow_mut().ended(flushed);
        ended.extend(self.end_flush(now, number, flushed));
        for (number, wake) in wakes {
            match wake {
                Wake::Lead => self.flushing = Some((self.disk.start(now, Work::Flush), number)),
                Wake::Ended(flushed) => ended.extend(self.end_flush(now, number, flushed)),
            }
        }
    }

    fn end_flush(&mut self, now: Instant, number: u64, flushed: Flushed) -> Option<Ended> {
        let Asked { conn, slot, ticket } = self.asked.remove(&number)?;
        let is_good = self.stability.borrow_mut().settle(now, ticket, flushed);
        let forgets = self.plan.sabotage == Some(Sabotage::UntoldFailure);
        let result = match flushed {
            Flushed::Done if is_good || forgets => Ok(()),
            Flushed::NotRun => Err(Status::INTERNAL_ERROR),
            _ => Err(Status::WRITE_FAULT.dnr()),
        };
        Some((conn, slot, Outcome { result, buffer: None }))
    }
}

/// What a connection's commands are executed with.
pub struct Env<'a, E> {
    pub(crate) now: Instant,
    pub(crate) conn: ConnId,
    pub(crate) end: &'a mut E,
    pub(crate) session: &'a mut Session,
    pub(crate) namespaces: &'a HashMap<u32, Rc<Namespace>>,
    pub(crate) stores: &'a mut Stores,
    pub(crate) control: &'a mut Control,
}

impl<E> Env<'_, E> {
    /// Controller and queue.
    fn ids(&self) -> Option<(u16, u16)> {
        self.session.queue().map(|connected| (connected.cntlid, connected.qid))
    }

    /// The answer to a command is lost.
    fn forgets(&mut self) -> bool {
        self.stores.plan.sabotage == Some(Sabotage::ForgottenCommand)
            && self.ids().is_some_and(|(_, qid)| qid > 0)
            && self.stores.rng.chance(1)
    }

    fn flush(&mut self, slot: u16) -> Option<Outcome<Buffer>> {
        let (user, namespace) = (self.session.user().cloned(), (&IoCommand::Flush, 1));
        let whose = (self.conn, slot);
        self.stores.execute(self.now, whose, namespace, None, user.as_deref())
    }
}

impl<E: TargetEnd> Environment<Namespace, Buffer> for Env<'_, E> {
    const BUFFER_BYTES_MAX: u32 = 1 << 20;

    fn now(&self) -> Instant {
        self.now
    }

    fn session(&mut self) -> &mut Session {
        self.session
    }

    fn namespace(&mut self, nsid: u32) -> Option<Rc<Namespace>> {
        self.namespaces.get(&nsid).cloned()
    }

    fn take(&mut self, bytes: u32) -> Option<Buffer> {
        let pool = &mut self.stores.pool;
        if pool.taken + bytes as usize > pool.budget {
            return None;
        }
        pool.taken += bytes as usize;
        Some(pool.make(bytes, Origin::Budget))
    }

    fn take_reserved(&mut self, bytes: u32) -> Option<Buffer> {
        let pool = &mut self.stores.pool;
        if pool.reserved == RESERVED_MAX {
            return None;
        }
        pool.reserved += 1;
        Some(pool.make(bytes, Origin::Reserve))
    }

    fn make(&mut self, bytes: u32) -> Buffer {
        self.stores.pool.make(bytes, Origin::Connection)
    }

    fn give(&mut self, buffer: Buffer) {
        self.stores.pool.give(buffer);
    }

    fn respond(&mut self, slot: u16, status: Status, result: u64) {
        if !self.forgets() {
            self.end.respond(self.now, slot, status, result);
        }
    }

    fn respond_with_data(&mut self, slot: u16, bytes: u32, result: u64) {
        if !self.forgets() {
            self.end.respond_with_data(self.now, slot, bytes, result);
        }
    }

    fn request_data(&mut self, slot: u16, bytes: u32) {
        self.end.request_data(self.now, slot, bytes);
    }

    fn set_class(&mut self, slot: u16, class: Class) {
        self.end.set_class(slot, class);
    }

    fn deliver_whole(&mut self, slot: u16, block_bytes: u32) {
        self.end.deliver_whole(slot, block_bytes);
    }

    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)> {
        self.end.unanswered(cid)
    }

    fn has_data_digest(&self) -> bool {
        self.end.has_data_digest()
    }

    fn set_in_store(&mut self, commands: u32) {
        self.end.set_in_store(commands);
    }

    fn start(&mut self, slot: u16, job: Job<'_, Namespace, Buffer>) -> Option<Outcome<Buffer>> {
        let Job::Execute { command, namespace, buffer } = job else { return self.flush(slot) };
        let mut refusals = self.stores.plan.refusals.iter();
        if let Some((_, status)) = refusals.find(|(times, _)| times.contains(&self.now)) {
            return Some(Outcome { result: Err(*status), buffer });
        }
        let (user, whose) = (self.session.user().cloned(), (self.conn, slot));
        let command = (&command, namespace.nsid);
        self.stores.execute(self.now, whose, command, buffer, user.as_deref())
    }

    /// The disk is not to be hurried.
    fn cancel(&mut self, _slot: u16) -> bool {
        false
    }

    fn quiesce(&mut self) -> bool {
        self.ids().is_none_or(|(cntlid, _)| self.control.quiesce(cntlid))
    }

    fn quiesced(&mut self) {
        self.ids().into_iter().for_each(|(cntlid, qid)| self.control.quiesced(cntlid, qid));
    }

    fn shut_down(&mut self, flushed: Result<(), Status>) {
        if let (Ok(()), Some(user)) = (flushed, self.session.user()) {
            self.stores.stability.borrow_mut().part(self.now, user);
        }
    }

    fn aborted(&mut self, id: u32, aborted: bool) {
        self.ids().into_iter().for_each(|(cntlid, _)| self.control.aborted(cntlid, id, aborted));
    }
}

pub(crate) fn read_bytes(io: &IoCommand) -> usize {
    match *io {
        IoCommand::Read { length, .. } => length as usize,
        _ => 0,
    }
}

fn sabotaged(work: Option<Work>, sabotage: Option<Sabotage>) -> Option<Work> {
    match (work, sabotage) {
        (Some(Work::Flush), Some(Sabotage::IdleFlush)) => None,
        (Some(Work::Write { slba, data, .. }), Some(Sabotage::IgnoredFua)) => {
            Some(Work::Write { slba, data, fua: false })
        }
        (Some(Work::Write { slba, mut data, fua }), Some(Sabotage::TornBlock)) => {
            data[BLOCK_BYTES / 2..BLOCK_BYTES].fill(0);
            Some(Work::Write { slba, data, fua })
        }
        (work, _) => work,
    }
}

/// What the disk does for a command; `None`: nothing, for it is not on the disk.
pub(crate) fn work(io: &IoCommand, nsid: u32, data: &[u8]) -> Option<Work> {
    let lba = |offset: u64| offset / BLOCK_BYTES as u64;
    if nsid != 1 {
        return None;
    }
    match *io {
        IoCommand::Read { offset, length, .. } => {
            Some(Work::Read { slba: lba(offset), blocks: lba(length.into()) })
        }
        IoCommand::Write { offset, fua, .. } => {
            Some(Work::Write { slba: lba(offset), data: data.to_vec(), fua })
        }
        IoCommand::WriteZeroes { offset, length, fua, .. } => {
            Some(Work::Write { slba: lba(offset), data: vec![0; length as usize], fua })
        }
        IoCommand::DatasetManagement { .. } => {
            let (blocks, slba) = (&data[4..8], &data[8..16]);
            let blocks = u32::from_le_bytes(*blocks.first_chunk()?);
            let data = vec![0; blocks as usize * BLOCK_BYTES];
            Some(Work::Write { slba: u64::from_le_bytes(*slba.first_chunk()?), data, fua: false })
        }
        IoCommand::Flush => Some(Work::Flush),
        IoCommand::Compare { .. } => None,
    }
}
