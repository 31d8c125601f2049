//! Names and prose: counts what breaks the rules of `CONTRIBUTING.md`, and holds the counts against `xtask/names.txt`.

mod prose;

use crate::source::{self, RustSource};
use anyhow::{Context, Result, ensure};
use regex_lite::Regex;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::fs;
use std::path::Path;

const BUDGETS: &str = "xtask/names.txt";
const WORDS: &str = "xtask/words.txt";
const FOLDERS: &[&str] = &["crates", "csi", "fuzz", "lab", "tests", "xtask"];
const DOCUMENTS: &[&str] = &["README.md", "docs/guide", "docs/reference", "docs/internals"];
/// First words that make a comment a riddle: a comment begins with a noun or a verb.
const RIDDLES: &[&str] = &["What", "Whether", "Whose", "Of", "That", "Which"];
const ITEMS: &[&str] = &["struct ", "enum ", "union ", "trait ", "type "];

/// Most shared names, in percent of all types and of a crate's public ones.
const SHARED_MAX: usize = 20;
const SHARED_PUBLIC_MAX: usize = 15;
/// Most uses of listed words, in names and in text.
const WORDS_MAX: usize = 300;
/// Most doc comments that begin with a riddle, in percent.
const RIDDLES_MAX: usize = 2;

/// Counts of one crate, in the order of the columns.
#[derive(Clone, Default)]
struct Counts {
    types: usize,
    shared: usize,
    public: usize,
    shared_public: usize,
    words_in_names: usize,
    words_in_text: usize,
    functions: usize,
    comments: usize,
    riddles: usize,
}

const COLUMNS: &str = "shared, public-shared, name-words, text-words, functions, comments";

impl Counts {
    /// Counts that have a budget.
    fn budgeted(&self) -> [usize; 6] {
        [
            self.shared,
            self.shared_public,
            self.words_in_names,
            self.words_in_text,
            self.functions,
            self.riddles,
        ]
    }

    fn add(&mut self, other: &Counts) {
        self.types += other.types;
        self.shared += other.shared;
        self.public += other.public;
        self.shared_public += other.shared_public;
        self.words_in_names += other.words_in_names;
        self.words_in_text += other.words_in_text;
        self.functions += other.functions;
        self.comments += other.comments;
        self.riddles += other.riddles;
    }
}

/// Fails where a count is above its budget or below it, and where a limit of the whole is passed. With `write` the
/// budgets become what is counted, unless that is more.
pub(crate) fn check(root: &Path, write: bool) -> Result<()> {
    let counts = count(root)?;
    let sentences = prose::count(root, DOCUMENTS)?;
    let rows = rows(&counts, &sentences);
    print_table(&counts, &sentences);
    let budgets = fs::read_to_string(root.join(BUDGETS)).unwrap_or_default();
    let mut faults = compare(&rows, &parse(&budgets)?, write);
    faults.extend(beyond_limits(&counts));
    faults.extend(prose::too_long(root, "docs/guide")?);
    if write && faults.is_empty() {
        fs::write(root.join(BUDGETS), render(&rows)).context(BUDGETS)?;
    }
    ensure!(faults.is_empty(), "names:\n{}", faults.join("\n"));
    Ok(())
}

/// Names the uses that are counted in files whose path begins with `path`.
pub(crate) fn list(root: &Path, path: &str) -> Result<()> {
    let words = Words::read(root)?;
    let sources = sources(root)?;
    let shared = shared_names(&sources);
    for source in sources.iter().filter(|source| source.path.starts_with(path)) {
        let lines: Vec<&str> = source.text.lines().collect();
        for (number, (code, line)) in source.code.lines().zip(&lines).enumerate() {
            let mut found: Vec<String> = Vec::new();
            found.extend(type_of(code).filter(|(name, _)| shared.contains(name)).map(|(n, _)| n));
            found.extend(words_of_names(code, &words));
            found.extend(words_of_text(&text_of(code, line), &words));
            found.extend(riddle_of(&lines, number).map(String::from));
            if !found.is_empty() {
                println!("{}:{}: {}", source.path, number + 1, found.join(", "));
            }
        }
    }
    Ok(())
}

