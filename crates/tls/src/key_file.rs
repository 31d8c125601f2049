//! Files of pre-shared keys in the format of GnuTLS's `psktool`: lines `user:key`, the key in hexadecimal digits.

use roadtrain_proto::security::{Secret, Suite, TlsPsk};
use zeroize::Zeroizing;

/// Minimum bytes of a key: a shorter one can be guessed.
pub const KEY_BYTES_MIN: usize = 16;
/// Maximum bytes of a key.
const KEY_BYTES_MAX: usize = 64;

/// Error in a file; it never shows a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PskFileError {
    /// A line without user or key.
    #[error("line {0}: write USER:KEY, the key in hexadecimal digits, as psktool does")]
    Line(usize),
    /// A name that no client can send, or in an unsupported form.
    #[error("line {0}: a user's name is text, and does not begin with #")]
    Name(usize),
    /// A key that is too short or too long.
    #[error("line {0}: a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, twice as many digits")]
    Length(usize),
    /// Two keys of one user.
    #[error("line {0}: the user is given twice")]
    Twice(usize),
    /// A file without keys: no client could connect.
    #[error("no key")]
    Empty,
}

/// Returns the keys of a file, in order.
///
/// # Errors
/// The first wrong line.
pub fn keys(text: &str) -> Result<Vec<TlsPsk>, PskFileError> {
    let mut keys: Vec<TlsPsk> = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let key = parse(number, line.trim())?;
        if keys.iter().any(|other| other.identity == key.identity) {
            return Err(PskFileError::Twice(number));
        }
        keys.push(key);
    }
    if keys.is_empty() { Err(PskFileError::Empty) } else { Ok(keys) }
}

/// Returns the key of `user` in a file.
///
/// # Errors
/// The first wrong line, of any user.
pub fn key_of(text: &str, user: &str) -> Result<Option<TlsPsk>, PskFileError> {
    Ok(keys(text)?.into_iter().find(|key| key.identity == user))
}

fn parse(number: usize, line: &str) -> Result<TlsPsk, PskFileError> {
    let (user, digits) = line.rsplit_once(':').ok_or(PskFileError::Line(number))?;
    // GnuTLS reads a name that begins with # as hexadecimal digits.
    if user.is_empty() || user.starts_with('#') || user.contains(':') {
        return Err(PskFileError::Name(number));
    }
    let key = unhex(digits).ok_or(PskFileError::Line(number))?;
    if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
        return Err(PskFileError::Length(number));
    }
    let psk = Secret::new(&key);
    Ok(TlsPsk { identity: user.to_owned(), psk, suite: Suite::Aes128GcmSha256 })
}

fn unhex(digits: &str) -> Option<Zeroizing<Vec<u8>>> {
    if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return None;
    }
    // Allocated once as a whole, so that no copy is left behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
    for pair in digits.as_bytes().chunks_exact(2) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        bytes.push((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "000102030405060708090A0b0c0d0e0f";

    #[test]
    fn users_have_their_keys() {
        let text = format!("alice:{KEY}\n\n  bob:{}  \n", KEY.repeat(2));
        let names: Vec<_> = keys(&text).unwrap().into_iter().map(|key| key.identity).collect();
        assert_eq!(names, ["alice", "bob"]);
        let key = key_of(&text, "alice").unwrap().unwrap();
        assert!(key.psk.is(&(0..16).collect::<Vec<u8>>()));
        assert!(key_of(&text, "carol").unwrap().is_none());
    }

    #[test]
    fn wrong_lines_are_named_and_no_key_is_shown() {
        use PskFileError::*;
        for (text, error) in [
            (String::new(), Empty),
            (format!("a:{KEY}\nb"), Line(2)),
            (format!("a:{}", &KEY[1..]), Line(1)),
            (format!("a:{}g", &KEY[1..]), Line(1)),
            (format!("a:{}", "\u{e9}".repeat(16)), Line(1)),
            (format!("a:{}", &KEY[2..]), Length(1)),
            (format!("a:{}", KEY.repeat(5)), Length(1)),
            (format!(":{KEY}"), Name(1)),
            (format!("#6162:{KEY}"), Name(1)),
            (format!("a:b:{KEY}"), Name(1)),
            (format!("a:{KEY}\na:{KEY}"), Twice(2)),
        ] {
            let found = keys(&text).unwrap_err();
            assert_eq!(found, error, "{text}");
            assert!(!found.to_string().contains("0102"), "{found}");
        }
    }
}
