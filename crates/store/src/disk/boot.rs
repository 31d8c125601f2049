//! Identification of the machine's boot for hosts: a page cache and a disk's cache are lost with the next boot at the
//! latest.

use roadtrain_proto::security::Hash;
use std::sync::OnceLock;

/// Identifier of the boot, drawn by the kernel.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns a number for this boot that reveals nothing else: a hash, since other programs use the identifier itself as
/// a secret seed. Returns `None` if the kernel has no identifier.
pub(super) fn verifier() -> Option<u64> {
    static VERIFIER: OnceLock<Option<u64>> = OnceLock::new();
    *VERIFIER.get_or_init(|| std::fs::read_to_string(BOOT_ID).ok().and_then(|id| of(&id)))
}

fn of(boot_id: &str) -> Option<u64> {
    let boot_id = boot_id.trim();
    let hash = Hash::Sha256.digest(&[b"roadtrain write verifier ", boot_id.as_bytes()]);
    let verifier = hash.reveal().first_chunk().map(|first| u64::from_le_bytes(*first));
    verifier.filter(|_| !boot_id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_boot_has_another_number() {
        let one = of("1b4e28ba-2fa1-11d2-883f-0016d3cca427\n");
        assert!(one.is_some());
        assert_eq!(one, of("1b4e28ba-2fa1-11d2-883f-0016d3cca427"));
        assert_ne!(one, of("1b4e28ba-2fa1-11d2-883f-0016d3cca428\n"));
        assert_eq!(of("\n"), None);
        assert_eq!(verifier(), verifier());
    }
}
