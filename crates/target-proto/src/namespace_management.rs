//! Management of namespaces by hosts (NVMe Base 2.1, sections 5.1.20 and 5.1.21): create, delete, attach and detach.
//!
//! Only hosts that are named as administrators of the subsystem may do so. The control plane checks a command, and the
//! owner of the configuration executes it ([`TargetEvent::NamespaceRequest`]). It then calls
//! [`TargetControl::namespace_request_done`], which completes the command.
//!
//! ```text
//! allocated                  all namespaces of the subsystem
//! attached to a controller   its host sees the namespace (NamespaceView): the paths of a host count together
//! ```

use super::config::NAMESPACES_MAX;
use super::context::{CommandContext, CommandReply, bad_namespace, byte};
use super::control::TargetControl;
use super::namespace_request::{NamespaceManagement, NamespaceRequest};
use super::outcome::AdminOutcome;
use super::subsystem::TargetSubsystem;
use super::target_event::TargetEvent;
use super::view::{ANA_GROUPS_MAX, NamespaceView};
use roadtrain_proto::block_limits::BLOCKS_MAX;
use roadtrain_proto::error::CommandError;
use roadtrain_wire::identify::{CSI_NVM, NMIC_SHARED, NSID_ALL};
use roadtrain_wire::namespace_management::{
    ControllerList, NewNamespaceData, attachment, management, selected,
};
use roadtrain_wire::sqe::opcode;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, Immutable, KnownLayout};
use std::collections::BTreeSet;

impl CommandContext<'_> {
    /// Returns how the host may manage the subsystem's namespaces; `None`: not at all.
    pub(super) fn management(&self) -> Option<&NamespaceManagement> {
        let management = self.subsystem?.management.as_ref()?;
        management.administrators.contains(&*self.controller.hostnqn).then_some(management)
    }
}

/// Checks a Namespace Management or Namespace Attachment.
pub(super) fn parse(context: &CommandContext<'_>) -> Result<CommandReply, CommandError> {
    let (Some(management), Some(subsystem)) = (context.management(), context.subsystem) else {
        return Err(CommandError::at(Status::INVALID_OPCODE, byte::OPCODE));
    };
    let request = match (context.sqe.opcode, selected(context.sqe)) {
        (opcode::NAMESPACE_MANAGEMENT, management::CREATE) => create(context, management)?,
        (opcode::NAMESPACE_MANAGEMENT, management::DELETE) => delete(context, subsystem)?,
        (opcode::NAMESPACE_ATTACHMENT, sel @ (attachment::ATTACH | attachment::DETACH)) => {
            attach(context, subsystem, sel == attachment::ATTACH)?
        }
        _ => return Err(CommandError::field(byte::CDW10)),
    };
    if context.controller.namespace_request.is_some() {
        // A retry may find no request in progress: no Do Not Retry.
        let status = Status::COMMAND_INTERRUPTED;
        return Err(CommandError { status, ..CommandError::new(status) });
    }
    Ok(CommandReply::ManageNamespaces(request))
}

fn data<'a, T: FromBytes + KnownLayout + Immutable>(
    context: &CommandContext<'a>,
) -> Result<&'a T, CommandError> {
    let data = T::ref_from_bytes(context.data_in);
    data.map_err(|_| CommandError::at(Status::DATA_SGL_LENGTH_INVALID, byte::SGL))
}

fn create(
    context: &CommandContext<'_>,
    management: &NamespaceManagement,
) -> Result<NamespaceRequest, CommandError> {
    if context.sqe.nsid.get() != 0 {
        return Err(CommandError::field(byte::NSID));
    }
    if (context.sqe.cdw11.get() >> 24) as u8 != CSI_NVM {
        return Err(CommandError::at(Status::COMMAND_SET_NOT_SUPPORTED, byte::CDW11));
    }
    let new: &NewNamespaceData = data(context)?;
    let (blocks, capacity) = (new.nsze.get(), new.ncap.get());
    let (group, shared) = (new.anagrpid.get(), new.nmic & NMIC_SHARED != 0);
    let is_plain = new.dps == 0 && new.nvmsetid.get() == 0 && new.endgid.get() == 0;
    let status = if new.flbas & !0xf != 0 || new.flbas & 0xf != 0 {
        Status::INVALID_FORMAT
    } else if blocks == 0 || capacity > blocks || !shared || !is_plain {
        Status::INVALID_FIELD
    } else if capacity < blocks {
        Status::THIN_PROVISIONING_NOT_SUPPORTED
    } else if group > ANA_GROUPS_MAX {
        Status::ANA_GROUP_INVALID
    } else if blocks > BLOCKS_MAX {
        Status::NAMESPACE_INSUFFICIENT_CAPACITY
    } else {
        let ana_group = if group == 0 { NamespaceView::ALL.ana_group } else { group };
        return Ok(NamespaceRequest::Create { blocks, lba_shift: management.lba_shift, ana_group });
    };
    Err(CommandError::new(status))
}

