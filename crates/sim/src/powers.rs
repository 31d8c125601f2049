//! Diffie-Hellman in virtual time: a value that the group takes, and a key that both ends know. The product computes these
//! on a thread of its own; here one computation would take as long as thousands of steps.

use roadtrain_proto::security::Secret;
use roadtrain_proto::security::dhchap::{Group, Powers, Work};

/// The group of authentications whose powers take their time.
pub const GROUP: Group = Group::Ffdhe2048;

/// Ends a computation.
pub fn supply(work: &Work) {
    let public = vec![0x2d; GROUP.bytes()];
    work.supply(Powers { public, session_key: Some(Secret::new(&[0xb7; 32])) });
}
