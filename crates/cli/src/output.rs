//! Results on stdout: JSON or aligned columns.

use crate::failure::Outcome;
use serde::Serialize;
use std::io::Write;

/// Prints a line (or lines) at once.
///
/// # Errors
/// When nobody reads any more.
pub(crate) fn line(text: &str) -> Outcome {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", text.trim_end())?;
    stdout.flush()?;
    Ok(())
}

/// Prints one JSON value, indented.
///
/// # Errors
/// When nobody reads any more.
pub(crate) fn json(value: &impl Serialize) -> Outcome {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::from)?;
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
