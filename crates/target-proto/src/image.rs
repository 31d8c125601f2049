//! Format of text files beside a store: a first line with the kind of file, lines of words, and a last line with the
//! checksum of all others.

use crc_fast::crc32_iscsi;
use thiserror::Error;

const CHECK: &str = "crc32c ";

/// Errors of a file's format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// The file is truncated or changed.
    #[error("its checksum does not fit: it is damaged")]
    Checksum,
    /// The file is of another kind, or of a later version.
    #[error("it does not begin with {0:?}")]
    Head(&'static str),
    /// A line is invalid.
    #[error("line {0} means nothing")]
    Line(usize),
    /// The content is inconsistent.
    #[error("{0}")]
    Impossible(&'static str),
}

/// Appends the checksum to complete lines.
pub(super) fn seal(mut lines: String) -> Vec<u8> {
    lines += &format!("{CHECK}{:08x}\n", crc32_iscsi(lines.as_bytes()));
    lines.into_bytes()
}

/// Passes the words of each line between `head` and checksum to `take`, which returns `None` for an invalid line.
///
/// # Errors
/// The file has no valid checksum, or is of another kind.
pub(super) fn open(
    image: &[u8],
    head: &'static str,
    mut take: impl FnMut(&[&str]) -> Option<()>,
) -> Result<(), ImageError> {
    let text = core::str::from_utf8(image).map_err(|_| ImageError::Checksum)?;
    if !text.starts_with(head) {
        return Err(ImageError::Head(head));
    }
    let (body, check) = text.split_at(text.rfind(CHECK).ok_or(ImageError::Checksum)?);
    if check != format!("{CHECK}{:08x}\n", crc32_iscsi(body.as_bytes())) {
        return Err(ImageError::Checksum);
    }
    for (number, line) in body.lines().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let known = if number == 0 { (line == head).then_some(()) } else { take(&words) };
        known.ok_or(ImageError::Line(number + 1))?;
    }
    Ok(())
}
