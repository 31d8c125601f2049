//! The file of a bitmap: identity and size of its disk, a clean mark, and the bits.
//!
//! ```text
//!      0  magic, version, state, granularity, block size, size of the disk, identifiers, digest of the bits, reason
//!   4080  digest of what comes before
//!   4096  the bits, 64 of a word, little-endian
//! ```
//!
//! While an attachment has the file, its state is *in use*: a crash leaves it so, and the bitmap counts as invalid.

use super::bits::words;
use roadtrain_proto::digest::digest;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"RTBITMAP";
const VERSION: u32 = 1;
const CLEAN: u32 = 1;
const IN_USE: u32 = 2;
const INVALID: u32 = 3;

const HEADER_BYTES: usize = 4096;
/// Offset of the header's own digest.
const SEAL: usize = HEADER_BYTES - 16;
const REASON: usize = 90;
/// Most bytes of the reason why a bitmap is invalid.
const REASON_BYTES_MAX: usize = 400;

/// Disk of a bitmap: changes of another one are not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BitmapIdentity {
    /// NGUID; zeroes without one.
    pub nguid: [u8; 16],
    /// UUID; zeroes without one.
    pub uuid: [u8; 16],
    /// EUI-64; zeroes without one.
    pub eui64: [u8; 8],
    /// Bytes of a block.
    pub lba_bytes: u32,
}

/// Bits of a bitmap that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedBitmap {
    pub(super) words: Vec<u64>,
}

/// The open file of a bitmap, which no other process uses.
#[derive(Debug)]
pub(super) struct BitmapFile {
    path: PathBuf,
    file: File,
    identity: BitmapIdentity,
    granularity_bytes: u32,
}

impl BitmapFile {
    /// Opens the file, or makes it, and marks it as in use on stable storage. Returns its bits, or the reason why they
    /// are not known.
    ///
    /// # Errors
    /// Another process uses the file, or it is no bitmap, or the file system fails.
    pub(super) fn open(
        path: &Path,
        identity: BitmapIdentity,
        granularity_bytes: u32,
        bytes: u64,
    ) -> io::Result<(BitmapFile, Result<SavedBitmap, String>)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path)?;
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        if !file.metadata()?.is_file() {
            return Err(invalid("it is no file"));
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| io::Error::new(io::ErrorKind::AddrInUse, "another attachment has it"))?;
        let wanted = (identity, granularity_bytes, bytes);
        let saved = read(&mut file, wanted)?;
        let saved = saved.ok_or_else(|| {
            invalid(
                "it is no file of a bitmap: name another one, or remove it and make a full backup",
            )
        })?;
        let file = BitmapFile { path: path.to_owned(), file, identity, granularity_bytes };
        file.write_header(IN_USE, bytes, 0, "")?;
        file.file.sync_all()?;
        Ok((file, saved))
    }

    /// Path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the bits and the clean mark, or the reason why they are not known, to stable storage.
    ///
    /// # Errors
    /// The file system fails: the bitmap counts as invalid then.
    pub(super) fn save(
        &mut self,
        bytes: u64,
        saved: &Result<SavedBitmap, String>,
    ) -> io::Result<()> {
        match saved {
            Ok(SavedBitmap { words }) => {
                let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                self.file.set_len(HEADER_BYTES as u64)?;
                self.file.write_all_at(&body, HEADER_BYTES as u64)?;
                self.file.sync_all()?;
                self.write_header(CLEAN, bytes, digest(&[&body]), "")?;
            }
            Err(reason) => self.write_header(INVALID, bytes, 0, reason)?,
        }
        self.file.sync_all()
    }

    fn write_header(&self, state: u32, bytes: u64, bits: u128, reason: &str) -> io::Result<()> {
        let header = header((self.identity, self.granularity_bytes, bytes), state, bits, reason);
        self.file.write_all_at(&header, 0)
    }
}

/// Disk, granularity and size.
type BitmapScope = (BitmapIdentity, u32, u64);

