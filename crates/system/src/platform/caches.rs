//! Sizes of the processor's caches.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Assumed size where the kernel gives none: typical of current processors.
const USUAL_BYTES: u64 = 32 << 20;

/// True if `bytes` exceed the largest cache of this machine's first core.
pub fn outgrows_caches(bytes: u64) -> bool {
    static LARGEST: OnceLock<u64> = OnceLock::new();
    bytes > *LARGEST.get_or_init(|| largest_bytes(Path::new("/")).unwrap_or(USUAL_BYTES))
}

/// Returns the bytes of the largest cache, from the files below `root`.
fn largest_bytes(root: &Path) -> Option<u64> {
    let caches = fs::read_dir(root.join("sys/devices/system/cpu/cpu0/cache")).ok()?;
    let sizes = caches.flatten().filter_map(|cache| {
        let size = fs::read_to_string(cache.path().join("size")).ok()?;
        size.trim().strip_suffix('K')?.parse::<u64>().ok()
    });
    sizes.max().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_counts() {
        let root = tempfile::tempdir().unwrap();
        let caches = root.path().join("sys/devices/system/cpu/cpu0/cache");
        for (index, size) in [("index0", "48K\n"), ("index3", "32768K\n"), ("index2", "1024K\n")] {
            fs::create_dir_all(caches.join(index)).unwrap();
            fs::write(caches.join(index).join("size"), size).unwrap();
        }
        fs::write(caches.join("uevent"), "").unwrap();
        assert_eq!(largest_bytes(root.path()), Some(32 << 20));
        assert_eq!(largest_bytes(&root.path().join("elsewhere")), None);
    }
}
