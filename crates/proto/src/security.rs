//! Keys and their derivation: secrets of in-band authentication, PSKs of TLS.
//!
//! ```text
//! DHHC-1:hh:..:        DhchapKey --transform(NQN)--> secret of a response
//! NVMeTLSkey-1:hh:..:  TlsKey ----retained(host)---> RetainedPsk --+-- tls_psk(host, subsystem) --> TlsPsk
//!                      session key, challenges ----> GeneratedPsk -+         identity, PSK, suite
//! session key, transcript ----> FrameSecret --keys(tokens)--> FrameKeys of a lane over Ethernet
//! ```
//!
//! A [`Secret`] is overwritten when it is dropped, is compared in constant time, and never shows its bytes. Random
//! bytes come from the caller.

mod channel;
pub mod dhchap;
mod dhchap_key;
mod frame_keys;
mod generated_psks;
mod hash;
mod interchange;
mod keyring;
mod secret;
mod tls_key;
mod tls_keys;

pub use channel::{ConnectionSecurity, SecuredAs};
pub use dhchap_key::DhchapKey;
pub use frame_keys::{
    BLOCKS_MAX, DirectionKeys, FrameKeys, FrameSecret, NONCE_BYTES, PROOF_BYTES, SealUse,
};
pub use generated_psks::GeneratedPsks;
pub use hash::Hash;
pub use interchange::KeyError;
pub use keyring::{Keyring, KeyringError};
pub use secret::Secret;
pub use tls_key::{Derivation, GeneratedPsk, IdentityVersion, RetainedPsk, Suite, TlsKey, TlsPsk};
pub use tls_keys::{TlsHosts, TlsKeys};

/// Suffix of NQNs where a secret is bound to them.
const SEED: &[u8] = b"NVMe-over-Fabrics";
