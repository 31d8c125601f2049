//! Key files: one key in a line.

use crate::failure::{CommandFailure, CommandResult};
use crate::terminal;
use roadtrain_system::memory;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Longest file of a key, with comments.
const FILE_BYTES_MAX: usize = 4096;
/// Longest file of many keys: some thousand hosts.
const KEYRING_BYTES_MAX: usize = 4 << 20;
/// Prefixes of written keys.
const FORMS: [&str; 2] = ["NVMeTLSkey-1:", "DHHC-1:"];

/// A key, and a second one.
pub(crate) type KeyLines = (Zeroizing<String>, Option<Zeroizing<String>>);

/// Returns the key's line, which is in the file `argument` or is the argument itself; `option` names it in messages.
/// Empty lines of a file and those that begin with # are skipped.
///
/// # Errors
/// The file cannot be read, or does not have one line.
pub(crate) fn line(option: &str, argument: &str) -> CommandResult<Zeroizing<String>> {
    let (line, former) = lines(option, argument)?;
    match former {
        None => Ok(line),
        Some(_) => Err(CommandFailure::usage(format!(
            "{option}: {argument}: a file has one key, in one line"
        ))),
    }
}

/// Reads a target's key file, which may have a second line: a key that is valid as well, while the key is changed.
///
/// # Errors
/// The file cannot be read, or does not have one line or two.
pub(crate) fn lines(option: &str, argument: &str) -> CommandResult<KeyLines> {
    // Runs before any byte of a key is in memory.
    memory::keep_secret().map_err(|error| CommandFailure::failed(format!("{option}: {error}")))?;
    if is_key(argument) {
        // The configuration of a gateway group has keys, too, which no other user sees.
        if std::env::args().any(|word| word.contains(argument)) {
            terminal::say(format_args!(
                "roadtrain: {option}: others can see a key that is on the command line; put it into a file"
            ));
        }
        return Ok((Zeroizing::new(argument.to_owned()), None));
    }
    let text = text_of(option, argument, FILE_BYTES_MAX)?;
    let is_content = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
    let mut lines = text.lines().filter(is_content);
    let mut line = || lines.next().map(|line| Zeroizing::new(line.trim().to_owned()));
    match (line(), line(), line()) {
        (Some(line), former, None) => Ok((line, former)),
        _ => Err(CommandFailure::usage(format!(
            "{option}: {argument}: a file has one key, in one line, or two while it is changed"
        ))),
    }
}

/// Returns the whole text of a file with many keys.
///
/// # Errors
/// The file cannot be read, or is too long.
pub(crate) fn text(option: &str, argument: &str) -> CommandResult<Zeroizing<String>> {
    memory::keep_secret().map_err(|error| CommandFailure::failed(format!("{option}: {error}")))?;
    text_of(option, argument, KEYRING_BYTES_MAX)
}

fn text_of(option: &str, argument: &str, bytes_max: usize) -> CommandResult<Zeroizing<String>> {
    let read = |from: &mut dyn Read| read(from, bytes_max);
    let text = if argument == "-" { read(&mut io::stdin()) } else { open(argument, read) };
    // A usage error: only a person can correct the file, so a service must not try again.
    text.map_err(|error| CommandFailure::usage(format!("{option}: {argument}: {error}")))
}

/// Returns the name for messages: the file's name, never the key.
pub(crate) fn name(argument: &str) -> &str {
    if is_key(argument) { "the key" } else { argument }
}

pub(crate) fn is_key(argument: &str) -> bool {
    FORMS.iter().any(|form| argument.starts_with(form))
}

fn open(
    path: &str,
    read: impl Fn(&mut dyn Read) -> io::Result<Zeroizing<String>>,
) -> io::Result<Zeroizing<String>> {
    let text = read(&mut File::open(path)?)?;
    // Only files with secret keys need a restricted mode.
    if FORMS.iter().any(|form| text.contains(form)) {
        warn_if_readable(path.as_ref());
    }
    Ok(text)
}

/// Warns if others can read the key in a file; an unreadable file is reported where it is read.
pub(crate) fn warn_if_readable(path: &Path) {
    let Ok(metadata) = path.metadata() else { return };
    if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
        let path = path.display();
        terminal::say(format_args!(
            "roadtrain: {path}: others can read this key; chmod 600 {path}"
        ));
    }
}

fn read(from: &mut dyn Read, bytes_max: usize) -> io::Result<Zeroizing<String>> {
    // One allocation: a buffer that grows would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_max + 2));
    from.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("it is longer than {bytes_max} bytes"),
        ));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with keys cannot be dumped or debugged by the same user.
    #[test]
    fn memory_with_keys_is_not_dumped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, "# a comment\n\nDHHC-1:00:not-checked-here:\n").unwrap();
        let key = line("--key", path.to_str().unwrap()).unwrap();
        assert_eq!(*key, "DHHC-1:00:not-checked-here:");
        assert!(memory::is_kept_secret());
    }
}
