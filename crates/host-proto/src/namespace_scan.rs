//! Reads the namespaces of a controller and their ANA states: lists and logs of several pages, within limits.

use super::namespace_info::NamespaceInfo;
use super::paths::AnaTable;
use super::procedure::{ControllerCommand, ProcedureDriver, ProcedureFailure};
use roadtrain_wire::ana::{ANA_GROUPS_ONLY, AnaState, ana_groups, ana_log_bytes, ana_log_end};
use roadtrain_wire::identify::{
    IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, NAMESPACE_LIST_ENTRIES, NSID_ALL,
    NamespaceDescriptor, NamespaceList, cmic, cns, dlfeat, lpa, namespace_descriptors, nsfeat,
};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromBytes;
use roadtrain_wire::zerocopy::little_endian::U16;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of active namespaces that a host accepts from a controller.
const NAMESPACES_MAX: usize = 1 << 14;
/// Bytes of the Changed Namespace List.
const CHANGED_BYTES: u32 = 4096;
/// Maximum bytes of an ANA log.
const ANA_BYTES_MAX: u64 = 1 << 20;
/// Bytes of an ANA log that one command reads.
const ANA_PIECE_BYTES: u64 = 64 << 10;
/// Bytes of the head of an ANA log up to the end of its change count.
const ANA_COUNT_BYTES: usize = 8;
/// Attempts to read an ANA log that changes between two pieces.
const ANA_ATTEMPTS: u32 = 4;

/// UUID and EUI-64.
type Ids = ([u8; 16], [u8; 8]);

/// Namespaces that may have changed since they were read last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedNsids {
    /// Any: the controller does not list them, or there are too many for its list.
    Any,
    /// Only those with these NSIDs.
    Only(BTreeSet<u32>),
}

impl ChangedNsids {
    /// Interprets a Changed Namespace List. FFFFFFFFh stands for more than the list holds. A list without entries does
    /// not say which namespace an event was about.
    #[must_use]
    pub fn parse(page: &[u8]) -> ChangedNsids {
        let nsids: BTreeSet<u32> = NamespaceList::ref_from_prefix(page)
            .map(|(list, _)| list.iter().collect())
            .unwrap_or_default();
        match nsids.is_empty() || nsids.contains(&NSID_ALL) {
            true => ChangedNsids::Any,
            false => ChangedNsids::Only(nsids),
        }
    }

    fn has(&self, nsid: u32) -> bool {
        match self {
            ChangedNsids::Any => true,
            ChangedNsids::Only(nsids) => nsids.contains(&nsid),
        }
    }
}

/// Reads the Identify data structure `cns`.
pub(super) async fn identify<E>(
    driver: &ProcedureDriver<E>,
    cns: u8,
    nsid: u32,
) -> Result<Vec<u8>, ProcedureFailure<E>> {
    let mut sqe = Sqe::new(opcode::IDENTIFY, nsid);
    sqe.cdw10 = u32::from(cns).into();
    let command = ControllerCommand {
        bytes_in: IDENTIFY_BYTES as u32,
        ..ControllerCommand::new("Identify", sqe)
    };
    Ok(driver.run(command).await?.1)
}

/// Reads the Changed Namespace List after an event, which acknowledges the event.
///
/// # Errors
/// The connection or the command fails.
pub async fn changed<E>(driver: &ProcedureDriver<E>) -> Result<ChangedNsids, ProcedureFailure<E>> {
    let log = GetLogPage::new(lid::CHANGED_NAMESPACES, CHANGED_BYTES).emit(u32::MAX);
    let command = ControllerCommand::new("Get Log Page (changed)", log);
    let (_, page) = driver.run(ControllerCommand { bytes_in: CHANGED_BYTES, ..command }).await?;
    Ok(ChangedNsids::parse(&page))
}

/// Reads all active namespaces.
///
/// # Errors
/// The connection or a command fails, or the controller lists too many.
pub async fn all<E>(
    driver: &ProcedureDriver<E>,
) -> Result<Vec<NamespaceInfo>, ProcedureFailure<E>> {
    again(driver, &[], &ChangedNsids::Any).await
}

