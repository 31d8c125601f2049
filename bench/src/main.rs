//! `roadtrain-bench`: experiments that judge the product: the floor of this machine, the comparison
//! with it, and the page that reports both.

mod floor;

use clap::{Parser, Subcommand};

/// Measures what this machine allows and how close Roadtrain comes.
#[derive(Parser)]
#[command(name = "roadtrain-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Move an NVMe/TCP workload's bytes over a bare TCP socket: the physical limit
    Floor(floor::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Floor(args) => floor::main(&args),
    }
}
