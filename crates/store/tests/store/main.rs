//! Every store keeps the contract of stores; images of a real Ceph cluster.

mod conformance;
mod emulated;
mod late;
mod rbd;
