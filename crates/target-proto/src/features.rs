//! Get Features and Set Features (NVMe Base 2.1, sections 5.1.11 and 5.1.25).

use super::context::{CommandContext, CommandReply, byte};
use super::feature_values::Thresholds;
use super::kind::ControllerKind;
use super::reservations::NamespaceReservations;
use super::subsystem::TargetSubsystem;
use roadtrain_proto::error::CommandError;
use roadtrain_wire::feature::{
    GetFeatures, HOST_BEHAVIOR_BYTES, HOST_IDENTIFIER_BYTES, NumberOfQueues, Select, SetFeatures,
    TemperatureThreshold, capabilities, fid,
};
use roadtrain_wire::identify::NSID_ALL;
use roadtrain_wire::reservation::{NOTIFICATION_MASK, PTPL};
use roadtrain_wire::status::Status;

/// Features with a constant value.
const FIXED: [(u8, u32); 5] = [
    (fid::ARBITRATION, 7), // no limit on a burst
    (fid::POWER_MANAGEMENT, 0),
    (fid::ERROR_RECOVERY, 0),
    (fid::WRITE_ATOMICITY, 0),
    (fid::COMMAND_SET_PROFILE, 0),
];

/// Features of a namespace, or of each namespace at a controller.
pub(super) const OF_NAMESPACES: [u8; 2] =
    [fid::RESERVATION_NOTIFICATION_MASK, fid::RESERVATION_PERSISTENCE];

/// Returns the features of a kind of controller.
pub(super) fn supported(kind: ControllerKind) -> &'static [u8] {
    match kind {
        ControllerKind::Io => &[
            fid::ARBITRATION,
            fid::POWER_MANAGEMENT,
            fid::TEMPERATURE_THRESHOLD,
            fid::ERROR_RECOVERY,
            fid::VOLATILE_WRITE_CACHE,
            fid::NUMBER_OF_QUEUES,
            fid::WRITE_ATOMICITY,
            fid::ASYNC_EVENT_CONFIG,
            fid::KEEP_ALIVE_TIMER,
            fid::HOST_BEHAVIOR,
            fid::COMMAND_SET_PROFILE,
            fid::HOST_IDENTIFIER,
            fid::RESERVATION_NOTIFICATION_MASK,
            fid::RESERVATION_PERSISTENCE,
        ],
        ControllerKind::Discovery => {
            &[fid::ASYNC_EVENT_CONFIG, fid::KEEP_ALIVE_TIMER, fid::HOST_IDENTIFIER]
        }
    }
}

/// Returns the value of a constant feature.
fn fixed(fid: u8) -> Option<u32> {
    FIXED.iter().find(|(fixed, _)| *fixed == fid).map(|(_, value)| *value)
}

fn is_changeable(fid: u8) -> bool {
    fixed(fid).is_none() && fid != fid::HOST_IDENTIFIER
}

fn queues(context: &CommandContext<'_>) -> u32 {
    let count = u32::from(context.limits.io_queues_max);
    NumberOfQueues { submission: count, completion: count }.emit()
}

/// Executes Get Features.
pub(super) fn get(
    context: &mut CommandContext<'_>,
    out: &mut Vec<u8>,
) -> Result<u64, CommandError> {
    let get = GetFeatures::parse(context.sqe);
    if !supported(context.controller.kind).contains(&get.fid) {
        return Err(CommandError::field(byte::CDW10));
    }
    if get.fid == fid::ERROR_RECOVERY {
        check_namespace(context)?;
    }
    match get.select.ok_or(CommandError::field(byte::CDW10))? {
        Select::Capabilities if is_changeable(get.fid) => Ok(capabilities::CHANGEABLE.into()),
        Select::Capabilities => Ok(0),
        Select::Current => current(context, get.fid, out),
        // Nothing is saved, so the saved value is the default.
        Select::Default | Select::Saved => default(context, get.fid, out),
    }
}

fn current(context: &CommandContext<'_>, fid: u8, out: &mut Vec<u8>) -> Result<u64, CommandError> {
    let controller = &context.controller;
    let value = match fid {
        fid::TEMPERATURE_THRESHOLD => threshold(context, controller.features.thresholds)?.into(),
        fid::VOLATILE_WRITE_CACHE => controller.features.write_cache.into(),
        fid::NUMBER_OF_QUEUES => queues(context),
        fid::ASYNC_EVENT_CONFIG => controller.events.enabled(),
        fid::KEEP_ALIVE_TIMER => controller.keep_alive.kato_ms(),
        fid::HOST_BEHAVIOR => return host_behavior(context, controller.features.acre, out),
        fid::HOST_IDENTIFIER => return host_identifier(context, out),
        fid::RESERVATION_NOTIFICATION_MASK => controller.notices.mask(namespace(context)?.0),
        fid::RESERVATION_PERSISTENCE => persists(context)?.into(),
        _ => fixed(fid).ok_or(CommandError::field(byte::CDW10))?,
    };
    Ok(value.into())
}

