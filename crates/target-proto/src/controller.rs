//! Controllers: the state of one association with a host.

use super::aborts::Aborts;
use super::ana::AnaState;
use super::carrier::QueueAdmission;
use super::changed_namespaces::ChangedNamespaces;
use super::config::NamespaceConfig;
use super::error_log::ErrorLog;
use super::events::Events;
use super::feature_values::FeatureValues;
use super::keep_alive::KeepAlive;
use super::kind::ControllerKind;
use super::path_states::AnaOfController;
use super::property::Properties;
use super::removed::RemovedNamespaces;
use super::reservations::ReservationNotices;
use super::resets::CrossResets;
use super::target_event::TargetEvent;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Public description of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSummary {
    pub cntlid: u16,
    /// Kind of controller: I/O or discovery.
    pub kind: ControllerKind,
    pub subnqn: Arc<str>,
    pub hostnqn: Arc<str>,
    pub hostid: [u8; 16],
    pub io_queues: usize,
    /// Local address of the admin queue's connection; port 0 over Ethernet.
    pub local: SocketAddr,
    /// ANA state of its path to the namespaces.
    pub ana: AnaState,
}

/// A controller: admin queue, I/O queues, and the state that admin commands see and change.
#[derive(Debug)]
pub(super) struct TargetController {
    pub(super) cntlid: u16,
    pub(super) kind: ControllerKind,
    pub(super) subnqn: Arc<str>,
    pub(super) hostnqn: Arc<str>,
    pub(super) hostid: [u8; 16],
    /// An I/O queue's Connect has named another HOSTID.
    pub(super) has_other_hostids: bool,
    /// Local address of the admin queue's connection.
    pub(super) local: SocketAddr,
    pub(super) shared: Arc<ControllerShared>,
    pub(super) properties: Properties,
    pub(super) keep_alive: KeepAlive,
    pub(super) features: FeatureValues,
    pub(super) events: Events,
    /// Namespaces changed since the host last read the list.
    pub(super) changed: ChangedNamespaces,
    /// NSIDs of removed namespaces that the host may not have noticed yet: inactive for it, even if reused.
    pub(super) removed: RemovedNamespaces,
    /// Generation of the discovery log when the host last read its head.
    pub(super) genctr_seen: u64,
    pub(super) queues: BTreeSet<u16>,
    /// Security and authentication of its queues, including the admin queue and some that have ended.
    pub(super) admissions: BTreeMap<u16, QueueAdmission>,
    /// Number of closed I/O queues whose lanes may still have commands in a store.
    pub(super) draining: u32,
    /// I/O queues that may still have commands in a store, during shutdown; otherwise `None`.
    pub(super) quiescing: Option<BTreeSet<u16>>,
    /// Abort commands that wait for a lane.
    pub(super) aborts: Aborts,
    /// Cross-Controller Resets that its host has requested.
    pub(super) resets: CrossResets,
    /// Reservation Notifications.
    pub(super) notices: ReservationNotices,
    /// Pending Set Features commands with Reservation Persistence, by identifier: outstanding namespaces, and the
    /// status so far.
    pub(super) persisting: BTreeMap<u16, (usize, Status)>,
    /// Request of the host for a change of namespaces in progress: its number, and the command's identifier.
    pub(super) namespace_request: Option<(u64, u16)>,
    /// ANA states of its path to the namespaces.
    pub(super) ana: AnaOfController,
}

impl TargetController {
    /// Completes Asynchronous Event Requests while there are both requests and events.
    pub(super) fn complete_event_requests(&mut self, outbox: &mut VecDeque<TargetEvent>) {
        while let Some((cid, event)) = self.events.poll() {
            outbox.push_back(TargetEvent::EventCompletion {
                cntlid: self.cntlid,
                cid,
                status: Status::SUCCESS,
                result: event.emit().into(),
            });
        }
    }

    /// True if the namespace is active for it: its host sees the namespace, and has noticed that an earlier one under the
    /// NSID is gone.
    pub(super) fn sees(&self, namespace: &NamespaceConfig) -> bool {
        namespace.view.shows_to(&self.hostnqn) && !self.removed.hides(namespace.nsid)
    }

    /// True if commands arrive in the order of submission. Frames on Ethernet do not; their address has port 0.
    pub(super) fn keeps_order(&self) -> bool {
        self.local.port() != 0
    }

    /// True if the host proved its identity before the admin queue was granted.
    pub(super) fn has_proved(&self) -> bool {
        self.admissions.get(&0).is_some_and(|admission| admission.is_proof())
    }

    /// True if no command is in a store and none will be: at shutdown or after a reset.
    pub(super) fn is_quiet(&self) -> bool {
        self.draining == 0 && self.quiescing.as_ref().is_none_or(BTreeSet::is_empty)
    }

