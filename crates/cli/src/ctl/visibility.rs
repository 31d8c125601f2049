//! Hosts that see a namespace.

use super::target::ControlledTarget;
use crate::args::{NamespaceRef, SeeingHosts};
use crate::failure::{CommandFailure, CommandResult};
use serde_json::{Value, json};

/// Method that sets all hosts at once.
const SET_HOSTS: &str = "roadtrain_set_namespace_hosts";

impl ControlledTarget {
    /// Returns the subsystem and the NSID of a namespace.
    pub(super) fn namespace_of(&self, namespace: &NamespaceRef) -> CommandResult<(String, u32)> {
        Ok((self.nqn_or_only(namespace.subsystem.nqn.as_deref())?, namespace.nsid))
    }

    pub(super) fn show_to(&self, namespace: &NamespaceRef, hosts: &SeeingHosts) -> CommandResult {
        let (nqn, nsid) = self.namespace_of(namespace)?;
        let place = format!("namespace {nsid} of {nqn}");
        let Some(host) = &hosts.hostnqn else {
            let params = json!({"nqn": nqn, "nsid": nsid, "hosts": null});
            return self.change(SET_HOSTS, &params, &format!("{place}: seen by all hosts"));
        };
        if self.seeing_hosts(&nqn, nsid)?.1.is_null() {
            let hint = "all hosts see it: name those that see it by `hide-from --all-hosts` first";
            return Err(CommandFailure::failed(format!("{place}: {hint}")));
        }
        let params = json!({"nqn": nqn, "nsid": nsid, "host": host});
        self.change("nvmf_ns_add_host", &params, &format!("{place}: seen by {host}"))
    }

    pub(super) fn hide_from(&self, namespace: &NamespaceRef, hosts: &SeeingHosts) -> CommandResult {
        let (nqn, nsid) = self.namespace_of(namespace)?;
        let place = format!("namespace {nsid} of {nqn}");
        let Some(host) = &hosts.hostnqn else {
            let params = json!({"nqn": nqn, "nsid": nsid, "hosts": []});
            return self.change(SET_HOSTS, &params, &format!("{place}: seen by no host"));
        };
        let done = format!("{place}: not seen by {host}");
        let (subsystem, seeing) = self.seeing_hosts(&nqn, nsid)?;
        if !seeing.is_null() {
            let params = json!({"nqn": nqn, "nsid": nsid, "host": host});
            return self.change("nvmf_ns_remove_host", &params, &done);
        }
        if subsystem["allow_any_host"] == true {
            return Err(CommandFailure::failed(format!(
                "{place}: any host may use the subsystem, so a host cannot be left out: hide it by --all-hosts, and show it to \
                 those that may see it"
            )));
        }
        let allowed = subsystem["hosts"].as_array().into_iter().flatten();
        let others = allowed.map(|one| &one["nqn"]).filter(|nqn| *nqn != host);
        let others: Vec<&Value> = others.collect();
        self.change(SET_HOSTS, &json!({"nqn": nqn, "nsid": nsid, "hosts": others}), &done)
    }

    /// Returns the subsystem, and the hosts that see a namespace of it; null: all.
    fn seeing_hosts(&self, nqn: &str, nsid: u32) -> CommandResult<(Value, Value)> {
        let unknown = || CommandFailure::failed(format!("{nqn} has no namespace {nsid}"));
        let all = self.subsystems(Some(nqn))?;
        let subsystem = all.into_iter().next().ok_or_else(unknown)?;
        let mut namespaces = subsystem["namespaces"].as_array().into_iter().flatten();
        let namespace = namespaces.find(|one| one["nsid"] == nsid).ok_or_else(unknown)?;
        let hosts = namespace["hosts"].clone();
        Ok((subsystem, hosts))
    }
}
