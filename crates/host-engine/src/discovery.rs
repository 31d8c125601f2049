//! Asks a discovery controller which subsystems there are (NVMe Base 2.0, section 3.1.2.3).

use super::admin::Admin;
use super::config::HostConfig;
use super::connect::AdminQueue;
use super::error::HostError;
use roadtrain_wire::discovery::{DISCOVERY_ENTRY_BYTES, DiscoveryEntry, DiscoveryLogHeader};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::zerocopy::FromBytes;

/// Most records read.
const RECORDS_MAX: u64 = 4096;
/// Times the log is read again because it changed meanwhile.
const ATTEMPTS: u32 = 5;

/// The discovery log of the target at `config.address`: its generation and entries.
///
/// # Errors
/// Anything that keeps it from being read.
pub fn discover(config: &HostConfig) -> Result<(u64, Vec<DiscoveryEntry>), HostError> {
    discover_at(config).map(|(generation, entries, _)| (generation, entries))
}

/// The same, and the interface by which the controller was reached ([`scope`]).
///
/// # Errors
/// As those of [`discover`].
pub(super) fn discover_at(
    config: &HostConfig,
) -> Result<(u64, Vec<DiscoveryEntry>, u32), HostError> {
    let mut admin = Admin::connect_patiently(config)?;
    let (generation, entries) = read_log(&mut admin)?;
    let scope = scope(&admin);
    admin.shut_down(config.timeout);
    Ok((generation, entries, scope))
}

/// The interface by which a discovery controller was reached, if it has a link-local address; else 0.
pub(super) fn scope(admin: &Admin) -> u32 {
    admin.queues.admin.as_ref().map_or(0, AdminQueue::scope)
}

/// The discovery log: its generation and entries. Whoever has asked for events hears of what changes from now on.
///
/// # Errors
/// Anything that keeps it from being read.
pub(super) fn read_log(admin: &mut Admin) -> Result<(u64, Vec<DiscoveryEntry>), HostError> {
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
    Err(HostError::Controller("the discovery log changes all the time".into()))
}

fn header(admin: &mut Admin) -> Result<(u64, u64), HostError> {
    let mut bytes = [0; DISCOVERY_ENTRY_BYTES];
    read(admin, 0, &mut bytes)?;
    let header = DiscoveryLogHeader::ref_from_bytes(&bytes)
        .map_err(|_| HostError::Controller("short discovery log".into()))?;
    if header.recfmt.get() != 0 {
        return Err(HostError::Controller("discovery log of an unknown format".into()));
    }
    Ok((header.genctr.get(), header.numrec.get()))
}

fn read(admin: &mut Admin, offset: u64, bytes: &mut [u8]) -> Result<(), HostError> {
    let mut page = GetLogPage::new(lid::DISCOVERY, bytes.len() as u32);
    page.offset = offset;
    admin.run("Get Log Page (discovery)", &page.emit(0), &[], bytes).map(|_| ())
}
