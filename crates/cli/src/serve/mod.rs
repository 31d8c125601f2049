//! `roadtrain serve`: runs a target until it is told to stop.

mod control;

use crate::addresses::Addresses;
use crate::args::{GlobalArgs, ServeArgs};
use crate::config::ServeConfig;
use crate::failure::{Failure, Outcome};
use crate::registry::{TargetClaim, TargetPlace, Targets};
use crate::signals::{self, Signal, Signals};
use crate::{logs, notify, output};
use control::Served;
use roadtrain_engine::target::{ConnectionLimits, Server, ServerConfig, ServerError};
use roadtrain_proto::target::{ConfigError, Limits};
use roadtrain_wire::pdu::Digests;
use std::sync::Arc;
use tracing::{error, info, warn};

/// Memory for data in flight unless told otherwise.
const POOL_BYTES: u64 = 128 << 20;

/// `roadtrain serve`
pub(crate) fn run(args: &ServeArgs, global: &GlobalArgs) -> Outcome {
    let config = ServeConfig::from_args(args)?;
    if args.print_config {
        return output::line(&config.to_toml());
    }
    let engine_config = engine_config(&config)?;
    if args.check_config {
        return Ok(());
    }
    logs::start(
        args.log_level.as_deref().or(config.log_level.as_deref()).unwrap_or("info"),
        global.verbose,
    );
    let signals = Signals::block()?;
    let server = Arc::new(Server::start(engine_config)?);
    server.on_failure(signals::stop_self);
    let listeners = listeners(&server, &interfaces(&config));
    let ready = ready(&listeners, &config);
    let place = if args.control_stdin { None } else { claim(args, &listeners)? };
    let file = args.config.as_deref();
    let served = Arc::new(Served::new(server.clone(), place.as_ref(), (config, file)));
    match &place {
        Some(place) => served
            .answer_at(&place.control_socket())
            .unwrap_or_else(|error| warn!("no control socket: {error}")),
        None if args.control_stdin => served.answer_on_stdin()?,
        None => {}
    }
    output::ready(&ready)?;
    notify::tell(notify::NotifyState::Ready);
    let watchdog = notify::watch(server.pulse())?;
    until_stopped(&signals, &served);
    drop(watchdog);
    let ended = server.shut_down();
    match server.failure() {
        Some(failure) => {
            ended.unwrap_or_else(|error| error!("{error}"));
            Err(Failure::failed(failure))
        }
        None => Ok(ended?),
    }
}

/// A place where others find it. What has no name of its own does without when there is none.
fn claim(args: &ServeArgs, listeners: &[String]) -> Outcome<Option<TargetPlace>> {
    let config = args.config.as_deref().map(std::path::absolute).transpose()?;
    let (id, listeners) = (args.id.as_deref(), listeners.to_vec());
    let claim = TargetClaim { id, listeners, config: config.as_deref() };
    match (Targets::of_user().claim(&claim), id) {
        (Ok(place), _) => Ok(Some(place)),
        (Err(failure), Some(_)) => Err(failure),
        (Err(failure), None) => {
            warn!("no control socket: {}", failure.message);
            Ok(None)
        }
    }
}

/// Where it listens.
fn listeners(server: &Server, interfaces: &Addresses) -> Vec<String> {
    let interfaces = interfaces.0.iter().map(|name| format!("ether:{name}"));
    let addresses = server.addresses().into_iter().map(|address| address.to_string());
    addresses.chain(interfaces).collect()
}

fn interfaces(config: &ServeConfig) -> Addresses {
    config.ether.as_ref().map(|ether| ether.interfaces.clone()).unwrap_or_default()
}

fn ready(listeners: &[String], config: &ServeConfig) -> String {
    let nqns: Vec<&str> = config.subsystems.iter().map(|s| s.nqn.as_str()).collect();
    format!("ready {} {}", listeners.join(" "), nqns.join(","))
}

