//! The host's admin queue: brings the controller up, keeps it alive, follows its events.

use crate::link::{Handling, Link};
use crate::network::{Lost, Network};
use crate::plan::{HOST_NQN, NQN, Plan};
use core::time::Duration;
use roadtrain_proto::host::qpair::{Config, Data};
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, Connect, ConnectData, Property, property};
use roadtrain_wire::feature::{NumberOfQueues, SetFeatures, fid};
use roadtrain_wire::identify::{IDENTIFY_BYTES, cns, oaes};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::zerocopy::IntoBytes;
use std::collections::VecDeque;

const ENTRIES: u16 = 32;
/// CC: enabled, 64-octet SQEs, 16-octet CQEs.
const CC_ENABLE: u32 = 1 | 6 << 16 | 4 << 20;
/// The host gives a command up after that.
const TIMEOUT: Duration = Duration::from_millis(100);
const LOG_BYTES: u32 = 4096;

/// Commands, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Connect,
    Enable,
    Queues,
    Events,
    RequestEvent,
    ReadChanges,
    ListNamespaces,
    KeepAlive,
    /// Of a command of an I/O queue.
    Abort {
        qid: u16,
        cid: u16,
    },
}

/// What the lanes are to know.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The controller takes I/O queues.
    Enabled {
        /// It.
        cntlid: u16,
    },
    /// Its active namespaces.
    Namespaces(Vec<u32>),
    /// An asynchronous event.
    Notice,
}

/// The admin queue.
pub struct Admin {
    /// Its connection.
    pub link: Link,
    jobs: VecDeque<Job>,
    /// The job at work: slot, and when it is given up.
    current: Option<(Job, u16, Instant)>,
    /// The slot of the Asynchronous Event Request.
    request: Option<u16>,
    hostid: [u8; 16],
    cntlid: u16,
    lanes: u32,
    kato_ms: u32,
    keep_alive_at: Option<Instant>,
}

impl Admin {
    /// Connects.
    pub fn new(
        now: Instant,
        plan: &Plan,
        hostid: [u8; 16],
        network: &mut Network,
        handling: Handling,
    ) -> Self {
        let config = Config {
            queue_entries: ENTRIES,
            in_capsule_bytes: 0,
            policy: PolicyConfig::none(),
            ..plan.host
        };
        use Job::*;
        Admin {
            link: Link::new(now, config, network, handling),
            jobs: [Connect, Enable, Queues, Events, RequestEvent, ListNamespaces].into(),
            current: None,
            request: None,
            hostid,
            cntlid: 0,
            lanes: plan.lanes as u32,
            kato_ms: plan.keep_alive.as_millis() as u32,
            keep_alive_at: (!plan.keep_alive.is_zero()).then(|| now + plan.keep_alive / 2),
        }
    }

    /// One turn; `Err`: the connection is lost.
    pub fn turn(&mut self, now: Instant, network: &mut Network) -> Result<Vec<Event>, Lost> {
        let (mut events, mut completed) = (Vec::new(), Vec::new());
        self.link.receive(now, network, &mut completed)?;
        for command in completed {
            let aborts =
                matches!(self.current, Some((Job::Abort { .. }, slot, _)) if slot == command.slot);
            if !command.cqe.status().is_success() && !aborts {
                return Err(Lost);
            }
            if self.request == Some(command.slot) {
                self.request = None;
                self.jobs.extend([Job::ReadChanges, Job::ListNamespaces, Job::RequestEvent]);
                events.push(Event::Notice);
            } else if let Some((job, _, _)) = self.current.take_if(|c| c.1 == command.slot) {
                events.extend(self.done(job, command.cqe.dw0.get(), &command.data));
            }
        }
        if self.current.is_some_and(|(_, _, deadline)| deadline <= now) {
            return Err(Lost);
        }
        if self.keep_alive_at.is_some_and(|at| at <= now) {
            self.jobs.push_back(Job::KeepAlive);
            self.keep_alive_at = Some(now + Duration::from_millis(u64::from(self.kato_ms) / 2));
        }
        while self.current.is_none()
            && let Some(job) = self.jobs.pop_front()
        {
            self.start(now, job);
        }
        Ok(events)
    }

