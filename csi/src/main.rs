//! CSI driver: volumes of a Roadtrain target for Kubernetes. `docs/guide/kubernetes.md` says how to use it.

mod args;
mod calls;
mod capability;
mod controller;
mod health;
mod identity;
mod locks;
mod metrics;
mod names;
mod node;
mod plan;
mod proto;
mod rpc;
mod server;
mod settings;
mod target;

use args::Args;
use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    let args = Args::parse();
    // Messages of libraries are for those who write them.
    let own = Targets::new().with_target("roadtrain_csi", args.log_level).with_default(Level::WARN);
    let format = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    tracing_subscriber::registry().with(format.with_filter(own)).init();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("roadtrain-csi: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(server::run(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("roadtrain-csi: {message}");
            ExitCode::FAILURE
        }
    }
}
