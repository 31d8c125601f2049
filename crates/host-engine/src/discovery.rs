//! Reads the log of a discovery controller (NVMe Base 2.0, section 3.1.2.3).

use super::admin::AdminConnection;
use super::config::HostConfig;
use super::connect::AdminQueue;
use super::error::HostControlError;
use roadtrain_wire::discovery::{DISCOVERY_ENTRY_BYTES, DiscoveryEntry, DiscoveryLogHeader};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::zerocopy::FromBytes;

/// Maximum number of records read.
const RECORDS_MAX: u64 = 4096;
/// Maximum reads of a log that changes meanwhile.
const ATTEMPTS: u32 = 5;

/// Returns the discovery log of the target at `config.address`: its generation and entries.
///
/// # Errors
/// Any failure to read it.
pub fn discover(config: &HostConfig) -> Result<(u64, Vec<DiscoveryEntry>), HostControlError> {
    discover_at(config).map(|(generation, entries, _)| (generation, entries))
}

/// Returns the discovery log, and the interface by which the controller was reached ([`scope`]).
///
/// # Errors
/// As for [`discover`].
pub(super) fn discover_at(
    config: &HostConfig,
) -> Result<(u64, Vec<DiscoveryEntry>, u32), HostControlError> {
    let mut admin = AdminConnection::connect_patiently(config)?;
    let (generation, entries) = read_log(&mut admin)?;
    let scope = scope(&admin);
    admin.shut_down(config.timeout);
    Ok((generation, entries, scope))
}

/// Returns the interface by which a discovery controller was reached, if it has a link-local address; else 0.
pub(super) fn scope(admin: &AdminConnection) -> u32 {
    admin.queues.admin.as_ref().map_or(0, AdminQueue::scope)
}

/// Reads the discovery log: its generation and entries. Reading it enables the next event of the log, if events are
/// enabled.
///
/// # Errors
/// Any failure to read it.
pub(super) fn read_log(
    admin: &mut AdminConnection,
) -> Result<(u64, Vec<DiscoveryEntry>), HostControlError> {
    for _ in 0..ATTEMPTS {
        let (generation, count) = header(admin)?;
        let mut entries = Vec::new();
        for record in 0..count.min(RECORDS_MAX) {
            let mut bytes = [0; DISCOVERY_ENTRY_BYTES];
            read(admin, (record + 1) * DISCOVERY_ENTRY_BYTES as u64, &mut bytes)?;
            let entry = DiscoveryEntry::read_from_bytes(&bytes);
            entries.extend(entry.ok());
        }
        if header(admin)?.0 == generation {
            return Ok((generation, entries));
        }
    }
    Err(HostControlError::Controller("the discovery log changes all the time".into()))
}

fn header(admin: &mut AdminConnection) -> Result<(u64, u64), HostControlError> {
    let mut bytes = [0; DISCOVERY_ENTRY_BYTES];
    read(admin, 0, &mut bytes)?;
    let header = DiscoveryLogHeader::ref_from_bytes(&bytes)
        .map_err(|_| HostControlError::Controller("short discovery log".into()))?;
    if header.recfmt.get() != 0 {
        return Err(HostControlError::Controller("discovery log of an unknown format".into()));
    }
    Ok((header.genctr.get(), header.numrec.get()))
}

fn read(
    admin: &mut AdminConnection,
    offset: u64,
    bytes: &mut [u8],
) -> Result<(), HostControlError> {
    let mut page = GetLogPage::new(lid::DISCOVERY, bytes.len() as u32);
    page.offset = offset;
    admin.run("Get Log Page (discovery)", &page.emit(0), &[], bytes).map(|_| ())
}