/// Reads the list of active namespaces, page by page, and the data of those that have changed or are not `known`.
/// `known` is in the order of NSIDs.
///
/// # Errors
/// As [`all`].
pub async fn again<E>(
    driver: &ProcedureDriver<E>,
    known: &[NamespaceInfo],
    changed: &ChangedNsids,
) -> Result<Vec<NamespaceInfo>, ProcedureFailure<E>> {
    let (mut found, mut listed, mut after) = (Vec::new(), 0, 0);
    loop {
        let page = identify(driver, cns::ACTIVE_NAMESPACES, after).await?;
        let page = NamespaceList::ref_from_prefix(&page);
        let nsids: Vec<u32> = page.map(|(list, _)| list.iter().collect()).unwrap_or_default();
        listed += nsids.len();
        if listed > NAMESPACES_MAX {
            let text = format!("more than {NAMESPACES_MAX} namespaces: use several subsystems");
            return Err(ProcedureFailure::Controller(text));
        }
        for &nsid in &nsids {
            if nsid <= after {
                return Err(ProcedureFailure::Controller("namespace list out of order".into()));
            }
            after = nsid;
            let same = known.binary_search_by_key(&nsid, |one| one.nsid);
            match same.ok().filter(|_| !changed.has(nsid)) {
                Some(at) => found.push(known[at].clone()),
                None => found.extend(namespace(driver, nsid).await?),
            }
        }
        if nsids.len() < NAMESPACE_LIST_ENTRIES {
            return Ok(found);
        }
    }
}

async fn namespace<E>(
    driver: &ProcedureDriver<E>,
    nsid: u32,
) -> Result<Option<NamespaceInfo>, ProcedureFailure<E>> {
    let page = identify(driver, cns::NAMESPACE, nsid).await?;
    let Ok(identify) = IdentifyNamespace::ref_from_bytes(&page) else { return Ok(None) };
    let Some(block_bytes) = identify.block_bytes().filter(|_| identify.is_active()) else {
        return Ok(None); // removed in the meantime, or of an unsupported format
    };
    let Some((uuid, eui64)) = descriptors(driver, nsid, identify.eui64).await? else {
        return Ok(None);
    };
    let has_optimal_io = identify.nsfeat & nsfeat::OPTIMAL_IO != 0;
    let blocks = |field: U16| if has_optimal_io { u32::from(field.get()) + 1 } else { 1 };
    Ok(Some(NamespaceInfo {
        nsid,
        blocks: identify.nsze.get(),
        block_bytes,
        read_only: identify.is_read_only(),
        deallocated_reads_zero: identify.dlfeat & dlfeat::READS == dlfeat::READS_ZERO,
        nguid: identify.nguid,
        uuid,
        eui64,
        preferred_write_blocks: blocks(identify.npwg),
        preferred_discard_blocks: blocks(identify.npdg),
        optimal_write_blocks: blocks(identify.nows),
        write_verifier: identify.write_verifier(),
        ana_group: identify.anagrpid.get(),
    }))
}

