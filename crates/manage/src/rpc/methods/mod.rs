//! The table of methods. docs/reference/rpc.md has the same ones; a test says so.

mod bdev;
mod config;
mod devices;
mod host;
mod iostat;
mod keyring;
mod look;
mod lvol;
mod lvstore;
mod nvmf;
mod place;
mod process;
mod qos;
mod rbd;
mod referral;
mod stats;
mod subsystem;
mod transport;

pub(super) use devices::resize;

use super::error::{Rpc, RpcError};
use super::manager::Session;
use super::message::Params;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A method.
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// What it does, for people.
    pub about: &'static str,
    /// Whether something is another one afterwards.
    pub changes: bool,
    /// Does it.
    pub run: fn(&Session<'_>, Params<'_>) -> Rpc<Value>,
}

/// Every table.
const TABLES: &[&[Method]] = &[
    look::METHODS,
    process::METHODS,
    config::METHODS,
    keyring::METHODS,
    bdev::METHODS,
    rbd::METHODS,
    qos::METHODS,
    lvstore::METHODS,
    lvol::METHODS,
    iostat::METHODS,
    stats::METHODS,
    transport::METHODS,
    nvmf::METHODS,
    referral::METHODS,
    subsystem::METHODS,
    host::METHODS,
];

/// All methods.
pub fn all() -> impl Iterator<Item = &'static Method> {
    TABLES.iter().copied().flatten()
}

/// The method with that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Method> {
    all().find(|method| method.name == name)
}

/// One that changes nothing.
const fn look(
    name: &'static str,
    about: &'static str,
    run: fn(&Session<'_>, Params<'_>) -> Rpc<Value>,
) -> Method {
    Method { name, about, changes: false, run }
}

/// One that changes something.
const fn change(
    name: &'static str,
    about: &'static str,
    run: fn(&Session<'_>, Params<'_>) -> Rpc<Value>,
) -> Method {
    Method { name, about, changes: true, run }
}

/// Parameters of a method about devices.
fn device_params<T: DeserializeOwned>(params: &Params<'_>) -> Rpc<T> {
    params.read().map_err(RpcError::decode)
}

/// Parameters of any other.
fn params_of<T: DeserializeOwned>(params: &Params<'_>) -> Rpc<T> {
    params.read().map_err(RpcError::params)
}

/// There must not be any.
fn none(params: &Params<'_>) -> Rpc<()> {
    match params.is_empty() {
        true => Ok(()),
        false => Err(RpcError::params("it has no parameters")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const PAGE: &str = include_str!("../../../../../docs/reference/rpc.md");

    #[test]
    fn the_page_has_every_method() {
        let (table, _) = PAGE.split_once("\n## ").unwrap();
        // Every table has this one.
        let is_own = |row: &&str| row.starts_with("| `") && !row.starts_with("| `rpc_get_methods`");
        let rows = table.lines().filter(is_own);
        let named: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
        let names: BTreeSet<&str> = all().map(|method| method.name).collect();
        assert_eq!(named.iter().copied().collect::<BTreeSet<_>>(), names, "docs/reference/rpc.md");
        assert_eq!(named.len(), names.len(), "one row each");
        for method in all() {
            let row =
                table.lines().find(|line| line.starts_with(&format!("| `{}` |", method.name)));
            assert!(row.unwrap().ends_with(&format!("| {} |", method.about)), "{}", method.name);
        }
    }
}
