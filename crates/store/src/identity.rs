//! Identity of a store: a unique number that stays with the data.
//!
//! Memory has an identity as long as it exists. A regular file has one in an extended attribute, written when it is
//! first exported for writing. So it survives a rename, and a new number of the file system. The attribute also
//! identifies the file, so that a copy with the attribute gets an identity of its own. A file that cannot store one
//! (read-only, or without attributes) has the identity that it would get. Block devices have one made of their
//! identifiers ([`device`]).
//!
//! A second attribute keeps the block size of the content ([`block_bytes`]).

pub(crate) mod block_bytes;
mod device;

use crate::OpenError;
use roadtrain_proto::digest::digest;
use roadtrain_system::machine::machine;
use roadtrain_system::random;
use rustix::fs::{AtFlags, StatxFlags, XattrFlags, fgetxattr, fsetxattr, statx};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tracing::{info, warn};

pub(crate) use device::of_block;

/// Name of the attribute.
const NAME: &str = "user.roadtrain.identity";
/// First field of the value: version of the format.
const FORM: &str = "1";
/// Buffer for the value in bytes; larger than any value.
const MARK_BYTES: usize = 256;
/// Reads a file's generation (`_IOR('v', 1, long)`), where the file system has one.
const FS_IOC_GETVERSION: libc::Ioctl = 0x8008_7601_u32 as libc::Ioctl;
/// Text for an unknown field.
const UNKNOWN: &str = "-";

/// Returns an identity for new memory.
pub(crate) fn of_memory() -> Result<u128, OpenError> {
    let bytes = random::bytes().map_err(|e| OpenError::io(Path::new("memory"), "name", e))?;
    Ok(u128::from_ne_bytes(bytes))
}

/// Returns the identity of a regular file.
pub(crate) fn of_file(path: &Path, file: &File, read_only: bool) -> Result<u128, OpenError> {
    let failed = |source| OpenError::io(path, "identify", source);
    let birth = Birth::of(file).map_err(failed)?;
    if let Some(mark) = IdentityAttribute::read(file) {
        if mark.birth.may_be(&birth) {
            return Ok(mark.store);
        }
        info!(
            path = %path.display(),
            "its extended attribute {} is another file's: it is a copy, and gets an identity of its own \
             (give it a uuid to choose one)", NAME
        );
    }
    let store = birth.store(file).map_err(failed)?;
    if !read_only {
        match (IdentityAttribute { store, birth }).write(file) {
            // Synced, so that no host sees an identity that a power failure takes back.
            Ok(()) => file.sync_all().map_err(|e| OpenError::io(path, "store", e))?,
            Err(error) => info!(path = %path.display(), "no extended attribute: {error}"),
        }
    }
    Ok(store)
}

/// Returns the identity of a loop device's file, which is not changed.
fn of_backing_file(path: &Path) -> Option<u128> {
    let file = File::open(path).ok()?;
    of_file(path, &file, true).ok()
}

/// Properties that distinguish a file from all others, past ones included, as far as its file system reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Birth {
    inode: u64,
    /// Birth time: seconds and nanoseconds.
    born: String,
    generation: String,
}

impl Birth {
    fn of(file: &File) -> io::Result<Birth> {
        let inode = file.metadata()?.ino();
        let born = birth_time(file).unwrap_or_else(|| UNKNOWN.into());
        let generation = generation(file).map_or(UNKNOWN.into(), |number| number.to_string());
        Ok(Birth { inode, born, generation })
    }

    /// True if both may be of one file: unknown fields do not count as different.
    fn may_be(&self, other: &Birth) -> bool {
        let alike = |a: &str, b: &str| a == b || a == UNKNOWN || b == UNKNOWN;
        self.inode == other.inode
            && alike(&self.born, &other.born)
            && alike(&self.generation, &other.generation)
    }

    /// Returns the identity of a file that has none yet.
    fn store(&self, file: &File) -> io::Result<u128> {
        // A file system's number may change with a remount, so it is used only if no birth time is known.
        let place = if self.born == UNKNOWN { fs_id(file)? } else { String::new() };
        let text = format!("{} {} {} {place}", self.inode, self.born, self.generation);
        Ok(digest(&[b"file\0", &machine().to_be_bytes(), text.as_bytes()]))
    }
}

fn birth_time(file: &File) -> Option<String> {
    let answer = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let (is_known, born) = (answer.stx_mask & StatxFlags::BTIME.bits() != 0, answer.stx_btime);
    is_known.then(|| format!("{}.{:09}", born.tv_sec, born.tv_nsec))
}

fn generation(file: &File) -> Option<u32> {
    // File systems write 4 bytes, whatever the request's size is.
    let mut bytes = [0u8; 8];
    // SAFETY: the descriptor is open, and at most 8 bytes are written.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_GETVERSION, bytes.as_mut_ptr()) };
    let number = bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    number.filter(|_| result == 0)
}