/// Reads the namespace's UUID, and its EUI-64 if Identify Namespace has none; `None` if the namespace is gone.
async fn descriptors<E>(
    driver: &ProcedureDriver<E>,
    nsid: u32,
    eui64: [u8; 8],
) -> Result<Option<Ids>, ProcedureFailure<E>> {
    let page = match identify(driver, cns::NAMESPACE_DESCRIPTORS, nsid).await {
        Ok(page) => page,
        Err(ProcedureFailure::Command { status, .. }) if status.is(Status::INVALID_NAMESPACE) => {
            return Ok(None);
        }
        // An older controller does not support the list, and its status says do not retry.
        Err(ProcedureFailure::Command { status, .. }) if status.is_dnr() => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut ids = ([0; 16], eui64);
    for descriptor in namespace_descriptors(&page) {
        match descriptor {
            NamespaceDescriptor::Uuid(uuid) => ids.0 = uuid,
            NamespaceDescriptor::Eui64(eui64) => ids.1 = eui64,
            _ => {}
        }
    }
    Ok(Some(ids))
}

/// Reads the ANA state of each namespace, in the order of NSIDs; empty (all optimized) if the controller reports none.
/// Reading the log acknowledges the ANA event.
///
/// # Errors
/// The connection or a command fails, or the log is too long.
pub async fn ana<E>(
    driver: &ProcedureDriver<E>,
    identify: &IdentifyController,
) -> Result<AnaTable, ProcedureFailure<E>> {
    if identify.cmic & cmic::ANA == 0 {
        return Ok(AnaTable::default());
    }
    let log = ana_log(driver, identify, 0).await?;
    let mut table: Vec<(u32, AnaState)> = Vec::new();
    for (group, nsids) in ana_groups(&log) {
        // Reserved states are ignored: the status of requests will show the state.
        let Some(state) = group.state() else { continue };
        table.extend(nsids.iter().map(|nsid| (nsid.get(), state)));
    }
    table.sort_unstable_by_key(|(nsid, _)| *nsid);
    table.dedup_by_key(|(nsid, _)| *nsid);
    Ok(table.into())
}

/// Reads the states of the ANA groups again, without their namespaces (RGO), whose groups are known. For use without an
/// event: a namespace that moves to another group causes one.
///
/// # Errors
/// As [`ana`].
pub async fn ana_of_groups<E>(
    driver: &ProcedureDriver<E>,
    identify: &IdentifyController,
    namespaces: &[NamespaceInfo],
) -> Result<AnaTable, ProcedureFailure<E>> {
    if identify.cmic & cmic::ANA == 0 || namespaces.iter().any(|one| one.ana_group == 0) {
        return ana(driver, identify).await;
    }
    let log = ana_log(driver, identify, ANA_GROUPS_ONLY).await?;
    let states: BTreeMap<u32, AnaState> = ana_groups(&log)
        .filter_map(|(group, _)| Some((group.grpid.get(), group.state()?)))
        .collect();
    let of = |one: &NamespaceInfo| Some((one.nsid, *states.get(&one.ana_group)?));
    Ok(namespaces.iter().filter_map(of).collect())
}

/// Reads an ANA log, in pieces if it is long. A log that changes meanwhile is read anew, a few times: the last change
/// causes another event in any case.
async fn ana_log<E>(
    driver: &ProcedureDriver<E>,
    identify: &IdentifyController,
    lsp: u8,
) -> Result<Vec<u8>, ProcedureFailure<E>> {
    let namespaces = match identify.mnan.get() {
        0 => identify.nn.get(),
        most => most,
    };
    let bytes_max = ana_log_bytes(identify.nanagrpid.get(), namespaces.min(NAMESPACES_MAX as u32));
    let bytes_max = bytes_max.min(ANA_BYTES_MAX);
    let piece_bytes = match (identify.lpa & lpa::EXTENDED_DATA, identify.mdts) {
        (0, _) => bytes_max, // no command has an offset
        (_, 0) => ANA_PIECE_BYTES,
        // MDTS is in pages of at least 4 KiB.
        (_, mdts) => ANA_PIECE_BYTES.min(4096 << mdts.min(20)),
    };
    let mut log = Vec::new();
    for _ in 0..ANA_ATTEMPTS {
        log.clear();
        loop {
            let end = ana_log_end(&log).unwrap_or(bytes_max).min(bytes_max);
            let missing = end.saturating_sub(log.len() as u64).min(piece_bytes);
            if missing == 0 {
                break;
            }
            log.extend(ana_piece(driver, lsp, (log.len() as u64, missing)).await?);
        }
        if log.len() as u64 <= piece_bytes {
            break;
        }
        let count = ana_piece(driver, lsp, (0, ANA_COUNT_BYTES as u64)).await?;
        if log.get(..ANA_COUNT_BYTES) == Some(&count[..]) {
            break;
        }
    }
    Ok(log)
}

async fn ana_piece<E>(
    driver: &ProcedureDriver<E>,
    lsp: u8,
    (offset, bytes): (u64, u64),
) -> Result<Vec<u8>, ProcedureFailure<E>> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let log = GetLogPage { lsp, offset, ..GetLogPage::new(lid::ANA, bytes) };
    let command = ControllerCommand::new("Get Log Page (ANA)", log.emit(u32::MAX));
    let (_, piece) = driver.run(ControllerCommand { bytes_in: bytes, ..command }).await?;
    Ok(piece)
}
