//! Fabrics commands on connected queues (NVMe Base 2.1, section 6).

use super::context::{CommandContext, CommandReply, byte};
use super::property::Transition;
use super::target_event::{CloseReason, TargetEvent};
use roadtrain_proto::error::CommandError;
use roadtrain_wire::fabrics::{Property, fctype};
use roadtrain_wire::sqe::opcode;
use roadtrain_wire::status::Status;

/// Executes a fabrics command. Authentication commands arrive here only on queues that require no authentication: they
/// are invalid.
pub(super) fn execute(context: &mut CommandContext<'_>) -> Result<CommandReply, CommandError> {
    let sqe = context.sqe;
    let is_admin = context.qid == 0;
    if sqe.opcode != opcode::FABRICS {
        return Err(CommandError::at(Status::INVALID_OPCODE, byte::OPCODE));
    }
    match sqe.fctype() {
        fctype::PROPERTY_GET if is_admin => {
            let controller = &context.controller;
            let get = Property::parse(sqe);
            let value = controller.properties.get(&get, controller.kind, context.limits)?;
            Ok(CommandReply::Result(value))
        }
        fctype::PROPERTY_SET if is_admin => property_set(context),
        fctype::CONNECT => Err(CommandError::at(Status::COMMAND_SEQUENCE_ERROR, byte::OPCODE)),
        fctype::DISCONNECT => disconnect(context),
        _ => Err(CommandError::at(Status::INVALID_OPCODE, byte::NSID)),
    }
}

fn property_set(context: &mut CommandContext<'_>) -> Result<CommandReply, CommandError> {
    let controller = &mut *context.controller;
    let transition = controller.properties.set(&Property::parse(context.sqe), controller.kind)?;
    if transition == Transition::Reset {
        reset(context);
        context.controller.update_status();
    }
    Ok(CommandReply::Result(0))
}

/// Executes a controller reset: features return to their defaults, outstanding requests and I/O queues end. The admin
/// queue, the keep-alive timeout and the error log stay.
fn reset(context: &mut CommandContext<'_>) {
    let controller = &mut *context.controller;
    let cntlid = controller.cntlid;
    let (status, result) = (Status::ABORT_REQUESTED, 0);
    let event = |cid| TargetEvent::EventCompletion { cntlid, cid, status, result };
    context.outbox.extend(controller.events.reset().into_iter().map(event));
    let requests = controller.aborts.reset().into_iter().chain(controller.resets.reset());
    let requests = requests.chain(core::mem::take(&mut controller.persisting).into_keys());
    let requests = requests.chain(controller.namespace_request.take().map(|(_, cid)| cid));
    let completion = |cid| TargetEvent::Completion { cntlid, cid, status, result };
    context.outbox.extend(requests.map(completion));
    // CSTS reports the reset once the lanes have nothing in a store.
    controller.draining += controller.queues.len() as u32;
    controller.quiescing = None;
    for qid in core::mem::take(&mut controller.queues) {
        let reason = CloseReason::ControllerReset;
        context.outbox.push_back(TargetEvent::Close { cntlid, qid, reason });
    }
    controller.changed.clear();
    controller.notices = Default::default();
    controller.features = Default::default();
    controller.shared.set_write_through(false);
}

/// Executes Disconnect, which ends an I/O queue; the admin queue ends with its connection.
fn disconnect(context: &mut CommandContext<'_>) -> Result<CommandReply, CommandError> {
    if context.sqe.cdw10.get() as u16 != 0 {
        return Err(CommandError::at(Status::CONNECT_INCOMPATIBLE_FORMAT, byte::CDW10));
    }
    if !context.controller.queues.remove(&context.qid) {
        return Err(CommandError::at(Status::INVALID_QUEUE_TYPE, byte::OPCODE));
    }
    let controller = &mut *context.controller;
    controller.draining += 1;
    controller.forget(context.qid, context.outbox);
    Ok(CommandReply::Disconnected)
}
