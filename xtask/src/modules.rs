//! The order of modules inside a crate: who uses whom.

use crate::source::{self, Source};
use anyhow::Result;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

/// A crate's modules, from the bottom up. A module may use those of lower lines and those of its own group; a bar
/// stands between groups that know nothing of each other. A name stands for a module and what is inside it, but for
/// what has a place of its own.
const ORDERS: &[(&str, &[&str])] = &[
    (
        "crates/proto/src",
        &[
            "time costs spin error caravan framing view manifest security recorder",
            "policy",
            "host/slots host/qpair target/state target/qpair",
            "ether",
            "host | target",
            "target/session target/execution",
        ],
    ),
    (
        "crates/engine/src",
        &[
            "digest spin stats recorded pulse stream platform transports sources ip_address",
            "tuning",
            "metrics",
            "shared_core gather connection handshakes clients | ether",
            "host/api host/counters host/numbers host/stopping host/link/error host/view \
             | target/health target/tickets target/meters target/listeners target/flushes target/powers target/error \
             target/kept_file",
            "host/name host/race host/address host/ether/address host/config host/error \
             | target/exclusion target/open_store target/namespace target/tasks target/export \
             target/reservation_file target/uncorrectable target/rates",
            "host/requests host/link host/lane host/ether \
             | target/ether/request target/ether/drops target/order",
            "target/handshakes",
            "target/stores target/control target/reserving",
            "target/ether",
            "target/lane | reactor",
            "host/reactor host/blocking | target/reactor",
            "host | target",
        ],
    ),
];

/// Every arrow that does not point down.
pub(crate) fn breaches(root: &Path) -> Result<Vec<String>> {
    let mut breaches = Vec::new();
    for (folder, order) in ORDERS {
        let sources = source::files(root, folder)?;
        breaches.extend(wrong_arrows(folder, &sources, order));
    }
    Ok(breaches)
}

type Name = Vec<String>;

/// A module's code, without that of its tests.
struct Module<'a> {
    file: &'a str,
    name: Name,
    uses: Vec<Name>,
}

fn wrong_arrows(folder: &str, sources: &[Source], order: &[&str]) -> Vec<String> {
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
            let mut paths = Paths { module: &name, names: &names, uses: Vec::new() };
            paths.read(&tokens(code(source)), &mut exports);
            modules.push(Module { file: &source.path, uses: paths.uses, name });
        }
    }
    let mut breaches = BTreeSet::new();
    for module in modules.iter().filter(|module| !module.name.is_empty()) {
        let Some(place) = place(order, &module.name) else {
            breaches.insert(format!("{}: has no place (xtask/src/modules.rs)", module.file));
            continue;
        };
        for used in &module.uses {
            let used = definer(used, &names, &exports, 0);
            let is_wrong = |&(line, group): &(usize, usize)| {
                line > place.0 || line == place.0 && group != place.1
            };
            if self::place(order, &used).filter(is_wrong).is_some() {
                breaches.insert(format!("{} must not use {}", module.file, used.join("/")));
            }
        }
    }
    breaches.into_iter().collect()
}

/// `a/mod.rs` and `a.rs` are `a`; `no_a.rs` takes the place of `a` where a feature is off.
fn module_name(folder: &str, path: &str) -> Name {
    let inside = path.strip_prefix(folder).unwrap_or(path).trim_start_matches('/');
    let parts = inside.trim_end_matches(".rs").split('/');
    let is_own = |part: &&str| !["mod", "lib"].contains(part);
    parts.filter(is_own).map(|part| part.trim_start_matches("no_").to_owned()).collect()
}

fn code(source: &Source) -> &str {
    let inline = |at: &(usize, &str)| {
        let name = source.code[at.0 + at.1.len()..].trim_start_matches(|c| c != '{' && c != ';');
        name.starts_with('{')
    };
    let end = source.code.match_indices(TEST_MODULE).find(inline).map(|(at, _)| at);
    &source.code[..end.unwrap_or(source.code.len())]
}

const TEST_MODULE: &str = "#[cfg(test)]\nmod ";

/// Modules in other files that exist for tests.
fn test_modules(code: &str) -> impl Iterator<Item = &str> {
    let from = |(at, _)| &code[at + TEST_MODULE.len()..];
    code.match_indices(TEST_MODULE).map(from).filter_map(|rest| {
        let end = rest.find([';', '{'])?;
        rest[end..].starts_with(';').then(|| rest[..end].trim())
    })
}

