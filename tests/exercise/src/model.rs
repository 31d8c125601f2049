//! Expected contents of files, and the comparison with the actual ones.

use anyhow::{Result, bail};

/// Fails at the first byte that differs from the expected one. `at` is the offset of both in the file.
pub(crate) fn same(at: u64, expected: &[u8], found: &[u8]) -> Result<()> {
    if expected.len() != found.len() {
        bail!("{} bytes at {at} instead of {}", found.len(), expected.len());
    }
    let Some(first) = expected.iter().zip(found).position(|(a, b)| a != b) else { return Ok(()) };
    let wrong = expected.iter().zip(found).filter(|(a, b)| a != b).count();
    bail!(
        "byte {} is {:#04x} instead of {:#04x}; {wrong} of the {} bytes at {at} are wrong",
        at + first as u64,
        found[first],
        expected[first],
        expected.len()
    )
}

/// Returns bytes that are specific to the seed.
pub(crate) fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut content = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut content);
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_named() {
        assert!(same(512, b"abc", b"abc").is_ok());
        let error = same(512, b"abcd", b"abXd").unwrap_err().to_string();
        assert!(error.starts_with("byte 514 is 0x58 instead of 0x63; 1 of the 4"), "{error}");
        assert!(same(0, b"abc", b"ab").is_err());
    }

    #[test]
    fn content_follows_from_its_seed() {
        assert_eq!(content(7, 100), content(7, 100));
        assert_ne!(content(7, 100), content(8, 100));
    }
}
