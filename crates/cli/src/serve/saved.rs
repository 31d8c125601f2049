//! The served configuration as a file, and a preview of a reload.

use super::served::{RunningTarget, lock};
use crate::addresses::Addresses;
use crate::args::{AnaName, AnaPort, TlsMode};
use crate::config::{AnaGroupSettings, ListenerSettings, ServeConfig, SubsystemSettings};
use crate::control::{ConfigDiff, ConfigText, ControlRefusal, HostVisibleChange, RefusalReason};
use crate::failure::{CommandFailure, CommandResult};
use crate::namespace::NamespaceSettings;
use crate::rates::RateArgs;
use roadtrain_manage::model::{ManagedModel, show_uuid};
use roadtrain_target_engine::{AnaListener, AnaState, Export, Subsystem, TargetListener};
use roadtrain_target_proto::TargetConfig;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;

impl RunningTarget {
    /// Returns the served configuration as a file.
    pub(super) fn config_text(&self) -> CommandResult<ConfigText> {
        let manager = self.managed()?;
        let (model, server) = (manager.model(), self.server());
        let (exports, (seen, _)) = (server.exports(), server.view());
        let mut config = lock(self.config()).clone();
        let mut missing = Vec::new();
        let known = std::mem::take(&mut config.subsystems);
        for subsystem in &exports.subsystems {
            let known = known.iter().find(|spec| spec.nqn == subsystem.nqn);
            let mut saved = saved_subsystem(subsystem, (known, &model), &mut missing);
            add_identity(&mut saved, &seen);
            close_if_narrower(&mut saved, (subsystem, &model), &mut missing);
            config.subsystems.push(saved);
        }
        save_listeners(&mut config, &exports)?;
        make_paths_absolute(&mut config);
        let comments: String = missing.iter().map(|line| format!("# Not here: {line}\n")).collect();
        Ok(ConfigText { toml: comments + &config.to_toml() })
    }

    /// Returns the changes that a reload would make.
    pub(super) fn config_diff(&self) -> CommandResult<ConfigDiff> {
        let Some(file) = self.file() else {
            let message = "the target was started without a configuration file";
            return Err(ControlRefusal::new(RefusalReason::Invalid, message).into());
        };
        let manager = self.managed()?;
        let new = self.read_file(file)?;
        let restart = lock(self.config()).needs_restart(&new);
        let names: BTreeSet<String> = new.subsystems.iter().map(|one| one.nqn.clone()).collect();
        let mut model = (*manager.model()).clone();
        let both = model.subsystems.iter().filter(|one| names.contains(&one.nqn));
        let both = both.map(|one| one.nqn.clone()).collect();
        model.shadowed = names;
        let wanted = self.wanted(&new, &model)?;
        let operations = wanted.preview(&self.server()).map_err(CommandFailure::failed)?;
        let changes = operations.iter().map(HostVisibleChange::from).collect();
        Ok(ConfigDiff { file: file.to_owned(), changes, restart, both })
    }
}

/// Empties the allowed hosts of a subsystem that the file would open to more hosts: a file cannot have its keys or
/// listeners.
fn close_if_narrower(
    saved: &mut SubsystemSettings,
    (subsystem, model): (&Subsystem, &ManagedModel),
    missing: &mut Vec<String>,
) {
    let nqn = &saved.nqn;
    let state = model.served().find(|one| one.nqn == *nqn);
    let what = match state.is_some_and(|state| !state.host_keys.is_empty()) {
        true => "keys of the hosts",
        false if subsystem.listeners.is_some() => "own listeners",
        false => return,
    };
    missing.push(format!("the {what} of {nqn}: so allow_hosts is empty here"));
    saved.allow_hosts = Some(Default::default());
}

/// Adds the identity of the subsystem and its namespaces, so that hosts see copies on another machine as the same.
fn add_identity(saved: &mut SubsystemSettings, seen: &TargetConfig) {
    let Some(shown) = seen.subsystems.iter().find(|one| one.nqn == saved.nqn) else { return };
    saved.serial = Some(seen.serial(shown));
    let shown: HashMap<u32, _> = shown.namespaces.iter().map(|one| (one.nsid, one)).collect();
    for spec in &mut saved.namespaces {
        let own = spec.nsid.and_then(|nsid| shown.get(&nsid));
        // Memory is new at each start.
        if let Some(id) = own.and_then(|one| one.id).filter(|_| spec.is_stored()) {
            spec.uuid = Some(show_uuid(&id.uuid));
            spec.nguid = Some(format!("{:032x}", u128::from_be_bytes(id.nguid)));
        }
    }
}

