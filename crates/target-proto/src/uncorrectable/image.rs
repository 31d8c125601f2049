//! Text format of marks, in a file beside a store.
//!
//! ```text
//! roadtrain-uncorrectable 1
//! marked 4096 8192
//! marked 1048576 512
//! crc32c 1a2b3c4d
//! ```
//!
//! A range is its first byte and its length, so the format is independent of the block size. It names no namespace:
//! marks belong to the blocks beside which the file is, whichever target exports them.

use super::extents::{ByteExtents, SPLIT_MAX};
use crate::image::{ImageError, open, seal};
use core::fmt::Write;
use roadtrain_proto::op::ByteRange;

const HEAD: &str = "roadtrain-uncorrectable 1";

/// Formats marks for a save.
pub(super) fn emit(marks: &ByteExtents) -> Vec<u8> {
    let mut text = format!("{HEAD}\n");
    for ByteRange { offset, len } in marks.iter() {
        let _ = writeln!(text, "marked {offset} {len}"); // writing to a string does not fail
    }
    seal(text)
}

/// Parses a file.
///
/// # Errors
/// The content is invalid.
pub fn parse(image: &[u8]) -> Result<ByteExtents, ImageError> {
    let mut marks = ByteExtents::default();
    open(image, HEAD, |words| {
        let ["marked", offset, len] = *words else { return None };
        let range = ByteRange { offset: offset.parse().ok()?, len: len.parse().ok()? };
        (range.len > 0).then_some(())?;
        marks.insert(&range);
        Some(())
    })?;
    match marks.count() <= SPLIT_MAX {
        true => Ok(marks),
        false => Err(ImageError::Impossible("it has too many marks")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> ByteExtents {
        let mut marks = ByteExtents::default();
        marks.insert(&ByteRange { offset: 4096, len: 8192 });
        marks.insert(&ByteRange { offset: 1 << 40, len: 512 });
        marks
    }

    #[test]
    fn marks_come_back() {
        assert_eq!(parse(&emit(&marks())), Ok(marks()));
        assert_eq!(parse(&emit(&ByteExtents::default())), Ok(ByteExtents::default()));
        let text = "roadtrain-uncorrectable 1\nmarked 4096 8192\nmarked 1099511627776 512\ncrc32c ";
        assert!(emit(&marks()).starts_with(text.as_bytes()));
    }

    #[test]
    fn damage_anywhere_is_seen() {
        let image = emit(&marks());
        for at in 0..image.len() {
            let mut damaged = image.clone();
            damaged[at] ^= 1;
            assert!(parse(&damaged).is_err(), "byte {at}");
            assert!(parse(&image[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let sealed = |body: &str| seal(format!("{HEAD}\n{body}"));
        for body in ["marked 0 0\n", "marked -1 5\n", "marked 5\n", "else 5 5\n", "\n"] {
            assert_eq!(parse(&sealed(body)), Err(ImageError::Line(2)), "{body}");
        }
        let many: String = (0..=SPLIT_MAX).map(|n| format!("marked {} 512\n", n * 1024)).collect();
        assert!(matches!(parse(&sealed(&many)), Err(ImageError::Impossible(_))));
        assert_eq!(parse(b"roadtrain-uncorrectable 2\n"), Err(ImageError::Head(HEAD)));
    }
}