fn delete(
    context: &CommandContext<'_>,
    subsystem: &TargetSubsystem,
) -> Result<NamespaceRequest, CommandError> {
    let nsid = match context.sqe.nsid.get() {
        NSID_ALL => None,
        nsid => Some(allocated(subsystem, nsid)?),
    };
    Ok(NamespaceRequest::Delete { nsid })
}

/// Returns the NSID if it is allocated.
pub(super) fn allocated(subsystem: &TargetSubsystem, nsid: u32) -> Result<u32, CommandError> {
    match nsid {
        1..=NAMESPACES_MAX if subsystem.namespaces.contains_key(&nsid) => Ok(nsid),
        1..=NAMESPACES_MAX => Err(CommandError::field(byte::NSID)),
        _ => Err(bad_namespace()),
    }
}

fn attach(
    context: &CommandContext<'_>,
    subsystem: &TargetSubsystem,
    attaches: bool,
) -> Result<NamespaceRequest, CommandError> {
    let nsid = allocated(subsystem, context.sqe.nsid.get())?;
    let unfit = || CommandError::new(Status::CONTROLLER_LIST_INVALID);
    let list: &ControllerList = data(context)?;
    let cntlids = list.cntlids().filter(|cntlids| !cntlids.is_empty()).ok_or_else(unfit)?;
    let host = |cntlid: u16| Some(String::from(&*subsystem.attached.get(&cntlid)?.hostnqn));
    let hosts = cntlids.iter().map(|cntlid| host(cntlid.get()));
    let hosts: BTreeSet<String> = hosts.collect::<Option<_>>().ok_or_else(unfit)?;
    let Some(view) = subsystem.config(nsid).map(|config| &config.view) else {
        return Err(bad_namespace());
    };
    let sees = |host: &String| view.shows_to(host);
    match attaches {
        true if hosts.iter().any(sees) => {
            Err(CommandError::new(Status::NAMESPACE_ALREADY_ATTACHED))
        }
        true => Ok(NamespaceRequest::Attach { nsid, hosts }),
        false if !hosts.iter().all(sees) => Err(CommandError::new(Status::NAMESPACE_NOT_ATTACHED)),
        // There is no list of the other hosts.
        false if view.hosts.is_none() && subsystem.allowed_hosts.is_none() => Err(unfit()),
        false => Ok(NamespaceRequest::Detach { nsid, hosts }),
    }
}

impl TargetControl {
    /// Passes the request of command `cid` on to the owner of the configuration.
    pub(super) fn request_namespaces(
        &mut self,
        cntlid: u16,
        cid: u16,
        request: NamespaceRequest,
    ) -> AdminOutcome {
        self.namespace_requests += 1;
        let id = self.namespace_requests;
        if let Some(controller) = self.controllers.get_mut(&cntlid) {
            controller.namespace_request = Some((id, cid));
            let nqn = controller.subnqn.clone();
            self.outbox.push_back(TargetEvent::NamespaceRequest { id, nqn, request });
        }
        AdminOutcome::Pending
    }

    /// Completes the command of a [`TargetEvent::NamespaceRequest`], with DW0 or the status of its failure. Its
    /// controller may have ended since.
    pub fn namespace_request_done(&mut self, id: u64, outcome: Result<u32, Status>) {
        let is_it = |request: &mut (u64, u16)| request.0 == id;
        let command = self.controllers.values_mut().find_map(|controller| {
            let (_, cid) = controller.namespace_request.take_if(is_it)?;
            Some((controller.cntlid, cid))
        });
        let Some((cntlid, cid)) = command else { return };
        let (status, result) = match outcome {
            Ok(result) => (Status::SUCCESS, result.into()),
            Err(status) => (status, 0),
        };
        self.outbox.push_back(TargetEvent::Completion { cntlid, cid, status, result });
    }
}
