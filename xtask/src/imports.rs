//! Imports between the modules of a crate, read from its sources.

use crate::source::RustSource;
use std::collections::{HashMap, HashSet};

/// A module's path from the crate's root.
pub(crate) type ModuleName = Vec<String>;

/// A module's code, without its tests.
pub(crate) struct Module<'a> {
    pub(crate) file: &'a str,
    pub(crate) name: ModuleName,
    /// Modules that define the imported items.
    pub(crate) uses: Vec<ModuleName>,
}

/// Returns the modules of the crate whose sources lie in `folder`, without test modules.
pub(crate) fn modules<'a>(folder: &str, sources: &'a [RustSource]) -> Vec<Module<'a>> {
    let mut names = HashSet::new();
    let mut tests = Vec::new();
    for source in sources {
        let name = module_name(folder, &source.path);
        tests.extend(test_modules(&source.code).map(|test| [&name[..], &[test.into()]].concat()));
        names.insert(name);
    }
    let mut exports = HashMap::new();
    let mut modules = Vec::new();
    for source in sources {
        let name = module_name(folder, &source.path);
        if !tests.iter().any(|test| name.starts_with(test)) {
            let mut paths = ModulePaths { module: &name, names: &names, uses: Vec::new() };
            paths.read(&tokens(code(source)), &mut exports);
            modules.push(Module { file: &source.path, uses: paths.uses, name });
        }
    }
    for module in &mut modules {
        module.uses.iter_mut().for_each(|used| *used = definer(used, &names, &exports, 0));
    }
    modules
}

/// `a/mod.rs` and `a.rs` are `a`; `no_a.rs` takes the place of `a` where a feature is off.
fn module_name(folder: &str, path: &str) -> ModuleName {
    let inside = path.strip_prefix(folder).unwrap_or(path).trim_start_matches('/');
    let parts = inside.trim_end_matches(".rs").split('/');
    let is_own = |part: &&str| !["mod", "lib"].contains(part);
    parts.filter(is_own).map(|part| part.trim_start_matches("no_").to_owned()).collect()
}

fn code(source: &RustSource) -> &str {
    let inline = |at: &(usize, &str)| {
        let name = source.code[at.0 + at.1.len()..].trim_start_matches(|c| c != '{' && c != ';');
        name.starts_with('{')
    };
    let end = source.code.match_indices(TEST_MODULE).find(inline).map(|(at, _)| at);
    &source.code[..end.unwrap_or(source.code.len())]
}

const TEST_MODULE: &str = "#[cfg(test)]\nmod ";

/// Returns the test modules in other files.
fn test_modules(code: &str) -> impl Iterator<Item = &str> {
    let from = |(at, _)| &code[at + TEST_MODULE.len()..];
    code.match_indices(TEST_MODULE).map(from).filter_map(|rest| {
        let end = rest.find([';', '{'])?;
        rest[end..].starts_with(';').then(|| rest[..end].trim())
    })
}

/// Returns the module that defines an item, following re-exports.
fn definer(
    path: &[String],
    names: &HashSet<ModuleName>,
    exports: &HashMap<ModuleName, ModuleName>,
    depth: u32,
) -> ModuleName {
    let length = (0..=path.len()).rev().find(|&length| names.contains(&path[..length]));
    let length = length.unwrap_or(0);
    if length < path.len()
        && depth < 8
        && let Some(target) = exports.get(&path[..=length])
    {
        return definer(&[target, &path[length + 1..]].concat(), names, exports, depth + 1);
    }
    path[..length].to_vec()
}

/// Returns words, and the signs that matter to paths.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        if !first.is_whitespace() {
            tokens.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    tokens
}

/// The paths of a module that lead to modules of its crate.
struct ModulePaths<'a> {
    module: &'a ModuleName,
    names: &'a HashSet<ModuleName>,
    uses: Vec<ModuleName>,
}

impl ModulePaths<'_> {
    /// Reads the module's imports; re-exports go to `exports`, by their path in this module.
    fn read(&mut self, tokens: &[&str], exports: &mut HashMap<ModuleName, ModuleName>) {
        let mut at = 0;
        while at < tokens.len() {
            let before = at.checked_sub(1).map_or("", |before| tokens[before]);
            let is_test = tokens[..at].ends_with(&["#", "[", "cfg", "(", "test", ")", "]"]);
            let begins = match tokens[at] {
                "use" => true,
                "crate" | "super" => {
                    before != "::" && !tokens[..at].ends_with(&["pub", "("]) && before != "in"
                }
                _ => false,
            };
            if !begins {
                at += 1;
                continue;
            }
            let is_use = tokens[at] == "use";
            at += usize::from(is_use);
            let mut found = Vec::new();
            tree(tokens, &mut at, &[], &mut found);
            if is_test {
                continue;
            }
            for (path, name) in found {
                let Some(path) = self.absolute(&path, is_use) else { continue };
                if is_use && (before == "pub" || before == ")") {
                    exports.insert([&self.module[..], &[name]].concat(), path.clone());
                }
                self.uses.push(path);
            }
        }
    }

    /// Returns the path from the crate's root; `None` if it leads out of the crate.
    fn absolute(&self, path: &[String], is_use: bool) -> Option<ModuleName> {
        let mut base = self.module.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (base, rest) = (ModuleName::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while let Some(after) = rest.strip_prefix(&["super".to_owned()]) {
                    base.pop();
                    rest = after;
                }
            }
            first if is_use => {
                self.names.contains(&[&base[..], &[first.to_owned()]].concat()).then_some(())?;
            }
            _ => return None,
        }
        base.extend_from_slice(rest);
        Some(base)
    }
}

/// Reads a path, which may branch, and collects its ends, each with the name that it gets.
fn tree(tokens: &[&str], at: &mut usize, prefix: &[String], found: &mut Vec<(ModuleName, String)>) {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(*at) {
            Some(&"{") => {
                *at += 1;
                while let Some(&token) = tokens.get(*at).filter(|token| **token != "}") {
                    if token == "," { *at += 1 } else { tree(tokens, at, &path, found) }
                }
                *at += 1;
                return;
            }
            Some(word) if word.starts_with(|c: char| c.is_alphanumeric() || c == '_') => {
                if *word != "self" || path.is_empty() {
                    path.push((*word).to_owned());
                }
                *at += 1;
            }
            _ => *at += 1, // all items of a module
        }
        if tokens.get(*at) != Some(&"::") {
            break;
        }
        *at += 1;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if tokens.get(*at) == Some(&"as") {
        name = tokens.get(*at + 1).map_or(name, |alias| (*alias).to_owned());
        *at += 2;
    }
    found.push((path, name));
}