    fn start(&mut self, now: Instant, job: Job) {
        let (sqe, data, buffer) = match job {
            Job::Connect => {
                let (sqsize, kato_ms) = (ENTRIES - 1, self.kato_ms);
                let sqe = Connect { recfmt: 0, qid: 0, sqsize, cattr: 0, kato_ms }.emit();
                let data = ConnectData::new(self.hostid, CNTLID_DYNAMIC, NQN, HOST_NQN);
                (sqe, Data::Out(1024), data.as_bytes().to_vec())
            }
            Job::Enable => (Property::set(property::CC, CC_ENABLE), Data::None, Vec::new()),
            Job::Queues => {
                let queues = NumberOfQueues { submission: self.lanes, completion: self.lanes };
                let sqe = SetFeatures::emit(fid::NUMBER_OF_QUEUES, queues.emit());
                (sqe, Data::None, Vec::new())
            }
            Job::Events => {
                let config = oaes::NAMESPACE_ATTRIBUTE;
                let sqe = SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, config);
                (sqe, Data::None, Vec::new())
            }
            Job::RequestEvent => (Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0), Data::None, Vec::new()),
            Job::ReadChanges => {
                let sqe = GetLogPage::new(lid::CHANGED_NAMESPACES, LOG_BYTES).emit(u32::MAX);
                (sqe, Data::In(LOG_BYTES), vec![0; LOG_BYTES as usize])
            }
            Job::ListNamespaces => {
                let mut sqe = Sqe::new(opcode::IDENTIFY, 0);
                sqe.cdw10 = u32::from(cns::ACTIVE_NAMESPACES).into();
                (sqe, Data::In(IDENTIFY_BYTES as u32), vec![0; IDENTIFY_BYTES])
            }
            Job::KeepAlive => (Sqe::new(opcode::KEEP_ALIVE, 0), Data::None, Vec::new()),
            Job::Abort { qid, cid } => {
                let mut sqe = Sqe::new(opcode::ABORT, 0);
                sqe.cdw10 = (u32::from(cid) << 16 | u32::from(qid)).into();
                (sqe, Data::None, Vec::new())
            }
        };
        let slot = self.link.submit(now, &sqe, data, buffer, Urgency::Urgent);
        let slot = slot.expect("the admin queue holds one command and one event request");
        match job {
            Job::RequestEvent => self.request = Some(slot),
            _ => self.current = Some((job, slot, now + TIMEOUT)),
        }
    }

    fn done(&mut self, job: Job, result: u32, data: &[u8]) -> Option<Event> {
        match job {
            Job::Connect => self.cntlid = result as u16,
            Job::Queues => return Some(Event::Enabled { cntlid: self.cntlid }),
            Job::ListNamespaces => {
                let (ids, _) = data.as_chunks::<4>();
                let ids = ids.iter().map(|id| u32::from_le_bytes(*id)).take_while(|&id| id != 0);
                return Some(Event::Namespaces(ids.collect()));
            }
            _ => {}
        }
        None
    }

    /// A command of an I/O queue has not been answered.
    pub fn abort(&mut self, qid: u16, cid: u16) {
        self.jobs.push_back(Job::Abort { qid, cid });
    }

    /// When something is due.
    pub fn next_at(&self) -> Option<Instant> {
        let timeout = self.current.map(|(_, _, deadline)| deadline);
        timeout.into_iter().chain(self.keep_alive_at).min()
    }

    /// Nothing is under way, and events would be heard of.
    pub fn is_idle(&self) -> bool {
        self.current.is_none() && self.jobs.is_empty() && self.request.is_some()
    }
}
