//! `roadtrain-bench`: experiments that judge the product: the floor of this machine, the comparison
//! with it, and the page that reports both.

mod floor;
mod measure;
mod report;
mod table;

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
    /// Run the product and the floor alternately; print what is reached, write JSON
    Table(table::Args),
    /// Put a table into docs/PERFORMANCE.md
    Report(report::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Floor(args) => floor::main(&args),
        Command::Table(args) => table::main(args),
        Command::Report(args) => report::main(&args),
    }
}
