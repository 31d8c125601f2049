//! `roadtrain serve`: runs a target until it is stopped.

mod changes;
mod checks;
mod control;
#[cfg_attr(not(feature = "rbd"), path = "serve/no_group.rs")]
mod group;
mod handover;
mod management;
mod observed;
mod problems;
mod saved;
mod served;
mod snapshots;
mod state;
mod successor;
mod takeover;
mod upgrade;

use crate::args::{GlobalArgs, ServeArgs};
use crate::config::ServeConfig;
use crate::failure::{CommandFailure, CommandResult};
use crate::registry::{TargetClaim, TargetRegistration, Targets};
use crate::signals::{BlockedSignals, Signal};
use crate::{logs, notify, output};
use control::TargetMethods;
use group::GroupMember;
use handover::HandoverOutcome;
use management::Management;
use observed::TargetMetrics;
use roadtrain_manage::http;
use roadtrain_manage::model::ManagedModel;
use roadtrain_manage::rpc::{Files, UnixServer};
use roadtrain_system::platform::listen_problem;
use roadtrain_target_engine::{ConfigError, ConfigObject, Server, ServerConfig, ServerError};
use served::{RunningTarget, interfaces, listeners};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use takeover::Predecessor;
use tracing::{error, info, warn};

/// Time for which the predecessor may keep its metrics address.
const PREDECESSOR_WAIT: Duration = Duration::from_secs(5);
const PREDECESSOR_PAUSE: Duration = Duration::from_millis(50);

/// `roadtrain serve`
pub(crate) fn run(args: &ServeArgs, global: &GlobalArgs) -> CommandResult {
    let config = ServeConfig::from_args(args)?;
    if args.print_config {
        return output::line(&config.to_toml());
    }
    checks::folders(&config)?;
    if args.check_config {
        let web = management::web(&config)?.map(|(address, _)| address);
        let others = [web, config.metrics, args.metrics];
        return checks::machine(&config.server()?, &config.spelling, &others);
    }
    logs::start(
        args.log_level.as_deref().or(config.log_level.as_deref()).unwrap_or("info"),
        global.verbose,
    );
    let signals = BlockedSignals::block_of_target()?;
    let (config, member) = join(args, config, &signals)?;
    let mut engine_config = config.server()?;
    let web = management::web(&config)?;
    member.iter().for_each(|member| member.share(&mut engine_config.subsystems));
    checks::warn_if_open(&engine_config, &config.spelling);
    let (server, name, model) = match args.takeover {
        true => take_over((args, &config), &mut engine_config, &signals)?,
        false => {
            let model = management::load(&config, &mut engine_config)?;
            (Server::start(engine_config.clone())?, args.id.clone(), model)
        }
    };
    let listeners = listeners(&server, &interfaces(&config));
    let registration =
        if args.control_stdin { None } else { claim(args, name.as_deref(), &listeners)? };
    let ready = ready(&listeners, &config);
    let (file, announces) = (args.config.as_deref(), config.mdns);
    let files = management::files(&config)?;
    let source = (config.clone(), file, member.clone());
    // The running server has the objects of RPC: a device that is removed has to be closed.
    engine_config.subsystems.retain(|subsystem| !model.serves(&subsystem.nqn));
    let served =
        Arc::new(RunningTarget::new((server, engine_config), registration.as_ref(), source));
    served.set_rpc_options(&args.rpc);
    let over = AfterTakeover(args.takeover);
    let methods = Arc::new(TargetMethods::new(served.clone()));
    let management = management::start(&config, web, over, (&methods, model, files.clone()))?;
    let control = registration.as_ref().map(|registration| {
        let server = UnixServer::start_control(&registration.control_socket(), methods.clone());
        server.inspect_err(|error| warn!("no control socket: {error}")).ok()
    });
    if args.control_stdin {
        over.or_without(methods.clone().answer_on_stdin().map_err(CommandFailure::from))?;
    }
    if announces {
        over.or_without(served.announce())?;
    }
    let _metrics = over.or_without(metrics(args, &served))?;
    member.as_ref().map_or(Ok(()), |member| member.start(&served))?;
    over.or_without(output::ready(&ready))?;
    notify::send(notify::NotifyState::Ready);
    let mut resources = ServeResources { registration, management, methods, config, files };
    if let ServeEnd::TakenOver(lost) = until_ended(&signals, &served, &mut resources)? {
        return lost.map_or(Ok(()), |lost| Err(CommandFailure::failed(lost)));
    }
    served.withdraw();
    drop(resources.management);
    member.iter().for_each(|member| member.leave(&served));
    let ended = end(&served.server(), &signals);
    drop(control); // `status` shows the shutdown as well
    ended
}

