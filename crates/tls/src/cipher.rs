//! AES-GCM over bytes in several buffers: the library's cipher, with a call for each piece.
//!
//! The library's safe interface needs a message in one buffer. Copying it there first would be an additional copy
//! besides the cipher's own, so this module calls the C functions.

use crate::record::TAG_BYTES;
use crate::{TlsError, suite};
use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_ctrl, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new,
    EVP_CTRL_AEAD_GET_TAG, EVP_CTRL_AEAD_SET_TAG, EVP_CipherFinal_ex, EVP_CipherInit_ex,
    EVP_CipherUpdate, EVP_aes_128_gcm, EVP_aes_256_gcm,
};
use roadtrain_proto::security::Suite;
use std::ffi::c_int;
use std::ptr::{NonNull, null, null_mut};

/// Bytes of a nonce (RFC 8446, 5.3).
pub(crate) const IV_BYTES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CipherDirection {
    Seal,
    Open,
}

/// Cipher with one key in one direction.
pub(crate) struct AeadCipher {
    context: NonNull<EVP_CIPHER_CTX>,
    direction: CipherDirection,
}

// SAFETY: only this value uses the context, which is not bound to a thread.
unsafe impl Send for AeadCipher {}

impl Drop for AeadCipher {
    fn drop(&mut self) {
        // SAFETY: made by `EVP_CIPHER_CTX_new`, freed once. This clears the key.
        unsafe { EVP_CIPHER_CTX_free(self.context.as_ptr()) };
    }
}

/// Converts the library's return code.
fn check(done: c_int) -> Result<(), TlsError> {
    match done {
        1 => Ok(()),
        _ => Err(TlsError::Library("AES-GCM".to_owned())),
    }
}

impl AeadCipher {
    pub(crate) fn new(
        suite: Suite,
        key: &[u8],
        direction: CipherDirection,
    ) -> Result<Self, TlsError> {
        assert_eq!(key.len(), suite::key_bytes(suite));
        // SAFETY: a plain allocation.
        let context = NonNull::new(unsafe { EVP_CIPHER_CTX_new() });
        let context = context.ok_or_else(|| TlsError::Library("no memory".to_owned()))?;
        let made = AeadCipher { context, direction };
        let seals = c_int::from(direction == CipherDirection::Seal);
        // SAFETY: the context is valid, and the key has the cipher's length.
        check(unsafe {
            let cipher = match suite {
                Suite::Aes128GcmSha256 => EVP_aes_128_gcm(),
                Suite::Aes256GcmSha384 => EVP_aes_256_gcm(),
            };
            EVP_CipherInit_ex(context.as_ptr(), cipher, null_mut(), key.as_ptr(), null(), seals)
        })?;
        Ok(made)
    }

    /// Begins a message.
    pub(crate) fn begin(&mut self, nonce: &[u8; IV_BYTES], header: &[u8]) -> Result<(), TlsError> {
        let context = self.context.as_ptr();
        let mut taken = 0;
        // SAFETY: the nonce has the default length; without an output the input is authenticated only.
        unsafe {
            check(EVP_CipherInit_ex(context, null(), null_mut(), null(), nonce.as_ptr(), -1))?;
            let (bytes, length) = (header.as_ptr(), header.len() as c_int);
            check(EVP_CipherUpdate(context, null_mut(), &raw mut taken, bytes, length))
        }
    }

    /// Processes the next bytes of the message from `input` to `output`, which has the same length.
    pub(crate) fn update(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), TlsError> {
        assert_eq!(input.len(), output.len());
        let length =
            c_int::try_from(input.len()).map_err(|_| TlsError::Library("length".into()))?;
        let context = self.context.as_ptr();
        let mut written = 0;
        // SAFETY: a stream cipher writes as many bytes as it reads; the two do not overlap.
        check(unsafe {
            let (from, to) = (input.as_ptr(), output.as_mut_ptr());
            EVP_CipherUpdate(context, to, &raw mut written, from, length)
        })?;
        debug_assert_eq!(written, length);
        Ok(())
    }

    /// Processes the next bytes of the message in place.
    pub(crate) fn update_in_place(&mut self, bytes: &mut [u8]) -> Result<(), TlsError> {
        let length =
            c_int::try_from(bytes.len()).map_err(|_| TlsError::Library("length".into()))?;
        let context = self.context.as_ptr();
        let mut written = 0;
        // SAFETY: a stream cipher writes as many bytes as it reads, and may write where it has read.
        check(unsafe {
            let place = bytes.as_mut_ptr();
            EVP_CipherUpdate(context, place, &raw mut written, place, length)
        })?;
        debug_assert_eq!(written, length);
        Ok(())
    }

    /// Returns the tag of the sealed message.
    pub(crate) fn seal(&mut self, tag: &mut [u8; TAG_BYTES]) -> Result<(), TlsError> {
        debug_assert_eq!(self.direction, CipherDirection::Seal);
        let context = self.context.as_ptr();
        // SAFETY: GCM has no bytes left to write; the tag has 16 bytes.
        unsafe {
            check(self.finish())?;
            let (bytes, to) = (TAG_BYTES as c_int, tag.as_mut_ptr().cast());
            check(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, bytes, to))
        }
    }

    /// Checks the tag of the opened message.
    pub(crate) fn verify(&mut self, tag: &[u8; TAG_BYTES]) -> Result<(), TlsError> {
        debug_assert_eq!(self.direction, CipherDirection::Open);
        let context = self.context.as_ptr();
        // SAFETY: the library copies the tag, and does not write to it.
        unsafe {
            let (bytes, from) = (TAG_BYTES as c_int, tag.as_ptr().cast_mut().cast());
            check(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, bytes, from))?;
            check(self.finish()).map_err(|_| TlsError::Tag)
        }
    }

    /// # Safety
    /// Plain call into the library; all of the message was passed before.
    unsafe fn finish(&mut self) -> c_int {
        let (mut last, mut written) = ([0u8; TAG_BYTES], 0);
        // SAFETY: GCM writes nothing more, and the buffer holds a block.
        unsafe { EVP_CipherFinal_ex(self.context.as_ptr(), last.as_mut_ptr(), &raw mut written) }
    }
}
