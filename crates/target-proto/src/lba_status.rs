//! Get LBA Status (NVM Command Set 1.1, section 4.2.1): allocated blocks of a range. The control plane checks the
//! command; the lane queries the namespace's store ([`Execution::query_block_status`]).
//!
//! [`Execution::query_block_status`]: super::execution::CommandExecution::query_block_status

use super::context::{CommandContext, byte};
use super::namespace::ExportedNamespace;
use super::outcome::LbaStatusQuery;
use core::time::Duration;
use roadtrain_proto::error::CommandError;
use roadtrain_wire::lba_status::{GetLbaStatus, action};
use roadtrain_wire::status::Status;

/// Longest wait for a store, ...
const WAIT_MAX: Duration = Duration::from_secs(1);
/// ... or this part of the keep-alive timeout: some hosts wait no longer for a completion before they drop the
/// connection.
const KEEP_ALIVE_PART: u32 = 4;

/// Checks a Get LBA Status command.
pub(super) fn parse(context: &CommandContext<'_>) -> Result<LbaStatusQuery, CommandError> {
    let get = GetLbaStatus::parse(context.sqe);
    let namespace = namespace(context)?;
    // Blocks that may be unreadable are not known here.
    if get.action != action::ALLOCATED {
        return Err(CommandError::field(byte::CDW13));
    }
    let bytes = u32::try_from(get.bytes).ok();
    let bytes = bytes.filter(|&bytes| bytes <= context.limits.transfer_bytes_max());
    let bytes = bytes.ok_or(CommandError::field(byte::CDW12))?;
    context.check_data_out(bytes as usize)?;
    let behind = namespace.config.blocks.checked_sub(get.slba).filter(|&behind| behind > 0);
    let blocks = behind.and_then(|behind| {
        let blocks = get.blocks.map_or(behind, u64::from);
        (blocks <= behind).then_some(blocks)
    });
    let blocks = blocks.ok_or(CommandError::at(Status::LBA_OUT_OF_RANGE, byte::CDW10))?;
    let (nsid, lba_shift) = (namespace.config.nsid, namespace.config.lba_shift);
    let patience = match context.controller.keep_alive.kato_ms() {
        0 => WAIT_MAX,
        kato_ms => WAIT_MAX.min(Duration::from_millis(kato_ms.into()) / KEEP_ALIVE_PART),
    };
    Ok(LbaStatusQuery { nsid, lba_shift, slba: get.slba, blocks, bytes, timeout: patience })
}

/// Returns the namespace that the command names.
fn namespace<'a>(context: &CommandContext<'a>) -> Result<&'a ExportedNamespace, CommandError> {
    let nsid = context.sqe.nsid.get();
    let seen = context.subsystem.and_then(|subsystem| subsystem.seen(context.controller, nsid));
    seen.ok_or(CommandError::at(Status::INVALID_NAMESPACE, byte::NSID))
}
