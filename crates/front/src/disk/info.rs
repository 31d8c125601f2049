//! Properties of a namespace that its fronts show.

use crate::bitmaps::BitmapIdentity;
use roadtrain_host_engine::{ControllerInfo, NamespaceInfo};
use roadtrain_host_proto::allocation;
use roadtrain_wire::identify::oncs;
use std::io;

/// Largest block in bytes: a buffer holds two of them.
const LBA_BYTES_MAX: u32 = 512 << 10;
/// Largest useful granularity in bytes; kernels refuse larger ones.
const GRANULARITY_BYTES_MAX: u32 = 1 << 20;

/// A namespace and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    /// The namespace.
    pub nsid: u32,
    /// NGUID; zeroes if it has none.
    pub nguid: [u8; 16],
    /// UUID; zeroes if it has none.
    pub uuid: [u8; 16],
    /// EUI-64; zeroes if it has none.
    pub eui64: [u8; 8],
    /// The controller's model, for people.
    pub model: String,
    /// The controller's serial number, for people.
    pub serial: String,
    /// Size of the namespace in blocks.
    pub blocks: u64,
    /// Bytes of a block, a power of two.
    pub lba_bytes: u32,
    /// Bytes that a write can replace without a read: a power of two, at least a block.
    pub physical_block_bytes: u32,
    /// Optimal size of writes, in bytes.
    pub optimal_io_bytes: u32,
    /// Bytes that are deallocated together: a power of two, at least a block.
    pub discard_granularity_bytes: u32,
    /// Most bytes of one Read or Write on the lane.
    pub max_transfer_bytes: u32,
    /// True if writes are refused.
    pub read_only: bool,
    /// True if Dataset Management (deallocate) is supported.
    pub trim: bool,
    /// True if Write Zeroes is supported.
    pub write_zeroes: bool,
    /// True if the target reports which blocks are allocated, and the others read as zeroes.
    pub reports_allocation: bool,
}

/// Error: the controller has no such namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the subsystem has no namespace {nsid}; it has {present}")]
pub struct NoNamespace {
    /// NSID that was requested.
    pub nsid: u32,
    /// NSIDs that exist, as text.
    pub present: String,
}

impl DiskInfo {
    /// Returns the properties of namespace `nsid` of a connected controller.
    ///
    /// # Errors
    /// Fails if the namespace does not exist.
    pub fn of(controller: &ControllerInfo, nsid: u32) -> Result<Self, NoNamespace> {
        let namespaces = &controller.namespaces;
        let Some(namespace) = namespaces.iter().find(|namespace| namespace.nsid == nsid) else {
            let present: Vec<_> = namespaces.iter().map(|n| n.nsid.to_string()).collect();
            let present = if present.is_empty() { "none".into() } else { present.join(", ") };
            return Err(NoNamespace { nsid, present });
        };
        let identify = &controller.identify;
        let serves = |command: u16| identify.oncs.get() & command != 0;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().replace('\0', " ");
        Ok(DiskInfo {
            nsid,
            nguid: namespace.nguid,
            uuid: namespace.uuid,
            eui64: namespace.eui64,
            model: text(&identify.mn),
            serial: text(&identify.sn),
            blocks: namespace.blocks,
            lba_bytes: namespace.block_bytes,
            physical_block_bytes: granularity(namespace, namespace.preferred_write_blocks),
            optimal_io_bytes: granularity(namespace, namespace.optimal_write_blocks),
            discard_granularity_bytes: granularity(namespace, namespace.preferred_discard_blocks),
            max_transfer_bytes: controller.transfer_bytes_max,
            read_only: namespace.read_only,
            trim: serves(oncs::DATASET_MANAGEMENT),
            write_zeroes: serves(oncs::WRITE_ZEROES),
            reports_allocation: allocation::is_offered(controller)
                && namespace.deallocated_reads_zero,
        })
    }

