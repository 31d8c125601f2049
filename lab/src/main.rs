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
struct LabCli {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Move an NVMe/TCP workload's bytes over a bare TCP socket: the physical limit
    Floor(floor::FloorArgs),
    /// The first request after a time of idleness, by the product and over a bare socket
    First(first::FirstArgs),
    /// The limit of the Ethernet transport: the same frames, without a protocol (as root)
    FloorEther(floor_ether::FloorEtherArgs),
    /// The limit of the FUSE front-end, and how close the product comes (as root, with fio)
    FloorFuse(floor_fuse::FloorFuseArgs),
    /// Run the product and the floor alternately; print what is reached, write JSON
    Table(table::TableArgs),
    /// Reproduce the published figures and check our goals: JSON, charts, an HTML report
    Eval(eval::EvalArgs),
    /// Render an evaluation's report from its JSON again
    Render(eval::RenderArgs),
    /// Run RocksDB, PostgreSQL and scans of files on our devices and on others': JSON, an HTML report
    Apps(apps::AppsArgs),
    /// Check what the Ethernet transport has to reach, bar by bar (as root)
    Ether(ether::EtherChecksArgs),
    /// Pass frames between two interfaces as a bad link does (as root)
    Impair(impair::ImpairArgs),
    /// Check what several paths have to reach, bar by bar (as root)
    Paths(checks::ChecksArgs),
    /// How long lanes that come in on one core take to be spread over two
    Balance(checks::ChecksArgs),
    /// Check what managing and limiting may cost, bar by bar
    Manage(checks::ChecksArgs),
    /// Run a command at each end of links between two network namespaces (as root)
    Links(links::LinksArgs),
    /// Read files by threads, and say how fast
    #[command(hide = true)]
    Scan(apps::ScanArgs),
    /// Run a target that hands commands and completions to other threads, to compare
    HandOver(hand_over::HandOverArgs),
    /// Run `roadtrain` with TCP connections that carry the frames of -t ether, to compare
    Tsockets(tsockets::TSocketsArgs),
    /// Put committed results into docs/PERFORMANCE.md and lab/JOURNAL.md again, or check that they are there
    Report(report::ReportArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    let done = match LabCli::parse().command {
        LabCommand::Balance(args) => balance::main(&args),
        LabCommand::Floor(args) => floor::main(&args),
        LabCommand::First(args) => first::main(&args),
        LabCommand::FloorEther(args) => floor_ether::main(&args),
        LabCommand::FloorFuse(args) => floor_fuse::main(&args),
        LabCommand::Table(args) => table::main(args),
        LabCommand::Eval(args) => eval::main(&args),
        LabCommand::Render(args) => eval::render_main(&args),
        LabCommand::Apps(args) => apps::main(&args),
        LabCommand::Ether(args) => ether::main(&args),
        LabCommand::Impair(args) => impair::main(&args),
        LabCommand::Links(args) => links::main(&args),
        LabCommand::Paths(args) => paths::main(&args),
        LabCommand::Manage(args) => manage::main(&args),
        LabCommand::Scan(args) => apps::scan_main(&args),
        LabCommand::HandOver(args) => hand_over::main(&args),
        LabCommand::Tsockets(args) => return Ok(tsockets::main(args)),
        LabCommand::Report(args) => report::main(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
