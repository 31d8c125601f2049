//! Octets <-> values: NVMe, NVMe over Fabrics, NVMe/TCP and NBD formats.
#![no_std]
#![forbid(unsafe_code)]
