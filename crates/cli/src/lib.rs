//! The `roadtrain` program as a library: command line, configuration, commands.
//!
//! ```text
//!   args, config                       what is wanted: words, or a file
//!     serve                              -> a target         (roadtrain-target-engine)
//!     attach, detach, status, list       -> local devices    (roadtrain-front), and the registry of them
//!     discover, identify, list -a        -> what a target has
//!     ctl                                -> a running target, or a group of gateways in a Ceph cluster
//!     resv                               -> who may use a namespace that several hosts share
//!     bench                              -> a load, and what it reached
//!     doctor                             what this machine lacks
//!     keys                               -> keys for TLS and authentication
//! ```
//!
//! ```
//! use roadtrain_cli::config::ServeConfig;
//!
//! let file = r#"
//!     address = "127.0.0.1"
//!     [[subsystem]]
//!     nqn = "nqn.2025-01.io.example:disk"
//!     [[subsystem.namespace]]
//!     nsid = 1
//!     kind = "mem"
//!     size = "1GiB"
//! "#;
//! let config = ServeConfig::parse(file)?;
//! assert_eq!(config.subsystems[0].namespaces[0].size, Some(1 << 30));
//! # Ok::<(), String>(())
//! ```
//!
//! [`args`] is the one source of the command line, also for man pages and completions.

pub mod addresses;
pub mod args;
mod attach;
mod bench;
pub mod config;
mod connect;
mod control;
mod ctl;
mod detach;
mod doctor;
mod failure;
mod first_steps;
#[cfg(feature = "rbd")]
mod gateway;
mod generate;
mod inventory;
mod keys;
mod logs;
mod mdns;
pub mod namespace;
mod notify;
mod output;
mod query;
mod rates;
mod registry;
mod resv;
mod running;
mod serve;
mod signals;
mod slow;
mod status;
mod terminal;
mod tls;
mod top;
pub mod units;
mod usage;

pub use failure::{CommandFailure, CommandResult, FailureKind};

use args::{CommandLine, RoadtrainCommand};
use roadtrain_host_engine::identity;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program with the arguments of its process.
#[must_use]
pub fn main() -> ExitCode {
    generate::answer_shell();
    main_with(std::env::args_os())
}

/// Runs the program with these arguments; the first is its name.
#[must_use]
pub fn main_with(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    if first_steps::are_needed(&arguments) {
        terminal::say(first_steps::OF_SERVE.trim_end());
        return ExitCode::from(CommandFailure::usage("").status());
    }
    let cli = CommandLine::read(arguments.clone());
    let cli = cli.unwrap_or_else(|error| usage::explained(error, &arguments).exit());
    // Connections need descriptors; if the limit cannot be raised, it may suffice.
    let _ = roadtrain_system::platform::raise_open_files();
    let status = match run(&cli) {
        Ok(()) => 0,
        Err(failure) => {
            if !failure.message.is_empty() {
                terminal::say(output::lines(&failure.to_string()));
            }
            failure.status()
        }
    };
    #[cfg(feature = "rbd")]
    roadtrain_store::end_process(status);
    ExitCode::from(status)
}

fn run(cli: &CommandLine) -> CommandResult {
    let global = &cli.global;
    match &cli.command {
        RoadtrainCommand::Serve(args) => serve::run(args, global),
        RoadtrainCommand::Discover(args) => query::discover(args, global),
        RoadtrainCommand::Identify(args) => query::identify(args, global),
        RoadtrainCommand::List(args) => query::list(args, global),
        RoadtrainCommand::Attach(args) => attach::run(args, global),
        RoadtrainCommand::Detach(args) => detach::run(args, global),
        RoadtrainCommand::Status(args) => status::run(args, global),
        RoadtrainCommand::Slow(args) => slow::run(args, global),
        RoadtrainCommand::Top(args) => top::run(args, global),
        RoadtrainCommand::Resv(args) => resv::run(args, global),
        RoadtrainCommand::Ctl(args) => ctl::run(args, global),
        RoadtrainCommand::Bench(args) => bench::run(args, global),
        RoadtrainCommand::Doctor(args) => doctor::run(args, global),
        RoadtrainCommand::Hostnqn(_) => query::hostnqn(global),
        RoadtrainCommand::Keys(args) => keys::run(args, global),
        RoadtrainCommand::Completions(args) => generate::completions(args),
        RoadtrainCommand::Man(args) => generate::man(args),
    }
}
