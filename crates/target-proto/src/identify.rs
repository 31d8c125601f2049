//! Identify (NVMe Base 2.1, section 5.1.13): the data reports supported functions only.

use super::aborts::ABORTS_MAX;
use super::ana::TRANSITION_SECONDS;
use super::config::{NAMESPACES_MAX, TargetLimits};
use super::context::{CommandContext, bad_namespace, byte};
use super::controller::TargetController;
use super::error_log::ERROR_ENTRIES;
use super::events::AER_MAX;
use super::feature_values::{CRITICAL_KELVINS, WARNING_KELVINS};
use super::identity;
use super::keep_alive::KEEP_ALIVE_GRANULARITY;
use super::kind::optional_events;
use super::namespace::ExportedNamespace;
use super::namespace_management::allocated;
use super::namespace_request::NamespaceManagement;
use super::path_states::ANA_GROUP_IDS_MAX;
use super::property::VERSION;
use super::resets::RESETS_MAX;
use super::subsystem::TargetSubsystem;
use roadtrain_proto::error::CommandError;
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, nqn_field};
use roadtrain_wire::identify::{
    CSI_NVM, IDENTIFY_BYTES, IdentifyCommandSets, IdentifyController, IdentifyControllerNvm,
    IdentifyNamespace, IdentifyNamespaceNvm, LbaFormat, NMIC_SHARED, NSID_ALL, NamespaceDescriptor,
    NamespaceList, anacap, ascii_field, cdfs, cmic, cns, cntrltype, ctratt, fuses, lpa, oacs, ofcs,
    oncs, sgls, vwc,
};
use roadtrain_wire::namespace_management::ControllerList;
use roadtrain_wire::sqe::SQE_BYTES;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromZeros, Immutable, IntoBytes};

/// Firmware revision.
pub(super) const REVISION: &str = env!("CARGO_PKG_VERSION");
/// Direct discovery controller.
const DCTYPE_DIRECT: u8 = 1;

/// Executes an Identify command; the data goes to `out`.
pub(super) fn execute(
    context: &mut CommandContext<'_>,
    out: &mut Vec<u8>,
) -> Result<u64, CommandError> {
    context.check_data_out(IDENTIFY_BYTES)?;
    let cns = context.sqe.cdw10.get() as u8;
    match context.subsystem {
        _ if cns == cns::CONTROLLER => emit(out, &controller(context)),
        None => return Err(CommandError::field(byte::CDW10)),
        Some(subsystem) => {
            let result = identify_io(context, subsystem, cns, out);
            note_shown(context, cns, out);
            result?;
        }
    }
    Ok(0)
}

/// Records what the host has learnt about removed namespaces from `page`. A full page of a list says nothing about the
/// NSIDs after its last entry.
fn note_shown(context: &mut CommandContext<'_>, cns: u8, page: &[u8]) {
    let (nsid, now) = (context.sqe.nsid.get(), context.now);
    let removed = &mut context.controller.removed;
    match cns {
        cns::ACTIVE_NAMESPACES | cns::ACTIVE_NAMESPACES_COMMAND_SET if nsid < NSID_ALL => {
            let last = page.last_chunk().map_or(0, |nsid| u32::from_le_bytes(*nsid));
            removed.show(nsid + 1..=if last == 0 { NSID_ALL } else { last }, now);
        }
        cns::NAMESPACE | cns::NAMESPACE_INDEPENDENT | cns::NAMESPACE_DESCRIPTORS => {
            removed.show(nsid..=nsid, now);
        }
        _ => {}
    }
}

fn emit(out: &mut Vec<u8>, page: &(impl IntoBytes + Immutable)) {
    out.extend_from_slice(page.as_bytes());
}

/// Returns all data but Identify Controller, for I/O controllers.
fn identify_io(
    context: &CommandContext<'_>,
    subsystem: &TargetSubsystem,
    cns: u8,
    out: &mut Vec<u8>,
) -> Result<(), CommandError> {
    match cns {
        cns::NAMESPACE => match (context.management(), context.sqe.nsid.get()) {
            (Some(management), NSID_ALL) => emit(out, &common_namespace(management)),
            _ => emit_namespace(context, namespace(context, subsystem)?, out),
        },
        cns::ALLOCATED_NAMESPACES
        | cns::ALLOCATED_NAMESPACE
        | cns::ATTACHED_CONTROLLERS
        | cns::CONTROLLERS
            if context.management().is_some() =>
        {
            identify_managed(context, subsystem, cns, out)?;
        }
        cns::NAMESPACE_INDEPENDENT => match namespace(context, subsystem)? {
            Some(namespace) => {
                let group = context.controller.ana.group_of(&namespace.config);
                emit(out, &namespace.identify_independent(group));
            }
            None => out.resize(IDENTIFY_BYTES, 0),
        },
        cns::NAMESPACE_COMMAND_SET => {
            check_csi(context)?;
            // Without metadata there is nothing to report, whether the namespace is active or not.
            namespace(context, subsystem)?;
            emit(out, &IdentifyNamespaceNvm::new_zeroed());
        }
        cns::NAMESPACE_DESCRIPTORS => {
            let namespace = namespace(context, subsystem)?.ok_or(bad_namespace())?;
            descriptors(namespace, out);
        }
        cns::ACTIVE_NAMESPACES => emit(out, &active(context, subsystem)?),
        cns::ACTIVE_NAMESPACES_COMMAND_SET => {
            check_csi(context)?;
            emit(out, &active(context, subsystem)?);
        }
        cns::CONTROLLER_COMMAND_SET => {
            check_csi(context)?;
            let mut page = IdentifyControllerNvm::new_zeroed(); // else no limits beyond the command's own
            page.vsl = context.limits.mdts;
            page.wzsl = subsystem.wzsl;
            page.dmrsl = subsystem.dmrsl.into();
            emit(out, &page);
        }
        cns::COMMAND_SETS => {
            check_cntid(context)?;
            let mut page = IdentifyCommandSets::new_zeroed();
            page.vectors[0] = (1 << CSI_NVM).into();
            emit(out, &page);
        }
        _ => return Err(CommandError::field(byte::CDW10)),
    }
    Ok(())
}

