//! CPU time of a cipher for the bytes of the workload alone: the least that TLS adds at each end.

use super::args::{DataDirection, FloorArgs};
use super::sizes::{ANSWER_BYTES, REQUEST_BYTES};
use anyhow::anyhow;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use clap::ValueEnum;
use std::time::{Duration, Instant};

/// A cipher of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FloorCipher {
    /// AES-128-GCM
    Aes128,
    /// AES-256-GCM
    Aes256,
}

/// CPU time of the cipher for a request and its answer, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SealingCost {
    pub(crate) host_us: f64,
    pub(crate) target_us: f64,
}

/// Most bytes of content in a record.
const RECORD_BYTES_MAX: usize = 16 << 10;
/// Records that are sealed one after the other: as many as lie in a cache.
const WORKING_SET_BYTES: usize = 256 << 10;
/// Least time of each of the four parts.
const TIME: Duration = Duration::from_millis(60);

impl SealingCost {
    /// Seals and opens records as long as the workload's sends make them.
    pub(crate) fn measure(cipher: FloorCipher, args: &FloorArgs) -> anyhow::Result<Self> {
        let (request, answer) = match args.rw {
            DataDirection::Read => (REQUEST_BYTES, ANSWER_BYTES + args.bs),
            DataDirection::Write => (REQUEST_BYTES + args.bs, ANSWER_BYTES),
        };
        let gathered = args.gather.min(args.depth);
        let cost = |bytes: usize| {
            let record = RECORD_BYTES_MAX.min(bytes * gathered);
            let each = bytes as f64 / record as f64;
            let (sealed, opened) = record_us(cipher, record)?;
            anyhow::Ok((sealed * each, opened * each))
        };
        let ((request_sealed, request_opened), (answer_sealed, answer_opened)) =
            (cost(request)?, cost(answer)?);
        Ok(SealingCost {
            host_us: request_sealed + answer_opened,
            target_us: request_opened + answer_sealed,
        })
    }
}

/// Microseconds that sealing, and that opening a record of so many bytes takes.
fn record_us(cipher: FloorCipher, bytes: usize) -> anyhow::Result<(f64, f64)> {
    let algorithm: &'static Algorithm = match cipher {
        FloorCipher::Aes128 => &AES_128_GCM,
        FloorCipher::Aes256 => &AES_256_GCM,
    };
    let failed = |_| anyhow!("the cipher failed");
    let key = UnboundKey::new(algorithm, &vec![7; algorithm.key_len()]).map_err(failed)?;
    let key = LessSafeKey::new(key);
    let nonce = || Nonce::assume_unique_for_key([1; 12]); // the bytes are thrown away
    let count = WORKING_SET_BYTES.div_ceil(bytes);
    let mut records = vec![vec![0; bytes + algorithm.tag_len()]; count];
    let (mut sealing, mut opening, mut rounds) = (Duration::ZERO, Duration::ZERO, 0);
    while sealing < TIME || opening < TIME {
        let begin = Instant::now();
        for record in &mut records {
            let (content, place) = record.split_at_mut(bytes);
            let tag = key.seal_in_place_separate_tag(nonce(), Aad::from([0; 5]), content);
            place.copy_from_slice(tag.map_err(failed)?.as_ref());
        }
        let sealed = Instant::now();
        for record in &mut records {
            key.open_in_place(nonce(), Aad::from([0; 5]), record).map_err(failed)?;
        }
        sealing += sealed - begin;
        opening += sealed.elapsed();
        rounds += 1;
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / (rounds * count) as f64;
    Ok((each(sealing), each(opening)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads make the target seal and the host open what is long; writes the other way round, and as much in all.
    #[test]
    fn every_byte_is_sealed_and_opened() {
        for cipher in [FloorCipher::Aes128, FloorCipher::Aes256] {
            let cost = |rw| {
                let args = FloorArgs { rw, ..FloorArgs::default() };
                SealingCost::measure(cipher, &args).unwrap()
            };
            for sealing in [cost(DataDirection::Read), cost(DataDirection::Write)] {
                assert!(sealing.host_us > 0.0 && sealing.target_us > 0.0, "{sealing:?}");
            }
        }
    }
}
