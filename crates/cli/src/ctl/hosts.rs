//! Listeners, and hosts of subsystems.

use super::limits::{self, report};
use super::target::ControlledTarget;
use crate::args::{
    AnaName, AnaPort, HostCommand, HostKeyArgs, ListenerAddress, ListenerCommand, word,
};
use crate::config::default_port;
use crate::control::ExportChange;
use crate::failure::{CommandFailure, CommandResult};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};

impl ControlledTarget {
    pub(super) fn listener(&self, command: &ListenerCommand) -> CommandResult {
        match command {
            ListenerCommand::Add { nqn: None, address, ana, .. } => {
                let (traddr, port) = address.split()?;
                self.apply(ExportChange::Listen { address: traddr, port })?;
                match ana {
                    Some(state) => self.set_ana(address, *state),
                    None => Ok(()),
                }
            }
            ListenerCommand::Add { nqn: Some(nqn), address, tls, ana } => {
                let mut params = json!({"nqn": nqn, "listen_address": address.params()?});
                if *tls {
                    params["secure_channel"] = true.into();
                }
                if let Some(state) = ana {
                    params["ana_state"] = spdk_word(*state)?.into();
                }
                let done = format!("listener {address} of {nqn}: added");
                self.change("nvmf_subsystem_add_listener", &params, &done)
            }
            ListenerCommand::Set { nqn: None, address, ana, .. } => self.set_ana(address, *ana),
            ListenerCommand::Set { nqn: Some(nqn), address, ana, ana_group } => {
                let mut params = json!({
                    "nqn": nqn, "listen_address": address.params()?, "ana_state": spdk_word(*ana)?,
                });
                let mut done = format!("listener {address} of {nqn}: {}", word(ana));
                if let Some(group) = ana_group {
                    params["anagrpid"] = (*group).into();
                    done += &format!(" for ANA group {group}");
                }
                self.change("nvmf_subsystem_listener_set_ana_state", &params, &done)
            }
            ListenerCommand::Remove { nqn: None, address } => {
                let (address, port) = address.split()?;
                self.apply(ExportChange::Unlisten { address, port })
            }
            ListenerCommand::Remove { nqn: Some(nqn), address } => {
                let params = json!({"nqn": nqn, "listen_address": address.params()?});
                let done = format!("listener {address} of {nqn}: removed");
                self.change("nvmf_subsystem_remove_listener", &params, &done)
            }
            ListenerCommand::List { subsystem } => self.list_listeners(subsystem.nqn.as_deref()),
        }
    }

    fn set_ana(&self, address: &ListenerAddress, state: AnaName) -> CommandResult {
        let listener = match address.traddr.as_str() {
            "ether" => AnaPort::Ether,
            _ => {
                let (address, port) = address.split()?;
                AnaPort::Tcp { address, port: Some(port) }
            }
        };
        self.apply(ExportChange::SetAna { listener, state })
    }

    fn list_listeners(&self, nqn: Option<&str>) -> CommandResult {
        // The calls that recreate the state have all members; the configuration file's objects are not among them.
        let calls = self.call("framework_get_config", &json!({"name": "nvmf"}))?;
        let added = |nqn: &Value, at: &Value| {
            let calls = calls.as_array().into_iter().flatten();
            let added = calls.filter(|call| call["method"] == "nvmf_subsystem_add_listener");
            added.map(|call| &call["params"]).find(|params| {
                let address = &params["listen_address"];
                params["nqn"] == *nqn
                    && ["traddr", "trsvcid"].iter().all(|name| address[name] == at[name])
            })
        };
        let mut rows = Vec::new();
        for one in self.subsystems(nqn)? {
            for at in one["listen_addresses"].as_array().into_iter().flatten() {
                let params = added(&one["nqn"], at);
                rows.push(json!({
                    "nqn": one["nqn"], "owner": one["owner"], "traddr": at["traddr"],
                    "trsvcid": at["trsvcid"],
                    "tls": params.map(|params| tls_word(params["secure_channel"] == true)),
                    "ana": params.and_then(|params| Some(params["ana_state"].as_str()?.replace('_', "-"))),
                }));
            }
        }
        self.table(&["nqn", "owner", "traddr", "trsvcid", "tls", "ana"], rows)
    }