fn sources(root: &Path) -> Result<Vec<RustSource>> {
    let mut sources = Vec::new();
    for folder in FOLDERS {
        sources.extend(source::files(root, folder)?);
    }
    Ok(sources)
}

fn count(root: &Path) -> Result<BTreeMap<String, Counts>> {
    let words = Words::read(root)?;
    let sources = sources(root)?;
    let shared = shared_names(&sources);
    let mut counts: BTreeMap<String, Counts> = BTreeMap::new();
    for source in &sources {
        let counts = counts.entry(crate_of(&source.path).into()).or_default();
        let lines: Vec<&str> = source.text.lines().collect();
        for (number, (code, line)) in source.code.lines().zip(&lines).enumerate() {
            if let Some((name, is_public)) = type_of(code) {
                let is_shared = usize::from(shared.contains(&name));
                counts.types += 1;
                counts.shared += is_shared;
                counts.public += usize::from(is_public);
                counts.shared_public += is_shared * usize::from(is_public);
            }
            counts.words_in_names += words_of_names(code, &words).count();
            counts.words_in_text += words_of_text(&text_of(code, line), &words).count();
            counts.functions += usize::from(begins_with_word(code, &words));
            counts.comments += usize::from(begins_comment(&lines, number));
            counts.riddles += usize::from(riddle_of(&lines, number).is_some());
        }
    }
    Ok(counts)
}

/// Folder of a crate without `crates/`.
fn crate_of(path: &str) -> &str {
    path.strip_prefix("crates/").unwrap_or(path).split('/').next().unwrap_or(path)
}

/// The listed words.
struct Words {
    regex: Regex,
    /// Results so far: most words come often.
    known: RefCell<HashMap<String, bool>>,
}

impl Words {
    fn new(lines: &[&str]) -> Result<Self> {
        let regex = Regex::new(&format!("^(?i:{})$", lines.join("|"))).context(WORDS)?;
        Ok(Words { regex, known: RefCell::default() })
    }

    fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(WORDS)).context(WORDS)?;
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        Words::new(&lines)
    }

    /// True if `word` is listed.
    fn has(&self, word: &str) -> bool {
        if let Some(&known) = self.known.borrow().get(word) {
            return known;
        }
        let is_listed = self.regex.is_match(word);
        self.known.borrow_mut().insert(word.to_owned(), is_listed);
        is_listed
    }
}

/// Names that more than one type has.
fn shared_names(sources: &[RustSource]) -> BTreeSet<String> {
    let (mut names, mut shared) = (BTreeSet::new(), BTreeSet::new());
    for (name, _) in sources.iter().flat_map(|source| source.code.lines().filter_map(type_of)) {
        if !names.insert(name.clone()) {
            shared.insert(name);
        }
    }
    shared
}

/// Name of the type that the line declares, and `true` if it is public. Types of a trait's implementation are not
/// counted: the trait names them.
fn type_of(code: &str) -> Option<(String, bool)> {
    let line = code.trim_start();
    let (visibility, rest) = match line.strip_prefix("pub(") {
        Some(rest) => ("pub(", rest.split_once(") ")?.1),
        None => line.strip_prefix("pub ").map_or(("", line), |rest| ("pub", rest)),
    };
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let item = ITEMS.iter().find(|item| rest.starts_with(**item))?;
    let is_associated = *item == "type " && line.len() < code.len() && visibility.is_empty();
    let name: String = rest[item.len()..].chars().take_while(|c| is_word(*c)).collect();
    let is_type = name.starts_with(|c: char| c.is_ascii_uppercase()) && !is_associated;
    is_type.then_some((name, visibility == "pub"))
}

