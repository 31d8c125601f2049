//! Compares docs/reference/configuration.md with the program: keys, ranges and defaults.

use clap::CommandFactory;
use roadtrain_cli::args::CommandLine;
use roadtrain_cli::config::ServeConfig;
use roadtrain_cli::units::parse_size;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../docs/reference/configuration.md");
const HEAD: &str = "address = \"::1\"\n[[subsystem]]\nnqn = \"nqn.x:y\"\n";

/// A key's row: its cells in order.
#[derive(Clone, Copy)]
struct KeyRow<'a> {
    section: &'a str,
    key: &'a str,
    default: &'a str,
    range: &'a str,
    last: &'a str,
}

fn rows() -> Vec<KeyRow<'static>> {
    let mut section = "";
    let mut rows = Vec::new();
    for line in PAGE.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, key, _, default, range, last, _] = cells[..]
            && let Some(key) = key.strip_prefix('`')
        {
            rows.push(KeyRow { section, key: key.trim_end_matches('`'), default, range, last });
        }
    }
    assert!(rows.len() > 50, "the page has tables");
    rows
}

fn on_page(section: &str) -> BTreeSet<String> {
    let of_section = rows().into_iter().filter(|row| row.section == section);
    of_section.map(|row| row.key.to_owned()).collect()
}

