//! Commands for a driver: `IORING_OP_URING_CMD`.

use io_uring::opcode::UringCmd80;
use io_uring::squeue::Entry128;
use io_uring::types;
use std::os::fd::RawFd;

/// Offset of an entry's `len`, which [`UringCmd80`] leaves 0.
const LENGTH_OFFSET: usize = 24;

/// A command for the driver behind a descriptor (FUSE, ublk).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringCommand {
    /// Descriptor of the driver.
    pub fd: RawFd,
    /// `cmd_op`.
    pub op: u32,
    /// `addr`.
    pub address: u64,
    /// `len`.
    pub length: u32,
    /// Contents defined by the driver.
    pub payload: [u8; 80],
}

impl UringCommand {
    pub(super) fn entry(&self, user_data: u64) -> Entry128 {
        let command = UringCmd80::new(types::Fd(self.fd), self.op).cmd(self.payload);
        let command = command.addr(Some(self.address));
        let mut entry = command.build().user_data(user_data);
        // SAFETY: an entry is the kernel's struct of 128 bytes; these 4 are its `len`.
        unsafe {
            let length = (&raw mut entry).cast::<u8>().add(LENGTH_OFFSET);
            length.cast::<u32>().write_unaligned(self.length);
        }
        entry
    }
}

const _: () = assert!(size_of::<Entry128>() == 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let payload = std::array::from_fn(|i| 0x80 + i as u8);
        let address = 0x1122_3344_5566_7788;
        let command = UringCommand { fd: 5, op: 0xa1b2_c3d4, address, length: 0x99, payload };
        let entry = command.entry(0x7766);
        // SAFETY: all 128 bytes of an entry are initialised.
        let bytes: [u8; 128] = unsafe { std::mem::transmute_copy(&entry) };
        assert_eq!(bytes[4..8], 5i32.to_ne_bytes());
        assert_eq!(bytes[8..12], command.op.to_ne_bytes());
        assert_eq!(bytes[16..24], address.to_ne_bytes());
        assert_eq!(bytes[24..28], 0x99u32.to_ne_bytes());
        assert_eq!(bytes[32..40], 0x7766u64.to_ne_bytes());
        assert_eq!(bytes[48..], payload);
    }
}
