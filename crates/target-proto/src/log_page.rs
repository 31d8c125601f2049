//! Get Log Page (NVMe Base 2.1, section 5.1.12).

use super::config::NAMESPACES_MAX;
use super::context::{CommandContext, byte};
use super::controller::TargetController;
use super::error_log::ERROR_ENTRIES;
use super::events::EventNotice;
use super::features;
use super::identify::REVISION;
use super::kind::{ControllerKind, supported_opcodes};
use super::namespace::ExportedNamespace;
use super::path_states::ANA_GROUP_IDS_MAX;
use super::subsystem::TargetSubsystem;
use core::time::Duration;
use roadtrain_proto::error::CommandError;
use roadtrain_wire::ana::{ANA_GROUPS_ONLY, AnaGroup, AnaHeader, AnaState, ana_log_bytes};
use roadtrain_wire::cross_reset::REMOVE_COMPLETED;
use roadtrain_wire::identify::{CSI_NVM, ascii_field};
use roadtrain_wire::log::{
    CommandEffectsLog, EffectsTable, ErrorEntry, FirmwareSlotLog, GetLogPage, SmartLog, effects,
    lid,
};
use roadtrain_wire::sqe::opcode;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromZeros, IntoBytes};
use std::collections::BTreeMap;

/// Returns the log pages of a kind of controller.
fn supported(kind: ControllerKind) -> &'static [u8] {
    match kind {
        ControllerKind::Io => &[
            lid::SUPPORTED,
            lid::ERROR,
            lid::SMART,
            lid::FIRMWARE_SLOT,
            lid::CHANGED_NAMESPACES,
            lid::COMMAND_EFFECTS,
            lid::ANA,
            lid::FEATURE_EFFECTS,
            lid::MI_EFFECTS,
            lid::CROSS_CONTROLLER_RESET,
            lid::RESERVATION_NOTIFICATION,
        ],
        ControllerKind::Discovery => {
            &[lid::SUPPORTED, lid::ERROR, lid::FEATURE_EFFECTS, lid::DISCOVERY]
        }
    }
}

/// Executes a Get Log Page command; the requested part goes to `out`, zero-filled behind the page.
pub(super) fn execute(
    context: &mut CommandContext<'_>,
    out: &mut Vec<u8>,
) -> Result<u64, CommandError> {
    let get = GetLogPage::parse(context.sqe);
    check(context, &get)?;
    let page = page(context, &get);
    let offset = usize::try_from(get.offset).unwrap_or(usize::MAX);
    let rest = page.get(offset..).ok_or(CommandError::field(byte::CDW12))?;
    let length = get.bytes as usize; // at most MDTS, as checked
    out.extend_from_slice(&rest[..rest.len().min(length)]);
    out.resize(length, 0);
    note_read(context, &get);
    Ok(0)
}

fn check(context: &CommandContext<'_>, get: &GetLogPage) -> Result<(), CommandError> {
    if !supported(context.controller.kind).contains(&get.lid) {
        return Err(CommandError::at(Status::INVALID_LOG_PAGE, byte::CDW10));
    }
    if !context.is_for_controller() {
        return Err(CommandError::field(byte::NSID)); // no log page belongs to a namespace
    }
    if get.bytes > u64::from(context.limits.transfer_bytes_max()) {
        return Err(CommandError::field(byte::CDW10));
    }
    if !get.offset.is_multiple_of(4) {
        return Err(CommandError::field(byte::CDW12));
    }
    if get.indexed {
        return Err(CommandError::field(byte::CDW14));
    }
    if get.lid == lid::COMMAND_EFFECTS && get.csi != CSI_NVM {
        return Err(CommandError::at(Status::INVALID_COMMAND_SET, byte::CDW14));
    }
    context.check_data_out(get.bytes as usize)
}

/// Returns the whole page.
fn page(context: &CommandContext<'_>, get: &GetLogPage) -> Vec<u8> {
    let (controller, kind) = (&context.controller, context.controller.kind);
    match (get.lid, context.subsystem) {
        (lid::SUPPORTED, _) => {
            let pages = supported(kind).iter().copied();
            EffectsTable::with(pages, effects::SUPPORTED).as_bytes().to_vec()
        }
        (lid::ERROR, _) => {
            let mut entries = controller.shared.errors().newest();
            entries.resize_with(ERROR_ENTRIES, ErrorEntry::new_zeroed);
            entries.as_bytes().to_vec()
        }
        (lid::FEATURE_EFFECTS, _) => {
            let fids = features::supported(kind).iter().copied();
            let value = effects::SUPPORTED | effects::SCOPE_CONTROLLER;
            let mut table = EffectsTable::with(fids, value);
            for fid in features::OF_NAMESPACES {
                if features::supported(kind).contains(&fid) {
                    let value = effects::SUPPORTED | effects::SCOPE_NAMESPACE;
                    table.entries[usize::from(fid)] = value.into();
                }
            }
            table.as_bytes().to_vec()
        }
        (lid::CROSS_CONTROLLER_RESET, _) => controller.resets.log(),
        (lid::RESERVATION_NOTIFICATION, _) => controller.notices.log().as_bytes().to_vec(),
        (lid::DISCOVERY, _) => context.discovery.log(controller, context.limits),
        (lid::FIRMWARE_SLOT, _) => {
            let mut log = FirmwareSlotLog::new_zeroed();
            (log.afi, log.frs[0]) = (1, ascii_field(REVISION));
            log.as_bytes().to_vec()
        }
        (lid::CHANGED_NAMESPACES, _) => controller.changed.page().as_bytes().to_vec(),
        (lid::COMMAND_EFFECTS, _) => {
            command_effects(kind, context.management().is_some()).as_bytes().to_vec()
        }
        (lid::SMART, Some(subsystem)) => smart(context, subsystem).as_bytes().to_vec(),
        (lid::ANA, Some(subsystem)) => ana(subsystem, controller, get.lsp & ANA_GROUPS_ONLY != 0),
        // NVMe-MI commands: none are supported.
        _ => CommandEffectsLog::new_zeroed().as_bytes().to_vec(),
    }
}

