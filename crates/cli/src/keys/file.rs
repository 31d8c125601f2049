//! Files with keys: one line each.

use crate::failure::{Failure, Outcome};
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
/// How written keys begin.
const FORMS: [&str; 2] = ["NVMeTLSkey-1:", "DHHC-1:"];

/// A key, and another one.
pub(crate) type Lines = (Zeroizing<String>, Option<Zeroizing<String>>);

/// The key's line, which is in the file `argument` or is the argument itself; `option` is who wants it. Empty lines
/// of a file and those that begin with # do not count.
///
/// # Errors
/// The file cannot be read, or has not one line.
pub(crate) fn line(option: &str, argument: &str) -> Outcome<Zeroizing<String>> {
    let (line, former) = lines(option, argument)?;
    match former {
        None => Ok(line),
        Some(_) => {
            Err(Failure::usage(format!("{option}: {argument}: a file has one key, in one line")))
        }
    }
}

/// The same of a target, which may have a second line: a key that is good as well, while it is changed.
///
/// # Errors
/// The file cannot be read, or has not one line or two.
pub(crate) fn lines(option: &str, argument: &str) -> Outcome<Lines> {
    // Before the first octet of a key is in memory.
    memory::keep_secret().map_err(|error| Failure::failed(format!("{option}: {error}")))?;
    if is_key(argument) {
        // The configuration of a gateway group has keys, too, which nobody sees.
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
        _ => Err(Failure::usage(format!(
            "{option}: {argument}: a file has one key, in one line, or two while it is changed"
        ))),
    }
}

/// All of a file with many keys.
///
/// # Errors
/// It cannot be read, or is too long.
pub(crate) fn text(option: &str, argument: &str) -> Outcome<Zeroizing<String>> {
    memory::keep_secret().map_err(|error| Failure::failed(format!("{option}: {error}")))?;
    text_of(option, argument, KEYRING_BYTES_MAX)
}

fn text_of(option: &str, argument: &str, bytes_max: usize) -> Outcome<Zeroizing<String>> {
    let read = |from: &mut dyn Read| read(from, bytes_max);
    let text = if argument == "-" { read(&mut io::stdin()) } else { open(argument, read) };
    // It has to be mended by hand: a service that tried again would do so for ever.
    text.map_err(|error| Failure::usage(format!("{option}: {argument}: {error}")))
}

/// How messages call it: by the file's name, never by the key.
pub(crate) fn name(argument: &str) -> &str {
    if is_key(argument) { "the key" } else { argument }
}

fn is_key(argument: &str) -> bool {
    FORMS.iter().any(|form| argument.starts_with(form))
}

fn open(
    path: &str,
    read: impl Fn(&mut dyn Read) -> io::Result<Zeroizing<String>>,
) -> io::Result<Zeroizing<String>> {
    let text = read(&mut File::open(path)?)?;
    // The mode of other files is none of ours.
    if FORMS.iter().any(|form| text.contains(form)) {
        warn_if_readable(path.as_ref());
    }
    Ok(text)
}

/// Says if others can read the key in a file; that it cannot be read at all is said by who reads it.
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
    // All at once: a buffer that grows would leave copies behind.
    let mut octets = Zeroizing::new(Vec::with_capacity(bytes_max + 2));
    from.take(bytes_max as u64 + 1).read_to_end(&mut octets)?;
    if octets.len() > bytes_max {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("it is longer than {bytes_max} octets"),
        ));
    }
    let text = std::str::from_utf8(&octets).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither a core dump nor a debugger of the same user gets a key.
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