fn until_stopped(signals: &Signals, served: &Served) {
    while signals.wait() == Signal::Reload {
        if let Err(failure) = served.reload() {
            error!("not reloaded: {}", failure.message);
        }
    }
    notify::tell(notify::NotifyState::Stopping);
    info!("stopping");
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Failure {
        match error {
            ServerError::Config(ConfigError::Store { .. } | ConfigError::Listen { .. }) => {
                Failure::failed(error)
            }
            ServerError::Config(_) => Failure::usage(error),
            _ => Failure::failed(error),
        }
    }
}

fn engine_config(config: &ServeConfig) -> Outcome<ServerConfig> {
    let (asked, granted) = (&config.limits, Limits::default());
    let subsystems = config.exports().map_err(Failure::usage)?;
    let base = ServerConfig::new(config.addresses()?, subsystems);
    let pool_bytes = asked.buffers.unwrap_or(POOL_BYTES);
    let ether = config.ether.as_ref().map(|ether| ether.frames.listen(ether.interfaces.0.clone()));
    Ok(ServerConfig {
        ether: ether.transpose().map_err(Failure::usage)?,
        limits: Limits {
            io_queues_max: asked.max_queues.unwrap_or(granted.io_queues_max),
            queue_entries_max: asked.queue_size.unwrap_or(granted.queue_entries_max),
            controllers_max: asked.max_controllers.unwrap_or(granted.controllers_max),
            host_controllers_max: asked
                .max_controllers_per_host
                .unwrap_or(granted.host_controllers_max),
            host_queues_max: asked.max_connections_per_host.unwrap_or(granted.host_queues_max),
            in_capsule_bytes_max: asked.in_capsule_bytes.unwrap_or(granted.in_capsule_bytes_max),
            ..granted
        },
        connections: ConnectionLimits {
            all: asked.max_connections.unwrap_or(base.connections.all),
            per_address: asked.max_connections_per_address.unwrap_or(base.connections.per_address),
        },
        digests: Digests { header: !asked.no_hdgst, data: !asked.no_ddgst },
        maxh2cdata: asked.max_h2c_data.unwrap_or(base.maxh2cdata),
        policy: config.batching.config(),
        cores: config.cores.clone().unwrap_or_default().0,
        placement: config.placement.into(),
        pool_bytes: usize::try_from(pool_bytes)
            .map_err(|_| Failure::usage("--buffers is too large"))?,
        waiting: config.waiting.waiting(),
        ..base
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_engine::backend::{BackendKind, BackendSpec};
    use roadtrain_engine::host::Class;
    use roadtrain_engine::spin::Waiting;
    use roadtrain_engine::target::Export;

    #[test]
    fn the_engine_gets_what_was_said() {
        let text = "address = [\"127.0.0.1\", \"::1\"]\nport = 0\ncores = \"1\"\n[waiting]\nspin_us = 20\n\
            [limits]\nmax_queues = 4\nbuffers = \"8MiB\"\nno_ddgst = true\n\
            [[subsystem]]\nnqn = \"nqn.x:y\"\nallow_hosts = []\n\
            [[subsystem.namespace]]\nnsid = 3\nkind = \"file\"\npath = \"x\"\nread_only = true\n\
            class = \"bulk\"\nnguid = \"22222222222222222222222222222222\"\n";
        let config = engine_config(&ServeConfig::parse(text).unwrap()).unwrap();
        assert_eq!(config.listen, ["127.0.0.1:0", "[::1]:0"].map(|a| a.parse().unwrap()));
        assert_eq!((config.cores, config.pool_bytes), (vec![1], 8 << 20));
        assert_eq!(config.limits.io_queues_max, 4);
        assert_eq!(config.digests, Digests { header: true, data: false });
        assert_eq!(config.waiting, Waiting::Spin(std::time::Duration::from_micros(20)));
        let subsystem = &config.subsystems[0];
        assert_eq!(
            subsystem.allowed_hosts,
            Some(Default::default()),
            "an empty list allows nobody"
        );
        let kind = BackendKind::File { path: "x".into(), size: None, create: false };
        let backend = BackendSpec { kind, lba_bytes: 512, read_only: true };
        let class = Some(Class::Bulk);
        assert_eq!(
            subsystem.namespaces,
            [Export { nguid: Some([0x22; 16]), class, ..Export::new(3, backend) }]
        );
    }
}
