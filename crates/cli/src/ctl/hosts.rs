//! Hosts and listeners of subsystems, by the target's JSON-RPC methods.

use super::objects::{Desk, listen_address};
use crate::args::{AuthenticationKeys, HostCommand, ListenerCommand, PathState};
use crate::failure::Outcome;
use serde_json::{Value, json};

/// The NVMe/TCP port.
const PORT: u16 = 4420;

impl Desk<'_> {
    pub(super) fn listener(&self, command: &ListenerCommand) -> Outcome {
        let params = |nqn: &str, address: &str| -> Outcome<Value> {
            Ok(json!({"nqn": nqn, "listen_address": listen_address(address, PORT)?}))
        };
        match command {
            ListenerCommand::Add { nqn, address, tls, ana } => {
                let mut params = params(nqn, address)?;
                if *tls {
                    params["secure_channel"] = true.into();
                }
                if let Some(state) = ana {
                    params["ana_state"] = word(*state).into();
                }
                let done = format!("listener {address} of {nqn}: added");
                self.change("nvmf_subsystem_add_listener", &params, &done)
            }
            ListenerCommand::Ana { nqn, address, state } => {
                let mut params = params(nqn, address)?;
                params["ana_state"] = word(*state).into();
                let done = format!("listener {address} of {nqn}: {}", word(*state));
                self.change("nvmf_subsystem_listener_set_ana_state", &params, &done)
            }
            ListenerCommand::Remove { nqn, address } => {
                let done = format!("listener {address} of {nqn}: removed");
                self.change("nvmf_subsystem_remove_listener", &params(nqn, address)?, &done)
            }
            ListenerCommand::List { nqn } => self.listeners(nqn.as_deref()),
        }
    }

    fn listeners(&self, nqn: Option<&str>) -> Outcome {
        let mut rows = self.members(nqn, "listen_addresses")?;
        // What makes them again says all of them; those of the configuration file are not there.
        let calls = self.call("framework_get_config", &json!({"name": "nvmf"}))?;
        let added = |row: &Value| {
            let calls = calls.as_array().into_iter().flatten();
            let added = calls.filter(|call| call["method"] == "nvmf_subsystem_add_listener");
            added.map(|call| &call["params"]).find(|params| {
                let at = &params["listen_address"];
                params["nqn"] == row["nqn"]
                    && ["traddr", "trsvcid"].iter().all(|name| at[name] == row[name])
            })
        };
        for row in &mut rows {
            let params = added(row).cloned();
            row["tls"] = params
                .as_ref()
                .map_or(Value::Null, |params| (params["secure_channel"] == true).into());
            row["ana"] = params.map(|params| params["ana_state"].clone()).unwrap_or_default();
        }
        let head = ["NQN", "ADDRESS", "PORT", "TLS", "ANA"];
        self.table(&head, &["nqn", "traddr", "trsvcid", "tls", "ana"], rows)
    }

    pub(super) fn host(&self, command: &HostCommand) -> Outcome {
        let any = |nqn: &str, allow: bool, done: &str| {
            let params = json!({"nqn": nqn, "allow_any_host": allow});
            self.change("nvmf_subsystem_allow_any_host", &params, done)
        };
        match command {
            HostCommand::Allow { nqn, host: Some(host), keys, psk, .. } => {
                let mut params = with_keys(json!({"nqn": nqn, "host": host}), keys);
                if let Some(psk) = psk {
                    params["psk"] = psk.as_str().into();
                }
                let done = format!("host {host} of {nqn}: allowed");
                self.change("nvmf_subsystem_add_host", &params, &done)
            }
            HostCommand::Allow { nqn, host: None, .. } => any(nqn, true, "any host allowed"),
            HostCommand::SetKeys { nqn, host, keys } => {
                let params = with_keys(json!({"nqn": nqn, "host": host}), keys);
                let done = format!("host {host} of {nqn}: has its keys");
                self.change("nvmf_subsystem_set_keys", &params, &done)
            }
            HostCommand::Limit { nqn, host, rates } => self.limit_host((nqn, host), rates),
            HostCommand::Deny { nqn, host: Some(host), .. } => {
                let done = format!("host {host} of {nqn}: not allowed any more");
                self.change("nvmf_subsystem_remove_host", &json!({"nqn": nqn, "host": host}), &done)
            }
            HostCommand::Deny { nqn, host: None, .. } => {
                any(nqn, false, "only named hosts allowed")
            }
            HostCommand::List { nqn } => self.hosts(nqn.as_deref()),
        }
    }

    /// Hosts that may connect by their names, then others that are limited.
    fn hosts(&self, nqn: Option<&str>) -> Outcome {
        let mut rows = Vec::new();
        for one in self.subsystems(nqn)? {
            let (nqn, limits) = (&one["nqn"], &one["host_limits"]);
            let named = one["hosts"].as_array().into_iter().flatten();
            for host in named.clone() {
                let mut row = host.clone();
                row["host"] = host["nqn"].clone();
                row["nqn"] = nqn.clone();
                row["named"] = true.into();
                row["limits"] = host["nqn"].as_str().map_or(&Value::Null, |h| &limits[h]).clone();
                rows.push(row);
            }
            let limited = limits.as_object().into_iter().flatten();
            for (host, limits) in
                limited.filter(|(host, _)| named.clone().all(|n| n["nqn"] != **host))
            {
                rows.push(json!({"nqn": nqn, "host": host, "named": false, "limits": limits}));
            }
        }
        let head = ["NQN", "HOST", "NAMED", "KEY", "TARGET'S KEY", "LIMITS"];
        let names = ["nqn", "host", "named", "dhchap_key", "dhchap_ctrlr_key", "limits"];
        self.table(&head, &names, self.with_limits(rows))
    }
}

fn with_keys(mut params: Value, keys: &AuthenticationKeys) -> Value {
    let AuthenticationKeys { dhchap_key, dhchap_ctrlr_key } = keys;
    for (name, key) in [("dhchap_key", dhchap_key), ("dhchap_ctrlr_key", dhchap_ctrlr_key)] {
        if let Some(key) = key {
            params[name] = key.as_str().into();
        }
    }
    params
}

/// In SPDK's words.
fn word(state: PathState) -> &'static str {
    match state {
        PathState::Optimized => "optimized",
        PathState::NonOptimized => "non_optimized",
        PathState::Inaccessible => "inaccessible",
    }
}