/// Notifies the hosts, and shuts down. A second signal ends the wait for them.
fn end(server: &Server, signals: &BlockedSignals) -> CommandResult {
    server.drain(|pause| signals.wait_for(pause) != Some(Signal::Stop));
    let ended = server.shut_down();
    match server.failure() {
        Some(failure) => {
            ended.unwrap_or_else(|error| error!("{error}"));
            Err(CommandFailure::failed(failure))
        }
        None => Ok(ended?),
    }
}

/// True after a takeover: the predecessor has ended, so no process serves if this one ends.
#[derive(Clone, Copy)]
struct AfterTakeover(bool);

impl AfterTakeover {
    /// Continues without an optional part after a takeover.
    ///
    /// # Errors
    /// There was no takeover: the process ends.
    fn or_without<T: Default>(self, result: CommandResult<T>) -> CommandResult<T> {
        result.or_else(|failure| match self.0 {
            true => {
                error!("{}: serving without", failure.message);
                Ok(T::default())
            }
            false => Err(failure),
        })
    }
}

/// Joins a gateway group and returns its configuration. SIGTERM ends the process while it waits for the cluster.
fn join(
    args: &ServeArgs,
    config: ServeConfig,
    signals: &BlockedSignals,
) -> CommandResult<(ServeConfig, Option<Arc<GroupMember>>)> {
    if args.member.gateway_group.is_none() {
        return Ok((config, None));
    }
    let (member, config) = signals.guard(|| GroupMember::join(args, config))?;
    Ok((config, Some(member)))
}

/// Starts the HTTP server for metrics, if the command line or the file has an address.
fn metrics(
    args: &ServeArgs,
    served: &Arc<RunningTarget>,
) -> CommandResult<Option<http::HttpServer>> {
    let Some(address) = args.metrics.or(served.metrics_address()) else { return Ok(None) };
    let name = if args.metrics.is_some() { "--metrics" } else { "metrics" };
    let until = Instant::now() + PREDECESSOR_WAIT;
    loop {
        match roadtrain_manage::metrics::serve(address, TargetMetrics(served.clone())) {
            Ok(server) => {
                info!("metrics at http://{}/", server.address());
                return Ok(Some(server));
            }
            // The predecessor is about to end.
            Err(error) if args.takeover && error.kind() == ErrorKind::AddrInUse => {
                if Instant::now() > until {
                    warn!("{name} {address}: {}: serving without", listen_problem(address, &error));
                    return Ok(None);
                }
                thread::sleep(PREDECESSOR_PAUSE);
            }
            Err(error) => {
                let problem = listen_problem(address, &error);
                return Err(CommandFailure::failed(format!("{name} {address}: {problem}")));
            }
        }
    }
}

/// Takes over from a running target, and takes its name. SIGTERM before that ends this process only.
fn take_over(
    (args, own): (&ServeArgs, &ServeConfig),
    config: &mut ServerConfig,
    signals: &BlockedSignals,
) -> CommandResult<(Server, Option<String>, ManagedModel)> {
    let (server, model, predecessor) = signals.guard(|| {
        let mut seen = config.clone();
        // Their sockets exist already.
        let named = management::addresses(own)?.into_iter();
        seen.listen.extend(named.filter(|address| !config.listen.contains(address)));
        let mut predecessor = Predecessor::find((args, own), &seen)?;
        let open_wait = predecessor.release()?;
        // The predecessor has released the state, and does not change it any more.
        let model = management::load(own, config)?;
        let server = predecessor.succeed(config, open_wait)?;
        Ok::<_, CommandFailure>((server, model, predecessor))
    })?;
    Ok((server, Some(predecessor.finish()), model))
}

