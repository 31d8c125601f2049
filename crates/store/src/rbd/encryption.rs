//! Encryption of images by librbd (LUKS). Its functions are optional: older versions do not have them.

use super::RbdFailure;
use super::library::{CephHandle, LIBRBD};
use super::passphrase::RbdPassphrase;
use libloading::Library as Loaded;
use std::ffi::{c_char, c_int, c_void};
use std::sync::LazyLock;

/// `RBD_ENCRYPTION_FORMAT_LUKS1`
const LUKS1: c_int = 0;
/// `RBD_ENCRYPTION_FORMAT_LUKS2`
const LUKS2: c_int = 1;
/// `RBD_ENCRYPTION_FORMAT_LUKS`: either version; with `rbd_encryption_load2` only.
const LUKS: c_int = 2;

/// `rbd_encryption_luks1_format_options_t`, and the same for LUKS2
#[repr(C)]
struct VersionedLuksOptions {
    /// `rbd_encryption_algorithm_t`: only formatting uses it.
    algorithm: c_int,
    passphrase: *const c_char,
    passphrase_bytes: usize,
}

/// `rbd_encryption_luks_format_options_t`
#[repr(C)]
struct LuksOptions {
    passphrase: *const c_char,
    passphrase_bytes: usize,
}

/// `rbd_encryption_spec_t`
#[repr(C)]
struct EncryptionSpec {
    format: c_int,
    options: *mut c_void,
    options_bytes: usize,
}

type Load = unsafe extern "C" fn(CephHandle, c_int, *mut c_void, usize) -> c_int;
type Load2 = unsafe extern "C" fn(CephHandle, *const EncryptionSpec, usize) -> c_int;

/// Functions that open an encrypted image.
#[derive(Debug)]
pub(super) struct EncryptionFunctions {
    /// `rbd_encryption_load`, since Ceph 16
    load: Option<Load>,
    /// `rbd_encryption_load2`, since Ceph 18
    load2: Option<Load2>,
}

static FUNCTIONS: LazyLock<EncryptionFunctions> = LazyLock::new(|| {
    // SAFETY: it is loaded already, and stays.
    let library = unsafe { Loaded::new(LIBRBD) };
    library.map_or(EncryptionFunctions { load: None, load2: None }, |library| {
        EncryptionFunctions::resolve(&library)
    })
});

/// Returns the functions of the librbd that has opened an image.
pub(super) fn functions() -> &'static EncryptionFunctions {
    &FUNCTIONS
}

impl EncryptionFunctions {
    /// Resolves those that the library has.
    fn resolve(library: &Loaded) -> EncryptionFunctions {
        // SAFETY: the types are those of the header, which are the same for all versions that have the functions.
        unsafe {
            EncryptionFunctions {
                load: library.get(b"rbd_encryption_load\0").ok().map(|found| *found),
                load2: library.get(b"rbd_encryption_load2\0").ok().map(|found| *found),
            }
        }
    }

    /// Has librbd encrypt and decrypt an open image from now on. Takes seconds, and as much memory as the key
    /// derivation of the image's header.
    pub(super) fn open(&self, image: CephHandle, source: &RbdPassphrase) -> Result<(), RbdFailure> {
        if self.load.is_none() && self.load2.is_none() {
            return Err(RbdFailure::text(format!(
                "{source}: this librbd opens no encrypted images: install librbd1 of Ceph 16 or later"
            )));
        }
        let passphrase = source.read()?;
        let result = match (self.load2, self.load) {
            (Some(load2), _) => load_any(load2, image, &passphrase),
            (None, Some(load)) => load_by_version(load, image, &passphrase),
            (None, None) => -libc::ENOTSUP,
        };
        match -result {
            libc::EPERM | libc::EACCES => {
                Err(RbdFailure::text(format!("{source}: this passphrase does not open it")))
            }
            libc::EINVAL | libc::ENOENT => Err(RbdFailure::text(format!(
                "{source}: it is not encrypted by `rbd encryption format`: do that to an empty image, or leave this out"
            ))),
            libc::ENOMEM => Err(RbdFailure::text(format!(
                "{source}: the key derivation of its header needs more memory than there is"
            ))),
            _ => super::cluster::check(result, &format!("decrypt it by {source}")),
        }
    }
}

