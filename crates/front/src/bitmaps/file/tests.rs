use super::*;
use proptest::prelude::*;

const IDENTITY: BitmapIdentity =
    BitmapIdentity { nguid: [7; 16], uuid: [8; 16], eui64: [0; 8], lba_bytes: 512 };
const GRANULARITY: u32 = 4096;
const BYTES: u64 = 200 * 4096;

fn open(path: &Path) -> Result<SavedBitmap, String> {
    open_as(path, IDENTITY, GRANULARITY, BYTES)
}

fn open_as(
    path: &Path,
    identity: BitmapIdentity,
    granularity: u32,
    bytes: u64,
) -> Result<SavedBitmap, String> {
    BitmapFile::open(path, identity, granularity, bytes).unwrap().1
}

/// Returns the path of a file that was saved cleanly, its folder, and its bits.
fn saved() -> (PathBuf, tempfile::TempDir, SavedBitmap) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bitmap");
    let bits = SavedBitmap { words: vec![1, u64::MAX, 0, 1 << 7] };
    let (mut file, first) = BitmapFile::open(&path, IDENTITY, GRANULARITY, BYTES).unwrap();
    assert!(first.unwrap_err().contains("new"));
    file.save(BYTES, &Ok(bits.clone())).unwrap();
    (path, folder, bits)
}

#[test]
fn a_clean_end_keeps_the_bits_until_the_next_start() {
    let (path, _folder, bits) = saved();
    let (mut file, found) = BitmapFile::open(&path, IDENTITY, GRANULARITY, BYTES).unwrap();
    assert_eq!(found.unwrap(), bits);
    let taken = BitmapFile::open(&path, IDENTITY, GRANULARITY, BYTES).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    file.save(BYTES, &Err("because".into())).unwrap();
    drop(file);
    assert_eq!(open(&path), Err("because".into()), "the reason is kept");
    let killed = open(&path).unwrap_err();
    assert!(killed.contains("not ended cleanly"), "{killed}");
}

#[test]
fn the_bits_of_another_disk_do_not_count() {
    let other = BitmapIdentity { uuid: [9; 16], ..IDENTITY };
    let blocks = BitmapIdentity { lba_bytes: 4096, ..IDENTITY };
    for (identity, granularity, bytes, why) in [
        (other, GRANULARITY, BYTES, "another namespace"),
        (blocks, GRANULARITY, BYTES, "another namespace"),
        (IDENTITY, GRANULARITY, BYTES + 4096, "resized from 819200 to 823296"),
        (IDENTITY, 8192, BYTES, "length"),
        (IDENTITY, 8192, BYTES * 2, "resized"),
    ] {
        let (path, ..) = &saved();
        let reason = open_as(path, identity, granularity, bytes).unwrap_err();
        assert!(reason.contains(why) || reason.contains("granularity"), "{why}: {reason}");
    }
}

#[test]
fn a_file_of_other_content_is_refused_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    std::fs::write(&path, b"precious").unwrap();
    let error = BitmapFile::open(&path, IDENTITY, GRANULARITY, BYTES).unwrap_err();
    assert!(error.to_string().contains("no file of a bitmap"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    assert!(BitmapFile::open(folder.path(), IDENTITY, GRANULARITY, BYTES).is_err());
}

#[test]
fn a_torn_file_is_invalid() {
    let (path, _folder, bits) = saved();
    let whole = std::fs::read(&path).unwrap();
    for length in [8, 100, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 8, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(open(&path).is_err(), "{length} bytes");
    }
    // Bits that came to the disk, though the header with their digest did not.
    let mut torn = whole.clone();
    torn[HEADER_BYTES] ^= 1;
    std::fs::write(&path, &torn).unwrap();
    assert!(open(&path).is_err());
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(open(&path), Ok(bits));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// No damage makes a file valid with other bits.
    #[test]
    fn damage_never_counts_as_clean(
        changes in prop::collection::vec((0usize..4096 + 32, any::<u8>()), 1..6),
    ) {
        let (path, _folder, bits) = saved();
        let mut bytes = std::fs::read(&path).unwrap();
        changes.iter().for_each(|&(at, value)| bytes[at] = value);
        std::fs::write(&path, &bytes).unwrap();
        if let Ok((_, Ok(found))) = BitmapFile::open(&path, IDENTITY, GRANULARITY, BYTES) {
            prop_assert_eq!(found, bits);
        }
    }

    /// A header with a valid digest and any content is read without a panic.
    #[test]
    fn hostile_headers_are_read(
        content in prop::collection::vec(any::<u8>(), 0..128), state in 0u32..5, length in any::<u16>(),
    ) {
        let mut header = header((IDENTITY, GRANULARITY, BYTES), state, 0, "");
        header[16..16 + content.len()].copy_from_slice(&content);
        header[88..90].copy_from_slice(&length.to_le_bytes());
        let seal = digest(&[&header[..SEAL]]);
        header[SEAL..].copy_from_slice(&seal.to_le_bytes());
        let _ = check(&header, (IDENTITY, GRANULARITY, BYTES));
    }
}
