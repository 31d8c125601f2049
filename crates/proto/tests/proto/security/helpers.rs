//! Helpers of the authentication tests.
#![allow(dead_code, reason = "each test program uses its own part")]

use roadtrain_proto::security::Hash;
use roadtrain_proto::security::dhchap::{AuthController, AuthOffer, AuthProgress, DhGroup};

/// The host of the vectors.
pub(crate) const HOST: &str =
    "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000015";
/// The subsystem of the vectors.
pub(crate) const SUBSYSTEM: &str = "nqn.2024-01.test:kernel";

/// Bytes from `first`, each one more than the one before.
pub(crate) fn counting(first: u8, count: usize) -> Vec<u8> {
    (0..count).map(|at| first.wrapping_add(at as u8)).collect()
}

pub(crate) fn offer(hash: Hash, group: DhGroup) -> AuthOffer {
    AuthOffer { hashes: vec![hash], groups: vec![group] }
}

pub(crate) fn seed(seed: u8) -> impl FnMut(&mut [u8]) {
    let mut state = u64::from(seed) + 1;
    move |place| {
        for byte in place {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (state >> 56) as u8;
        }
    }
}

pub(crate) fn carry_out(progress: AuthProgress, controller: &mut AuthController) {
    if let AuthProgress::Compute(work) = progress {
        assert!(!controller.resume());
        work.compute();
    }
    assert!(controller.resume());
}
