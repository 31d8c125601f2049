//! Octets <-> values: NVMe commands and completions, NVMe over Fabrics capsules, NVMe/TCP PDUs, frames
//! straight on Ethernet, NBD, FUSE, virtio-blk.
//!
//! Every format is a `#[repr(C)]` struct of little-endian fields that is viewed in place
//! (`T::ref_from_prefix(bytes)`) and written with `as_bytes()`. Viewing never panics and never
//! allocates; what the octets *mean* is checked by the functions beside each struct.
#![no_std]
#![forbid(unsafe_code)]

pub mod cqe;
pub mod discovery;
pub mod ether;
pub mod fabrics;
pub mod feature;
pub mod fuse;
pub mod identify;
pub mod log;
pub mod nbd;
pub mod pdu;
pub mod sqe;
pub mod status;
pub mod virtio_blk;

pub use zerocopy;