fn default(context: &CommandContext<'_>, fid: u8, out: &mut Vec<u8>) -> Result<u64, CommandError> {
    let value = match fid {
        fid::TEMPERATURE_THRESHOLD => threshold(context, Thresholds::DEFAULT)?.into(),
        fid::VOLATILE_WRITE_CACHE => 1,
        fid::NUMBER_OF_QUEUES => queues(context),
        fid::ASYNC_EVENT_CONFIG
        | fid::KEEP_ALIVE_TIMER
        | fid::RESERVATION_NOTIFICATION_MASK
        | fid::RESERVATION_PERSISTENCE => 0,
        fid::HOST_BEHAVIOR => return host_behavior(context, 0, out),
        fid::HOST_IDENTIFIER => return host_identifier(context, out),
        _ => fixed(fid).ok_or(CommandError::field(byte::CDW10))?,
    };
    Ok(value.into())
}

fn host_behavior(
    context: &CommandContext<'_>,
    acre: u8,
    out: &mut Vec<u8>,
) -> Result<u64, CommandError> {
    context.check_data_out(HOST_BEHAVIOR_BYTES)?;
    out.push(acre);
    out.resize(HOST_BEHAVIOR_BYTES, 0);
    Ok(0)
}

/// Returns the 128-bit host identifier of Connect; fabrics have no other (EXHID is 1).
fn host_identifier(context: &CommandContext<'_>, out: &mut Vec<u8>) -> Result<u64, CommandError> {
    if context.sqe.cdw11.get() & 1 == 0 {
        return Err(CommandError::field(byte::CDW11));
    }
    context.check_data_out(HOST_IDENTIFIER_BYTES)?;
    out.extend_from_slice(&context.controller.hostid);
    Ok(0)
}

/// Returns the threshold that a Get Features command names. Only the Composite Temperature has one.
fn threshold(
    context: &CommandContext<'_>,
    mut thresholds: Thresholds,
) -> Result<u16, CommandError> {
    let wanted = TemperatureThreshold::parse(context.sqe.cdw11.get());
    match wanted.kind {
        Some(kind) if wanted.sensor == TemperatureThreshold::COMPOSITE => Ok(*thresholds.get(kind)),
        _ => Err(CommandError::field(byte::CDW11)),
    }
}

fn set_threshold(context: &mut CommandContext<'_>, value: u32) -> Result<u64, CommandError> {
    let TemperatureThreshold { kelvins, sensor, kind, hysteresis } =
        TemperatureThreshold::parse(value);
    let is_ours = matches!(sensor, TemperatureThreshold::COMPOSITE | TemperatureThreshold::ALL);
    match kind {
        Some(kind) if is_ours && hysteresis == 0 => {
            *context.controller.features.thresholds.get(kind) = kelvins;
            Ok(0)
        }
        _ => Err(CommandError::field(byte::CDW11)),
    }
}

/// Returns the namespace that a command names, with its reservations.
fn namespace<'a>(
    context: &'a CommandContext<'_>,
) -> Result<(u32, &'a NamespaceReservations), CommandError> {
    let nsid = context.sqe.nsid.get();
    let seen = |one: &&TargetSubsystem| one.seen(context.controller, nsid).is_some();
    let subsystem = context.subsystem.filter(seen);
    let reservations = subsystem.and_then(|subsystem| subsystem.reservations.get(&nsid));
    let reservations =
        reservations.ok_or(CommandError::at(Status::INVALID_NAMESPACE, byte::NSID))?;
    Ok((nsid, reservations))
}

/// Checks that the namespace in a command exists; 0 and FFFFFFFFh name none in particular.
fn check_namespace(context: &CommandContext<'_>) -> Result<(), CommandError> {
    if context.is_for_controller() {
        return Ok(());
    }
    namespace(context).map(drop)
}

/// True if a namespace's reservations persist. Unknown while another target may own its blocks.
fn persists(context: &CommandContext<'_>) -> Result<bool, CommandError> {
    let (nsid, reservations) = namespace(context)?;
    let config = context.subsystem.and_then(|subsystem| subsystem.config(nsid));
    let ana = config.map(|config| context.controller.ana.of(config));
    match ana.and_then(|ana| ana.refusal()) {
        Some(status) => Err(CommandError { status, result: 0, byte: None }),
        None => Ok(reservations.state().persists),
    }
}

/// Executes Set Features.
pub(super) fn set(context: &mut CommandContext<'_>) -> Result<CommandReply, CommandError> {
    let set = SetFeatures::parse(context.sqe);
    if !supported(context.controller.kind).contains(&set.fid) {
        return Err(CommandError::field(byte::CDW10));
    }
    match set.fid {
        fid::RESERVATION_NOTIFICATION_MASK => set_notification_mask(context, &set),
        fid::RESERVATION_PERSISTENCE => set_persistence(context, &set),
        _ => set_own(context, &set).map(CommandReply::Result),
    }
}