/// Opens LUKS of any version.
fn load_any(load2: Load2, image: CephHandle, passphrase: &[u8]) -> c_int {
    let mut options =
        LuksOptions { passphrase: passphrase.as_ptr().cast(), passphrase_bytes: passphrase.len() };
    let spec = EncryptionSpec {
        format: LUKS,
        options: (&raw mut options).cast(),
        options_bytes: size_of::<LuksOptions>(),
    };
    // SAFETY: the image is open; librbd copies the passphrase before it returns.
    unsafe { load2(image, &spec, 1) }
}

/// Opens LUKS 2, or LUKS 1 if the header is of that version.
fn load_by_version(load: Load, image: CephHandle, passphrase: &[u8]) -> c_int {
    let mut options = VersionedLuksOptions {
        algorithm: 0,
        passphrase: passphrase.as_ptr().cast(),
        passphrase_bytes: passphrase.len(),
    };
    let bytes = size_of::<VersionedLuksOptions>();
    let mut open = |format| {
        // SAFETY: as above.
        unsafe { load(image, format, (&raw mut options).cast(), bytes) }
    };
    match open(LUKS2) {
        result if result == -libc::EINVAL => open(LUKS1),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// librbd refuses options of another size.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn structures_are_those_of_the_header() {
        assert_eq!(size_of::<VersionedLuksOptions>(), 24);
        assert_eq!(offset_of!(VersionedLuksOptions, passphrase), 8);
        assert_eq!(offset_of!(VersionedLuksOptions, passphrase_bytes), 16);
        assert_eq!(size_of::<LuksOptions>(), 16);
        assert_eq!(offset_of!(LuksOptions, passphrase_bytes), 8);
        assert_eq!(size_of::<EncryptionSpec>(), 24);
        assert_eq!(offset_of!(EncryptionSpec, options), 8);
        assert_eq!(offset_of!(EncryptionSpec, options_bytes), 16);
    }

    fn passphrase() -> (tempfile::TempDir, RbdPassphrase) {
        use std::os::unix::fs::OpenOptionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let mut options = std::fs::File::options();
        let file = options.write(true).create_new(true).mode(0o600).open(&path).unwrap();
        std::io::Write::write_all(&mut &file, b"good").unwrap();
        (folder, RbdPassphrase::File(path))
    }

    /// Plays an image of LUKS 1 whose passphrase is `good`: the handle is the address of the number of calls.
    unsafe extern "C" fn luks1(
        calls: CephHandle,
        format: c_int,
        options: *mut c_void,
        bytes: usize,
    ) -> c_int {
        // SAFETY: the test passes its counter, and `load_by_version` these options.
        let (calls, options) =
            unsafe { (&mut *calls.cast::<u32>(), &*options.cast::<VersionedLuksOptions>()) };
        *calls += 1;
        let passphrase: *const u8 = options.passphrase.cast();
        // SAFETY: as above.
        let passphrase =
            unsafe { std::slice::from_raw_parts(passphrase, options.passphrase_bytes) };
        match format {
            LUKS1 if bytes == 24 && passphrase == b"good" => 0,
            LUKS1 => -libc::EPERM,
            _ => -libc::EINVAL,
        }
    }

    /// Plays an image of any version.
    unsafe extern "C" fn any(
        calls: CephHandle,
        specs: *const EncryptionSpec,
        count: usize,
    ) -> c_int {
        // SAFETY: the test passes its counter, and `load_any` one specification.
        let (calls, spec) = unsafe { (&mut *calls.cast::<u32>(), &*specs) };
        *calls += 1;
        // SAFETY: as above.
        let options = unsafe { &*spec.options.cast::<LuksOptions>() };
        match (spec.format, spec.options_bytes, options.passphrase_bytes, count) {
            (LUKS, 16, 4, 1) => 0,
            _ => -libc::EINVAL,
        }
    }

    #[test]
    fn the_newest_function_is_used_and_versions_are_tried() {
        let (_folder, source) = passphrase();
        for (functions, expected) in [
            (EncryptionFunctions { load: Some(luks1), load2: Some(any) }, 1),
            (EncryptionFunctions { load: None, load2: Some(any) }, 1),
            (EncryptionFunctions { load: Some(luks1), load2: None }, 2),
        ] {
            let mut calls = 0_u32;
            functions.open((&raw mut calls).cast(), &source).unwrap();
            assert_eq!(calls, expected);
        }
        let none = EncryptionFunctions { load: None, load2: None };
        let why = none.open(std::ptr::null_mut(), &source).unwrap_err().to_string();
        assert!(why.contains("Ceph 16 or later") && why.contains("passphrase-file="), "{why}");
    }
}
