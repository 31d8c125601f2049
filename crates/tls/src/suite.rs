//! The library's names for the two cipher suites of NVMe/TCP.

use aws_lc_rs::hkdf;
use roadtrain_proto::security::Suite;
use s2n_tls::enums::PskHmac;

/// Returns the suite with that number.
pub(crate) fn from_code(code: u16) -> Option<Suite> {
    [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384].into_iter().find(|s| s.code() == code)
}

/// Bytes of the cipher's key.
pub(crate) fn key_bytes(suite: Suite) -> usize {
    match suite {
        Suite::Aes128GcmSha256 => 16,
        Suite::Aes256GcmSha384 => 32,
    }
}

pub(crate) fn hkdf(suite: Suite) -> hkdf::Algorithm {
    match suite {
        Suite::Aes128GcmSha256 => hkdf::HKDF_SHA256,
        Suite::Aes256GcmSha384 => hkdf::HKDF_SHA384,
    }
}

pub(crate) fn psk_hmac(suite: Suite) -> PskHmac {
    match suite {
        Suite::Aes128GcmSha256 => PskHmac::SHA256,
        Suite::Aes256GcmSha384 => PskHmac::SHA384,
    }
}
