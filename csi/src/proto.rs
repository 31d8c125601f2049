//! Messages and services of `proto/csi.proto`.

#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

tonic::include_proto!("csi.v1");
