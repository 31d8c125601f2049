//! Results on stdout: JSON or aligned columns.

use crate::failure::Outcome;
use serde::Serialize;
use std::io::{self, ErrorKind, Write};

/// Prints a line (or lines) at once. Who stops reading (`roadtrain list | head -n 1`) has read enough: that is
/// no failure.
///
/// # Errors
/// When the output cannot be written, as on a full disk.
pub(crate) fn line(text: &str) -> Outcome {
    line_is_read(text).map(drop)
}

/// Prints as `line` does; says whether somebody still reads, for those that go on printing.
///
/// # Errors
/// When the output cannot be written.
pub(crate) fn line_is_read(text: &str) -> Outcome<bool> {
    match write(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => Ok(written.map(|()| true)?),
    }
}

/// Prints the line of a service that can be used now.
///
/// # Errors
/// When the output cannot be written, or nobody reads it: then whoever wanted the service has gone.
pub(crate) fn ready(text: &str) -> Outcome {
    Ok(write(text)?)
}

/// In one piece: a reader that leaves after what it looked for has had all of it.
fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(format!("{}\n", text.trim_end()).as_bytes())?;
    stdout.flush()
}

/// Prints one JSON value, indented.
///
/// # Errors
/// When the output cannot be written.
pub(crate) fn json(value: &impl Serialize) -> Outcome {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    line(&text)
}

/// Columns as wide as their widest cell.
#[must_use]
pub(crate) fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
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

#[cfg(test)]
mod tests {
    #[test]
    fn columns_line_up() {
        let rows = [vec!["1".into(), "long name".into(), "x".into()]];
        let text = super::columns(&["nsid", "name", "end"], &rows);
        assert_eq!(text, "nsid  name       end\n1     long name  x\n");
    }
}