/// Returns the data for administrators.
fn identify_managed(
    context: &CommandContext<'_>,
    subsystem: &TargetSubsystem,
    cns: u8,
    out: &mut Vec<u8>,
) -> Result<(), CommandError> {
    let (nsid, first) = (context.sqe.nsid.get(), (context.sqe.cdw10.get() >> 16) as u16);
    let controllers = || subsystem.attached.range(first..);
    match cns {
        cns::ALLOCATED_NAMESPACES if nsid >= 0xffff_fffe => return Err(bad_namespace()),
        cns::ALLOCATED_NAMESPACES => {
            let above = subsystem.namespaces.range(nsid + 1..);
            emit(out, &NamespaceList::from_nsids(above.map(|(nsid, _)| *nsid)));
        }
        cns::ALLOCATED_NAMESPACE => match nsid {
            1..=NAMESPACES_MAX => emit_namespace(context, subsystem.namespaces.get(&nsid), out),
            _ => return Err(bad_namespace()),
        },
        cns::ATTACHED_CONTROLLERS => {
            let config = subsystem.config(allocated(subsystem, nsid)?);
            let view = config.map(|config| &config.view).ok_or(bad_namespace())?;
            let attached = controllers().filter(|(_, one)| view.shows_to(&one.hostnqn));
            emit(out, &ControllerList::from_cntlids(attached.map(|(cntlid, _)| *cntlid)));
        }
        _ => emit(out, &ControllerList::from_cntlids(controllers().map(|(cntlid, _)| *cntlid))),
    }
    Ok(())
}

/// Emits Identify Namespace of a namespace; `None`: zeroes.
fn emit_namespace(
    context: &CommandContext<'_>,
    namespace: Option<&ExportedNamespace>,
    out: &mut Vec<u8>,
) {
    let Some(namespace) = namespace else { return out.resize(IDENTIFY_BYTES, 0) };
    let ana = &context.controller.ana;
    let mut page = namespace.identify(ana.group_of(&namespace.config));
    if ana.hides_capacity(&namespace.config) {
        page.nuse = 0.into();
    }
    emit(out, &page);
}

/// Returns the properties common to all namespaces that an administrator creates.
fn common_namespace(management: &NamespaceManagement) -> IdentifyNamespace {
    let mut page = IdentifyNamespace::new_zeroed();
    page.nmic = NMIC_SHARED;
    page.lbaf[0] = LbaFormat { ms: 0.into(), lbads: management.lba_shift, rp: 0 };
    page
}

/// Returns the namespace that the command names; `None` if it is valid but inactive.
fn namespace<'a>(
    context: &CommandContext<'_>,
    subsystem: &'a TargetSubsystem,
) -> Result<Option<&'a ExportedNamespace>, CommandError> {
    match context.sqe.nsid.get() {
        nsid @ 1..=NAMESPACES_MAX => Ok(subsystem.seen(context.controller, nsid)),
        _ => Err(bad_namespace()),
    }
}

/// Returns the active namespaces above the NSID in the command.
fn active(
    context: &CommandContext<'_>,
    subsystem: &TargetSubsystem,
) -> Result<NamespaceList, CommandError> {
    let after = context.sqe.nsid.get();
    if after >= 0xffff_fffe {
        return Err(bad_namespace());
    }
    let above = subsystem.namespaces.range(after + 1..);
    let seen = above.filter(|(_, namespace)| context.controller.sees(&namespace.config));
    Ok(NamespaceList::from_nsids(seen.map(|(nsid, _)| *nsid)))
}

fn check_csi(context: &CommandContext<'_>) -> Result<(), CommandError> {
    if (context.sqe.cdw11.get() >> 24) as u8 != CSI_NVM {
        return Err(CommandError::at(Status::INVALID_COMMAND_SET, byte::CDW11));
    }
    Ok(())
}

