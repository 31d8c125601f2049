//! Keys of a lane over Ethernet: the secret of an authentication, and the keys derived from it
//! (docs/reference/ethernet.md).

use super::{Hash, Secret, Suite};

/// Blocks of AES that a key of AES-GCM may seal: 2^24.5 records of 16 KiB (RFC 8446, 5.5), some 390 GB.
pub const BLOCKS_MAX: u64 = 24_296_004_000;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 12;
/// Bytes of the proof that an end closes a lane.
pub const PROOF_BYTES: usize = 16;
/// Label that separates this secret from other uses of the host's key.
const PURPOSE: &[u8] = b"roadtrain frames";

/// Configured use of sealed frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SealUse {
    /// Never.
    #[default]
    Off,
    /// Where the host is authenticated.
    Allowed,
    /// Always: an unauthenticated host is refused.
    Required,
}

/// Secret of an authentication for its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameSecret {
    hash: Hash,
    secret: Secret,
    transcript: Secret,
}

/// Keys of both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameKeys {
    pub suite: Suite,
    /// Keys of frames from the host.
    pub host: DirectionKeys,
    /// Keys of frames from the target.
    pub target: DirectionKeys,
}

/// Keys of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectionKeys {
    /// Key of the cipher.
    pub key: Secret,
    /// Base of the nonce, combined with a frame's number.
    pub iv: [u8; NONCE_BYTES],
    /// Proof with which the sender closes the lane.
    pub proof: [u8; PROOF_BYTES],
}

impl FrameSecret {
    /// Derives the secret from the host's key, the exchanged secret (`None` without a group), and the transcript.
    #[must_use]
    pub fn new(hash: Hash, host: &Secret, exchanged: Option<&Secret>, transcript: &[u8]) -> Self {
        let exchanged = exchanged.map_or(&[][..], Secret::reveal);
        let secret = hash.hmac(host.reveal(), &[PURPOSE, exchanged]);
        FrameSecret { hash, secret, transcript: hash.digest(&[transcript]) }
    }

    /// Returns the keys of the lane whose ends have these tokens.
    #[must_use]
    pub fn keys(&self, host_token: u64, target_token: u64) -> FrameKeys {
        let tokens = [host_token, target_token].map(u64::to_le_bytes);
        let suite = Suite::of_hash(self.hash).unwrap_or(Suite::Aes256GcmSha384);
        let expand = |sender: &str, use_: &str| {
            let [host, target] = &tokens;
            let label = [sender.as_bytes(), b" ", use_.as_bytes(), &[0]].concat();
            let parts = [&label[..], self.transcript.reveal(), host, target, &[1]];
            self.hash.hmac(self.secret.reveal(), &parts)
        };
        let direction = |sender| DirectionKeys {
            key: Secret::new(first(&expand(sender, "key"), suite.key_bytes())),
            iv: array(&expand(sender, "iv")),
            proof: array(&expand(sender, "leave")),
        };
        FrameKeys { suite, host: direction("host"), target: direction("target") }
    }
}

fn first(secret: &Secret, count: usize) -> &[u8] {
    &secret.reveal()[..count] // the shortest hash has 32 bytes
}

fn array<const N: usize>(secret: &Secret) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(first(secret, N));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(exchanged: Option<&[u8]>) -> FrameSecret {
        let exchanged = exchanged.map(Secret::new);
        FrameSecret::new(Hash::Sha256, &Secret::new(&[1; 32]), exchanged.as_ref(), b"said")
    }

    #[test]
    fn everything_that_is_agreed_upon_makes_other_keys() {
        let keys = secret(Some(&[2; 32])).keys(3, 4);
        let other_said = FrameSecret::new(
            Hash::Sha256,
            &Secret::new(&[1; 32]),
            Some(&Secret::new(&[2; 32])),
            b"",
        );
        let other_key = FrameSecret::new(
            Hash::Sha256,
            &Secret::new(&[0; 32]),
            Some(&Secret::new(&[2; 32])),
            b"said",
        );
        for other in [
            secret(None).keys(3, 4),
            secret(Some(&[3; 32])).keys(3, 4),
            secret(Some(&[2; 32])).keys(4, 3),
            other_said.keys(3, 4),
            other_key.keys(3, 4),
        ] {
            assert_ne!((&other.host.key, other.host.iv), (&keys.host.key, keys.host.iv));
            assert_ne!((&other.target.key, other.target.iv), (&keys.target.key, keys.target.iv));
        }
        assert_ne!(keys.host, keys.target);
        assert_ne!(keys.host.proof, keys.target.proof);
    }

    #[test]
    fn longer_hashes_have_the_longer_cipher() {
        for (hash, bytes) in [(Hash::Sha256, 16), (Hash::Sha384, 32), (Hash::Sha512, 32)] {
            let keys = FrameSecret::new(hash, &Secret::new(&[1; 32]), None, b"").keys(1, 2);
            assert_eq!((keys.host.key.reveal().len(), keys.suite.key_bytes()), (bytes, bytes));
        }
    }
}
