//! Namespaces: their data for admin commands and for the I/O path.

use super::ana::AnaState;
use super::config::NamespaceConfig;
use super::identity::NamespaceId;
use super::io::{BlockGeometry, COPY_BYTES_MAX, COPY_RANGE_BYTES_MAX, COPY_RANGES_MAX};
use roadtrain_wire::identify::{
    IdentifyNamespace, IdentifyNamespaceIndependent, LbaFormat, NMIC_SHARED,
    NSATTR_WRITE_PROTECTED, NSID_ALL, NSTAT_READY, dlfeat, nsfeat, rescap,
};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromZeros;

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExportedNamespace {
    pub(super) config: NamespaceConfig,
    pub(super) id: NamespaceId,
}

impl ExportedNamespace {
    pub(super) fn new(nqn: &str, config: NamespaceConfig) -> Self {
        let id = config.id.unwrap_or_else(|| NamespaceId::of_place(nqn, config.nsid));
        ExportedNamespace { id, config }
    }

    pub(super) fn geometry(&self, transfer_bytes_max: u32) -> BlockGeometry {
        BlockGeometry {
            lba_shift: self.config.lba_shift,
            blocks: self.config.blocks,
            read_only: self.config.read_only,
            transfer_bytes_max,
        }
    }

    fn nsattr(&self) -> u8 {
        if self.config.read_only { NSATTR_WRITE_PROTECTED } else { 0 }
    }

    fn rescap(&self) -> u8 {
        if !self.config.offers_reservations {
            return 0;
        }
        let persistence = if self.config.keeps_reservations { rescap::PERSISTENCE } else { 0 };
        rescap::ALL_TYPES | rescap::IEKEY | persistence
    }

    /// Returns the data of CNS 00h, for a path on which the namespace is listed in that ANA group.
    pub(super) fn identify(&self, ana_group: u32) -> IdentifyNamespace {
        let mut page = IdentifyNamespace::new_zeroed();
        let limits = &self.config.limits;
        let blocks = |bytes: u32| (bytes >> self.config.lba_shift) as u16;
        let less_one = |bytes: u32| ((bytes >> self.config.lba_shift) - 1) as u16;
        (page.nsze, page.ncap) = (self.config.blocks.into(), self.config.blocks.into());
        page.nuse = self.config.blocks.into();
        page.nsfeat = nsfeat::OPTIMAL_IO;
        page.nmic = NMIC_SHARED;
        page.rescap = self.rescap();
        page.dlfeat = dlfeat::WRITE_ZEROES_DEALLOCATES;
        if self.config.deallocated_reads_zero {
            page.dlfeat |= dlfeat::READS_ZERO;
        }
        if limits.atomic_bytes > 0 {
            page.nsfeat |= nsfeat::ATOMICITY;
            page.nawun = less_one(limits.atomic_bytes).into();
            page.nawupf = page.nawun;
        }
        page.noiob = blocks(limits.boundary_bytes).into();
        page.npwg = less_one(limits.write_bytes).into();
        page.npdg = less_one(limits.discard_bytes).into();
        (page.npwa, page.npda) = (page.npwg, page.npdg);
        page.nows = less_one(limits.optimal_bytes).into();
        page.mssrl = ((COPY_RANGE_BYTES_MAX >> self.config.lba_shift) as u16).into();
        page.mcl = ((COPY_BYTES_MAX >> self.config.lba_shift) as u32).into();
        page.msrc = (COPY_RANGES_MAX - 1) as u8;
        page.anagrpid = ana_group.into();
        page.nsattr = self.nsattr();
        page.nguid = self.id.nguid;
        if let Some(verifier) = self.config.write_verifier {
            page.set_write_verifier(verifier);
        }
        page.lbaf[0] = LbaFormat { ms: 0.into(), lbads: self.config.lba_shift, rp: 0 };
        page
    }

    /// Returns the data of CNS 08h, for a path on which the namespace is listed in that ANA group.
    pub(super) fn identify_independent(&self, ana_group: u32) -> IdentifyNamespaceIndependent {
        let mut page = IdentifyNamespaceIndependent::new_zeroed();
        page.nsfeat = if self.config.volatile_cache { 0 } else { nsfeat::VWC_NOT_PRESENT };
        page.nmic = NMIC_SHARED;
        page.rescap = self.rescap();
        page.anagrpid = ana_group.into();
        page.nsattr = self.nsattr();
        page.nstat = NSTAT_READY;
        page
    }
}

/// Snapshot of the namespaces that are active for a controller, for the I/O path.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SubsystemNamespaces {
    /// Number of changes to the subsystem's namespaces.
    pub generation: u64,
    /// ANA state of the path, for commands to all namespaces.
    pub ana: AnaState,
    entries: Vec<NamespaceEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NamespaceEntry {
    nsid: u32,
    geometry: BlockGeometry,
    /// ANA state over the path.
    ana: AnaState,
}

impl SubsystemNamespaces {
    /// Creates a table of namespaces, with their ANA states, in increasing order of NSID. `ana` is the state of the path.
    pub(super) fn new<'a>(
        generation: u64,
        namespaces: impl Iterator<Item = (&'a ExportedNamespace, AnaState)>,
        ana: AnaState,
        transfer_bytes_max: u32,
    ) -> Self {
        let entry = |(namespace, ana): (&ExportedNamespace, AnaState)| NamespaceEntry {
            nsid: namespace.config.nsid,
            geometry: namespace.geometry(transfer_bytes_max),
            ana,
        };
        let entries: Vec<NamespaceEntry> = namespaces.map(entry).collect();
        debug_assert!(entries.is_sorted_by_key(|entry| entry.nsid), "binary search needs order");
        SubsystemNamespaces { generation, ana, entries }
    }

    /// Returns the status for commands to a namespace that exists but is not accessible. All namespaces together (NSID
    /// FFFFFFFFh) are accessible when the path is.
    #[must_use]
    pub fn refusal(&self, nsid: u32) -> Option<Status> {
        match self.entry(nsid) {
            Some(entry) => entry.ana.refusal(),
            None => self.ana.refusal().filter(|_| nsid == NSID_ALL),
        }
    }

    /// True if every namespace is accessible.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.ana.is_usable() && self.entries.iter().all(|entry| entry.ana.is_usable())
    }

    fn entry(&self, nsid: u32) -> Option<&NamespaceEntry> {
        let index = self.entries.binary_search_by_key(&nsid, |entry| entry.nsid).ok()?;
        Some(&self.entries[index])
    }

    /// Returns the geometry of `nsid`; `None` when it is not active.
    #[must_use]
    pub fn get(&self, nsid: u32) -> Option<&BlockGeometry> {
        self.entry(nsid).map(|entry| &entry.geometry)
    }

    /// Returns NSIDs and geometries, in increasing order of NSID.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &BlockGeometry)> {
        self.entries.iter().map(|entry| (entry.nsid, &entry.geometry))
    }
}
