//! Keys of hosts, by name.

use super::{Method, MethodParams, change, none, params_of, query};
use crate::model::{KeySpec, NamedKey, NamedKeyError};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) const METHODS: &[Method] = &[
    change("keyring_file_add_key", "Reads a key, and gives it a name.", add),
    change("keyring_file_remove_key", "Forgets a key that no host has.", remove),
    query("keyring_get_keys", "The names of the keys, never the keys.", get),
];

/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 255;

fn add(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct AddKeyParams {
        name: String,
        path: PathBuf,
    }
    let AddKeyParams { name, path } = params_of(&params)?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
        return Err(RpcError::params(format!("name {name:?}: use 1 to {NAME_BYTES_MAX} bytes")));
    }
    if !path.is_absolute() {
        return Err(RpcError::not_permitted(format!("{} is not absolute", path.display())));
    }
    let path = manager.allowed(&path)?;
    manager.change(RpcError::internal, |model| {
        if model.key(&name).is_some() {
            return Err(RpcError::exists(format!("key {name}")));
        }
        let shown = path.display().to_string();
        let key =
            NamedKey::open(KeySpec { name, path }).map_err(|error| refused(&shown, &error))?;
        model.keys.push(Arc::new(key));
        Ok(json!(true))
    })
}

fn refused(path: &str, error: &NamedKeyError) -> RpcError {
    let what = format!("{path}: {error}");
    match error {
        NamedKeyError::Exposed => RpcError::not_permitted(what),
        NamedKeyError::Unfit(_) => RpcError::invalid(what),
        NamedKeyError::Unreadable(error) => match error.kind() {
            ErrorKind::NotFound => RpcError::no_file(what),
            ErrorKind::PermissionDenied => RpcError::new(-13, "Permission denied", what),
            _ => RpcError::io(what),
        },
    }
}

fn remove(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RemoveKeyParams {
        name: String,
    }
    let RemoveKeyParams { name } = params_of(&params)?;
    manager.change(RpcError::internal, |model| {
        if model.key(&name).is_none() {
            return Err(RpcError::no_key(format!("no key {name}")));
        }
        // The state file would name a missing key.
        if let (_, Some((nqn, host))) = model.users_of_key(&name) {
            return Err(RpcError::busy(format!("host {host} of {nqn} has it")));
        }
        model.keys.retain(|key| key.spec.name != name);
        Ok(json!(true))
    })
}

fn get(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    none(&params)?;
    let model = manager.model();
    let shown = model.keys.iter().map(|key| {
        let KeySpec { name, path } = &key.spec;
        let (uses, _) = model.users_of_key(name);
        json!({
            "name": name, "module": "keyring_file", "removed": false, "probed": false,
            "refcnt": uses + 1, "path": path,
        })
    });
    Ok(shown.collect())
}
