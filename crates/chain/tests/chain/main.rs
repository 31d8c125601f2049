//! Chains of targets in one process: the conformance test of stores, and hosts of a front target.

mod conformance;
mod fronts;
mod harness;
