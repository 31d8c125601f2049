//! Files with keys: one line each.

use crate::failure::{Failure, Outcome};
use roadtrain_engine::memory;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use zeroize::Zeroizing;

/// Longest file of a key, with comments.
const FILE_BYTES_MAX: usize = 4096;
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
        eprintln!(
            "roadtrain: {option}: others can see a key that is on the command line; put it into a file"
        );
        return Ok((Zeroizing::new(argument.to_owned()), None));
    }
    let wrong = |error: io::Error| Failure::failed(format!("{option}: {argument}: {error}"));
    let text = if argument == "-" { read(io::stdin()) } else { open(argument) }.map_err(wrong)?;
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

/// How messages call it: by the file's name, never by the key.
pub(crate) fn name(argument: &str) -> &str {
    if is_key(argument) { "the key" } else { argument }
}

fn is_key(argument: &str) -> bool {
    FORMS.iter().any(|form| argument.starts_with(form))
}

fn open(path: &str) -> io::Result<Zeroizing<String>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
        eprintln!("roadtrain: {path}: others can read this key; chmod 600 {path}");
    }
    read(file)
}

fn read(from: impl Read) -> io::Result<Zeroizing<String>> {
    // All at once: a buffer that grows would leave copies behind.
    let mut octets = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 1));
    from.take(FILE_BYTES_MAX as u64).read_to_end(&mut octets)?;
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
