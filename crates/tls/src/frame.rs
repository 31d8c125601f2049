//! The cipher of frames on Ethernet, for `roadtrain_proto::seal`.

use crate::cipher::{AeadCipher, CipherDirection};
use roadtrain_proto::seal::{self, CipherFailed, SealDirection, TAG_BYTES};
use roadtrain_proto::security::{NONCE_BYTES, Suite};

/// AES-GCM with one key in one direction.
pub struct FrameCipher(AeadCipher);

impl seal::SealCipher for FrameCipher {
    fn new(suite: Suite, key: &[u8], direction: SealDirection) -> Result<Self, CipherFailed> {
        let direction = match direction {
            SealDirection::Seal => CipherDirection::Seal,
            SealDirection::Open => CipherDirection::Open,
        };
        AeadCipher::new(suite, key, direction).map(FrameCipher).map_err(|_| CipherFailed)
    }

    #[inline]
    fn begin(&mut self, nonce: &[u8; NONCE_BYTES], header: &[u8]) -> Result<(), CipherFailed> {
        self.0.begin(nonce, header).map_err(|_| CipherFailed)
    }

    #[inline]
    fn update(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), CipherFailed> {
        self.0.update(input, output).map_err(|_| CipherFailed)
    }

    #[inline]
    fn update_in_place(&mut self, bytes: &mut [u8]) -> Result<(), CipherFailed> {
        self.0.update_in_place(bytes).map_err(|_| CipherFailed)
    }

    #[inline]
    fn tag(&mut self) -> Result<[u8; TAG_BYTES], CipherFailed> {
        let mut tag = [0; TAG_BYTES];
        self.0.seal(&mut tag).map_err(|_| CipherFailed)?;
        Ok(tag)
    }

    #[inline]
    fn verify(&mut self, tag: &[u8; TAG_BYTES]) -> bool {
        self.0.verify(tag).is_ok()
    }
}
