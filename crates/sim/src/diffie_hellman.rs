//! Diffie-Hellman in simulated time: a value that the group accepts, and a key that both ends know. The product
//! computes these on a worker thread; here one computation would take as long as thousands of steps.

use roadtrain_proto::security::Secret;
use roadtrain_proto::security::dhchap::{DhGroup, DhResult, DhTask};

/// Group of authentications whose computation takes time.
pub const GROUP: DhGroup = DhGroup::Ffdhe2048;

/// Completes a computation.
pub fn supply(work: &DhTask) {
    let public = vec![0x2d; GROUP.bytes()];
    work.supply(DhResult { public, session_key: Some(Secret::new(&[0xb7; 32])) });
}