fn header(
    (identity, granularity_bytes, bytes): BitmapScope,
    state: u32,
    bits: u128,
    reason: &str,
) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let reason = &reason.as_bytes()[..reason.floor_char_boundary(REASON_BYTES_MAX)];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        header[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(MAGIC);
    for number in [VERSION, state, granularity_bytes, identity.lba_bytes] {
        put(&number.to_le_bytes());
    }
    put(&bytes.to_le_bytes());
    put(&identity.nguid);
    put(&identity.uuid);
    put(&identity.eui64);
    put(&bits.to_le_bytes());
    put(&(reason.len() as u16).to_le_bytes());
    put(reason);
    let seal = digest(&[&header[..SEAL]]);
    header[SEAL..].copy_from_slice(&seal.to_le_bytes());
    header
}

/// Reads a file. `None` if it is no file of a bitmap.
fn read(file: &mut File, wanted: BitmapScope) -> io::Result<Option<Result<SavedBitmap, String>>> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(Some(Err("it is new, and no full backup has finished".into())));
    }
    let mut header = vec![0; HEADER_BYTES.min(length as usize)];
    file.read_exact_at(&mut header, 0)?;
    if !header.starts_with(MAGIC) {
        return Ok(None);
    }
    Ok(Some(match check(&header, wanted) {
        Err(reason) => Err(reason),
        Ok(bits) => {
            let (_, granularity, bytes) = wanted;
            let expected = words(bytes, granularity.trailing_zeros()) * 8;
            if length != (HEADER_BYTES + expected) as u64 {
                return Ok(Some(Err("its file has another length than it was saved with".into())));
            }
            let mut body = vec![0; expected];
            file.seek(SeekFrom::Start(HEADER_BYTES as u64))?;
            file.read_exact(&mut body)?;
            match digest(&[&body]) == bits {
                true => Ok(SavedBitmap { words: body.chunks_exact(8).map(word).collect() }),
                false => Err("its file is damaged".into()),
            }
        }
    }))
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Checks a header. Returns the digest of the bits, or the reason why they are not known.
fn check(header: &[u8], wanted: BitmapScope) -> Result<u128, String> {
    let damaged = || "its file is damaged".to_owned();
    let field = |at: usize, bytes: usize| header.get(at..at + bytes).ok_or_else(damaged);
    let number = |at| field(at, 4).map(|bytes| word_of(bytes) as u32);
    let seal = field(SEAL, 16)?;
    if digest(&[&header[..SEAL]]).to_le_bytes() != *seal {
        return Err(damaged());
    }
    if number(8)? != VERSION {
        return Err(format!(
            "its file has version {}, and this program knows {VERSION}",
            number(8)?
        ));
    }
    match number(12)? {
        CLEAN => {}
        IN_USE => return Err("its last attachment has not ended cleanly".into()),
        INVALID => {
            let length = word_of(field(88, 2)?) as usize;
            let reason = field(REASON, length.min(REASON_BYTES_MAX))?;
            return Err(String::from_utf8_lossy(reason).into_owned());
        }
        _ => return Err(damaged()),
    }
    let (identity, granularity_bytes, bytes) = wanted;
    let same = self::header(wanted, CLEAN, 0, "");
    let saved_bytes = word(field(24, 8)?);
    match () {
        () if header[32..72] != same[32..72] || number(20)? != identity.lba_bytes => {
            Err("it belongs to another namespace".into())
        }
        () if saved_bytes != bytes => {
            Err(format!("the namespace was resized from {saved_bytes} to {bytes} bytes"))
        }
        () if number(16)? != granularity_bytes => {
            Err(format!("its granularity was {} bytes", number(16)?))
        }
        () => Ok(u128::from_le_bytes(field(72, 16)?.try_into().map_err(|_| damaged())?)),
    }
}

/// Reads a little-endian number of at most 8 bytes.
fn word_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
