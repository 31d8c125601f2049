//! Subsystems.

use super::devices::of_file;
use super::place;
use super::transport::check_target;
use super::{Method, MethodParams, change, params_of, query};
use crate::model::{
    ManagedModel, RateLimitsSpec, SavedListener, SavedNamespace, SavedSubsystem, show_uuid,
};
use crate::rpc::{ManagerSession, Rpc, RpcError};
use roadtrain_reactor::metrics::name_in_file;
use roadtrain_target_engine::{ConfigOperation, Export, Subsystem};
use roadtrain_target_proto::{
    self as target_proto, NAMESPACES_MAX, NamespaceConfig, SubsystemConfig, TargetConfig,
    TargetListener,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use tracing::warn;

pub(super) const METHODS: &[Method] = &[
    change("nvmf_create_subsystem", "Makes a subsystem.", create),
    change("nvmf_delete_subsystem", "Removes a subsystem; its connections end.", delete),
    query("nvmf_get_subsystems", "Subsystems, discovery first, then by NQN.", get),
];

/// NQN of the discovery service.
pub(super) const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Default limit of a subsystem's namespaces.
const NAMESPACES: u32 = 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateSubsystemParams {
    nqn: String,
    tgt_name: Option<String>,
    serial_number: Option<String>,
    model_number: Option<String>,
    max_namespaces: Option<u32>,
    allow_any_host: Option<bool>,
    ana_reporting: Option<bool>,
    min_cntlid: Option<u16>,
    max_cntlid: Option<u16>,
    max_discard_size_kib: Option<u64>,
    max_write_zeroes_size_kib: Option<u64>,
    dmrsl: Option<u32>,
    wzsl: Option<u8>,
    passthrough: Option<bool>,
    enable_nssr: Option<bool>,
    admin_label: Option<String>,
}

impl CreateSubsystemParams {
    fn check(&self, manager: &ManagerSession<'_>) -> Rpc<()> {
        check_target(self.tgt_name.as_deref())?;
        let bad = |what: &str| Err(RpcError::params(what));
        let is_long =
            |text: &Option<String>, most| text.as_ref().is_some_and(|text| text.len() > most);
        if is_long(&self.serial_number, 20) {
            return bad("serial_number has at most 20 bytes");
        }
        if is_long(&self.model_number, 40) {
            return bad("model_number has at most 40 bytes");
        }
        let lacks = [self.passthrough, self.enable_nssr].contains(&Some(true))
            || self.admin_label.as_ref().is_some_and(|label| !label.is_empty());
        if lacks {
            return bad("no passthrough, enable_nssr and admin_label here");
        }
        self.check_cntlids(&manager.server().exports().limits)?;
        self.dmrsl()?;
        self.wzsl()?;
        match self.max_namespaces.unwrap_or(NAMESPACES) {
            count if count > NAMESPACES_MAX => {
                bad(&format!("max_namespaces is at most {NAMESPACES_MAX}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the identifier range: it has to overlap the target's.
    fn check_cntlids(&self, limits: &target_proto::TargetLimits) -> Rpc<()> {
        let range = cntlids(self.min_cntlid, self.max_cntlid);
        let (min, max) = (*range.start(), *range.end());
        if min == 0 || min > max || max > target_proto::TargetLimits::CNTLID_MAX {
            let more = format!("Invalid cntlid range [{min}-{max}]");
            return Err(RpcError::new(-32602, &more, "use 1 to 65519"));
        }
        if min > limits.cntlid_max || max < limits.cntlid_min {
            let (first, last) = (limits.cntlid_min, limits.cntlid_max);
            let hint = format!("the target gives out {first} to {last} (--cntlid-range)");
            return Err(RpcError::params(hint));
        }
        Ok(())
    }

    /// Returns the limit in logical blocks; the older parameter assumes blocks of 512 bytes.
    fn dmrsl(&self) -> Rpc<u32> {
        match (self.dmrsl, self.max_discard_size_kib) {
            (Some(blocks), None) => Ok(blocks),
            (None, Some(kib)) => {
                let blocks = u32::try_from(kib.saturating_mul(2));
                blocks.map_err(|_| RpcError::params(format!("max_discard_size_kib {kib}")))
            }
            (None, None) => Ok(0),
            (Some(_), Some(_)) => Err(RpcError::params("give dmrsl or max_discard_size_kib")),
        }
    }

    /// Returns the limit as a power of two of 4 KiB pages; the older parameter is rounded down to one.
    fn wzsl(&self) -> Rpc<u8> {
        match (self.wzsl, self.max_write_zeroes_size_kib) {
            (Some(power), None) => Ok(power),
            (None, Some(kib)) => Ok((kib / 4).checked_ilog2().unwrap_or(0) as u8),
            (None, None) => Ok(0),
            (Some(_), Some(_)) => Err(RpcError::params("give wzsl or max_write_zeroes_size_kib")),
        }
    }
}

/// Returns the identifiers of a subsystem's controllers; a missing bound is no limit.
fn cntlids(min: Option<u16>, max: Option<u16>) -> RangeInclusive<u16> {
    min.unwrap_or(1)..=max.unwrap_or(target_proto::TargetLimits::CNTLID_MAX)
}

fn create(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let new: CreateSubsystemParams = params_of(&params)?;
    new.check(manager)?;
    let unable =
        |why: &str| RpcError::new(-32603, &format!("Unable to create subsystem {}", new.nqn), why);
    if manager.file_subsystem(&new.nqn).is_some() || new.nqn == DISCOVERY {
        return Err(unable("it is there"));
    }
    if manager.model().shadowed.contains(&new.nqn) {
        return Err(unable("the configuration file has it: a reload serves it again"));
    }
    let subsystem = SavedSubsystem {
        nqn: new.nqn.clone(),
        serial: new.serial_number.clone(),
        model: new.model_number.clone(),
        max_namespaces: match new.max_namespaces {
            None | Some(0) => NAMESPACES,
            Some(count) => count,
        },
        allow_any_host: new.allow_any_host == Some(true),
        hosts: BTreeSet::new(),
        administrators: BTreeSet::new(),
        namespace_store: None,
        ana_reporting: new.ana_reporting == Some(true),
        host_keys: BTreeMap::new(),
        host_limits: BTreeMap::new(),
        min_cntlid: new.min_cntlid,
        max_cntlid: new.max_cntlid,
        dmrsl: new.dmrsl()?,
        wzsl: new.wzsl()?,
        namespaces: Vec::new(),
        all_listeners: false,
        listeners: Vec::new(),
    };
    manager.change(
        |error| unable(&error.to_string()),
        |model| {
            if model.subsystem(&new.nqn).is_some() {
                return Err(unable("it is there"));
            }
            model.subsystems.push(subsystem);
            Ok(json!(true))
        },
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteSubsystemParams {
    nqn: String,
    tgt_name: Option<String>,
}

fn delete(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    let DeleteSubsystemParams { nqn, tgt_name } = params_of(&params)?;
    check_target(tgt_name.as_deref())?;
    if nqn == DISCOVERY {
        warn!("nvmf_delete_subsystem: the discovery service stays");
        return Ok(json!(true));
    }
    if manager.file_subsystem(&nqn).is_some() {
        return of_file(
            manager,
            RpcError::internal,
            vec![ConfigOperation::RemoveSubsystem { nqn }],
        );
    }
    manager.change(RpcError::internal, |model| {
        let at = model.subsystems.iter().position(|subsystem| subsystem.nqn == nqn);
        model.subsystems.remove(at.ok_or_else(|| RpcError::params(format!("no subsystem {nqn}")))?);
        Ok(json!(true))
    })
}

fn get(manager: &ManagerSession<'_>, params: MethodParams<'_>) -> Rpc<Value> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct GetSubsystemsParams {
        nqn: Option<String>,
        tgt_name: Option<String>,
    }
    let GetSubsystemsParams { nqn, tgt_name } = params_of(&params)?;
    check_target(tgt_name.as_deref())?;
    let wanted = |one: &str| nqn.as_deref().is_none_or(|nqn| nqn == one);
    let (model, (seen, _)) = (manager.model(), manager.server().view());
    let mut subsystems: Vec<&SubsystemConfig> =
        seen.subsystems.iter().filter(|subsystem| wanted(&subsystem.nqn)).collect();
    subsystems.sort_by(|a, b| a.nqn.cmp(&b.nqn));
    let discovery = wanted(DISCOVERY).then(|| discovery(&seen.listeners));
    let exports = manager.server().exports();
    let by_nqn: HashMap<&str, &Subsystem> =
        exports.subsystems.iter().map(|one| (one.nqn.as_str(), one)).collect();
    let rates = |nqn: &str| by_nqn.get(nqn).copied();
    let owner = |nqn: &str| match model.serves(nqn) {
        true => "state",
        false => manager.plane().file_owner(),
    };
    let shown = subsystems.iter().map(|one| {
        let mut shown = show(&model, &seen, (one, rates(&one.nqn)));
        shown["owner"] = owner(&one.nqn).into();
        shown
    });
    let shown: Vec<Value> = discovery.into_iter().chain(shown).collect();
    match (shown.is_empty(), nqn) {
        (true, Some(nqn)) => Err(RpcError::no_device(nqn)),
        _ => Ok(Value::Array(shown)),
    }
}

fn discovery(listeners: &[TargetListener]) -> Value {
    let addresses = listeners.iter().map(|listener| place::show(listener.address));
    json!({
        "nqn": DISCOVERY, "subtype": "Discovery", "listen_addresses": addresses.collect::<Vec<_>>(),
        "allow_any_host": true, "hosts": [],
    })
}

/// Returns the shown form of a subsystem, as hosts see it, with RPC's data.
fn show(
    model: &ManagedModel,
    seen: &TargetConfig,
    (subsystem, export): (&SubsystemConfig, Option<&Subsystem>),
) -> Value {
    let nqn = &subsystem.nqn;
    let spec = model.served().find(|spec| spec.nqn == *nqn);
    let hosts = spec.map(|spec| &spec.hosts).or(subsystem.allowed_hosts.as_ref());
    let hosts = hosts.into_iter().flatten().map(|nqn| host(spec, nqn));
    let mut by_nsid: Vec<&NamespaceConfig> = subsystem.namespaces.iter().collect();
    by_nsid.sort_by_key(|one| one.nsid);
    let exported = export.into_iter().flat_map(|export| &export.namespaces);
    let exported: HashMap<u32, &Export> = exported.map(|one| (one.nsid, one)).collect();
    let rates = |nsid: u32| {
        let own = exported.get(&nsid);
        own.map(|one| RateLimitsSpec::from(&one.rates)).unwrap_or_default()
    };
    let lent = model.lent.iter().filter(|(_, (of, _))| of == nqn);
    let lent: HashMap<u32, &String> = lent.map(|(device, (_, nsid))| (*nsid, device)).collect();
    let saved = spec.into_iter().flat_map(|spec| &spec.namespaces);
    let saved: HashMap<u32, &SavedNamespace> = saved.map(|one| (one.nsid, one)).collect();
    let namespaces = by_nsid.into_iter().map(|one| {
        let device = saved.get(&one.nsid).map(|saved| &saved.device);
        let device = device.or(lent.get(&one.nsid).copied()).cloned();
        let device = device.unwrap_or_else(|| name_in_file(nqn, one.nsid));
        namespace((device, rates(one.nsid)), spec, one)
    });
    let cntlids = subsystem.cntlid_range(&seen.limits);
    let mut shown = json!({
        "nqn": nqn, "subtype": "NVMe", "listen_addresses": addresses(spec, &seen.listeners),
        "allow_any_host": subsystem.allowed_hosts.is_none(), "hosts": hosts.collect::<Vec<_>>(),
        "serial_number": seen.serial(subsystem), "model_number": subsystem.model,
        "max_namespaces": spec.map_or(NAMESPACES_MAX, |spec| spec.max_namespaces),
        "passthrough": false, "min_cntlid": cntlids.start(), "max_cntlid": cntlids.end(),
        "dmrsl": subsystem.dmrsl, "wzsl": subsystem.wzsl,
        "namespaces": namespaces.collect::<Vec<_>>(),
    });
    // SPDK has no such members, so they are left out when empty.
    if let Some(store) = spec.and_then(|spec| spec.namespace_store.as_ref()) {
        shown["namespace_store"] = json!(store);
        shown["administrators"] = json!(spec.map(|spec| &spec.administrators));
    }
    if !subsystem.host_rates.is_empty() {
        let limits = subsystem.host_rates.iter();
        let limits = limits.map(|(host, rates)| (host.clone(), json!(RateLimitsSpec::from(rates))));
        shown["host_limits"] = limits.collect::<serde_json::Map<_, _>>().into();
    }
    shown
}

/// Returns the shown form of a host that may use a subsystem.
fn host(spec: Option<&SavedSubsystem>, nqn: &str) -> Value {
    let mut shown = json!({"nqn": nqn});
    let keys = spec.and_then(|spec| spec.host_keys.get(nqn)).cloned().unwrap_or_default();
    for (name, key) in
        [("dhchap_key", keys.dhchap_key), ("dhchap_ctrlr_key", keys.dhchap_ctrlr_key)]
    {
        if let Some(key) = key {
            shown[name] = key.into();
        }
    }
    shown
}

/// Returns the addresses of a subsystem.
pub(super) fn addresses(spec: Option<&SavedSubsystem>, listeners: &[TargetListener]) -> Vec<Value> {
    match spec {
        Some(spec) if !(spec.all_listeners && spec.listeners.is_empty()) => {
            spec.listeners.iter().map(place::show_listener).collect()
        }
        _ => {
            let shared = listeners.iter().filter(|listener| !listener.named_only);
            shared.map(|listener| place::show(listener.address)).collect()
        }
    }
}

fn namespace(
    (name, limits): (String, RateLimitsSpec),
    spec: Option<&SavedSubsystem>,
    one: &NamespaceConfig,
) -> Value {
    let id = one.id.unwrap_or_else(|| roadtrain_target_proto::NamespaceId::of_store(0));
    let mut shown = json!({
        "nsid": one.nsid, "bdev_name": name, "name": name,
        "nguid": format!("{:032X}", u128::from_be_bytes(id.nguid)), "uuid": show_uuid(&id.uuid),
    });
    if spec.is_none_or(|spec| spec.ana_reporting) {
        shown["anagrpid"] = one.view.ana_group.into();
    }
    // SPDK has no such member, so it is left out where all hosts see the namespace.
    if let Some(hosts) = &one.view.hosts {
        shown["hosts"] = json!(hosts);
    }
    if limits.is_limited() {
        shown["limits"] = json!(limits);
    }
    shown
}

/// True if both have the same address.
pub(super) fn is_same(one: &SavedListener, other: &SavedListener) -> bool {
    one.address() == other.address()
}
