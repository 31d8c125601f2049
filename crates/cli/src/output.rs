//! Results on stdout: JSON or aligned columns. They contain text of peers, so unprintable characters are escaped.

use crate::failure::CommandResult;
use roadtrain_wire::text::{Printable, is_printable};
use serde::Serialize;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Prints a line (or lines) at once. A closed pipe, as in `roadtrain list | head -n 1`, is no failure.
///
/// # Errors
/// The output cannot be written, as on a full disk.
pub(crate) fn line(text: &str) -> CommandResult {
    line_is_read(text).map(drop)
}

/// Prints as `line` does; returns false if the reader has closed the pipe.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn line_is_read(text: &str) -> CommandResult<bool> {
    match write(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => Ok(written.map(|()| true)?),
    }
}

/// Returns the reason why a file cannot be made.
pub(crate) fn file_problem(path: &Path, error: &io::Error) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if error.kind() == ErrorKind::NotFound && !folder.exists() => {
            format!("the directory {} does not exist: make it first", folder.display())
        }
        _ => error.to_string(),
    }
}

/// Prints the line that reports a service as ready.
///
/// # Errors
/// The output cannot be written, or the reader has closed the pipe: its caller has ended.
pub(crate) fn ready(text: &str) -> CommandResult {
    Ok(write(text)?)
}

/// Writes the text in one piece, so that a reader that closes the pipe after its line has received it.
fn write(text: &str) -> io::Result<()> {
    write_raw(&lines(text.trim_end()))
}

fn write_raw(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(format!("{text}\n").as_bytes())?;
    stdout.flush()
}

/// Escapes unprintable characters except line ends and tabs, so that text of peers cannot control a terminal.
#[must_use]
pub(crate) fn lines(text: &str) -> String {
    let lay_out = |c: char| matches!(c, '\n' | '\t');
    let is_fit = |c: char| lay_out(c) || is_printable(c);
    if text.chars().all(is_fit) {
        return text.to_owned();
    }
    let pieces = text.split_inclusive(lay_out).map(|piece| match piece.strip_suffix(lay_out) {
        Some(before) => format!("{}{}", Printable(before), &piece[before.len()..]),
        None => Printable(piece).to_string(),
    });
    pieces.collect()
}

/// Prints one JSON value, indented.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn json(value: &impl Serialize) -> CommandResult {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    match write_raw(&json_text(&text)) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Escapes unprintable characters in JSON, which serde leaves as they are beyond ASCII.
fn json_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || is_printable(c) {
            out.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
        }
    }
    out
}

/// Formats columns as wide as their widest cell. Heads are in lower case; only I/O, IOPS and UTC keep their spelling.
#[must_use]
pub(crate) fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
    debug_assert!(head.iter().all(|head| is_head(head)), "{head:?}");
    let in_one_line = |row: &Vec<String>| row.iter().map(|c| Printable(c).to_string()).collect();
    let rows: &Vec<Vec<String>> = &rows.iter().map(in_one_line).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// True for a head in the style of all tables.
fn is_head(head: &str) -> bool {
    let keeps_its_spelling = |word: &str| ["I/O", "IOPS", "(UTC)"].contains(&word);
    head.split(' ').all(|word| keeps_its_spelling(word) || word == word.to_lowercase())
}

#[cfg(test)]
mod tests {
    #[test]
    fn heads_are_in_lower_case() {
        for head in ["nsid", "I/O queues", "IOPS", "time (UTC)", "hosts, images", "    nsid", ""] {
            assert!(super::is_head(head), "{head}");
        }
        for head in ["NSID", "Namespaces", "DHCHAP KEY", "served By"] {
            assert!(!super::is_head(head), "{head}");
        }
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        let problem = |path: &str| super::file_problem(path.as_ref(), &error);
        assert_eq!(problem("/no/where/x"), "the directory /no/where does not exist: make it first");
        assert_eq!(problem("/proc/x"), error.to_string());
        assert_eq!(problem("x"), error.to_string());
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["1".into(), "long name".into(), "x".into()]];
        let text = super::columns(&["nsid", "name", "end"], &rows);
        assert_eq!(text, "nsid  name       end\n1     long name  x\n");
    }

    /// Names of peers cannot clear the screen or imitate another line of the output.
    #[test]
    fn nothing_of_a_peer_moves_the_cursor() {
        let evil = "x\u{1b}[2J\ny\u{9b}A";
        let text = super::columns(&["name"], &[vec![evil.into()], vec!["z".into()]]);
        assert_eq!(text, "name\nx\\u{1b}[2J\\ny\\u{9b}A\nz\n");
        assert_eq!(super::lines("a\tb\nc\rd\u{1b}"), "a\tb\nc\\rd\\u{1b}");
        let json = super::json_text(&serde_json::to_string(&[evil, "\u{202e}\u{e0001}"]).unwrap());
        assert!(json.is_ascii() && !json.contains(char::is_control), "{json}");
        let back: Vec<String> = serde_json::from_str(&json).unwrap();
        assert_eq!(back, [evil, "\u{202e}\u{e0001}"]);
    }
}