/// Registers the target. Without `--id` a failure is only a warning.
fn claim(
    args: &ServeArgs,
    id: Option<&str>,
    listeners: &[String],
) -> CommandResult<Option<TargetRegistration>> {
    let config = args.config.as_deref().map(std::path::absolute).transpose()?;
    let listeners = listeners.to_vec();
    let claim = TargetClaim { id, listeners, config: config.as_deref() };
    match (Targets::of_user().claim(&claim), id) {
        (Ok(registration), _) => Ok(Some(registration)),
        // After a takeover no other process serves.
        (Err(failure), Some(_)) if !args.takeover => Err(failure),
        (Err(failure), _) => {
            warn!("no control socket: {}", failure.message);
            Ok(None)
        }
    }
}

fn ready(listeners: &[String], config: &ServeConfig) -> String {
    let nqns: Vec<&str> = config.subsystems.iter().map(|s| s.nqn.as_str()).collect();
    format!("ready {} {}", listeners.join(" "), nqns.join(","))
}

/// Reason why serving has ended.
enum ServeEnd {
    /// A signal to stop.
    Stopped,
    /// Another process serves. Earlier writes of hosts may be lost.
    TakenOver(Option<String>),
}

/// Resources of the process in addition to the target.
struct ServeResources {
    registration: Option<TargetRegistration>,
    management: Management,
    methods: Arc<TargetMethods>,
    /// Configuration at the start of the process.
    config: ServeConfig,
    files: Files,
}

/// Serves until a signal to stop, or a takeover by another process.
fn until_ended(
    signals: &BlockedSignals,
    served: &Arc<RunningTarget>,
    resources: &mut ServeResources,
) -> CommandResult<ServeEnd> {
    let mut watchdog = notify::watch(served.server().pulse())?;
    loop {
        match signals.wait() {
            Signal::Stop => break,
            Signal::Reload => {
                if let Err(failure) = served.reload() {
                    error!("not reloaded: {}", failure.message);
                }
            }
            Signal::TakeOver => {
                let Some(mut successor) = served.begin_handover() else { continue };
                drop(watchdog);
                // The other process announces the same service.
                let announces = served.withdraw();
                let waiting = notify::watch_nothing()?;
                if let HandoverOutcome::Over(lost) =
                    handover::run(served, &mut successor, (resources, signals))?
                {
                    return Ok(ServeEnd::TakenOver(lost));
                }
                drop((successor, waiting));
                served.cancel_handover();
                if announces {
                    AfterTakeover(true).or_without(served.announce())?;
                }
                watchdog = notify::watch(served.server().pulse())?;
            }
        }
    }
    notify::send(notify::NotifyState::Stopping);
    info!("stopping");
    resources.management.fold_journal();
    Ok(ServeEnd::Stopped)
}

/// Returns a hint about this user's target that listens there and could be taken over.
fn takeover_hint(address: SocketAddr) -> String {
    let entries = Targets::of_user().entries().unwrap_or_default();
    let is_there = |listener: &String| {
        listener.parse().is_ok_and(|at: SocketAddr| {
            let is_any = at.ip().is_unspecified() || address.ip().is_unspecified();
            at.port() == address.port() && (is_any || at.ip() == address.ip())
        })
    };
    let there = entries.into_iter().find(|entry| entry.listeners.iter().any(is_there));
    there.map_or_else(String::new, |entry| {
        format!("; that is the target {}: --takeover replaces it", entry.id)
    })
}

impl From<ServerError> for CommandFailure {
    fn from(error: ServerError) -> CommandFailure {
        match error {
            ServerError::Config(ConfigError::Listen {
                place: ConfigObject::Listener(address),
                ..
            }) => CommandFailure::failed(format!("{error}{}", takeover_hint(address))),
            ServerError::Config(ConfigError::Store { .. } | ConfigError::Listen { .. }) => {
                CommandFailure::failed(error)
            }
            ServerError::Config(_) => CommandFailure::usage(error),
            _ => CommandFailure::failed(error),
        }
    }
}
