//! Namespace Management and Namespace Attachment (NVMe Base 2.1, sections 5.1.20 and 5.1.21; NVM Command Set 1.1,
//! section 4.1.6), and the list of controllers that both need.

use crate::sqe::{Sqe, opcode};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the data of a create, and of a controller list.
pub const DATA_BYTES: usize = 4096;
/// Controllers of a list, at most.
pub const CONTROLLERS_MAX: usize = 2047;
/// Bits of CDW10 of both commands with SEL, the operation.
const SEL: u32 = 0xf;

/// SEL of Namespace Management.
pub mod management {
    pub const CREATE: u8 = 0;
    pub const DELETE: u8 = 1;
}

/// SEL of Namespace Attachment.
pub mod attachment {
    pub const ATTACH: u8 = 0;
    pub const DETACH: u8 = 1;
}

/// Returns SEL of a Namespace Management or Namespace Attachment `sqe`.
#[must_use]
pub fn selected(sqe: &Sqe) -> u8 {
    (sqe.cdw10.get() & SEL) as u8
}

/// Returns the command that creates a namespace of the command set `csi`; its data is a [`NewNamespaceData`].
#[must_use]
pub fn create(csi: u8) -> Sqe {
    let mut sqe = Sqe::new(opcode::NAMESPACE_MANAGEMENT, 0);
    sqe.cdw10 = u32::from(management::CREATE).into();
    sqe.cdw11 = (u32::from(csi) << 24).into();
    sqe
}

/// Returns the command that deletes namespace `nsid`; FFFFFFFFh: all namespaces.
#[must_use]
pub fn delete(nsid: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode::NAMESPACE_MANAGEMENT, nsid);
    sqe.cdw10 = u32::from(management::DELETE).into();
    sqe
}

/// Returns the Namespace Attachment of `nsid` with that SEL; its data is a [`ControllerList`].
#[must_use]
pub fn attachment(nsid: u32, sel: u8) -> Sqe {
    let mut sqe = Sqe::new(opcode::NAMESPACE_ATTACHMENT, nsid);
    sqe.cdw10 = u32::from(sel).into();
    sqe
}

/// Data of a create: fields of Identify Namespace that the host specifies.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NewNamespaceData {
    /// Size in logical blocks.
    pub nsze: U64,
    /// Capacity in logical blocks.
    pub ncap: U64,
    pub reserved16: [u8; 10],
    /// LBA format, bits 3:0 and 6:5.
    pub flbas: u8,
    pub reserved27: [u8; 2],
    /// Protection information.
    pub dps: u8,
    /// See [`crate::identify::NMIC_SHARED`].
    pub nmic: u8,
    pub reserved31: [u8; 61],
    /// ANA group; 0: the controller chooses one.
    pub anagrpid: U32,
    pub reserved96: [u8; 4],
    pub nvmsetid: U16,
    pub endgid: U16,
    pub reserved104: [u8; 280],
    /// Logical block storage tag mask.
    pub lbstm: U64,
    pub reserved392: [u8; 3704],
}

/// Controller list: data of Namespace Attachment, and of Identify with CNS 12h and 13h.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ControllerList {
    /// Number of identifiers.
    pub count: U16,
    /// Controller identifiers in increasing order.
    pub cntlids: [U16; CONTROLLERS_MAX],
}

impl ControllerList {
    /// Creates a list of the first 2,047 of `cntlids`, which are in increasing order.
    #[must_use]
    pub fn from_cntlids(cntlids: impl IntoIterator<Item = u16>) -> Self {
        let mut list = Self::new_zeroed();
        let mut count = 0;
        for (entry, cntlid) in list.cntlids.iter_mut().zip(cntlids) {
            *entry = cntlid.into();
            count += 1;
        }
        list.count = count.into();
        list
    }