/// Records that the page was read: without Retain Asynchronous Event its event may be reported again.
fn note_read(context: &mut CommandContext<'_>, get: &GetLogPage) {
    let genctr = context.discovery.genctr;
    let controller = &mut *context.controller;
    if get.lid == lid::DISCOVERY && get.offset == 0 {
        controller.genctr_seen = genctr;
    }
    if get.lid == lid::CROSS_CONTROLLER_RESET && get.lsp & REMOVE_COMPLETED != 0 {
        controller.resets.forget_complete();
    }
    match get.lid {
        lid::CROSS_CONTROLLER_RESET if !get.rae => {
            controller.events.acknowledge(EventNotice::CrossControllerReset, false);
        }
        lid::RESERVATION_NOTIFICATION if !get.rae => {
            let again = controller.notices.note_read();
            controller.events.acknowledge(EventNotice::Reservation, again);
        }
        lid::ANA if !get.rae => controller.events.acknowledge(EventNotice::AnaChange, false),
        lid::CHANGED_NAMESPACES if !get.rae => {
            controller.changed.clear();
            controller.events.acknowledge(EventNotice::NamespaceAttribute, false);
        }
        lid::DISCOVERY if !get.rae => {
            // A host that reads in pieces may have the head of an older log.
            let again = controller.genctr_seen != genctr;
            controller.events.acknowledge(EventNotice::DiscoveryLog, again);
        }
        _ => {}
    }
}

fn smart(context: &CommandContext<'_>, subsystem: &TargetSubsystem) -> SmartLog {
    let mut log = SmartLog::new_zeroed();
    let usage = subsystem.usage();
    let thousands = |units: u64| u128::from(units.div_ceil(1000)).into();
    log.available_spare = 100;
    log.data_units_read = thousands(usage.read_units);
    log.data_units_written = thousands(usage.write_units);
    log.host_read_commands = u128::from(usage.read_commands).into();
    log.host_write_commands = u128::from(usage.write_commands).into();
    let hours = context.now.since(context.started).as_secs() / Duration::from_hours(1).as_secs();
    log.power_on_hours = u128::from(hours).into();
    log.error_log_entries = u128::from(context.controller.shared.errors().count()).into();
    log
}

fn command_effects(kind: ControllerKind, manages: bool) -> CommandEffectsLog {
    const NAMESPACE: u32 = effects::SUPPORTED | effects::SCOPE_NAMESPACE;
    let mut log = CommandEffectsLog::new_zeroed();
    for &admin in supported_opcodes(kind, manages) {
        let inventory = match admin {
            opcode::NAMESPACE_MANAGEMENT | opcode::NAMESPACE_ATTACHMENT => {
                effects::INVENTORY_CHANGE
            }
            _ => 0,
        };
        let all = effects::SUPPORTED | effects::SCOPE_CONTROLLER | inventory;
        log.admin[usize::from(admin)] = all.into();
    }
    for (io, effect) in [
        (opcode::FLUSH, NAMESPACE),
        (opcode::WRITE, NAMESPACE | effects::CONTENT_CHANGE),
        (opcode::READ, NAMESPACE),
        (opcode::WRITE_UNCORRECTABLE, NAMESPACE | effects::CONTENT_CHANGE),
        (opcode::COMPARE, NAMESPACE),
        (opcode::VERIFY, NAMESPACE),
        (opcode::COPY, NAMESPACE | effects::CONTENT_CHANGE),
        (opcode::WRITE_ZEROES, NAMESPACE | effects::CONTENT_CHANGE),
        (opcode::DATASET_MANAGEMENT, NAMESPACE | effects::CONTENT_CHANGE),
        (opcode::RESERVATION_REGISTER, NAMESPACE),
        (opcode::RESERVATION_REPORT, NAMESPACE),
        (opcode::RESERVATION_ACQUIRE, NAMESPACE),
        (opcode::RESERVATION_RELEASE, NAMESPACE),
    ] {
        log.io[usize::from(io)] = effect.into();
    }
    log
}

/// Size of the ANA log in bytes: hosts compute it from NANAGRPID and MNAN, and read that much.
const ANA_BYTES: usize = ana_log_bytes(ANA_GROUP_IDS_MAX, NAMESPACES_MAX) as usize;

/// Returns the ANA log, with the groups that have namespaces which the host sees.
fn ana(subsystem: &TargetSubsystem, controller: &TargetController, groups_only: bool) -> Vec<u8> {
    let mut groups: BTreeMap<u32, (AnaState, Vec<u32>)> = BTreeMap::new();
    for ExportedNamespace { config, .. } in subsystem.seen_by(controller) {
        let (group, state) = (controller.ana.group_of(config), controller.ana.of(config));
        groups.entry(group).or_insert((state, Vec::new())).1.push(config.nsid);
    }
    let chgcnt = controller.ana.changes;
    let mut page = AnaHeader::new(chgcnt, groups.len() as u16).as_bytes().to_vec();
    for (group, (state, mut nsids)) in groups {
        if groups_only {
            nsids.clear();
        }
        let descriptor = AnaGroup::new(group, nsids.len() as u32, chgcnt, state);
        page.extend_from_slice(descriptor.as_bytes());
        page.extend(nsids.into_iter().flat_map(u32::to_le_bytes));
    }
    page.resize(ANA_BYTES, 0);
    page
}
