//! Key schedule: from a traffic secret to the key of its records, and to the next secret (RFC 8446, 7).

use crate::cipher::{AeadCipher, CipherDirection, IV_BYTES};
use crate::{TlsError, suite};
use aws_lc_rs::hkdf::{KeyType, Prk};
use roadtrain_proto::security::Suite;
use zeroize::Zeroizing;

/// Traffic secret of one direction of a connection.
#[derive(Clone)]
pub struct TrafficSecret {
    suite: Suite,
    secret: Zeroizing<Vec<u8>>,
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Key with the nonces of its records.
pub(crate) struct RecordKey {
    pub(crate) cipher: AeadCipher,
    iv: Zeroizing<[u8; IV_BYTES]>,
    sequence: u64,
}

impl RecordKey {
    /// Returns the nonce of the next record; each is used once.
    pub(crate) fn next_nonce(&mut self) -> Result<[u8; IV_BYTES], TlsError> {
        let mut nonce = *self.iv;
        let sequence = self.sequence;
        self.sequence = sequence.checked_add(1).ok_or(TlsError::UsedUp)?;
        for (byte, number) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= number;
        }
        Ok(nonce)
    }
}

impl TrafficSecret {
    /// A secret from a handshake, as long as the suite's hash.
    ///
    /// # Errors
    /// The length is wrong.
    pub fn new(suite: Suite, secret: &[u8]) -> Result<Self, TlsError> {
        if secret.len() != suite.hash().bytes() {
            return Err(TlsError::Library(format!("a secret of {} bytes", secret.len())));
        }
        Ok(TrafficSecret { suite, secret: Zeroizing::new(secret.to_vec()) })
    }

    /// Returns the secret after a KeyUpdate.
    ///
    /// # Errors
    /// The library's.
    pub fn next(&self) -> Result<Self, TlsError> {
        let secret = self.expand("traffic upd", self.suite.hash().bytes())?;
        Ok(TrafficSecret { suite: self.suite, secret })
    }

    /// Returns the key of the secret's records.
    pub(crate) fn key(&self, direction: CipherDirection) -> Result<RecordKey, TlsError> {
        let key = self.expand("key", suite::key_bytes(self.suite))?;
        let mut iv = Zeroizing::new([0; IV_BYTES]);
        iv.copy_from_slice(&self.expand("iv", IV_BYTES)?);
        Ok(RecordKey { cipher: AeadCipher::new(self.suite, &key, direction)?, iv, sequence: 0 })
    }

    /// Returns the key of the secret's records in Linux's format: `struct tls12_crypto_info_aes_gcm_128` or `_256` of
    /// linux/tls.h, for `setsockopt(SOL_TLS, TLS_TX or TLS_RX)`.
    ///
    /// # Errors
    /// The library's.
    pub fn for_linux(&self) -> Result<Zeroizing<Vec<u8>>, TlsError> {
        const TLS_1_3_VERSION: u16 = 0x0304;
        const SALT_BYTES: usize = 4;
        let cipher: u16 = match self.suite {
            Suite::Aes128GcmSha256 => 51,
            Suite::Aes256GcmSha384 => 52,
        };
        let key = self.expand("key", suite::key_bytes(self.suite))?;
        let iv = self.expand("iv", IV_BYTES)?;
        let (salt, iv) = iv.split_at(SALT_BYTES);
        let first_record = 0u64.to_be_bytes();
        let head = [TLS_1_3_VERSION.to_ne_bytes(), cipher.to_ne_bytes()].concat();
        // Allocated once as a whole, so that no copy of the key is left behind.
        Ok(Zeroizing::new([&head[..], iv, &key, salt, &first_record].concat()))
    }

    /// HKDF-Expand-Label without a context.
    fn expand(&self, label: &str, length: usize) -> Result<Zeroizing<Vec<u8>>, TlsError> {
        let mut info = Vec::with_capacity(16 + label.len());
        info.extend((length as u16).to_be_bytes());
        info.push((6 + label.len()) as u8);
        info.extend(b"tls13 ");
        info.extend(label.as_bytes());
        info.push(0);
        let mut out = Zeroizing::new(vec![0; length]);
        let failed = |_| TlsError::Library("HKDF".to_owned());
        let prk = Prk::new_less_safe(suite::hkdf(self.suite), &self.secret);
        prk.expand(&[&info], Length(length)).and_then(|okm| okm.fill(&mut out)).map_err(failed)?;
        Ok(out)
    }
}
