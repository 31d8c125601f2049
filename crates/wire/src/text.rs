//! Text from a peer, made safe for a terminal and for a line of a log.
//!
//! A control character can move the cursor, clear the screen, or begin a line that imitates another. A character that
//! changes the order of others, or is invisible, makes one name imitate another.

use core::fmt::{self, Display, Write};

/// True if a character is visible as itself, and changes nothing but its place.
#[must_use]
pub fn is_printable(c: char) -> bool {
    // Format characters of Unicode: without width, line separators, and controls of the writing direction.
    let is_format = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    !c.is_control() && !is_format
}

/// Text in one line, with an escape for each character that is not printable.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(pub &'a str);

impl Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match is_printable(c) {
                true => f.write_char(c)?,
                false => Display::fmt(&c.escape_default(), f)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::Printable;
    use std::string::ToString;

    #[test]
    fn characters_that_are_not_printable_are_escaped() {
        for (text, shown) in [
            ("nqn.2014-08.org:a b", "nqn.2014-08.org:a b"),
            ("M\u{fc}ller \u{65e5}\u{672c}", "M\u{fc}ller \u{65e5}\u{672c}"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[2J\u{7f}\u{9b}31m", "\\u{1b}[2J\\u{7f}\\u{9b}31m"),
            ("\u{202e}cod.exe", "\\u{202e}cod.exe"),
            ("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}"),
            ("\0", "\\u{0}"),
        ] {
            assert_eq!(Printable(text).to_string(), shown);
        }
    }
}