/// Comments and literals of a line.
fn text_of(code: &str, line: &str) -> String {
    let blank = |(code, char): (char, char)| if code == ' ' { char } else { ' ' };
    code.chars().zip(line.chars()).map(blank).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Listed words in the names of a line.
fn words_of_names(code: &str, words: &Words) -> impl Iterator<Item = String> {
    let names = code.split(|c: char| !is_word(c)).filter(|name| !name.is_empty());
    names.flat_map(split_name).filter(|part| words.has(part)).collect::<Vec<_>>().into_iter()
}

/// Words of `a_name` or of `AName`.
fn split_name(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && before.is_lowercase()) {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().expect("it has one").push(c);
        }
        before = c;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn words_of_text(text: &str, words: &Words) -> impl Iterator<Item = String> {
    let parts = text.split(|c: char| !c.is_alphabetic()).filter(|word| words.has(word));
    parts.map(String::from).collect::<Vec<_>>().into_iter()
}

/// True if a function is declared whose name begins with a listed word.
fn begins_with_word(code: &str, words: &Words) -> bool {
    let Some((before, rest)) = code.split_once("fn ") else { return false };
    let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
    let is_item = before.split_whitespace().all(|word| word != "=" && !word.contains('('));
    (is_item || before.contains("pub(")) && split_name(&name).first().is_some_and(|w| words.has(w))
}

/// True if a doc comment begins at the line of that number.
fn begins_comment(lines: &[&str], number: usize) -> bool {
    let is_doc = |line: &&str| {
        let line = line.trim_start();
        (line.starts_with("///") && !line.starts_with("////")) || line.starts_with("//!")
    };
    let before = number.checked_sub(1).and_then(|number| lines.get(number));
    lines.get(number).is_some_and(is_doc) && !before.is_some_and(is_doc)
}

/// First word of the doc comment that begins there, if that makes it a riddle.
fn riddle_of(lines: &[&str], number: usize) -> Option<&'static str> {
    if !begins_comment(lines, number) {
        return None;
    }
    let text = lines[number].trim_start().trim_start_matches(['/', '!']).trim_start();
    let first = text.split(|c: char| !c.is_alphanumeric()).next()?;
    RIDDLES.iter().find(|riddle| **riddle == first).copied()
}

type Rows = BTreeMap<String, Vec<usize>>;

fn rows(counts: &BTreeMap<String, Counts>, sentences: &BTreeMap<String, usize>) -> Rows {
    let crates = counts.iter().map(|(name, counts)| (name.clone(), counts.budgeted().to_vec()));
    crates.chain(sentences.iter().map(|(name, &long)| (name.clone(), vec![long]))).collect()
}

fn parse(budgets: &str) -> Result<Rows> {
    let lines = budgets.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut cells = line.split_whitespace();
            let name = cells.next().context("a name")?;
            Ok((name.into(), cells.map(str::parse).collect::<Result<_, _>>().context(BUDGETS)?))
        })
        .collect()
}

fn render(rows: &Rows) -> String {
    let mut text = format!(
        "# Counts of `cargo xtask names` that may only go down, written by `cargo xtask names --write`. Of crates:\n\
         # {COLUMNS}. Of documents: sentences of more than {} words.\n",
        prose::LONG
    );
    for (name, counts) in rows {
        let cells: Vec<String> = counts.iter().map(|count| format!("{count:5}")).collect();
        let _ = writeln!(text, "{name:16}{}", cells.concat());
    }
    text
}

/// Counts that differ from their budgets. To write, only more is a fault.
fn compare(rows: &Rows, budgets: &Rows, write: bool) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, counts) in rows {
        let Some(budget) = budgets.get(name) else {
            if !write {
                faults.push(format!("{name}: has no row in {BUDGETS} (cargo xtask names --write)"));
            }
            continue;
        };
        for ((count, most), column) in counts.iter().zip(budget).zip(COLUMNS.split(", ")) {
            if count > most {
                faults.push(format!(
                    "{name}, {column}: {count}, at most {most} (cargo xtask names --list {name})"
                ));
            } else if count < most && !write {
                faults.push(format!(
                    "{name}, {column}: {count}, fewer than {most}: cargo xtask names --write"
                ));
            }
        }
    }
    faults
}

