//! Rust sources as text: their paths, and their code without comments and literals.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A source file and its code.
pub(crate) struct RustSource {
    /// Path from the workspace's folder.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Text with comments and the contents of literals blanked out; lines keep their numbers.
    pub(crate) code: String,
}

impl RustSource {
    pub(crate) fn new(path: String, text: String) -> Self {
        RustSource { path, code: blank(&text), text }
    }

    /// Returns the code before the unit tests, which by custom end a file.
    pub(crate) fn without_tests(&self) -> &str {
        let end = self.code.find("#[cfg(test)]\nmod ").unwrap_or(self.code.len());
        &self.code[..end]
    }
}

/// Returns all `.rs` files under `folder` (from `root`), sorted by path.
pub(crate) fn files(root: &Path, folder: &str) -> Result<Vec<RustSource>> {
    let mut paths = Vec::new();
    collect(&root.join(folder), &mut paths)?;
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(RustSource::new(path.strip_prefix(root)?.display().to_string(), text))
    };
    paths.into_iter().map(read).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            paths.push(path);
        }
    }
    Ok(())
}

/// Blanks out comments, strings and characters.
fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = literal_bytes(rest, out.chars().next_back()).unwrap_or(0);
        if length == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        }
    }
    out
}

/// Returns the bytes of the comment or literal that `rest` begins with.
fn literal_bytes(rest: &str, before: Option<char>) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(rest.find("*/").map_or(rest.len(), |end| end + 2));
    }
    if rest.starts_with('"') {
        return Some(quoted_bytes(rest, '"'));
    }
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with('r') && !in_word {
        let hashes = rest[1..].bytes().take_while(|&b| b == b'#').count();
        if rest[1 + hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = &rest[2 + hashes..];
            return Some(2 + hashes + body.find(&end).map_or(body.len(), |at| at + end.len()));
        }
    }
    // A character, not a lifetime.
    let mut chars = rest.strip_prefix('\'')?.chars();
    match (chars.next()?, chars.next()?) {
        ('\\', _) => Some(quoted_bytes(rest, '\'')),
        (c, '\'') => Some(2 + c.len_utf8()),
        _ => None,
    }
}

fn quoted_bytes(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::blank;

    #[test]
    fn blanks_comments_and_literals_only() {
        assert_eq!(blank("a // b\nc"), "a     \nc");
        assert_eq!(blank("a /* { */ b"), "a         b");
        assert_eq!(blank(r#"f("x\"{", y)"#), "f(      , y)");
        assert_eq!(blank("x: &'a str"), "x: &'a str");
        assert_eq!(blank(r"'{' '\n' '}'"), " ".repeat(12));
        assert_eq!(blank("r#\"{\"# {"), "       {");
        assert_eq!(blank("for_\"{\""), "for_   ");
    }
}