fn saved_subsystem(
    subsystem: &Subsystem,
    (known, model): (Option<&SubsystemSettings>, &ManagedModel),
    missing: &mut Vec<String>,
) -> SubsystemSettings {
    let nqn = &subsystem.nqn;
    let known_namespaces = known.into_iter().flat_map(|known| &known.namespaces);
    let known_exports = known_namespaces.filter_map(|spec| Some((spec.export().ok()?, spec)));
    let known_exports: HashMap<u32, _> =
        known_exports.map(|(export, spec)| (export.nsid, (export, spec))).collect();
    let claims: HashMap<_, _> = model.claims().collect();
    let lent = model.lent.iter().filter(|(_, (of, _))| of == nqn);
    let lent: HashMap<u32, &str> = lent.map(|(device, (_, nsid))| (*nsid, &**device)).collect();
    let devices = model.devices_by_name();
    let mut save = |export: &Export| {
        let same = known_exports.get(&export.nsid).filter(|(own, _)| own == export);
        let same = same.map(|(_, spec)| (*spec).clone());
        let saved = same.or_else(|| NamespaceSettings::of_export(export)).or_else(|| {
            let claim = claims.get(&(nqn.as_str(), export.nsid));
            let device = devices.get(claim.or_else(|| lent.get(&export.nsid))?)?;
            NamespaceSettings::of_device((model, device), export)
        });
        if saved.is_none() {
            missing.push(format!(
                "namespace {} of {nqn}, whose volume only its store and the state have",
                export.nsid
            ));
        }
        saved
    };
    let namespaces = subsystem.namespaces.iter().filter_map(&mut save).collect();
    let rates = subsystem.host_rates.iter();
    SubsystemSettings {
        nqn: nqn.clone(),
        serial: subsystem.serial.clone(),
        model: Some(subsystem.model.clone()),
        allow_hosts: subsystem.allowed_hosts.clone(),
        require_auth: known.is_some_and(|known| known.require_auth),
        require_tls: known.is_some_and(|known| known.require_tls),
        host_rates: rates.map(|(host, rates)| (host.clone(), RateArgs::from(rates))).collect(),
        ana_groups: saved_groups(subsystem),
        namespaces,
    }
}

fn saved_groups(subsystem: &Subsystem) -> Vec<AnaGroupSettings> {
    let states = subsystem.ana_groups.iter();
    let states = states.flat_map(|(group, states)| states.iter().map(|one| (*group, one)));
    let saved = states.filter_map(|(group, (listener, state))| {
        Some(AnaGroupSettings { group, listener: port_of(listener), state: name_of(state)? })
    });
    saved.collect()
}

/// Writes the present listeners, if they differ from those of the file, and their ANA states.
fn save_listeners(config: &mut ServeConfig, exports: &TargetConfig<Export>) -> CommandResult {
    let shared: Vec<&TargetListener> =
        exports.listeners.iter().filter(|one| !one.named_only).collect();
    let addresses: BTreeSet<SocketAddr> = shared.iter().map(|one| one.address).collect();
    if config.addresses()?.into_iter().collect::<BTreeSet<_>>() != addresses {
        let mode = config.tls_mode();
        config.address = Addresses::default();
        config.listeners = shared.iter().map(|one| saved_listener(one, mode)).collect();
    }
    let state = |(listener, state)| Some((port_of(listener), name_of(state)?));
    config.ana = exports.ana.iter().filter_map(state).collect();
    Ok(())
}

fn saved_listener(listener: &TargetListener, all: TlsMode) -> ListenerSettings {
    let modes = [TlsMode::Off, TlsMode::Allowed, TlsMode::Required].into_iter();
    let tls = modes.into_iter().find(|mode| listener.tls == (*mode).into());
    let (address, port) = (listener.address.ip().to_string(), Some(listener.address.port()));
    ListenerSettings { address, port, tls: tls.filter(|tls| *tls != all) }
}

fn port_of(listener: AnaListener) -> AnaPort {
    match listener {
        AnaListener::Ether => AnaPort::Ether,
        AnaListener::Tcp(at) => {
            AnaPort::Tcp { address: at.ip().to_string(), port: Some(at.port()) }
        }
    }
}

/// Returns the state's name, if a configuration file may have it.
fn name_of(state: AnaState) -> Option<AnaName> {
    let names = [AnaName::Optimized, AnaName::NonOptimized, AnaName::Inaccessible];
    names.into_iter().find(|name| AnaState::from(*name) == state)
}

fn make_paths_absolute(config: &mut ServeConfig) {
    let absolute = |path: &mut PathBuf| {
        *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
    };
    let ServeConfig {
        state,
        rpc,
        rpc_credentials,
        file_roots,
        lvstores,
        subsystems,
        hosts,
        tls,
        ..
    } = config;
    state.iter_mut().chain(rpc).chain(rpc_credentials).chain(file_roots).for_each(absolute);
    lvstores.iter_mut().for_each(|store| absolute(&mut store.path));
    let namespaces = subsystems.iter_mut().flat_map(|subsystem| &mut subsystem.namespaces);
    namespaces.for_each(NamespaceSettings::make_paths_absolute);
    let hosts = hosts.iter_mut().flat_map(|host| [&mut host.dhchap_key, &mut host.dhchap_ctrl_key]);
    let tls = tls.iter_mut().flat_map(|tls| tls.keys.values_mut());
    hosts.flatten().chain(tls).for_each(make_key_file_absolute);
}

/// Makes the path of a key file absolute; a key itself stays.
fn make_key_file_absolute(key: &mut String) {
    let is_key = ["DHHC-1:", "NVMeTLSkey-1:"].iter().any(|begin| key.starts_with(begin));
    if let (false, Ok(path)) = (is_key, std::path::absolute(&*key)) {
        *key = path.display().to_string();
    }
}