/// Sets the notification mask of the namespace in a command, or of all existing ones.
fn set_notification_mask(
    context: &mut CommandContext<'_>,
    set: &SetFeatures,
) -> Result<CommandReply, CommandError> {
    if set.save {
        return Err(CommandError::at(Status::FEATURE_NOT_SAVEABLE, byte::CDW10));
    }
    if set.value & !NOTIFICATION_MASK != 0 {
        return Err(CommandError::field(byte::CDW11));
    }
    let nsids: Vec<u32> = match context.sqe.nsid.get() {
        NSID_ALL => {
            let seen = context.subsystem.iter().flat_map(|one| one.seen_by(context.controller));
            seen.map(|namespace| namespace.config.nsid).collect()
        }
        _ => vec![namespace(context)?.0],
    };
    for nsid in nsids {
        context.controller.notices.set_mask(nsid, set.value);
    }
    Ok(CommandReply::Result(0))
}

/// Sets Reservation Persistence, which is stored with the namespace: SV makes no difference.
fn set_persistence(
    context: &mut CommandContext<'_>,
    set: &SetFeatures,
) -> Result<CommandReply, CommandError> {
    if set.save {
        return Err(CommandError::at(Status::FEATURE_NOT_SAVEABLE, byte::CDW10));
    }
    if set.value & !PTPL != 0 {
        return Err(CommandError::field(byte::CDW11));
    }
    if context.sqe.nsid.get() != NSID_ALL {
        namespace(context)?;
    }
    Ok(CommandReply::Persist(set.value & PTPL != 0))
}

/// Sets a feature of the controller.
fn set_own(context: &mut CommandContext<'_>, set: &SetFeatures) -> Result<u64, CommandError> {
    if set.save {
        return Err(CommandError::at(Status::FEATURE_NOT_SAVEABLE, byte::CDW10));
    }
    // Error Recovery belongs to namespaces, all others to the controller.
    if set.fid == fid::ERROR_RECOVERY {
        check_namespace(context)?;
    } else if !context.is_for_controller() {
        return Err(CommandError::at(Status::FEATURE_NOT_NAMESPACE_SPECIFIC, byte::NSID));
    }
    if let Some(value) = fixed(set.fid) {
        let same = value == set.value;
        let error = CommandError::at(Status::FEATURE_NOT_CHANGEABLE, byte::CDW11);
        return if same { Ok(0) } else { Err(error) };
    }
    change(context, set)
}

fn change(context: &mut CommandContext<'_>, set: &SetFeatures) -> Result<u64, CommandError> {
    match set.fid {
        fid::TEMPERATURE_THRESHOLD => set_threshold(context, set.value),
        fid::VOLATILE_WRITE_CACHE => {
            let write_cache = set.value & 1 != 0;
            context.controller.features.write_cache = write_cache;
            context.controller.shared.set_write_through(!write_cache);
            Ok(0)
        }
        fid::NUMBER_OF_QUEUES => set_queues(context, set.value),
        fid::ASYNC_EVENT_CONFIG if context.controller.events.enable(set.value) => Ok(0),
        fid::KEEP_ALIVE_TIMER => set_keep_alive(context, set.value),
        fid::HOST_BEHAVIOR => set_host_behavior(context),
        // Over fabrics Connect sets it once.
        fid::HOST_IDENTIFIER => Err(CommandError::at(Status::COMMAND_SEQUENCE_ERROR, byte::CDW10)),
        _ => Err(CommandError::field(byte::CDW11)),
    }
}

/// Grants all queues, whatever number the host requests; not while there are I/O queues.
fn set_queues(context: &CommandContext<'_>, value: u32) -> Result<u64, CommandError> {
    NumberOfQueues::parse(value).ok_or(CommandError::field(byte::CDW11))?;
    if !context.controller.queues.is_empty() {
        return Err(CommandError::at(Status::COMMAND_SEQUENCE_ERROR, byte::CDW10));
    }
    Ok(queues(context).into())
}

/// Sets the keep-alive timeout. TCP requires the timer, so 0 is invalid.
fn set_keep_alive(context: &mut CommandContext<'_>, kato_ms: u32) -> Result<u64, CommandError> {
    if kato_ms == 0 {
        return Err(CommandError::at(Status::KEEP_ALIVE_INVALID, byte::CDW11));
    }
    context.controller.keep_alive.set(context.now, kato_ms);
    Ok(0)
}

fn set_host_behavior(context: &mut CommandContext<'_>) -> Result<u64, CommandError> {
    let length = Status::DATA_SGL_LENGTH_INVALID;
    let data: &[u8; HOST_BEHAVIOR_BYTES] =
        context.data_in.try_into().map_err(|_| CommandError::at(length, byte::SGL))?;
    let (acre, others) = (data[0], &data[1..]);
    // The other behaviours belong to unsupported functions: extended telemetry, more LBA formats.
    if acre > 1 || others.iter().any(|&behavior| behavior != 0) {
        return Err(CommandError::field(byte::SGL));
    }
    context.controller.features.acre = acre;
    Ok(0)
}
