//! Passphrases of encrypted images: from a file or from the kernel's keyrings, never kept longer than an opening takes.

use super::RbdFailure;
use roadtrain_system::{keyring, memory};
use rustix::fs::OFlags;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Longest passphrase in bytes: more than a key of the kernel can have.
const PASSPHRASE_BYTES_MAX: usize = 32 << 10;

/// Source of an image's passphrase. The passphrase itself is read for each opening, and wiped after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RbdPassphrase {
    /// A file, which only its owner may read. One newline at its end is not part of the passphrase.
    File(PathBuf),
    /// Description of a `user` key in the kernel's keyrings.
    Key(String),
}

impl fmt::Display for RbdPassphrase {
    /// Writes the option that names the source.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RbdPassphrase::File(path) => write!(f, "passphrase-file={}", path.display()),
            RbdPassphrase::Key(name) => write!(f, "passphrase-key={name}"),
        }
    }
}

impl RbdPassphrase {
    /// Reads the passphrase.
    pub(super) fn read(&self) -> Result<Zeroizing<Vec<u8>>, RbdFailure> {
        let failed = |why: String| RbdFailure::text(format!("{self}: {why}"));
        // Runs before the first byte of it is in memory.
        memory::keep_secret().map_err(|error| failed(error.to_string()))?;
        let passphrase = match self {
            RbdPassphrase::File(path) => read_file(path),
            RbdPassphrase::Key(name) => keyring::read_user_key(name).map_err(|error| {
                let hint = match error.raw_os_error() {
                    Some(libc::ENOKEY) => {
                        format!(
                            ": add it as the user of this process: `keyctl padd user {name} @u`"
                        )
                    }
                    _ => String::new(),
                };
                format!("cannot read this key of the kernel: {error}{hint}")
            }),
        };
        let passphrase = passphrase.map_err(failed)?;
        match passphrase.len() {
            0 => Err(failed("it is empty".into())),
            1..=PASSPHRASE_BYTES_MAX => Ok(passphrase),
            _ => Err(failed(format!("it is longer than {PASSPHRASE_BYTES_MAX} bytes"))),
        }
    }
}

/// Reads all of a file that only its owner may read, without a newline at its end, as the program `rbd` does.
fn read_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: io::Error| format!("cannot read it: {error}");
    // NONBLOCK: opening a pipe must not wait; the check below refuses it.
    let mut options = File::options();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut file = options.open(path).map_err(failed)?;
    // Checks the open file: the name may belong to another file by now.
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err("it is no regular file".into());
    }
    let own = rustix::process::geteuid().as_raw();
    if metadata.mode() & 0o077 != 0 || ![0, own].contains(&metadata.uid()) {
        return Err(format!(
            "other users can read or change it: `chmod 600 {}`, and have it owned by this process's user",
            path.display()
        ));
    }
    // One allocation: a buffer that grows would leave copies behind.
    let mut bytes = Zeroizing::new(vec![0; PASSPHRASE_BYTES_MAX + 2]);
    let mut length = 0;
    while length < bytes.len() {
        match file.read(&mut bytes[length..]).map_err(failed)? {
            0 => break,
            read => length += read,
        }
    }
    bytes.truncate(length);
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn read(path: &Path) -> Result<Vec<u8>, String> {
        let read = RbdPassphrase::File(path.into()).read();
        read.map(|passphrase| passphrase.to_vec()).map_err(|failure| failure.to_string())
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_passphrase_is_a_file_without_its_last_newline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for (text, expected) in [
            (&b"secret"[..], &b"secret"[..]),
            (b"secret\n", b"secret"),
            (b"secret\n\n", b"secret\n"),
            (b" two\nlines \xff\0", b" two\nlines \xff\0"),
        ] {
            fs::write(&path, text).unwrap();
            set_mode(&path, 0o600);
            assert_eq!(read(&path).unwrap(), expected);
        }
        assert!(memory::is_kept_secret());
    }

    #[test]
    fn refusals_name_option_and_file_but_not_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let is_refused = |path: &Path, why: &str| {
            let error = read(path).unwrap_err();
            let option = format!("passphrase-file={}", path.display());
            assert!(error.starts_with(&option) && error.contains(why), "{error}");
            assert!(!error.contains("secret"), "{error}");
        };
        is_refused(&path, "No such file");
        is_refused(folder.path(), "no regular file");
        fs::write(&path, "secret").unwrap();
        for mode in [0o640, 0o604, 0o620, 0o644] {
            set_mode(&path, mode);
            is_refused(&path, "chmod 600");
        }
        set_mode(&path, 0o400);
        assert_eq!(read(&path).unwrap(), b"secret");
        set_mode(&path, 0o600);
        for text in ["", "\n"] {
            fs::write(&path, text).unwrap();
            is_refused(&path, "it is empty");
        }
        fs::write(&path, "secret".repeat(PASSPHRASE_BYTES_MAX / 6 + 1)).unwrap();
        is_refused(&path, "longer than 32768 bytes");
        let missing = RbdPassphrase::Key("roadtrain-none".into()).read().unwrap_err().to_string();
        assert!(missing.starts_with("passphrase-key=roadtrain-none: cannot read"), "{missing}");
    }
}