fn fs_id(file: &File) -> io::Result<String> {
    let mut answer = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor is open and the answer is writable.
    if unsafe { libc::fstatfs(file.as_raw_fd(), answer.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, which is a valid value of this plain structure, and filled since.
    let answer = unsafe { answer.assume_init() };
    Ok(format!("{:x} {:?}", answer.f_type, answer.f_fsid))
}

/// Content of the attribute.
#[derive(Debug, PartialEq, Eq)]
struct IdentityAttribute {
    store: u128,
    birth: Birth,
}

impl IdentityAttribute {
    /// Formats it as text: version, number, inode, birth time, generation.
    fn emit(&self) -> String {
        let Birth { inode, born, generation } = &self.birth;
        format!("{FORM} {:032x} {inode} {born} {generation}", self.store)
    }

    fn parse(text: &str) -> Option<IdentityAttribute> {
        let fields: Vec<&str> = text.split(' ').collect();
        let &[FORM, store, inode, born, generation] = &fields[..] else { return None };
        let store = u128::from_str_radix(store, 16).ok()?;
        let (inode, born, generation) = (inode.parse().ok()?, born.into(), generation.into());
        Some(IdentityAttribute { store, birth: Birth { inode, born, generation } })
    }

    /// Reads the attribute; `None` if there is none, or if it is invalid.
    fn read(file: &File) -> Option<IdentityAttribute> {
        let mut bytes = [0u8; MARK_BYTES];
        let length = fgetxattr(file, NAME, &mut bytes).ok()?;
        let text = bytes.get(..length)?;
        let mark = std::str::from_utf8(text).ok().and_then(IdentityAttribute::parse);
        if mark.is_none() {
            warn!("an extended attribute {NAME} that means nothing is replaced");
        }
        mark
    }

    fn write(&self, file: &File) -> io::Result<()> {
        Ok(fsetxattr(file, NAME, self.emit().as_bytes(), XattrFlags::empty())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn open(path: &Path) -> File {
        File::options().read(true).write(true).open(path).unwrap()
    }

    fn identity(path: &Path) -> u128 {
        of_file(path, &open(path), false).unwrap()
    }

    /// Makes a directory with a file in it.
    fn new_file() -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        fs::write(&path, [5; 4096]).unwrap();
        (directory, path)
    }

    #[test]
    fn a_file_keeps_its_identity_when_it_is_written_and_renamed() {
        let (directory, path) = new_file();
        let first = identity(&path);
        fs::write(&path, [6; 8192]).unwrap();
        let moved = directory.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        assert_eq!(identity(&moved), first);
        assert_eq!(of_file(&moved, &File::open(&moved).unwrap(), true).unwrap(), first);
        fs::write(&path, [5; 4096]).unwrap();
        assert_ne!(identity(&path), first, "another file under the old name");
    }

    #[test]
    fn a_file_is_the_same_before_and_after_it_may_be_written() {
        let (_directory, path) = new_file();
        let before = of_file(&path, &File::open(&path).unwrap(), true).unwrap();
        assert_eq!(
            IdentityAttribute::read(&open(&path)),
            None,
            "a read-only export changes nothing"
        );
        assert_eq!(identity(&path), before);
    }

    #[test]
    fn a_copy_with_all_attributes_is_another_file() {
        let (directory, path) = new_file();
        let first = identity(&path);
        let Some(mark) = IdentityAttribute::read(&open(&path)) else {
            return crate::skipped::skipped_test(
                "a_copy_with_all_attributes_is_another_file",
                "the temporary directory takes no extended attributes",
            );
        };
        let copy = directory.path().join("copy");
        fs::copy(&path, &copy).unwrap();
        mark.write(&open(&copy)).unwrap();
        let other = identity(&copy);
        assert_ne!(other, first);
        assert_eq!((identity(&copy), identity(&path)), (other, first), "from then on");
    }

    #[test]
    fn a_kernel_that_reports_more_than_another_makes_no_difference() {
        let birth = Birth { inode: 7, born: "5.000000001".into(), generation: UNKNOWN.into() };
        for (other, same) in [
            (Birth { born: UNKNOWN.into(), ..birth.clone() }, true),
            (Birth { generation: "9".into(), ..birth.clone() }, true),
            (Birth { born: "5.000000002".into(), ..birth.clone() }, false),
            (Birth { inode: 8, ..birth.clone() }, false),
        ] {
            assert_eq!((birth.may_be(&other), other.may_be(&birth)), (same, same), "{other:?}");
        }
    }

    #[test]
    fn marks_round_trip_and_nonsense_is_none() {
        let birth = Birth { inode: 7, born: "5.000000001".into(), generation: UNKNOWN.into() };
        let mark = IdentityAttribute { store: 0xab, birth };
        let text = mark.emit();
        assert_eq!(text, "1 000000000000000000000000000000ab 7 5.000000001 -");
        assert_eq!(IdentityAttribute::parse(&text), Some(mark));
        for nonsense in ["", "1", "2 ab 7 5.1 -", "1 xx 7 5.1 -", "1 ab -7 5.1 -", "1 ab 7 5.1"] {
            assert_eq!(IdentityAttribute::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn memory_is_never_the_same_again() {
        assert_ne!(of_memory().unwrap(), of_memory().unwrap());
    }
}
