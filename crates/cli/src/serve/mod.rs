//! `roadtrain serve`: runs a target until it is told to stop.

mod control;

use crate::args::{GlobalArgs, ServeArgs};
use crate::config::ServeConfig;
use crate::failure::{Failure, Outcome};
use crate::registry::{TargetClaim, TargetPlace, Targets};
use crate::signals::{self, Signal, Signals};
use crate::{logs, notify, output};
use control::{Served, interfaces, listeners};
use roadtrain_engine::target::{ConfigError, Server, ServerError};
use std::sync::Arc;
use tracing::{error, info, warn};

/// `roadtrain serve`
pub(crate) fn run(args: &ServeArgs, global: &GlobalArgs) -> Outcome {
    let config = ServeConfig::from_args(args)?;
    if args.print_config {
        return output::line(&config.to_toml());
    }
    let engine_config = config.server()?;
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
    // A second signal ends the wait.
    server.drain(|pause| signals.wait_for(pause) != Some(Signal::Stop));
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