    pub(super) fn host(&self, command: &HostCommand) -> CommandResult {
        match command.clone() {
            HostCommand::Allow { subsystem, hostnqn: Some(host), keys, tls_key, .. } => {
                if keys.dhchap_key.is_none() && tls_key.is_none() {
                    return self.apply(ExportChange::AllowHost { nqn: subsystem.nqn, host });
                }
                let nqn = self.nqn_or_only(subsystem.nqn.as_deref())?;
                let mut params = with_keys(json!({"nqn": nqn, "host": host}), &keys);
                if let Some(psk) = tls_key {
                    params["psk"] = psk.into();
                }
                let done = format!("host {host} of {nqn}: allowed");
                self.change("nvmf_subsystem_add_host", &params, &done)
            }
            HostCommand::Allow { subsystem, .. } => {
                self.apply(ExportChange::AllowAnyHost { nqn: subsystem.nqn, allow: true })
            }
            HostCommand::Keys { tls_key: Some(_), .. } => Err(CommandFailure::usage(
                "--tls-key: a target takes it with `ctl host allow`: deny the host first, and allow it anew",
            )),
            HostCommand::Keys { subsystem, host, keys, .. } => {
                let nqn = self.nqn_or_only(subsystem.nqn.as_deref())?;
                let host = host.hostnqn;
                let params = with_keys(json!({"nqn": nqn, "host": host}), &keys);
                let done = format!("host {host} of {nqn}: keys set");
                self.change("nvmf_subsystem_set_keys", &params, &done)
            }
            HostCommand::Limit { subsystem, host, rates } => {
                limits::check(&rates)?;
                self.apply(ExportChange::LimitHost {
                    nqn: subsystem.nqn,
                    host: host.hostnqn,
                    rates,
                })
            }
            HostCommand::Deny { subsystem, hostnqn: Some(host), .. } => {
                self.apply(ExportChange::DisallowHost { nqn: subsystem.nqn, host })
            }
            HostCommand::Deny { subsystem, .. } => {
                self.apply(ExportChange::AllowAnyHost { nqn: subsystem.nqn, allow: false })
            }
            HostCommand::List { subsystem } => self.list_hosts(subsystem.nqn.as_deref()),
        }
    }

    /// Lists hosts that are allowed by name, then others that are limited.
    fn list_hosts(&self, nqn: Option<&str>) -> CommandResult {
        let mut rows = Vec::new();
        for one in self.subsystems(nqn)? {
            let limits = one["host_limits"].as_object();
            let limits_of = |host: &str| limits.and_then(|all| all.get(host)).cloned();
            let named = one["hosts"].as_array().into_iter().flatten();
            let row = |host: &Value, is_named: bool| {
                json!({
                    "nqn": one["nqn"], "owner": one["owner"], "host_nqn": host["nqn"],
                    "named": is_named, "dhchap_key": host["dhchap_key"],
                    "dhchap_ctrl_key": host["dhchap_ctrlr_key"],
                    "limits": host["nqn"].as_str().and_then(limits_of).as_ref().map(report),
                })
            };
            rows.extend(named.clone().map(|host| row(host, true)));
            let others = limits.into_iter().flatten().map(|(host, _)| json!({"nqn": host}));
            let others = others.filter(|host| named.clone().all(|one| one["nqn"] != host["nqn"]));
            rows.extend(others.map(|host| row(&host, false)));
        }
        let names =
            ["nqn", "owner", "host_nqn", "named", "dhchap_key", "dhchap_ctrl_key", "limits"];
        self.table(&names, self.with_limits(rows))
    }
}

impl ListenerAddress {
    /// Returns address or name, and port.
    fn split(&self) -> CommandResult<(String, u16)> {
        split(&self.traddr, self.trsvcid, default_port())
    }

    fn params(&self) -> CommandResult<Value> {
        listen_address(&self.traddr, self.trsvcid, default_port())
    }
}

impl std::fmt::Display for ListenerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.split() {
            Ok((address, port)) if address.contains(':') => write!(f, "[{address}]:{port}"),
            Ok((address, port)) => write!(f, "{address}:{port}"),
            Err(_) => f.write_str(&self.traddr),
        }
    }
}

