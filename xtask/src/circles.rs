//! Circles: files of a crate that import each other, directly or through others. To understand one of them, a reader
//! has to read all. Imports between a module and its submodules are ignored.

use crate::imports::{self, Module};
use crate::source;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Fails if files of a crate are in a circle, and prints each circle with the imports of its files.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut files = 0;
    for name in crates(root)? {
        for circle in of_crate(root, &name)? {
            files += circle.len();
            println!("{name}: {} files", circle.len());
            circle.iter().for_each(|(file, used)| println!("  {file} imports {}", used.join(" ")));
        }
    }
    if files > 0 {
        bail!("circles: {files} files import each other");
    }
    println!("circles: no files of a crate import each other in one");
    Ok(())
}

fn crates(root: &Path) -> Result<BTreeSet<String>> {
    let folders = fs::read_dir(root.join("crates"))?;
    folders.map(|folder| Ok(folder?.file_name().to_string_lossy().into_owned())).collect()
}

/// Files of a circle, each with its imports inside the circle.
type Circle = Vec<(String, Vec<String>)>;

/// Returns the circles of a crate; paths are relative to its sources' folder.
fn of_crate(root: &Path, name: &str) -> Result<Vec<Circle>> {
    let folder = format!("crates/{name}/src");
    let sources = source::files(root, &folder)?;
    Ok(circles(&folder, &imports::modules(&folder, &sources)))
}

/// Returns the sets of files that can all be reached from each other.
fn circles(folder: &str, modules: &[Module<'_>]) -> Vec<Circle> {
    let uses: Vec<Vec<usize>> = modules.iter().map(|module| used(modules, module)).collect();
    let reached: Vec<BTreeSet<usize>> = (0..modules.len()).map(|from| reach(&uses, from)).collect();
    let mut left: BTreeSet<usize> =
        (0..modules.len()).filter(|&number| reached[number].contains(&number)).collect();
    let file = |number: usize| {
        let file = modules[number].file;
        file.strip_prefix(folder).unwrap_or(file).trim_start_matches('/').to_owned()
    };
    let mut circles = Vec::new();
    while let Some(first) = left.first().copied() {
        let is_in =
            |other: usize| reached[first].contains(&other) && reached[other].contains(&first);
        let numbers: Vec<usize> = left.iter().copied().filter(|&other| is_in(other)).collect();
        left.retain(|number| !numbers.contains(number));
        let imports =
            |from: usize| uses[from].iter().copied().filter(|&to| is_in(to)).map(file).collect();
        circles.push(numbers.iter().map(|&from| (file(from), imports(from))).collect());
    }
    circles
}

/// Returns the modules that one imports, apart from its submodules and parents.
fn used(modules: &[Module<'_>], module: &Module<'_>) -> Vec<usize> {
    let is_used = |other: &Module<'_>| {
        let is_family =
            other.name.starts_with(&module.name) || module.name.starts_with(&other.name);
        !is_family && module.uses.contains(&other.name)
    };
    (0..modules.len()).filter(|&other| is_used(&modules[other])).collect()
}

/// Returns all modules that one module reaches by one import or more.
fn reach(uses: &[Vec<usize>], from: usize) -> BTreeSet<usize> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(number) = open.pop() {
        open.extend(uses[number].iter().filter(|&&next| reached.insert(next)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::RustSource;

    fn found(modules: &[(&str, &str)]) -> Vec<Vec<String>> {
        let source = |&(name, code): &(&str, &str)| {
            RustSource::new(format!("src/{name}.rs"), code.to_owned())
        };
        let sources: Vec<_> = modules.iter().map(source).collect();
        let circles = circles("src", &imports::modules("src", &sources));
        circles
            .into_iter()
            .map(|circle| circle.into_iter().map(|(file, _)| file).collect())
            .collect()
    }

    #[test]
    fn files_that_import_each_other_are_found() {
        let circles = found(&[
            ("a", "use crate::b::B;"),
            ("b", "fn f() { crate::c::g() }"),
            ("c", "use super::a::A;"),
            ("d", "use crate::a::A; use crate::e::E;"),
            ("e", ""),
        ]);
        assert_eq!(circles, [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn a_module_and_those_inside_it_are_no_circle() {
        let circles = found(&[
            ("a/mod", "mod b; pub use b::B;"),
            ("a/b", "use super::A; use crate::a::c::C;"),
            ("a/c", ""),
        ]);
        assert!(circles.is_empty());
        let circles = found(&[
            ("a/mod", "mod b; mod c; pub use b::B; pub use c::C;"),
            ("a/b", "use super::C;"),
            ("a/c", "use crate::a::B;"),
        ]);
        assert_eq!(circles, [["a/b.rs", "a/c.rs"]], "through what the module passes on");
    }
}