    /// Returns the identifiers; `None` if there are more than fit, or if they do not increase.
    #[must_use]
    pub fn cntlids(&self) -> Option<&[U16]> {
        let cntlids = self.cntlids.get(..usize::from(self.count.get()))?;
        cntlids.is_sorted_by(|a, b| a.get() < b.get()).then_some(cntlids)
    }
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<NewNamespaceData>() == DATA_BYTES);
    assert!(size_of::<ControllerList>() == DATA_BYTES);
    assert!(offset_of!(NewNamespaceData, flbas) == 26);
    assert!(offset_of!(NewNamespaceData, dps) == 29);
    assert!(offset_of!(NewNamespaceData, nmic) == 30);
    assert!(offset_of!(NewNamespaceData, anagrpid) == 92);
    assert!(offset_of!(NewNamespaceData, nvmsetid) == 100);
    assert!(offset_of!(NewNamespaceData, endgid) == 102);
    assert!(offset_of!(NewNamespaceData, lbstm) == 384);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte for byte as in the tables of the specification.
    #[test]
    fn commands_have_the_bytes_of_the_specification() {
        let bytes = |sqe: Sqe| <[u8; 64]>::try_from(sqe.as_bytes()).unwrap();
        let new = bytes(create(0x12));
        assert_eq!(
            (new[0], &new[4..8], &new[40..48]),
            (0x0d, &[0; 4][..], &[0, 0, 0, 0, 0, 0, 0, 0x12][..])
        );
        let gone = bytes(delete(0x0403_0201));
        assert_eq!(
            (gone[0], &gone[4..8], &gone[40..44]),
            (0x0d, &[1, 2, 3, 4][..], &[1, 0, 0, 0][..])
        );
        for (sel, byte) in [(attachment::ATTACH, 0), (attachment::DETACH, 1)] {
            let sqe = bytes(attachment(7, sel));
            assert_eq!(
                (sqe[0], &sqe[4..8], &sqe[40..44]),
                (0x15, &[7, 0, 0, 0][..], &[byte, 0, 0, 0][..])
            );
        }
        let mut sqe = Sqe::new(opcode::NAMESPACE_MANAGEMENT, 0);
        sqe.cdw10 = 0xffff_fff5.into();
        assert_eq!(selected(&sqe), 5, "the other bits are reserved");
    }

    #[test]
    fn the_data_of_a_create_has_the_bytes_of_the_specification() {
        let mut data = NewNamespaceData::new_zeroed();
        (data.nsze, data.ncap) = (0x0807_0605_0403_0201.into(), 0x11.into());
        (data.flbas, data.dps, data.nmic) = (0x21, 0x22, 0x23);
        (data.anagrpid, data.nvmsetid, data.endgid) = (0x31.into(), 0x41.into(), 0x51.into());
        let bytes = data.as_bytes();
        assert_eq!(bytes[..9], [1, 2, 3, 4, 5, 6, 7, 8, 0x11]);
        assert_eq!(bytes[26..31], [0x21, 0, 0, 0x22, 0x23]);
        assert_eq!((bytes[92], bytes[100], bytes[102]), (0x31, 0x41, 0x51));
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 15);
    }

    #[test]
    fn a_controller_list_has_the_bytes_of_the_specification() {
        let list = ControllerList::from_cntlids([3, 0x1234]);
        assert_eq!(list.as_bytes()[..6], [2, 0, 3, 0, 0x34, 0x12]);
        assert!(list.as_bytes()[6..].iter().all(|byte| *byte == 0));
        assert!(list.cntlids().unwrap().iter().map(|id| id.get()).eq([3, 0x1234]));
        let full = ControllerList::from_cntlids(1..=3000);
        assert_eq!((full.count.get(), full.cntlids[2046].get()), (2047, 2047));
        assert_eq!(full.cntlids().unwrap().len(), CONTROLLERS_MAX);
    }

    #[test]
    fn a_list_that_is_too_long_or_out_of_order_is_invalid() {
        let mut list = ControllerList::from_cntlids([]);
        assert_eq!(list.cntlids().map(<[U16]>::len), Some(0));
        for count in [2048, 0xffff] {
            list.count = count.into();
            assert!(list.cntlids().is_none());
        }
        assert!(ControllerList::from_cntlids([2, 1]).cntlids().is_none());
        assert!(ControllerList::from_cntlids([2, 2]).cntlids().is_none());
    }
}