/// The longest name in `order` that the module's begins with: its line and its group there.
fn place(order: &[&str], module: &[String]) -> Option<(usize, usize)> {
    let mut best = None;
    for (line, groups) in order.iter().enumerate() {
        for (group, names) in groups.split('|').enumerate() {
            for name in names.split_whitespace() {
                let parts: Vec<_> = name.split('/').collect();
                let fits =
                    parts.len() <= module.len() && parts.iter().zip(module).all(|(a, b)| a == b);
                if fits && best.is_none_or(|(length, _)| parts.len() > length) {
                    best = Some((parts.len(), (line, group)));
                }
            }
        }
    }
    best.map(|(_, place)| place)
}

/// The module that has what is named: what a module only passes on is followed to where it is.
fn definer(
    path: &[String],
    names: &HashSet<Name>,
    exports: &HashMap<Name, Name>,
    depth: u32,
) -> Name {
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

/// Words, and the signs that matter to paths.
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
struct Paths<'a> {
    module: &'a Name,
    names: &'a HashSet<Name>,
    uses: Vec<Name>,
}

impl Paths<'_> {
    /// What the module passes on goes to `exports`, by the path that it has there.
    fn read(&mut self, tokens: &[&str], exports: &mut HashMap<Name, Name>) {
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

    /// The path from the crate's root; `None` when it leads out of the crate.
    fn absolute(&self, path: &[String], is_use: bool) -> Option<Name> {
        let mut base = self.module.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (base, rest) = (Name::new(), &path[1..]),
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

/// Reads a path, which may branch: its ends, each with the name that it gets.
fn tree(tokens: &[&str], at: &mut usize, prefix: &[String], found: &mut Vec<(Name, String)>) {
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
            _ => *at += 1, // all that a module has
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

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &[&str] = &["stream", "lane/tcp lane | reactor", "server"];

    /// What is wrong when each of these modules has that code.
    fn wrong(modules: &[(&str, &str)]) -> Vec<String> {
        let source = |&(name, code): &(&str, &str)| Source {
            path: format!("src/{name}.rs"),
            code: code.to_owned(),
        };
        wrong_arrows("src", &modules.iter().map(source).collect::<Vec<_>>(), ORDER)
    }

    #[test]
    fn an_arrow_that_points_up_is_found() {
        let found = wrong(&[
            ("server", "use crate::{lane::Lane, stream::*};"),
            ("lane/mod", "mod tcp; pub(crate) use tcp::Tcp; use crate::stream::Stream as S;"),
            ("lane/tcp", "use super::Lane; fn f() { g(crate::server::stop()) }"),
            ("stream", "use crate::{reactor::{self, Ring}};"),
            ("reactor", "pub(crate) fn f() {}"),
        ]);
        let expected =
            ["src/lane/tcp.rs must not use server", "src/stream.rs must not use reactor"];
        assert_eq!(found, expected);
    }

    #[test]
    fn groups_of_a_line_know_nothing_of_each_other() {
        let found = wrong(&[("lane/mod", "use super::reactor::Ring;"), ("reactor", "")]);
        assert_eq!(found, ["src/lane/mod.rs must not use reactor"]);
    }

    #[test]
    fn what_is_passed_on_is_where_it_is_defined() {
        let facade = ("server", "pub use crate::stream::Stream; pub use inner::Server; mod inner;");
        let files = [facade, ("server/inner", ""), ("stream", "")];
        let with = |code| wrong(&[&files[..], &[("lane", code)]].concat());
        assert!(with("use crate::server::Stream;").is_empty());
        assert_eq!(with("use crate::server::Server;"), ["src/lane.rs must not use server/inner"]);
    }

    #[test]
    fn tests_may_use_everything_and_every_module_has_a_place() {
        let tests = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse crate::server::S;";
        let inline = "#[cfg(test)]\nmod tests {\n use crate::server::S; }";
        let found = wrong(&[
            ("stream", tests),
            ("stream/tests", "use crate::server::S;"),
            ("reactor", inline),
            ("server", ""),
            ("other", ""),
        ]);
        assert_eq!(found, ["src/other.rs: has no place (xtask/src/modules.rs)"]);
    }
}