/// Checks that CNTID names this controller.
fn check_cntid(context: &CommandContext<'_>) -> Result<(), CommandError> {
    let cntid = (context.sqe.cdw10.get() >> 16) as u16;
    if cntid != CNTLID_DYNAMIC && cntid != context.controller.cntlid {
        return Err(CommandError::field(byte::CDW10));
    }
    Ok(())
}

fn descriptors(namespace: &ExportedNamespace, out: &mut Vec<u8>) {
    out.resize(IDENTIFY_BYTES, 0);
    let mut at = 0;
    for descriptor in [
        NamespaceDescriptor::Uuid(namespace.id.uuid),
        NamespaceDescriptor::Nguid(namespace.id.nguid),
        NamespaceDescriptor::Csi(CSI_NVM),
    ] {
        at += descriptor.emit(&mut out[at..]).unwrap_or(0); // 45 bytes fit the data structure
    }
}

fn controller(context: &CommandContext<'_>) -> IdentifyController {
    let (controller, limits) = (&context.controller, context.limits);
    let mut page = common(controller, limits);
    match context.subsystem {
        Some(subsystem) => {
            fill_io(&mut page, subsystem, limits);
            if context.management().is_some() {
                page.oacs = (page.oacs.get() | oacs::NAMESPACE_MANAGEMENT).into();
            }
            let instance = controller.properties.instance();
            if controller.keeps_order() {
                page.fuses = fuses::COMPARE_AND_WRITE.into(); // of one block: ACWU is 0
            }
            (page.ciu, page.cirn, page.ccrl) = (instance.ciu, instance.cirn.into(), RESETS_MAX);
            page.set_endpoint(identity::endpoint(context.network, controller.local));
        }
        None => {
            page.sn = ascii_field(&identity::serial(context.origin, &controller.subnqn));
            page.mn = ascii_field("Roadtrain discovery");
            page.cntrltype = cntrltype::DISCOVERY;
            page.lpa = lpa::EXTENDED_DATA;
            page.dctype = DCTYPE_DIRECT;
        }
    }
    page
}

/// Returns the fields common to both kinds of controllers.
fn common(controller: &TargetController, limits: &TargetLimits) -> IdentifyController {
    let mut page = IdentifyController::new_zeroed();
    page.fr = ascii_field(REVISION);
    page.mdts = limits.mdts;
    page.cntlid = controller.cntlid.into();
    page.ver = VERSION.into();
    page.oaes = optional_events(controller.kind).into();
    page.ctratt = (ctratt::HOST_ID_128 | ctratt::TRAFFIC_BASED_KEEP_ALIVE).into();
    page.aerl = AER_MAX as u8 - 1;
    page.elpe = (ERROR_ENTRIES - 1) as u8;
    page.kas = KEEP_ALIVE_GRANULARITY.into();
    page.maxcmd = limits.queue_entries_max.into();
    page.sgls = (sgls::SUPPORTED | sgls::OFFSET | sgls::TRANSPORT).into();
    page.subnqn = nqn_field(&controller.subnqn);
    page
}

fn fill_io(page: &mut IdentifyController, subsystem: &TargetSubsystem, limits: &TargetLimits) {
    page.sn = ascii_field(&subsystem.serial);
    page.mn = ascii_field(&subsystem.model);
    page.cmic = cmic::MULTI_PORT | cmic::MULTI_CONTROLLER | cmic::ANA;
    page.cntrltype = cntrltype::IO;
    page.oacs = oacs::GET_LBA_STATUS.into();
    page.acl = ABORTS_MAX - 1;
    page.frmw = 0b0011; // one slot, read-only
    (page.wctemp, page.cctemp) = (WARNING_KELVINS.into(), CRITICAL_KELVINS.into());
    page.lpa = lpa::COMMAND_EFFECTS | lpa::EXTENDED_DATA | lpa::MISCELLANEOUS;
    page.anatt = TRANSITION_SECONDS;
    page.anacap = anacap::OPTIMIZED
        | anacap::NON_OPTIMIZED
        | anacap::INACCESSIBLE
        | anacap::PERSISTENT_LOSS
        | anacap::CHANGE;
    (page.anagrpmax, page.nanagrpid) = (ANA_GROUP_IDS_MAX.into(), ANA_GROUP_IDS_MAX.into());
    (page.sqes, page.cqes) = (0x66, 0x44);
    (page.nn, page.mnan) = (NAMESPACES_MAX.into(), NAMESPACES_MAX.into());
    page.oncs = (oncs::COMPARE
        | oncs::WRITE_UNCORRECTABLE
        | oncs::DATASET_MANAGEMENT
        | oncs::WRITE_ZEROES
        | oncs::SAVE_SELECT
        | oncs::RESERVATIONS
        | oncs::VERIFY
        | oncs::COPY)
        .into();
    page.cdfs = cdfs::FORMAT_0.into();
    // Always present: a namespace with a cache may be added while hosts are connected.
    page.vwc = vwc::PRESENT | vwc::FLUSH_ALL_SUPPORTED;
    page.ioccsz = ((SQE_BYTES as u32 + limits.in_capsule_bytes_max) / 16).into();
    page.iorcsz = 1.into();
    page.msdbd = 1;
    page.ofcs = ofcs::DISCONNECT.into();
}
