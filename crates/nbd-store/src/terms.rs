//! Properties of an export, as its server has given them in a handshake.

use crate::NbdServerError;
use roadtrain_wire::nbd::{PAYLOAD_BYTES_MAX, transmission_flag};

/// Maximum bytes of a request that carries no data.
const RANGE_BYTES_MAX: u32 = 1 << 30;
/// Maximum bytes of a request with data; a server may have a smaller maximum.
const DATA_BYTES_MAX: u32 = 1 << 20;

/// Properties of an export for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdTerms {
    /// Size in bytes, not rounded.
    pub bytes: u64,
    /// [Transmission flags](transmission_flag).
    pub flags: u16,
    /// Alignment of requests in bytes; 1: none.
    pub bytes_min: u32,
    /// Optimal granularity in bytes.
    pub bytes_preferred: u32,
    /// Maximum payload in bytes.
    pub bytes_max: u32,
    /// True if replies are structured.
    pub is_structured: bool,
    /// Number of the meta context for block allocation, if the server has it.
    pub allocation: Option<u32>,
}

impl Default for NbdTerms {
    /// Terms of an export without features.
    fn default() -> NbdTerms {
        NbdTerms {
            bytes: 0,
            flags: transmission_flag::HAS_FLAGS,
            bytes_min: 1,
            bytes_preferred: 4096,
            bytes_max: PAYLOAD_BYTES_MAX,
            is_structured: false,
            allocation: None,
        }
    }
}

impl NbdTerms {
    /// True if the export has all these [flags](transmission_flag).
    #[must_use]
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// True if writes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.has(transmission_flag::READ_ONLY)
    }

    /// Returns the block size in bytes for hosts: `wanted`, or 4096 if the server has larger blocks.
    ///
    /// # Errors
    /// Blocks that hosts cannot use, or an export without blocks.
    pub fn lba_bytes(&self, wanted: u32) -> Result<u32, NbdServerError> {
        if self.bytes_min > 4096 {
            return Err(NbdServerError::Unusable(format!(
                "it serves blocks of {} bytes at least, and hosts have blocks of 512 or 4096: put something before it \
                 that has smaller ones, such as `nbdkit --filter=blocksize`",
                self.bytes_min
            )));
        }
        let lba_bytes = if self.bytes_min > wanted { 4096 } else { wanted };
        if self.bytes_max < lba_bytes {
            return Err(NbdServerError::Unusable(format!(
                "it takes {} bytes at most in a request, less than a block of {lba_bytes}",
                self.bytes_max
            )));
        }
        if self.bytes < u64::from(lba_bytes) {
            return Err(NbdServerError::Unusable(format!(
                "the export has {} bytes, less than a block of {lba_bytes}",
                self.bytes
            )));
        }
        Ok(lba_bytes)
    }

    /// Maximum bytes of a request with data, in whole blocks of `lba_bytes`.
    #[must_use]
    pub fn data_bytes_max(&self, lba_bytes: u32) -> u32 {
        let bytes = self.bytes_max.min(DATA_BYTES_MAX);
        (bytes - bytes % lba_bytes).max(lba_bytes)
    }

    /// Maximum bytes of a request without data.
    #[must_use]
    pub fn range_bytes_max(&self) -> u32 {
        RANGE_BYTES_MAX
    }

    /// Checks sizes that a server has given.
    pub(crate) fn check_sizes(&self) -> Result<(), NbdServerError> {
        const MESSAGE: &str = "INFO of the block size";
        let wrong =
            |field, value, problem| Err(NbdServerError::field((MESSAGE, field), value, problem));
        let NbdTerms { bytes_min, bytes_preferred, bytes_max, .. } = *self;
        if !bytes_min.is_power_of_two() {
            return wrong("minimum", bytes_min, "it is no power of two");
        }
        if !bytes_preferred.is_power_of_two() || bytes_preferred < bytes_min {
            return wrong(
                "preferred",
                bytes_preferred,
                "it is no power of two from the minimum on",
            );
        }
        if bytes_max < bytes_min {
            return wrong("maximum", bytes_max, "it is less than the minimum");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_hosts() {
        let of = |bytes_min, wanted| {
            NbdTerms { bytes: 1 << 20, bytes_min, ..NbdTerms::default() }.lba_bytes(wanted)
        };
        assert_eq!((of(1, 512), of(512, 512), of(1, 4096)), (Ok(512), Ok(512), Ok(4096)));
        assert_eq!((of(1024, 512), of(4096, 512)), (Ok(4096), Ok(4096)));
        let error = of(65536, 512).unwrap_err().to_string();
        assert!(error.contains("65536") && error.contains("blocksize"), "{error}");
        let small = NbdTerms { bytes: 511, ..NbdTerms::default() };
        assert!(small.lba_bytes(512).unwrap_err().to_string().contains("511 bytes"));
        let short = NbdTerms { bytes: 1 << 20, bytes_max: 511, ..NbdTerms::default() };
        assert!(short.lba_bytes(512).unwrap_err().to_string().contains("511 bytes at most"));
    }

    #[test]
    fn requests_have_whole_blocks() {
        let of = |bytes_max| NbdTerms { bytes_max, ..NbdTerms::default() }.data_bytes_max(512);
        assert_eq!((of(u32::MAX), of(65536), of(1000), of(512)), (1 << 20, 65536, 512, 512));
    }
}
