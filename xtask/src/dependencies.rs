//! What the product is built on: licences, origin, C code, and known faults.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Workspaces whose crates are checked: the product, its laboratory, and the fuzz targets.
const WORKSPACES: &[&str] = &["Cargo.toml", "lab/Cargo.toml", "fuzz/Cargo.toml"];

/// Licences that go together with ours, Apache-2.0.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "NCSA",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Where crates may come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Build scripts that bring C code use one of these.
const C_BUILDERS: &[&str] = &["bindgen", "cc", "cmake", "pkg-config"];

/// The crates that may, or that name a library to link; docs/internals/dependencies.md says why.
const C_CODE: &[&str] = &["aws-lc-rs", "aws-lc-sys", "s2n-tls-sys"];

/// In fuzz only: the fuzzer's own library.
const C_CODE_OF_TOOLS: &[&str] = &["libfuzzer-sys"];

const PAGE: &str = "docs/internals/dependencies.md";

/// Fails, naming every breach.
pub(crate) fn check(root: &Path) -> Result<()> {
    let page = std::fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let (mut breaches, mut names) = (BTreeSet::new(), BTreeSet::new());
    for workspace in WORKSPACES {
        let graph = Graph::read(&root.join(workspace))?;
        let is_product = *workspace == WORKSPACES[0];
        for package in graph.packages.values() {
            names.insert(package.name.clone());
            breaches.extend(package.breaches(is_product));
        }
        if is_product {
            breaches.extend(graph.unexplained(&page));
        }
    }
    if !breaches.is_empty() {
        let breaches: Vec<String> = breaches.into_iter().collect();
        bail!("dependencies:\n{}", breaches.join("\n"));
    }
    println!(
        "dependencies: {} crates, their licences, origin and C code are as allowed",
        names.len()
    );
    advisories(root)
}

/// A crate, as far as it is looked at.
struct Package {
    name: String,
    /// Of ours.
    is_own: bool,
    licence: String,
    source: String,
    /// The library that it links, or the tool that builds one.
    native: Option<String>,
    /// What it uses, but for tests.
    uses: Vec<String>,
}

struct Graph {
    packages: BTreeMap<String, Package>,
}

impl Graph {
    /// Of this platform: what is not built here is not looked at.
    fn read(manifest: &Path) -> Result<Self> {
        let target = host()?;
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let out = Command::new(cargo)
            .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &target])
            .arg("--manifest-path")
            .arg(manifest)
            .output()
            .context("cargo metadata")?;
        if !out.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
        }
        let metadata = serde_json::from_slice(&out.stdout).context("cargo metadata's output")?;
        Graph::of(&metadata)
    }

    fn of(metadata: &Value) -> Result<Self> {
        let mut packages = BTreeMap::new();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for package in metadata["packages"].as_array().context("packages")? {
            let native = package["links"].as_str().map(|links| format!("links {links}"));
            packages.insert(
                text(&package["id"]),
                Package {
                    name: text(&package["name"]),
                    is_own: package["source"].is_null(),
                    licence: text(&package["license"]),
                    source: text(&package["source"]),
                    native,
                    uses: Vec::new(),
                },
            );
        }
        let mut is_used = BTreeSet::new();
        for node in metadata["resolve"]["nodes"].as_array().context("nodes")? {
            let id = text(&node["id"]);
            let name_of = |id: &str| packages.get(id).map(|package| package.name.clone());
            let (mut uses, mut builder) = (Vec::new(), None);
            for dependency in node["deps"].as_array().into_iter().flatten() {
                let Some(name) = name_of(&text(&dependency["pkg"])) else { continue };
                let kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
                let kinds: Vec<_> = kinds.map(|kind| kind["kind"].as_str()).collect();
                if kinds.contains(&Some("build")) && C_BUILDERS.contains(&name.as_str()) {
                    builder = Some(format!("is built with {name}"));
                }
                if kinds.iter().any(|kind| *kind != Some("dev")) {
                    uses.push(name);
                }
            }
            if let Some(package) = packages.get_mut(&id) {
                (package.uses, package.native) = (uses, package.native.take().or(builder));
            }
            is_used.insert(id);
        }
        packages.retain(|id, _| is_used.contains(id));
        Ok(Graph { packages })
    }

    /// What crates of ours use and the page does not name.
    fn unexplained(&self, page: &str) -> Vec<String> {
        let own = self.packages.values().filter(|package| package.is_own);
        let used: BTreeSet<&String> = own.flat_map(|package| &package.uses).collect();
        let words: BTreeSet<&str> =
            page.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).collect();
        let is_ours = |name: &str| self.packages.values().any(|p| p.is_own && p.name == name);
        let missing =
            used.into_iter().filter(|name| !is_ours(name) && !words.contains(name.as_str()));
        missing.map(|name| format!("{name}: {PAGE} does not say what for")).collect()
    }
}

impl Package {
    fn breaches(&self, is_product: bool) -> Vec<String> {
        let Package { name, licence, .. } = self;
        let mut breaches = Vec::new();
        if !is_allowed(licence) {
            breaches.push(format!("{name}: licence \"{licence}\" is none of those allowed"));
        }
        if !self.is_own && self.source != REGISTRY {
            breaches.push(format!("{name}: comes from {}, not from crates.io", self.source));
        }
        let is_known = C_CODE.contains(&name.as_str())
            || (!is_product && C_CODE_OF_TOOLS.contains(&name.as_str()));
        if let Some(native) = self.native.as_ref().filter(|_| !is_known) {
            breaches.push(format!("{name}: {native}; C code is in {} alone", C_CODE.join(", ")));
        }
        breaches
    }
}