/// Returns the valid keys that the error for a wrong one lists.
fn expected_keys(text: &str) -> BTreeSet<String> {
    let error = ServeConfig::parse(text).expect_err(text);
    let (_, expected) = error.split_once("expected ").expect("a list of keys");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the options of `serve` under that heading of its help, as keys.
fn option_keys(heading: &str) -> BTreeSet<String> {
    let cli = CommandLine::command();
    let serve = cli.find_subcommand("serve").unwrap();
    let under =
        serve.get_arguments().filter(|a| !a.is_hide_set() && a.get_help_heading() == Some(heading));
    under.filter_map(|a| a.get_long()).map(|long| long.replace('-', "_")).collect()
}

#[test]
fn the_page_has_every_key_and_no_other() {
    assert_eq!(on_page("Top level"), expected_keys("nonsense = 1\n"));
    assert_eq!(on_page("subsystem"), expected_keys(&format!("{HEAD}nonsense = 1\n")));
    let authentication = format!("{HEAD}[authentication]\nnonsense = 1\n");
    assert_eq!(on_page("authentication"), expected_keys(&authentication));
    assert_eq!(on_page("host"), expected_keys(&format!("{HEAD}[[host]]\nnonsense = 1\n")));
    let listener = format!("{HEAD}[[listener]]\nnonsense = 1\n");
    assert_eq!(on_page("listener"), expected_keys(&listener));
    let lvstore = format!("{HEAD}[[lvstore]]\nnonsense = 1\n");
    assert_eq!(on_page("lvstore"), expected_keys(&lvstore));
    let referral = format!("{HEAD}[[discovery.referral]]\nnonsense = 1\n");
    assert_eq!(on_page("discovery.referral"), expected_keys(&referral));
    let group = format!("{HEAD}[[subsystem.ana_group]]\nnonsense = 1\n");
    assert_eq!(on_page("subsystem.ana_group"), expected_keys(&group));
    let namespace = format!("{HEAD}[[subsystem.namespace]]\nnonsense = 1\n");
    assert_eq!(on_page("subsystem.namespace"), expected_keys(&namespace));
    let rates =
        "[[subsystem.namespace]]\nkind = \"mem\"\n[subsystem.namespace.rates]\nnonsense = 1\n";
    assert_eq!(on_page("subsystem.namespace.rates"), expected_keys(&format!("{HEAD}{rates}")));
    assert_eq!(on_page("limits"), option_keys("Limits"));
    assert_eq!(on_page("batching"), option_keys("Batching"));
    assert_eq!(on_page("tls"), expected_keys(&format!("{HEAD}[tls]\nnonsense = 1\n")));
    assert_eq!(on_page("waiting"), option_keys("Waiting"));
    if cfg!(feature = "ether") {
        let mut ether = option_keys("Ethernet (-t ether)");
        ether.insert("interfaces".to_owned()); // -a
        assert_eq!(on_page("ether"), ether);
    }
}

/// Returns a file with that value, and the other keys that make it valid.
fn file(row: &KeyRow<'_>, value: u64) -> String {
    file_with(row, &format!("{} = {value}\n", row.key))
}

/// Returns the file with that line, or without any.
fn file_with(row: &KeyRow<'_>, line: &str) -> String {
    let KeyRow { section, key, last, .. } = row;
    let name = |policy: &str| policy.trim().trim_end_matches(';').to_owned();
    let policy = last.split([',', ';']).next().map(name).filter(|p| !p.is_empty());
    match *section {
        "Top level" => format!("{line}{HEAD}"),
        "subsystem" => format!("{HEAD}{line}"),
        "subsystem.namespace" if *key == "nsid" => {
            format!("{HEAD}[[subsystem.namespace]]\nkind = \"mem\"\nsize = 4096\n{line}")
        }
        "subsystem.namespace" => {
            format!("{HEAD}[[subsystem.namespace]]\nnsid = 1\nkind = \"ssd\"\nsize = 4096\n{line}")
        }
        "subsystem.namespace.rates" => {
            let namespace = "[[subsystem.namespace]]\nnsid = 1\nkind = \"mem\"\nsize = 4096\n";
            format!("{HEAD}{namespace}[subsystem.namespace.rates]\n{line}")
        }
        "subsystem.ana_group" => {
            let place =
                if *key == "group" { "listener = \"::1\"\nstate = \"optimized\"\n" } else { "" };
            format!("{HEAD}[[subsystem.ana_group]]\n{place}{line}")
        }
        "batching" => {
            let policy = policy.expect("a setting has a policy");
            format!("{HEAD}[batching]\npolicy = \"{policy}\"\n{line}")
        }
        "ether" => format!("{HEAD}[ether]\ninterfaces = \"a\"\n{line}"),
        "discovery.referral" => {
            format!("{HEAD}[[discovery.referral]]\naddress = \"::2\"\n{line}")
        }
        "lvstore" => format!("rpc = \"r\"\n{HEAD}[[lvstore]]\nname = \"a\"\npath = \"b\"\n{line}"),
        "listener" => format!("{HEAD}[[listener]]\naddress = \"::2\"\n{line}"),
        section => format!("{HEAD}[{section}]\n{line}"),
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

/// Returns the value of a cell as a file has it; `None` if the cell describes one.
fn literal(cell: &str) -> Option<String> {
    let cell = cell.trim().trim_matches('`');
    let is_number = cell.parse::<u64>().is_ok() || cell.starts_with("0x");
    match parse_size(cell) {
        _ if is_number || cell.starts_with('"') || ["true", "false"].contains(&cell) => {
            Some(cell.to_owned())
        }
        Ok(_) => Some(format!("\"{cell}\"")),
        Err(_) => None,
    }
}

/// Returns the engine's configuration.
fn server(row: &KeyRow<'_>, line: &str) -> Option<String> {
    let config = ServeConfig::parse(&file_with(row, line)).ok()?;
    config.server().ok().map(|server| format!("{server:?}"))
}

/// An explicit default changes nothing, any other value does.
#[test]
fn defaults_are_what_the_page_says() {
    let mut checked = 0;
    for row in rows().into_iter().filter(|row| cfg!(feature = "ether") || row.section != "ether") {
        // The engine does not have the first ones, all others of its section depend on the next one, and the rest need
        // key files: `authentication.rs` and the tests of the configuration cover those. The manager has the stores.
        let elsewhere = [
            "log_level",
            "mdns",
            "rpc_http_anywhere",
            "policy",
            "required",
            "require_auth",
            "require_tls",
        ];
        if elsewhere.contains(&row.key) || row.section == "lvstore" {
            continue;
        }
        for default in row.default.split(';') {
            let (row, default) = match default.split_once(':') {
                Some((policy, default)) => {
                    (KeyRow { last: policy.trim().trim_matches('`'), ..row }, default)
                }
                None => (row, default),
            };
            let Some(default) = literal(default) else { continue };
            let line = |value: &str| format!("{} = {value}\n", row.key);
            let unsaid = server(&row, "").expect("a good file");
            assert_eq!(server(&row, &line(&default)).as_ref(), Some(&unsaid), "{}", row.key);
            let range = row.range.split(", a multiple of ").next().unwrap();
            let others = range.split([',']).flat_map(|part| part.split(" to ")).filter_map(literal);
            let others = others.chain(["true", "4096", "\"x\""].map(str::to_owned));
            let mut said = others.filter_map(|other| server(&row, &line(&other)));
            assert!(said.any(|said| said != unsaid), "{} changes nothing", row.key);
            checked += 1;
        }
    }
    assert!(checked >= 40, "only {checked} defaults were found");
}
