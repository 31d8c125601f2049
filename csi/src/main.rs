//! CSI driver: volumes of a Roadtrain target for Kubernetes. `docs/guide/kubernetes.md` says how to use it.

mod args;
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
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_max_level(args.log_level)
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
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
