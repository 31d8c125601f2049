//! The order of modules inside a crate: who uses whom.

use crate::imports;
use crate::source::{self, Source};
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;

/// A crate's modules, from the bottom up. A module may use those of lower lines and those of its own group; a bar
/// stands between groups that know nothing of each other. A name stands for a module and what is inside it, but for
/// what has a place of its own.
const ORDERS: &[(&str, &[&str])] = &[(
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
)];

/// Every arrow that does not point down.
pub(crate) fn breaches(root: &Path) -> Result<Vec<String>> {
    let mut breaches = Vec::new();
    for (folder, order) in ORDERS {
        let sources = source::files(root, folder)?;
        breaches.extend(wrong_arrows(folder, &sources, order));
    }
    Ok(breaches)
}

fn wrong_arrows(folder: &str, sources: &[Source], order: &[&str]) -> Vec<String> {
    let mut breaches = BTreeSet::new();
    let modules = imports::modules(folder, sources);
    for module in modules.iter().filter(|module| !module.name.is_empty()) {
        let Some(place) = place(order, &module.name) else {
            breaches.insert(format!("{}: has no place (xtask/src/modules.rs)", module.file));
            continue;
        };
        for used in &module.uses {
            let is_wrong = |&(line, group): &(usize, usize)| {
                line > place.0 || line == place.0 && group != place.1
            };
            if self::place(order, used).filter(is_wrong).is_some() {
                breaches.insert(format!("{} must not use {}", module.file, used.join("/")));
            }
        }
    }
    breaches.into_iter().collect()
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