/// Whether a licence expression (SPDX) leaves a choice that is allowed. AND binds more than OR; a slash is an old OR.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words: Vec<String> = Vec::new();
    let mut rest = spaced.split_whitespace();
    while let Some(word) = rest.next() {
        match (word, words.last_mut()) {
            ("WITH", Some(last)) => {
                *last = format!("{last} WITH {}", rest.next().unwrap_or_default())
            }
            _ => words.push(word.to_owned()),
        }
    }
    let mut words = words.iter().map(String::as_str).peekable();
    any(&mut words) == Some(true) && words.next().is_none()
}

type Words<'a, I> = std::iter::Peekable<I>;

fn any<'a>(words: &mut Words<'a, impl Iterator<Item = &'a str>>) -> Option<bool> {
    let mut allowed = all(words)?;
    while words.next_if_eq(&"OR").is_some() {
        allowed |= all(words)?;
    }
    Some(allowed)
}

fn all<'a>(words: &mut Words<'a, impl Iterator<Item = &'a str>>) -> Option<bool> {
    let mut allowed = one(words)?;
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one(words)?;
    }
    Some(allowed)
}

fn one<'a>(words: &mut Words<'a, impl Iterator<Item = &'a str>>) -> Option<bool> {
    match words.next()? {
        "(" => {
            // Parentheses in parentheses are seldom, but there are some.
            let inner: &mut dyn Iterator<Item = &'a str> = words;
            let mut depth = 1;
            let mut own = Vec::new();
            for word in inner {
                depth += i32::from(word == "(") - i32::from(word == ")");
                if depth == 0 {
                    return Some(is_allowed(&own.join(" ")));
                }
                own.push(word);
            }
            None
        }
        name => Some(LICENCES.contains(&name)),
    }
}

fn host() -> Result<String> {
    let out = Command::new("rustc").arg("-vV").output().context("rustc")?;
    let out = String::from_utf8_lossy(&out.stdout).into_owned();
    let host = out.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

/// Known faults, by cargo-audit and its database if both are on this machine: nothing is fetched.
fn advisories(root: &Path) -> Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let database = std::env::var_os("ADVISORY_DB").map(PathBuf::from);
    let database = database.or_else(|| home.map(|home| home.join("advisory-db")));
    let database = database.filter(|folder| folder.join("crates").is_dir());
    let has_audit = Command::new("cargo-audit").arg("--version").output().is_ok();
    if !has_audit {
        println!("dependencies: advisories SKIPPED: cargo-audit is not installed");
        return Ok(());
    }
    let Some(database) = database else {
        println!(
            "dependencies: advisories SKIPPED: cargo-audit has no database; clone \
             https://github.com/rustsec/advisory-db to ~/.cargo/advisory-db, or name its place in $ADVISORY_DB"
        );
        return Ok(());
    };
    let audit = Command::new("cargo-audit")
        .args(["audit", "--no-fetch", "--stale", "--quiet", "--db"])
        .arg(database)
        .current_dir(root)
        .status()
        .context("cargo-audit")?;
    if !audit.success() {
        bail!("dependencies: a crate has a known fault, see above");
    }
    println!("dependencies: no known faults");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_choice_is_enough_and_a_part_is_not() {
        for (licence, allowed) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
            ("MIT OR Apache-2.0 OR LGPL-2.1-or-later", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("ISC AND ((Apache-2.0 OR GPL-2.0) AND ISC)", true),
            ("GPL-3.0", false),
            ("MIT AND GPL-3.0", false),
            ("GPL-3.0 OR MIT AND AGPL-3.0", false),
            ("ISC AND (GPL-2.0 OR LGPL-2.1)", false),
            ("GPL-2.0 WITH Classpath-exception-2.0", false),
            ("", false),
            ("MIT OR", false),
            ("(MIT", false),
            ("MIT MIT", false),
        ] {
            assert_eq!(is_allowed(licence), allowed, "{licence}");
        }
    }

    fn metadata(name: &str, licence: &str, source: &str, kind: &str) -> Value {
        json!({
            "packages": [
                {"id": "own", "name": "own", "license": "Apache-2.0", "source": null, "links": null},
                {"id": "x", "name": name, "license": licence, "source": source, "links": null},
                {"id": "cc", "name": "cc", "license": "MIT", "source": REGISTRY, "links": null},
                {"id": "away", "name": "away", "license": "GPL-3.0", "source": "", "links": null},
            ],
            "resolve": {"nodes": [
                {"id": "own", "deps": [{"pkg": "x", "dep_kinds": [{"kind": null}]}]},
                {"id": "x", "deps": [{"pkg": "cc", "dep_kinds": [{"kind": kind}]}]},
                {"id": "cc", "deps": []},
            ]},
        })
    }

    #[test]
    fn every_breach_is_found() {
        let found = |metadata: &Value, page: &str| {
            let graph = Graph::of(metadata).unwrap();
            let own = graph.packages.values().flat_map(|package| package.breaches(true));
            own.chain(graph.unexplained(page)).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(found(&metadata("thing", "MIT", REGISTRY, "dev"), "| thing | ..."), "");
        let one = |metadata: &Value, page, word: &str| {
            let found = found(metadata, page);
            assert!(found.contains(word) && !found.contains('\n'), "{found}");
        };
        one(&metadata("thing", "MIT", REGISTRY, "dev"), "things", "does not say what for");
        one(&metadata("thing", "GPL-3.0", REGISTRY, "dev"), "thing", "licence");
        one(&metadata("thing", "MIT", "git+https://x", "dev"), "thing", "not from crates.io");
        one(&metadata("thing", "MIT", REGISTRY, "build"), "thing", "built with cc");
        assert_eq!(found(&metadata("aws-lc-sys", "ISC", REGISTRY, "build"), "aws-lc-sys"), "");
    }
}
