//! Control thread of one of several paths.

use super::{HostControlError, HostReactorReport, PathContext, PathControl, ReactorHandle};
use crate::config::HostConfig;
use crate::counters::LinkState;
use crate::view::HostControllerView;
use roadtrain_host_proto::association::{HostAssociation, SiblingConstraints};
use roadtrain_host_proto::bringup::{Fencing, NamespaceInfo};
use roadtrain_system::clock;
use roadtrain_system::mailbox::{MailboxReceiver, MailboxSender};
use roadtrain_wire::cross_reset::ControllerInstance;
use std::sync::mpsc::SyncSender;
use tracing::{info, warn};

/// Receiver of the result of a path's first attempt to connect, used once.
pub(crate) struct FirstAttempt {
    pub(crate) reply: SyncSender<Result<(), HostControlError>>,
    /// Namespaces and limits of the connected path.
    pub(crate) first: SiblingConstraints,
    pub(crate) address: String,
}

/// Returns the constraints on further paths.
pub(crate) fn sibling_constraints(view: &HostControllerView) -> SiblingConstraints {
    let info = view.info();
    let transfer_bytes = info.transfer_bytes_max;
    let namespaces = info.namespaces.clone();
    SiblingConstraints { namespaces, pinned: view.pinned(), writes: view.writes(), transfer_bytes }
}

impl PathControl {
    /// Creates the control state of a path that is to be connected while another one works.
    pub(crate) fn for_sibling(
        config: HostConfig,
        context: PathContext,
        view: HostControllerView,
        reactors: Vec<ReactorHandle>,
        mailbox: (MailboxSender<HostReactorReport>, MailboxReceiver<HostReactorReport>),
    ) -> Self {
        let siblings = Some(sibling_constraints(&view));
        let rules = config.association(context.lanes as u32, siblings, view.old_commands());
        let association = HostAssociation::new(clock::now(), rules);
        PathControl::with(config, context, view, association, reactors, mailbox)
    }

    /// Reports the result of the first attempt, once.
    pub(super) fn report_first_attempt(&mut self, outcome: Result<(), HostControlError>) {
        if let Some(first_attempt) = self.context.first_attempt.take() {
            let _ = first_attempt.reply.try_send(outcome);
        }
    }

    /// Reports to the control threads of the other paths; the report gets the number of this path.
    pub(super) fn each_peer(&self, report: impl Fn(usize) -> HostReactorReport) {
        let is_other = |path: usize| path != self.context.path && self.view.has_path(path);
        let others = self.context.peers.iter().enumerate().filter(|(path, _)| is_other(*path));
        others.for_each(|(_, peer)| _ = peer.send(report(self.context.path)));
    }

    /// True if another path is connected.
    pub(super) fn has_live_sibling(&self) -> bool {
        let is_other = |path: &usize| *path != self.context.path && self.view.has_path(*path);
        let mut others = (0..self.context.peers.len()).filter(is_other);
        others.any(|path| self.view.link_of(path).state == LinkState::Connected)
    }

    /// Reports the outcome for a controller that another path has lost, as this path's target gave it.
    pub(super) fn ended_for(&self, owner: usize, lost: ControllerInstance, fencing: Fencing) {
        let (target, cntlid) = (&self.config.address, lost.cntlid);
        if fencing.has_ended()
            && let Some(peer) = self.context.peers.get(owner)
        {
            peer.send(HostReactorReport::HasEnded { lost });
        }
        match fencing {
            Fencing::Ended => {
                info!(%target, cntlid, "the target has ended the controller that another path has lost");
            }
            Fencing::Replaced => info!(
                %target,
                cntlid,
                "the target was started anew: the controller that another path has lost has ended"
            ),
            Fencing::Unknown | Fencing::NotOffered | Fencing::Refused(_) => {
                info!(
                    %target,
                    cntlid,
                    "the target cannot end the controller that another path has lost: {}",
                    self.describe_waiting_writes()
                )
            }
        }
    }

    /// Warns that the next Flush of these namespaces will fail.
    pub(super) fn warn_of_lost_writes(&self, nsids: &[u32]) {
        let target = &self.config.address;
        for nsid in nsids {
            warn!(
                %target,
                nsid,
                "the target's write verifier has changed: its machine, or its memory, was lost with writes that were not \
                 flushed; the next Flush of the namespace fails"
            );
        }
    }

    /// Warns of namespaces that have stayed in ANA Change for longer than ANATT.
    pub(super) fn warn_of_transition(&self, nsids: &[u32]) {
        let (target, seconds) = (&self.config.address, self.association.info());
        let seconds = seconds.map_or(0, |info| info.identify.anatt);
        warn!(
            %target,
            ?nsids,
            "the ANA state has been changing for longer than ANATT, {seconds} s: inaccessible until the target reports another state"
        );
    }

    /// True if this path reports the namespaces: one path does, and any other one while that is lost.
    pub(super) fn reports_namespaces(&self) -> bool {
        self.view.namespace_reporter() == self.context.path
            || self.view.link().state != LinkState::Connected
    }

    /// Returns why the path does not lead to the same namespaces, on its first connection. Later on other namespaces
    /// are stale there.
    pub(super) fn sibling_mismatch(&self) -> Option<String> {
        let first_attempt = self.context.first_attempt.as_ref()?;
        let info = self.association.info()?;
        let (here, there) = (&self.config.address, &first_attempt.address);
        let first = |n: &NamespaceInfo| {
            first_attempt.first.namespaces.iter().find(|other| other.nsid == n.nsid).cloned()
        };
        let pairs = info.namespaces.iter().filter_map(|now| Some((now, first(now)?)));
        let mut problems = pairs.filter_map(|(now, first)| {
            let nsid = now.nsid;
            if !now.is_same(&first) {
                return Some(format!(
                    "namespace {nsid} at {here} is another one than at {there}: NGUID, UUID or block size differ; \
                     paths have to lead to the same namespaces"
                ));
            }
            let has_none = now.nguid == [0; 16] && now.uuid == [0; 16] && now.eui64 == [0; 8];
            has_none.then(|| {
                format!(
                    "namespace {nsid} at {here} and {there} has neither NGUID nor UUID: it is not known whether \
                     these are paths to the same one"
                )
            })
        });
        let problem = problems.next();
        if problem.is_none() && !info.namespaces.iter().any(|now| first(now).is_some()) {
            return Some(format!("no namespace at {here} is one of those at {there}"));
        }
        problem
    }

    /// Refuses a path to other namespaces.
    pub(super) fn refuse(&mut self, problem: String) {
        warn!("{problem}");
        self.queues = Default::default();
        self.report_first_attempt(Err(HostControlError::Controller(problem)));
        self.is_refused = true;
        self.leave();
    }
}
