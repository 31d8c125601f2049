//! Parses each command that a documentation page shows with the command line of the program.

use super::CommandLine;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use std::path::{Path, PathBuf};

/// Values for placeholders; one of them has to be accepted.
const SAMPLES: [&str; 8] = [
    "1",
    "127.0.0.1",
    "1MiB",
    "nqn.2025-01.io.example:a",
    "mem:1MiB",
    "nbd:unix:/a",
    "127.0.0.1:4420=optimized",
    "vols/a",
];

/// Text in backquotes that begins like a command and is none: verbs of another table, an alias, a message, a key.
const NO_COMMANDS: [&str; 4] = [
    "list --nsid N",
    "rpc load_config -j backup.json",
    "connection refused: ...",
    "listener tls = ...",
];

/// Words that may precede a program's name.
const BEFORE: [&str; 12] =
    ["$", "sudo", "exec", "env", "time", "nohup", "!", "if", "until", "while", "do", "then"];

/// A page's shell lines (a continued line is joined with its continuation), or its backquoted text.
type PageLines = Vec<(usize, String)>;

/// Documents for users and for contributors.
fn pages() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|p| top.join(p)).into();
    let mut folders = vec![top.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().expect("a folder of documents") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// Returns the lines of code blocks: fenced ones of a shell or without a language, and indented ones. Skips
/// here-documents of a script (`<<'END'`).
fn code_lines(text: &str) -> PageLines {
    let mut lines = PageLines::new();
    let mut fence: Option<bool> = None;
    let mut may_begin = true;
    let mut document_end: Option<&str> = None;
    let mut continues = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let language = language.split(' ').next().unwrap_or_default();
            let is_shell = ["", "sh", "bash", "console"].contains(&language);
            fence = if fence.is_some() { None } else { Some(is_shell) };
            continues = false;
            continue;
        }
        let code = match (fence, line.strip_prefix("    ")) {
            (Some(true), _) => line,
            (None, Some(code)) if may_begin => code,
            _ => {
                may_begin = line.trim().is_empty();
                continue;
            }
        };
        if document_end.is_some_and(|end| code.trim() == end) {
            document_end = None;
        } else if document_end.is_none() {
            document_end = code.split_once("<<").and_then(|(_, end)| end.split(' ').next());
            document_end = document_end.map(|end| end.trim_matches('\''));
            let (code, goes_on) = code.strip_suffix('\\').map_or((code, false), |c| (c, true));
            match lines.last_mut() {
                Some((_, before)) if continues => before.push_str(code),
                _ => lines.push((index + 1, code.to_owned())),
            }
            continues = goes_on;
        }
    }
    lines
}

/// Returns text in backquotes. It may continue on the next line, but not in another paragraph; brackets are left out.
fn inline_lines(text: &str) -> PageLines {
    let mut lines = PageLines::new();
    let mut number = 1;
    for (index, part) in text.split("\n```").enumerate() {
        for paragraph in part.split("\n\n") {
            for (index_of_span, span) in paragraph.split('`').enumerate() {
                if index % 2 == 0 && index_of_span % 2 == 1 {
                    let words = span.split_whitespace().map(|w| w.trim_matches(['[', ']']));
                    lines.push((number, words.collect::<Vec<_>>().join(" ")));
                }
                number += span.matches('\n').count();
            }
            number += 2;
        }
        number -= 1;
    }
    lines
}

/// Commands of a line of shell, without redirections and comments.
#[derive(Default)]
struct ShellSplit {
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    word: Option<String>,
    /// The next word is the file of a redirection.
    drops_word: bool,
}

impl ShellSplit {
    /// Splits a line; `None` where a quote does not end.
    fn new(line: &str) -> Option<ShellSplit> {
        let mut split = ShellSplit::default();
        let mut rest = line;
        while let Some(letter) = rest.chars().next() {
            let length = split.take(letter, rest)?;
            rest = &rest[length..];
        }
        split.end_command();
        Some(split)
    }

    /// Takes a token from the beginning of `rest`; returns its length.
    fn take(&mut self, letter: char, rest: &str) -> Option<usize> {
        let mut length = letter.len_utf8();
        let mut text = &rest[..length];
        match letter {
            '\'' | '"' => {
                text = &rest[1..=rest[1..].find(letter)?];
                length = text.len() + 2;
            }
            '\\' => {
                length = 2;
                text = rest.get(1..2)?;
            }
            '$' if rest.starts_with("$(") => {
                length = rest.find(')')? + 1;
                text = &rest[..length];
            }
            '#' if self.word.is_none() => return Some(rest.len()),
            '<' if placeholder(rest).is_some() => {
                text = placeholder(rest)?;
                length = text.len();
            }
            '<' | '>' => {
                self.word.take_if(|word| word == "2");
                self.end_word();
                self.drops_word = true;
                return Some(rest.len() - rest.trim_start_matches(['<', '>', '&', ' ']).len());
            }
            '|' | '&' | ';' | '(' | ')' => {
                self.end_command();
                return Some(length);
            }
            ' ' => {
                self.end_word();
                return Some(length);
            }
            _ => {}
        }
        self.word.get_or_insert_default().push_str(text);
        Some(length)
    }

