//! What is kept in a file beside a store, as text: a first line that says what it is, lines of words, and a last line
//! with the checksum of all others.

use crc_fast::crc32_iscsi;
use thiserror::Error;

const CHECK: &str = "crc32c ";

/// Why a file is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// Cut off, or changed.
    #[error("its checksum does not fit: it is damaged")]
    Checksum,
    /// Of another kind, or of a version to come.
    #[error("it does not begin with {0:?}")]
    Head(&'static str),
    /// A line that means nothing.
    #[error("line {0} means nothing")]
    Line(usize),
    /// What it says cannot be.
    #[error("{0}")]
    Impossible(&'static str),
}

/// Whole lines, with their checksum behind them.
pub(super) fn seal(mut lines: String) -> Vec<u8> {
    lines += &format!("{CHECK}{:08x}\n", crc32_iscsi(lines.as_bytes()));
    lines.into_bytes()
}

/// Gives `take` the words of each line between the `head` and the checksum; `None` of it: the line means nothing.
///
/// # Errors
/// It was not sealed, or is something else.
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