    /// True if `namespace` is this one, perhaps with another size.
    pub(crate) fn is_of(&self, namespace: &NamespaceInfo) -> bool {
        (self.nguid, self.uuid, self.eui64, self.lba_bytes)
            == (namespace.nguid, namespace.uuid, namespace.eui64, namespace.block_bytes)
    }

    /// Returns the identity that bitmaps of its changes keep.
    pub(crate) fn bitmap_identity(&self) -> BitmapIdentity {
        let DiskInfo { nguid, uuid, eui64, lba_bytes, .. } = *self;
        BitmapIdentity { nguid, uuid, eui64, lba_bytes }
    }

    /// Returns the namespace's unique identifier; zeroes if it has none.
    pub(crate) fn identifier(&self) -> [u8; 16] {
        let mut eui64 = [0; 16];
        eui64[..8].copy_from_slice(&self.eui64);
        let ids = [self.nguid, self.uuid, eui64];
        ids.into_iter().find(|id| *id != [0; 16]).unwrap_or_default()
    }

    /// Checks that a front can show the namespace.
    pub(super) fn check(&self) -> io::Result<()> {
        let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let lba = self.lba_bytes;
        if !lba.is_power_of_two() || !(512..=LBA_BYTES_MAX).contains(&lba) {
            return invalid(format!("{lba} bytes is no block size"));
        }
        let transfer = self.max_transfer_bytes;
        if transfer < lba {
            return invalid(format!("a transfer of {transfer} bytes holds no block"));
        }
        if self.blocks.checked_mul(lba.into()).is_none() {
            return invalid(format!("{} blocks of {lba} bytes is too large", self.blocks));
        }
        Ok(())
    }
}

/// Converts `blocks` to bytes if that is a usable granularity; returns one block otherwise.
fn granularity(namespace: &NamespaceInfo, blocks: u32) -> u32 {
    let bytes = namespace.block_bytes.checked_mul(blocks);
    bytes
        .filter(|bytes| bytes.is_power_of_two() && *bytes <= GRANULARITY_BYTES_MAX)
        .unwrap_or(namespace.block_bytes)
}

#[cfg(test)]
pub(crate) fn test_info() -> DiskInfo {
    DiskInfo {
        nsid: 1,
        nguid: [7; 16],
        uuid: [8; 16],
        eui64: [0; 8],
        model: "a test disk".into(),
        serial: "1".into(),
        blocks: 2048,
        lba_bytes: 512,
        physical_block_bytes: 4096,
        optimal_io_bytes: 4096,
        discard_granularity_bytes: 4096,
        max_transfer_bytes: 128 << 10,
        read_only: false,
        trim: true,
        write_zeroes: true,
        reports_allocation: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        let refuse = |change: fn(&mut DiskInfo)| {
            let mut info = test_info();
            change(&mut info);
            assert!(info.check().is_err());
        };
        assert!(test_info().check().is_ok());
        refuse(|info| info.lba_bytes = 0);
        refuse(|info| info.lba_bytes = 513);
        refuse(|info| info.max_transfer_bytes = 256);
        refuse(|info| info.blocks = u64::MAX);
    }

    #[test]
    fn the_first_known_identifier_counts() {
        let info = |nguid, uuid, eui64| DiskInfo {
            nguid: [nguid; 16],
            uuid: [uuid; 16],
            eui64: [eui64; 8],
            ..test_info()
        };
        assert_eq!(info(1, 2, 3).identifier(), [1; 16]);
        assert_eq!(info(0, 2, 3).identifier(), [2; 16]);
        assert_eq!(info(0, 0, 3).identifier()[..8], [3; 8]);
        assert_eq!(info(0, 0, 0).identifier(), [0; 16]);
    }

    #[test]
    fn granularities_are_powers_of_two_that_hold_a_block() {
        let namespace = NamespaceInfo { block_bytes: 512, ..NamespaceInfo::default() };
        let bytes =
            [1, 8, 2048, 0, 3, 4096, u32::MAX].map(|blocks| granularity(&namespace, blocks));
        assert_eq!(bytes, [512, 4096, 1 << 20, 512, 512, 512, 512]);
    }
}
