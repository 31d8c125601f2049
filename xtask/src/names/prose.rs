//! Sentences of the documents, and their lengths.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Words from which on a sentence is long, and from which on it is too long for the guide.
pub(super) const LONG: usize = 25;
const TOO_LONG: usize = 30;

/// Long sentences of each of the documents: a page, or a folder with its pages.
pub(super) fn count(root: &Path, documents: &[&str]) -> Result<BTreeMap<String, usize>> {
    let long = |document: &&str| {
        let mut long = 0;
        for page in pages(root, document)? {
            long += sentences(&read(&page)?).filter(|sentence| words(sentence) > LONG).count();
        }
        Ok(((*document).to_owned(), long))
    };
    documents.iter().map(long).collect()
}

/// Names the sentences of a folder that are too long.
pub(super) fn too_long(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for page in pages(root, folder)? {
        let name = page.strip_prefix(root)?.display().to_string();
        for sentence in sentences(&read(&page)?).filter(|sentence| words(sentence) > TOO_LONG) {
            let start: String = sentence.chars().take(60).collect();
            found.push(format!("{name}: {} words: {start} ...", words(&sentence)));
        }
    }
    Ok(found)
}

fn pages(root: &Path, document: &str) -> Result<Vec<PathBuf>> {
    let path = root.join(document);
    if path.is_file() {
        return Ok(vec![path]);
    }
    let mut pages = Vec::new();
    for entry in fs::read_dir(&path).with_context(|| document.to_owned())? {
        let page = entry?.path();
        if page.extension().is_some_and(|extension| extension == "md") {
            pages.push(page);
        }
    }
    pages.sort();
    Ok(pages)
}

fn read(page: &Path) -> Result<String> {
    fs::read_to_string(page).with_context(|| page.display().to_string())
}

/// Sentences of a page's paragraphs and lists. Code, tables, headings and generated sections have none.
fn sentences(page: &str) -> impl Iterator<Item = String> {
    let (mut paragraphs, mut is_code, mut is_generated) = (vec![String::new()], false, false);
    for line in page.lines() {
        let text = line.trim_start();
        is_code ^= text.starts_with("```");
        is_generated =
            (is_generated || text.starts_with("<!-- begin")) && !text.starts_with("<!-- end");
        let has_marker = ["- ", "* ", "> "].iter().any(|marker| text.starts_with(marker))
            || text.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        let is_other = is_code
            || is_generated
            || text.is_empty()
            || ["|", "#", "<!--", "```"].iter().any(|other| text.starts_with(other))
            || (line.starts_with("    ") && paragraphs.last().is_some_and(String::is_empty));
        let is_prose = !is_other;
        if has_marker || !is_prose {
            paragraphs.push(String::new());
        }
        if is_prose {
            let paragraph = paragraphs.last_mut().expect("there is one");
            paragraph.push_str(if has_marker {
                text.split_once(' ').map_or("", |(_, rest)| rest)
            } else {
                text
            });
            paragraph.push(' ');
        }
    }
    paragraphs.into_iter().flat_map(|paragraph| split(&paragraph))
}

/// Sentences of a paragraph: code and links count as one word each.
fn split(paragraph: &str) -> Vec<String> {
    let mut plain = String::new();
    for (number, piece) in paragraph.split('`').enumerate() {
        plain.push_str(if number % 2 == 1 { "code" } else { piece });
    }
    let text = without_targets(&plain).replace("** ", " ").replace("**", "");
    let mut sentences = vec![String::new()];
    for word in text.split_whitespace() {
        let sentence = sentences.last_mut().expect("there is one");
        sentence.push_str(word);
        sentence.push(' ');
        let word = word.trim_end_matches([')', '"', '\'', '*', '_']);
        if word.ends_with(['.', '!', '?']) && !["e.g.", "i.e."].contains(&word) {
            sentences.push(String::new());
        }
    }
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

/// Links without the addresses in `[text](address)`.
fn without_targets(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    plain.replace('[', "")
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_those_of_prose() {
        let page = "# A heading. Of two.\n\nOne two\nthree. Four `x y. z` [five](a.md#b).\n\n| a. b |\n\n- Six.\n- Seven\n\n    code. code\n";
        let all: Vec<String> = sentences(page).collect();
        let trimmed: Vec<&str> = all.iter().map(|sentence| sentence.trim()).collect();
        assert_eq!(trimmed, ["One two three.", "Four code five.", "Six.", "Seven"]);
        assert_eq!(words("Four code - five."), 3);
    }
}
