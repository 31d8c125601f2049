//! Wire formats, byte for byte: NVMe commands and completions, NVMe over Fabrics capsules, NVMe/TCP PDUs, frames
//! directly on Ethernet; and the protocols of local block devices: NBD, FUSE, virtio-blk.
//!
//! ```text
//!   received bytes --ref_from_prefix--> &CapsuleCmd        a view: nothing is copied, nothing allocated
//!                                           | layout(), from_value(), checks next to each struct
//!                                           v
//!                                          checked values
//!   bytes to send  <----as_bytes()----- CapsuleCmd
//! ```
//!
//! Every format is a `#[repr(C)]` struct of little-endian fields, with its size asserted when it is compiled.
//! Viewing never panics; the functions next to each struct check the values of its fields.
//!
//! ```
//! use roadtrain_wire::sqe::{Sqe, opcode};
//! use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
//!
//! let read = Sqe::rw(opcode::READ, 1, 4096, 8); // of namespace 1, from block 4096 on, 8 blocks
//! let bytes = read.as_bytes();
//! let (viewed, rest) = Sqe::ref_from_prefix(bytes).expect("64 bytes are a command");
//! assert_eq!((viewed.opcode, viewed.slba(), viewed.blocks()), (opcode::READ, 4096, 8));
//! assert!(rest.is_empty());
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "names are the specifications'; a comment where they do not suffice"
)]

pub mod ana;
pub mod auth;
pub mod cqe;
pub mod cross_reset;
pub mod discovery;
pub mod ether;
pub mod fabrics;
pub mod feature;
pub mod fuse;
pub mod identify;
pub mod lba_status;
pub mod log;
pub mod namespace_management;
pub mod nbd;
pub mod pdu;
pub mod reservation;
pub mod sqe;
pub mod status;
pub mod text;
pub mod virtio_blk;

pub use zerocopy;