    fn end_word(&mut self) {
        let word = self.word.take();
        if let Some(word) = word
            && !std::mem::take(&mut self.drops_word)
        {
            self.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.drops_word = false;
        self.commands.push(std::mem::take(&mut self.words));
    }
}

/// Returns `<name>` at the beginning of a text.
fn placeholder(text: &str) -> Option<&str> {
    let end = text.find('>')?;
    let name = &text[1..end];
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    is_name.then_some(&text[..=end])
}

/// True if a word in capitals or in angle brackets stands for a value.
fn is_placeholder(value: &str) -> bool {
    let is_upper = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase());
    value.contains('<') || value.split(|c: char| !c.is_alphanumeric()).any(is_upper)
}

/// Returns the arguments of a call of the program; other words may precede it.
fn arguments(words: &[String]) -> Option<Vec<String>> {
    let is_variable = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        })
    };
    let first = words.iter().position(|w| !BEFORE.contains(&w.as_str()) && !is_variable(w))?;
    let program = &words[first];
    let is_ours = program == "roadtrain" || program.ends_with("/roadtrain");
    is_ours.then(|| words[first + 1..].to_vec())
}

/// Returns the value that an error is about.
fn invalid_value(error: &clap::Error) -> String {
    [ContextKind::InvalidValue, ContextKind::InvalidSubcommand]
        .iter()
        .find_map(|kind| match error.get(*kind) {
            Some(ContextValue::String(value)) => Some(value.clone()),
            _ => None,
        })
        .unwrap_or_default()
}

/// Returns the command line's error for the arguments. A synopsis may leave out required ones and list all choices.
fn refusal(mut words: Vec<String>, is_synopsis: bool) -> Option<String> {
    let shortened = words.iter().any(|word| [".", "..", "..."].contains(&word.as_str()));
    words.retain(|word| ![".", "..", "..."].contains(&word.as_str()));
    let loose = is_synopsis || shortened;
    let mut samples = SAMPLES.iter();
    let mut given = None;
    loop {
        let all = std::iter::once("roadtrain").chain(words.iter().map(String::as_str));
        let error = CommandLine::try_parse_from(all).err()?;
        let invalid = invalid_value(&error);
        let is_value = matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return None,
            ErrorKind::MissingSubcommand
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::ArgumentConflict
                if loose =>
            {
                return None;
            }
            ErrorKind::InvalidSubcommand if is_placeholder(&invalid) => return None,
            _ if is_value && loose && (invalid.is_empty() || invalid.ends_with('=')) => {
                return None;
            }
            _ if is_value && (is_placeholder(&invalid) || given == Some(invalid.as_str())) => {
                let Some(sample) = samples.next() else {
                    return Some(error.to_string());
                };
                for word in &mut words {
                    *word = word.replace(&invalid, sample);
                }
                given = Some(*sample);
            }
            _ => return Some(error.to_string()),
        }
    }
}

/// Returns the lines of pages that the program refuses, and the number that it accepts.
fn refused(
    lines_of: fn(&str) -> PageLines,
    arguments_of: impl Fn(&[String]) -> Option<Vec<String>>,
    is_synopsis: bool,
) -> (usize, Vec<String>) {
    let (mut count, mut refused) = (0, Vec::new());
    for path in pages() {
        let text = std::fs::read_to_string(&path).expect("a page");
        for (number, line) in lines_of(&text) {
            if NO_COMMANDS.contains(&line.as_str()) {
                continue;
            }
            let place = format!("{}:{number}: {line}", path.display());
            let Some(split) = ShellSplit::new(&line) else {
                if line.contains("roadtrain ") {
                    refused.push(format!("{place}\n    cannot be split"));
                }
                continue;
            };
            for words in split.commands.iter().filter_map(|words| arguments_of(words)) {
                count += 1;
                let reason = refusal(words, is_synopsis);
                refused.extend(reason.map(|reason| format!("{place}\n    {reason}")));
            }
        }
    }
    (count, refused)
}

#[test]
fn commands_of_code_blocks_are_parsed() {
    let (count, refused) = refused(code_lines, arguments, false);
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(count > 100, "{count} commands");
}

#[test]
fn commands_in_running_text_are_parsed() {
    let commands = CommandLine::command();
    let nouns = commands.find_subcommand("ctl").expect("ctl");
    // A page may leave out `roadtrain`, and `ctl` before an object and what is done with it.
    let arguments_of = |words: &[String]| {
        let first = words.first()?;
        if commands.find_subcommand(first).is_some() {
            return Some(words.to_vec());
        }
        let is_noun = nouns.find_subcommand(first).is_some() && words.len() > 1;
        if is_noun {
            return Some([&["ctl".to_owned()], words].concat());
        }
        arguments(words)
    };
    let (count, refused) = refused(inline_lines, arguments_of, true);
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(count > 100, "{count} commands");
}
