//! `roadtrain-lab`: experiments that judge the product: the floor of this machine, the comparison
//! with it, and the page that reports both.

mod apps;
mod balance;
mod checks;
mod command;
mod cores;
mod epoll;
mod ether;
mod eval;
mod fio;
mod first;
mod floor;
mod floor_ether;
mod floor_fuse;
mod hand_over;
mod impair;
mod interrupt;
mod judge;
mod links;
mod loopback;
mod machine;
mod manage;
mod measure;
mod metric;
mod noise;
mod noted;
mod output;
mod packet;
mod page;
mod paths;
mod process;
mod procfs;
mod product;
mod report;
mod runs;
mod service;
mod table;
mod tables;
mod tsockets;
mod undo;
mod wired;
mod workload;
#[cfg(test)]
mod xml;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures what this machine allows and how close Roadtrain comes.
#[derive(Parser)]
#[command(name = "roadtrain-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Move an NVMe/TCP workload's bytes over a bare TCP socket: the physical limit
    Floor(floor::Args),
    /// The first request after a time of idleness, by the product and over a bare socket
    First(first::Args),
    /// The limit of the Ethernet transport: the same frames, without a protocol (as root)
    FloorEther(floor_ether::Args),
    /// The limit of the FUSE front-end, and how close the product comes (as root, with fio)
    FloorFuse(floor_fuse::Args),
    /// Run the product and the floor alternately; print what is reached, write JSON
    Table(table::Args),
    /// Reproduce the published figures and check our goals: JSON, charts, an HTML report
    Eval(eval::Args),
    /// Render an evaluation's report from its JSON again
    Render(eval::RenderArgs),
    /// Run RocksDB, PostgreSQL and scans of files on our devices and on others': JSON, an HTML report
    Apps(apps::Args),
    /// Check what the Ethernet transport has to reach, bar by bar (as root)
    Ether(ether::Args),
    /// Pass frames between two interfaces as a bad link does (as root)
    Impair(impair::Args),
    /// Check what several paths have to reach, bar by bar (as root)
    Paths(checks::Args),
    /// How long lanes that come in on one core take to be spread over two
    Balance(checks::Args),
    /// Check what managing and limiting may cost, bar by bar
    Manage(checks::Args),
    /// Run a command at each end of links between two network namespaces (as root)
    Links(links::Args),
    /// Read files by threads, and say how fast
    #[command(hide = true)]
    Scan(apps::ScanArgs),
    /// Run a target that hands commands and completions to other threads, to compare
    HandOver(hand_over::Args),
    /// Run `roadtrain` with TCP connections that carry the frames of -t ether, to compare
    Tsockets(tsockets::Args),
    /// Put committed results into docs/PERFORMANCE.md and lab/JOURNAL.md again, or check that they are there
    Report(report::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    let done = match Cli::parse().command {
        Command::Balance(args) => balance::main(&args),
        Command::Floor(args) => floor::main(&args),
        Command::First(args) => first::main(&args),
        Command::FloorEther(args) => floor_ether::main(&args),
        Command::FloorFuse(args) => floor_fuse::main(&args),
        Command::Table(args) => table::main(args),
        Command::Eval(args) => eval::main(&args),
        Command::Render(args) => eval::render_main(&args),
        Command::Apps(args) => apps::main(&args),
        Command::Ether(args) => ether::main(&args),
        Command::Impair(args) => impair::main(&args),
        Command::Links(args) => links::main(&args),
        Command::Paths(args) => paths::main(&args),
        Command::Manage(args) => manage::main(&args),
        Command::Scan(args) => apps::scan_main(&args),
        Command::HandOver(args) => hand_over::main(&args),
        Command::Tsockets(args) => return Ok(tsockets::main(args)),
        Command::Report(args) => report::main(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