    /// True if both belong to the same host, in the same subsystem.
    pub(super) fn is_of_host(&self, other: &TargetController) -> bool {
        let of = |c: &TargetController| (c.subnqn.clone(), c.hostnqn.clone(), c.hostid);
        of(self) == of(other)
    }

    /// Updates CSTS once all lanes have drained.
    pub(super) fn update_status(&mut self) {
        if self.draining == 0 {
            self.properties.finish_reset(self.kind);
        }
    }

    /// Forgets queue `qid`, which is gone with its commands: completes the Aborts that wait for it.
    pub(super) fn forget(&mut self, qid: u16, outbox: &mut VecDeque<TargetEvent>) {
        let (cntlid, status) = (self.cntlid, Status::SUCCESS);
        let complete = |cid| TargetEvent::Completion { cntlid, cid, status, result: NOT_ABORTED };
        outbox.extend(self.aborts.remove_queue(qid).into_iter().map(complete));
        self.quiescing.iter_mut().for_each(|quiescing| {
            quiescing.remove(&qid);
        });
    }
}

/// DW0 of an Abort whose command was not aborted.
pub(super) const NOT_ABORTED: u64 = 1;

/// State shared by the lanes of a controller and the control plane, without a lock.
#[derive(Debug, Default)]
pub struct ControllerShared {
    traffic: AtomicBool,
    /// The keep-alive timer has expired, and the controller is gone.
    expired: AtomicBool,
    write_through: AtomicBool,
    errors: ErrorLog,
    read_commands: AtomicU64,
    write_commands: AtomicU64,
    read_units: AtomicU64,
    write_units: AtomicU64,
}

impl ControllerShared {
    /// Records a command received on an I/O queue, which keeps the controller alive. Cheap; once per turn is enough.
    pub fn mark_traffic(&self) {
        if !self.traffic.load(Relaxed) {
            self.traffic.store(true, Relaxed);
        }
    }

    /// True if there was traffic since the last call.
    pub(super) fn take_traffic(&self) -> bool {
        self.traffic.swap(false, Relaxed)
    }

    /// Records that the keep-alive timer has expired.
    pub(super) fn expire(&self) {
        self.expired.store(true, Relaxed);
    }

    /// True if the keep-alive timer has expired: lanes execute nothing more.
    #[must_use]
    pub fn has_expired(&self) -> bool {
        self.expired.load(Relaxed)
    }

    /// Adds the failure of a command of I/O queue `qid` to the error log.
    pub fn record_error(&self, qid: u16, sqe: &Sqe, status: Status) {
        self.errors.record(qid, sqe, status, None);
    }

    pub(super) fn errors(&self) -> &ErrorLog {
        &self.errors
    }

    /// True if the host has disabled the volatile write cache: every write is executed as with FUA.
    #[must_use]
    pub fn is_write_through(&self) -> bool {
        self.write_through.load(Relaxed)
    }

    pub(super) fn set_write_through(&self, write_through: bool) {
        self.write_through.store(write_through, Relaxed);
    }

    /// Adds a lane's completed commands since its last call to the SMART log.
    pub fn add_usage(&self, usage: &CommandUsage) {
        for (sum, more) in [
            (&self.read_commands, usage.read_commands),
            (&self.write_commands, usage.write_commands),
            (&self.read_units, usage.read_units),
            (&self.write_units, usage.write_units),
        ] {
            sum.fetch_add(more, Relaxed);
        }
    }

    pub(super) fn usage(&self) -> CommandUsage {
        CommandUsage {
            read_commands: self.read_commands.load(Relaxed),
            write_commands: self.write_commands.load(Relaxed),
            read_units: self.read_units.load(Relaxed),
            write_units: self.write_units.load(Relaxed),
        }
    }
}

/// Completed commands and transferred data, for the SMART log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CommandUsage {
    /// Read and Compare commands.
    pub read_commands: u64,
    pub write_commands: u64,
    /// Data read, in units of 512 bytes.
    pub read_units: u64,
    /// Data written, in units of 512 bytes.
    pub write_units: u64,
}

impl CommandUsage {
    /// Returns the data read and written, in units of 512 bytes.
    #[inline]
    pub(super) fn units(&self) -> u64 {
        self.read_units + self.write_units
    }

    pub(super) fn plus(self, other: &CommandUsage) -> CommandUsage {
        CommandUsage {
            read_commands: self.read_commands.wrapping_add(other.read_commands),
            write_commands: self.write_commands.wrapping_add(other.write_commands),
            read_units: self.read_units.wrapping_add(other.read_units),
            write_units: self.write_units.wrapping_add(other.write_units),
        }
    }
}
