//! Size limits: a function fits on a screen or two, a file has one purpose. `xtask/oversize.txt` explains the
//! exceptions.

use crate::source::{self, RustSource};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 800;
const ALLOWED: &str = "xtask/oversize.txt";

/// Fails, naming every function and file that is too long and not allowed, and every needless allowance.
pub(crate) fn check(root: &Path) -> Result<()> {
    let allowed = fs::read_to_string(root.join(ALLOWED)).context(ALLOWED)?;
    let allowed: Vec<&str> = allowed
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let mut found = Vec::new();
    for folder in ["crates", "csi", "lab", "xtask"] {
        for source in source::files(root, folder)?.iter().filter(|s| !s.path.contains("/tests/")) {
            found.extend(oversize(source));
        }
    }
    let mut complaints: Vec<String> = found
        .iter()
        .filter(|(name, _)| !allowed.contains(&name.as_str()))
        .map(|(name, lines)| format!("{name}: {lines} lines"))
        .collect();
    complaints.extend(
        allowed
            .iter()
            .filter(|name| !found.iter().any(|(found, _)| found == *name))
            .map(|name| format!("{name}: not too long any more, take it out of {ALLOWED}")),
    );
    if !complaints.is_empty() {
        bail!("size:\n{}\nsplit them, or give the reason in {ALLOWED}", complaints.join("\n"));
    }
    println!("size: {} allowed above {FUNCTION_LINES_MAX} / {FILE_LINES_MAX} lines", found.len());
    Ok(())
}

/// Returns what exceeds its limit: `path` or `path:function`, and its lines.
fn oversize(source: &RustSource) -> Vec<(String, usize)> {
    let code = source.without_tests();
    let mut found: Vec<(String, usize)> = functions(code)
        .into_iter()
        .filter(|&(_, lines)| lines > FUNCTION_LINES_MAX)
        .map(|(name, lines)| (format!("{}:{name}", source.path), lines))
        .collect();
    let lines = code.lines().count();
    if lines > FILE_LINES_MAX {
        found.push((source.path.clone(), lines));
    }
    found
}

/// Returns name and lines of every function with a body.
fn functions(code: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let is_word = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let name = code[at + 3..].split(|c: char| !c.is_alphanumeric() && c != '_').next();
        let (true, Some(name @ [_, ..])) = (is_word, name.map(str::as_bytes)) else { continue };
        let name = &code[at + 3..at + 3 + name.len()];
        if let Some(length) = body_end(&code[at..]) {
            found.push((name, code[at..at + length].lines().count()));
        }
    }
    found
}

/// Returns the bytes from `fn` to its body's closing brace; `None` without a body.
fn body_end(code: &str) -> Option<usize> {
    let mut open = 0usize;
    let mut brackets = 0usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.checked_sub(1)?,
            ';' if open == 0 && brackets == 0 => return None,
            '{' => open += 1,
            '}' => {
                open = open.checked_sub(1)?;
                if open == 0 && brackets == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::functions;

    #[test]
    fn counts_the_lines_of_functions() {
        let code = "trait T { fn a(&self); }\nfn b(x: [u8; 2]) {\n  if x {\n  }\n}\nfn c() {}\n";
        assert_eq!(functions(code), [("b", 4), ("c", 1)]);
    }
}
