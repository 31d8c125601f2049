//! The table of methods. A test compares it with docs/reference/rpc.md.

mod bdev;
mod config;
mod devices;
mod differences;
mod framework;
mod host;
mod iostat;
mod keyring;
mod lvol;
mod lvstore;
mod namespace_management;
mod namespace_view;
mod nvmf;
mod place;
mod process;
mod qos;
mod rbd;
mod referral;
mod ssd;
mod stats;
mod subsystem;
mod transport;

pub(super) use devices::resize;

use super::error::{Rpc, RpcError};
use super::manager::ManagerSession;
use super::message::MethodParams;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A method.
pub struct Method {
    /// Name of the method.
    pub name: &'static str,
    /// Description for users.
    pub about: &'static str,
    /// True if it changes something.
    pub changes: bool,
    /// Function that runs it.
    pub run: fn(&ManagerSession<'_>, MethodParams<'_>) -> Rpc<Value>,
}

/// Tables of all modules.
const TABLES: &[&[Method]] = &[
    framework::METHODS,
    process::METHODS,
    config::METHODS,
    keyring::METHODS,
    bdev::METHODS,
    ssd::METHODS,
    rbd::METHODS,
    qos::METHODS,
    lvstore::METHODS,
    lvol::METHODS,
    differences::METHODS,
    iostat::METHODS,
    stats::METHODS,
    transport::METHODS,
    nvmf::METHODS,
    referral::METHODS,
    subsystem::METHODS,
    namespace_view::METHODS,
    namespace_management::METHODS,
    host::METHODS,
];

/// Returns all methods.
pub fn all() -> impl Iterator<Item = &'static Method> {
    TABLES.iter().copied().flatten()
}

/// Returns the method with that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Method> {
    all().find(|method| method.name == name)
}

/// Makes a method that changes nothing.
const fn query(
    name: &'static str,
    about: &'static str,
    run: fn(&ManagerSession<'_>, MethodParams<'_>) -> Rpc<Value>,
) -> Method {
    Method { name, about, changes: false, run }
}

/// Makes a method that changes something.
const fn change(
    name: &'static str,
    about: &'static str,
    run: fn(&ManagerSession<'_>, MethodParams<'_>) -> Rpc<Value>,
) -> Method {
    Method { name, about, changes: true, run }
}

/// Reads the parameters of a method about devices.
fn device_params<T: DeserializeOwned>(params: &MethodParams<'_>) -> Rpc<T> {
    params.read().map_err(RpcError::decode)
}

/// Reads the parameters of any other method.
fn params_of<T: DeserializeOwned>(params: &MethodParams<'_>) -> Rpc<T> {
    params.read().map_err(RpcError::params)
}

/// Checks that there are no parameters.
fn none(params: &MethodParams<'_>) -> Rpc<()> {
    match params.is_empty() {
        true => Ok(()),
        false => Err(RpcError::params("it has no parameters")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const PAGE: &str = include_str!("../../../../docs/reference/rpc.md");

    #[test]
    fn the_page_has_every_method() {
        let (table, _) = PAGE.split_once("\n## ").unwrap();
        // Every process has this method.
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