fn beyond_limits(counts: &BTreeMap<String, Counts>) -> Vec<String> {
    let mut all = Counts::default();
    counts.values().for_each(|counts| all.add(counts));
    let mut faults = Vec::new();
    let mut limit = |what: &str, count: usize, of: usize, most: usize| {
        if count * 100 > of * most {
            faults.push(format!("{what}: {count} of {of}, more than {most} %"));
        }
    };
    limit("types that share their name", all.shared, all.types, SHARED_MAX);
    for (name, counts) in counts {
        limit(
            &format!("{name}: public types that share their name"),
            counts.shared_public,
            counts.public,
            SHARED_PUBLIC_MAX,
        );
    }
    limit("doc comments that begin with a riddle", all.riddles, all.comments, RIDDLES_MAX);
    let words = all.words_in_names + all.words_in_text;
    if words > WORDS_MAX {
        faults.push(format!("uses of listed words: {words}, more than {WORDS_MAX}"));
    }
    faults
}

fn print_table(counts: &BTreeMap<String, Counts>, sentences: &BTreeMap<String, usize>) {
    println!(
        "{:16}{:>14}{:>14}{:>12}{:>12}{:>11}{:>16}",
        "crate", "shared types", "public", "name words", "text words", "functions", "doc comments"
    );
    let mut all = Counts::default();
    for (name, counts) in counts {
        print_row(name, counts);
        all.add(counts);
    }
    print_row("all", &all);
    for (name, long) in sentences {
        println!("{name:16} sentences over {} words: {long}", prose::LONG);
    }
}

fn print_row(name: &str, counts: &Counts) {
    let of = |count: usize, of: usize| format!("{count} of {of}");
    println!(
        "{name:16}{:>14}{:>14}{:>12}{:>12}{:>11}{:>16}",
        of(counts.shared, counts.types),
        of(counts.shared_public, counts.public),
        counts.words_in_names,
        counts.words_in_text,
        counts.functions,
        of(counts.riddles, counts.comments)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(split_name("look_up"), ["look", "up"]);
        assert_eq!(split_name("NotAsked"), ["Not", "Asked"]);
        let words = Words::new(&["asks?", "asked"]).unwrap();
        assert_eq!(words_of_names("let asked = task.ask();", &words).count(), 2);
        assert_eq!(words_of_text("// Asks, basks", &words).count(), 1);
    }

    #[test]
    fn declared_types_are_found() {
        assert_eq!(type_of("pub struct Caravan<T> {"), Some(("Caravan".into(), true)));
        assert_eq!(type_of("pub(crate) enum Step {"), Some(("Step".into(), false)));
        assert_eq!(type_of("    type Item = u8;"), None);
        assert_eq!(type_of("type Rows = u8;"), Some(("Rows".into(), false)));
        assert_eq!(type_of("    structure"), None);
    }

    #[test]
    fn budgets_only_go_down() {
        let row = |count| Rows::from([("wire".to_owned(), vec![count, 0, 0, 0, 0, 0])]);
        assert!(compare(&row(5), &row(5), false).is_empty());
        assert_eq!(compare(&row(6), &row(5), true).len(), 1);
        assert_eq!(compare(&row(4), &row(5), false).len(), 1);
        assert!(compare(&row(4), &row(5), true).is_empty());
        assert_eq!(parse(&render(&row(5))).unwrap(), row(5));
    }

    #[test]
    fn riddles_are_found_where_a_comment_begins() {
        let text = "/// What it is.\n/// Of course.\nfn a() {}\n/// Returns it.\nfn b() {}\n";
        let lines: Vec<&str> = text.lines().collect();
        let riddles: Vec<_> = (0..5).filter_map(|number| riddle_of(&lines, number)).collect();
        assert_eq!(riddles, ["What"]);
        assert_eq!((0..5).filter(|&number| begins_comment(&lines, number)).count(), 2);
    }
}