/// Splits a listener into address or name, and port, which may be in `text` or in `port`.
fn split(text: &str, port: Option<u16>, default: u16) -> CommandResult<(String, u16)> {
    if text.starts_with("ether:") {
        let hint = "interfaces need a restart: give an address or a name";
        return Err(CommandFailure::usage(format!("{text}: {hint}")));
    }
    let (address, own) = match text.parse::<IpAddr>() {
        Ok(ip) => (ip.to_string(), None),
        Err(_) => match text.parse::<SocketAddr>() {
            Ok(at) => (at.ip().to_string(), Some(at.port())),
            Err(_) => match text.rsplit_once(':') {
                Some((name, port)) if !name.contains(':') => {
                    let unfit = |_| CommandFailure::usage(format!("{text}: write ADDRESS:PORT"));
                    (name.to_owned(), Some(port.parse().map_err(unfit)?))
                }
                _ => (text.to_owned(), None),
            },
        },
    };
    match (own, port) {
        (Some(own), Some(port)) if own != port => {
            Err(CommandFailure::usage(format!("{text} and -s {port}: give one port")))
        }
        (own, port) => Ok((address, port.or(own).unwrap_or(default))),
    }
}

/// Returns an address as a method's parameter.
pub(super) fn listen_address(text: &str, port: Option<u16>, default: u16) -> CommandResult<Value> {
    let (address, port) = split(text, port, default)?;
    let ip = address.parse::<IpAddr>();
    let ip =
        ip.map_err(|_| CommandFailure::usage(format!("{text} is no ADDRESS or ADDRESS:PORT")))?;
    let family = if ip.is_ipv6() { "ipv6" } else { "ipv4" };
    Ok(json!({
        "trtype": "TCP", "adrfam": family, "traddr": address, "trsvcid": port.to_string(),
    }))
}

fn with_keys(mut params: Value, keys: &HostKeyArgs) -> Value {
    let HostKeyArgs { dhchap_key, dhchap_ctrl_key } = keys;
    for (name, key) in [("dhchap_key", dhchap_key), ("dhchap_ctrlr_key", dhchap_ctrl_key)] {
        if let Some(key) = key {
            params[name] = key.as_str().into();
        }
    }
    params
}

/// Returns the value that `--tls` takes.
fn tls_word(is_required: bool) -> &'static str {
    if is_required { "required" } else { "off" }
}

/// Returns SPDK's word for a state.
fn spdk_word(state: AnaName) -> CommandResult<&'static str> {
    match state {
        AnaName::Optimized => Ok("optimized"),
        AnaName::NonOptimized => Ok("non_optimized"),
        AnaName::Inaccessible => Ok("inaccessible"),
        AnaName::PersistentLoss | AnaName::Change => Err(CommandFailure::usage(format!(
            "--ana {}: for one subsystem it is optimized, non-optimized or inaccessible",
            word(&state)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_a_port() {
        for (text, port, traddr, trsvcid) in [
            ("192.0.2.1", None, "192.0.2.1", 4420),
            ("192.0.2.1:8009", None, "192.0.2.1", 8009),
            ("192.0.2.1", Some(1), "192.0.2.1", 1),
            ("192.0.2.1:7", Some(7), "192.0.2.1", 7),
            ("2001:db8::1", None, "2001:db8::1", 4420),
            ("[2001:db8::1]:8009", None, "2001:db8::1", 8009),
            ("storage:8009", None, "storage", 8009),
            ("storage", None, "storage", 4420),
        ] {
            assert_eq!(split(text, port, 4420).unwrap(), (traddr.to_owned(), trsvcid), "{text}");
        }
        assert!(split("192.0.2.1:7", Some(8), 4420).is_err());
        assert!(split("storage:x", None, 4420).is_err());
        assert!(listen_address("host", None, 4420).is_err());
        let address = listen_address("[2001:db8::1]:8009", None, 4420).unwrap();
        assert_eq!((&address["adrfam"], &address["trsvcid"]), (&json!("ipv6"), &json!("8009")));
    }
}
