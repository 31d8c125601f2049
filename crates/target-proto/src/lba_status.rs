//! Get LBA Status (NVM Command Set 1.1, section 4.2.1): which blocks of a range are allocated. The control plane checks
//! the command; the lane has the namespace's store looked at ([`Execution::look_up`](super::execution::Execution::look_up)).

use super::config::NAMESPACES_MAX;
use super::context::{Context, octet};
use super::namespace::Namespace;
use core::time::Duration;
use roadtrain_proto::error::CommandError;
use roadtrain_proto::op::ByteRange;
use roadtrain_wire::lba_status::{GetLbaStatus, LbaStatusList, action, condition};
use roadtrain_wire::status::Status;

/// Blocks of a namespace of which the host wants to know whether they are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// The namespace.
    pub nsid: u32,
    /// Its block size as a power of two.
    pub lba_shift: u8,
    /// The first block.
    pub slba: u64,
    /// How many they are.
    pub blocks: u64,
    /// Octets of the list.
    pub bytes: u32,
    /// Longest wait for the store.
    pub patience: Duration,
}

/// Longest wait for a store, ...
const PATIENCE: Duration = Duration::from_secs(1);
/// ... or this part of the keep-alive timeout: a host may wait no longer for an answer before it gives its connection up.
const KEEP_ALIVE_PART: u32 = 4;

impl LookUp {
    /// The range in octets.
    #[must_use]
    pub fn range(&self) -> ByteRange {
        ByteRange { offset: self.slba << self.lba_shift, len: self.blocks << self.lba_shift }
    }

    /// A list in `place` that calls all of the range allocated: what is always true enough, as nobody takes data for a
    /// hole by that.
    pub fn call_allocated(&self, place: &mut [u8]) {
        let mut list = LbaStatusList::new(place);
        let is_whole = list.add(self.slba, self.blocks);
        list.end(if is_whole { condition::COMPLETE } else { condition::NO_ROOM });
    }
}

/// Checks a Get LBA Status command.
pub(super) fn parse(context: &Context<'_>) -> Result<LookUp, CommandError> {
    let get = GetLbaStatus::parse(context.sqe);
    let namespace = namespace(context)?;
    // What perhaps cannot be read is not known here.
    if get.action != action::ALLOCATED {
        return Err(CommandError::field(octet::CDW13));
    }
    let bytes = u32::try_from(get.bytes).ok();
    let bytes = bytes.filter(|&bytes| bytes <= context.limits.transfer_bytes_max());
    let bytes = bytes.ok_or(CommandError::field(octet::CDW12))?;
    context.check_data_out(bytes as usize)?;
    let behind = namespace.config.blocks.checked_sub(get.slba).filter(|&behind| behind > 0);
    let blocks = behind.and_then(|behind| {
        let blocks = get.blocks.map_or(behind, u64::from);
        (blocks <= behind).then_some(blocks)
    });
    let blocks = blocks.ok_or(CommandError::at(Status::LBA_OUT_OF_RANGE, octet::CDW10))?;
    let (nsid, lba_shift) = (namespace.config.nsid, namespace.config.lba_shift);
    let patience = match context.controller.keep_alive.kato_ms() {
        0 => PATIENCE,
        kato_ms => PATIENCE.min(Duration::from_millis(kato_ms.into()) / KEEP_ALIVE_PART),
    };
    Ok(LookUp { nsid, lba_shift, slba: get.slba, blocks, bytes, patience })
}

/// The namespace that the command names.
fn namespace<'a>(context: &Context<'a>) -> Result<&'a Namespace, CommandError> {
    let nsid = context.sqe.nsid.get();
    let is_shown = (1..=NAMESPACES_MAX).contains(&nsid) && !context.controller.removed.hides(nsid);
    let namespaces = context.subsystem.filter(|_| is_shown).map(|subsystem| &subsystem.namespaces);
    namespaces
        .and_then(|namespaces| namespaces.get(&nsid))
        .ok_or(CommandError::at(Status::INVALID_NAMESPACE, octet::NSID))
}
