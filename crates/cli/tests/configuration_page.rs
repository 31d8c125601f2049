//! docs/reference/configuration.md against the program: the same keys, and the ranges that it says.

use clap::CommandFactory;
use roadtrain_cli::args::Cli;
use roadtrain_cli::config::ServeConfig;
use roadtrain_cli::units::parse_size;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../docs/reference/configuration.md");
const HEAD: &str = "address = \"::1\"\n[[subsystem]]\nnqn = \"nqn.x:y\"\n";

/// A key's row: its cells behind one another.
struct Row<'a> {
    section: &'a str,
    key: &'a str,
    range: &'a str,
    last: &'a str,
}

fn rows() -> Vec<Row<'static>> {
    let mut section = "";
    let mut rows = Vec::new();
    for line in PAGE.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, key, _, _, range, last, _] = cells[..]
            && let Some(key) = key.strip_prefix('`')
        {
            rows.push(Row { section, key: key.trim_end_matches('`'), range, last });
        }
    }
    assert!(rows.len() > 50, "the page has tables");
    rows
}

fn on_page(section: &str) -> BTreeSet<String> {
    let of_section = rows().into_iter().filter(|row| row.section == section);
    of_section.map(|row| row.key.to_owned()).collect()
}

/// The keys that a wrong one could have been.
fn expected_keys(text: &str) -> BTreeSet<String> {
    let error = ServeConfig::parse(text).expect_err(text);
    let (_, expected) = error.split_once("expected ").expect("a list of keys");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The options of `serve` under that heading of its help, as keys.
fn option_keys(heading: &str) -> BTreeSet<String> {
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").unwrap();
    let under =
        serve.get_arguments().filter(|a| !a.is_hide_set() && a.get_help_heading() == Some(heading));
    under.filter_map(|a| a.get_long()).map(|long| long.replace('-', "_")).collect()
}

#[test]
fn the_page_has_every_key_and_no_other() {
    assert_eq!(on_page("Top level"), expected_keys("nonsense = 1\n"));
    assert_eq!(on_page("subsystem"), expected_keys(&format!("{HEAD}nonsense = 1\n")));
    let namespace = format!("{HEAD}[[subsystem.namespace]]\nnonsense = 1\n");
    assert_eq!(on_page("subsystem.namespace"), expected_keys(&namespace));
    assert_eq!(on_page("limits"), option_keys("Limits"));
    assert_eq!(on_page("batching"), option_keys("Batching"));
    assert_eq!(on_page("waiting"), option_keys("Waiting"));
    if cfg!(feature = "ether") {
        let mut ether = option_keys("Ethernet (-t ether)");
        ether.insert("interfaces".to_owned()); // -a
        assert_eq!(on_page("ether"), ether);
    }
}

/// A file with that value, and what else it needs to be good.
fn file(row: &Row<'_>, value: u64) -> String {
    let Row { section, key, last, .. } = row;
    let name = |policy: &str| policy.trim().trim_end_matches(';').to_owned();
    let policy = last.split([',', ';']).next().map(name).filter(|p| !p.is_empty());
    match *section {
        "Top level" => format!("{key} = {value}\n{HEAD}"),
        "subsystem.namespace" if *key == "nsid" => {
            format!("{HEAD}[[subsystem.namespace]]\nkind = \"mem\"\nsize = 4096\nnsid = {value}\n")
        }
        "subsystem.namespace" => format!(
            "{HEAD}[[subsystem.namespace]]\nnsid = 1\nkind = \"ssd\"\nsize = 4096\n{key} = {value}\n"
        ),
        "batching" => {
            let policy = policy.expect("a setting has a policy");
            format!("{HEAD}[batching]\npolicy = \"{policy}\"\n{key} = {value}\n")
        }
        "ether" => format!("{HEAD}[ether]\ninterfaces = \"a\"\n{key} = {value}\n"),
        section => format!("{HEAD}[{section}]\n{key} = {value}\n"),
    }
}

#[test]
fn values_within_a_range_are_taken_and_others_are_not() {
    let mut checked = 0;
    for row in rows().into_iter().filter(|row| cfg!(feature = "ether") || row.section != "ether") {
        let (range, step) = match row.range.split_once(", a multiple of ") {
            Some((range, step)) => (range, step.parse().unwrap()),
            None => (row.range.split(',').next().unwrap(), 1),
        };
        let Some((least, most)) = range.split_once(" to ") else { continue };
        let (Ok(least), Ok(most)) = (parse_size(least), parse_size(most)) else { continue };
        checked += 1;
        for value in [least, most] {
            let text = file(&row, value);
            assert!(ServeConfig::parse(&text).is_ok(), "{text}{:?}", ServeConfig::parse(&text));
        }
        for value in [least.checked_sub(step), Some(most + step)].into_iter().flatten() {
            let text = file(&row, value);
            assert!(ServeConfig::parse(&text).is_err(), "is taken:\n{text}");
        }
    }
    assert!(checked >= 30, "only {checked} ranges were found");
}
